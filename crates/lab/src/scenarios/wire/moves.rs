//! Flows that are moved between their two lanes, user space and the port's program, while packets of them are in user space.
//!
//! A station appears behind the one port and the other in turn, and each time all entries end. A flow's packets come in
//! bursts. In the first one behind a move its entry is published, with the second one it waits for its first packet, which
//! is in user space, and later ones are carried. A flow is published once in 100 ms at most, so there are many.

use super::Run;
use anyhow::{Context as _, anyhow, ensure};
use polder_devices::checks::Check;
use polder_judges::hot::Sink;
use polder_testbed::clock;
use polder_testbed::interrupt;
use polder_testbed::meters::sequence::{Arrivals, SequenceMeter, ratio};
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::peers::polder::ran_with;
use polder_testbed::topology::{End, Namespace, Topology, pin_here};
use polder_testbed::traffic::packet::Mac;
use polder_testbed::traffic::raw::PacketSocket;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The hook of the programs, with its rows.
#[derive(Debug)]
pub(super) struct Hook {
    /// Value of the ports' `mode`.
    mode: &'static str,
    pub(super) fence: &'static str,
    pub(super) no_fence: &'static str,
}

/// The hooks that are measured.
pub(super) const HOOKS: [Hook; 2] = [
    Hook { mode: "skb", fence: "wire.moves.reordered.fence", no_fence: "wire.moves.reordered.no_fence" },
    Hook {
        mode: XDP,
        fence: "wire.moves.reordered.fence.xdp",
        no_fence: "wire.moves.reordered.no_fence.xdp",
    },
];
const XDP: &str = "native";

/// The station that all flows go to, one that moves, and one that is nowhere, to which the latter sends.
const STATION: Mac = [0x02, 0, 0, 0, 0x80, 0x05];
const MOVER: Mac = [0x02, 0, 0, 0, 0x80, 0x07];
const NOBODY: Mac = [0x02, 0, 0, 0, 0x80, 0x06];
const MTU: u32 = 1500;
const FLOWS: u16 = 96;
/// Bursts of each flow between two moves, packets of one at most, and the longest pause behind one.
const BURSTS: u64 = 4;
const BURST: u64 = 16;
const PAUSE_MICROS: u64 = 300;
/// Least time between two moves.
const PERIOD: Duration = Duration::from_millis(110);
/// Moves of the station of which one is looked at closely.
const LOOK_EVERY: u64 = 8;
/// Offset of number and flow in a frame.
const NUMBER_AT: usize = 42;
/// Time in which packets on their way arrive.
const SETTLE: Duration = Duration::from_millis(300);
/// Time for which the receiver waits when nothing has come.
const LOOK: Duration = Duration::from_micros(100);

/// A gateway between two ends.
struct Stand {
    /// Packet sockets of the sender and of the receiver.
    ends: [PacketSocket; 2],
    /// Receiver at the latter, where a socket would not see frames in their order.
    sink: Option<Mutex<Sink>>,
    gateway: Gateway,
    _topology: Topology,
}

/// Number of moves of flows to make, and the time after which no more are made.
#[derive(Clone, Copy, Debug)]
struct Effort {
    moves: u64,
    time: Duration,
}

/// Numbers of sent packets.
#[derive(Clone, Debug, Default)]
struct Sent {
    /// Sent packets by flow.
    packets: Vec<u64>,
    /// Moves of the station.
    moves: u64,
    /// Flows that the program carried, and all flows, as read before a move.
    carried: [u64; 2],
}

/// Result of many moves.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Moves of flows into the program.
    moves: f64,
    time: Duration,
    arrivals: Arrivals,
    /// Number of packets that the program has carried.
    carried: u64,
    /// Number of packets that the program has dropped to keep the flow in order.
    fenced: u64,
}

/// Fills the rows; answers the number of packets that Polder has not accounted for.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<u64> {
    let (moves, seconds) = run.quick_or((10_000, 10), (1_000_000, 120));
    let whole = Effort { moves, time: Duration::from_secs(seconds) };
    let control = Effort { moves: 10_000, time: Duration::from_secs(run.quick_or(3, 10)) };
    let mut unaccounted = 0;
    let rows = HOOKS.iter().flat_map(|hook| {
        [(hook, hook.fence, None, whole), (hook, hook.no_fence, Some(Check::Fence), control)]
    });
    for (hook, row, lacking, effort) in rows {
        if !run.is_due(&[row]) {
            continue;
        }
        run.says(row);
        if let Some(stand) = run.or_skip(&[row], Stand::lay(hook.mode, lacking))? {
            unaccounted += stand.fill(run, row, effort)?;
        }
    }
    Ok(unaccounted)
}

impl Stand {
    fn lay(mode: &str, lacking: Option<Check>) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let [left, device, right] = ["left", "dut", "right"].map(|role| topology.namespace(role));
        let (left, device, right) = (left?, device?, right?);
        for (station, port) in [(&left, "west"), (&right, "east")] {
            let end = End { namespace: station, interface: "eth0" };
            let other = End { namespace: &device, interface: port };
            topology.wire_with_offloads(end, other, MTU)?;
            if mode == XDP {
                end.take_frames(other)?;
            }
        }
        let tables = tables(mode);
        ran_with("moves", &format!("version = 1\n{tables}"));
        let gateway = Gateway::start_lacking(lacking, &device, topology.directory(), &tables)?;
        let open = |end: &Namespace| -> anyhow::Result<PacketSocket> {
            Ok(end.inside(|| PacketSocket::open("eth0"))??)
        };
        let sink = (mode == XDP).then(|| Sink::open(&right, "eth0")).transpose()?.map(Mutex::new);
        Ok(Self { ends: [open(&left)?, open(&right)?], sink, gateway, _topology: topology })
    }

    /// Moves flows, and fills a row. Answers the number of packets that are not accounted for.
    fn fill(self, run: &mut Run, row: &str, effort: Effort) -> anyhow::Result<u64> {
        let outcome = self.moves(effort)?;
        let Outcome { moves, time, arrivals, carried, fenced } = outcome;
        ensure!(moves > 0.0 && carried < arrivals.sent, "no flow was moved: {outcome:?}");
        run.record_count(row, arrivals.reordered);
        let text = format!(
            "of {} in {:.0} s; {moves:.0} moves of {FLOWS} flows; {carried} packets went by the program; {} were lost, {fenced} of \
             them dropped as `fence`",
            arrivals.sent,
            time.as_secs_f64(),
            arrivals.lost,
        );
        run.remark(row, text);
        let unaccounted = self.gateway.unaccounted()?.unsigned_abs();
        self.gateway.stop()?;
        Ok(unaccounted)
    }

    fn moves(&self, effort: Effort) -> anyhow::Result<Outcome> {
        let before = self.counts()?;
        let start = clock::now();
        let is_over = AtomicBool::new(false);
        let (sent, meters) = std::thread::scope(|scope| {
            let receiving = scope.spawn(|| self.receive(&is_over));
            let sending = scope.spawn(|| self.send(effort));
            let sent = sending.join().map_err(|_| anyhow!("the sender panicked"))?;
            let settled = interrupt::sleep(SETTLE);
            // Relaxed: the flag orders nothing.
            is_over.store(true, Ordering::Relaxed);
            let meters = receiving.join().map_err(|_| anyhow!("the receiver panicked"))?;
            settled?;
            anyhow::Ok((sent?, meters?))
        })?;
        let time = clock::now() - start - SETTLE;
        let after = self.counts()?;
        let [carried, fenced] = core::array::from_fn(|at| after[at] - before[at]);
        let all = meters.iter().zip(&sent.packets).map(|(meter, &sent)| meter.finish(sent));
        let arrivals = all.fold(Arrivals::default(), |sum, flow| Arrivals {
            sent: sum.sent + flow.sent,
            received: sum.received + flow.received,
            lost: sum.lost + flow.lost,
            duplicated: sum.duplicated + flow.duplicated,
            reordered: sum.reordered + flow.reordered,
            ..sum
        });
        #[expect(clippy::cast_precision_loss, reason = "a count of moves is far below 2^52")]
        let moves = ratio(sent.carried[0], sent.carried[1]) * (sent.moves * u64::from(FLOWS)) as f64;
        Ok(Outcome { moves, time, arrivals, carried, fenced })
    }

    /// Calls `each` with the frames that have come.
    fn frames(&self, room: &mut [u8], mut each: impl FnMut(&[u8])) {
        if let Some(sink) = &self.sink {
            return sink.lock().unwrap_or_else(PoisonError::into_inner).frames(each);
        }
        while let Ok(length) = self.ends[1].receive(room) {
            each(&room[..length]);
        }
    }

    /// Meters what comes of each flow until it is over.
    fn receive(&self, is_over: &AtomicBool) -> anyhow::Result<Vec<SequenceMeter>> {
        let mut meters = Meters(vec![SequenceMeter::new(1 << 12); FLOWS.into()]);
        let mut room = [0; 2048];
        loop {
            // What comes while this is looked at is taken before the end.
            // Relaxed: as above.
            let is_last = is_over.load(Ordering::Relaxed);
            self.frames(&mut room, |frame| meters.take(frame));
            if is_last {
                return Ok(meters.0);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Packets carried, and packets dropped as `fence`.
    fn counts(&self) -> anyhow::Result<[u64; 2]> {
        let flows = self.gateway.show("flows")?;
        let ports = flows["flows"]["ports"].as_array().context("`show flows` lists no ports")?;
        let carried = ports.iter().filter_map(|port| port["received"].as_u64()).sum();
        Ok([carried, self.gateway.dropped("fence")?])
    }

    /// Number of flows that the program carries.
    fn flows_carried(&self) -> anyhow::Result<u64> {
        let shown = self.gateway.show("flows")?;
        let rows = shown["flows"]["flows"].as_array().context("`show flows` lists no flows")?;
        let is_carried = |row: &&Value| row["packets"].as_u64() > Some(0);
        Ok(rows.iter().filter(is_carried).count() as u64)
    }

    /// Sends the flows and lets the station move, on one core, so that the kernel keeps their order.
    fn send(&self, effort: Effort) -> anyhow::Result<Sent> {
        pin_here(0)?;
        let [sender, receiver] = &self.ends;
        let mut frames = (0..FLOWS).map(frame).collect::<Vec<_>>();
        let mut moving = [&NOBODY[..], &MOVER, &[0x88, 0xb5]].concat();
        moving.resize(60, 0);
        let mut known = [&[0xff; 6][..], &STATION, &[0x88, 0xb5]].concat();
        known.resize(60, 0);
        receiver.send(&known).context("cannot send")?;
        let mut sent = Sent { packets: vec![0; FLOWS.into()], ..Sent::default() };
        let start = clock::now();
        while sent.moves * u64::from(FLOWS) < effort.moves && clock::now() - start < effort.time {
            interrupt::check()?;
            let begin = clock::now();
            self.ends[usize::from(sent.moves.is_multiple_of(2))].send(&moving).context("cannot send")?;
            for _ in 0..BURSTS {
                let mut flows = frames.iter_mut().zip(&mut sent.packets);
                flows.try_for_each(|(frame, number)| burst(sender, frame, number))?;
            }
            if sent.moves % LOOK_EVERY == 1 {
                let carried = self.flows_carried()?;
                sent.carried = [sent.carried[0] + carried, sent.carried[1] + u64::from(FLOWS)];
            }
            sent.moves += 1;
            interrupt::sleep(PERIOD.saturating_sub(clock::now() - begin))?;
        }
        Ok(sent)
    }
}

/// Sends some packets of a flow, and makes a pause.
fn burst(sender: &PacketSocket, frame: &mut [u8], number: &mut u64) -> anyhow::Result<()> {
    for _ in 0..fastrand::u64(1..=BURST) {
        frame[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&number.to_be_bytes());
        sender.send(frame).context("cannot send")?;
        *number += 1;
    }
    std::thread::sleep(Duration::from_micros(fastrand::u64(0..=PAUSE_MICROS)));
    Ok(())
}

/// A frame of a flow: a UDP datagram, of a port and a station of its own.
fn frame(flow: u16) -> Vec<u8> {
    let [high, low] = flow.to_be_bytes();
    let source = [0x02, 0, 0, 0x80, high, low];
    let ip = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 80, 0, 1, 10, 80, 0, 2];
    let udp = [0x20 | high, low, 0x1b, 0x6c, 0, 26, 0, 0];
    let mut frame = [&STATION[..], &source, &[8, 0], &ip, &udp].concat();
    frame.resize(60, 0);
    frame
}

/// Meters what comes of each flow.
struct Meters(Vec<SequenceMeter>);

impl Meters {
    fn take(&mut self, frame: &[u8]) {
        let Some(number) = frame.get(NUMBER_AT..).and_then(<[u8]>::first_chunk) else { return };
        let flow = u16::from_be_bytes([frame[10], frame[11]]);
        if frame.starts_with(&STATION)
            && let Some(meter) = self.0.get_mut(usize::from(flow))
        {
            meter.record(u64::from_be_bytes(*number));
        }
    }
}

/// Configuration of the gateway.
fn tables(mode: &str) -> String {
    let port = |name: &str| format!("[port.{name}]\ninterface = \"{name}\"\nmode = \"{mode}\"\n");
    format!("{}[bridge.lan]\nmembers = [\"west\", \"east\"]\n", ["west", "east"].map(port).concat())
}
