//! `gateway`: source E's gateway, between its Ethernet and its tunnel: what a packet costs beside other
//! forwarders, and what each of the source's techniques brings.

mod alone;
pub(super) mod switched;
mod together;

use super::comparison::{self, Effort};
use super::turns::in_turn;
use super::{Run, Scenario};
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
        if part.is_due(run) {
            comparison::hold_within(run, &part, &mut effort)?;
        }
    }
    Ok(())
}

/// The rows of a technique: on and off.
fn rows(technique: &str) -> [String; 2] {
    ["on", "off"].map(|side| format!("gateway.ablation.{technique}.{side}.pps"))
}

/// Fills the rows of a technique, whose sides take turns.
fn compare<T>(
    run: &mut Run,
    technique: &str,
    sides: &[T; 2],
    rate: impl Fn(&T) -> anyhow::Result<f64>,
) -> anyhow::Result<()> {
    let mut sides = rows(technique).into_iter().zip(sides).collect::<Vec<_>>();
    let name = |(row, _): &(String, &T)| row.clone();
    let sheet = in_turn(run, effort(run).0, &mut sides, name, |(row, side), sheet| {
        sheet.push(row.as_str(), rate(side)?);
        Ok(())
    })?;
    sheet.record(run);
    Ok(())
}

/// Records a description of a technique's two sides.
fn remark(run: &mut Run, technique: &str, remarks: [String; 2]) {
    rows(technique).iter().zip(remarks).for_each(|(row, remark)| run.remark(row, remark));
}

/// Rounds of a technique, and duration of each.
fn effort(run: &Run) -> (usize, Duration) {
    let (rounds, time) = run.quick_or((3, 100), (10, 250));
    (rounds, Duration::from_millis(time))
}
