//! `gateway`: source E's gateway, between its Ethernet and its tunnel: what a packet costs beside other
//! forwarders, and what each of the source's techniques brings.

mod alone;
pub(super) mod switched;
mod together;

use super::comparison::{self, Effort};
use super::{Run, Scenario};
use polder_testbed::meters::statistics::Samples;
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "gateway",
    about: "source E's gateway: CPU time of a packet into and out of its tunnel, and each technique off and on",
    needs_root: true,
    rows: include_str!("../rows/gateway.rows"),
    measure,
};

/// Flows of the rows without an ending.
const FLOWS: u32 = 64;

fn measure(run: &mut Run) -> anyhow::Result<()> {
    alone::measure(run)?;
    together::measure(run)?;
    let (rounds, time) = run.quick_or((3, 150), (10, 300));
    let mut effort = Effort { rounds, time: Duration::from_millis(time), found: Vec::new() };
    for part in comparison::parts(run.promises())? {
        if part.flows == FLOWS {
            effort.found.clear();
        }
        if part.is_wanted(run) && run.is_out_of_time() {
            run.leave_out(format!("{:?}, {} bytes, flows: {}", part.task, part.frame_bytes, part.flows));
        } else if part.is_wanted(run) {
            comparison::hold_within(run, &part, &mut effort)?;
        }
    }
    Ok(())
}

/// The rows of a technique: on and off.
fn rows(technique: &str) -> [String; 2] {
    ["on", "off"].map(|side| format!("gateway.ablation.{technique}.{side}.pps"))
}

/// True if a technique's rows are wanted and there is time; notes rows that are left out.
fn is_due(run: &mut Run, technique: &str) -> bool {
    let wanted = run.wants_any(&rows(technique));
    if wanted && run.is_out_of_time() {
        run.leave_out(format!("{technique}, on and off"));
        return false;
    }
    wanted
}

/// Fills the rows of a technique; each remark says what its side is.
fn record(run: &mut Run, technique: &str, rates: &[Samples; 2], remarks: [String; 2]) {
    for ((row, rates), remark) in rows(technique).iter().zip(rates).zip(remarks) {
        run.record(row, rates);
        run.remark(row, remark);
    }
}

/// Rounds of a technique, and duration of each.
fn effort(run: &Run) -> (usize, Duration) {
    let (rounds, time) = run.quick_or((3, 100), (10, 250));
    (rounds, Duration::from_millis(time))
}
