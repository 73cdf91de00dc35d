//! `queues`: delay, shares and rates behind a shaper.
//!
//! ```text
//!  left: two hosts ── west ─ polder, a bridge ─ east: queue, shaper both ways ── right
//!  10.94.0.1, 10.94.0.3                                                          10.94.0.2
//! ```

mod flood;

use super::response::{Ends, FLOWS, Times};
use super::turns::{Sheet, in_turn};
use super::{Run, Scenario};
use anyhow::ensure;
use flood::{Flood, Flow};
use polder_testbed::command;
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::peers::polder::ran_with;
use polder_testbed::topology::{End, Namespace, Topology, is_root};
use polder_testbed::traffic::sockets::{UdpStream, wait_for_ping};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "queues",
    about: "delay under load, shares of flows and hosts, and rates behind a shaper",
    needs_root: true,
    rows: include_str!("../rows/queues.rows"),
    measure,
};

/// Addresses of the hosts on the left, and of the machine on the right.
const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 94, 0, 1), Ipv4Addr::new(10, 94, 0, 3)];
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 94, 0, 2);

/// Kinds of queues, in the words of rows and of the configuration.
const KINDS: [(&str, &str); 4] =
    [("none", "drop-tail"), ("codel", "codel"), ("fq_codel", "fq_codel"), ("cake", "cake")];
/// Rates of the response under load, in Mbit/s.
const RATES: [u32; 3] = [10, 100, 1000];
/// Rates of which the error is measured, in Mbit/s.
const ERRORS: [u32; 4] = [5, 50, 500, 1000];
/// Rate at which shares are measured, in Mbit/s.
const SHARED: u32 = 20;
/// Bulk flows beside a sparse one, and their rate in Mbit/s.
const BULK: u16 = 64;
const BULK_RATE: u32 = 100;

const SPARSE: &str = "queues.sparse.p99_ms";
const ERROR: &str = "queues.rate_error_percent";
const FAIRNESS: &str = "queues.fairness.";
const UNACCOUNTED: &str = "queues.unaccounted";
const REORDERED: &str = "queues.reordered";

/// The gateway between its two machines.
struct Bed {
    // Taken down in this order.
    gateway: Gateway,
    left: Namespace,
    right: Namespace,
    _topology: Topology,
}

/// Packets of all runs that were lost without a count, or reordered.
#[derive(Clone, Copy, Debug, Default)]
struct Books {
    packets: u64,
    unaccounted: u64,
    reordered: u64,
}

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let all = run.rows("queues.");
    if run.or_skip(&all, available())?.is_none() {
        return Ok(());
    }
    run.place("stations, polder", "any", "as the kernel's scheduler puts them");
    let mut books = Books::default();
    for rate in RATES {
        response(run, &mut books, rate)?;
    }
    shares(run, &mut books)?;
    sparse(run, &mut books)?;
    rate_error(run, &mut books)?;
    if books.packets > 0 {
        run.record_count(UNACCOUNTED, books.unaccounted);
        run.record_count(REORDERED, books.reordered);
        run.remark(REORDERED, format!("of {} packets of floods and of sparse flows", books.packets));
    }
    Ok(())
}

fn available() -> anyhow::Result<()> {
    ensure!(is_root(), "needs root for network namespaces");
    ["ip", "ping", "iperf3"].into_iter().try_for_each(|program| {
        ensure!(command::exists(program), "{}", command::remedy(program));
        Ok(())
    })
}

impl Bed {
    /// Lays it out, with that kind of queue and that rate in Mbit/s both ways.
    fn lay(kind: &str, rate: u32) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let [left, gateway, right] = ["left", "dut", "right"].map(|role| topology.namespace(role));
        let (left, namespace, right) = (left?, gateway?, right?);
        for (station, port, addresses) in [(&left, "west", &HOSTS[..]), (&right, "east", &[RIGHT])] {
            let end = End { namespace: station, interface: "eth0" };
            topology.wire_with_offloads(end, End { namespace: &namespace, interface: port }, 1500)?;
            for address in addresses {
                station.ip(&["address", "add", &format!("{address}/24"), "dev", "eth0"])?;
            }
        }
        let tables = format!(
            "[port.west]\ninterface = \"west\"\n[port.east]\ninterface = \"east\"\nqueue = {{ kind = \"{kind}\" }}\n\
             [port.east.shaper]\nup = \"{rate} Mbit/s\"\ndown = \"{rate} Mbit/s\"\n[bridge.lan]\nmembers = [\"west\", \"east\"]\n"
        );
        ran_with(&format!("{kind}, {rate} Mbit/s"), &format!("version = 1\n{tables}"));
        let gateway = Gateway::start(&namespace, topology.directory(), &tables)?;
        ensure!(wait_for_ping(&left, RIGHT, Duration::from_secs(5))?, "no packet comes through the gateway");
        Ok(Self { gateway, left, right, _topology: topology })
    }

    /// Both machines, the sender of a direction first.
    fn machines(&self, is_up: bool) -> [&Namespace; 2] {
        if is_up { [&self.left, &self.right] } else { [&self.right, &self.left] }
    }

    /// Lets flows send, and adds their packets to the books.
    fn flood(&self, is_up: bool, flows: &[Flow], time: Duration, books: &mut Books) -> anyhow::Result<Flood> {
        let [from, to] = self.machines(is_up);
        let flood = flood::run(from, to, flows, time)?;
        books.packets += flood.arrived.iter().sum::<u64>();
        books.reordered += flood.reordered;
        Ok(flood)
    }

    /// Ends the gateway, and adds what it has not accounted for.
    fn stop(self, books: &mut Books) -> anyhow::Result<()> {
        books.unaccounted += self.gateway.unaccounted()?.unsigned_abs();
        self.gateway.stop().map(drop)
    }
}

/// Fills the rows of the response under load at a rate.
fn response(run: &mut Run, books: &mut Books, rate: u32) -> anyhow::Result<()> {
    let row = |what: &str, kind: &str| format!("queues.rrul.{rate}.{what}.{kind}");
    let kinds = KINDS
        .into_iter()
        .filter(|(kind, _)| ["p99_added_ms", "mbit"].iter().any(|what| run.wants(&row(what, kind))));
    let kinds = kinds.collect::<Vec<_>>();
    let names = kinds.iter().map(|(kind, _)| row("p99_added_ms", kind)).collect::<Vec<_>>();
    if kinds.is_empty() || !run.is_due(&names) {
        return Ok(());
    }
    let (rounds, load) = run.quick_or((1, 3), (10, 6));
    let times = Times { before: 1.0, load, after: 0.5 };
    let name = |(kind, _): &(&str, &str)| format!("{FLOWS} flows each way at {rate} Mbit/s, {kind}");
    let mut told = Vec::new();
    let sheet = in_turn(run, rounds, kinds, name, |(kind, word), sheet| {
        let bed = Bed::lay(word, rate)?;
        let ends = Ends { near: (&bed.right, RIGHT, None), far: (&bed.left, HOSTS[0], None) };
        let outcome = ends.load("cubic", &times)?;
        let added = outcome.added(&times)?;
        sheet.push(row("p99_added_ms", kind), added.last);
        sheet.push(row("mbit", kind), outcome.mbit.iter().sum());
        told.push((row("p99_added_ms", kind), outcome.text(&added)));
        bed.stop(books)
    })?;
    sheet.record(run);
    for (row, text) in told.into_iter().rev() {
        run.remark(&row, format!("{FLOWS} CUBIC flows each way; {text}"));
    }
    Ok(())
}

/// Fills the rows of shares: two hosts with 1 and 32 flows, and eight flows that send different amounts.
fn shares(run: &mut Run, books: &mut Books) -> anyhow::Result<()> {
    let rounds = run.quick_or(1, 10);
    let cases = [
        ("hosts", "cake", true),
        ("hosts", "cake", false),
        ("flows", "fq_codel", true),
        ("flows", "fq_codel", false),
    ];
    let row = |what: &str, is_up: bool| format!("{FAIRNESS}{what}.{}", if is_up { "up" } else { "down" });
    let cases =
        cases.into_iter().filter(|(what, _, is_up)| run.wants(&row(what, *is_up))).collect::<Vec<_>>();
    if cases.is_empty() || !run.is_due(&[row(cases[0].0, cases[0].2)]) {
        return Ok(());
    }
    let name = |(what, _, is_up): &(&str, &str, bool)| row(what, *is_up);
    let sheet = in_turn(run, rounds, cases, name, |(what, kind, is_up), sheet| {
        let bed = Bed::lay(kind, SHARED)?;
        let (flows, owner): (Vec<Flow>, fn(usize) -> usize) = match *what {
            "hosts" => (of_hosts(*is_up), |flow| usize::from(flow > 0)),
            _ => (of_one(*is_up), |flow| flow),
        };
        let flood = bed.flood(*is_up, &flows, Duration::from_secs(3), books)?;
        let mut shares = vec![0.0; (0..flows.len()).map(owner).max().map_or(0, |last| last + 1)];
        for (flow, &packets) in flood.arrived.iter().enumerate() {
            shares[owner(flow)] += packets as f64;
        }
        sheet.push(row(what, *is_up), jain(&shares));
        bed.stop(books)
    })?;
    sheet.record(run);
    Ok(())
}

/// A flow of a host, which sends a multiple of the shared rate.
fn flow(is_up: bool, host: Ipv4Addr, number: u16, of_rate: f64) -> Flow {
    let (from, to) = if is_up { (host, RIGHT) } else { (RIGHT, host) };
    Flow { from, to, number, packets_per_second: of_rate * flood::packets_per_second(SHARED) }
}

/// One host with a flow, and one with 32 of them; each sends twice the rate.
fn of_hosts(is_up: bool) -> Vec<Flow> {
    let first = flow(is_up, HOSTS[0], 0, 2.0);
    std::iter::once(first).chain((1..=32).map(|number| flow(is_up, HOSTS[1], number, 2.0 / 32.0))).collect()
}

/// Eight flows of a host, of which the last sends eight times as much as the first.
fn of_one(is_up: bool) -> Vec<Flow> {
    (1..=8).map(|number| flow(is_up, HOSTS[0], number, 0.25 * f64::from(number))).collect()
}

/// Jain's index of fairness: 1 if all shares are equal.
fn jain(shares: &[f64]) -> f64 {
    let sum = shares.iter().sum::<f64>();
    let squares = shares.iter().map(|share| share * share).sum::<f64>();
    sum * sum / (shares.len() as f64 * squares)
}

/// Fills the row of a sparse flow beside bulk flows.
fn sparse(run: &mut Run, books: &mut Books) -> anyhow::Result<()> {
    if !run.is_due(&[SPARSE]) {
        return Ok(());
    }
    let (rounds, seconds) = run.quick_or((1, 2), (10, 4));
    let sheet = in_turn(
        run,
        rounds,
        [()],
        |()| SPARSE.to_owned(),
        |(), sheet| {
            let bed = Bed::lay("fq_codel", BULK_RATE)?;
            let each = 2.0 * flood::packets_per_second(BULK_RATE) / f64::from(BULK);
            let bulk =
                (0..BULK).map(|number| Flow { from: HOSTS[1], to: RIGHT, number, packets_per_second: each });
            let bulk = bulk.collect::<Vec<_>>();
            let time = Duration::from_secs(seconds);
            let outcome = std::thread::scope(|scope| {
                let flooding =
                    scope.spawn(|| flood::run(&bed.left, &bed.right, &bulk, time + Duration::from_secs(1)));
                std::thread::sleep(Duration::from_millis(500));
                let destination = SocketAddrV4::new(RIGHT, 7007);
                let stream = UdpStream {
                    from: &bed.left,
                    to: &bed.right,
                    destination,
                    frame_bytes: 128,
                    rate: 100.0,
                    time,
                };
                let outcome = stream.run();
                let flood = flooding.join().map_err(|_| anyhow::anyhow!("the flood panicked"))??;
                books.packets += flood.arrived.iter().sum::<u64>();
                books.reordered += flood.reordered;
                outcome
            })?;
            books.packets += outcome.arrivals.sent;
            books.reordered += outcome.arrivals.reordered;
            sheet.push(SPARSE, outcome.latency.value_at_quantile(0.99) as f64 / 1e6);
            sheet.push("lost", outcome.arrivals.lost as f64);
            bed.stop(books)
        },
    )?;
    sheet.record(run);
    let lost = sheet.median("lost");
    run.remark(SPARSE, format!("100 packets a second, one way, behind {BULK} bulk flows; {lost:.0} lost"));
    Ok(())
}

/// Fills the row of the shaper's error: the largest of all rates.
fn rate_error(run: &mut Run, books: &mut Books) -> anyhow::Result<()> {
    if !run.is_due(&[ERROR]) {
        return Ok(());
    }
    let rounds = run.quick_or(1, 10);
    let name = |rate: &u32| format!("{rate} Mbit/s");
    let sheet: Sheet = in_turn(run, rounds, ERRORS, name, |rate, sheet| {
        let bed = Bed::lay("fq_codel", *rate)?;
        let each = 1.3 * flood::packets_per_second(*rate) / 4.0;
        let flows = (0..4).map(|number| Flow { from: HOSTS[0], to: RIGHT, number, packets_per_second: each });
        let flood = bed.flood(true, &flows.collect::<Vec<_>>(), Duration::from_secs(3), books)?;
        let error = 100.0 * (flood.bits_per_second / (f64::from(*rate) * 1e6) - 1.0);
        sheet.push(name(rate), error);
        bed.stop(books)
    })?;
    let errors = ERRORS.map(|rate| (rate, sheet.median(&name(&rate))));
    let largest = errors.iter().map(|(_, error)| error.abs()).fold(0.0, f64::max);
    run.record_one(ERROR, largest);
    let told = errors.map(|(rate, error)| format!("{error:+.2} % at {rate} Mbit/s"));
    run.remark(ERROR, format!("medians of {rounds} rounds: {}", told.join(", ")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_are_fair() {
        assert!((jain(&[3.0; 4]) - 1.0).abs() < 1e-12);
        assert!((jain(&[1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
    }
}
