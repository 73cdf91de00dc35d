//! A million frames each way by QEMU's test protocol, and the worth of one tail write for many frames.

use super::Run;
use polder_judges::e1000::{self, Volume};
use polder_testbed::meters::statistics::Samples;
use std::time::Duration;

pub(super) const LOST: &str = "e1000.qtest.frames_lost";
pub(super) const ONE: &str = "e1000.qtest.us_per_frame.tail_1";
pub(super) const MANY: &str = "e1000.qtest.us_per_frame.tail_64";
const ROWS: [&str; 3] = [LOST, ONE, MANY];
/// Frames that a round times.
const TIMED: u32 = 2048;

/// Measures all of it.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if !run.wants_any(&ROWS) {
        return Ok(());
    }
    if run.or_skip(&ROWS, e1000::available())?.is_none() {
        return Ok(());
    }
    if run.wants(LOST) {
        let count = run.quick_or(20_000, 1_000_000);
        run.says(&format!("{count} frames each way"));
        carry(run, count)?;
    }
    for (row, batch) in [(ONE, 1), (MANY, 64)] {
        if run.wants(row) {
            time(run, row, batch)?;
        }
    }
    Ok(())
}

fn carry(run: &mut Run, count: u32) -> anyhow::Result<()> {
    let Some(volume) = run.or_skip(&[LOST], e1000::carry(count))? else { return Ok(()) };
    let Volume { verified: [received, sent], lost, took: [receiving, sending] } = volume;
    run.record_one(LOST, f64::from(lost));
    let rate = |frames: u32, took: Duration| f64::from(frames) / took.as_secs_f64() / 1e3;
    run.remark(
        LOST,
        format!(
            "verified {received} received at {:.0} kpps and {sent} sent at {:.0} kpps, 60 to 1514 bytes",
            rate(received, receiving),
            rate(sent, sending)
        ),
    );
    Ok(())
}

fn time(run: &mut Run, row: &str, batch: usize) -> anyhow::Result<()> {
    run.says(&format!("frames a tail write: {batch}"));
    let rounds = run.quick_or(2, 10);
    let times = (0..rounds).map(|_| Ok(e1000::time_each(TIMED, batch)?.as_secs_f64() * 1e6));
    let times = times.collect::<anyhow::Result<Samples>>();
    run.or_skip(&[row], times)?.iter().for_each(|times| run.record(row, times));
    Ok(())
}
