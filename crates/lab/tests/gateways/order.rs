//! One TCP connection through a tunnel whose packets all workers share, and the reordering that the
//! kernels at its ends report.

use crate::support::{Gateway, assert_reaches, root_or_skip, skip};
use crate::tunnel::{FAR, NEAR, Net, SERVER};
use polder_testbed::topology::Namespace;
use polder_testbed::traffic::sockets::tcp_goodput;
use std::collections::HashMap;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Enough on its way that batches are full and others are asked to help, less than any ring holds.
const WINDOW: &str = "4096 400000 400000";
/// Counters by which the ends of a connection report reordering: the receiver that it had to wait for
/// a segment, the sender that an acknowledgement named one that was not lost.
const SEEN: [&str; 6] =
    ["TCPOFOQueue", "TCPSACKReorder", "TCPTSReorder", "TCPRenoReorder", "TCPDSACKOfoRecv", "TCPDSACKOfoSent"];

fn configuration(local: Ipv4Addr, remote: Ipv4Addr, restore: bool) -> String {
    format!(
        r#"
workers = 2
[lab]
restore_order = {restore}
[port.eth0]
interface = "eth0"
mode = "native"
order = "spread"
[port.radio0]
interface = "radio0"
mode = "native"
role = "underlay"
order = "spread"
[tunnel.peer]
kind = "gretap"
local = "{local}"
remote = "{remote}"
port = "radio0"
[bridge.lan]
members = ["eth0", "peer"]
"#
    )
}

/// The kernel's counters of a namespace (`nstat`).
fn counters(namespace: &Namespace) -> HashMap<String, u64> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap();
    let text = namespace.inside(|| [read("netstat"), read("snmp")].concat()).unwrap();
    let lines = text.lines().collect::<Vec<_>>();
    let pairs = lines.chunks(2).filter(|pair| pair.len() == 2).flat_map(|pair| {
        let names = pair[0].split_whitespace().skip(1);
        names.zip(pair[1].split_whitespace().skip(1))
    });
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// Results of a connection.
#[derive(Debug)]
struct Outcome {
    megabits: f64,
    /// By counter, of both ends together.
    seen: Vec<(&'static str, u64)>,
    /// Segments that were sent twice.
    again: u64,
    /// Work batches that a worker took from another one.
    helped: u64,
    restored: u64,
}

impl Outcome {
    fn reordered(&self) -> u64 {
        self.seen.iter().map(|(_, count)| count).sum()
    }
}

/// Two gateways with a tunnel between them, and an end of connections behind each.
struct Pair {
    net: Net,
    gateways: [Gateway; 2],
}

impl Pair {
    fn start(restore: bool) -> Self {
        let net = Net::new(1600);
        let gateways = [
            Gateway::start(&net.topology, &net.near, &configuration(NEAR, FAR, restore)),
            Gateway::start(&net.topology, &net.far, &configuration(FAR, NEAR, restore)),
        ];
        assert_reaches(&net.client, SERVER);
        for end in [&net.client, &net.server] {
            for name in ["tcp_rmem", "tcp_wmem"] {
                end.inside(|| std::fs::write(format!("/proc/sys/net/ipv4/{name}"), WINDOW)).unwrap().unwrap();
            }
        }
        Self { net, gateways }
    }

    /// One connection of a certain time; the gateways' own counts are since their start.
    fn connection(&self, time: Duration) -> Outcome {
        let ends = [&self.net.client, &self.net.server];
        let before = ends.map(counters);
        let destination = SocketAddrV4::new(SERVER, 7021);
        let warm_up = Duration::from_millis(200);
        let goodput = tcp_goodput(&self.net.client, &self.net.server, destination, warm_up, time).unwrap();
        let after = ends.map(counters);
        let moved = |name: &str| {
            let count = |counters: &HashMap<String, u64>| counters.get(name).copied().unwrap_or(0);
            after.iter().map(count).sum::<u64>() - before.iter().map(count).sum::<u64>()
        };
        let steering =
            |name: &str| self.gateways.iter().flat_map(|gateway| gateway.all("steering", name)).sum::<u64>();
        let outcome = Outcome {
            megabits: goodput / 1e6,
            seen: SEEN.map(|name| (name, moved(name))).to_vec(),
            again: moved("RetransSegs"),
            helped: steering("helped"),
            restored: steering("restored"),
        };
        let _ = writeln!(std::io::stderr(), "{outcome:?}");
        outcome
    }

    /// Connections until workers have helped each other and `enough` is there, but not without end.
    ///
    /// A worker helps when it gets a core while another one has work batches left, which a machine that does other
    /// things may never let happen.
    fn connections(&self, time: Duration, enough: impl Fn(&Outcome) -> bool) -> Option<Outcome> {
        for _ in 0..ROUNDS {
            let outcome = self.connection(time);
            if outcome.helped > HELP && enough(&outcome) {
                return Some(outcome);
            }
        }
        None
    }

    fn stop(self) {
        self.gateways.into_iter().for_each(Gateway::stop);
    }
}

/// Connections at most, and work batches that have to be taken by another worker before anything is concluded.
const ROUNDS: u32 = 10;
const HELP: u64 = 10;

/// Checks that the kernels at the ends of a connection have seen no reordering.
fn check(outcome: &Outcome) {
    assert!(outcome.megabits > 0.0 && outcome.restored > 1000, "nothing was put in order: {outcome:?}");
    // On a machine that does other things a ring may overflow; then the receiver waits for what is lost.
    let told = if outcome.again == 0 { outcome.reordered() } else { spurious(outcome) };
    assert_eq!(told, 0, "{outcome:?}");
}

/// Number of events that only reordering causes, whatever was lost beside it.
fn spurious(outcome: &Outcome) -> u64 {
    outcome.seen.iter().filter(|(name, _)| name.ends_with("Reorder")).map(|(_, count)| count).sum()
}

fn sees_no_reordering(test: &str, time: Duration) {
    if !root_or_skip(test) {
        return;
    }
    let pair = Pair::start(true);
    let helped = pair.connections(time, |outcome| {
        check(outcome);
        true
    });
    pair.stop();
    if helped.is_none() {
        skip(test, NO_HELP);
    }
}

/// Reason why nothing can be said.
const NO_HELP: &str = "no worker got a core while another one had work for it: this machine is too busy";

#[test]
fn a_connection_over_all_workers_sees_no_reordering() {
    sees_no_reordering("a_connection_over_all_workers_sees_no_reordering", Duration::from_secs(8));
}

#[test]
#[ignore = "long: a minute of TCP"]
fn a_connection_over_all_workers_sees_no_reordering_for_a_minute() {
    sees_no_reordering(
        "a_connection_over_all_workers_sees_no_reordering_for_a_minute",
        Duration::from_secs(60),
    );
}

#[test]
fn without_restoration_the_kernels_see_that_it_is_reordered() {
    let test = "without_restoration_the_kernels_see_that_it_is_reordered";
    if !root_or_skip(test) {
        return;
    }
    let pair = Pair::start(false);
    let reordered = pair.connections(Duration::from_secs(4), |outcome| outcome.reordered() > 0);
    let helped = pair.gateways.iter().flat_map(|gateway| gateway.all("steering", "helped")).sum::<u64>();
    pair.stop();
    if helped <= HELP {
        return skip(test, NO_HELP);
    }
    assert!(reordered.is_some(), "{helped} work_batches were taken by others, and nobody saw it");
}
