//! Packet hooks of the kernel that the gateway goes round: refused or said at the start, watched from then on. Where the
//! kernel can forward a port's packets, they are left to it when a hook appears: the port *yields*.
//!
//! `docs/adr/0059-yield.md` has the reasons.

mod answers;
pub(super) mod decision;
mod eligible;
mod hold;
mod listener;
mod remedy;
mod watch;
mod yields;

pub use watch::Watch;
pub(in crate::runtime) use yields::YieldingPort;

use super::preflight::{PreflightFinding, Severity};
use crate::config::model::{Configuration, KernelHooks, Port, Role};
use crate::device::{Way, way};
use crate::kernel::hooks::{self, Bypassed, EachPacket, Inspection, Takes, Tunnel};
use anyhow::{Result, bail};
use polder_buffers::PortId;
use remedy::{closes, remedy};
use std::collections::BTreeMap;

/// The ports of a configuration whose packets are taken from the kernel.
pub fn ports(configuration: &Configuration) -> Vec<hooks::Port> {
    // What the machine sends by a TAP has met its hooks, and the kernel does not have an adapter.
    let obstacle = eligible::obstacle(configuration);
    let port = |port: &Port| {
        let interface = port.device.interface()?.to_owned();
        let meets_egress = way(&interface, port) == Way::Skb;
        let (name, takes) = (port.name.clone(), takes(port, configuration));
        let answer = eligible::answer(port, obstacle);
        Some(hooks::Port { name, interface, takes, meets_egress, answer })
    };
    configuration.ports.iter().filter_map(port).collect()
}

fn takes(port: &Port, configuration: &Configuration) -> Takes {
    let over = configuration.tunnels.iter().filter(|tunnel| tunnel.port == port.id);
    let tunnels = over.map(|tunnel| {
        let protocol = tunnel.carrier().protocol().0;
        Tunnel { local: tunnel.local, remote: tunnel.remote, protocol }
    });
    let tunnels = tunnels.collect();
    match port.role {
        Role::Underlay => Takes::Tunnels(tunnels),
        Role::Router => {
            let ports = configuration.ports.iter().filter(|port| port.role == Role::Router);
            let routed = configuration.tunnels.iter().filter(|tunnel| tunnel.is_routed());
            let ids = ports.map(|port| port.id).chain(routed.map(|tunnel| tunnel.id));
            Takes::Router { tunnels, interfaces: ids.map(|id| interface(id, configuration)).collect() }
        }
        Role::Bridge => {
            let bridge = configuration.bridge_of(port.id);
            let members = bridge.into_iter().flat_map(|bridge| &bridge.members);
            let members = members.map(|member| interface(member.port, configuration)).collect();
            Takes::Bridge { bridge: bridge.map(|bridge| bridge.name.clone()).unwrap_or_default(), members }
        }
    }
}

/// The name by which rules may know a port or tunnel.
fn interface(id: PortId, configuration: &Configuration) -> String {
    let known = configuration.port(id).and_then(|port| port.device.kernel_name());
    known.or_else(|| configuration.name_of(id)).unwrap_or_default().to_owned()
}

/// Findings about hooks that the ports of a configuration go round.
pub(super) fn findings(configuration: &Configuration) -> Vec<PreflightFinding> {
    seen(configuration, &hooks::inspect(&ports(configuration)))
}

fn seen(configuration: &Configuration, inspection: &Inspection) -> Vec<PreflightFinding> {
    let bypassed = inspection.bypassed.iter().map(|bypassed| {
        let (severity, text) = match is_acknowledged(configuration, bypassed) {
            true => (Severity::Warning, format!("bypassed, as `kernel_hooks` says: {}", bypassed.text())),
            false => (Severity::Problem, refusal(bypassed, configuration)),
        };
        PreflightFinding::new(format!("port.{}", bypassed.port), severity, TOPIC, text)
    });
    let unread = inspection
        .unread
        .iter()
        .map(|text| PreflightFinding::new("gateway".to_owned(), Severity::Warning, TOPIC, text.clone()));
    bypassed.chain(unread).chain(kept(inspection)).collect()
}

/// Findings about connections that the kernel keeps.
fn kept(inspection: &Inspection) -> impl Iterator<Item = PreflightFinding> {
    let found = |text| PreflightFinding::new("router".to_owned(), Severity::Warning, "connections", text);
    let all = inspection.obstacles.iter().map(|obstacle| format!("none is carried: {obstacle}"));
    let mut rules = BTreeMap::<&str, Vec<String>>::new();
    for EachPacket { ports: [from, to], rule, .. } in &inspection.each_packet {
        rules.entry(rule).or_default().push(format!("{from} to {to}"));
    }
    let some = rules
        .into_iter()
        .map(|(rule, pairs)| format!("the kernel has those from {}: {rule}", pairs.join(", from ")));
    all.chain(some).map(found).collect::<Vec<_>>().into_iter()
}

fn is_acknowledged(configuration: &Configuration, bypassed: &Bypassed) -> bool {
    let port = configuration.ports.iter().find(|port| port.name == bypassed.port);
    port.is_none_or(|port| port.kernel_hooks == KernelHooks::Bypass)
}

/// Reason why a gateway with that port does not start, and the remedy.
fn refusal(bypassed: &Bypassed, configuration: &Configuration) -> String {
    let opens = if closes(bypassed) { ", which lets through what this keeps out" } else { "" };
    let port = configuration.ports.iter().find(|port| port.name == bypassed.port);
    let why = port.and_then(|port| decision::why_not(configuration, port));
    let why =
        why.map(|why| format!("; the kernel cannot decide in the router's place: {why}")).unwrap_or_default();
    format!(
        "packets that Polder takes here never meet this: {}{why}; {}; or go on without it by `kernel_hooks = \"bypass\"` in \
         [port.{}]{opens}",
        bypassed.text(),
        remedy(bypassed, configuration),
        bypassed.port
    )
}

/// Looks for hooks that `ports` go round, and refuses those that the configuration does not acknowledge.
///
/// # Errors
/// With everything that was found and what to do about it.
pub(super) fn admit(configuration: &Configuration, ports: &[hooks::Port]) -> Result<Inspection> {
    let inspection = hooks::inspect(ports);
    let seen = seen(configuration, &inspection);
    let refused = seen.iter().filter(|seen| seen.severity == Severity::Problem);
    let refused = refused.map(|seen| format!("[{}] {}", seen.of, seen.text)).collect::<Vec<_>>();
    if !refused.is_empty() {
        bail!(
            "the kernel would treat packets otherwise, and the file does not say that it knows:\n{}",
            refused.join("\n")
        );
    }
    Ok(inspection)
}

/// The same for ports that `next` has and `current` has not, or not with that role and acknowledgement. What
/// has appeared since at the others stops nothing.
///
/// # Errors
/// As [`admit`].
pub(super) fn admit_new(
    current: &Configuration,
    next: &Configuration,
    ports: &[hooks::Port],
) -> Result<Inspection> {
    let key = |port: &Port| (port.name.clone(), port.device.name(), port.role, port.kernel_hooks);
    let is_known = |name: &str| {
        let next = next.ports.iter().find(|port| port.name == name).map(key);
        current.ports.iter().any(|port| Some(key(port)) == next)
    };
    let new = ports.iter().filter(|port| !is_known(&port.name)).cloned().collect::<Vec<_>>();
    admit(next, &new)
}

/// Logs the bypassed hooks, a line for each.
fn announce(inspection: &Inspection) {
    let mut ports = BTreeMap::<_, Vec<&str>>::new();
    for bypassed in &inspection.bypassed {
        ports.entry(bypassed.text()).or_default().push(&bypassed.port);
    }
    for (text, ports) in ports {
        let noun = if ports.len() == 1 { "port" } else { "ports" };
        tracing::warn!("{noun} {}: kernel hook bypassed: {text}", ports.join(", "));
    }
    inspection.unread.iter().for_each(|text| tracing::warn!("{text}: what is bypassed there is not known"));
}

/// In a word or two.
const TOPIC: &str = "kernel hooks";
