//! Longer texts of events.

use crate::show::look::grouped;

/// Finding about another application's BPF program that receives a port's packets first.
pub fn program_in_front(program: &str) -> String {
    format!(
        "the program {program} has its packets first, and those that it takes do not come in: `bpftool net` shows it"
    )
}

pub(super) fn synchronized(settled: bool) -> &'static str {
    if settled {
        "routes: all of the kernel's tables are known"
    } else {
        "routes: the kernel's tables are read again"
    }
}

pub(super) fn held_routes(protocol: &str, held: bool, routes: u64) -> String {
    let count = grouped(routes);
    match (held, routes) {
        (true, _) => format!("routes: {protocol} has ended; its {count} routes are held"),
        (false, 0) => format!("routes: {protocol} is back with all routes"),
        (false, _) => format!("routes: {count} of {protocol} did not come back in time, and go"),
    }
}

pub(super) fn of_vlan(vlan: Option<u16>) -> String {
    vlan.map(|vlan| format!(" (VLAN {vlan})")).unwrap_or_default()
}

pub(super) fn refused(full: u64, share: u64) -> String {
    let full = (full > 0).then(|| format!("{} found the table full", grouped(full)));
    let share = (share > 0)
        .then(|| format!("{} are of a source address that has a quarter of the table", grouped(share)));
    let why = full.into_iter().chain(share).collect::<Vec<_>>().join("; ");
    format!("connections stay with the kernel: {why}")
}
