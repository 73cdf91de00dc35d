//! Forwarders beyond their capacity: bridge, router and tunnel gateway, beside the kernel doing the same. All threads of
//! the core are ordinary ones, and one more that comes before all has nine tenths of it: the generator would not reach
//! ten times what a whole core forwards.

use super::loads::{Column, compare};
use crate::scenarios::Run;
use crate::scenarios::testbed::{Contender, Setup, Testbed, cores};
use polder_testbed::clock;
use polder_testbed::peers::Task;
use polder_testbed::peers::kernel::Napi;
use polder_testbed::peers::neighbour::{Neighbour, Work};

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
const TRIED: [f64; 3] = [100_000.0, 200_000.0, 400_000.0];
/// Seconds that a quick run needs for a forwarder.
const SECONDS: u64 = 10;

/// Fills the rows of all forwarders.
pub(super) fn measure(run: &mut Run, unaccounted: &mut u64) -> anyhow::Result<()> {
    for (task, name) in FORWARDERS {
        let is_wanted = rows_of(name).iter().any(|row| run.wants(row));
        if is_wanted && super::has_time(run, name, SECONDS) {
            forwarder(run, task, name, unaccounted)?;
        }
    }
    Ok(())
}

fn forwarder(run: &mut Run, task: Task, name: &str, unaccounted: &mut u64) -> anyhow::Result<()> {
    run.place("forwarders' core", cores().0, "nine tenths are another process's (SCHED_FIFO)");
    let mut columns = Vec::new();
    for (column, contender) in COLUMNS {
        let rows = of_column(name, column);
        if !rows.iter().any(|row| run.wants(row)) {
            continue;
        }
        run.says(&format!("{name}, {column}: starting"));
        let setup = Setup { puts_first: false, ..Setup::new(contender, task, FRAME_BYTES, FLOWS) };
        let testbed = run.or_skip(&rows, Testbed::lay(setup))?;
        columns.extend(testbed.map(|testbed| Column::new(column, testbed)));
    }
    let Some(first) = columns.first_mut() else { return Ok(()) };
    let occupying = Neighbour::start(Work::Occupy, cores().0)?;
    let capacity = first.capacity(run, &TRIED)?;
    let title = format!("{name} of frames of {FRAME_BYTES} bytes, {FLOWS} flows");
    let (begin, before) = (clock::now(), occupying.cpu()?);
    compare(run, &title, &mut columns, capacity)?;
    let occupied = (occupying.cpu()? - before).as_secs_f64() / (clock::now() - begin).as_secs_f64();
    for column in &columns {
        *unaccounted += column.testbed.unaccounted()?.map_or(0, i64::unsigned_abs);
        record(run, name, column, (capacity, occupied));
    }
    Ok(())
}

fn goodput(name: &str, column: &str) -> String {
    let ending = if column == COLUMNS[0].0 { String::new() } else { format!(".{column}") };
    format!("overload.{name}.goodput_far_over_peak{ending}")
}

/// Rows of a forwarder in one column.
fn of_column(name: &str, column: &str) -> Vec<String> {
    let each = ["peak_kpps", "p50_far_us", "p99_far_us"].map(|row| format!("overload.{name}.{row}.{column}"));
    let offered = (column == COLUMNS[0].0).then(|| format!("overload.{name}.offered_over_capacity"));
    each.into_iter().chain([goodput(name, column)]).chain(offered).collect()
}

/// Rows of a forwarder in all columns.
pub(super) fn rows_of(name: &str) -> Vec<String> {
    COLUMNS.iter().flat_map(|(column, _)| of_column(name, column)).collect()
}

fn record(run: &mut Run, name: &str, column: &Column, (capacity, occupied): (f64, f64)) {
    let seen = match column.seen() {
        Ok(seen) => seen,
        Err(reason) => {
            of_column(name, column.name).iter().for_each(|row| run.missing(row, reason.clone()));
            return;
        }
    };
    let row = goodput(name, column.name);
    run.record(&row, &seen.goodput());
    run.remark(&row, seen.remark(capacity));
    let thousands = seen.peak.rate.scaled(1e-3);
    for (row, samples) in
        [("peak_kpps", &thousands), ("p50_far_us", &seen.last.median), ("p99_far_us", &seen.last.slow)]
    {
        run.record(&format!("overload.{name}.{row}.{}", column.name), samples);
    }
    if column.name == COLUMNS[0].0 {
        let row = format!("overload.{name}.offered_over_capacity");
        run.record(&row, &seen.excess());
        let missed = column.missed().map(|missed| format!("; {missed}")).unwrap_or_default();
        run.remark(&row, format!("{:.1} % of the core were the other process's{missed}", occupied * 100.0));
    }
}
