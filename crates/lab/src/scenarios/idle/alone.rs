//! Packets that come alone, bursts after silence, and silence itself.
//!
//! All columns are laid before, and those that a packet a millisecond wakes take turns: what slows the machine down for a while slows
//! down all of them, and does not make one column's 99th percentile.

use super::super::testbed::{Setup, Testbed};
use super::{COLUMNS, Column, FIRST_BURST_LOST, Points, Run};
use polder_testbed::clock;
use polder_testbed::interrupt;
use polder_testbed::meters::statistics::Samples;
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
    /// Medians and 99th percentiles of its rounds.
    wakes: [Samples; 2],
    /// Error of a failed round.
    failed: Option<anyhow::Error>,
}

/// Fills these rows of all columns. Answers how many packets their books miss.
pub(super) fn measure(run: &mut Run, points: &mut Points) -> anyhow::Result<u64> {
    let mut ready = lay(run)?;
    rounds(run, &mut ready)?;
    record(run, &mut ready, points)?;
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

/// Lays all columns with wanted rows; a quick run leaves out those that are moderated.
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
            ready.push(Ready { column, testbed, wakes: Default::default(), failed: None });
        }
    }
    Ok(ready)
}

/// Latency of packets that come alone, once a millisecond.
fn rounds(run: &Run, ready: &mut [Ready]) -> anyhow::Result<()> {
    let (rounds, time) = run.quick_or((6, 300), (15, 1000));
    let plan = Plan::steady(1000.0, Duration::from_millis(time));
    for round in 1..=rounds {
        run.says(&format!("one packet a millisecond, round {round} of {rounds}"));
        for Ready { column, testbed, wakes, failed } in &mut *ready {
            if failed.is_some() || !column.is_wanted(run, &["wake_1ms"]) {
                continue;
            }
            match testbed.metered(&plan) {
                Ok((_, Outcome { latency, .. })) => {
                    let values = [0.5, 0.99].map(|quantile| micros(latency.value_at_quantile(quantile)));
                    wakes.iter_mut().zip(values).for_each(|(samples, value)| samples.push(value));
                }
                Err(error) => {
                    interrupt::check()?;
                    *failed = Some(error);
                }
            }
        }
    }
    Ok(())
}

/// Fills the rows of those, and says how far Polder was from the kernel in each round.
fn record(run: &mut Run, ready: &mut [Ready], points: &mut Points) -> anyhow::Result<()> {
    let kernel = ready.iter().find(|ready| ready.column.peer == "kernel").map(|ready| ready.wakes.clone());
    for Ready { column: Column { peer, moderation_us, .. }, wakes, failed, .. } in ready {
        if failed.is_some() || wakes[0].count() == 0 {
            continue;
        }
        for (index, kind) in ["p50", "p99"].into_iter().enumerate() {
            let row = format!("idle.wake_1ms.{kind}_us.{peer}.moderation_{moderation_us}us");
            run.record(&row, &wakes[index]);
            if *peer != "polder" {
                continue;
            }
            let line = points.latency.entry(format!("polder {kind}")).or_default();
            line.extend(wakes[index].median().map(|value| (f64::from(*moderation_us), value)));
            let pairs = kernel.as_ref().and_then(|kernel| wakes[index].minus(&kernel[index]));
            if let Some((more, (low, high))) = pairs.and_then(|pairs| pairs.median().zip(pairs.interval())) {
                let text = format!(
                    "{more:+.1} µs beside the kernel in the same round, 95 %: {low:+.1} to {high:+.1}"
                );
                run.remark(&row, text);
            }
        }
    }
    Ok(())
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
