//! Numbers of ports and tunnels that stay the same over a reload.

use crate::config::buffers::is_registered;
use crate::config::difference::PREPARED;
use crate::config::model::{Configuration, Order};
use anyhow::{Result, bail};
use polder_buffers::PortId;
use std::collections::HashMap;

/// Gives the ports and tunnels of `next` the numbers that those of the same name have in `current`, and
/// new ones numbers that `current` does not use.
pub(super) fn keep_numbers(current: &Configuration, next: &mut Configuration) {
    let mut taken = current.names().map(|(id, _)| id).collect::<Vec<_>>();
    let mut map = HashMap::new();
    for (id, name) in next.names() {
        let kept = current.id_of(name).unwrap_or_else(|| {
            let free = (0..).map(PortId).find(|id| !taken.contains(id)).unwrap_or(id);
            taken.push(free);
            free
        });
        map.insert(id, kept);
    }
    let renumber = |id: &mut PortId| *id = map.get(id).copied().unwrap_or(*id);
    for port in &mut next.ports {
        renumber(&mut port.id);
    }
    for tunnel in &mut next.tunnels {
        renumber(&mut tunnel.id);
        renumber(&mut tunnel.port);
    }
    for bridge in &mut next.bridges {
        bridge.members.iter_mut().for_each(|member| renumber(&mut member.port));
        bridge.static_entries.iter_mut().for_each(|entry| renumber(&mut entry.port));
    }
    for filter in &mut next.filters {
        filter.ports.iter_mut().for_each(renumber);
        filter.ports.sort_unstable();
    }
    for route in &mut next.router.route {
        route.port.iter_mut().for_each(renumber);
    }
}

/// Whether a configuration takes other workers than the running one: more, fewer, on other CPUs, or such
/// as share their packets.
pub(super) fn needs_other_workers(current: &Configuration, next: &Configuration) -> bool {
    let gateways = [&current.gateway, &next.gateway].map(|gateway| (gateway.workers, &gateway.cpus));
    gateways[0] != gateways[1] || is_shared(next) && !is_shared(current) && next.gateway.workers > 1
}

fn is_shared(configuration: &Configuration) -> bool {
    configuration.ports.iter().any(|port| port.order != Order::Queue)
}

/// Refuses what a running gateway cannot change: the process as a whole, and how a device is attached.
///
/// # Errors
/// All that needs a restart, in one message.
pub(super) fn ensure_reloadable(current: &Configuration, next: &Configuration) -> Result<()> {
    let mut reasons = Vec::new();
    let workers = |of: &Configuration| (of.gateway.workers, of.gateway.cpus.clone());
    let mut gateway = current.gateway.clone();
    (gateway.workers, gateway.cpus) = workers(next);
    if gateway != next.gateway {
        reasons.push("[gateway] has changed".to_owned());
    }
    if current.buffers != next.buffers {
        reasons.push("[buffers] has changed".to_owned());
    }
    if is_registered(next) && !is_registered(current) {
        reasons
            .push("packet memory that grows and shrinks cannot be registered with the interface".to_owned());
    }
    for port in &next.ports {
        if let Some(old) = current.port(port.id)
            && !old.is_attached_like(port)
        {
            reasons.push(format!("[port.{}] has changed", port.name));
        }
    }
    if next.gateway.workers > current.gateway.workers.max(PREPARED) {
        reasons.push(format!("[gateway] has more than {PREPARED} workers"));
    }
    if !reasons.is_empty() {
        bail!("{}; nothing was changed. Restart the gateway to apply it", reasons.join(", "));
    }
    Ok(())
}
