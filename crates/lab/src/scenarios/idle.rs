//! `idle`: what a forwarder costs when little or nothing comes, and how fast it wakes.
//!
//! The kernel and Polder receive in the NAPI thread of the input, on the device's core; testpmd polls on
//! that core whether or not anything comes.

use super::stand::{Contender, Setup, Stand};
use super::{Goal, Promise, Run, Scenario};
use crate::clock;
use crate::interrupt;
use crate::meters::stream::Outcome;
use crate::peers::Task;
use crate::peers::kernel::Napi;
use crate::report::{Better, Curve};
use crate::traffic::raw::{Faults, Plan};
use std::collections::BTreeMap;
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "idle",
    about: "CPU time with nothing or little to do, wake-up latency, and the first burst after silence",
    needs_root: true,
    promises: PROMISES,
    measure,
};

const FIRST_BURST_LOST: &str = "idle.first_burst_lost";
const UNACCOUNTED: &str = "idle.unaccounted_packets";

const fn row(name: &'static str, unit: &'static str, goal: Goal) -> Promise {
    Promise { name, unit, better: Better::Lower, goal }
}

const KERNEL_WAKE: &str = "idle.wake_1ms.p99_us.kernel.moderation_0us";

const PROMISES: &[Promise] = &[
    row("idle.cpu_percent.kernel", "%", Goal::None),
    row("idle.cpu_percent.testpmd", "%", Goal::None),
    row("idle.cpu_percent.polder", "%", Goal::Value(0.5)),
    row("idle.cpu_at_10_percent.ratio_vs_proportional.moderation_0us", "", Goal::None),
    row("idle.cpu_at_10_percent.ratio_vs_proportional.moderation_50us", "", Goal::None),
    row("idle.cpu_at_10_percent.ratio_vs_proportional.moderation_200us", "", Goal::Value(1.2)),
    row("idle.cpu_at_10_percent.ratio_vs_proportional.kernel", "", Goal::None),
    row("idle.wake_1ms.p50_us.kernel.moderation_0us", "µs", Goal::None),
    row("idle.wake_1ms.p50_us.testpmd.moderation_0us", "µs", Goal::None),
    row("idle.wake_1ms.p50_us.polder.moderation_0us", "µs", Goal::None),
    row(KERNEL_WAKE, "µs", Goal::None),
    row("idle.wake_1ms.p99_us.testpmd.moderation_0us", "µs", Goal::None),
    row("idle.wake_1ms.p99_us.polder.moderation_0us", "µs", Goal::Row(KERNEL_WAKE)),
    row("idle.wake_1ms.p99_us.polder.moderation_50us", "µs", Goal::None),
    row("idle.wake_1ms.p99_us.polder.moderation_200us", "µs", Goal::None),
    row("idle.wake_1s.p50_us.kernel", "µs", Goal::None),
    row("idle.wake_1s.p50_us.testpmd", "µs", Goal::None),
    row("idle.wake_1s.p50_us.polder", "µs", Goal::None),
    row("idle.wake_1s.max_us.kernel", "µs", Goal::None),
    row("idle.wake_1s.max_us.testpmd", "µs", Goal::None),
    row("idle.wake_1s.max_us.polder", "µs", Goal::None),
    row(FIRST_BURST_LOST, "packets", Goal::Value(0.0)),
    row("idle.first_burst_1024_lost.kernel", "packets", Goal::None),
    row("idle.first_burst_1024_lost.polder", "packets", Goal::None),
    row(UNACCOUNTED, "packets", Goal::Value(0.0)),
];

const CONTENDERS: [(&str, Contender); 3] = [
    ("kernel", Contender::Kernel(Napi::Threaded)),
    ("testpmd", Contender::Testpmd),
    ("polder", Contender::Polder),
];

const FRAME_BYTES: usize = 64;
/// Bursts that fit the ring of the wire, which holds 256.
const BURSTS: [u32; 2] = [64, 256];
/// A burst that does not.
const LONG_BURST: u32 = 1024;
/// Packets a second that no device here can carry; what comes out then is its capacity.
const OVERLOAD: f64 = 2_500_000.0;
/// Parts of the capacity at which the cost is taken, in percent.
const LOADS: [f64; 3] = [1.0, 10.0, 50.0];

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let mut unaccounted = 0;
    for (name, contender) in CONTENDERS {
        run.says(name);
        // What wakes the sink is none of the device's latency, so nothing is moderated there.
        let setup = Setup { sink_timer: 0, ..Setup::new(contender, Task::Bridge, FRAME_BYTES, 1) };
        let mut stand = match Stand::lay(setup) {
            Ok(stand) => stand,
            Err(error) => {
                let rows = PROMISES.iter().map(|promise| promise.name);
                let rows: Vec<_> = rows.filter(|row| row.split('.').any(|word| word == name)).collect();
                run.skip(&rows, &format!("{error:#}"));
                continue;
            }
        };
        silence(run, name, &mut stand)?;
        wake(run, name, &mut stand, 0)?;
        first_bursts(run, name, &mut stand)?;
        unaccounted += stand.unaccounted()?.map_or(0, i64::unsigned_abs);
    }
    let mut lines = BTreeMap::new();
    for (name, contender, moderation_us) in [
        ("moderation_200us", Contender::Polder, 200),
        ("moderation_0us", Contender::Polder, 0),
        ("kernel", Contender::Kernel(Napi::Threaded), 0),
        ("moderation_50us", Contender::Polder, 50),
    ] {
        if run.is_out_of_time() {
            run.leave_out(format!("CPU against load: {name}"));
            continue;
        }
        let setup = Setup { moderation_us, ..Setup::new(contender, Task::Bridge, FRAME_BYTES, 1) };
        let mut stand = Stand::lay(setup)?;
        lines.insert(name.to_owned(), load(run, name, &mut stand)?);
        if moderation_us > 0 {
            let setup = Setup { sink_timer: 0, ..setup };
            wake(run, "polder", &mut Stand::lay(setup)?, moderation_us)?;
        }
        unaccounted += stand.unaccounted()?.map_or(0, i64::unsigned_abs);
    }
    run.curve(Curve {
        title: "CPU time of the device against load".to_owned(),
        x: "percent of the capacity".to_owned(),
        y: "percent of a core".to_owned(),
        lines,
    });
    #[expect(clippy::cast_precision_loss, reason = "a count of packets is far below 2^52")]
    run.record_one(UNACCOUNTED, unaccounted as f64);
    Ok(())
}

/// CPU time while nothing comes.
fn silence(run: &mut Run, name: &str, stand: &mut Stand) -> anyhow::Result<()> {
    run.says(&format!("{name}, nothing comes"));
    let time = Duration::from_secs(run.quick_or(1, 10));
    let percent = stand.idle(|| {
        let start = clock::now();
        interrupt::sleep(time)?;
        Ok(clock::now() - start)
    })?;
    run.record_one(&format!("idle.cpu_percent.{name}"), percent);
    Ok(())
}

/// Latency of packets that come alone.
fn wake(run: &mut Run, name: &str, stand: &mut Stand, moderation_us: u16) -> anyhow::Result<()> {
    run.says(&format!("{name}, one packet a millisecond"));
    let time = Duration::from_secs(run.quick_or(1, 10));
    let (_, Outcome { latency, .. }) = stand.metered(&Plan::steady(1000.0, time))?;
    let row = |kind: &str| format!("idle.wake_1ms.{kind}.{name}.moderation_{moderation_us}us");
    run.record_one(&row("p99_us"), micros(latency.value_at_quantile(0.99)));
    if moderation_us > 0 {
        return Ok(());
    }
    run.record_one(&row("p50_us"), micros(latency.value_at_quantile(0.5)));
    run.says(&format!("{name}, one packet a second"));
    let packets = run.quick_or(3, 20);
    let (_, Outcome { latency, .. }) = stand.metered(&Plan::steady(1.0, Duration::from_secs(packets)))?;
    run.record_one(&format!("idle.wake_1s.p50_us.{name}"), micros(latency.value_at_quantile(0.5)));
    run.record_one(&format!("idle.wake_1s.max_us.{name}"), micros(latency.max()));
    run.remark(&format!("idle.wake_1s.max_us.{name}"), format!("of {packets} packets"));
    Ok(())
}

/// What is lost of bursts after a second of silence.
#[expect(clippy::cast_precision_loss, reason = "a count of packets is far below 2^52")]
fn first_bursts(run: &mut Run, name: &str, stand: &mut Stand) -> anyhow::Result<()> {
    if name == "testpmd" {
        return Ok(());
    }
    let mut lost_of = |burst: u32| -> anyhow::Result<(u64, u64)> {
        run.says(&format!("{name}, bursts of {burst} after a second of silence"));
        let seconds = run.quick_or(2, 5);
        let time = Duration::from_secs(seconds);
        let plan = Plan { rate: f64::from(burst), burst, time, faults: Faults::default() };
        let (_, Outcome { arrivals, .. }) = stand.metered(&plan)?;
        Ok((arrivals.lost, arrivals.sent))
    };
    let (long_lost, long_sent) = lost_of(LONG_BURST)?;
    let (mut lost, mut sent) = (0, 0);
    if name == "polder" {
        for burst in BURSTS {
            let (more_lost, more_sent) = lost_of(burst)?;
            lost += more_lost;
            sent += more_sent;
        }
        run.record_one(FIRST_BURST_LOST, lost as f64);
        run.remark(FIRST_BURST_LOST, format!("of {sent}, in bursts of 64 and 256"));
    }
    let row = format!("idle.first_burst_1024_lost.{name}");
    run.record_one(&row, long_lost as f64);
    run.remark(&row, format!("of {long_sent}; the wire holds 256"));
    Ok(())
}

/// Percent of a core at parts of the capacity.
fn load(run: &mut Run, name: &str, stand: &mut Stand) -> anyhow::Result<Vec<(f64, f64)>> {
    run.says(&format!("{name}, capacity"));
    let time = Duration::from_millis(run.quick_or(300, 1000));
    let mut points = Vec::new();
    let percent =
        |trial: super::stand::Trial| trial.device.as_secs_f64() / trial.sent.time.as_secs_f64() * 100.0;
    let trial = stand.run(&Plan::steady(OVERLOAD, time * 2))?;
    let (capacity, full) = (trial.rate(), percent(trial));
    for load in LOADS {
        run.says(&format!("{name}, {load} % of the capacity"));
        let used = percent(stand.run(&Plan::steady(capacity * load / 100.0, time * 2))?);
        points.push((load, used));
        #[expect(clippy::float_cmp, reason = "one of three constants")]
        if load == 10.0 {
            let row = format!("idle.cpu_at_10_percent.ratio_vs_proportional.{name}");
            run.record_one(&row, used / (full * 0.1));
            let text = format!(
                "{used:.1} % of a core at {:.0} packets/s, {full:.0} % at {capacity:.0}",
                capacity / 10.0
            );
            run.remark(&row, text);
        }
    }
    points.push((100.0, full));
    Ok(points)
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}
