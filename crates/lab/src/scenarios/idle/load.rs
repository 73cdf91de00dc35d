//! CPU time against load.

use super::super::testbed::{Contender, Setup, Testbed, Trial};
use super::{COLUMNS, Column, Points, Run, TESTPMD_IDLE};
use polder_testbed::interrupt;
use polder_testbed::traffic::raw::Plan;
use std::time::Duration;

/// Packets a second that no device here can carry; what comes out then is its capacity.
const OVERLOAD: f64 = 2_500_000.0;
/// Parts of the capacity at which the cost is taken, in percent.
const LOADS: [u32; 3] = [1, 10, 50];
/// Empty polls of the sink's timer before its interrupts are on again (`napi_defer_hard_irqs`): longer than
/// the pauses of a moderated device. On a veth the sender would pay for the interrupt at the other end; on a
/// cable it does not.
const SINK_PATIENCE: u32 = 16;
/// The first of all columns, which a quick run has time for.
const QUICK_COLUMNS: usize = 3;
const KINDS: [&str; 1] = ["cpu_at"];

/// Fills these rows of all columns. Answers how many packets their books miss.
pub(super) fn measure(run: &mut Run, points: &mut Points) -> anyhow::Result<u64> {
    let mut unaccounted = 0;
    for (place, column) in COLUMNS.into_iter().enumerate() {
        let curve = column.contender == Contender::Testpmd && run.wants(TESTPMD_IDLE);
        if !curve && !column.is_wanted(run, &KINDS) {
            continue;
        }
        if run.is_quick() && place >= QUICK_COLUMNS {
            run.leave_out(format!("{}: CPU against load", column.name));
            continue;
        }
        let result = of(run, column, points);
        unaccounted += column.or_skip(run, &KINDS, result)?.unwrap_or(0);
    }
    Ok(unaccounted)
}

fn of(run: &mut Run, column: Column, points: &mut Points) -> anyhow::Result<u64> {
    let mut testbed = Testbed::lay(Setup { sink_patience: SINK_PATIENCE, ..column.setup() })?;
    load(run, column, &mut testbed, points)?;
    Ok(testbed.unaccounted()?.map_or(0, i64::unsigned_abs))
}

/// Percent of a core at parts of the capacity.
fn load(run: &mut Run, column: Column, testbed: &mut Testbed, points: &mut Points) -> anyhow::Result<()> {
    let name = column.name;
    run.says(&format!("{name}, capacity"));
    let time = Duration::from_millis(run.quick_or(600, 2000));
    let percent = |trial: &Trial| trial.device.as_secs_f64() / trial.sent.time.as_secs_f64() * 100.0;
    let trial = testbed.run(&Plan::steady(OVERLOAD, time))?;
    let (capacity, full) = (trial.rate(), percent(&trial));
    let nothing = testbed.idle(|| {
        interrupt::sleep(time)?;
        Ok(time)
    })?;
    let line = points.load.entry(name.to_owned()).or_default();
    line.extend([(0.0, nothing), (100.0, full)]);
    for load in LOADS {
        run.says(&format!("{name}, {load} % of the capacity"));
        let part = f64::from(load) / 100.0;
        let used = percent(&testbed.run(&Plan::steady(capacity * part, time))?);
        line.push((f64::from(load), used));
        if column.peer == "polder" {
            let moderated = points.moderated.entry(format!("{load} % of the capacity")).or_default();
            moderated.push((f64::from(column.moderation_us), used));
        }
        let row = format!("idle.cpu_at_{load}_percent.ratio_vs_proportional.{name}");
        if !run.rows(&row).is_empty() {
            run.record_one(&row, used / (full * part));
            let rate = capacity * part;
            let text = format!("{used:.1} % of a core at {rate:.0} packets/s, {full:.0} % at {capacity:.0}");
            run.remark(&row, text);
        }
    }
    Ok(())
}
