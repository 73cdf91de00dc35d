//! Traffic of this host that is lost when a port takes all frames of an interface.
//!
//! A bridge port takes every frame, so the kernel receives nothing for its own addresses there: addresses of
//! the interface, of VLANs above it, and of its bridge or bond. Underlay and router ports leave the host's
//! packets to the kernel. `polder check` reports the loss; `polder run` and `polder reload` refuse it without
//! `--yes` (ADR 0054).

mod host_state;

use super::preflight::{PreflightFinding, Severity};
use crate::config::model::{Configuration, Port, Role};
use anyhow::{Result, bail};
use host_state::Connection;
pub(super) use host_state::{HostState, is_stacked, with_uppers};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Findings about all ports of a configuration.
pub(super) fn findings(configuration: &Configuration) -> Vec<PreflightFinding> {
    of_ports(&configuration.ports.iter().collect::<Vec<_>>(), configuration)
}

/// Refuses a configuration whose ports take traffic of this host, unless `yes`; then each finding is logged.
///
/// # Errors
/// Lists the traffic that would be lost, with a remedy.
pub(super) fn admit(configuration: &Configuration, yes: bool) -> Result<()> {
    decide(&findings(configuration), yes, "run")
}

/// As [`admit`], for ports that `next` takes and `current` does not.
///
/// # Errors
/// As [`admit`].
pub(super) fn admit_new(current: &Configuration, next: &Configuration, yes: bool) -> Result<()> {
    let is_known = |port: &Port| taken(current).any(|known| known.device.name() == port.device.name());
    let new = next.ports.iter().filter(|port| !is_known(port)).collect::<Vec<_>>();
    decide(&of_ports(&new, next), yes, "reload")
}

fn decide(found: &[PreflightFinding], yes: bool, command: &str) -> Result<()> {
    if yes {
        found.iter().for_each(|found| tracing::warn!("[{}] {TOPIC}: {}", found.of, found.text));
        return Ok(());
    }
    if found.is_empty() {
        return Ok(());
    }
    let lines = found.iter().map(|found| format!("[{}] {}", found.of, found.text)).collect::<Vec<_>>();
    bail!(
        "this host would lose its own traffic, so nothing was changed:\n{}\n`polder {command} --yes` \
         applies it anyway; with `--confirm 60` it is reverted after 60 s unless `polder confirm` is run",
        lines.join("\n")
    )
}

/// Bridge ports of a configuration that take all frames of an interface.
fn taken(configuration: &Configuration) -> impl Iterator<Item = &Port> {
    configuration.ports.iter().filter(|port| is_taken(port))
}

fn is_taken(port: &Port) -> bool {
    port.role == Role::Bridge && port.device.interface().is_some()
}

fn of_ports(ports: &[&Port], configuration: &Configuration) -> Vec<PreflightFinding> {
    if !ports.iter().any(|port| is_taken(port)) {
        return Vec::new();
    }
    let interfaces = ports.iter().filter(|port| is_taken(port)).filter_map(|port| port.device.interface());
    judge(ports, configuration, &HostState::look(interfaces))
}

fn judge(ports: &[&Port], configuration: &Configuration, host: &HostState) -> Vec<PreflightFinding> {
    let finding = |port: &&&Port| {
        let interface = port.device.interface().filter(|_| is_taken(port))?;
        let silent = host.silent_with(interface);
        let losses = losses(&silent, host);
        (!losses.is_empty()).then(|| {
            let (of, text) = (format!("port.{}", port.name), text(interface, &losses, port, configuration));
            PreflightFinding::new(of, Severity::Warning, TOPIC, text)
        })
    };
    ports.iter().filter_map(|port| finding(&port)).collect()
}

/// Losses for interfaces that receive nothing, as phrases.
fn losses(silent: &BTreeSet<u32>, host: &HostState) -> Vec<String> {
    let own = host.addresses.iter().filter(|own| silent.contains(&own.index));
    let own = own.collect::<Vec<_>>();
    let is_own = |address: IpAddr| own.iter().any(|own| own.address == address);
    let mut losses = Vec::new();
    // Link-local addresses are left out: every interface has them.
    let told = own.iter().filter(|own| !is_of_link(own.address));
    let told = told.map(|own| format!("{}/{} ({})", own.address, own.bits, host.name(own.index)));
    let told = told.collect::<Vec<_>>();
    if !told.is_empty() {
        losses.push(format!("its own {}", some(&told)));
    }
    for (index, gateway) in &host.default_routes {
        if silent.contains(index) {
            let by = gateway.map(|gateway| format!(" by {gateway}")).unwrap_or_default();
            losses.push(format!("the default route{by}"));
        }
    }
    if let Some(login) = host
        .login
        .filter(|login| is_own(login.server) || login.way_back.is_some_and(|index| silent.contains(&index)))
    {
        losses.push(format!("your login (SSH from {})", login.client));
    }
    let others = host.connections.iter().filter(|open| is_own(open.local.ip()));
    let others = others.map(|Connection { local, remote }| format!("{remote} to port {}", local.port()));
    let others = others.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
    if !others.is_empty() {
        losses.push(format!("open TCP connections: from {}", some(&others)));
    }
    losses
}

fn text(interface: &str, losses: &[String], port: &Port, configuration: &Configuration) -> String {
    let bridge = configuration.bridge_of(port.id).map_or("the bridge", |bridge| &bridge.name);
    format!(
        "Polder takes all packets of {interface}, so this host would lose {}: give the addresses to a TAP \
         that is a member of {bridge} (`tap = \"…\"`), or manage this host by another interface",
        losses.join("; ")
    )
}

pub(super) fn is_of_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// The first entries of a list, and the number of others.
pub(super) fn some(list: &[String]) -> String {
    const MOST: usize = 4;
    let more = list.len().saturating_sub(MOST);
    let first = list.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    if more == 0 { first } else { format!("{first} and {more} more") }
}

/// Topic of these findings.
const TOPIC: &str = "unreachable";

#[cfg(test)]
mod tests;
