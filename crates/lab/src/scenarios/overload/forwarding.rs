//! Forwarders beyond their capacity: bridge, router and tunnel gateway, beside the kernel doing the same. All threads of
//! the core are ordinary ones.

use super::loads::{self, Load};
use crate::peers::Task;
use crate::peers::kernel::Napi;
use crate::report::Curve;
use crate::scenarios::Run;
use crate::scenarios::testbed::{Contender, Setup, Testbed};
use crate::traffic::raw::Plan;
use std::collections::BTreeMap;
use std::time::Duration;

/// Tasks, and the names in their rows.
pub(super) const FORWARDERS: [(Task, &str); 3] =
    [(Task::Bridge, "bridge"), (Task::Route, "route"), (Task::Encapsulate, "tunnel")];
/// Forwarders by column. The first one is as it ships.
const COLUMNS: [(&str, Contender); 4] = [
    ("auto", Contender::PolderAuto),
    ("native", Contender::Polder),
    ("native_32", Contender::Polder32),
    ("kernel", Contender::Kernel(Napi::Threaded)),
];
const FRAME_BYTES: usize = 64;
const FLOWS: u32 = 64;
/// Packets a second that are offered while the capacity is measured.
const TRIED: [f64; 3] = [500_000.0, 1_000_000.0, 2_000_000.0];
/// Seconds that a quick run needs for a column.
const SECONDS: u64 = 6;

/// Fills the rows of all forwarders.
pub(super) fn measure(run: &mut Run, unaccounted: &mut u64) -> anyhow::Result<()> {
    for (task, name) in FORWARDERS {
        if rows_of(name).iter().any(|row| run.wants(row)) {
            forwarder(run, task, name, unaccounted)?;
        }
    }
    Ok(())
}

fn forwarder(run: &mut Run, task: Task, name: &str, unaccounted: &mut u64) -> anyhow::Result<()> {
    let title = format!("{name} of frames of {FRAME_BYTES} bytes, {FLOWS} flows");
    let (mut lines, mut table, mut capacity) = (BTreeMap::new(), loads::table(title.clone()), None);
    for (column, contender) in COLUMNS {
        let rows = of_column(name, column);
        if !rows.iter().any(|row| run.wants(row)) {
            continue;
        }
        if !super::has_time(run, &format!("{name}: {column}"), SECONDS) {
            continue;
        }
        run.says(&format!("{name}, {column}: starting"));
        let setup = Setup { puts_first: false, ..Setup::new(contender, task, FRAME_BYTES, FLOWS) };
        let mut testbed = match Testbed::lay(setup) {
            Ok(testbed) => testbed,
            Err(error) => {
                crate::interrupt::check()?;
                run.skip(&rows.iter().map(String::as_str).collect::<Vec<_>>(), &format!("{error:#}"));
                continue;
            }
        };
        // All columns are offered the same, by the capacity of the first that could be started.
        let capacity = match capacity {
            Some(capacity) => capacity,
            None => *capacity.insert(carried_at_most(run, &mut testbed)?),
        };
        let loads = loads::measure(run, &format!("{name}, {column}"), capacity, &mut testbed)?;
        *unaccounted += testbed.unaccounted()?.map_or(0, i64::unsigned_abs);
        table.lines.extend(loads.iter().map(|load| load.line(column)));
        let points = loads.iter().filter_map(|load| Some((load.offered / 1e6, load.seen?.0 / 1e6)));
        lines.insert(column.to_owned(), points.collect());
        record(run, (name, column), capacity, &loads);
    }
    if table.lines.is_empty() {
        return Ok(());
    }
    run.table(table);
    let (x, y) = ("offered, millions a second".to_owned(), "carried, millions a second".to_owned());
    run.curve(Curve { title, x, y, lines });
    Ok(())
}

/// The most packets that are carried in a second at any of a few rates.
fn carried_at_most(run: &Run, testbed: &mut Testbed) -> anyhow::Result<f64> {
    let time = Duration::from_millis(run.quick_or(200, 500));
    let mut rate = 0.0_f64;
    for tried in TRIED {
        rate = rate.max(testbed.run(&Plan::steady(tried, time))?.rate());
    }
    anyhow::ensure!(rate > 0.0, "no packet was carried");
    Ok(rate)
}

fn goodput(name: &str, column: &str) -> String {
    let ending = if column == COLUMNS[0].0 { String::new() } else { format!(".{column}") };
    format!("overload.{name}.goodput_far_over_peak{ending}")
}

/// Rows of a forwarder in one column.
fn of_column(name: &str, column: &str) -> Vec<String> {
    let each = ["peak_mpps", "p50_far_us", "p99_far_us"].map(|row| format!("overload.{name}.{row}.{column}"));
    let offered = (column == COLUMNS[0].0).then(|| format!("overload.{name}.offered_over_capacity"));
    each.into_iter().chain([goodput(name, column)]).chain(offered).collect()
}

/// Rows of a forwarder in all columns.
pub(super) fn rows_of(name: &str) -> Vec<String> {
    COLUMNS.iter().flat_map(|(column, _)| of_column(name, column)).collect()
}

fn record(run: &mut Run, (name, column): (&str, &str), capacity: f64, loads: &[Load]) {
    let seen = loads.iter().filter_map(|load| Some((load, load.seen?))).collect::<Vec<_>>();
    let Some((last, (far, median, slow))) = seen.last().copied() else {
        let reason = loads.iter().find_map(|load| load.reason.clone()).unwrap_or_default();
        of_column(name, column).iter().for_each(|row| run.missing(row, reason.clone()));
        return;
    };
    let peak = seen.iter().map(|(_, seen)| seen.0).fold(0.0, f64::max);
    let row = goodput(name, column);
    run.record_one(&row, far / peak);
    run.remark(
        &row,
        format!(
            "at {} times the capacity of {capacity:.0} packets/s: {far:.0} of {:.0} carried, {peak:.0} at the peak",
            last.factor, last.offered
        ),
    );
    for (row, value) in [("peak_mpps", peak / 1e6), ("p50_far_us", median), ("p99_far_us", slow)] {
        run.record_one(&format!("overload.{name}.{row}.{column}"), value);
    }
    if column == COLUMNS[0].0 {
        let row = format!("overload.{name}.offered_over_capacity");
        run.record_one(&row, last.offered / peak);
        let beyond = loads.last().and_then(|load| load.reason.clone());
        run.remark(&row, beyond.unwrap_or_else(|| format!("{peak:.0} packets/s at the peak")));
    }
}
