//! The front page: the machines, figures beside peers, goals missed, how to read.

use super::choice::{Choice, Published};
use super::{MARKS, rules, scenario};
use crate::report::pattern;
use crate::report::{Row, number, page, sentences};
use crate::scenarios::{ALL, Scenario};
use anyhow::Context as _;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Notes that people add to the figures.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Notes {
    beside: Vec<Beside>,
    missed: Vec<Missed>,
}

/// A line of figures beside each other.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Beside {
    what: String,
    /// The row of Polder.
    polder: String,
    /// Names of peers with their rows.
    #[serde(default)]
    peers: Vec<(String, String)>,
    configuration: String,
    /// True if the line stands in the project's README, too.
    #[serde(default)]
    readme: bool,
}

/// Rows that miss their goals, with the cause.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Missed {
    rows: String,
    cause: String,
    /// The document with the details.
    link: Option<String>,
}

impl Notes {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        toml::from_str(&super::read(path)?).with_context(|| format!("{} is not as expected", path.display()))
    }
}

const HEAD: &str = "# Measurements

Written by `polder lab publish` from the newest reports of [the lab](../lab.md) and from `publish.toml`.
";
const READING: &str = "
## How to read

* A value is the median of its runs; the page of its scenario has the spread, the report every remark.
* Figures of one line are of one report; between veths the generator is on one core and the device on the other.
* Lines of different reports are not comparable: host and distance of the cores change, so compare a figure with the peer beside it.
* Polder's settings stand in the report as `configuration`, where it has one.
* CPU time is that of the device's threads with the NAPI thread of its input, for each packet that came out.
* Programs that poll are charged with the whole core, so where they carry little their CPU time is an upper bound.
* Contenders are measured at the highest rate at which they lose at most 0.5 %, which is not the same for all.
* A report is published only if it is of a clean commit and not cut short, and a figure only with ten rounds behind it.
* Dated investigations below `investigations/` tell what was tried, in the state of the program on that day.
* What the fuzzers have run is in [fuzzing](fuzzing.md).
";

/// `README.md` of the folder.
pub(super) fn page(choice: &Choice<'_>, notes: &Notes) -> String {
    let mut text = HEAD.to_owned();
    text.push_str(&conclusion(choice));
    text.push_str(&machines(choice));
    text.push_str("\n## Beside peers\n\n");
    text.push_str(&table(choice, notes.beside.iter(), ""));
    text.push_str("\n## Goals missed\n\n| row | goal | value | cause |\n|---|---|---|---|\n");
    text.push_str(&missed(choice, &notes.missed));
    text.push_str(READING);
    text.push_str("\n## Pages\n\n");
    let pages = ALL.iter().map(|scenario| format!("[{0}]({0}.md)", scenario.name));
    let _ = writeln!(text, "{}.", pages.collect::<Vec<_>>().join(", "));
    text
}

/// The project's README with the lines that stand in it, too; `None` if it has no marks.
pub(super) fn in_readme(text: &str, choice: &Choice<'_>, notes: &Notes) -> Option<String> {
    let (before, rest) = text.split_once(MARKS[0])?;
    let (_, after) = rest.split_once(MARKS[1])?;
    let chosen = notes.beside.iter().filter(|line| line.readme);
    let table = table(choice, chosen, "docs/measurements/");
    Some(format!("{before}{}{table}{}{after}", MARKS[0], MARKS[1]))
}

/// Goals held and missed over all scenarios, and the scenarios that miss most.
fn conclusion(choice: &Choice<'_>) -> String {
    let of_scenario = |scenario: &Scenario| {
        let rows = scenario.promises().iter().filter_map(|promise| choice.row(promise.name)?.1.met);
        let met = rows.collect::<Vec<_>>();
        (met.len(), met.iter().filter(|&&met| !met).count())
    };
    let counts = ALL.iter().map(|scenario| (scenario.name, of_scenario(scenario))).collect::<Vec<_>>();
    let judged = counts.iter().map(|(_, (judged, _))| judged).sum::<usize>();
    let missed = counts.iter().map(|(_, (_, missed))| missed).sum::<usize>();
    let mut missing = counts.iter().filter(|(_, (_, missed))| *missed > 0).collect::<Vec<_>>();
    missing.sort_by_key(|(_, (_, missed))| core::cmp::Reverse(*missed));
    let names = missing.iter().map(|(name, (_, missed))| format!("[{name}]({name}.md) {missed}"));
    let names = names.collect::<Vec<_>>().join(", ");
    let by_scenario =
        if names.is_empty() { String::new() } else { format!("Missed by scenario: {names}.\n") };
    format!("\n{} of {judged} goals are held, {missed} missed.\n{by_scenario}", judged - missed)
}

/// Machines with the reports that count.
fn machines(choice: &Choice<'_>) -> String {
    let mut machines = BTreeMap::<_, Vec<&Published>>::new();
    for (published, _) in ALL.iter().flat_map(|scenario| choice.of_scenario(scenario)) {
        let machine = &published.report.machine;
        // Builds of one kernel are told apart by the reports.
        let kernel = machine.kernel.split('-').next().unwrap_or_default();
        // So are clock rates of one family.
        let family = machine.cpu.split(" @ ").next().unwrap_or_default();
        let key = (family.to_owned(), machine.cores_idle.len(), kernel.to_owned());
        let known = machines.entry(key).or_default();
        if !known.iter().any(|known| known.name == published.name) {
            known.push(published);
        }
    }
    let mut text = "\n## Machines\n\n| processor | cores | apart | Linux | memory | reports |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for ((cpu, cores, kernel), reports) in machines {
        let all =
            |value: fn(&Published) -> Option<f64>| range(reports.iter().filter_map(|report| value(report)));
        let apart = all(|published| published.report.machine.round_trip);
        let bandwidth = all(|published| Some(published.report.machine.memory.bandwidth / 1e9));
        let latency = all(|published| Some(published.report.machine.memory.latency));
        let dates = reports.iter().map(|published| published.report.at);
        let day =
            |at: Option<u64>| page::date(at.unwrap_or_default()).split(' ').next().unwrap_or("").to_owned();
        let (first, last) = (day(dates.clone().min()), day(dates.max()));
        let days = if first == last { first } else { format!("{first} to {last}") };
        let _ = writeln!(
            text,
            "| {cpu} | {cores} | {apart} ns | {kernel} | {bandwidth} GB/s, {latency} ns | {}, {days} |",
            reports.len()
        );
    }
    text.push_str(&older(choice));
    text
}

/// A sentence about reports that count and would be refused today.
fn older(choice: &Choice<'_>) -> String {
    let parts = ALL.iter().flat_map(|scenario| choice.of_scenario(scenario));
    let reports = parts.map(|(published, _)| (&published.name, published)).collect::<BTreeMap<_, _>>();
    let refused = reports.values().filter(|published| !rules::broken(&published.report).is_empty()).count();
    match refused {
        0 => String::new(),
        _ => format!(
            "\nOf {} reports, {refused} are older than the rule of ten rounds and would be refused today; their pages say why.\n",
            reports.len()
        ),
    }
}

/// The least and the largest, or the one value that there is.
fn range(values: impl Iterator<Item = f64>) -> String {
    let (low, high) = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    let (low, high) = (number(low), number(high));
    if low == high { low } else { format!("{low} to {high}") }
}

/// A table of figures beside each other; links begin with `way`.
fn table<'a>(choice: &Choice<'_>, lines: impl Iterator<Item = &'a Beside>, way: &str) -> String {
    let mut text = "| | Polder | beside it | configuration | report |\n|---|---|---|---|---|\n".to_owned();
    for line in lines {
        let Some((published, row)) = choice.row(&line.polder) else {
            let _ = writeln!(text, "| {} | not measured | | {} | |", line.what, line.configuration);
            continue;
        };
        let peers = peers(line, published);
        let (day, _) = published.name.split_once('/').unwrap_or((&published.name, ""));
        let (value, Beside { what, configuration, .. }) = (sentences::value(row), line);
        let _ = writeln!(
            text,
            "| {what} | {value} | {peers} | {configuration} | [{day}]({way}{}) |",
            published.name
        );
    }
    text
}

/// Peers with their figures, and at the end the names of those without one.
fn peers(line: &Beside, published: &Published) -> String {
    let row = |name: &str| {
        let row = published.report.row(name)?;
        rules::is_published(&published.report, row).then_some(row)
    };
    let (here, absent) = line.peers.iter().partition::<Vec<_>, _>(|(_, name)| row(name).is_some());
    let figure = |(name, of): &&(String, String)| Some(format!("{name} {}", sentences::value(row(of)?)));
    let mut parts = here.iter().filter_map(figure).collect::<Vec<_>>();
    if !absent.is_empty() {
        let names = absent.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
        parts.push(format!("not here: {}", names.join(", ")));
    }
    parts.join("; ")
}

/// A line for each cause, and for each row without one.
fn missed(choice: &Choice<'_>, causes: &[Missed]) -> String {
    let promised =
        ALL.iter().flat_map(|scenario| scenario.promises().iter().map(move |promise| (scenario, promise)));
    let rows = promised.filter_map(|(scenario, promise)| Some((scenario.name, choice.row(promise.name)?.1)));
    let rows = rows.filter(|(_, row)| row.met == Some(false)).collect::<Vec<_>>();
    let mut groups = Vec::<(&str, Option<&Missed>, Vec<&Row>)>::new();
    for (scenario, row) in rows {
        let cause = causes.iter().find(|cause| pattern::matches(&cause.rows, &row.name));
        let same = |known: &Option<&Missed>| match (known, cause) {
            (Some(known), Some(cause)) => core::ptr::eq(*known, cause),
            (_, _) => false,
        };
        match groups.iter_mut().find(|(_, known, _)| same(known)) {
            Some((_, _, rows)) => rows.push(row),
            None => groups.push((scenario, cause, vec![row])),
        }
    }
    groups.iter().map(|(scenario, cause, rows)| line(scenario, *cause, rows)).collect()
}

fn line(scenario: &str, cause: Option<&Missed>, rows: &[&Row]) -> String {
    let [first, ..] = rows else { return String::new() };
    let name = match (cause, rows.len()) {
        (Some(cause), 2..) => format!("`{}`, {} rows", cause.rows, rows.len()),
        (_, _) => format!("`{}`", first.name),
    };
    let goal = format!("{} {}", scenario::sign(first), range(rows.iter().filter_map(|row| row.goal)));
    let value = format!("{} {}", range(rows.iter().filter_map(|row| row.value)), first.unit);
    let cause = match cause {
        None => "not looked for".to_owned(),
        Some(Missed { cause, link: None, .. }) => cause.clone(),
        Some(Missed { cause, link: Some(link), .. }) => format!("[{cause}]({link})"),
    };
    format!("| [{name}]({scenario}.md) | {goal} | {} | {cause} |\n", value.trim_end())
}
