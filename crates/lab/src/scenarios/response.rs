//! Realtime response under load: four TCP flows each way between two stacks, and how long probes take meanwhile, over time.

use crate::report::Curve;
use anyhow::{Context as _, anyhow, ensure};
use polder_testbed::clock;
use polder_testbed::command::Running;
use polder_testbed::interrupt;
use polder_testbed::topology::{Namespace, pin_here};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Flows in each direction.
pub(super) const FLOWS: u32 = 4;
/// Between two probes of a kind.
pub(super) const INTERVAL: Duration = Duration::from_millis(5);
/// UDP port that sends probes back.
const ECHO: u16 = 7;
/// A socket looks at its flags this often.
const LOOK: Duration = Duration::from_millis(20);
/// After this long a probe is lost. It counts as one that took so long, the least that it can have taken.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
pub(super) const LOST_MS: f64 = 2000.0;
/// Points of a curve at most.
const POINTS: usize = 250;

/// A stack, its address, and the core of its programs, if it has one of its own.
pub(super) type End<'a> = (&'a Namespace, Ipv4Addr, Option<usize>);

/// Two stacks.
pub(super) struct Ends<'a> {
    /// Sends probes, and has the server of the flows.
    pub(super) near: End<'a>,
    /// Answers probes, and has the client of the flows.
    pub(super) far: End<'a>,
}

/// Times of one run, in seconds: idle, loaded, idle.
pub(super) struct Times {
    pub(super) before: f64,
    pub(super) load: u32,
    pub(super) after: f64,
}

/// A probe: when it was sent, since the start, in seconds; how long it took, in ms.
type Echo = (f64, f64);

/// Result of one run.
pub(super) struct Outcome {
    udp: Vec<Echo>,
    icmp: Vec<Echo>,
    /// Mbit/s from the station, and to it.
    pub(super) mbit: [f64; 2],
    rates: [Vec<(f64, f64)>; 2],
}

impl Ends<'_> {
    /// Runs the flows between two idle times, and probes all the while.
    ///
    /// # Errors
    /// When a program is missing or fails, or when interrupted.
    pub(super) fn load(&self, congestion: &str, times: &Times) -> anyhow::Result<Outcome> {
        let (near, far) = (self.near, self.far);
        let whole = Duration::from_secs_f64(times.before + f64::from(times.load) + times.after);
        let echo = far.0.inside(|| UdpSocket::bind(SocketAddrV4::new(far.1, ECHO)))??;
        let done = AtomicBool::new(false);
        let ping = self.ping(whole)?;
        let start = clock::now();
        let (udp, report) = std::thread::scope(|scope| {
            let answering = scope.spawn(|| pin(far.2).and_then(|()| answer(&echo, &done)));
            let probing = scope.spawn(|| {
                pin(near.2)?;
                near.0.enter()?;
                probe((near.1, far.1), start, whole)
            });
            let report = interrupt::sleep(Duration::from_secs_f64(times.before))
                .map_err(anyhow::Error::from)
                .and_then(|()| self.flows(congestion, times.load));
            let udp = probing.join().map_err(|_| anyhow!("the probing thread panicked"));
            // Relaxed: the flag orders nothing.
            done.store(true, Ordering::Relaxed);
            let answered = answering.join().map_err(|_| anyhow!("the answering thread panicked"));
            answered??;
            anyhow::Ok((udp??, report?))
        })?;
        let icmp = icmp_echoes(ping, start)?;
        let (mbit, rates) = goodput(&report, times.before)?;
        Ok(Outcome { udp, icmp, mbit, rates })
    }

    /// Four flows each way; returns what iperf3 says of them.
    fn flows(&self, congestion: &str, seconds: u32) -> anyhow::Result<Value> {
        let address = self.near.1.to_string();
        let mut server = command(self.near, "iperf3");
        server.args(["--server", "--one-off", "--forceflush", "--bind", &address]);
        let mut server = Running::start("iperf3", &mut server)?;
        server.wait_for("listening", 0, PATIENCE * 2)?;
        let mut client = command(self.far, "iperf3");
        client.args(["--client", &address, "--json", "--bidir", "--interval", "0.2"]);
        let (flows, time) = (FLOWS.to_string(), seconds.to_string());
        client.args(["--congestion", congestion, "--parallel", &flows, "--time", &time]);
        let mut client = Running::start("iperf3", &mut client)?;
        client.wait(Duration::from_secs(u64::from(seconds)) + PATIENCE * 5)?;
        server.stop()?;
        serde_json::from_str(&client.said()).context("iperf3 said something else")
    }

    fn ping(&self, time: Duration) -> anyhow::Result<Running> {
        let mut ping = command(self.near, "ping");
        let count = (time.as_secs_f64() / INTERVAL.as_secs_f64()).floor();
        ping.args(["-n", "-D", "-i", &INTERVAL.as_secs_f64().to_string(), "-c", &count.to_string()]);
        Running::start("ping", ping.args(["-W", &PATIENCE.as_secs().to_string(), &self.far.1.to_string()]))
    }
}

/// A program at an end, on its core.
fn command((namespace, _, core): End<'_>, program: &str) -> Command {
    let Some(core) = core else { return namespace.command(program) };
    let mut command = namespace.command("taskset");
    command.args(["--cpu-list", &core.to_string(), program]);
    command
}

fn pin(core: Option<usize>) -> anyhow::Result<()> {
    core.map_or(Ok(()), pin_here)
}

/// Goodput by direction, at the end and over time.
type Goodput = ([f64; 2], [Vec<(f64, f64)>; 2]);

fn goodput(report: &Value, from: f64) -> anyhow::Result<Goodput> {
    let ends = ["sum_received", "sum_received_bidir_reverse"];
    let ends = ends.map(|key| report["end"][key]["bits_per_second"].as_f64().map(|rate| rate / 1e6));
    let [Some(out), Some(back)] = ends else {
        return Err(anyhow!("iperf3's report has an unknown form"));
    };
    let intervals = report["intervals"].as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |key: &str| {
        let point = |interval: &Value| {
            let sum = &interval[key];
            Some((from + sum["end"].as_f64()?, sum["bits_per_second"].as_f64()? / 1e6))
        };
        intervals.iter().filter_map(point).collect()
    };
    Ok(([out, back], [line("sum"), line("sum_bidir_reverse")]))
}

/// Sends every probe back.
fn answer(socket: &UdpSocket, done: &AtomicBool) -> anyhow::Result<()> {
    socket.set_read_timeout(Some(LOOK))?;
    let mut payload = [0; 64];
    while !done.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut payload) {
            // One that cannot be sent is a lost probe.
            let _ = socket.send_to(&payload[..length], from);
        }
    }
    Ok(())
}

/// Sends a probe at fixed intervals, independently of replies; returns all probes.
fn probe((from, to): (Ipv4Addr, Ipv4Addr), start: Duration, time: Duration) -> anyhow::Result<Vec<Echo>> {
    let socket = UdpSocket::bind(SocketAddrV4::new(from, 0)).context("cannot open a UDP socket")?;
    socket.connect(SocketAddr::V4(SocketAddrV4::new(to, ECHO)))?;
    let mut probes: Vec<Echo> = Vec::new();
    let (mut answers, end) = (0, start + time);
    let mut next = clock::now();
    loop {
        let now = clock::now();
        if now >= end + PATIENCE || now >= end && answers == probes.len() {
            return Ok(probes);
        }
        interrupt::check()?;
        if now >= next && now < end {
            // One that cannot be sent is a lost probe.
            let _ = socket.send(&probes.len().to_be_bytes());
            probes.push(((now - start).as_secs_f64(), LOST_MS));
            next += INTERVAL;
        }
        socket.set_read_timeout(Some((next.max(now) - now).clamp(Duration::from_micros(50), LOOK)))?;
        let mut payload = [0; size_of::<usize>()];
        if socket.recv(&mut payload).is_err() {
            continue;
        }
        if let Some((sent, took)) = probes.get_mut(usize::from_be_bytes(payload)) {
            *took = ((clock::now() - start).as_secs_f64() - *sent) * 1e3;
            answers += 1;
        }
    }
}

/// The answers that ping has printed: `[1700000000.123456] 64 bytes from …: icmp_seq=1 ttl=64 time=0.1 ms`.
fn icmp_echoes(mut ping: Running, start: Duration) -> anyhow::Result<Vec<Echo>> {
    // It fails when a probe is lost, which is no failure of ours.
    ping.wait(Duration::from_secs(20))?;
    let start = clock::since_1970().saturating_sub(clock::now() - start).as_secs_f64();
    let said = ping.said();
    let answers = said.lines().filter_map(|line| answered(line, start)).collect::<Vec<_>>();
    ensure!(!answers.is_empty(), "ping had no answer: {}", polder_testbed::command::last_lines(&said, 4));
    Ok(with_lost(&answers))
}

/// The number of a probe of ping, and the probe.
fn answered(line: &str, start: f64) -> Option<(u32, Echo)> {
    let (at, rest) = line.strip_prefix('[')?.split_once(']')?;
    let (_, number) = rest.split_once("icmp_seq=")?;
    let number = number.split_whitespace().next()?.parse().ok()?;
    let (_, took) = rest.split_once("time=")?;
    let took = took.split_whitespace().next()?.parse::<f64>().ok()?;
    Some((number, (at.parse::<f64>().ok()? - took / 1e3 - start, took)))
}

/// Answered probes, and between them those whose number is missing, at even distances. Probes behind the last answer are
/// those of the rest after the load.
fn with_lost(answers: &[(u32, Echo)]) -> Vec<Echo> {
    let mut sorted = answers.to_vec();
    sorted.sort_by_key(|(number, _)| *number);
    let lost = sorted.windows(2).flat_map(|pair| {
        let [(first, (from, _)), (last, (until, _))] = [pair[0], pair[1]];
        let step = (until - from) / f64::from((last - first).max(1));
        (first + 1..last).map(move |number| (from + step * f64::from(number - first), LOST_MS))
    });
    lost.chain(answers.iter().map(|(_, probe)| *probe)).collect()
}

/// Percentiles, in ms.
pub(super) struct Added {
    idle: f64,
    middle: f64,
    /// Difference of the 99th percentile under load and the median without.
    pub(super) last: f64,
    /// Probes under load that did not come back.
    pub(super) lost: f64,
}

impl Outcome {
    pub(super) fn added(&self, times: &Times) -> anyhow::Result<Added> {
        let load = times.before + 1.0..times.before + f64::from(times.load);
        let all = || self.udp.iter().chain(&self.icmp);
        let took = |within: &dyn Fn(f64) -> bool| {
            let mut took = all().filter(|(at, _)| within(*at)).map(|(_, took)| *took).collect::<Vec<_>>();
            took.sort_by(f64::total_cmp);
            took
        };
        let (idle, loaded) = (took(&|at| at < times.before * 0.9), took(&|at| load.contains(&at)));
        let lost = loaded.iter().filter(|took| **took >= LOST_MS).count();
        let lost = 100.0 * polder_testbed::meters::sequence::ratio(lost as u64, loaded.len() as u64);
        let [idle, middle, last] = [percentile(&idle, 50), percentile(&loaded, 50), percentile(&loaded, 99)];
        let idle = idle.context("no probe came back before the load")?;
        let (middle, last) = middle.zip(last).context("no probe came back under load")?;
        Ok(Added { idle, middle: middle - idle, last: last - idle, lost })
    }

    pub(super) fn text(&self, added: &Added) -> String {
        let [out, back] = self.mbit;
        format!(
            "p50 and p99 {:.2} and {:.2} ms above {:.2} ms, {out:.0} Mbit/s from the station and {back:.0} to it, {} of {} UDP \
             and {} of {} ICMP probes lost",
            added.middle,
            added.last,
            added.idle,
            self.udp.iter().filter(is_lost).count(),
            self.udp.len(),
            self.icmp.iter().filter(is_lost).count(),
            self.icmp.len()
        )
    }

    /// Round trips over time, and goodput of the flows.
    pub(super) fn curves(self, name: &str) -> [Curve; 2] {
        let lines = [("UDP", slowest(&self.udp)), ("ICMP", slowest(&self.icmp))];
        let [out, back] = self.rates;
        let rates = [("from the station", out), ("to the station", back)];
        let named = |lines: [(&str, Vec<(f64, f64)>); 2]| -> BTreeMap<_, _> {
            lines.map(|(name, line)| (name.to_owned(), line)).into()
        };
        let curve = |what: &str, y: &str, lines| Curve {
            title: format!("{FLOWS} flows each way, {name}: {what}"),
            x: "s".to_owned(),
            y: y.to_owned(),
            lines: named(lines),
        };
        [curve("round trips", "ms, slowest of each moment", lines), curve("TCP", "Mbit/s", rates)]
    }
}

/// True for a probe that did not come back.
fn is_lost((_, took): &&Echo) -> bool {
    *took >= LOST_MS
}

/// Reduces the points to a number that can be drawn: the slowest answered probe of each interval.
fn slowest(echoes: &[Echo]) -> Vec<(f64, f64)> {
    let mut sorted = echoes.iter().filter(|probe| !is_lost(probe)).copied().collect::<Vec<_>>();
    sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
    let moment = sorted.len().div_ceil(POINTS).max(1);
    sorted
        .chunks(moment)
        .filter_map(|chunk| chunk.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)))
        .collect()
}

pub(super) fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ping_prints_is_read() {
        let line = "[1700000002.500] 64 bytes from 10.97.0.1: icmp_seq=7 ttl=64 time=250 ms";
        let (number, (at, took)) = answered(line, 1_700_000_000.0).unwrap();
        assert!(
            number == 7 && (at - 2.25).abs() < 1e-6 && (took - 250.0).abs() < 1e-9,
            "{number} {at} {took}"
        );
        assert_eq!(answered("PING 10.97.0.1 (10.97.0.1) 56(84) bytes of data.", 0.0), None);
        assert_eq!(answered("[1700000002.5] no answer yet for icmp_seq=3", 0.0), None);
    }

    #[test]
    fn added_latency_is_that_of_the_load_alone() {
        let times = Times { before: 1.0, load: 4, after: 1.0 };
        let probe = |at: f64| (at, if (1.0..5.0).contains(&at) { 3.0 } else { 0.5 });
        let mut udp = (0..600).map(|number| probe(f64::from(number) / 100.0)).collect::<Vec<_>>();
        // The first second of the load is that of slow start; one slow probe in three hundred is no p99.
        udp[150].1 = 50.0;
        udp[300].1 = 50.0;
        let outcome = Outcome { udp, icmp: vec![], mbit: [1.0; 2], rates: [vec![], vec![]] };
        let added = outcome.added(&times).unwrap();
        assert!((added.idle - 0.5).abs() < 1e-9 && (added.last - 2.5).abs() < 1e-9, "{}", added.last);
        assert!(added.lost.abs() < 1e-9, "{}", added.lost);
        let points = slowest(&outcome.udp);
        assert!(points.len() <= POINTS && points.iter().any(|(_, took)| *took > 49.0));
    }

    #[test]
    fn a_lost_probe_is_a_slow_one() {
        let answers = [(1, (0.0, 1.0)), (2, (0.1, 1.0)), (5, (0.4, 1.0))];
        let mut all = with_lost(&answers);
        all.sort_by(|one, other| one.0.total_cmp(&other.0));
        let took = all.iter().map(|(_, took)| *took).collect::<Vec<_>>();
        assert_eq!(took, [1.0, 1.0, LOST_MS, LOST_MS, 1.0]);
        assert!((all[3].0 - 0.3).abs() < 1e-9, "{all:?}");
        let times = Times { before: 1.0, load: 4, after: 1.0 };
        let probe = |number: u32| {
            (f64::from(number) / 100.0, if number.is_multiple_of(50) && number > 100 { LOST_MS } else { 1.0 })
        };
        let udp = (0..600).map(probe).collect();
        let outcome = Outcome { udp, icmp: vec![], mbit: [1.0; 2], rates: [vec![], vec![]] };
        let added = outcome.added(&times).unwrap();
        assert!((added.last - (LOST_MS - 1.0)).abs() < 1e-9 && added.middle.abs() < 1e-9, "{}", added.last);
        // Of 300 probes from 2 to 5 s each fiftieth is lost.
        assert!((added.lost - 2.0).abs() < 1e-9, "{}", added.lost);
        assert!(slowest(&outcome.udp).iter().all(|(_, took)| *took < 2.0));
    }

    #[test]
    fn both_directions_are_read_from_iperf3() {
        let rate = |rate: f64| serde_json::json!({"bits_per_second": rate, "end": 0.5});
        let report = serde_json::json!({
            "end": {"sum_received": rate(5e8), "sum_received_bidir_reverse": rate(4e8)},
            "intervals": [{"sum": rate(6e8), "sum_bidir_reverse": rate(3e8)}],
        });
        let (ends, [out, back]) = goodput(&report, 1.0).unwrap();
        assert_eq!((ends, out, back), ([500.0, 400.0], vec![(1.5, 600.0)], vec![(1.5, 300.0)]));
        assert!(goodput(&serde_json::json!({}), 0.0).is_err());
    }
}
