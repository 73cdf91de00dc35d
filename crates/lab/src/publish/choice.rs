//! The newest report of every row.

use super::rules;
use crate::report::{Report, Row};
use crate::scenarios::{ALL, Scenario};
use std::collections::BTreeMap;

/// A report below the folder.
#[derive(Debug)]
pub struct Published {
    /// Path of the report below the folder.
    pub name: String,
    /// The report.
    pub report: Report,
}

/// The report that counts for each row.
///
/// Rows whose names share all but the last part are one family and come from one report, the newest with a value
/// for any of them: figures stand beside each other only if they were measured beside each other.
#[derive(Debug)]
pub struct Choice<'a> {
    by_family: BTreeMap<String, &'a Published>,
}

impl<'a> Choice<'a> {
    /// The choice among `reports`, for the rows that are promised today.
    pub fn of(reports: &'a [Published]) -> Self {
        let mut by_family = BTreeMap::<String, &Published>::new();
        let promised = ALL.iter().flat_map(Scenario::promises);
        for promise in promised {
            let measured = |published: &&Published| {
                let row = published.report.row(promise.name);
                row.is_some_and(|row| rules::is_published(&published.report, row))
            };
            let newest = reports.iter().filter(measured).max_by_key(|published| published.report.at);
            let Some(newest) = newest else { continue };
            let known = by_family.entry(family(promise.name)).or_insert(newest);
            if newest.report.at > known.report.at {
                *known = newest;
            }
        }
        Self { by_family }
    }

    /// The row of that name with its report, if it has a value there that may be published.
    pub fn row(&self, name: &str) -> Option<(&'a Published, &'a Row)> {
        let published = *self.by_family.get(&family(name))?;
        let row = published.report.row(name).filter(|row| rules::is_published(&published.report, row))?;
        Some((published, row))
    }

    /// Reports that count for a row of the scenario, newest first, each with these rows.
    pub fn of_scenario(&self, scenario: &Scenario) -> Vec<(&'a Published, Vec<&'a Row>)> {
        let mut parts = Vec::<(&Published, Vec<&Row>)>::new();
        for (published, row) in scenario.promises().iter().filter_map(|promise| self.row(promise.name)) {
            match parts.iter_mut().find(|(known, _)| known.name == published.name) {
                Some((_, rows)) => rows.push(row),
                None => parts.push((published, vec![row])),
            }
        }
        parts.sort_by_key(|(published, _)| core::cmp::Reverse(published.report.at));
        parts
    }
}

/// All but the last part of a name, if the rest is shared by only some rows; otherwise the name.
fn family(name: &str) -> String {
    let family = name.rsplit_once('.').map_or(name, |(family, _)| family);
    if family.contains('.') { family } else { name }.to_owned()
}
