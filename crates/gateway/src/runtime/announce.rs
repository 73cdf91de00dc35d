//! Log messages at the start and the end of a gateway.

use super::gateway::{Gateway, PortState};
use super::show::uptime;
use crate::config::model::Role;
use crate::events::{EventKind, Events};
use crate::show::layout::{duration, grouped};
use polder_datapath::drops::DropReason;
use polder_datapath::units::Nanos;

/// Logs one line for each port, tunnel and bridge, and one when the gateway runs.
pub(super) fn announce(gateway: &Gateway, took: Nanos) {
    let configuration = &gateway.configuration;
    if let Some(before) = &gateway.before {
        tracing::warn!("{before}");
    }
    gateway.ports.iter().for_each(|state| announce_port(state, &gateway.events));
    for tunnel in &configuration.tunnels {
        let over = configuration.name_of(tunnel.port).unwrap_or_default();
        tracing::info!("tunnel {}: {} → {} over {over}", tunnel.name, tunnel.local, tunnel.remote);
    }
    for bridge in &configuration.bridges {
        let names = bridge.members.iter().filter_map(|member| configuration.name_of(member.port));
        tracing::info!("bridge {}: {}", bridge.name, names.collect::<Vec<_>>().join(", "));
    }
    let workers = match configuration.gateway.workers {
        1 => "1 worker".to_owned(),
        several => format!("{several} workers"),
    };
    tracing::info!(
        "polder {} runs gateway {} with {workers} and {} MiB of packet memory, ready after {}; control \
         socket {}",
        env!("CARGO_PKG_VERSION"),
        configuration.gateway.name,
        configuration.gateway.memory_mib,
        duration(took.0),
        configuration.gateway.control.display()
    );
    let version = env!("CARGO_PKG_VERSION").to_owned();
    gateway.events.note_silently(EventKind::Started { gateway: configuration.gateway.name.clone(), version });
}

/// Logs one line for an open port, and one for each of its findings that needs a remedy.
pub(super) fn announce_port(state: &PortState, events: &Events) {
    let name = &state.configuration.name;
    let device = state.configuration.device.name();
    let role = match state.configuration.role {
        Role::Bridge => "",
        Role::Underlay => ", tunnel packets only",
        Role::Router => ", packets to be routed",
    };
    if let Some(facts) = state.facts.as_ref().filter(|_| state.open) {
        let queues =
            if facts.queues == 1 { "1 queue".to_owned() } else { format!("{} queues", facts.queues) };
        let why = facts.mode_reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        let how = format!("{device}, {}{why}, {queues}, MTU {}{role}", facts.mode, facts.mtu);
        events.note(EventKind::PortOpened { port: name.clone(), how });
    }
    for finding in state.handle().map(|handle| handle.findings()).unwrap_or_default() {
        tracing::warn!("port {name}: {finding}");
    }
}

/// Logs the totals of a stopped gateway, and whether every packet is accounted for.
pub(super) fn log_totals(gateway: &Gateway) {
    let accounts = gateway.accounts();
    let queues = gateway.queue_counters();
    let drops = DropReason::ALL
        .iter()
        .map(|&reason| (super::accounts::drops(&gateway.worker_counters(), &queues, reason), reason.name()));
    let mut drops = drops.filter(|(packets, _)| *packets > 0).collect::<Vec<_>>();
    drops.sort_unstable_by(|left, right| right.cmp(left));
    let reasons = drops.iter().take(3).map(|(packets, name)| format!("{name} {}", grouped(*packets)));
    let mut reasons = reasons.collect::<Vec<_>>().join(", ");
    if drops.len() > 3 {
        reasons.push_str(", …");
    }
    let reasons = if reasons.is_empty() { reasons } else { format!(" ({reasons})") };
    tracing::info!(
        "ended after {}: received {}, transmitted {}, dropped {}{reasons}",
        duration(uptime(gateway).0),
        grouped(accounts.received),
        grouped(accounts.transmitted),
        grouped(accounts.dropped),
    );
    match accounts.unaccounted() {
        0 => {}
        missing => tracing::error!("{missing} packets are unaccounted for: please report it"),
    }
}
