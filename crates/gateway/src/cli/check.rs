//! `polder check`: all errors of a configuration, and all requirements that this host does not meet.

use super::arguments::Check;
use super::failure::{FAILED, Failure, WRONG};
use super::screen::Screen;
use crate::config::model::Configuration;
use crate::config::{LoadError, Report, load};
use crate::runtime::preflight::{self, PreflightFinding, Severity};
use crate::show::Layout;
use serde_json::json;

pub(super) fn check(arguments: &Check) -> Result<(), Failure> {
    let loaded = match load(&arguments.file) {
        Ok(loaded) => loaded,
        Err(LoadError::Invalid(report)) if arguments.json => {
            print_json(&report, &[])?;
            return Err(Failure::Told(WRONG));
        }
        Err(error) => return Err(error.into()),
    };
    let seen = match arguments.no_preflight {
        true => Vec::new(),
        false => preflight::inspect(&loaded.configuration),
    };
    if arguments.json {
        print_json(&loaded.warnings, &seen)?;
    } else {
        let screen = Screen::stdout();
        let layout = screen.layout();
        let mut text = loaded.warnings.render(layout.colour);
        text.push_str(&summary(&loaded.configuration, &arguments.file.display().to_string(), layout));
        text.push_str(&draw(&seen, layout));
        screen.write(&text)?;
    }
    let worst = seen.iter().map(|seen| seen.severity).max();
    if worst == Some(Severity::Problem) { Err(Failure::Told(FAILED)) } else { Ok(()) }
}

fn print_json(report: &Report, seen: &[PreflightFinding]) -> std::io::Result<()> {
    let findings = report.findings().collect::<Vec<_>>();
    let text = json!({ "format": 1, "findings": findings, "preflight": seen });
    Screen::stdout().write(&format!("{text}\n"))
}

fn summary(configuration: &Configuration, file: &str, layout: Layout) -> String {
    let count = |number: usize, noun: &str| match number {
        0 => None,
        1 => Some(format!("1 {noun}")),
        several => Some(format!("{several} {noun}s")),
    };
    let parts = [
        count(configuration.ports.len(), "port"),
        count(configuration.tunnels.len(), "tunnel"),
        count(configuration.bridges.len(), "bridge"),
    ];
    let parts = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    format!("{} {file}: {parts}\n", layout.good("✓"))
}

fn draw(seen: &[PreflightFinding], layout: Layout) -> String {
    let mut text = String::new();
    let mut last = "";
    for finding in seen {
        if finding.of != last {
            text.push_str(&format!("\n{}\n", layout.bold(&format!("[{}]", finding.of))));
            last = &finding.of;
        }
        let mark = match finding.severity {
            Severity::Fine => layout.good("✓"),
            Severity::Warning => layout.odd("!"),
            Severity::Problem => layout.bad("✗"),
        };
        text.push_str(&layout.entry(&mark, &finding.topic, &finding.text));
    }
    text
}
