//! Metrics and health over HTTP: `/metrics`, `/healthz` and `/readyz`.
//!
//! ```text
//!  workers ── counters ──▶ collector (rows, as `polder show` has them) ──▶ text ──▶ server ──▶ Prometheus
//! ```
//!
//! The collector's thread takes the gateway's lock for as long as `polder show` does; the server's thread has neither
//! the gateway nor any right, and speaks to strangers. A worker meets neither of them. [`listen`] binds the socket before
//! the process is confined, [`http`] reads requests and writes answers, and [`server`] is the thread. A number's metric is
//! declared with the number, in its row of `show`.
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

/// Prefix of all names.
const PREFIX: &str = "polder";

impl Rows {
    /// The exposition in the text format of OpenMetrics 1.0.
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
