//! Metrics and health over HTTP: `/metrics`, `/healthz` and `/readyz`.
//!
//! ```text
//!  workers ── counters ──▶ collector (rows, as `polder show` has them) ──▶ text ──▶ server ──▶ Prometheus
//! ```
//!
//! The collector's thread takes the gateway's lock for as long as `polder show` does; the server's thread has neither
//! the gateway nor any right, and speaks to strangers. A worker meets neither of them. [`listen`] binds the socket before
//! the process is confined, [`http`] reads requests and writes answers, [`server`] is the thread, and the tables of
//! families are in the other files: one file for each kind of row.
//!
//! `docs/adr/0053-metrics-and-events.md` has the reasons.

mod family;
pub mod http;
pub mod listen;
mod ports;
mod rows;
pub mod server;
mod state;
#[cfg(test)]
mod tests;
mod traffic;
mod workers;

use crate::show::ports::PortRow;
use family::encode_all;
use ports::Behind;
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
        let (rows, out) = (&self.0, &mut encoder);
        encode_all(state::GATEWAY, std::slice::from_ref(&rows.state), traffic::none, out)?;
        encode_all(traffic::LAW, std::slice::from_ref(&rows.counters), traffic::none, out)?;
        encode_all(traffic::DROPS, std::slice::from_ref(&rows.drops), traffic::none, out)?;
        encode_all(ports::PORT, &rows.ports, ports::labels, out)?;
        encode_all(ports::ADAPTER, &rows.behind(|port| port.adapter.clone()), Behind::labels, out)?;
        encode_all(ports::NIC, &rows.behind(|port| port.nic.clone()), Behind::labels, out)?;
        encode_all(traffic::TUNNEL, &rows.tunnels, traffic::tunnel_labels, out)?;
        encode_all(traffic::BFD, &rows.tunnels, traffic::tunnel_labels, out)?;
        encode_all(traffic::KEEPALIVE, &rows.tunnels, traffic::tunnel_labels, out)?;
        encode_all(traffic::BRIDGE, &rows.bridges, traffic::bridge_labels, out)?;
        encode_all(traffic::QUEUE, &rows.queues, traffic::queue_labels, out)?;
        encode_all(traffic::FILTER, std::slice::from_ref(&rows.filters), traffic::none, out)?;
        encode_all(traffic::RULE, &rows.filters.rules, traffic::rule_labels, out)?;
        encode_all(traffic::FAST_PATH, &rows.fast_path, traffic::fast_path_labels, out)?;
        encode_all(state::ROUTER, std::slice::from_ref(&rows.routes), traffic::none, out)?;
        encode_all(state::ROWS, std::slice::from_ref(rows), traffic::none, out)?;
        encode_all(workers::WORKER, &rows.workers, workers::labels, out)?;
        encode_all(workers::STAGE, &rows.path, workers::path_labels, out)?;
        encode_all(workers::STEERING, &rows.steering, workers::steering_labels, out)?;
        encode_all(state::BUFFERS, std::slice::from_ref(&rows.buffers), traffic::none, out)?;
        encode_all(state::POOL, &rows.buffers.pools, state::pool_labels, out)?;
        encode_all(state::TRANSFER, &rows.buffers.transfers, state::transfer_labels, out)
    }
}

impl Rows {
    /// Devices of one kind behind ports.
    fn behind<T>(&self, device: fn(&PortRow) -> Option<T>) -> Vec<Behind<T>> {
        let of = |port: &PortRow| Some(Behind { port: port.name.clone(), device: device(port)? });
        self.ports.iter().filter_map(of).collect()
    }
}
