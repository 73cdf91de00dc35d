//! `overload`: how much of a service is left when far more is asked for than can be answered.
//!
//! A UDP echo, or NFS, whose requests cost something answers on one core: over the kernel's sockets, received in
//! softirq or in a NAPI thread, and behind Polder's ports with balance and without. All threads of the
//! core are ordinary ones. Offered is what the generator's interface took.

mod beside;
mod budgets;
mod files;
mod loads;

use super::stand::{Contender, Setup, Stand, Trial};
use super::{Goal, Promise, Run, Scenario};
use crate::peers::Task;
use crate::peers::asks::Asks;
use crate::peers::echo::{Over, Service};
use crate::report::{Better, Curve};
use std::collections::BTreeMap;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "overload",
    about: "UDP echo and NFS far beyond their capacity: what is still answered, and how late, beside kernel sockets",
    needs_root: true,
    promises: PROMISES,
    measure,
};

const fn row(name: &'static str, unit: &'static str, better: Better, goal: Goal) -> Promise {
    Promise { name, unit, better, goal }
}

const KERNEL_P50: &str = "overload.udp_echo.p50_far_us.kernel_threaded";
const UNACCOUNTED: &str = "overload.unaccounted_packets";
const BUDGET: &str = "budget.auto.worst_ratio_vs_best_fixed";

const PROMISES: &[Promise] = &[
    row("overload.udp_echo.goodput_far_over_peak.kernel_softirq", "", Better::Higher, Goal::None),
    row("overload.udp_echo.goodput_far_over_peak.kernel_threaded", "", Better::Higher, Goal::None),
    row("overload.udp_echo.goodput_far_over_peak.off", "", Better::Higher, Goal::None),
    row("overload.udp_echo.goodput_far_over_peak.on", "", Better::Higher, Goal::Value(0.97)),
    row("overload.udp_echo.offered_over_capacity", "", Better::Higher, Goal::Value(10.0)),
    row("overload.udp_echo.p50_far_us.kernel_softirq", "µs", Better::Lower, Goal::None),
    row(KERNEL_P50, "µs", Better::Lower, Goal::None),
    row("overload.udp_echo.p50_far_us.off", "µs", Better::Lower, Goal::None),
    row("overload.udp_echo.p50_far_us.on", "µs", Better::Lower, Goal::Row(KERNEL_P50)),
    row("overload.nfs_getattr.goodput_far_over_peak.kernel_softirq", "", Better::Higher, Goal::None),
    row("overload.nfs_getattr.goodput_far_over_peak.kernel_threaded", "", Better::Higher, Goal::None),
    row("overload.nfs_getattr.goodput_far_over_peak.off", "", Better::Higher, Goal::None),
    row("overload.nfs_getattr.goodput_far_over_peak.on", "", Better::Higher, Goal::Value(0.97)),
    row("overload.nfs_getattr.offered_over_capacity", "", Better::Higher, Goal::Value(10.0)),
    row("overload.nfs_getattr.p50_far_us.kernel_softirq", "µs", Better::Lower, Goal::None),
    row("overload.nfs_getattr.p50_far_us.kernel_threaded", "µs", Better::Lower, Goal::None),
    row("overload.nfs_getattr.p50_far_us.off", "µs", Better::Lower, Goal::None),
    row(
        "overload.nfs_getattr.p50_far_us.on",
        "µs",
        Better::Lower,
        Goal::Row("overload.nfs_getattr.p50_far_us.kernel_threaded"),
    ),
    row("overload.nfs_read.goodput_far_over_peak.kernel_softirq", "", Better::Higher, Goal::None),
    row("overload.nfs_read.goodput_far_over_peak.kernel_threaded", "", Better::Higher, Goal::None),
    row("overload.nfs_read.goodput_far_over_peak.off", "", Better::Higher, Goal::None),
    row("overload.nfs_read.goodput_far_over_peak.on", "", Better::Higher, Goal::Value(0.97)),
    row("overload.nfs_read.offered_over_capacity", "", Better::Higher, Goal::Value(10.0)),
    row("overload.nfs_read.p50_far_us.kernel_softirq", "µs", Better::Lower, Goal::None),
    row("overload.nfs_read.p50_far_us.kernel_threaded", "µs", Better::Lower, Goal::None),
    row("overload.nfs_read.p50_far_us.off", "µs", Better::Lower, Goal::None),
    row(
        "overload.nfs_read.p50_far_us.on",
        "µs",
        Better::Lower,
        Goal::Row("overload.nfs_read.p50_far_us.kernel_threaded"),
    ),
    row(beside::SHARE, "points", Better::Lower, Goal::Value(5.0)),
    row(beside::WAKE, "µs", Better::Lower, Goal::Value(2000.0)),
    row(BUDGET, "", Better::Higher, Goal::Value(0.97)),
    row(UNACCOUNTED, "packets", Better::Lower, Goal::Value(0.0)),
];

/// Polder with a core to itself.
const fn polder(balance: bool, budget: Option<u16>) -> Over {
    Over::Polder { balance, budget, share: 100 }
}

const COLUMNS: [(&str, Over); 4] = [
    ("on", polder(true, None)),
    ("kernel_threaded", Over::KernelThreaded),
    ("off", polder(false, None)),
    ("kernel_softirq", Over::KernelSoftirq),
];

/// The cost of a request that the rows are about, and the others, which have curves alone.
const COST_US: u32 = 10;
const COSTS_US: [u32; 3] = [COST_US, 2, 50];
/// Offered, as a multiple of what the service could answer if receiving cost what it costs the kernel.
const FACTORS: [f64; 7] = [0.5, 0.8, 1.0, 1.5, 2.5, 5.0, 10.0];
/// What receiving and sending a request costs about, in microseconds.
const RECEIVING_US: f64 = 2.0;
const FRAME_BYTES: usize = 64;
const FLOWS: u32 = 1;

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let mut unaccounted = 0;
    let (core, other) = super::stand::cores();
    run.place("service", core, "its thread, or Polder's worker, pinned; an ordinary thread");
    run.place("receive work", core, "NAPI thread of the input, pinned, or softirq (RPS); ordinary");
    run.place("generator and sink", other, "the sink's NAPI thread before all others, begun by a timer");
    let echo = |row: &&Promise| row.name.starts_with("overload.udp_echo.");
    let wanted = PROMISES.iter().filter(echo).any(|row| run.wants(row.name));
    for cost_us in COSTS_US.into_iter().filter(|_| wanted) {
        if cost_us != COST_US && run.is_quick() {
            run.leave_out(format!("requests of {cost_us} µs"));
            continue;
        }
        let mut lines = BTreeMap::new();
        for (name, over) in COLUMNS {
            let line =
                loads::column(run, name, Service { asks: Asks::Echo, over, cost_us }, &mut unaccounted)?;
            lines.insert(name.to_owned(), line);
        }
        run.curve(Curve {
            title: format!("requests of {cost_us} µs"),
            x: "offered, thousands a second".to_owned(),
            y: "answered, thousands a second".to_owned(),
            lines,
        });
    }
    files::measure(run, &mut unaccounted)?;
    if run.wants(beside::SHARE) || run.wants(beside::WAKE) {
        beside::measure(run, &mut unaccounted)?;
    }
    if run.wants(BUDGET) {
        budgets::measure(run, &mut unaccounted)?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of packets is far below 2^52")]
    run.record_one(UNACCOUNTED, unaccounted as f64);
    Ok(())
}

fn lay(service: Service) -> anyhow::Result<Stand> {
    Stand::lay(Setup::new(Contender::Echo(service), Task::Route, FRAME_BYTES, FLOWS))
}

/// Packets a second that the generator's interface took.
fn offered(trial: &Trial) -> f64 {
    crate::traffic::sockets::per_second(trial.sent.packets, trial.sent.time)
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

/// What the law of conservation misses once nothing moves: what still waits is answered after the run, and
/// books that are read meanwhile are of different moments.
fn books(stand: &mut Stand) -> anyhow::Result<u64> {
    let mut missed = 0;
    for _ in 0..LOOKS {
        let text = stand.says()?;
        let line = text.lines().find_map(|line| line.strip_prefix("unaccounted ")?.parse::<i64>().ok());
        missed = line.unwrap_or(0).unsigned_abs();
        if missed == 0 {
            break;
        }
        crate::interrupt::sleep(PAUSE)?;
    }
    Ok(missed)
}

/// How often books that do not balance are read again, and after how long.
const LOOKS: u32 = 20;
const PAUSE: core::time::Duration = core::time::Duration::from_millis(250);
