//! `order`: one flow on all cores, and in order; in memory.

mod choosing;
mod crowd;
mod handoff;
pub(super) mod harness;
mod keeping;
pub(super) mod ports;
mod restoring;
pub(super) mod work;
mod workers;

use super::turns::rounds;
use super::{Run, Scenario};
use harness::{Harness, Left, Plan, Reading};
use polder_testbed::machine;
use polder_testbed::meters::sequence::ratio;
use polder_testbed::meters::statistics::Samples;
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "order",
    about: "one flow on all cores and in order: in memory, two workers against one, with work a packet as set",
    needs_root: false,
    rows: include_str!("../rows/order.rows"),
    measure,
};

const BREAK_EVEN: &str = "order.breakeven_ns";
const OURS: &str = "order.restore_ns.polder";
const LIBRTE: &str = "order.restore_ns.librte_reorder";

/// Work a packet, in nanoseconds.
const COSTS: [u32; 5] = [0, 100, 300, 1000, 3000];
/// Pools, caches and branch predictors settle in this time.
const WARM_UP: Duration = Duration::from_millis(50);

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let cores = machine::cores();
    let link = work::calibrate();
    run.place("worker 0, which receives", cores - 1, "pinned");
    if cores < 2 {
        run.leave_out("everything that takes two cores: this machine has one");
        return restore_cost(run, cores - 1);
    }
    run.place("worker 1", cores - 2, "pinned");
    if run.wants_any_of(&["order.speedup", BREAK_EVEN]) {
        speedups(run, link, [cores - 1, cores - 2])?;
    }
    if run.wants_any_of(&["order.reordered", "order.late"]) {
        keeping::measure(run, link)?;
    }
    if run.wants_any_of(&["order.crowded"]) {
        crowd::measure(run, link)?;
    }
    if run.wants_any_of(&["order.auto"]) {
        choosing::measure(run, link)?;
    }
    if run.wants_any_of(&["order.restore_ns"]) {
        restore_cost(run, cores - 1)?;
    }
    if run.wants_any_of(&["order.handoff_ns"]) {
        hand_over(run, [cores - 1, cores - 2])?;
    }
    workers::measure(run)
}

/// Two workers against one, at each cost.
fn speedups(run: &mut Run, link: f64, cores: [usize; 2]) -> anyhow::Result<()> {
    let (count, time) = run.quick_or((3, Duration::from_millis(250)), (10, Duration::from_millis(600)));
    let mut curve = Vec::new();
    for cost in COSTS {
        let links = work::links(cost, link);
        let row = format!("order.speedup.cost_{cost}ns");
        let mut rates = [0.0; 2];
        let sheet = rounds(run, count, &format!("one flow, {cost} ns of work a packet"), |sheet| {
            sheet.push("bound", work::side_by_side(cores, time / 5)?);
            let one = throughput(&Plan::one_flow(1, links), time)?;
            let (two, left) = shared(&Plan::one_flow(2, links), time)?;
            sheet.push("helped", 100.0 * ratio(left.helped, left.tickets));
            sheet.push("each", ratio(left.sent.iter().sum(), left.tickets));
            rates = [rate(&one), rate(&two)];
            sheet.push(&row, rate(&two) / rate(&one));
            sheet.push("booked", by_the_books(&two) / by_the_books(&one));
            Ok(())
        })?;
        sheet.record(run);
        let [books, helped, each, bound] =
            ["booked", "helped", "each", "bound"].map(|what| sheet.median(what));
        run.remark(
            &row,
            format!(
                "{:.2} → {:.2} Mpps in the last pair; {books:.2} × by the CPU time of the busier worker; worker 1 did \
                 {helped:.0} % of the work_batches, of {each:.0} packets each; two threads with nothing in common did \
                 {bound:.2} × of one's work",
                rates[0] / 1e6,
                rates[1] / 1e6,
            ),
        );
        curve.push((f64::from(cost), sheet.median(&row)));
    }
    match break_even(&curve) {
        Some(cost) => run.record_one(BREAK_EVEN, cost),
        None => run.missing(BREAK_EVEN, "two workers were slower than one at every cost"),
    }
    Ok(())
}

pub(super) fn throughput(plan: &Plan, time: Duration) -> anyhow::Result<Reading> {
    Ok(shared(plan, time)?.0)
}

/// Runs the plan; also returns how the work was shared.
fn shared(plan: &Plan, time: Duration) -> anyhow::Result<(Reading, Left)> {
    let harness = Harness::start(plan, |_| {})?;
    harness.open(true);
    polder_testbed::interrupt::sleep(WARM_UP)?;
    let window = harness.window(time)?;
    let (left, ledger) = harness.stop()?;
    anyhow::ensure!(ledger.flows[0].reordered == 0, "{} packets reordered", ledger.flows[0].reordered);
    Ok((window, left))
}

/// Packets a second.
#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
pub(super) fn rate(window: &Reading) -> f64 {
    window.passed as f64 / window.at.as_secs_f64()
}

/// Packets for each second of CPU time of the busier worker: the rate on a machine that does nothing
/// else.
#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
fn by_the_books(window: &Reading) -> f64 {
    let busier = window.cpu.iter().max().copied().unwrap_or_default();
    window.passed as f64 / busier.as_secs_f64()
}

/// The cost at which two workers are as fast as one: between measured costs as a straight line says.
fn break_even(curve: &[(f64, f64)]) -> Option<f64> {
    let first = curve.first()?;
    if first.1 >= 1.0 {
        return Some(first.0);
    }
    curve.windows(2).find_map(|pair| {
        let [(low, below), (high, above)] = [pair[0], pair[1]];
        (below < 1.0 && above >= 1.0).then(|| low + (high - low) * (1.0 - below) / (above - below))
    })
}

fn restore_cost(run: &mut Run, core: usize) -> anyhow::Result<()> {
    let rounds = run.quick_or(3, 10);
    run.says("reordering alone");
    let ours = (0..rounds).map(|_| restoring::ours()).collect::<anyhow::Result<Samples>>()?;
    run.record(OURS, &ours);
    let theirs = run.or_skip(&[LIBRTE], restoring::librte(rounds, core))?;
    theirs.iter().for_each(|theirs| run.record(LIBRTE, theirs));
    Ok(())
}

fn hand_over(run: &mut Run, cores: [usize; 2]) -> anyhow::Result<()> {
    let (rounds, time) = run.quick_or((3, Duration::from_millis(100)), (10, Duration::from_millis(300)));
    for batch in [1, 8, 32] {
        run.says(&format!("hand-over, {batch} at a time"));
        let samples = (0..rounds).map(|_| handoff::run(batch, cores, time));
        let samples = samples.collect::<anyhow::Result<Samples>>()?;
        run.record(&format!("order.handoff_ns.batch_{batch}"), &samples);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_break_even_is_where_the_line_crosses_one() {
        assert_eq!(break_even(&[(0.0, 0.5), (100.0, 1.5), (300.0, 1.8)]), Some(50.0));
        assert_eq!(break_even(&[(0.0, 1.2), (100.0, 1.5)]), Some(0.0));
        assert_eq!(break_even(&[(0.0, 0.4), (100.0, 0.5)]), None);
        assert_eq!(break_even(&[]), None);
    }

    #[test]
    fn two_workers_share_a_flow_and_keep_its_order() {
        if machine::cores() < 2 {
            eprintln!("SKIPPED: two workers take two cores");
            return;
        }
        let links = work::links(500, work::calibrate());
        let harness = Harness::start(&Plan::one_flow(2, links), |_| {}).unwrap();
        harness.open(true);
        let deadline = polder_testbed::clock::now() + Duration::from_secs(60);
        loop {
            let seen = harness.read().unwrap();
            if seen.passed > 1000 && seen.cpu.iter().all(|cpu| *cpu > Duration::from_millis(5)) {
                break;
            }
            assert!(polder_testbed::clock::now() < deadline, "{} packets in {:?}", seen.passed, seen.cpu);
            polder_testbed::interrupt::sleep(Duration::from_millis(5)).unwrap();
        }
        let (left, ledger) = harness.stop().unwrap();
        assert_eq!(ledger.flows[0].reordered, 0, "{left:?}");
    }

    /// Budgets of packets that take 20 µs are far below a batch. The receiver is the flow's home, so the other worker
    /// wakes up for nothing but to help.
    #[test]
    fn dear_packets_are_shared() {
        if machine::cores() < 2 {
            eprintln!("SKIPPED: two workers take two cores");
            return;
        }
        let links = work::links(20_000, work::calibrate());
        let harness = Harness::start(&Plan { flows: vec![0], ..Plan::one_flow(2, links) }, |_| {}).unwrap();
        harness.open(true);
        let deadline = polder_testbed::clock::now() + Duration::from_secs(60);
        while harness.workers[1].order.helped.get() < 100 {
            let tickets = harness.workers[0].order.tickets.get();
            assert!(polder_testbed::clock::now() < deadline, "nobody helps with {tickets} work_batches");
            polder_testbed::interrupt::sleep(Duration::from_millis(5)).unwrap();
        }
        let (left, ledger) = harness.stop().unwrap();
        assert_eq!(ledger.flows[0].reordered, 0, "{left:?}");
    }

    #[test]
    fn restoration_and_hand_over_take_some_time() {
        assert!((0.01..1000.0).contains(&restoring::ours().unwrap()));
        let nanos = handoff::run(8, [0, machine::cores() - 1], Duration::from_millis(20)).unwrap();
        assert!((0.1..1_000_000.0).contains(&nanos), "{nanos}");
    }
}
