//! Metrics and health over HTTP: `/metrics`, `/healthz` and `/readyz`.
//!
//! ```text
//! workers ── counters ──▶ collector (rows, as in `polder show`) ──▶ text ──▶ server ──▶ Prometheus
//! ```
//!
//! The collector's thread takes the gateway's lock as long as `polder show` does; the server's thread, which talks to
//! untrusted clients, has no access to the gateway and no privileges. Neither thread shares anything with workers.
//! [`listen`] binds the socket before the process is confined, [`http`] parses requests and builds answers, and [`server`]
//! has the threads. Each metric is declared with its row of `show`.
//!
//! `docs/adr/0053-metrics-and-events.md` has the reasons.

pub mod http;
pub mod listen;
mod rows;
pub mod server;
#[cfg(test)]
mod tests;

use crate::show::family::Labels;
use crate::show::row::expose;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
pub use rows::{GatewayState, Rows};
use std::fmt;

/// Prefix of all metric names.
const PREFIX: &str = "polder";

impl Rows {
    /// The metrics in OpenMetrics 1.0 text format.
    pub fn expose(self) -> String {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(Exposed(self)));
        let mut text = String::new();
        // Writing into a string does not fail.
        let _: fmt::Result = encode(&mut text, &registry);
        text
    }
}

/// Rows as the library collects them.
#[derive(Debug)]
struct Exposed(Rows);

impl Collector for Exposed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = [(Labels::default(), &self.0)];
        expose(&all, &mut encoder)?;
        rows::ROUTING.encode(&all, &mut encoder)
    }
}
