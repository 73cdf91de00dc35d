//! A report on the terminal.

use super::{Better, Report, Row, number};
use crate::screen::Screen;

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
    screen.line("");
    let name = report.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let unit = report.rows.iter().map(|row| row.unit.chars().count()).max().unwrap_or(0);
    for row in &report.rows {
        screen.line(format!("  {}", line(screen, row, name, unit)));
    }
    for what in &report.left_out {
        screen.line(format!("  {} {what}", screen.accent("left out:")));
    }
}

fn line(screen: Screen, row: &Row, name: usize, unit: usize) -> String {
    let value = format!("{:>11}", row.shown());
    let value = if row.value.is_some() { screen.bold(&value) } else { screen.bad(&value) };
    let spread = match row.spread.filter(|_| row.samples > 1) {
        Some((low, high)) => format!("{} … {}", number(low), number(high)),
        None => String::new(),
    };
    let mut text =
        format!("{:<name$} {value} {:<unit$}  {}", row.name, row.unit, screen.dim(&format!("{spread:<21}")));
    if let Some(goal) = row.goal {
        let sign = match row.better {
            Better::Higher => "≥",
            Better::Lower => "≤",
        };
        let verdict = match row.met {
            Some(true) => screen.good("✓ met"),
            Some(false) => screen.bad("✗ missed"),
            None => "not judged".to_owned(),
        };
        text.push_str(&format!(" goal {sign} {} {verdict}", number(goal)));
    }
    if let Some(reason) = &row.reason {
        text.push_str(&format!(" {}", screen.dim(reason)));
    }
    text.trim_end().to_owned()
}
