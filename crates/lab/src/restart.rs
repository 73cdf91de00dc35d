//! A routing daemon that restarts, while pings go by a route that it has learnt.
//!
//! ```text
//!  client ══ left [ gateway: Polder and FRR ] right ══ peer: FRR, and the address that is asked
//! ```

use anyhow::{Context as _, ensure};
use polder_testbed::clock;
use polder_testbed::command::{self, Running};
use polder_testbed::interrupt;
use polder_testbed::peers::frr::{Frr, writable};
use polder_testbed::peers::polder::{find, program, ran_with};
use polder_testbed::topology::{End, Namespace, Topology};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Address that only OSPF makes known.
const ADDRESS: &str = "10.87.0.2";
/// Time for which pings go, and between two of them.
const PINGS: (u32, f64) = (24, 0.004);
/// Time from the first ping to the end of the daemon, and from that to its next start.
const BEFORE: Duration = Duration::from_secs(2);
pub(crate) const BETWEEN: Duration = Duration::from_secs(2);
/// Time for which anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Result of a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// Pings that were sent.
    pub sent: u64,
    /// Pings without an answer.
    pub lost: u64,
    /// Routes that the gateway held while the daemons were away.
    pub held: u64,
}

/// Restarts FRR on a gateway with this `hold_seconds`, as in its file, while pings go through it. It takes half a minute.
///
/// # Errors
/// When a program does not start, OSPF makes nothing known, or routes are held that have come back.
pub fn restart(hold: &str) -> anyhow::Result<Restart> {
    Site::lay()?.restart(hold)
}

/// The three machines.
struct Site {
    topology: Topology,
    client: Namespace,
    gateway: Namespace,
    peer: Namespace,
}

impl Site {
    fn lay() -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let [client, gateway, peer] = ["cl", "gw", "pe"].map(|role| topology.namespace(role));
        let site = Self { client: client?, gateway: gateway?, peer: peer?, topology };
        let end = |namespace, interface| End { namespace, interface };
        site.topology.wire_with_offloads(end(&site.client, "eth0"), end(&site.gateway, "left"), 1500)?;
        site.topology.wire_with_offloads(end(&site.peer, "eth0"), end(&site.gateway, "right"), 1500)?;
        for (namespace, interface, address) in [
            (&site.client, "eth0", "10.87.1.2/24"),
            (&site.gateway, "left", "10.87.1.1/24"),
            (&site.gateway, "right", "10.87.2.1/24"),
            (&site.gateway, "lo", "10.87.0.1/32"),
            (&site.peer, "eth0", "10.87.2.2/24"),
            (&site.peer, "lo", "10.87.0.2/32"),
        ] {
            namespace.ip(&["address", "add", address, "dev", interface])?;
        }
        site.client.ip(&["route", "add", "default", "via", "10.87.1.1"])?;
        site.peer.ip(&["route", "add", "10.87.1.0/24", "via", "10.87.2.1"])?;
        Ok(site)
    }

    fn socket(&self) -> PathBuf {
        self.topology.directory().join("restart.sock")
    }

    fn start(&self, hold: &str) -> anyhow::Result<Running> {
        let text = format!(
            "version = 1\n\n[gateway]\ncontrol = \"{}\"\n\n[port.left]\ninterface = \"left\"\nrole = \"router\"\n\n\
             [port.right]\ninterface = \"right\"\nrole = \"router\"\n\n[router]\nhold_seconds = {hold}\n",
            self.socket().display()
        );
        ran_with(&format!("a routing daemon restarts, hold_seconds = {hold}"), &text);
        let file = self.topology.directory().join("restart.toml");
        fs::write(&file, text)?;
        let mut command = self.gateway.command(program()?);
        Running::start("polder", command.args(["run", "--yes"]).arg(&file))
    }

    fn frr(&self, namespace: &Namespace, id: &str, interface: &str) -> anyhow::Result<Frr> {
        let directory = writable(self.topology.directory(), namespace)?;
        Frr::ospf(namespace, &directory, id, &[interface])
    }

    fn restart(&self, hold: &str) -> anyhow::Result<Restart> {
        let mut polder = self.start(hold)?;
        let _peer = self.frr(&self.peer, ADDRESS, "eth0")?;
        let frr = self.frr(&self.gateway, "10.87.0.1", "right")?;
        let begun = clock::now();
        while self.ping(&["-c", "1", "-W", "1"]).is_err() {
            polder.check()?;
            ensure!(clock::now() - begun < PATIENCE, "OSPF has made nothing known");
        }
        let (seconds, interval) = PINGS;
        let (count, interval) = ((f64::from(seconds) / interval).to_string(), interval.to_string());
        let mut command = self.client.command("ping");
        let mut pings =
            Running::start("ping", command.args(["-n", "-q", "-c", &count, "-i", &interval, ADDRESS]))?;
        interrupt::sleep(BEFORE)?;
        frr.stop()?;
        interrupt::sleep(BETWEEN)?;
        let held = self.held()?;
        let _frr = self.frr(&self.gateway, "10.87.0.1", "right")?;
        // What is lost counts; that some are is no failure.
        let _: std::process::ExitStatus = pings.wait(PATIENCE)?;
        let said = pings.said();
        let (sent, received) = numbers(&said).with_context(|| format!("ping said: {said}"))?;
        ensure!(sent > 1000, "only {sent} pings were sent");
        let (shown, left) = (self.routes(&[])?, self.held()?);
        ensure!(left == 0, "{left} routes are held that have come back: {shown}");
        let status = polder.stop()?;
        ensure!(status.success(), "polder ended: {}", command::last_lines(&polder.said(), 12));
        Ok(Restart { sent, lost: sent - received, held })
    }

    fn ping(&self, options: &[&str]) -> anyhow::Result<String> {
        command::run(self.client.command("ping").args(["-n"]).args(options).arg(ADDRESS))
    }

    fn routes(&self, options: &[&str]) -> anyhow::Result<String> {
        let mut command = self.gateway.command(program()?);
        command::run(command.args(["show", "routes"]).args(options).arg("--socket").arg(self.socket()))
    }

    /// Number of routes that the gateway holds.
    fn held(&self) -> anyhow::Result<u64> {
        let mut command = self.gateway.command(program()?);
        let said = command::run(command.args(["show", "routes", "--json", "--socket"]).arg(self.socket()))?;
        let shown = serde_json::from_str::<Value>(&said)?;
        find(&shown, "held").and_then(Value::as_u64).context("the routes do not say how many are held")
    }
}

/// Sent and received, of ping's last lines: `6000 packets transmitted, 5990 received, 0.2% packet loss`.
fn numbers(said: &str) -> Option<(u64, u64)> {
    let line = said.lines().find(|line| line.contains(" packets transmitted, "))?;
    let mut words = line.split(' ');
    let sent = words.next()?.parse().ok()?;
    let received = words.nth(2)?.parse().ok()?;
    Some((sent, received))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_last_lines_of_ping_are_understood() {
        let said = "--- 10.0.0.1 ping statistics ---\n6000 packets transmitted, 5983 received, 0.28% packet loss, time 1 ms\n";
        assert_eq!(super::numbers(said), Some((6000, 5983)));
        assert_eq!(super::numbers("nothing"), None);
    }
}
