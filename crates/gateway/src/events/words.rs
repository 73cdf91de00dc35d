//! Longer texts of events.

use crate::show::layout::grouped;

/// Finding about another application's BPF program that receives a port's packets first.
pub fn program_in_front(program: &str) -> String {
    format!(
        "the eBPF program {program} runs before Polder's, and packets that it consumes do not arrive: \
         `bpftool net` shows it"
    )
}

pub(super) fn synchronized(settled: bool) -> &'static str {
    if settled {
        "routes: the kernel's tables have been read"
    } else {
        "routes: reading the kernel's tables again"
    }
}

pub(super) fn held_routes(protocol: &str, held: bool, routes: u64) -> String {
    let count = grouped(routes);
    match (held, routes) {
        (true, _) => format!("routes: {protocol} has ended; its {count} routes are kept"),
        (false, 0) => format!("routes: {protocol} has installed all its routes again"),
        (false, _) => format!("routes: removed {count} routes that {protocol} did not install again in time"),
    }
}

pub(super) fn of_vlan(vlan: Option<u16>) -> String {
    vlan.map(|vlan| format!(" (VLAN {vlan})")).unwrap_or_default()
}

pub(super) fn refused(full: u64, share: u64) -> String {
    let full = (full > 0).then(|| format!("{} found the table full", grouped(full)));
    let share = (share > 0).then(|| {
        format!("{} refused because their source address already has a quarter of the table", grouped(share))
    });
    let why = full.into_iter().chain(share).collect::<Vec<_>>().join("; ");
    format!("connections stay with the kernel: {why}")
}
