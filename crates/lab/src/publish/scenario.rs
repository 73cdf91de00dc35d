//! The generated part of a scenario's page, and its picture.

use super::choice::{Choice, Published};
use super::rules;
use crate::report::sentences::{self, Group, Line};
use crate::report::{Better, Report, Row, page, plot};
use crate::scenarios::Scenario;
use anyhow::Context as _;
use std::fmt::Write as _;

/// Text below the heading of results.
pub(super) fn results(scenario: &Scenario, choice: &Choice<'_>, has_picture: bool) -> String {
    let parts = choice.of_scenario(scenario);
    let mut text = String::from("\nWritten by `polder lab publish`.\n");
    if parts.is_empty() {
        text.push_str("No report of this scenario is published.\n");
        return text;
    }
    text.push_str("Rows below one heading are of one report, whose JSON has their remarks.\n\n");
    let chosen = parts.iter().flat_map(|(_, rows)| rows.iter().copied()).collect::<Vec<_>>();
    for sentence in sentences::conclusion(scenario.name, &chosen) {
        let _ = writeln!(text, "* {sentence}");
    }
    for (published, rows) in &parts {
        text.push_str(&part(published, rows));
    }
    let missing = scenario.promises().iter().filter(|promise| choice.row(promise.name).is_none());
    let missing = missing.map(|promise| promise.name).collect::<Vec<_>>();
    if !missing.is_empty() {
        let names = sentences::names(scenario.name, &missing);
        let _ = write!(text, "\nIn no published report: {names}.\n");
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
    for group in sentences::groups(&report.scenario, rows) {
        text.push_str(&paragraph(&group));
    }
    text
}

/// A group as one line for each row, below its subject or the row that they vary.
fn paragraph(group: &Group<'_>) -> String {
    let head = group.lines.first().filter(|line| line.label.is_empty());
    let mut text = match head {
        Some(line) => format!("* {}: {}\n", group.about, sentence(line)),
        None => format!("* {}:\n", group.about),
    };
    for line in group.lines.iter().skip(usize::from(head.is_some())) {
        let _ = writeln!(text, "  * {}: {}", line.label, sentence(line));
    }
    text
}

/// Value, rows beside it, goal and name.
fn sentence(line: &Line<'_>) -> String {
    let mut text = sentences::measured(line);
    if let (Some(goal), Some(verdict)) = (sentences::goal(line.row), sentences::verdict(line.row)) {
        let verdict = if line.row.met == Some(true) { verdict } else { format!("**{verdict}**") };
        let _ = write!(text, "; {goal}: {verdict}");
    }
    format!("{text} (`{}`).", line.row.name)
}

/// The machine in a phrase.
pub(super) fn machine(report: &Report) -> String {
    let machine = &report.machine;
    let apart = machine.cores_in_words().map_or_else(String::new, |words| format!(" {words}"));
    format!("{}, {} cores{apart}, Linux {}", machine.cpu, machine.cores_idle.len(), machine.kernel)
}

/// The sign in front of a goal.
pub(super) fn sign(row: &Row) -> &'static str {
    match row.better {
        Better::Higher => "≥",
        Better::Lower => "≤",
    }
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
