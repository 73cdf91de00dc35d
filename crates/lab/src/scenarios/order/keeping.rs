//! Order of packets while a queue drops, while buckets change their mode all the time, and while a worker
//! stands still; a control shows that the meter finds reordering.

use super::harness::{Harness, Left, Plan};
use super::ports::{Ledger, Link};
use super::{Run, work};
use crate::hold;
use anyhow::{Context as _, ensure};
use polder_datapath::queue::CodelOptions;
use polder_datapath::steer::{Order, Thresholds};
use polder_datapath::units::Nanos;
use polder_testbed::interrupt;
use polder_testbed::meters::density::Density;
use polder_testbed::meters::sequence::{Arrivals, SequenceMeter, ratio};
use std::time::Duration;

pub(super) const HELD: &str = "order.reordered.held_worker";
pub(super) const LATE: &str = "order.late_dropped.held_worker";
pub(super) const WITHOUT: &str = "order.reordered_without_restoration";

/// Packets a second that come in, in batches: nearly all that one worker does, so that the other one takes
/// its part.
const PACE: u64 = 900_000;
/// Packets a second where one worker is alone and its meter remembers each of them.
const CALM: u64 = 150_000;
/// Work a packet, in nanoseconds.
const COST: u32 = 1000;
/// Faults that are made on purpose, to see that the meter sees them.
const INJECTED: u64 = 17;
/// Per cent of the packets that CoDel is to drop, and their rows.
const SHARES: [(u64, &str); 4] = [
    (0, "order.reordered.codel_0"),
    (1, "order.reordered.codel_1"),
    (10, "order.reordered.codel_10"),
    (50, "order.reordered.codel_50"),
];
/// Fast enough for a second to be long and for half of the packets to be dropped soon: what is dropped does not slow its sender down, so CoDel has to
/// find the share by itself.
const CODEL: CodelOptions =
    CodelOptions { target: Nanos(50_000), interval: Nanos(200_000), longest_packet: 64 };
/// Time for which a worker is held.
const HOLD: Duration = Duration::from_millis(100);

/// Marks by which each bucket is spread at one look and hashed at the next.
const RESTLESS: Thresholds = Thresholds {
    interval: Nanos::from_millis(1),
    over: 0,
    pressed: 0,
    under: 1001,
    big: 0,
    small: 1001,
    spread_after: 1,
    hash_after: 1,
};

/// All rows about keeping.
pub(super) fn measure(run: &mut Run, link: f64) -> anyhow::Result<()> {
    let links = work::links(COST, link);
    let time = run.quick_or(Duration::from_millis(1500), Duration::from_secs(6));
    for (share, row) in SHARES {
        run.says(&format!("CoDel drops {share} %"));
        under_codel(run, row, share, links, time)?;
    }
    run.says("a worker is held");
    held(run, links)?;
    run.says("without reordering");
    without_restoration(run, links, time)
}

/// Two flows with different homes, whose buckets change mode all the time.
fn restless(links: u32) -> Plan {
    Plan {
        order: Order::Auto,
        thresholds: RESTLESS,
        flows: vec![1, 0],
        pace: Some(PACE),
        one_ledger: true,
        ..Plan::one_flow(2, links)
    }
}

fn go(plan: &Plan, time: Duration, prepare: impl FnOnce(&mut Ledger)) -> anyhow::Result<(Left, Ledger)> {
    let harness = Harness::start(plan, prepare)?;
    harness.open(true);
    interrupt::sleep(time)?;
    harness.stop()
}

fn reordered(ledger: &Ledger) -> u64 {
    ledger.flows.iter().map(|flow| flow.reordered).sum()
}

#[expect(clippy::cast_precision_loss, reason = "a count needs no more than 52 bits")]
fn count(packets: u64) -> f64 {
    packets as f64
}

fn under_codel(run: &mut Run, row: &str, share: u64, links: u32, time: Duration) -> anyhow::Result<()> {
    let packets_per_second = if share == 0 { 4 * PACE } else { PACE * (100 - share) / 100 };
    let plan = Plan { link: Some(Link { packets_per_second, codel: CODEL }), ..restless(links) };
    let (left, ledger) = go(&plan, time, |_| {})?;
    let sent = left.sent.iter().sum::<u64>();
    ensure!(left.changes > 10 && left.tickets > 10, "buckets did not change their mode: {left:?}");
    run.record_one(row, count(reordered(&ledger)));
    let (codel, full) = ledger.dropped;
    run.remark(
        row,
        format!(
            "{:.1} % of {sent} packets dropped by CoDel, {full} because its queue was full; {} changes of mode, \
             {} of {} work_batches done by the other worker",
            100.0 * ratio(codel, sent),
            left.changes,
            left.helped,
            left.tickets
        ),
    );
    Ok(())
}

/// Worker 1 is held again and again: it is home to the first flow, and helps with the second.
fn held(run: &mut Run, links: u32) -> anyhow::Result<()> {
    let times = run.quick_or(10, 40);
    // All the time spread, so that it is likely that it is held with a work batch in its hands.
    let plan = Plan { order: Order::Spread, pace: None, one_ledger: false, ..restless(links) };
    let harness = Harness::start(&plan, |_| {})?;
    harness.open(true);
    let held = hold::have_held(harness.ids[1], times, HOLD, Duration::from_millis(53));
    if run.or_skip(&[HELD, LATE], held)?.is_none() {
        return Ok(());
    }
    let (left, ledger) = harness.stop()?;
    run.record_one(HELD, count(reordered(&ledger)));
    run.record_one(LATE, count(left.late));
    let [home, other] = [&ledger.flows[0], &ledger.flows[1]].map(|flow| flow.longest_gap / 1_000_000);
    run.remark(
        HELD,
        format!(
            "held {times} times for {} ms; {} packets dropped early while its own bucket stood still",
            HOLD.as_millis(),
            left.no_core
        ),
    );
    run.remark(
        LATE,
        format!(
            "{} tickets given up; the longest silence of its own bucket {home} ms, of the other one {other} ms",
            left.expired
        ),
    );
    Ok(())
}

/// The negative controls: swaps that are made are counted, and spreading alone reorders.
fn without_restoration(run: &mut Run, links: u32, time: Duration) -> anyhow::Result<()> {
    let plan = Plan { order: Order::Queue, flows: vec![0], pace: Some(CALM), ..Plan::one_flow(1, links) };
    let prepare = |ledger: &mut Ledger| {
        ledger.meter = Some(SequenceMeter::new(1 << 20));
        ledger.swaps = (0..INJECTED).map(|swap| 1000 + 130 * swap).collect();
    };
    let (left, ledger) = go(&plan, time, prepare)?;
    let injected = arrivals(&ledger, left.sent[0])?;
    if injected.reordered != INJECTED || !ledger.swaps.is_empty() {
        run.missing(WITHOUT, format!("the meter is wrong: {INJECTED} swaps are {injected:?}"));
        return Ok(());
    }
    let plan = Plan { reordering: false, one_ledger: true, ..Plan::one_flow(2, links) };
    let prepare = |ledger: &mut Ledger| {
        ledger.meter = Some(SequenceMeter::new(1 << 24));
        ledger.arrivals.reserve_exact(1 << 20);
    };
    let (left, ledger) = go(&plan, time, prepare)?;
    let seen = arrivals(&ledger, left.sent[0])?;
    let density = Density::of(&ledger.arrivals);
    let (early, late) = density.range();
    run.record_one(WITHOUT, count(seen.reordered));
    run.remark(
        WITHOUT,
        format!(
            "RFC 4737: {:.2} % of {}, extent up to {}; RFC 5236: {:.1} % in their place, the others {early} to {late} \
             away; {INJECTED} swaps made on purpose were counted as {INJECTED}",
            100.0 * seen.reordered_ratio(),
            seen.received,
            seen.largest_extent,
            100.0 * density.in_place()
        ),
    );
    Ok(())
}

fn arrivals(ledger: &Ledger, sent: u64) -> anyhow::Result<Arrivals> {
    let meter = ledger.meter.as_ref().context("there is a meter")?;
    Ok(meter.finish(sent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_testbed::machine;

    #[test]
    fn seventeen_swaps_are_seventeen() {
        let plan = Plan { order: Order::Queue, flows: vec![0], ..Plan::one_flow(1, 0) };
        let (left, ledger) = go(&plan, Duration::from_millis(200), |ledger| {
            ledger.meter = Some(SequenceMeter::new(1 << 20));
            ledger.swaps = (0..INJECTED).map(|swap| 1000 + 130 * swap).collect();
        })
        .unwrap();
        assert_eq!(arrivals(&ledger, left.sent[0]).unwrap().reordered, INJECTED);
        assert_eq!(reordered(&ledger), INJECTED, "the cheap meter says the same");
    }

    #[test]
    fn a_slow_link_drops_and_keeps_the_order() {
        if machine::cores() < 2 {
            eprintln!("SKIPPED: two workers take two cores");
            return;
        }
        let link = Link { packets_per_second: PACE / 2, codel: CODEL };
        let plan = Plan { link: Some(link), ..restless(0) };
        let (left, ledger) = go(&plan, Duration::from_millis(300), |_| {}).unwrap();
        assert_eq!(reordered(&ledger), 0);
        assert!(ledger.dropped.0 + ledger.dropped.1 > 100, "{:?}", ledger.dropped);
        assert!(left.changes > 10, "{left:?}");
    }
}
