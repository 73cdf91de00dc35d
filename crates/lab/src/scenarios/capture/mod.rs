//! `capture`: what looking costs the traffic.

use super::engine::rig::{ETHERNET, Path, Rig};
use super::stand::{Contender, Setup, Stand, cores};
use super::{Goal, Promise, Run, Scenario};
use crate::interrupt;
use crate::machine;
use crate::meters::statistics::Samples;
use crate::peers::Task;
use crate::peers::polder::program;
use crate::report::Better;
use crate::topology::pin_here;
use crate::traffic::raw::Plan;
use anyhow::{Context as _, ensure};
use polder::runtime::worker::Command;
use polder_datapath::capture::{
    CHUNK_BYTES, Instruction, Program, Runner, TapOptions, TapReader, View, Where, tap,
};
use polder_datapath::filter::Filters;
use std::convert::Infallible;
use std::io::Read as _;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "capture",
    about: "what a capture costs the traffic: in memory, one core, by what it looks for; loss between veths",
    needs_root: true,
    promises: PROMISES,
    measure,
};

const LOST: &str = "capture.traffic_lost";

const fn percent(name: &'static str, goal: Goal) -> Promise {
    Promise { name, unit: "%", better: Better::Lower, goal }
}

const PROMISES: &[Promise] = &[
    percent("capture.cost_percent.off", Goal::None),
    percent("capture.cost_percent.unmatched", Goal::Value(3.0)),
    percent("capture.cost_percent.dhcp", Goal::None),
    percent("capture.cost_percent.all", Goal::None),
    percent("capture.cost_percent.clone", Goal::None),
    Promise { name: LOST, unit: "packets", better: Better::Lower, goal: Goal::Value(0.0) },
];

const FLOWS: u32 = 1000;
const WARM_UP: Duration = Duration::from_millis(200);
/// Memory between worker and reader, as a gateway has it.
const MEMORY: usize = 4 << 20;
/// How long the reader waits when nothing has come, as a gateway's does.
const PAUSE: Duration = Duration::from_millis(1);
/// Packets a second for the loss between veths: few enough that the wire itself loses none.
const RATE: f64 = 50_000.0;

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

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looks {
    /// Nothing: there is no capture.
    Off,
    Unmatched,
    Dhcp,
    All,
    /// Every packet goes to the reader, which looks for DHCP.
    Clone,
}

/// A gateway, perhaps with a capture.
struct Contestant {
    looks: Looks,
    row: Option<&'static str>,
    rig: Rig,
    reader: Option<Reader>,
    costs: Samples,
    /// Percent more than the first one in the same round.
    differences: Samples,
}

/// Who takes what is captured.
pub(super) struct Reader {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<TapReader>,
}

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let (core, other) = cores();
    run.place("engine", core, "the only thread of each worker, pinned; they take turns");
    run.place("reader of captures", other, "thread, pinned, looks every millisecond");
    costs(run, core, other)?;
    losses(run)
}

fn costs(run: &mut Run, core: usize, other: usize) -> anyhow::Result<()> {
    let (rounds, time) = run.quick_or((5, 150), (15, 500));
    let mut contestants = Vec::new();
    for (looks, row) in [
        (Looks::Off, None),
        (Looks::Off, Some("capture.cost_percent.off")),
        (Looks::Unmatched, Some("capture.cost_percent.unmatched")),
        (Looks::Dhcp, Some("capture.cost_percent.dhcp")),
        (Looks::All, Some("capture.cost_percent.all")),
        (Looks::Clone, Some("capture.cost_percent.clone")),
    ] {
        let rig = Rig::filtering(Path::Encapsulate, FLOWS, core, Filters::none())?;
        let reader = begin(&rig, looks, other)?;
        let (costs, differences) = (Samples::default(), Samples::default());
        contestants.push(Contestant { looks, row, rig, reader, costs, differences });
    }
    for round in 1..=rounds {
        run.says(&format!("cost, run {round} of {rounds}"));
        let mut first = None;
        for contestant in &mut contestants {
            let cost = cost(&contestant.rig, Duration::from_millis(time), round == 1)?;
            let first = *first.get_or_insert(cost);
            contestant.costs.push(cost);
            contestant.differences.push((cost / first - 1.0) * 100.0);
        }
    }
    contestants.into_iter().try_for_each(|contestant| contestant.record(run))
}

impl Contestant {
    fn record(self, run: &mut Run) -> anyhow::Result<()> {
        let Self { looks, row, rig, reader, costs, differences } = self;
        let mut remark = format!("{:.1} ns a packet", costs.median().unwrap_or(0.0));
        if let Some(reader) = reader {
            let counters = reader.stop()?;
            let (asked, matched, lost) = counters;
            remark.push_str(&format!(
                "; of {asked} packets {matched} matched, {lost} found no room on their way to the file"
            ));
        }
        if let Some(row) = row {
            run.record(row, &differences);
            run.remark(row, remark);
        }
        let left = rig.stop()?;
        ensure!(left.leaked == 0 && left.unaccounted == 0, "{looks:?}: {left:?}");
        Ok(())
    }
}

pub(super) fn begin(rig: &Rig, looks: Looks, core: usize) -> anyhow::Result<Option<Reader>> {
    let program = match looks {
        Looks::Off => return Ok(None),
        Looks::Unmatched => load(NOBODY)?,
        Looks::Dhcp => load(DHCP)?,
        Looks::All | Looks::Clone => Program::everything(),
    };
    let options = TapOptions {
        capture: 0,
        port: ETHERNET,
        places: Where { rx: true, tx: true, drops: false },
        program: Arc::new(program),
        longest: 65_535,
        chunks: MEMORY / CHUNK_BYTES,
        worker: 0,
    };
    let (tap, reader) = tap(options);
    rig.tell(Command::Tap(Box::new(tap)))?;
    let filter = if looks == Looks::Clone { Some(load(DHCP)?) } else { None };
    Ok(Some(Reader::start(reader, filter, core)?))
}

fn load(program: &[(u16, u8, u8, u32)]) -> anyhow::Result<Program> {
    let instructions = program.iter().map(|&(code, yes, no, k)| Instruction { code, yes, no, k });
    Program::load(&instructions.collect::<Vec<_>>()).context("a program of tcpdump's")
}

impl Reader {
    /// Takes packets, and runs `filter` over each if there is one.
    fn start(reader: TapReader, filter: Option<Program>, core: usize) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("reader".to_owned()).spawn(move || {
            // Where it runs is said in the report; a machine with one core has one.
            let _: anyhow::Result<()> = pin_here(core);
            read_until(&stopped, reader, filter.as_ref())
        })?;
        Ok(Self { stop, thread })
    }

    /// Packets that were asked about, that matched, and that were lost.
    pub(super) fn stop(self) -> anyhow::Result<(u64, u64, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        let reader = self.thread.join().ok().context("the reader panicked")?;
        let counters = reader.counters();
        Ok((counters.asked.get(), counters.matched.get(), counters.lost.get()))
    }
}

fn read_until(stopped: &AtomicBool, mut reader: TapReader, filter: Option<&Program>) -> TapReader {
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
        if reader.read(&mut take).is_ok_and(|count| count == 0) {
            std::thread::sleep(PAUSE);
        }
    }
    reader
}

fn cost(rig: &Rig, time: Duration, is_first: bool) -> anyhow::Result<f64> {
    rig.open(true);
    interrupt::sleep(if is_first { WARM_UP } else { WARM_UP / 10 })?;
    let before = rig.read()?;
    interrupt::sleep(time)?;
    let window = rig.read()?.since(&before);
    rig.open(false);
    ensure!(window.sent * 100 > window.packets * 99, "a capture loses traffic: {window:?}");
    Ok(window.nanos_per_packet())
}

/// Between veths: everything is captured, into a pipe that nobody reads.
fn losses(run: &mut Run) -> anyhow::Result<()> {
    let (rounds, time) = run.quick_or((3, 500), (9, 1000));
    let plan = Plan::steady(RATE, Duration::from_millis(time));
    run.place("polder", machine::cores() - 1, "worker, and the NAPI thread of its input, pinned");
    let mut stand = match Stand::lay(Setup::new(Contender::Polder, Task::Bridge, 64, 100)) {
        Ok(stand) => stand,
        Err(error) => {
            run.skip(&[LOST], &format!("{error:#}"));
            return Ok(());
        }
    };
    let (mut with, mut without) = (Samples::default(), Samples::default());
    for round in 1..=rounds {
        run.says(&format!("loss, run {round} of {rounds}"));
        without.push(lost(&mut stand, &plan)?);
        let capture = stuck_capture(&stand)?;
        with.push(lost(&mut stand, &plan)?);
        end(capture)?;
    }
    run.record(LOST, &with);
    let median = without.median().unwrap_or(0.0);
    run.remark(
        LOST,
        format!(
            "of {:.0} in each run at {RATE} a second; without a capture {median:.0}",
            RATE * plan.time.as_secs_f64()
        ),
    );
    let unaccounted = stand.unaccounted()?.unwrap_or(0);
    ensure!(unaccounted == 0, "{unaccounted} packets are unaccounted for");
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "thousands of packets")]
fn lost(stand: &mut Stand, plan: &Plan) -> anyhow::Result<f64> {
    let (_, outcome) = stand.metered(plan)?;
    Ok(outcome.arrivals.lost as f64)
}

/// A capture of everything whose output is read up to its first bytes and no further.
fn stuck_capture(stand: &Stand) -> anyhow::Result<Child> {
    let mut command = std::process::Command::new(program()?);
    command.args(["capture", "in", "--socket"]).arg(stand.socket()?);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let output = child.stdout.as_mut().context("the capture has no output")?;
    output.read_exact(&mut [0; 28]).context("`polder capture` has not begun")?;
    Ok(child)
}

fn end(mut capture: Child) -> anyhow::Result<()> {
    // Whoever does not read his pipe closes it.
    drop(capture.stdout.take());
    capture.wait()?;
    Ok(())
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
