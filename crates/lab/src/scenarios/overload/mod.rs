//! `overload`: how much of a service is left when far more is asked for than can be answered.
//!
//! A UDP echo, or NFS, whose requests cost something answers on one core: over the kernel's sockets, received in
//! softirq or in a NAPI thread, and behind Polder's ports as they ship, with AF_XDP, and without balance. All threads of
//! the core are ordinary ones. Offered is what the generator's interface took.

mod beside;
mod budgets;
mod fairness;
mod forwarding;
mod loads;
mod rows;
pub(super) mod switched;

use super::testbed::{Contender, Setup, Testbed, Trial};
use super::{Run, Scenario};
use loads::{Column, middle};
use polder_testbed::peers::Task;
use polder_testbed::peers::asks::Asks;
use polder_testbed::peers::echo::{Over, Service, Settings};
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "overload",
    about: "UDP echo and NFS far beyond their capacity: what is still answered, and how late, beside kernel sockets",
    needs_root: true,
    rows: include_str!("../rows/overload.rows"),
    measure,
};

const UNACCOUNTED: &str = "overload.unaccounted_packets";
const BUDGET: &str = "budget.auto.worst_ratio_vs_best_fixed";

/// Receivers by column. The first one has its default configuration; the load of the others is a multiple of its
/// capacity.
const COLUMNS: [(&str, Over); 5] = [
    (SHIPPED, Over::Polder(Settings::DEFAULT)),
    (NATIVE, Over::Polder(Settings::NATIVE)),
    ("kernel_threaded", Over::KernelThreaded),
    ("off", Over::Polder(Settings { balance: false, ..Settings::DEFAULT })),
    ("kernel_softirq", Over::KernelSoftirq),
];
const SHIPPED: &str = "on";
/// The column of AF_XDP, which posts buffers.
const NATIVE: &str = "native";

/// Kinds of requests.
const ASKS: [Asks; 3] = [Asks::Echo, Asks::NfsGetattr, Asks::NfsRead];
/// The usual cost of a request, and all of them.
const COST_US: u32 = 10;
const COSTS_US: [u32; 3] = [COST_US, 2, 50];
/// Approximate cost of a request beyond that, in microseconds: receiving and sending an echo.
const RECEIVING_US: f64 = 1.5;
const FRAME_BYTES: usize = 64;
const FLOWS: u32 = 1;

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let mut unaccounted = 0;
    let (core, other) = super::testbed::cores();
    run.place("service", core, "its thread, or Polder's worker, pinned; an ordinary thread");
    let receiving =
        "NAPI thread of the input, pinned, or softirq (RPS); ordinary; of ports as they ship on the other";
    run.place("receive work", core, receiving);
    run.place("generator and sink", other, "the sink's NAPI thread before all others, begun by a timer");
    let [echo, nfs @ ..] = ASKS;
    requests(run, echo, &mut unaccounted)?;
    if (run.wants(beside::SHARE) || run.wants(beside::WAKE)) && has_time(run, "neighbours", 12) {
        beside::measure(run, &mut unaccounted)?;
    }
    if run.wants(fairness::LOST) && has_time(run, "fairness", 6) {
        fairness::measure(run, &mut unaccounted)?;
    }
    if run.wants(BUDGET) && has_time(run, "budgets", 8) {
        budgets::measure(run, &mut unaccounted)?;
    }
    for asks in nfs {
        requests(run, asks, &mut unaccounted)?;
    }
    forwarding::measure(run, &mut unaccounted)?;
    run.record_count(UNACCOUNTED, unaccounted);
    Ok(())
}

/// True if a quick run has time for this, which takes about `seconds` seconds; notes it when there is not.
fn has_time(run: &mut Run, what: &str, seconds: u64) -> bool {
    let has_time = run.has_left(Duration::from_secs(seconds));
    if !has_time {
        run.leave_out(what);
    }
    has_time
}

/// Measures one kind of request at every cost, with every way of receiving.
fn requests(run: &mut Run, asks: Asks, unaccounted: &mut u64) -> anyhow::Result<()> {
    for cost_us in COSTS_US {
        let prefix = rows::prefix(asks, cost_us);
        let is_wanted = |name: &str| rows::of_column(&prefix, name).iter().any(|row| run.wants(row));
        let wanted = COLUMNS.iter().filter(|(name, _)| is_wanted(name)).collect::<Vec<_>>();
        if wanted.is_empty() {
            continue;
        }
        if run.is_quick() && (cost_us != COST_US || run.is_out_of_time()) {
            run.leave_out(format!("{}, {cost_us} µs", asks.name()));
            continue;
        }
        run.says(&format!("{}, {cost_us} µs: starting", asks.name()));
        let column = |&&(name, over): &&(&'static str, Over)| {
            Ok(Column::new(name, lay(Service { asks, over, cost_us })?))
        };
        let mut columns = wanted.iter().map(column).collect::<anyhow::Result<Vec<_>>>()?;
        let Some(first) = columns.first_mut() else { continue };
        let capacity = first.capacity(run, &loads::beyond(cost_us))?;
        let title = format!("{}, and {cost_us} µs of work a request", asks.name());
        loads::compare(run, &title, &mut columns, capacity)?;
        for mut column in columns {
            record(run, &prefix, &mut column, capacity)?;
            *unaccounted += books(&mut column.testbed)?;
        }
    }
    Ok(())
}

/// The rows of a column: at the last load that was reached, and at the first.
fn record(run: &mut Run, prefix: &str, column: &mut Column, capacity: f64) -> anyhow::Result<()> {
    let said = column.testbed.says()?;
    let name = column.name;
    let seen = match column.seen() {
        Ok(seen) => seen,
        Err(reason) => {
            rows::of_column(prefix, name).iter().for_each(|row| run.missing(row, reason.clone()));
            return Ok(());
        }
    };
    let row = format!("{prefix}.goodput_far_over_peak.{name}");
    run.record(&row, &seen.goodput());
    run.remark(&row, seen.remark(capacity));
    for (row, load) in [("p50_far_us", seen.last), ("p50_low_us", seen.first)] {
        let row = format!("{prefix}.{row}.{name}");
        run.record(&row, &load.median);
        let slow = middle(&load.slow);
        run.remark(&row, format!("at {} times the capacity; 99th percentile {slow:.0} µs", load.factor));
    }
    if name == SHIPPED {
        let row = format!("{prefix}.offered_over_capacity");
        run.record(&row, &seen.excess());
        run.remark(&row, column.missed().unwrap_or_else(|| format!("{capacity:.0} requests/s")));
    }
    if name == NATIVE {
        posted(run, &format!("{prefix}.p50_far_over_posted.{name}"), seen.last, &said);
    }
    Ok(())
}

/// The median there, as a part of the time in which the service would answer all that Polder lets wait.
fn posted(run: &mut Run, row: &str, far: &loads::Load, said: &str) {
    let posted = said.lines().find_map(|line| line.strip_prefix("posted ")?.parse::<f64>().ok());
    let Some(posted) = posted.filter(|&posted| posted > 0.0) else {
        run.missing(row, "no queue was bound to what the service wanted");
        return;
    };
    let each = 1e6 / middle(&far.rate);
    run.record(row, &far.median.scaled(1.0 / (posted * each)));
    run.remark(row, format!("{posted:.0} buffers of {each:.1} µs each"));
}

fn lay(service: Service) -> anyhow::Result<Testbed> {
    Testbed::lay(Setup::new(Contender::Echo(service), Task::Route, FRAME_BYTES, FLOWS))
}

/// Packets a second that the generator's interface took.
fn offered(trial: &Trial) -> f64 {
    polder_testbed::traffic::sockets::per_second(trial.sent.packets, trial.sent.time)
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

/// Packets that the conservation law misses once nothing moves: queued requests are answered after the
/// run, and counters that are read meanwhile are of different moments.
fn books(testbed: &mut Testbed) -> anyhow::Result<u64> {
    settled(|| testbed.says())
}

/// Waits until the counters returned by `says` are stable.
fn settled(says: impl FnMut() -> anyhow::Result<String>) -> anyhow::Result<u64> {
    read(says, LOOKS, PAUSE)
}

fn read(
    mut says: impl FnMut() -> anyhow::Result<String>,
    looks: u32,
    pause: Duration,
) -> anyhow::Result<u64> {
    let mut missed = 0;
    for _ in 0..looks {
        let text = says()?;
        let line = text.lines().find_map(|line| line.strip_prefix("unaccounted ")?.parse::<i64>().ok());
        // Who has no ports keeps no books.
        missed = line.unwrap_or(0).unsigned_abs();
        if missed == 0 {
            break;
        }
        polder_testbed::interrupt::sleep(pause)?;
    }
    Ok(missed)
}

/// Maximum number of readings of counters that do not balance, and the pause between them.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seventeen_unaccounted_packets_are_seventeen_and_late_ones_none() {
        for (missed, left) in [(17_i64, 17), (-17, 17), (0, 0)] {
            let says = || Ok(format!("unaccounted {missed}\nanswered 4\n"));
            assert_eq!(read(says, 3, PAUSE / 1000).unwrap(), left);
        }
        let mut waiting = 2;
        let says = || {
            waiting -= 1;
            Ok(format!("unaccounted {waiting}\n"))
        };
        assert_eq!(read(says, 3, PAUSE / 1000).unwrap(), 0, "what waited was answered meanwhile");
    }
}
