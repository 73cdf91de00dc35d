//! Ports that come and go by command beside a stream, and drops beside what a receiver misses.

use super::super::Run;
use crate::scenarios::turns::rounds;
use anyhow::ensure;
use polder_testbed::upgrade::{Carrier, Site};

const ADD: &str = "operate.port_add.ms";
const LOST: &str = "operate.port_add.lost";
const RATIO: &str = "operate.drops_counted.ratio";
const RATIO_APART: &str = "operate.drops_counted.ratio.apart";

/// Packets a second of the stream beside which ports come and go, and of the one that overflows a queue.
const BESIDE: f64 = 20_000.0;
const TOO_MANY: f64 = 20_000.0;
/// Ports that come and go in the four seconds of a stream: 250 a minute.
const PORTS: u32 = 17;

/// Measures both.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if run.wants_any(&[ADD, LOST]) {
        ports(run)?;
    }
    for (row, is_merged) in [(RATIO, true), (RATIO_APART, false)] {
        if run.wants_any(&[row]) {
            drops(run, row, is_merged)?;
        }
    }
    Ok(())
}

fn ports(run: &mut Run) -> anyhow::Result<()> {
    let site = Site::lay(Carrier::Programs, "")?;
    let gateway = site.start()?;
    let mut packets = 0;
    let sheet = rounds(run, run.quick_or(1, 15), "ports come and go", |sheet| {
        let (arrivals, added) = site.add_ports(BESIDE, PORTS)?;
        ensure!(arrivals.reordered == 0, "packets of one flow were reordered: {arrivals:?}");
        added.iter().for_each(|time| sheet.push(ADD, time.as_secs_f64() * 1e3));
        sheet.push(LOST, arrivals.lost as f64);
        packets += arrivals.sent;
        Ok(())
    })?;
    let unaccounted = site.term("unaccounted")?;
    ensure!(unaccounted == 0, "{unaccounted} packets are unaccounted for");
    sheet.record(run);
    run.remark(LOST, format!("of {packets} packets between two other ports, {PORTS} ports in four seconds"));
    drop(gateway);
    Ok(())
}

/// The smaller of what a receiver misses and what is counted as dropped, of the larger.
fn drops(run: &mut Run, row: &'static str, is_merged: bool) -> anyhow::Result<()> {
    let keys = format!(
        "coalesce = {is_merged}\nqueue = {{ kind = \"codel\", limit_bytes = 400_000, rate_kbit = 8_000 }}\n"
    );
    let site = Site::lay(Carrier::Workers, &keys)?;
    let gateway = site.start()?;
    let mut said = String::new();
    let sheet = rounds(run, run.quick_or(1, 10), "a queue overflows", |sheet| {
        let [missed, counted] = site.overflow(TOO_MANY)?;
        ensure!(missed > 1000 && counted > 0, "{missed} packets are missing, {counted} are counted");
        sheet.push(row, missed.min(counted) as f64 / missed.max(counted) as f64);
        said = format!(
            "{missed} packets did not arrive, and {counted} were counted as dropped, in the last round"
        );
        Ok(())
    })?;
    sheet.record(run);
    run.remark(row, said);
    drop(gateway);
    Ok(())
}
