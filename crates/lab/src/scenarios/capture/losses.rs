//! Packets that a capture costs the traffic, between veths: everything is captured, into a pipe that
//! nobody reads.
//!
//! A packet that is missing at the end was lost by one of four: the wire to the gateway, the gateway's
//! input, the gateway, the wire to the sink. The last is the sink's. The first is the gateway's fault, but for what came while
//! nobody could have taken it: the wire holds 256, and runs over when somebody else has the gateway's core, or the host has it,
//! for longer than these take to come. By the scheduler's switches and the kernel's account of stolen time, no more is excused than
//! came in just that time. Whatever is lost elsewhere is the gateway's, without excuse.
//!
//! The same is run in turn without a capture, and once with the worker held: that has to be seen.

use super::super::hops::{Hops, Lost};
use super::super::testbed::{Contender, Detail, Setup, Testbed, cores};
use super::{LOST, LOST_WHEN_HELD, LOST_WITHOUT, Run};
use crate::hold::have_held;
use anyhow::{Context as _, anyhow, ensure};
use polder_testbed::machine;
use polder_testbed::meters::absence::{Absence, told};
use polder_testbed::meters::cpu::CpuReading;
use polder_testbed::peers::Task;
use polder_testbed::peers::polder::program;
use polder_testbed::traffic::raw::Plan;
use std::io::Read as _;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Packets a second: few enough that the wire itself loses none.
const RATE: f64 = 50_000.0;

/// Time for which the control holds the worker: longer than any ring lasts.
const HELD: Duration = Duration::from_millis(300);

/// Losses of several runs.
#[derive(Debug, Default)]
struct Sum {
    packets: u64,
    /// Losses by the counter that has recorded them.
    books: Lost,
    /// Packets that were lost on the wire to the gateway while another thread had its core.
    excused: u64,
    stolen: Duration,
    /// Other threads on the core in runs that lost packets.
    absences: Vec<Absence>,
    is_told: bool,
}

pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if !run.wants_any(&[LOST, LOST_WITHOUT, LOST_WHEN_HELD]) {
        return Ok(());
    }
    let (rounds, time) = run.quick_or((3, 500), (20, 1000));
    let plan = Plan::steady(RATE, Duration::from_millis(time));
    run.place("polder", machine::cores() - 1, "worker, and the NAPI thread of its input, pinned");
    let testbed = Testbed::lay(Setup::new(Contender::Polder, Task::Bridge, 64, 100));
    let Some(mut testbed) = run.or_skip(&[LOST, LOST_WITHOUT, LOST_WHEN_HELD], testbed)? else {
        return Ok(());
    };
    let (mut with, mut without) = (Sum::default(), Sum::default());
    for round in 1..=rounds {
        run.says(&format!("loss, run {round} of {rounds}"));
        without.add(&mut testbed, &plan)?;
        let capture = stuck_capture(&testbed)?;
        with.add(&mut testbed, &plan)?;
        end(capture)?;
    }
    for (row, sum) in [(LOST, &with), (LOST_WITHOUT, &without)] {
        run.record_count(row, sum.by_gateway());
        run.remark(row, format!("{sum}, in {rounds} runs at {RATE} a second"));
    }
    held(run, &mut testbed)?;
    let unaccounted = testbed.unaccounted()?.unwrap_or(0);
    ensure!(unaccounted == 0, "{unaccounted} packets are unaccounted for");
    Ok(())
}

/// The control: a worker that stands still loses packets, and the row would show it.
fn held(run: &mut Run, testbed: &mut Testbed) -> anyhow::Result<()> {
    let plan = Plan::steady(RATE, HELD * 2);
    let worker = *testbed.threads().first().context("the gateway has no worker")?;
    let mut sum = Sum::default();
    let holding = std::thread::spawn(move || have_held(worker, 1, HELD, HELD / 4));
    let added = sum.add(testbed, &plan);
    let held = holding.join().map_err(|_| anyhow!("the control panicked"))?;
    added?;
    held?;
    run.record_count(LOST_WHEN_HELD, sum.by_gateway());
    run.remark(LOST_WHEN_HELD, format!("{sum}; the worker was held for {HELD:?}"));
    Ok(())
}

impl Sum {
    fn add(&mut self, testbed: &mut Testbed, plan: &Plan) -> anyhow::Result<()> {
        let before = CpuReading::take()?;
        let (_, Detail { outcome, lost, absences }) = testbed.explained(plan)?;
        let stolen = CpuReading::take()?.stolen_since(&before, cores().0);
        self.count(outcome.arrivals.sent, lost, absences, stolen);
        Ok(())
    }

    /// Counts a run of `sent` packets.
    fn count(&mut self, sent: u64, lost: Lost, absences: Option<Vec<Absence>>, stolen: Duration) {
        self.packets += sent;
        let Lost { hops: Hops { to_device, at_input, to_sink }, in_device } = lost;
        let books = &mut self.books;
        books.hops.to_device += to_device;
        books.hops.at_input += at_input;
        books.hops.to_sink += to_sink;
        // A packet too many must not hide one that is missing.
        books.in_device += in_device.abs();
        self.is_told |= absences.is_some();
        let absences = absences.unwrap_or_default();
        let away = absences.iter().map(|absence| absence.time).sum::<Duration>() + stolen;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "thousands of packets")]
        let came = (away.as_secs_f64() * RATE) as u64;
        self.excused += to_device.min(came);
        self.stolen += stolen;
        if to_device > 0 {
            self.absences.extend(absences);
        }
    }

    /// Number of packets that the gateway itself has lost.
    fn by_gateway(&self) -> u64 {
        let Lost { hops: Hops { to_device, at_input, .. }, in_device } = self.books;
        to_device - self.excused + at_input + in_device.unsigned_abs()
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { packets, books, excused, stolen, .. } = self;
        write!(formatter, "of {packets}: {books}")?;
        if books.hops.to_device > 0 {
            let absences = self.is_told.then_some(self.absences.as_slice());
            write!(
                formatter,
                "; {excused} of those on the wire to the device came while its core was away: {}",
                told(absences)
            )?;
        }
        write!(formatter, "; the host stole {} ms of that core", stolen.as_millis())
    }
}

/// A capture of everything whose output is read up to its first bytes and no further.
fn stuck_capture(testbed: &Testbed) -> anyhow::Result<Child> {
    let mut command = std::process::Command::new(program()?);
    command.args(["capture", "in", "--socket"]).arg(testbed.socket()?);
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

    fn lost(to_device: u64, at_input: u64, in_device: i64) -> Lost {
        Lost { hops: Hops { to_device, at_input, to_sink: 0 }, in_device }
    }

    /// Losses by the gateway after one run in which only the host was away, for `stolen` milliseconds.
    fn by_gateway(lost: Lost, stolen: u64) -> u64 {
        let mut sum = Sum::default();
        sum.count(50_000, lost, Some(Vec::new()), Duration::from_millis(stolen));
        sum.by_gateway()
    }

    #[test]
    fn a_gateway_that_loses_seventeen_has_no_excuse() {
        for stolen in [0, 10, 1000] {
            assert_eq!((by_gateway(lost(0, 17, 0), stolen), by_gateway(lost(0, 0, 17), stolen)), (17, 17));
        }
        // Nor one that makes packets.
        assert_eq!(by_gateway(lost(0, 0, -17), 0), 17);
        assert_eq!(by_gateway(lost(17, 0, 0), 0), 17, "nobody was away");
    }

    #[test]
    fn no_more_is_excused_than_came_meanwhile() {
        // Ten milliseconds are five hundred packets.
        assert_eq!((by_gateway(lost(400, 0, 0), 10), by_gateway(lost(517, 0, 0), 10)), (0, 17));
        let mut sum = Sum::default();
        let absence = Absence { who: "kworker".to_owned(), time: Duration::from_millis(10) };
        sum.count(50_000, lost(517, 0, 0), Some(vec![absence]), Duration::ZERO);
        // What is excused in one run excuses nothing in the next.
        sum.count(50_000, lost(83, 0, 0), Some(Vec::new()), Duration::ZERO);
        assert_eq!((sum.by_gateway(), sum.packets), (100, 100_000));
    }
}
