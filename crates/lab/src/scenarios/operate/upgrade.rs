//! A gateway that another program goes on with: how long forwarding pauses, and what is lost at half load.

use super::super::Run;
use crate::scenarios::turns::rounds;
use anyhow::ensure;
use polder_testbed::upgrade::{Carrier, Change, Process, Site};
use std::time::Duration;

const PAUSE: &str = "operate.upgrade.pause_ms";
const LOST: &str = "operate.upgrade.lost";
const PAUSE_CARRIED: &str = "operate.upgrade.pause_ms.carried";
const LOST_CARRIED: &str = "operate.upgrade.lost.carried";
const RESTARTED: &str = "operate.upgrade.lost.restarted";
const PAUSE_UNCHANGED: &str = "operate.upgrade.pause_ms.unchanged";
const LOST_UNCHANGED: &str = "operate.upgrade.lost.unchanged";

/// Time for the end of a program that was gone on from.
const END: Duration = Duration::from_secs(10);

/// Measures upgrades of a bridge of two ports, and its restart.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    let controls = [RESTARTED, PAUSE_UNCHANGED, LOST_UNCHANGED];
    if run.wants_any(&[PAUSE, LOST]) || run.wants_any(&controls) {
        rows(run, Carrier::Workers, [PAUSE, LOST], Some(controls))?;
    }
    if run.wants_any(&[PAUSE_CARRIED, LOST_CARRIED]) {
        rows(run, Carrier::Programs, [PAUSE_CARRIED, LOST_CARRIED], None)?;
    }
    Ok(())
}

fn rows(
    run: &mut Run,
    carrier: Carrier,
    [pause, lost]: [&'static str; 2],
    controls: Option<[&'static str; 3]>,
) -> anyhow::Result<()> {
    let site = Site::lay(carrier, "")?;
    let mut first = site.start()?;
    let rate = site.half_load()?;
    let (mut said, mut overrun, mut lost_in_all) = (String::new(), 0, 0);
    let sheet = rounds(run, run.quick_or(2, 10), "an upgrade at half load", |sheet| {
        let before = overruns(&site)?;
        let crossed = site.cross(rate, Change::Upgrade)?;
        overrun += overruns(&site)? - before;
        lost_in_all += crossed.arrivals.lost;
        let unaccounted = site.term("unaccounted")?;
        ensure!(unaccounted == 0, "{unaccounted} packets are unaccounted for after an upgrade");
        ensure!(
            crossed.arrivals.reordered == 0,
            "packets of one flow were reordered: {:?}",
            crossed.arrivals
        );
        sheet.push(pause, crossed.longest.as_secs_f64() * 1e3);
        sheet.push(lost, crossed.arrivals.lost as f64);
        let still = crossed.stood_still.unwrap_or_default();
        said = format!(
            "longest one-way time of {} packets at {:.0}/s, half of what the path carries; workers stood still for {:.1} ms",
            crossed.arrivals.sent,
            crossed.rate,
            still.as_secs_f64() * 1e3
        );
        if let Some([restarted, pause, lost]) = controls {
            let unchanged = site.cross(rate, Change::Nothing)?;
            let lost_by_restart = site.cross(rate, Change::Restart)?.arrivals.lost as f64;
            ensure!(lost_by_restart > 0.0, "a restart loses nothing by this meter");
            sheet.push(restarted, lost_by_restart);
            sheet.push(pause, unchanged.longest.as_secs_f64() * 1e3);
            sheet.push(lost, unchanged.arrivals.lost as f64);
        }
        Ok(())
    })?;
    drop(Process::behind(&site.socket())?);
    ensure!(first.wait(END)?.success(), "the first program ended badly: {}", first.said());
    sheet.record(run);
    run.remark(pause, said);
    run.remark(
        lost,
        format!("{lost_in_all} in all rounds; {overrun} packets were dropped because more waited than may"),
    );
    Ok(())
}

/// Number of packets dropped before the workers.
fn overruns(site: &Site) -> anyhow::Result<i64> {
    site.term("received")?;
    // A reason that has not occurred is left out.
    Ok(site.term("rx-overrun").unwrap_or_default())
}
