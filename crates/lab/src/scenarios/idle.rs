//! `idle`: what a forwarder costs when little or nothing comes, and how fast it wakes.
//!
//! The kernel and Polder receive in the NAPI thread of the input, on the device's core; testpmd polls on
//! that core whether or not anything comes.

use super::stand::{Contender, Setup, Stand, Trial};
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
const TESTPMD_IDLE: &str = "idle.cpu_percent.testpmd";

const PROMISES: &[Promise] = &[
    row("idle.cpu_percent.kernel", "%", Goal::None),
    row(TESTPMD_IDLE, "%", Goal::None),
    row("idle.cpu_percent.polder", "%", Goal::Value(0.5)),
    row("idle.cpu_at_10_percent.ratio_vs_proportional.moderation_0us", "", Goal::None),
    row("idle.cpu_at_10_percent.ratio_vs_proportional.moderation_50us", "", Goal::None),
    row("idle.cpu_at_10_percent.ratio_vs_proportional.moderation_200us", "", Goal::Value(1.2)),
    row("idle.cpu_at_10_percent.ratio_vs_proportional.kernel", "", Goal::None),
    row("idle.cpu_at_50_percent.ratio_vs_proportional.moderation_0us", "", Goal::None),
    row("idle.cpu_at_50_percent.ratio_vs_proportional.moderation_50us", "", Goal::None),
    row("idle.cpu_at_50_percent.ratio_vs_proportional.moderation_200us", "", Goal::Value(1.2)),
    row("idle.cpu_at_50_percent.ratio_vs_proportional.kernel", "", Goal::None),
    row("idle.wake_1ms.p50_us.kernel.moderation_0us", "µs", Goal::None),
    row("idle.wake_1ms.p50_us.testpmd.moderation_0us", "µs", Goal::None),
    row("idle.wake_1ms.p50_us.polder.moderation_0us", "µs", Goal::None),
    row("idle.wake_1ms.p50_us.polder.moderation_50us", "µs", Goal::None),
    row("idle.wake_1ms.p50_us.polder.moderation_200us", "µs", Goal::None),
    row(KERNEL_WAKE, "µs", Goal::None),
    row("idle.wake_1ms.p99_us.testpmd.moderation_0us", "µs", Goal::None),
    row("idle.wake_1ms.p99_us.polder.moderation_0us", "µs", Goal::Row(KERNEL_WAKE)),
    row("idle.wake_1ms.p99_us.polder.moderation_50us", "µs", Goal::None),
    row("idle.wake_1ms.p99_us.polder.moderation_200us", "µs", Goal::None),
    row("idle.wake_1s.p50_us.kernel", "µs", Goal::None),
    row("idle.wake_1s.p50_us.testpmd", "µs", Goal::None),
    row("idle.wake_1s.p50_us.polder", "µs", Goal::None),
    row("idle.wake_1s.p50_us.polder_moderation_50us", "µs", Goal::None),
    row("idle.wake_1s.p50_us.polder_moderation_200us", "µs", Goal::None),
    row("idle.wake_1s.max_us.kernel", "µs", Goal::None),
    row("idle.wake_1s.max_us.testpmd", "µs", Goal::None),
    row("idle.wake_1s.max_us.polder", "µs", Goal::None),
    row("idle.wake_1s.max_us.polder_moderation_50us", "µs", Goal::None),
    row("idle.wake_1s.max_us.polder_moderation_200us", "µs", Goal::None),
    row(FIRST_BURST_LOST, "packets", Goal::Value(0.0)),
    row("idle.first_burst_1024_lost.kernel", "packets", Goal::None),
    row("idle.first_burst_1024_lost.polder", "packets", Goal::None),
    row(UNACCOUNTED, "packets", Goal::Value(0.0)),
];

/// A device, and how it is moderated.
#[derive(Clone, Copy)]
struct Column {
    /// Its name in rows about who it is.
    peer: &'static str,
    /// Its name in pictures, and in rows about load.
    name: &'static str,
    contender: Contender,
    moderation_us: u16,
}

const fn column(peer: &'static str, name: &'static str, contender: Contender, moderation_us: u16) -> Column {
    Column { peer, name, contender, moderation_us }
}

/// The most important first: a quick run leaves out what is at the end.
const COLUMNS: [Column; 5] = [
    column("polder", "moderation_0us", Contender::Polder, 0),
    column("kernel", "kernel", Contender::Kernel(Napi::Threaded), 0),
    column("polder", "moderation_200us", Contender::Polder, 200),
    column("testpmd", "testpmd", Contender::Testpmd, 0),
    column("polder", "moderation_50us", Contender::Polder, 50),
];

const FRAME_BYTES: usize = 64;
/// Bursts that fit the ring of the wire, which holds 256.
const BURSTS: [u32; 2] = [64, 256];
/// A burst that does not.
const LONG_BURST: u32 = 1024;
/// Packets a second that no device here can carry; what comes out then is its capacity.
const OVERLOAD: f64 = 2_500_000.0;
/// Parts of the capacity at which the cost is taken, in percent.
const LOADS: [u32; 3] = [1, 10, 50];

/// Points for the pictures.
#[derive(Default)]
struct Points {
    /// CPU time against load, by column.
    load: BTreeMap<String, Vec<(f64, f64)>>,
    /// Latency against moderation, by quantile.
    latency: BTreeMap<String, Vec<(f64, f64)>>,
    /// CPU time against moderation, by load.
    moderated: BTreeMap<String, Vec<(f64, f64)>>,
}

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let (mut unaccounted, mut points) = (0, Points::default());
    for column in COLUMNS {
        if run.is_out_of_time() {
            run.leave_out(format!("{}: all", column.name));
            continue;
        }
        run.says(column.name);
        if let Err(error) = all_of(run, column, &mut points, &mut unaccounted) {
            interrupt::check()?;
            let rows = PROMISES.iter().map(|promise| promise.name);
            let rows: Vec<_> = rows.filter(|row| row.split('.').any(|word| word == column.name)).collect();
            run.skip(&rows, &format!("{error:#}"));
        }
    }
    draw(run, points);
    #[expect(clippy::cast_precision_loss, reason = "a count of packets is far below 2^52")]
    run.record_one(UNACCOUNTED, unaccounted as f64);
    Ok(())
}

/// Everything about one device.
fn all_of(run: &mut Run, column: Column, points: &mut Points, unaccounted: &mut u64) -> anyhow::Result<()> {
    let moderated = column.moderation_us > 0;
    let setup = Setup {
        moderation_us: column.moderation_us,
        ..Setup::new(column.contender, Task::Bridge, FRAME_BYTES, 1)
    };
    let alone = wants_rows(run, column, &["wake_1ms", "wake_1s", "cpu_percent", "first_burst"]);
    if alone && !(moderated && run.is_quick()) {
        // What wakes the sink is none of the device's latency, so nothing is moderated there.
        let mut stand = Stand::lay(Setup { sink_timer: 0, ..setup })?;
        if !moderated && wants_rows(run, column, &["cpu_percent"]) {
            silence(run, column.peer, &mut stand)?;
        }
        wake(run, column, &mut stand, points)?;
        if !moderated && wants_rows(run, column, &["first_burst"]) {
            first_bursts(run, column.peer, &mut stand)?;
        }
        *unaccounted += stand.unaccounted()?.map_or(0, i64::unsigned_abs);
    }
    if wants_rows(run, column, &["cpu_at"])
        || column.contender == Contender::Testpmd && run.wants(TESTPMD_IDLE)
    {
        if run.is_out_of_time() {
            run.leave_out(format!("{}: CPU against load", column.name));
            return Ok(());
        }
        let mut stand = Stand::lay(setup)?;
        load(run, column, &mut stand, points)?;
        *unaccounted += stand.unaccounted()?.map_or(0, i64::unsigned_abs);
    }
    Ok(())
}

/// Whether a row of this column is wanted whose name begins with one of these.
fn wants_rows(run: &Run, column: Column, kinds: &[&str]) -> bool {
    PROMISES.iter().map(|promise| promise.name).any(|name| {
        let mut words = name.split('.').skip(1);
        let kind = words.next().unwrap_or_default();
        let own = words.any(|word| word == column.peer || word == column.name);
        // One row has no name of a device; it is Polder's.
        let own = own || name == FIRST_BURST_LOST && column.peer == "polder";
        own && kinds.iter().any(|begin| kind.starts_with(begin)) && run.wants(name)
    })
}

fn draw(run: &mut Run, points: Points) {
    for (title, x, y, lines) in [
        ("CPU time of the device against load", "percent of the capacity", "percent of a core", points.load),
        (
            "latency of packets that come alone, a thousand a second, against moderation",
            "moderation, µs",
            "latency, µs",
            points.latency,
        ),
        ("CPU time of Polder against moderation", "moderation, µs", "percent of a core", points.moderated),
    ] {
        let (title, x, y) = (title.to_owned(), x.to_owned(), y.to_owned());
        let sorted = |mut line: Vec<(f64, f64)>| {
            line.sort_by(|one, other| one.0.total_cmp(&other.0));
            line
        };
        let lines = lines.into_iter().map(|(name, line)| (name, sorted(line))).collect();
        run.curve(Curve { title, x, y, lines });
    }
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
fn wake(run: &mut Run, column: Column, stand: &mut Stand, points: &mut Points) -> anyhow::Result<()> {
    let Column { peer, moderation_us, .. } = column;
    if wants_rows(run, column, &["wake_1ms"]) {
        run.says(&format!("{}, one packet a millisecond", column.name));
        let time = Duration::from_secs(run.quick_or(1, 10));
        let (_, Outcome { latency, .. }) = stand.metered(&Plan::steady(1000.0, time))?;
        for (kind, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            let value = micros(latency.value_at_quantile(quantile));
            run.record_one(&format!("idle.wake_1ms.{kind}_us.{peer}.moderation_{moderation_us}us"), value);
            if peer == "polder" {
                let line = points.latency.entry(format!("polder {kind}")).or_default();
                line.push((f64::from(moderation_us), value));
            }
        }
    }
    if wants_rows(run, column, &["wake_1s"]) {
        run.says(&format!("{}, one packet a second", column.name));
        let packets = run.quick_or(3, 20);
        let (_, Outcome { latency, .. }) = stand.metered(&Plan::steady(1.0, Duration::from_secs(packets)))?;
        let name = if moderation_us > 0 { format!("{peer}_{}", column.name) } else { peer.to_owned() };
        run.record_one(&format!("idle.wake_1s.p50_us.{name}"), micros(latency.value_at_quantile(0.5)));
        run.record_one(&format!("idle.wake_1s.max_us.{name}"), micros(latency.max()));
        run.remark(&format!("idle.wake_1s.max_us.{name}"), format!("of {packets} packets"));
    }
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

/// Percent of a core at parts of the capacity.
fn load(run: &mut Run, column: Column, stand: &mut Stand, points: &mut Points) -> anyhow::Result<()> {
    let name = column.name;
    run.says(&format!("{name}, capacity"));
    let time = Duration::from_millis(run.quick_or(600, 2000));
    let percent = |trial: &Trial| trial.device.as_secs_f64() / trial.sent.time.as_secs_f64() * 100.0;
    let trial = stand.run(&Plan::steady(OVERLOAD, time))?;
    let (capacity, full) = (trial.rate(), percent(&trial));
    let nothing = stand.idle(|| {
        interrupt::sleep(time)?;
        Ok(time)
    })?;
    let line = points.load.entry(name.to_owned()).or_default();
    line.extend([(0.0, nothing), (100.0, full)]);
    for load in LOADS {
        run.says(&format!("{name}, {load} % of the capacity"));
        let part = f64::from(load) / 100.0;
        let used = percent(&stand.run(&Plan::steady(capacity * part, time))?);
        line.push((f64::from(load), used));
        if column.peer == "polder" {
            let moderated = points.moderated.entry(format!("{load} % of the capacity")).or_default();
            moderated.push((f64::from(column.moderation_us), used));
        }
        let row = format!("idle.cpu_at_{load}_percent.ratio_vs_proportional.{name}");
        if PROMISES.iter().any(|promise| promise.name == row) {
            run.record_one(&row, used / (full * part));
            let rate = capacity * part;
            let text = format!("{used:.1} % of a core at {rate:.0} packets/s, {full:.0} % at {capacity:.0}");
            run.remark(&row, text);
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}
