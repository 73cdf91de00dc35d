//! Capabilities and seccomp mode of the gateway's threads, as the kernel reports them.

use crate::sandbox;
use crate::show::workers::ConfinedRow;
use std::collections::HashMap;

/// Threads whose names begin with `prefix`, by name; threads that /proc does not show are left out.
pub(super) fn threads(prefix: &str) -> HashMap<String, ConfinedRow> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let rows = texts.filter_map(|text| {
        let name = field(&text, "Name")?;
        name.starts_with(prefix).then(|| (name.to_owned(), row(&text)))
    });
    rows.collect()
}

/// Reads one thread's status.
///
/// Source: Linux, Documentation/filesystems/proc.rst, `/proc/PID/status`. Landlock has no line there.
fn row(text: &str) -> ConfinedRow {
    /// `SECCOMP_MODE_FILTER`.
    const FILTERED: &str = "2";
    let effective = field(text, "CapEff").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let names = |mask: u64| {
        let kept = caps::all().into_iter().filter(|capability| mask & capability.bitmask() != 0);
        let mut names = kept.map(|capability| capability.to_string()).collect::<Vec<_>>();
        names.sort_unstable();
        names
    };
    ConfinedRow {
        calls: field(text, "Seccomp") == Some(FILTERED),
        files: sandbox::process().is_some_and(|process| process.landlock.is_ok()),
        capabilities: effective.map(names),
    }
}

fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(known, _)| *known == name).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_filter_and_capabilities() {
        let text =
            "Name:\tworker-0\nCapEff:\t0000000000801000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        let found = row(text);
        let kept = ["CAP_NET_ADMIN", "CAP_SYS_NICE"].map(str::to_owned).to_vec();
        assert_eq!(found, ConfinedRow { calls: true, files: false, capabilities: Some(kept) });
        assert!(!row("Name:\tworker-0\nSeccomp:\t0\n").calls);
    }
}
