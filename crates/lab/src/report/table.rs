//! A report on the terminal.

use super::sentences::{self, Group, Line};
use super::{Report, number};
use polder_testbed::screen::Screen;

/// Prints a report.
pub fn print(screen: Screen, report: &Report) {
    let quick = if report.quick { " (quick)" } else { "" };
    screen.heading(&format!("{}{quick}", report.scenario));
    let machine = &report.machine;
    let facts = format!("{} · Linux {} · {}", machine.commit, machine.kernel, machine.cpu);
    screen.line(format!("  {}", screen.dim(&facts)));
    let idle = machine.cores_idle.iter().map(|percent| format!("{percent:.0}"));
    let idle = idle.collect::<Vec<_>>().join(" and ");
    let memory = &machine.memory;
    let apart = machine.cores_in_words().map_or_else(String::new, |words| format!(", {words}"));
    let state = format!(
        "memory {} GB/s, {} ns · cores {idle} % idle before{apart}",
        number(memory.bandwidth / 1e9),
        number(memory.latency)
    );
    screen.line(format!("  {}", screen.dim(&state)));
    for place in &report.placement {
        screen.line(format!(
            "  {}",
            screen.dim(&format!("core {}: {} ({})", place.core, place.what, place.how))
        ));
    }
    let rows = report.rows.iter().collect::<Vec<_>>();
    for sentence in sentences::conclusion(&report.scenario, &rows) {
        screen.line(format!("  {}", screen.bold(&sentence)));
    }
    for group in sentences::groups(&report.scenario, &rows) {
        screen.line("");
        print_group(screen, &group);
    }
    for what in &report.left_out {
        screen.line(format!("  {} {what}", screen.accent("left out:")));
    }
}

/// A subject, and a sentence for each of its rows with the row's name.
fn print_group(screen: Screen, group: &Group<'_>) {
    let head = group.lines.first().filter(|line| line.label.is_empty());
    match head {
        Some(line) => screen.line(format!("  {}", sentence(screen, &group.about, line))),
        None => screen.line(format!("  {}", screen.bold(&group.about))),
    }
    for line in group.lines.iter().skip(usize::from(head.is_some())) {
        screen.line(format!("    {}", sentence(screen, &line.label, line)));
    }
}

fn sentence(screen: Screen, what: &str, line: &Line<'_>) -> String {
    let mut text = format!("{what}: {}", screen.bold(&sentences::measured(line)));
    if let Some(goal) = sentences::goal(line.row) {
        let verdict = sentences::verdict(line.row).unwrap_or_else(|| "not judged".to_owned());
        let verdict = match line.row.met {
            Some(true) => screen.good(&format!("✓ {verdict}")),
            Some(false) => screen.bad(&format!("✗ {verdict}")),
            None => verdict,
        };
        text.push_str(&format!("; {goal} {verdict}"));
    }
    let remark = line.row.reason.as_ref().map_or_else(String::new, |reason| format!("; {reason}"));
    format!("{text}.  {}", screen.dim(&format!("{}{remark}", line.row.name)))
}
