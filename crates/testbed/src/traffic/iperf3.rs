//! TCP by iperf3: what its receiver counted.

use crate::command::{self, Running};
use crate::topology::Namespace;
use anyhow::Context as _;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Time for which the server may take until it listens.
const LISTENS: Duration = Duration::from_secs(5);
const PORT: &str = "5202";

/// A transfer from one namespace to another.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    /// Namespace of the client, which sends.
    pub from: &'a Namespace,
    /// Namespace of the server.
    pub to: &'a Namespace,
    /// The server's address.
    pub address: Ipv4Addr,
    /// Number of connections.
    pub streams: u16,
    /// Time that does not count; whole seconds are taken.
    pub warm_up: Duration,
    /// Time that counts, of which whole seconds are taken, one at least.
    pub time: Duration,
}

impl Transfer<'_> {
    /// Goodput in bits a second.
    ///
    /// # Errors
    /// When iperf3 is not installed, fails, or says something unknown; when interrupted.
    pub fn goodput(&self) -> anyhow::Result<f64> {
        let address = self.address.to_string();
        let mut server = self.to.command("iperf3");
        server.args(["--server", "--one-off", "--forceflush", "--bind", &address, "--port", PORT]);
        let mut server = Running::start("iperf3", &mut server)?;
        server.wait_for("listening", 0, LISTENS)?;
        let (seconds, omitted) = (self.time.as_secs().max(1), self.warm_up.as_secs_f64().ceil());
        let mut client = self.from.command("iperf3");
        client.args([
            "--client",
            &address,
            "--port",
            PORT,
            "--json",
            "--parallel",
            &self.streams.to_string(),
        ]);
        client.args(["--time", &seconds.to_string(), "--omit", &omitted.to_string()]);
        let told = command::run(&mut client)?;
        goodput_in(&told).context("iperf3's report has an unknown form")
    }
}

/// Goodput that iperf3's receiver counted, in bits a second.
pub fn goodput_in(report: &str) -> Option<f64> {
    let report = serde_json::from_str::<serde_json::Value>(report).ok()?;
    report.pointer("/end/sum_received/bits_per_second")?.as_f64().filter(|&rate| rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::goodput_in;

    #[test]
    fn what_the_receiver_counted_is_taken() {
        let report =
            r#"{"end": {"sum_sent": {"bits_per_second": 9e9}, "sum_received": {"bits_per_second": 17e6}}}"#;
        assert_eq!(goodput_in(report), Some(17e6));
        assert_eq!(goodput_in("{}"), None);
        assert_eq!(goodput_in(r#"{"error": "unable to connect"}"#), None);
    }
}
