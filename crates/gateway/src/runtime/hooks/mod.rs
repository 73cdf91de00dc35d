//! Kernel packet hooks that the gateway bypasses: refused or reported at the start, and watched afterwards.
//! If a hook appears at a port whose packets the kernel can forward, the kernel gets them: the port *yields*.
//!
//! `docs/adr/0059-yield.md` has the reasons.

mod answers;
pub(super) mod decision;
mod eligible;
mod hold;
mod listener;
mod ports;
mod remedy;
mod watch;
mod yields;

pub use ports::ports;
pub use watch::Watch;
pub(in crate::runtime) use yields::YieldingPort;

use super::preflight::{PreflightFinding, Severity};
use crate::config::model::{Configuration, KernelHooks, Port};
use crate::kernel::hooks::{self, Bypassed, EachPacket, Inspection};
use anyhow::{Result, bail};
use remedy::{closes, remedy};
use std::collections::BTreeMap;

/// Findings about hooks that the ports of a configuration bypass.
pub(super) fn findings(configuration: &Configuration) -> Vec<PreflightFinding> {
    seen(configuration, &hooks::inspect(&ports(configuration)))
}

fn seen(configuration: &Configuration, inspection: &Inspection) -> Vec<PreflightFinding> {
    let bypassed = inspection.bypassed.iter().map(|bypassed| {
        let (severity, text) = match is_acknowledged(configuration, bypassed) {
            true => (Severity::Warning, format!("bypassed because of `kernel_hooks`: {}", bypassed.text())),
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

/// Findings about connections that stay with the kernel.
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

/// Reason why a gateway with this port does not start, and the remedy.
fn refusal(bypassed: &Bypassed, configuration: &Configuration) -> String {
    let opens = if closes(bypassed) { ", which lets packets pass that this rule would stop" } else { "" };
    let port = configuration.ports.iter().find(|port| port.name == bypassed.port);
    let why = port.and_then(|port| decision::why_not(configuration, port));
    let why = why
        .map(|why| format!("; the kernel cannot decide in place of the router: {why}"))
        .unwrap_or_default();
    format!(
        "packets that Polder takes here bypass this: {}; {}; or accept the bypass with `kernel_hooks = \
         \"bypass\"` in [port.{}]{opens}{why}",
        bypassed.text(),
        remedy(bypassed, configuration),
        bypassed.port
    )
}

/// Finds hooks that `ports` bypass, and refuses those that the configuration does not acknowledge.
///
/// # Errors
/// Lists the hooks with their remedies.
pub(super) fn admit(configuration: &Configuration, ports: &[hooks::Port]) -> Result<Inspection> {
    let inspection = hooks::inspect(ports);
    let seen = seen(configuration, &inspection);
    let refused = seen.iter().filter(|seen| seen.severity == Severity::Problem);
    let refused = refused.map(|seen| format!("[{}] {}", seen.of, seen.text)).collect::<Vec<_>>();
    if !refused.is_empty() {
        bail!(
            "rules of the kernel would be bypassed, and the configuration does not permit that:\n{}",
            refused.join("\n")
        );
    }
    Ok(inspection)
}

/// As [`admit`], for ports of `next` that are new or have another role or acknowledgement than in `current`.
/// Hooks at other ports do not prevent a reload.
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
    inspection.unread.iter().for_each(|text| tracing::warn!("{text}: bypassed rules there are unknown"));
}

/// Topic of these findings.
const TOPIC: &str = "kernel hooks";
