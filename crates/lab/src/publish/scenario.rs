//! The generated part of a scenario's page, and its picture.

use super::choice::{Choice, Published};
use super::rules;
use crate::report::{Better, Report, Row, number, page, plot};
use crate::scenarios::Scenario;
use anyhow::Context as _;
use std::fmt::Write as _;

/// Everything below the heading of results.
pub(super) fn results(scenario: &Scenario, choice: &Choice<'_>, has_picture: bool) -> String {
    let parts = choice.of_scenario(scenario);
    let mut text = String::from("\nWritten by `polder lab publish`.\n");
    if parts.is_empty() {
        text.push_str("No report of this scenario is published.\n");
        return text;
    }
    text.push_str("Rows of one table are of one report, whose JSON has their remarks.\n");
    for (published, rows) in &parts {
        text.push_str(&part(published, rows));
    }
    let missing = scenario.promises.iter().filter(|promise| choice.row(promise.name).is_none());
    let missing = missing.map(|promise| format!("* `{}`\n", promise.name)).collect::<String>();
    if !missing.is_empty() {
        let _ = write!(text, "\n### Rows in no published report\n\n{missing}");
    }
    if has_picture {
        let _ = write!(text, "\n### Plots\n\n![Plots of these rows]({}.svg)\n", scenario.name);
    }
    text
}

fn part(published: &Published, rows: &[&Row]) -> String {
    let Published { name, report } = published;
    let whole = &report.machine.commit;
    let commit = whole.get(..8).unwrap_or(whole);
    let mut text = format!(
        "\n### {}\n\n[Report]({name}) of commit `{commit}`: {}.\n",
        page::date(report.at),
        machine(report)
    );
    let broken = rules::broken(report).join("; ");
    if !broken.is_empty() {
        let _ = writeln!(text, "Older than the rules for reports: {broken}.");
    }
    text.push('\n');
    text.push_str("| row | value | spread | goal | |\n|---|---|---|---|---|\n");
    for row in rows {
        let verdict = match row.met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "",
        };
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {verdict} |",
            row.name,
            value(row),
            spread(row),
            goal(row)
        );
    }
    text
}

/// The machine in a phrase.
pub(super) fn machine(report: &Report) -> String {
    let machine = &report.machine;
    let apart = machine.cores_in_words().map_or_else(String::new, |words| format!(" {words}"));
    format!("{}, {} cores{apart}, Linux {}", machine.cpu, machine.cores_idle.len(), machine.kernel)
}

/// The value with its unit.
pub(super) fn value(row: &Row) -> String {
    format!("{} {}", row.shown(), row.unit).trim_end().to_owned()
}

fn spread(row: &Row) -> String {
    match row.spread.filter(|_| row.samples > 1) {
        Some((low, high)) => format!("{} … {}", number(low), number(high)),
        None => String::new(),
    }
}

/// The sign in front of a goal.
pub(super) fn sign(row: &Row) -> &'static str {
    match row.better {
        Better::Higher => "≥",
        Better::Lower => "≤",
    }
}

fn goal(row: &Row) -> String {
    row.goal.map_or_else(String::new, |goal| format!("{} {}", sign(row), number(goal)))
}

/// The plots of all reports that count for the scenario, one below the other.
pub(super) fn picture(scenario: &Scenario, choice: &Choice<'_>) -> anyhow::Result<Option<String>> {
    let mut pictures = Vec::new();
    for (published, rows) in choice.of_scenario(scenario) {
        let rows = rows.into_iter().cloned().collect();
        pictures.extend(plot::all(&Report { rows, ..published.report.clone() })?);
    }
    if pictures.is_empty() {
        return Ok(None);
    }
    let (mut top, mut inside) = (0, String::new());
    for picture in pictures {
        let height = height(&picture).context("a plot without a height")?;
        inside.push_str(&picture.replacen("<svg ", &format!("<svg y=\"{top}\" "), 1));
        top += height;
    }
    let width = plot::WIDTH;
    let head = format!(
        "<svg width=\"{width}\" height=\"{top}\" viewBox=\"0 0 {width} {top}\" xmlns=\"http://www.w3.org/2000/svg\">\n"
    );
    Ok(Some(format!("{head}{inside}</svg>\n")))
}

/// The height that a picture begins with.
fn height(picture: &str) -> Option<u32> {
    picture.split_once("height=\"")?.1.split('"').next()?.parse().ok()
}
