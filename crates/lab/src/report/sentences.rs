//! A report in sentences: what its rows are, their values, what stands beside them, and goals.
//!
//! Rows are grouped by their subject, not by a common beginning: variants of a row (`a.b` and `a.b.c`) belong to it, rows
//! that differ in the last part of their pattern alone stand beside each other, and several figures of one case stand
//! together.

use super::meaning::{self, Meaning};
use super::pattern;
use super::{Better, LEFT_OUT, Row, number};
use std::collections::BTreeMap;

/// Lines of a conclusion about missed goals, at most.
const MISSED: usize = 3;
/// Reasons longer than this are cut in the line of absent peers, in characters.
const REASON: usize = 80;

/// Rows about one thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Group<'a> {
    /// Subject of all rows.
    pub about: String,
    /// The rows, each a sentence.
    pub lines: Vec<Line<'a>>,
}

/// A row as a sentence.
#[derive(Clone, Debug, PartialEq)]
pub struct Line<'a> {
    /// Difference from the other rows of the group; empty for the row that they vary, or a row alone.
    pub label: String,
    /// The row.
    pub row: &'a Row,
    /// Rows to compare it with: label and value.
    pub beside: Vec<String>,
}

/// Place of a row: its subject, and the words for the group and for itself.
struct Place<'a> {
    row: &'a Row,
    pattern: String,
    subject: String,
    about: String,
    label: String,
}

/// The rows that have a value, by their subjects, in their order.
pub fn groups<'a>(scenario: &str, rows: &[&'a Row]) -> Vec<Group<'a>> {
    let meanings = meaning::of_scenario(scenario);
    let places = rows.iter().map(|row| place(&meanings, row, rows)).collect::<Vec<_>>();
    let mut order = Vec::<&str>::new();
    let mut by_subject = BTreeMap::<&str, Vec<&Place<'_>>>::new();
    for place in places.iter().filter(|place| place.row.value.is_some()) {
        let places = by_subject.entry(&place.subject).or_default();
        if places.is_empty() {
            order.push(&place.subject);
        }
        places.push(place);
    }
    let groups = order.into_iter().filter_map(|subject| by_subject.get(subject));
    groups.map(|places| group(places)).collect()
}

fn group<'a>(places: &[&Place<'a>]) -> Group<'a> {
    let about = places.first().map_or_else(String::new, |place| capital(&place.about));
    let is_alone = places.len() == 1;
    let lines = places.iter().map(|place| Line {
        label: if is_alone { String::new() } else { place.label.clone() },
        row: place.row,
        beside: beside(place, places),
    });
    let about = match places {
        [one] if !one.label.is_empty() && one.label != one.about => format!("{about} ({})", one.label),
        _ => about,
    };
    Group { about, lines: lines.collect() }
}

/// Rows of other programs, or without the technique, beside a row of Polder's.
fn beside(place: &Place<'_>, places: &[&Place<'_>]) -> Vec<String> {
    let own = place.label.split(", ").last().unwrap_or_default();
    if !own.starts_with("polder") && own != "on" {
        return Vec::new();
    }
    let is_beside = |other: &&&Place<'_>| {
        other.pattern == place.pattern
            && other.row.unit == place.row.unit
            && other.row.name != place.row.name
            && !other.label.contains("polder")
    };
    places.iter().filter(is_beside).map(|other| format!("{} {}", other.label, value(other.row))).collect()
}

fn place<'a>(meanings: &[Meaning], row: &'a Row, rows: &[&Row]) -> Place<'a> {
    let Some(meaning) = meaning::of_row(meanings, &row.name) else {
        let (subject, about) = (row.name.clone(), format!("`{}`", row.name));
        return Place { row, pattern: String::new(), about, label: String::new(), subject };
    };
    let pattern = meaning.pattern.clone();
    let stem = |name: &str| name.rsplit_once('.').map_or(String::new(), |(stem, _)| stem.to_owned());
    // A variant belongs to the row that it varies.
    if let Some(parent) = rows.iter().find(|other| other.name == stem(&row.name)) {
        let parent = place(meanings, parent, rows);
        let own = row.name.rsplit('.').next().unwrap_or_default();
        let is_told = pattern.ends_with('>') || meaning.words == parent.about;
        let words = if is_told { own.replace('_', " ") } else { meaning.own().to_owned() };
        let label = [parent.label.as_str(), &words].into_iter().filter(|part| !part.is_empty());
        let label = label.collect::<Vec<_>>().join(", ");
        return Place { row, pattern, label, subject: parent.subject, about: parent.about };
    }
    let names = pattern::captures(&pattern, &row.name).unwrap_or_default();
    let words = |of: &dyn Fn(&str) -> bool| {
        let chosen = names.iter().filter(|(name, _)| of(name)).map(|(_, value)| value.replace('_', " "));
        chosen.collect::<Vec<_>>().join(", ")
    };
    let own = stem(&pattern);
    let has_siblings = own.contains('<')
        && meanings.iter().any(|other| other.pattern != pattern && stem(&other.pattern) == own);
    if has_siblings {
        let (subject, about) = (stem(&row.name), format!("`{}`", stem(&row.name)));
        let last = names.last().filter(|_| pattern.ends_with('>'));
        let last = last.map_or_else(String::new, |(_, value)| format!(" ({value})"));
        return Place { row, pattern, subject, about, label: format!("{}{last}", meaning.own()) };
    }
    let last = names.last().map(|(name, _)| *name).filter(|_| pattern.ends_with('>'));
    let is_peer = |name: &str| Some(name) == last || matches!(name, "state" | "on|off");
    let subject = names
        .iter()
        .filter(|(name, _)| is_peer(name))
        .fold(row.name.clone(), |subject, (_, value)| subject.replacen(&format!(".{value}"), ".<>", 1));
    let others = words(&|name| !is_peer(name));
    let about = if others.is_empty() { meaning.whole() } else { format!("{} ({others})", meaning.whole()) };
    let label = words(&is_peer);
    Place { row, pattern: meaning.pattern.clone(), subject, about, label }
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => text.to_owned(),
    }
}

/// The value with its unit.
pub fn value(row: &Row) -> String {
    format!("{} {}", row.shown(), row.unit).trim_end().to_owned()
}

/// The value and everything behind it but the goal: spread, and rows beside it.
pub fn measured(line: &Line<'_>) -> String {
    let mut text = value(line.row);
    if let Some((low, high)) = line.row.spread.filter(|_| line.row.samples > 1) {
        text.push_str(&format!(" ({} … {})", number(low), number(high)));
    }
    if !line.beside.is_empty() {
        text.push_str(&format!(", beside {}", line.beside.join(", ")));
    }
    text
}

/// The goal in words; none for a row without.
pub fn goal(row: &Row) -> Option<String> {
    let bound = match row.better {
        Better::Higher => "at least",
        Better::Lower => "at most",
    };
    row.goal.map(|goal| format!("goal {bound} {}", format!("{} {}", number(goal), row.unit).trim_end()))
}

/// Outcome of a row with a goal.
pub fn verdict(row: &Row) -> Option<String> {
    match row.met? {
        true => Some("held".to_owned()),
        false => Some(format!("missed by {}", distance(row))),
    }
}

/// Distance from the goal: in percent of it, or in the row's unit from a goal of zero.
fn distance(row: &Row) -> String {
    let (Some(goal), Some(value)) = (row.goal, row.value) else { return String::new() };
    if goal == 0.0 {
        return format!("{} {}", number((value - goal).abs()), row.unit).trim_end().to_owned();
    }
    let percent = 100.0 * (value - goal).abs() / goal.abs();
    if percent < 1.0 { "less than 1 %".to_owned() } else { format!("{percent:.0} %") }
}

/// Part of the goal by which a row misses it.
fn excess(row: &Row) -> f64 {
    match (row.goal, row.value) {
        (Some(goal), Some(value)) if goal != 0.0 => (value - goal).abs() / goal.abs(),
        (_, _) => f64::INFINITY,
    }
}

/// Conclusion in at most five lines: goals met and missed, the worst of these, and missing rows.
pub fn conclusion(scenario: &str, rows: &[&Row]) -> Vec<String> {
    let judged = rows.iter().filter(|row| row.met.is_some()).count();
    let mut missed = rows.iter().filter(|row| row.met == Some(false)).collect::<Vec<_>>();
    missed.sort_by(|a, b| excess(b).total_cmp(&excess(a)));
    let first = match (judged, missed.len()) {
        (0, _) => "No row has a goal.".to_owned(),
        (1, 0) => "The one goal is held.".to_owned(),
        (_, 0) => format!("All {judged} goals are held."),
        (_, count) => format!("{} of {judged} goals are held, {count} missed.", judged - count),
    };
    let mut lines = vec![first];
    let shown = if missed.len() > MISSED { MISSED - 1 } else { missed.len() };
    for row in missed.iter().take(shown) {
        let goal = goal(row).unwrap_or_default();
        lines.push(format!("Missed by {}: `{}`, {}, {goal}.", distance(row), row.name, value(row)));
    }
    if let Some(next) = missed.get(shown) {
        let more = missed.len() - shown;
        lines.push(format!("Missed by at most {}: {more} more.", distance(next)));
    }
    lines.extend(absent(scenario, rows));
    lines
}

/// One line about rows without a value: names of the peers, and the reason.
pub fn absent(scenario: &str, rows: &[&Row]) -> Option<String> {
    let meanings = meaning::of_scenario(scenario);
    let mut by_reason = Vec::<(&str, Vec<String>)>::new();
    let mut left_out = 0;
    for row in rows.iter().filter(|row| row.value.is_none()) {
        let reason = row.reason.as_deref().unwrap_or_default();
        if reason == LEFT_OUT {
            left_out += 1;
            continue;
        }
        let name = peer(&meanings, row, rows).unwrap_or_else(|| format!("`{}`", row.name));
        match by_reason.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => by_reason.push((reason, vec![name])),
        }
    }
    let mut parts = by_reason.iter().map(|(reason, names)| match *reason {
        "" => names.join(", "),
        reason => format!("{} ({})", names.join(", "), short(reason)),
    });
    let parts = parts.by_ref().collect::<Vec<_>>().join("; ");
    match (parts.as_str(), left_out) {
        ("", 0) => None,
        ("", 1) => Some("Left out: one row.".to_owned()),
        ("", _) => Some(format!("Left out: {left_out} rows.")),
        (_, 0) => Some(format!("Not here: {parts}.")),
        (_, 1) => Some(format!("Not here: {parts}; and one row was left out.")),
        (_, _) => Some(format!("Not here: {parts}; and {left_out} rows were left out.")),
    }
}

/// Names of rows in few words: rows that one pattern covers are shown as the pattern with their number.
pub fn names(scenario: &str, rows: &[&str]) -> String {
    let meanings = meaning::of_scenario(scenario);
    let mut by_pattern = Vec::<(&str, Vec<&str>)>::new();
    for name in rows {
        let pattern = meaning::of_row(&meanings, name).map_or(*name, |meaning| meaning.pattern.as_str());
        match by_pattern.iter_mut().find(|(known, _)| *known == pattern) {
            Some((_, names)) => names.push(name),
            None => by_pattern.push((pattern, vec![name])),
        }
    }
    let parts = by_pattern.iter().map(|(pattern, names)| match names.as_slice() {
        [name] => format!("`{name}`"),
        names => format!("`{pattern}` ({} rows)", names.len()),
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// The peer whose row this is, if others have a value beside it.
fn peer(meanings: &[Meaning], row: &Row, rows: &[&Row]) -> Option<String> {
    let own = place(meanings, row, rows);
    let is_beside =
        |other: &&&Row| other.value.is_some() && place(meanings, other, rows).subject == own.subject;
    rows.iter().find(is_beside).map(|_| own.label).filter(|label| !label.is_empty())
}

/// A reason, cut where it is long.
fn short(reason: &str) -> String {
    let reason = reason.trim_end_matches('.');
    if reason.chars().count() <= REASON {
        return reason.to_owned();
    }
    reason.chars().take(REASON).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    fn row(name: &str, value: Option<f64>) -> Row {
        Row { name: name.to_owned(), value, goal: None, met: None, reason: None, ..sample().rows[0].clone() }
    }

    fn told(scenario: &str, rows: &[Row]) -> Vec<(String, Vec<String>)> {
        let rows = rows.iter().collect::<Vec<_>>();
        let groups = groups(scenario, &rows).into_iter();
        groups.map(|group| (group.about, group.lines.into_iter().map(|line| line.label).collect())).collect()
    }

    #[test]
    fn rows_are_grouped_by_their_subject() {
        let names = [
            "engine.macswap.ns_per_packet.polder",
            "engine.macswap.ns_per_packet.testpmd",
            "engine.bridge.ns_per_packet",
            "engine.bridge.ns_per_packet.flows_1",
            "engine.allocations_per_packet",
            "engine.stray_drops_per_packet",
        ];
        let rows = names.map(|name| row(name, Some(1.0)));
        let told = told("engine", &rows);
        let labels = told.iter().map(|(_, labels)| labels.join("|")).collect::<Vec<_>>();
        assert_eq!(labels, ["polder|testpmd", "|flows 1", "", ""], "{told:#?}");
        assert_eq!(told[0].0, "Exchanging addresses and sending by the other port");
    }

    #[test]
    fn variants_and_states_stand_together() {
        let names = [
            "gateway.encap_64.cpu_ns_per_packet.polder",
            "gateway.encap_64.cpu_ns_per_packet.polder.flows_1",
            "gateway.encap_64.cpu_ns_per_packet.ovs",
            "gateway.encap_64.cpu_ns_per_packet.ovs.flows_1",
            "gateway.ablation.E2.on.pps",
            "gateway.ablation.E2.off.pps",
        ];
        let rows = names.map(|name| row(name, Some(1.0)));
        let told = told("gateway", &rows);
        let labels = told.iter().map(|(_, labels)| labels.join("|")).collect::<Vec<_>>();
        assert_eq!(labels, ["polder|polder, with one flow|ovs|ovs, with one flow", "on|off"], "{told:#?}");
    }

    #[test]
    fn figures_of_one_case_stand_together() {
        let names = ["tables.A.A1.on", "tables.A.A1.gain", "tables.A.A2.on", "tables.A.A2.gain"];
        let told = told("tables", &names.map(|name| row(name, Some(1.0))));
        assert_eq!(
            told.iter().map(|(about, _)| about.as_str()).collect::<Vec<_>>(),
            ["`tables.A.A1`", "`tables.A.A2`"]
        );
        assert_eq!(told[0].1[0], "with the technique");
    }

    #[test]
    fn a_sentence_has_value_peer_and_verdict() {
        let mut rows = ["polder", "testpmd"]
            .map(|peer| row(&format!("engine.macswap.ns_per_packet.{peer}"), Some(12.0)));
        (rows[0].goal, rows[0].met) = (Some(10.0), Some(false));
        let rows = rows.iter().collect::<Vec<_>>();
        let groups = groups("engine", &rows);
        let line = &groups[0].lines[0];
        assert_eq!(measured(line), "12.0 ns (29.2 … 31.2), beside testpmd 12.0 ns");
        assert_eq!(goal(line.row).as_deref(), Some("goal at most 10.0 ns"));
        assert_eq!(verdict(line.row).as_deref(), Some("missed by 20 %"));
    }

    #[test]
    fn many_names_are_told_by_their_pattern() {
        let told = |rows: &[&str]| names("engine", rows);
        assert_eq!(told(&["engine.decap.ns_per_packet.flows_1"]), "`engine.decap.ns_per_packet.flows_1`");
        let rows =
            ["engine.route_1k.ns_per_packet", "fib.updates_per_second", "engine.route_1m.ns_per_packet"];
        assert_eq!(told(&rows), "`engine.route_<routes>.ns_per_packet` (2 rows), `fib.updates_per_second`");
    }

    #[test]
    fn a_conclusion_has_at_most_five_lines_and_absent_peers_one() {
        let mut rows = (0..6_u32)
            .map(|number| {
                let value = 10.0 + f64::from(number);
                Row {
                    goal: Some(10.0),
                    met: Some(number == 0),
                    ..row(&format!("engine.x{number}"), Some(value))
                }
            })
            .collect::<Vec<_>>();
        rows.push(row("engine.macswap.ns_per_packet.polder", Some(1.0)));
        let gone = |name: &str, reason: &str| Row { reason: Some(reason.to_owned()), ..row(name, None) };
        rows.push(gone("engine.macswap.ns_per_packet.testpmd", "it is not installed"));
        rows.push(gone("engine.decap.ns_per_packet", LEFT_OUT));
        let told = conclusion("engine", &rows.iter().collect::<Vec<_>>());
        let expected = [
            "1 of 6 goals are held, 5 missed.",
            "Missed by 50 %: `engine.x5`, 15.0 ns, goal at most 10.0 ns.",
            "Missed by 40 %: `engine.x4`, 14.0 ns, goal at most 10.0 ns.",
            "Missed by at most 30 %: 3 more.",
            "Not here: testpmd (it is not installed); and one row was left out.",
        ];
        assert_eq!(told, expected);
    }
}
