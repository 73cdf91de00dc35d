//! Ports that come and go by command beside a stream, and drops beside what a receiver misses.

use super::super::Run;
use anyhow::ensure;
use polder_testbed::meters::statistics::Samples;
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
    let rounds = run.quick_or(1, 15);
    let (mut times, mut losses, mut packets) = (Samples::default(), Samples::default(), 0);
    for round in 1..=rounds {
        run.says(&format!("ports come and go, round {round} of {rounds}"));
        let (arrivals, added) = site.add_ports(BESIDE, PORTS)?;
        ensure!(arrivals.reordered == 0, "packets of one flow were reordered: {arrivals:?}");
        added.iter().for_each(|time| times.push(time.as_secs_f64() * 1e3));
        losses.push(arrivals.lost as f64);
        packets += arrivals.sent;
    }
    let unaccounted = site.term("unaccounted")?;
    ensure!(unaccounted == 0, "{unaccounted} packets are unaccounted for");
    run.record(ADD, &times);
    run.record(LOST, &losses);
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
    let (mut ratios, mut said) = (Samples::default(), String::new());
    let rounds = run.quick_or(1, 10);
    for round in 1..=rounds {
        run.says(&format!("a queue overflows, round {round} of {rounds}"));
        let [missed, counted] = site.overflow(TOO_MANY)?;
        ensure!(missed > 1000 && counted > 0, "{missed} packets are missing, {counted} are counted");
        ratios.push(missed.min(counted) as f64 / missed.max(counted) as f64);
        said = format!(
            "{missed} packets did not arrive, and {counted} were counted as dropped, in the last round"
        );
    }
    run.record(row, &ratios);
    run.remark(row, said);
    drop(gateway);
    Ok(())
}
