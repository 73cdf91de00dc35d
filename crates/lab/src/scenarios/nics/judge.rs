//! `polder check` beside the gateway's behaviour: each warning has to come true without its remedy and not
//! with it, and each fault has to have a warning.

use super::bench::{Bench, Told};
use super::checks::{Cell, ping};
use polder_testbed::guest::agent::Request;
use std::time::Duration;

/// Time for a gateway that is expected to fail.
const SHORT: Duration = Duration::from_secs(8);

/// The gateway runs: each of its warnings must have been predicted by `polder check`, and each prediction must come
/// true.
pub(super) fn judge_start(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    let log = cell.bench.log();
    for line in log.lines().filter(|line| line.contains(" WARN port ") || line.contains(" ERROR ")) {
        let known = |told: &Told| {
            told.severity != "fine" && line.contains(&format!(" {}: {}: ", port(told), told.topic))
        };
        if !cell.told.iter().any(known) {
            cell.verdict.missed.push(format!("`run` says: {line}"));
        }
    }
    for told in cell.told.clone().iter().filter(|told| told.severity != "fine") {
        let seen = match told.topic.as_str() {
            "mode" => cell.verdict.mode.contains("generic"),
            // The check of tagged frames sees to it.
            "tags" => continue,
            _ => log.contains(&format!("{}: {}: ", port(told), told.topic)),
        };
        if !seen {
            cell.verdict.false_alarms.push(format!("{}: {}: {}", told.of, told.topic, told.text));
        }
    }
    Ok(())
}

/// `port a` of `port.a`.
fn port(told: &Told) -> String {
    told.of.replace('.', " ")
}

/// Applies the remedies that `check` names: its warnings must disappear, and the gateway must work. The gateway is
/// stopped.
pub(super) fn cures(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    const TOPIC: &str = "receiving";
    let warned = cell.told.iter().filter(|told| told.topic == TOPIC && told.severity != "fine");
    let files = warned.flat_map(|told| told.text.split("`echo 1 > ").skip(1));
    let files = files.filter_map(|text| text.split('`').next().map(str::to_owned)).collect::<Vec<_>>();
    if files.is_empty() {
        return Ok(());
    }
    for file in &files {
        cell.bench.guest.ask(&Request::Write(file.clone(), "1".to_owned()))?;
    }
    cell.bench.configure("")?;
    let left = cell.bench.check()?.into_iter().filter(|told| told.topic == TOPIC && told.severity != "fine");
    let left = left.map(|told| format!("with its cure: {}", told.text)).collect::<Vec<_>>();
    cell.verdict.false_alarms.extend(left);
    cell.bench.start()?;
    let result = ping(cell.bench, 2);
    cell.bench.stop()?;
    for file in files {
        cell.bench.guest.ask(&Request::Write(file, "0".to_owned()))?;
    }
    result
}

/// Modes that are asked for: `check` says a problem where the port does not open, and nothing where it does.
pub(super) fn forced_modes(cell: &mut Cell<'_>) -> anyhow::Result<()> {
    for mode in ["native", "zero-copy", "generic"] {
        let gateway = "slot_bytes = 4096";
        let lan = "[bridge.lan]\nmembers = [\"a\", \"b\"]\n";
        cell.bench.configure_ports(gateway, &format!("mode = \"{mode}\""), lan)?;
        let told = cell.bench.check()?;
        let about = told.iter().find(|told| told.topic == "mode").cloned();
        let opens = opens(cell.bench)?;
        cell.bench.end()?;
        let Some(about) = about else { continue };
        let doubts = about.text.contains("opening the port fails");
        let text = format!(
            "mode = \"{mode}\": {} ({})",
            about.text,
            if opens { "it opens" } else { "it does not open" }
        );
        match (about.severity.as_str(), opens) {
            ("problem", true) => cell.verdict.false_alarms.push(text),
            ("fine" | "warning", false) if !doubts => cell.verdict.missed.push(text),
            _ => {}
        }
    }
    Ok(())
}

fn opens(bench: &mut Bench) -> anyhow::Result<bool> {
    let started = bench.start_within(SHORT);
    polder_testbed::interrupt::check()?;
    Ok(started.is_ok())
}
