//! A routing daemon that restarts, while pings go by a route that it has learnt.
//!
//! ```text
//!  client ══ left [ gateway: Polder and FRR ] right ══ peer: FRR, and the address that is asked
//! ```

use crate::clock;
use crate::command::{self, Running};
use crate::interrupt;
use crate::meters::statistics::Samples;
use crate::peers::frr::{Frr, writable};
use crate::peers::polder::{find, program, ran_with};
use crate::scenarios::Run;
use crate::topology::{End, Namespace, Topology};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Packets lost by a gateway that holds routes.
pub(super) const HELD: &str = "operate.frr_restart.lost";
/// The same by one that does not.
pub(super) const NOT_HELD: &str = "operate.frr_restart.lost.not_held";

/// Address that only OSPF makes known.
const ADDRESS: &str = "10.87.0.2";
/// Time for which pings go, and between two of them.
const PINGS: (u32, f64) = (24, 0.004);
/// Time from the first ping to the end of the daemon, and from that to its next start.
const BEFORE: Duration = Duration::from_secs(2);
const BETWEEN: Duration = Duration::from_secs(2);
/// Time for which anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if !run.wants_any(&[HELD, NOT_HELD]) {
        return Ok(());
    }
    if let Err(reason) = Frr::available() {
        run.skip(&[HELD, NOT_HELD], &format!("{reason:#}"));
        return Ok(());
    }
    let rounds = run.quick_or(1, 10);
    let (mut held, mut not_held, mut most) = (Samples::default(), Samples::default(), 0);
    for round in 1..=rounds {
        run.says(&format!("a routing daemon restarts, round {round} of {rounds}"));
        let (lost, routes) = Site::lay()?.restart("30")?;
        ensure!(routes > 0, "the gateway held no route");
        most = most.max(routes);
        held.push(lost);
        let (lost, routes) = Site::lay()?.restart("\"never\"")?;
        ensure!(routes == 0, "a gateway that is to hold nothing held {routes} routes");
        not_held.push(lost);
    }
    run.record(HELD, &held);
    run.record(NOT_HELD, &not_held);
    let (seconds, interval) = PINGS;
    run.remark(
        HELD,
        format!(
            "{} pings, one each {} ms; zebra, ospfd and ospf6d end and are started again {} s later; {most} routes held",
            f64::from(seconds) / interval,
            interval * 1000.0,
            BETWEEN.as_secs()
        ),
    );
    Ok(())
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

    /// Lost pings, and the routes that were held at most.
    fn restart(&self, hold: &str) -> anyhow::Result<(f64, u64)> {
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
        let routes = self.held()?;
        let _frr = self.frr(&self.gateway, "10.87.0.1", "right")?;
        // What is lost counts; that some are is no failure.
        let _: std::process::ExitStatus = pings.wait(PATIENCE)?;
        let said = pings.said();
        let (sent, received) = numbers(&said).with_context(|| format!("ping said: {said}"))?;
        ensure!(sent > 1000, "only {sent} pings were sent");
        let (shown, held) = (self.routes(&[])?, self.held()?);
        ensure!(held == 0, "{held} routes are held that have come back: {shown}");
        let status = polder.stop()?;
        ensure!(status.success(), "polder ended: {}", command::last_lines(&polder.said(), 12));
        Ok(((sent - received) as f64, routes))
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
