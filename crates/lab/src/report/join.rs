//! Several runs of parts of one scenario as one report.

use super::{ALL_BUT, Better, LEFT_OUT, Report, Row};
use anyhow::{Context as _, ensure};

/// One report of several. A row that more than one has measured keeps its worst value, as for counts of
/// faults, and says which others there were; nothing is averaged, and only the rows of `sums` are added. Goals stand as
/// the parts have them: their scenario judges the whole.
///
/// # Errors
/// When they are of different scenarios, commits, kernels, or lengths.
pub fn join(reports: Vec<Report>, sums: &[&str]) -> anyhow::Result<Report> {
    let mut reports = reports.into_iter();
    let mut joined = reports.next().context("there is nothing to join")?;
    for next in reports {
        let same = |what: &str, a: &str, b: &str| {
            ensure!(a == b, "the reports differ in their {what}: {a} and {b}");
            Ok(())
        };
        same("scenario", &joined.scenario, &next.scenario)?;
        same("commit", &joined.machine.commit, &next.machine.commit)?;
        same("kernel", &joined.machine.kernel, &next.machine.kernel)?;
        ensure!(joined.quick == next.quick, "one of the runs was quick");
        add(&mut joined, next, sums);
    }
    joined.rows = joined.rows.into_iter().map(Row::clipped).collect();
    let missing = joined.rows.iter().any(is_left_out);
    joined.left_out.retain(|line| missing || !line.starts_with(ALL_BUT));
    Ok(joined)
}

fn add(joined: &mut Report, next: Report, sums: &[&str]) {
    joined.command = format!("{}; {}", joined.command, next.command);
    for (idle, other) in joined.machine.cores_idle.iter_mut().zip(&next.machine.cores_idle) {
        *idle = idle.min(*other);
    }
    for place in next.placement {
        if !joined.placement.contains(&place) {
            joined.placement.push(place);
        }
    }
    for next in next.configuration {
        match joined.configuration.iter_mut().find(|known| known.toml == next.toml) {
            Some(known) => {
                let new = next.what.into_iter().filter(|what| !known.what.contains(what)).collect::<Vec<_>>();
                known.what.extend(new);
            }
            None => joined.configuration.push(next),
        }
    }
    joined.left_out.extend(next.left_out);
    joined.curves.extend(next.curves);
    joined.tables.extend(next.tables);
    for row in next.rows {
        match joined.rows.iter_mut().find(|known| known.name == row.name) {
            None => joined.rows.push(row),
            Some(known) if sums.contains(&row.name.as_str()) => sum(known, row),
            Some(known) => merge(known, row),
        }
    }
}

/// Adds a count of another part.
fn sum(known: &mut Row, row: Row) {
    let (Some(one), Some(other)) = (known.value, row.value) else { return merge(known, row) };
    known.value = Some(one + other);
    known.reason = [known.reason.take(), row.reason]
        .into_iter()
        .flatten()
        .filter(|text| !text.is_empty())
        .reduce(|a, b| format!("{a}; {b}"));
}

fn merge(known: &mut Row, row: Row) {
    if known.value.is_none() || row.value.is_none() {
        // A reason why it could not be measured says more than that it was left out.
        if is_left_out(known) || known.value.is_none() && row.value.is_some() {
            *known = row;
        }
        return;
    }
    let (worse, better) = if is_worse(&row, known) { (row, known.clone()) } else { (known.clone(), row) };
    let reasons = [worse.reason.clone(), Some(format!("another part had {}", better.shown()))];
    let reasons = reasons.into_iter().flatten().collect::<Vec<_>>();
    *known = Row { reason: Some(reasons.join("; ")), ..worse };
}

fn is_left_out(row: &Row) -> bool {
    row.value.is_none() && row.reason.as_deref() == Some(LEFT_OUT)
}

fn is_worse(row: &Row, known: &Row) -> bool {
    row.value.zip(known.value).is_some_and(|(value, known)| match row.better {
        Better::Higher => value < known,
        Better::Lower => value > known,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    fn part(value: Option<f64>, only: &str) -> Report {
        let mut report = sample();
        report.left_out = vec![format!("{ALL_BUT}{only}")];
        report.rows[0].value = value;
        report.rows[0].reason = value.is_none().then(|| LEFT_OUT.to_owned());
        report
    }

    #[test]
    fn a_row_comes_from_where_it_was_measured_and_the_worst_counts() {
        for parts in [[Some(3.0), None], [None, Some(3.0)], [Some(3.0), Some(2.0)], [Some(2.0), Some(3.0)]] {
            let joined = join(parts.map(|value| part(value, "x")).into(), &[]).unwrap();
            assert_eq!(joined.rows[0].value, Some(3.0), "{parts:?}");
            let others = parts.iter().all(Option::is_some).then_some("another part had 2.00");
            assert_eq!(joined.rows[0].reason.as_deref(), others, "{parts:?}");
            assert_eq!((joined.rows.len(), joined.left_out.len(), joined.placement.len()), (3, 0, 1));
        }
    }

    #[test]
    fn counts_over_all_parts_are_added() {
        let parts = [Some(3.0), None, Some(2.0)].map(|value| part(value, "x"));
        let name = parts[0].rows[0].name.clone();
        let joined = join(parts.into(), &[&name]).unwrap();
        assert_eq!((joined.rows[0].value, joined.rows[0].reason.as_deref()), (Some(5.0), None));
    }

    #[test]
    fn what_no_part_has_measured_stays_left_out_and_said() {
        let joined = join(vec![part(None, "x"), part(None, "y")], &[]).unwrap();
        assert_eq!((joined.rows[0].value, joined.left_out.len()), (None, 2));
    }

    #[test]
    fn reports_of_different_commits_are_not_joined() {
        let mut other = part(None, "x");
        other.machine.commit.push('x');
        let error = join(vec![part(None, "x"), other], &[]).unwrap_err().to_string();
        assert!(error.contains("commit"), "{error}");
    }
}
