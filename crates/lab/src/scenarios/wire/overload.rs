//! Ten times what the worker can forward, beside a BFD session.

use super::Run;
use crate::scenarios::turns::in_turn;
use anyhow::{Context as _, anyhow, ensure};
use polder_testbed::clock;
use polder_testbed::command;
use polder_testbed::interrupt;
use polder_testbed::meters::cpu::{thread_time, threads_named};
use polder_testbed::meters::statistics::Samples;
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::peers::polder::ran_with;
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::packet::{Mac, Talk};
use polder_testbed::traffic::raw::{Generator, PacketSocket, Plan, age_of_last};
use polder_testbed::traffic::sizes::Sizes;
use polder_testbed::traffic::sockets::{per_second, wait_for_ping};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Mode of the gateway's ports, with its rows.
#[derive(Debug)]
pub(super) struct Mode {
    /// Value of the key.
    value: &'static str,
    pub(super) goodput: &'static str,
    pub(super) flaps: &'static str,
}

/// The modes that are measured.
pub(super) const MODES: [Mode; 3] = [
    Mode { value: "skb", goodput: "wire.overload.skb.goodput_over_peak", flaps: "wire.overload.bfd_flaps" },
    Mode {
        value: "native",
        goodput: "wire.overload.xdp.goodput_over_peak",
        flaps: "wire.overload.xdp.bfd_flaps",
    },
    Mode {
        value: "generic",
        goodput: "wire.overload.generic.goodput_over_peak",
        flaps: "wire.overload.generic.bfd_flaps",
    },
];
const LEFT: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
/// Host behind the right interface without a receiver for its packets.
const SILENT: Mac = [0x02, 0, 0, 0, 0x79, 0x09];
const SENDER: Mac = [0x02, 0, 0, 0, 0x79, 0x08];
const MTU: u32 = 1500;
const FRAME_BYTES: usize = 64;
/// Percentage of a core that the worker has.
const SHARE: u8 = 10;
/// Offered, as multiples of the capacity.
const FACTORS: [f64; 5] = [1.0, 1.5, 2.5, 5.0, 10.0];
const FIRST_PACKET: Duration = Duration::from_secs(5);
/// Time in which packets on their way arrive.
const SETTLE: Duration = Duration::from_millis(300);
/// BFD's port, interval and detection time (RFC 5881, section 4; RFC 5880, section 6.8.4).
const BFD: u16 = 3784;
const INTERVAL: Duration = Duration::from_millis(50);
const DETECTION: Duration = Duration::from_millis(150);

/// A gateway between two stations.
struct Stand {
    left: Namespace,
    right: Namespace,
    gateway: Gateway,
    generator: Generator,
    _topology: Topology,
}

/// Results of one load.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Packets a second.
    offered: f64,
    carried: f64,
    /// Percentage of a core that the worker had.
    worker: f64,
}

impl Load {
    /// CPU time of the worker for each packet that was carried, in nanoseconds.
    fn nanos_per_packet(self) -> f64 {
        self.worker * 1e7 / self.carried
    }
}

/// Fills the rows; answers the number of packets that Polder has not accounted for.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<u64> {
    let mut unaccounted = 0;
    for mode in &MODES {
        let rows = [mode.goodput, mode.flaps];
        if !run.wants_any(&rows) {
            continue;
        }
        if let Some(stand) = run.or_skip(&rows, Stand::lay(mode))? {
            unaccounted += stand.measure(run, mode)?;
        }
    }
    Ok(unaccounted)
}

/// Configuration in which the worker has a part of its core, so that the generator can offer ten times the forwarding
/// rate.
fn tables(mode: &Mode) -> String {
    let port = |name: &str| {
        let mode = mode.value;
        format!("[port.{name}]\ninterface = \"{name}\"\nmode = \"{mode}\"\nfast_path = \"off\"\n")
    };
    let ports = ["west", "east"].map(port).concat();
    format!("cpu_share = {SHARE}\nworkers = 1\n{ports}[bridge.lan]\nmembers = [\"west\", \"east\"]\n")
}

impl Stand {
    fn lay(mode: &Mode) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let [left, device, right] = ["left", "dut", "right"].map(|role| topology.namespace(role));
        let (left, device, right) = (left?, device?, right?);
        for (station, port, address) in [(&left, "west", LEFT), (&right, "east", RIGHT)] {
            let end = End { namespace: station, interface: "eth0" };
            topology.wire_with_offloads(end, End { namespace: &device, interface: port }, MTU)?;
            station.ip(&["address", "add", &format!("{address}/24"), "dev", "eth0"])?;
        }
        let tables = tables(mode);
        ran_with("bridge", &format!("version = 1\n{tables}"));
        let gateway = Gateway::start(&device, topology.directory(), &tables)?;
        ensure!(wait_for_ping(&left, RIGHT, FIRST_PACKET)?, "no packet comes through the bridge");
        // The bridge learns where the packets go, whose receiver drops them.
        let mut frame = [&[0xff; 6][..], &SILENT, &[0x88, 0xb5]].concat();
        frame.resize(60, 0);
        right.inside(|| PacketSocket::open("eth0")?.send(&frame))??;
        let talk = Talk::simple((SENDER, LEFT), (SILENT, Ipv4Addr::new(10, 79, 0, 9)));
        let generator = Generator::open(&left, "eth0", talk, &Sizes::all(FRAME_BYTES))?;
        Ok(Self { left, right, gateway, generator, _topology: topology })
    }

    /// Fills the rows of a mode; answers the number of packets that Polder has not accounted for.
    fn measure(mut self, run: &mut Run, mode: &Mode) -> anyhow::Result<u64> {
        let time = Duration::from_millis(run.quick_or(600, 2000));
        run.says(&format!("overload, {}, capacity", mode.value));
        let capacity = self.load(f64::INFINITY, time)?.carried;
        ensure!(capacity > 0.0, "nothing was carried under overload");
        let (hears, speaks) = self.session()?;
        let is_over = AtomicBool::new(false);
        let (loads, flaps) = std::thread::scope(|scope| {
            let speaking = scope.spawn(|| speak(&speaks, &is_over));
            let hearing = scope.spawn(|| hear(&hears, &is_over));
            let loads = self.loads(run, mode, (capacity, time));
            // Relaxed: the flag orders nothing.
            is_over.store(true, Ordering::Relaxed);
            let ended = |_| anyhow!("a thread of the session panicked");
            let said = speaking.join().map_err(ended)??;
            let heard = hearing.join().map_err(ended)??;
            anyhow::Ok((loads?, silences(&said, &heard, DETECTION)))
        })?;
        record(run, mode, &loads, &flaps);
        let unaccounted = self.gateway.unaccounted()?.unsigned_abs();
        self.gateway.stop()?;
        Ok(unaccounted)
    }

    /// The two ends of a session.
    fn session(&self) -> anyhow::Result<(UdpSocket, UdpSocket)> {
        let hears = self.right.inside(|| UdpSocket::bind((RIGHT, BFD)))??;
        hears.set_read_timeout(Some(INTERVAL)).context("cannot set a time-out")?;
        let speaks = self.left.inside(|| UdpSocket::bind((LEFT, 0)))??;
        speaks.connect((RIGHT, BFD)).context("cannot address the session's other end")?;
        Ok((hears, speaks))
    }

    /// Medians of each load, of rounds over all of them, and what was carried in each round.
    fn loads(
        &mut self,
        run: &Run,
        mode: &Mode,
        (capacity, time): (f64, Duration),
    ) -> anyhow::Result<Vec<(Load, Samples)>> {
        let name = |factor: &f64| format!("overload, {}, {factor} times the capacity", mode.value);
        let row = |factor: f64, what: &str| format!("{what} at {factor}");
        let sheet = in_turn(run, run.quick_or(3, 10), FACTORS, name, |&mut factor, sheet| {
            let Load { offered, carried, worker } = self.load(capacity * factor, time)?;
            sheet.push(row(factor, "offered"), offered);
            sheet.push(row(factor, "carried"), carried);
            sheet.push(row(factor, "worker"), worker);
            Ok(())
        })?;
        let load = |factor| {
            let [offered, carried, worker] =
                ["offered", "carried", "worker"].map(|what| sheet.median(&row(factor, what)));
            (Load { offered, carried, worker }, sheet.samples(&row(factor, "carried")))
        };
        Ok(FACTORS.map(load).into())
    }

    fn load(&mut self, rate: f64, time: Duration) -> anyhow::Result<Load> {
        let workers = threads_named(self.gateway.id(), 1, |name| name.starts_with("worker"))?;
        let used = || workers.iter().map(|&thread| thread_time(thread)).sum::<anyhow::Result<Duration>>();
        let (before, spent) = (self.arrived()?, used()?);
        let sent = self.generator.run(&Plan::steady(rate, time), || {})?;
        let spent = used()? - spent;
        let carried = per_second(self.arrived()? - before, sent.time);
        let worker = spent.as_secs_f64() / sent.time.as_secs_f64() * 100.0;
        interrupt::sleep(SETTLE)?;
        Ok(Load { offered: sent.rate(), carried, worker })
    }

    /// Number of packets that the right interface has received.
    fn arrived(&self) -> anyhow::Result<u64> {
        let text = command::run(self.right.command("cat").arg("/sys/class/net/eth0/statistics/rx_packets"))?;
        text.trim().parse().context("rx_packets is no number")
    }
}

fn record(run: &mut Run, mode: &Mode, loads: &[(Load, Samples)], silences: &[Silence]) {
    let best = loads.iter().max_by(|a, b| a.0.carried.total_cmp(&b.0.carried));
    let (Some((best, _)), Some((far, at_far))) = (best, loads.last()) else { return };
    let carried = loads.iter().map(|(_, rounds)| rounds.clone()).collect::<Vec<_>>();
    run.record(mode.goodput, &at_far.over_best(&carried).into_iter().collect());
    let times = far.offered / best.carried;
    let curve = loads.iter().map(|(load, _)| format!("{:.0}", load.carried)).collect::<Vec<_>>().join(", ");
    let factors = FACTORS.map(|factor| factor.to_string()).join(", ");
    let text = format!(
        "{:.0} of {:.0} packets/s carried at {times:.1} times the peak; at {factors} times the capacity: {curve}; the worker had \
         {:.1} % of a core and took {:.0} ns a packet there, at the peak {:.1} % and {:.0} ns",
        far.carried,
        far.offered,
        far.worker,
        far.nanos_per_packet(),
        best.worker,
        best.nanos_per_packet(),
    );
    run.remark(mode.goodput, text);
    let (flaps, unsaid): (Vec<_>, Vec<_>) = silences.iter().partition(|silence| !silence.is_the_sender());
    run.record_one(mode.flaps, f64::from(u32::try_from(flaps.len()).unwrap_or(u32::MAX)));
    let mut text = format!("3 × {} ms, at loads up to {times:.1} times the peak", INTERVAL.as_millis());
    let list =
        |silences: &[&Silence]| silences.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    for (what, silences) in [("silences", &flaps), ("not counted, as nothing was sent", &unsaid)] {
        if !silences.is_empty() {
            text.push_str(&format!("; {what}: {}", list(silences)));
        }
    }
    run.remark(mode.flaps, text);
}

/// Sends until it is over; gives the times.
fn speak(socket: &UdpSocket, is_over: &AtomicBool) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        times.push(clock::now());
        socket.send(&[0; 24]).context("cannot send")?;
        std::thread::sleep(INTERVAL);
    }
    Ok(times)
}

/// Times at which the host received packets, independent of delays of the reading thread, and the end time.
fn hear(socket: &UdpSocket, is_over: &AtomicBool) -> anyhow::Result<Vec<Duration>> {
    let mut times = vec![clock::now()];
    while !is_over.load(Ordering::Relaxed) {
        match socket.recv(&mut [0; 64]) {
            // What came before is heard at the beginning.
            Ok(_) => times.push(clock::now().saturating_sub(age_of_last(socket.as_fd())?).max(times[0])),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
    times.push(clock::now());
    Ok(times)
}

/// A period without packets long enough to take a session down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Silence {
    length: Duration,
    /// Packets sent in the period, except packets that arrived at its end.
    sent: usize,
}

impl Silence {
    /// True if it was the sender that was late: fewer than two packets were on their way.
    fn is_the_sender(&self) -> bool {
        self.sent < 2
    }
}

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ms with {} packets sent", self.length.as_millis(), self.sent)
    }
}

/// Periods without control packets long enough to take a session down.
fn silences(said: &[Duration], heard: &[Duration], detection: Duration) -> Vec<Silence> {
    let silent = heard.windows(2).filter(|pair| pair[1] - pair[0] > detection);
    let silence = |pair: &[Duration]| {
        // What was sent in the last interval may be what ends it.
        let end = pair[1].saturating_sub(INTERVAL);
        let sent = said.iter().filter(|&&time| time > pair[0] && time < end).count();
        Silence { length: pair[1] - pair[0], sent }
    };
    silent.map(silence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seventeen_silences_are_seventeen_flaps_unless_nothing_was_sent() {
        let mut now = Duration::from_secs(1);
        let mut times = vec![now];
        let mut said = times.clone();
        for number in 0..170 {
            let steps = if number % 10 == 3 { 4 } else { 1 };
            said.extend((1..=steps).map(|step| now + step * INTERVAL));
            now += steps * INTERVAL;
            times.push(now);
        }
        let found = silences(&said, &times, DETECTION);
        let expected = Silence { length: DETECTION + INTERVAL, sent: 2 };
        assert_eq!(found, [expected; 17]);
        assert!(!expected.is_the_sender());
        assert_eq!(silences(&said, &times[..2], DETECTION), []);
        let late = silences(&times, &times, DETECTION);
        assert!(late.len() == 17 && late.iter().all(Silence::is_the_sender), "{late:?}");
    }
}
