//! Two reports side by side: what changed by more than the noise.

use super::{Better, Report, Row, number};
use polder_testbed::screen::Screen;

/// A change below this part is noise even when the samples agree.
const LEAST_NOISE: f64 = 0.02;

/// Change of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Difference below the noise of both runs.
    Same {
        /// The part by which the value differs.
        part: f64,
        /// The noise, as a part.
        noise: f64,
    },
    /// Improvement.
    Better(f64),
    /// Deterioration.
    Worse(f64),
    /// Missing in one of the reports, or without a value.
    Unknown,
}

/// Change from row `a` to row `b`.
pub fn change(a: &Row, b: &Row) -> Change {
    let (Some(before), Some(after)) = (a.value, b.value) else { return Change::Unknown };
    if before == after {
        return Change::Same { part: 0.0, noise: 0.0 };
    }
    if before == 0.0 {
        let worse = (after > 0.0) == (a.better == Better::Lower);
        return if worse { Change::Worse(f64::INFINITY) } else { Change::Better(f64::INFINITY) };
    }
    let part = (after - before) / before.abs();
    let noise = (a.noise() + b.noise()).max(LEAST_NOISE);
    if part.abs() <= noise {
        return Change::Same { part, noise };
    }
    match ((part > 0.0), a.better) {
        (true, Better::Higher) | (false, Better::Lower) => Change::Better(part),
        (true, Better::Lower) | (false, Better::Higher) => Change::Worse(part),
    }
}

/// Prints how `b` differs from `a`.
pub fn print(screen: Screen, a: &Report, b: &Report) {
    screen.heading(&format!("{}: {} → {}", a.scenario, a.machine.commit, b.machine.commit));
    for (what, before, after) in
        [("kernel", &a.machine.kernel, &b.machine.kernel), ("cpu", &a.machine.cpu, &b.machine.cpu)]
    {
        if before != after {
            screen.line(format!("  {} {what}: {before} → {after}", screen.bad("not the same machine:")));
        }
    }
    if a.quick != b.quick {
        screen.line(format!("  {} one run was quick", screen.bad("not the same length:")));
    }
    if let Some((before, after)) = moved(a.machine.round_trip, b.machine.round_trip) {
        let text = format!("{} → {} ns apart; what goes between cores", number(before), number(after));
        screen.line(format!("  {} {text} is not comparable", screen.bad("the cores have moved:")));
    }
    let missing = |report: &Report, name: &str| report.row(name).is_none();
    let names = a.rows.iter().chain(b.rows.iter().filter(|row| missing(a, &row.name)));
    let names = names.map(|row| (row, a.row(&row.name), b.row(&row.name)));
    let has_value = |row: Option<&Row>| row.is_some_and(|row| row.value.is_some());
    let (shown, empty) =
        names.partition::<Vec<_>, _>(|&(_, before, after)| has_value(before) || has_value(after));
    let width = shown.iter().map(|(row, ..)| row.name.len()).max().unwrap_or(0);
    for (row, before, after) in shown {
        let shown = |row: Option<&Row>| row.map_or_else(|| "–".to_owned(), Row::shown);
        let verdict = match before.zip(after).map_or(Change::Unknown, |(before, after)| change(before, after))
        {
            Change::Same { part, noise } => {
                screen.dim(&format!("{} (noise ± {})", percent(part), percent(noise).trim_start_matches('+')))
            }
            Change::Better(part) => screen.good(&format!("{} better", percent(part))),
            Change::Worse(part) => screen.bad(&format!("{} worse", percent(part))),
            Change::Unknown => {
                let which = if has_value(before) { "the first" } else { "the second" };
                screen.accent(&format!("in {which} report alone"))
            }
        };
        let values = format!("{:>11} → {:>11} {:<9}", shown(before), shown(after), row.unit);
        screen.line(format!("  {:<width$} {values} {verdict}", row.name));
    }
    if !empty.is_empty() {
        screen.line(format!("  {}", screen.dim(&format!("{} rows have no value in either", empty.len()))));
    }
}

/// Cores whose distance has changed by more than this factor are others.
const MOVED: f64 = 1.5;

/// The distances of the cores, when they differ: a virtual machine's are put elsewhere by its host, and
/// what they share then costs several times as much.
fn moved(before: Option<f64>, after: Option<f64>) -> Option<(f64, f64)> {
    let (before, after) = before.zip(after)?;
    (before.max(after) > MOVED * before.min(after)).then_some((before, after))
}

fn percent(part: f64) -> String {
    if part.is_finite() { format!("{:+.1} %", 100.0 * part) } else { format!("from {}", number(0.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    fn row(value: f64, better: Better) -> Row {
        Row {
            value: Some(value),
            better,
            spread: Some((value * 0.95, value * 1.05)),
            ..sample().rows[0].clone()
        }
    }

    #[test]
    fn differences_below_the_noise_are_no_differences() {
        let verdict = change(&row(100.0, Better::Lower), &row(109.0, Better::Lower));
        assert!(matches!(verdict, Change::Same { noise, .. } if (noise - 0.1).abs() < 1e-9), "{verdict:?}");
    }

    #[test]
    fn the_better_way_depends_on_the_row() {
        let (before, after) = (row(100.0, Better::Lower), row(150.0, Better::Lower));
        assert_eq!(change(&before, &after), Change::Worse(0.5));
        let (before, after) = (row(100.0, Better::Higher), row(150.0, Better::Higher));
        assert_eq!(change(&before, &after), Change::Better(0.5));
    }

    #[test]
    fn cores_that_were_put_elsewhere_are_told() {
        assert_eq!(moved(Some(63.0), Some(291.0)), Some((63.0, 291.0)));
        assert_eq!(moved(Some(291.0), Some(63.0)), Some((291.0, 63.0)));
        assert_eq!((moved(Some(61.0), Some(63.0)), moved(None, Some(63.0))), (None, None));
    }

    #[test]
    fn anything_lost_is_worse_than_nothing_lost() {
        assert_eq!(change(&row(0.0, Better::Lower), &row(17.0, Better::Lower)), Change::Worse(f64::INFINITY));
        assert_eq!(
            change(&row(0.0, Better::Lower), &row(0.0, Better::Lower)),
            Change::Same { part: 0.0, noise: 0.0 }
        );
    }
}
