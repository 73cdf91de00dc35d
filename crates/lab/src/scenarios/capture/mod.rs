//! `capture`: what looking costs the traffic.

mod costs;
mod losses;

use super::engine::harness::ETHERNET;
use super::testbed::cores;
use super::{Run, Scenario};
use anyhow::Context as _;
use polder::runtime::worker::Command;
use polder_datapath::capture::{
    CHUNK_BYTES, CapturePoints, Instruction, Program, Runner, TapOptions, TapReader, View, tap,
};
use polder_testbed::topology::pin_here;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "capture",
    about: "what a capture costs the traffic: in memory, one core, by what it looks for; loss between veths",
    needs_root: true,
    rows: include_str!("../rows/capture.rows"),
    measure,
};

const LOST: &str = "capture.traffic_lost";
const LOST_WITHOUT: &str = "capture.control.no_capture.traffic_lost";
const LOST_WHEN_HELD: &str = "capture.control.held_worker.traffic_lost";
const UNMATCHED: &str = "capture.cost_percent.unmatched";

/// Memory between worker and reader, as a gateway has it.
const MEMORY: usize = 4 << 20;
/// Time for which a reader sleeps when it is not its gateway's turn.
const PAUSE: Duration = Duration::from_millis(1);

/// `tcpdump -ddd 'host 203.0.113.99'`.
const NOBODY: &[(u16, u8, u8, u32)] = &[
    (0x28, 0, 0, 12),
    (0x15, 0, 4, 0x800),
    (0x20, 0, 0, 26),
    (0x15, 8, 0, 0xcb00_7163),
    (0x20, 0, 0, 30),
    (0x15, 6, 7, 0xcb00_7163),
    (0x15, 1, 0, 0x806),
    (0x15, 0, 5, 0x8035),
    (0x20, 0, 0, 28),
    (0x15, 2, 0, 0xcb00_7163),
    (0x20, 0, 0, 38),
    (0x15, 0, 1, 0xcb00_7163),
    (6, 0, 0, 0x40000),
    (6, 0, 0, 0),
];

/// `tcpdump -ddd 'udp port 67 or udp port 68'`.
const DHCP: &[(u16, u8, u8, u32)] = &[
    (0x28, 0, 0, 12),
    (0x15, 0, 7, 0x86dd),
    (0x30, 0, 0, 20),
    (0x15, 0, 18, 17),
    (0x28, 0, 0, 54),
    (0x15, 15, 0, 67),
    (0x15, 14, 0, 68),
    (0x28, 0, 0, 56),
    (0x15, 12, 11, 67),
    (0x15, 0, 12, 0x800),
    (0x30, 0, 0, 23),
    (0x15, 0, 10, 17),
    (0x28, 0, 0, 20),
    (0x45, 8, 0, 0x1fff),
    (0xb1, 0, 0, 14),
    (0x48, 0, 0, 14),
    (0x15, 4, 0, 67),
    (0x15, 3, 0, 68),
    (0x48, 0, 0, 16),
    (0x15, 1, 0, 67),
    (0x15, 0, 1, 68),
    (6, 0, 0, 0x40000),
    (6, 0, 0, 0),
];

/// Kind of capture filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looks {
    /// No capture.
    Off,
    Unmatched,
    /// Four captures that match nothing: a slowdown that the meter must detect.
    FourUnmatched,
    Dhcp,
    All,
    /// Every packet goes to the reader, which looks for DHCP.
    Clone,
}

/// Reader of the captured packets. While its gateway has its turn it never sleeps: what a packet costs
/// depends on whether there is room for its copy, and that would depend on when it wakes up.
pub(super) struct Reader {
    stop: Arc<AtomicBool>,
    awake: Arc<AtomicBool>,
    thread: JoinHandle<TapReader>,
}

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let (core, other) = cores();
    run.place("engine", core, "the only thread of the worker, pinned");
    run.place("reader of captures", other, "thread, pinned, never sleeps in its turn");
    costs::measure(run, core, other)?;
    losses::measure(run)
}

/// Begins a capture under that number in that worker, which `tell` gives commands; none if nothing is looked for. Its
/// reader is pinned to `core`, or where the scheduler puts it.
pub(super) fn begin(
    tell: impl FnOnce(Command) -> anyhow::Result<()>,
    looks: Looks,
    (capture, worker): (u64, u16),
    core: Option<usize>,
) -> anyhow::Result<Option<Reader>> {
    let program = match looks {
        Looks::Off => return Ok(None),
        Looks::Unmatched | Looks::FourUnmatched => load(NOBODY)?,
        Looks::Dhcp => load(DHCP)?,
        Looks::All | Looks::Clone => Program::everything(),
    };
    let options = TapOptions {
        capture,
        port: ETHERNET,
        places: CapturePoints { rx: true, tx: true, drops: false },
        program: Arc::new(program),
        longest: 65_535,
        chunks: MEMORY / CHUNK_BYTES,
        worker,
    };
    let (tap, reader) = tap(options);
    tell(Command::Tap(Box::new(tap)))?;
    let filter = if looks == Looks::Clone { Some(load(DHCP)?) } else { None };
    Ok(Some(Reader::start(reader, filter, core)?))
}

fn load(program: &[(u16, u8, u8, u32)]) -> anyhow::Result<Program> {
    let instructions = program.iter().map(|&(code, yes, no, k)| Instruction { code, yes, no, k });
    Program::load(&instructions.collect::<Vec<_>>()).context("a program of tcpdump's")
}

impl Reader {
    /// Starts a reader of captured packets, which runs `filter` on each if there is one.
    fn start(reader: TapReader, filter: Option<Program>, core: Option<usize>) -> anyhow::Result<Self> {
        let [stop, awake] = [const { AtomicBool::new(false) }; 2].map(Arc::new);
        let (stopped, is_awake) = (Arc::clone(&stop), Arc::clone(&awake));
        let thread = std::thread::Builder::new().name("reader".to_owned()).spawn(move || {
            // Where it runs is said in the report; a machine with one core has one.
            let _: Option<anyhow::Result<()>> = core.map(pin_here);
            read_until(&stopped, &is_awake, reader, filter.as_ref())
        })?;
        Ok(Self { stop, awake, thread })
    }

    /// Starts or ends the turn of the gateway.
    pub(super) fn wake(&self, awake: bool) {
        // Relaxed: the flag orders nothing.
        self.awake.store(awake, Ordering::Relaxed);
    }

    /// Stops the reader; returns the numbers of examined, matched and lost packets.
    pub(super) fn stop(self) -> anyhow::Result<(u64, u64, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        let reader = self.thread.join().ok().context("the reader panicked")?;
        let counters = reader.counters();
        Ok((counters.asked.get(), counters.matched.get(), counters.lost.get()))
    }
}

fn read_until(
    stopped: &AtomicBool,
    awake: &AtomicBool,
    mut reader: TapReader,
    filter: Option<&Program>,
) -> TapReader {
    let mut runner = Runner::new();
    let mut take = |_: &_, bytes: &[u8]| {
        let mut views = [View::default(); 64];
        views[0] = View { bytes, length: u32::try_from(bytes.len()).unwrap_or(u32::MAX) };
        if let Some(filter) = filter {
            std::hint::black_box(runner.run(filter, &views, 1));
        }
        Ok::<_, Infallible>(())
    };
    while !stopped.load(Ordering::Relaxed) {
        if reader.read(&mut take).is_ok_and(|count| count == 0) && !awake.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
        }
    }
    reader
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_are_programs() {
        let mut dhcp = vec![0xff; 12];
        dhcp.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
        dhcp.extend([203, 0, 113, 99, 10, 0, 0, 1, 0, 68, 0, 67, 0, 8, 0, 0]);
        let matching = |bytes: &[u8], program| {
            let mut views = [View::default(); 64];
            views[0] = View { bytes, length: 42 };
            Runner::new().run(&load(program).unwrap(), &views, 1)
        };
        assert_eq!((matching(&dhcp, NOBODY), matching(&dhcp, DHCP)), (1, 1));
        (dhcp[26], dhcp[35], dhcp[37]) = (204, 69, 66);
        assert_eq!((matching(&dhcp, NOBODY), matching(&dhcp, DHCP)), (0, 0));
    }
}
