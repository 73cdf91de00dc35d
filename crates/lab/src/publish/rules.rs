//! What a report has to be so that it may be published.

use crate::report::{Report, Row};

/// Seconds since 1970 from which on reports are refused that break a rule: 26 November 2026.
const SINCE: u64 = 1_795_651_200;
/// The least number of rounds behind a figure.
const ROUNDS: usize = 10;
/// Units of measured figures; all others are counts and sizes, of which one is enough.
const MEASURED: &[&str] =
    &["ns", "µs", "ms", "s", "%", "×", "ratio", "", "pps", "kpps", "Mpps", "Mbit/s", "Gbit/s", "clocks"];

/// True if the report was made since there are rules.
pub(super) fn is_bound(report: &Report) -> bool {
    report.at >= SINCE
}

/// The rules that the report breaks, each in a phrase.
pub(super) fn broken(report: &Report) -> Vec<String> {
    let few = report.rows.iter().filter(|row| has_few_rounds(row)).collect::<Vec<_>>();
    let mut said = Vec::new();
    said.extend(report.quick.then(|| "a quick run".to_owned()));
    said.extend(report.machine.commit.ends_with("+changes").then(|| "a changed tree".to_owned()));
    if let Some(first) = few.first() {
        let named = first.name.as_str();
        said.push(format!("{} rows of fewer than {ROUNDS} rounds, such as `{named}`", few.len()));
    }
    said
}

fn has_few_rounds(row: &Row) -> bool {
    let is_figure = row.samples > 1 || MEASURED.contains(&row.unit.as_str());
    row.value.is_some() && is_figure && row.samples < ROUNDS
}
