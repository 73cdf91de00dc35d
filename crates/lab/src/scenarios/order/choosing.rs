//! Benefit of `order = "auto"`: a flow gets help when its home has too much and not before, and small
//! flows stay where they are.

use super::harness::{Harness, Plan};
use super::{Run, WARM_UP, rate, throughput, work};
use crate::report::Curve;
use crate::scenarios::turns;
use anyhow::ensure;
use polder_datapath::steer::{Order, Thresholds};
use polder_testbed::interrupt;
use polder_testbed::meters::sequence::ratio;
use polder_testbed::meters::statistics::Samples;
use std::time::Duration;

pub(super) const LOST: &str = "order.auto.lost_percent_over_spread";
pub(super) const CPU: &str = "order.auto.cpu_ratio_vs_hash";
pub(super) const BIG: &str = "order.auto.one_flow_rate_vs_spread";
pub(super) const SMALL: &str = "order.auto.small_flows_rate_vs_hash";

/// Work a packet, in nanoseconds.
const COST: u32 = 1000;
/// Flows of which none is a quarter of its home's work.
const FLOWS: usize = 32;
/// Offered loads, in hundredths of one worker's capacity.
const LOADS: [u32; 8] = [30, 50, 70, 80, 90, 100, 120, 150];
/// Marks beside the default, in thousandths.
const OTHERS: [u32; 2] = [600, 900];
/// Loss ratio in percent from which a home is overloaded.
const LOSES: f64 = 0.1;
/// A load is looked at when the modes have settled, which takes three looks of 10 ms.
const SETTLED: Duration = Duration::from_millis(100);

/// Result of one order at one load.
#[derive(Clone, Debug, Default)]
struct LoadResult {
    /// Per cent of the packets lost at the device's ring, without a ticket or ring, after its turn.
    lost: Samples,
    /// CPU time of all workers, for each packet that left.
    cpu_nanos: Samples,
}

impl LoadResult {
    fn lost(&self) -> f64 {
        self.lost.median().unwrap_or(f64::NAN)
    }

    fn cpu_nanos(&self) -> f64 {
        self.cpu_nanos.median().unwrap_or(f64::NAN)
    }
}

/// Results of the orders at all loads, as medians.
struct Table {
    capacity: f64,
    hash: Vec<LoadResult>,
    spread: Vec<LoadResult>,
    auto: Vec<LoadResult>,
}

/// All rows.
pub(super) fn measure(run: &mut Run, link: f64) -> anyhow::Result<()> {
    let links = work::links(COST, link);
    saturated(run, links)?;
    at_loads(run, links)
}

/// Compares spreading with one large flow, and hashing with many small flows, at the highest rate.
fn saturated(run: &mut Run, links: u32) -> anyhow::Result<()> {
    let (rounds, time) = run.quick_or((3, Duration::from_millis(250)), (10, Duration::from_millis(600)));
    let small = (0..FLOWS).map(|flow| flow % 2).collect::<Vec<_>>();
    for (row, other, flows) in [(BIG, Order::Spread, vec![1]), (SMALL, Order::Hash, small)] {
        let what = format!("order = \"auto\" with {} flows", flows.len());
        let plan = |order| Plan { order, flows: flows.clone(), ..Plan::one_flow(2, links) };
        let mut rates = [0.0; 2];
        turns::rounds(run, rounds, &what, |sheet| {
            rates = [rate(&throughput(&plan(other), time)?), rate(&throughput(&plan(Order::Auto), time)?)];
            sheet.push(row, rates[1] / rates[0]);
            Ok(())
        })?
        .record(run);
        run.remark(row, format!("{:.2} beside {:.2} Mpps in the last pair", rates[1] / 1e6, rates[0] / 1e6));
    }
    Ok(())
}

/// Runs one flow at loads from a third of its home's capacity to one and a half times the capacity.
fn at_loads(run: &mut Run, links: u32) -> anyhow::Result<()> {
    let (rounds, time) = run.quick_or((1, Duration::from_millis(250)), (10, Duration::from_millis(400)));
    let alone = Plan { order: Order::Hash, ..Plan::one_flow(2, links) };
    let capacity = rate(&throughput(&alone, time)?);
    let mut table = Table { capacity, hash: Vec::new(), spread: Vec::new(), auto: Vec::new() };
    for load in LOADS {
        run.says(&format!("order = \"auto\" at {load} % of what a flow's home can do"));
        let mut seen = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            for (order, seen) in [Order::Hash, Order::Spread, Order::Auto].into_iter().zip(&mut seen) {
                seen.push(look(&Plan { order, ..alone.clone() }, pace(capacity, load), time)?);
            }
        }
        let [hash, spread, auto] = seen.map(|seen| gather(&seen));
        table.hash.push(hash);
        table.spread.push(spread);
        table.auto.push(auto);
    }
    let Some((lost, cpu)) = table.worst(&table.auto) else {
        run.missing(LOST, "a round has no result");
        return Ok(());
    };
    run.record_one(LOST, lost);
    run.remark(LOST, table.remark());
    run.curve(table.curve());
    match cpu {
        Some(cpu) => run.record_one(CPU, cpu),
        None => run.missing(CPU, "one worker loses packets at every load"),
    }
    if !run.is_quick() && cpu.is_some() {
        let remark = beside_others(run, &table, &alone, time)?;
        run.remark(CPU, remark);
    }
    Ok(())
}

/// Compares with other thresholds.
fn beside_others(run: &Run, table: &Table, alone: &Plan, time: Duration) -> anyhow::Result<String> {
    let mut parts = Vec::new();
    for over in OTHERS {
        run.says(&format!("order = \"auto\", a home over its mark at {over} thousandths"));
        let thresholds = Thresholds { over, ..Thresholds::default() };
        let plan = Plan { order: Order::Auto, thresholds, ..alone.clone() };
        let mut auto = Vec::new();
        for load in LOADS {
            let seen = (0..3).map(|_| look(&plan, pace(table.capacity, load), time));
            auto.push(gather(&seen.collect::<anyhow::Result<Vec<_>>>()?));
        }
        let (lost, cpu) = table.worst(&auto).unwrap_or((f64::NAN, None));
        let cpu = cpu.unwrap_or(f64::NAN);
        parts.push(format!("a home over its mark at {over} thousandths: {lost:.2} % more lost, {cpu:.2} ×"));
    }
    Ok(parts.join("; "))
}

fn gather(looks: &[(f64, f64)]) -> LoadResult {
    let lost = looks.iter().map(|(lost, _)| *lost).collect();
    let cpu_nanos = looks.iter().map(|(_, cpu_nanos)| *cpu_nanos).collect();
    LoadResult { lost, cpu_nanos }
}

impl Table {
    /// The most that is lost more than by spreading, in points, and the largest ratio of CPU time to that of hashing
    /// where hashing loses nothing.
    fn worst(&self, auto: &[LoadResult]) -> Option<(f64, Option<f64>)> {
        let lost = self.spread.iter().zip(auto).map(|(spread, auto)| auto.lost() - spread.lost());
        let copes = self.hash.iter().zip(auto).filter(|(hash, _)| hash.lost() < LOSES);
        let cpu = copes.map(|(hash, auto)| auto.cpu_nanos() / hash.cpu_nanos());
        Some((lost.max_by(f64::total_cmp)?, cpu.max_by(f64::total_cmp)))
    }

    fn remark(&self) -> String {
        let part = |seen: &LoadResult| format!("{:.1} % {:.0}", seen.lost(), seen.cpu_nanos());
        let lines = LOADS.iter().zip(&self.hash).zip(&self.spread).zip(&self.auto);
        let lines = lines.map(|(((load, hash), spread), auto)| {
            format!("at {load} % {}, {}, {}", part(hash), part(spread), part(auto))
        });
        let lines = lines.collect::<Vec<_>>().join("; ");
        format!("lost and CPU ns a packet with hash, spread, auto: {lines}")
    }

    fn curve(&self) -> Curve {
        let line = |seen: &[LoadResult]| {
            LOADS.iter().zip(seen).map(|(load, seen)| (f64::from(*load), seen.cpu_nanos())).collect()
        };
        let lines = [("hash", &self.hash), ("spread", &self.spread), ("auto", &self.auto)];
        Curve {
            title: "One flow on two workers: who does it".to_owned(),
            x: "load, per cent of what the flow's home can do".to_owned(),
            y: "CPU ns a packet".to_owned(),
            lines: lines.into_iter().map(|(name, seen)| (name.to_owned(), line(seen))).collect(),
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "millions at most")]
fn pace(capacity: f64, load: u32) -> u64 {
    (capacity * f64::from(load) / 100.0) as u64
}

/// Offers `pace` packets a second for a while: per cent lost, CPU nanoseconds a packet.
fn look(plan: &Plan, pace: u64, time: Duration) -> anyhow::Result<(f64, f64)> {
    let harness = Harness::start(&Plan { steady: Some(pace), ..plan.clone() }, |_| {})?;
    harness.open(true);
    interrupt::sleep(WARM_UP + SETTLED)?;
    let before = harness.lost();
    let window = harness.window(time)?;
    let lost = harness.lost() - before;
    let (_, ledger) = harness.stop()?;
    ensure!(ledger.flows[0].reordered == 0, "{} packets reordered", ledger.flows[0].reordered);
    let cpu = window.cpu.iter().sum::<Duration>();
    Ok((100.0 * ratio(lost, lost + window.passed), 1e9 * cpu.as_secs_f64() / ratio(window.passed, 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_testbed::machine;

    #[test]
    fn a_flow_gets_help_when_its_home_has_too_much_and_not_before() {
        if machine::cores() < 2 {
            eprintln!("SKIPPED: two workers take two cores");
            return;
        }
        let plan = |links| Plan { order: Order::Auto, ..Plan::one_flow(2, links) };
        // 100 packets a second of next to no work: no machine is busy with that.
        let calm = Harness::start(&Plan { steady: Some(100), ..plan(10) }, |_| {}).unwrap();
        calm.open(true);
        interrupt::sleep(Duration::from_millis(300)).unwrap();
        let (left, _) = calm.stop().unwrap();
        assert_eq!((left.tickets, left.changes), (0, 0), "{left:?}");

        let harness = Harness::start(&plan(20_000), |_| {}).unwrap();
        harness.open(true);
        let deadline = polder_testbed::clock::now() + Duration::from_secs(60);
        while harness.workers.iter().all(|worker| worker.order.helped.get() == 0) {
            assert!(polder_testbed::clock::now() < deadline, "nobody helps");
            interrupt::sleep(Duration::from_millis(5)).unwrap();
        }
        harness.stop().unwrap();
    }
}
