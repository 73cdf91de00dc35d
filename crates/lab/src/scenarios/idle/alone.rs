//! Packets that come alone, bursts after silence, and silence itself.
//!
//! All columns are set up first, and columns that a packet per millisecond wakes take turns: what slows the machine
//! down for a while slows down all of them, and does not make one column's 99th percentile.

use super::super::testbed::{Setup, Testbed};
use super::super::turns::{Sheet, in_turn};
use super::{COLUMNS, Column, FIRST_BURST_LOST, Points, Run};
use polder_testbed::clock;
use polder_testbed::interrupt;
use polder_testbed::meters::stream::Outcome;
use polder_testbed::traffic::raw::{Faults, Plan};
use std::time::Duration;

/// Bursts that fit the ring of the wire, which holds 256.
const BURSTS: [u32; 2] = [64, 256];
/// A burst that does not.
const LONG_BURST: u32 = 1024;
/// All that is measured here.
const KINDS: [&str; 4] = ["wake_1ms", "wake_1s", "cpu_percent", "first_burst"];

/// A column that has been laid.
struct Ready {
    column: Column,
    testbed: Testbed,
    /// Error of a failed round.
    failed: Option<anyhow::Error>,
}

/// Fills these rows of all columns. Answers how many packets their books miss.
pub(super) fn measure(run: &mut Run, points: &mut Points) -> anyhow::Result<u64> {
    let mut ready = lay(run)?;
    let sheet = rounds(run, &mut ready)?;
    record(run, &ready, &sheet, points);
    let mut unaccounted = 0;
    for Ready { column, mut testbed, failed, .. } in ready {
        let result = match failed {
            Some(error) => Err(error),
            None => others(run, column, &mut testbed),
        };
        unaccounted += column.or_skip(run, &KINDS, result)?.unwrap_or(0);
    }
    Ok(unaccounted)
}

/// Sets up all columns with wanted rows; a quick run omits columns with moderation.
fn lay(run: &mut Run) -> anyhow::Result<Vec<Ready>> {
    let mut ready = Vec::new();
    for column in COLUMNS {
        if !column.is_wanted(run, &KINDS) || column.moderation_us > 0 && run.is_quick() {
            continue;
        }
        run.says(column.name);
        // What wakes the sink is none of the device's latency, so nothing is moderated there.
        let setup = Setup { sink_timer: 0, ..column.setup() };
        if let Some(testbed) = column.or_skip(run, &KINDS, Testbed::lay(setup))? {
            ready.push(Ready { column, testbed, failed: None });
        }
    }
    Ok(ready)
}

/// Percentiles of the latency of packets that arrive one by one, one per millisecond.
const WAKES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

fn wake_row(kind: &str, peer: &str, moderation_us: u16) -> String {
    format!("idle.wake_1ms.{kind}_us.{peer}.moderation_{moderation_us}us")
}

/// Measures it in rounds.
fn rounds(run: &Run, ready: &mut [Ready]) -> anyhow::Result<Sheet> {
    let (rounds, time) = run.quick_or((6, 300), (15, 1000));
    let plan = Plan::steady(1000.0, Duration::from_millis(time));
    let name = |ready: &Ready| format!("{}, one packet a millisecond", ready.column.name);
    in_turn(run, rounds, ready, name, |Ready { column, testbed, failed }, sheet| {
        if failed.is_some() || !column.is_wanted(run, &["wake_1ms"]) {
            return Ok(());
        }
        match testbed.metered(&plan) {
            Ok((_, Outcome { latency, .. })) => WAKES.iter().for_each(|&(kind, quantile)| {
                let row = wake_row(kind, column.peer, column.moderation_us);
                sheet.push(row, micros(latency.value_at_quantile(quantile)));
            }),
            Err(error) => {
                interrupt::check()?;
                *failed = Some(error);
            }
        }
        Ok(())
    })
}

/// Fills the rows of columns that have not failed, and says how far Polder was from the kernel in each round.
fn record(run: &mut Run, ready: &[Ready], sheet: &Sheet, points: &mut Points) {
    let good = ready.iter().filter(|ready| ready.failed.is_none());
    for (&Column { peer, moderation_us, .. }, (kind, _)) in
        good.flat_map(|ready| WAKES.map(|kind| (&ready.column, kind)))
    {
        let row = wake_row(kind, peer, moderation_us);
        let samples = sheet.samples(&row);
        let Some(median) = samples.median() else { continue };
        run.record(&row, &samples);
        if peer != "polder" {
            continue;
        }
        let line = points.latency.entry(format!("polder {kind}")).or_default();
        line.push((f64::from(moderation_us), median));
        let pairs = samples.minus(&sheet.samples(&wake_row(kind, "kernel", 0)));
        if let Some((more, (low, high))) = pairs.and_then(|pairs| pairs.median().zip(pairs.interval())) {
            let text =
                format!("{more:+.1} µs beside the kernel in the same round, 95 %: {low:+.1} to {high:+.1}");
            run.remark(&row, text);
        }
    }
}

/// Measures one column after the other. Returns the number of packets that its counters do not
/// account for.
fn others(run: &mut Run, column: Column, testbed: &mut Testbed) -> anyhow::Result<u64> {
    let moderated = column.moderation_us > 0;
    if !moderated && column.is_wanted(run, &["cpu_percent"]) {
        silence(run, column.peer, testbed)?;
    }
    if column.is_wanted(run, &["wake_1s"]) {
        each_second(run, column, testbed)?;
    }
    if !moderated && column.is_wanted(run, &["first_burst"]) {
        first_bursts(run, column.peer, testbed)?;
    }
    Ok(testbed.unaccounted()?.map_or(0, i64::unsigned_abs))
}

/// CPU time while nothing comes.
fn silence(run: &mut Run, name: &str, testbed: &mut Testbed) -> anyhow::Result<()> {
    run.says(&format!("{name}, nothing comes"));
    let time = Duration::from_secs(run.quick_or(1, 10));
    let percent = testbed.idle(|| {
        let start = clock::now();
        interrupt::sleep(time)?;
        Ok(clock::now() - start)
    })?;
    run.record_one(&format!("idle.cpu_percent.{name}"), percent);
    Ok(())
}

/// Latency of packets that come alone, once a second.
fn each_second(run: &mut Run, column: Column, testbed: &mut Testbed) -> anyhow::Result<()> {
    run.says(&format!("{}, one packet a second", column.name));
    let packets = run.quick_or(3, 20);
    let (_, Outcome { latency, .. }) = testbed.metered(&Plan::steady(1.0, Duration::from_secs(packets)))?;
    let name = column.each_second();
    run.record_one(&format!("idle.wake_1s.p50_us.{name}"), micros(latency.value_at_quantile(0.5)));
    run.record_one(&format!("idle.wake_1s.max_us.{name}"), micros(latency.max()));
    run.remark(&format!("idle.wake_1s.max_us.{name}"), format!("of {packets} packets"));
    Ok(())
}

/// Measures the loss of bursts after a second of silence.
#[expect(clippy::cast_precision_loss, reason = "a count of packets is far below 2^52")]
fn first_bursts(run: &mut Run, name: &str, testbed: &mut Testbed) -> anyhow::Result<()> {
    if name == "testpmd" {
        return Ok(());
    }
    let mut lost_of = |burst: u32| -> anyhow::Result<(u64, u64)> {
        run.says(&format!("{name}, bursts of {burst} after a second of silence"));
        let seconds = run.quick_or(2, 5);
        let time = Duration::from_secs(seconds);
        let plan = Plan { rate: f64::from(burst), burst, time, faults: Faults::default() };
        let (_, Outcome { arrivals, .. }) = testbed.metered(&plan)?;
        Ok((arrivals.lost, arrivals.sent))
    };
    let (long_lost, long_sent) = lost_of(LONG_BURST)?;
    if name == "polder" {
        let (mut lost, mut text) = (0, Vec::new());
        for burst in BURSTS {
            let (more, sent) = lost_of(burst)?;
            lost += more;
            text.push(format!("{more} of {sent} in bursts of {burst}"));
        }
        run.record_one(FIRST_BURST_LOST, lost as f64);
        run.remark(FIRST_BURST_LOST, text.join(", "));
    }
    let row = format!("idle.first_burst_1024_lost.{name}");
    run.record_one(&row, long_lost as f64);
    run.remark(&row, format!("of {long_sent}; the wire holds 256"));
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}
