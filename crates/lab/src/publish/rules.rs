//! Rules for reports and rows that are published.

use crate::report::{Report, Row};

/// Seconds since 1970 from which on reports have to keep the rules: 26 November 2026.
const SINCE: u64 = 1_795_651_200;
/// The least number of rounds behind a figure.
const ROUNDS: usize = 10;
/// Units of measured figures; all others are counts and sizes, of which one is enough.
const MEASURED: &[&str] =
    &["ns", "µs", "ms", "s", "%", "×", "ratio", "", "pps", "kpps", "Mpps", "Mbit/s", "Gbit/s", "clocks"];

/// Reasons why the report may not be published; none for one that is older than the rules.
pub(super) fn refusal(report: &Report) -> Vec<&'static str> {
    if is_bound(report) { faults(report) } else { Vec::new() }
}

/// True if a row has a value that may be published: older ones may have fewer rounds.
pub(super) fn is_published(report: &Report, row: &Row) -> bool {
    row.value.is_some() && !(is_bound(report) && has_few_rounds(row))
}

/// The rules that the report breaks, each in a phrase.
pub(super) fn broken(report: &Report) -> Vec<String> {
    let few = report.rows.iter().filter(|row| has_few_rounds(row)).count();
    let few = (few > 0 && !is_bound(report)).then(|| format!("{few} rows of fewer than {ROUNDS} rounds"));
    faults(report).into_iter().map(str::to_owned).chain(few).collect()
}

fn faults(report: &Report) -> Vec<&'static str> {
    let quick = report.quick.then_some("a quick run");
    let changed = report.machine.commit.ends_with("+changes").then_some("a changed tree");
    [quick, changed].into_iter().flatten().collect()
}

/// True if the report was made since there are rules.
fn is_bound(report: &Report) -> bool {
    report.at >= SINCE
}

fn has_few_rounds(row: &Row) -> bool {
    let is_figure = row.samples > 1 || MEASURED.contains(&row.unit.as_str());
    row.value.is_some() && is_figure && row.samples < ROUNDS
}
