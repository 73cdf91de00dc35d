//! What the traffic loses to a capture, between veths: everything is captured, into a pipe that nobody
//! reads.
//!
//! A packet that is missing at the end was lost by one of four: the wire to the gateway, the gateway's
//! input, the gateway, the wire to the sink. The first is the gateway's fault unless somebody else had its core
//! for so long that no wire bears it; the last is the sink's.

use super::super::hops::Lost;
use super::super::stand::{Contender, Detail, Setup, Stand};
use super::{LOST, Run};
use crate::machine;
use crate::meters::absence::told;
use crate::peers::Task;
use crate::peers::polder::program;
use crate::traffic::raw::Plan;
use anyhow::{Context as _, ensure};
use std::io::Read as _;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Packets a second: few enough that the wire itself loses none.
const RATE: f64 = 50_000.0;

/// What several runs have lost.
#[derive(Debug, Default)]
struct Sum {
    packets: u64,
    by_gateway: u64,
    elsewhere: u64,
    /// What is known of runs that lost something.
    remarks: Vec<String>,
}

pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if !run.wants(LOST) {
        return Ok(());
    }
    let (rounds, time) = run.quick_or((3, 500), (20, 1000));
    let plan = Plan::steady(RATE, Duration::from_millis(time));
    run.place("polder", machine::cores() - 1, "worker, and the NAPI thread of its input, pinned");
    let mut stand = match Stand::lay(Setup::new(Contender::Polder, Task::Bridge, 64, 100)) {
        Ok(stand) => stand,
        Err(error) => {
            run.skip(&[LOST], &format!("{error:#}"));
            return Ok(());
        }
    };
    let (mut with, mut without) = (Sum::default(), Sum::default());
    for round in 1..=rounds {
        run.says(&format!("loss, run {round} of {rounds}"));
        without.add(&mut stand, &plan)?;
        let capture = stuck_capture(&stand)?;
        with.add(&mut stand, &plan)?;
        end(capture)?;
    }
    #[expect(clippy::cast_precision_loss, reason = "thousands of packets")]
    run.record_one(LOST, with.by_gateway as f64);
    run.remark(LOST, format!("{with}, in {rounds} runs at {RATE} a second; without a capture {without}"));
    let unaccounted = stand.unaccounted()?.unwrap_or(0);
    ensure!(unaccounted == 0, "{unaccounted} packets are unaccounted for");
    Ok(())
}

impl Sum {
    fn add(&mut self, stand: &mut Stand, plan: &Plan) -> anyhow::Result<()> {
        let (_, Detail { outcome, lost, absences }) = stand.explained(plan)?;
        self.packets += outcome.arrivals.sent;
        let Lost { hops, in_device } = lost;
        let was_away = absences.as_ref().is_some_and(|absences| !absences.is_empty());
        let (wire, excused) = if was_away { (0, hops.to_device) } else { (hops.to_device, 0) };
        self.by_gateway += wire + hops.at_input + in_device.unsigned_abs();
        self.elsewhere += excused + hops.to_sink;
        if outcome.arrivals.lost > 0 || in_device != 0 {
            self.remarks.push(format!("{lost}; {}", told(absences.as_deref())));
        }
        Ok(())
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { packets, by_gateway, elsewhere, remarks } = self;
        write!(formatter, "{by_gateway} of {packets}, and {elsewhere} where the gateway is not the cause")?;
        remarks.iter().try_for_each(|remark| write!(formatter, " ({remark})"))
    }
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
