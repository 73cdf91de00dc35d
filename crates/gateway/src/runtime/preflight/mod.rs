//! Checks of this host before a start, without side effects.

mod host_state;
mod kernel_tunnels;
mod lost_receivers;
mod mtu;
mod router;
pub(super) mod tags;

use super::hooks::{self, decision};
use super::host_traffic;
use super::liveness::look_at_keys;
use super::neighbour;
use super::path::first_hop;
use super::patterns;
use crate::config::model::{Configuration, Port, Sandbox, Tunnel};
use crate::device;
pub use crate::device::Severity;
use crate::sandbox;
use anyhow::{Result, ensure};
use polder_devices::af_xdp::STATE;
use polder_devices::netlink::Client;
use serde::Serialize;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;

/// A finding of the checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PreflightFinding {
    /// Table of the configuration, such as `port.lan`.
    pub of: String,
    /// Severity.
    pub severity: Severity,
    /// Topic, as a word or two.
    pub topic: String,
    /// Description, with the remedy.
    pub text: String,
    /// Object of this host that the finding is about, if any.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

/// Object of this host that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// An interface, a socket or a setting.
    pub object: String,
    /// Command that shows the object.
    pub probe: String,
    /// Remedy; empty if none is needed.
    pub remedy: String,
}

impl PreflightFinding {
    pub(super) fn new(of: String, severity: Severity, topic: &str, text: String) -> Self {
        Self { of, severity, topic: topic.to_owned(), text, evidence: None }
    }

    /// A finding about an object; its text begins with the object's name, then `effect`.
    fn about(of: String, severity: Severity, topic: &str, effect: &str, evidence: Evidence) -> Self {
        let Evidence { object, probe, remedy } = &evidence;
        let end = if remedy.is_empty() { String::new() } else { format!(": {remedy}") };
        let text = format!("{object} {effect} (`{probe}`){end}");
        Self { evidence: Some(evidence), ..Self::new(of, severity, topic, text) }
    }
}

/// Checks the devices, addresses and CPUs that `configuration` needs.
pub fn inspect(configuration: &Configuration) -> Vec<PreflightFinding> {
    let mut settled = configuration.clone();
    decision::settle(&mut settled);
    let configuration = &settled;
    let mut seen = cpus(configuration);
    seen.extend(configuration.decided.as_deref().map(decided));
    for port in &configuration.ports {
        seen.extend(inspect_port(port, configuration));
    }
    for tunnel in &configuration.tunnels {
        let port = configuration.ports.iter().find(|port| port.id == tunnel.port);
        // On other ports, addresses and routes are Polder's own.
        if let Some(interface) = port.and_then(|port| port.device.interface()) {
            seen.extend(inspect_tunnel(tunnel, interface));
        }
    }
    seen.extend(configuration.tunnels.iter().filter_map(inspect_keys));
    seen.extend(patterns::findings(configuration));
    seen.extend(kernel_tunnels::inspect(configuration));
    seen.extend(tags::findings(configuration));
    seen.extend(mtu::findings(configuration));
    seen.extend(host_traffic::findings(configuration));
    seen.extend(hooks::findings(configuration));
    seen.extend(router::inspect(configuration));
    seen.extend(lost_receivers::inspect(configuration));
    seen.extend(share(configuration));
    seen.extend(confinement(configuration));
    let granted = caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_NET_ADMIN);
    if !granted.unwrap_or(true) {
        leave_rights_out(&mut seen);
    }
    seen
}

/// Finding that the kernel decides about routed packets.
fn decided(hook: &str) -> PreflightFinding {
    let text = format!(
        "the kernel decides about the router's packets, and ports carry the connections that it \
                 admits: {hook}"
    );
    PreflightFinding::new("router".to_owned(), Severity::Fine, "decide", text)
}

/// Replaces findings about missing rights by one: root and service managers have the rights.
fn leave_rights_out(seen: &mut Vec<PreflightFinding>) {
    let count = seen.len();
    seen.retain(|found| !matches!(found.topic.as_str(), "rights" | "memory lock"));
    if seen.len() < count {
        let text = "this check ran without the rights of a gateway: `sudo polder check` also examines rules \
                    of the kernel and other namespaces";
        let finding =
            PreflightFinding::new("gateway".to_owned(), Severity::Warning, "rights", text.to_owned());
        seen.insert(0, finding);
    }
}

/// Checks whether the device of `port` can be opened. Returns warnings that do not prevent it, a line each.
///
/// # Errors
/// The obstacle, with the port and the remedy.
pub(super) fn probe(port: &Port, configuration: &Configuration) -> Result<Vec<String>> {
    let found = device::inspect(port, configuration).into_iter();
    let (rest, against) = found.partition::<Vec<_>, _>(|found| found.opens);
    let of = table(port, configuration);
    let told = |found: &device::Finding| format!("{of}: {}: {}", found.topic, found.text);
    ensure!(against.is_empty(), "{}", against.iter().map(told).collect::<Vec<_>>().join("\n"));
    Ok(rest.iter().filter(|found| found.severity > Severity::Fine).map(told).collect())
}

/// Table of the file that a port is of: its own, or that of the tunnel whose device it has.
fn table(port: &Port, configuration: &Configuration) -> String {
    let mut tunnels = configuration.tunnels.iter();
    let tunnel =
        port.device.tun().and_then(|name| tunnels.find(|tunnel| tunnel.device.as_deref() == Some(name)));
    tunnel.map_or_else(|| format!("port.{}", port.name), |tunnel| format!("tunnel.{}", tunnel.name))
}

fn inspect_port(port: &Port, configuration: &Configuration) -> Vec<PreflightFinding> {
    let of = table(port, configuration);
    // A bridge port on an interface with a master is reported by another check.
    let is_of_master = |found: &device::Finding| found.topic == STATE && found.severity == Severity::Warning;
    let found = device::inspect(port, configuration).into_iter().filter(|found| !is_of_master(found));
    let seen = found.map(|device::Finding { severity, topic, text, .. }| {
        PreflightFinding::new(of.clone(), severity, topic, text)
    });
    seen.collect()
}

/// Finding about the BFD keys of a tunnel.
fn inspect_keys(tunnel: &Tunnel) -> Option<PreflightFinding> {
    let (severity, text) = match look_at_keys(tunnel)? {
        Err(why) => (Severity::Problem, why),
        Ok((_, path)) if is_open_to_others(path) => {
            let text = format!("{path} is readable by every user of this host: `chmod 600 {path}`");
            (Severity::Warning, text)
        }
        Ok((count, path)) => (Severity::Fine, format!("{count} in {path}; sent packets use the first key")),
    };
    Some(PreflightFinding::new(format!("tunnel.{}", tunnel.name), severity, "keys", text))
}

/// True if users other than the owner and the group can read a file.
fn is_open_to_others(path: &str) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o004 != 0)
}

fn inspect_tunnel(tunnel: &Tunnel, interface: &str) -> Vec<PreflightFinding> {
    let of = format!("tunnel.{}", tunnel.name);
    let finding = |severity, topic: &str, text| PreflightFinding::new(of.clone(), severity, topic, text);
    let warning = |topic: &str, text| finding(Severity::Warning, topic, text);
    let Ok(socket) = UdpSocket::bind((tunnel.local, 0)) else {
        if UdpSocket::bind((tunnel.remote, 0)).is_ok() {
            let text = format!(
                "the ends are swapped: {} is an address of this host, but {} is not; `local` is the address \
                 of this end",
                tunnel.remote, tunnel.local
            );
            return vec![warning("ends", text)];
        }
        let text = format!(
            "{0} is not an address of this host, so ARP and neighbour discovery for it are not answered: \
             `ip address add {0}/{1} dev lo`",
            tunnel.local,
            if tunnel.is_v6() { 128 } else { 32 },
        );
        return vec![warning("local", text)];
    };
    // Connecting a UDP socket sends nothing; it only looks up a route.
    const DISCARD: u16 = 9;
    let to = tunnel.next_hop.unwrap_or(tunnel.remote);
    // A link-local address needs no route; connecting to it would need a scope.
    let on_link = matches!(to, IpAddr::V6(address) if address.is_unicast_link_local());
    if tunnel.next_hop_mac.is_some() || on_link {
        return Vec::new();
    }
    if socket.connect((to, DISCARD)).is_err() {
        let text = format!(
            "there is no route to {to}: give the interface an address in its network, or set `next_hop_mac`",
        );
        return vec![warning("next hop", text)];
    }
    let found = tunnel.next_hop.is_none().then(|| route_to_remote(tunnel, interface)).flatten();
    let Some((severity, text, router)) = found else { return Vec::new() };
    let mut seen = vec![finding(severity, "next hop", text)];
    if let Some(router) = router.filter(|_| tunnel.bfd.as_ref().is_some_and(|bfd| !bfd.is_multihop())) {
        let text = format!(
            "{router} lies between the ends and decrements the TTL, so control packets are refused and the \
             tunnel stays down: set `bfd = {{ multihop = true }}`"
        );
        seen.push(finding(Severity::Problem, "bfd", text));
    }
    seen
}

/// Finding about a tunnel's next hop from the kernel's routes, and the next router, if any.
fn route_to_remote(tunnel: &Tunnel, interface: &str) -> Option<(Severity, String, Option<IpAddr>)> {
    let (remote, number) = (tunnel.remote, neighbour::number(interface)?);
    let mut client = Client::open(None).ok()?;
    let ends = (tunnel.local, remote);
    let (by, _) = first_hop(&mut client, None, ends)?;
    if by != number {
        let text = format!(
            "the kernel's route to {remote} uses another interface than {interface} (`ip route get \
             {remote}`), so Polder takes {remote} itself as next hop: add a route through {interface}, or \
             set `next_hop`"
        );
        return Some((Severity::Warning, text, None));
    }
    let (_, router) = first_hop(&mut client, Some(number), ends)?;
    let text = match router {
        Some(router) => format!("{router}, by the kernel's route to {remote}"),
        None => format!("{remote}, which is on the link of {interface}"),
    };
    Some((Severity::Fine, text, router))
}

/// Finding if `cpu_share` cannot be enforced.
fn share(configuration: &Configuration) -> Option<PreflightFinding> {
    let granted = caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_SYS_NICE);
    if configuration.gateway.cpu_share == 100 || granted.unwrap_or(true) {
        return None;
    }
    let text = "missing CAP_SYS_NICE: priorities of workers and NAPI threads cannot be set, so workers may \
                get less than `cpu_share` and NAPI threads take more: run as root, or grant it";
    Some(PreflightFinding::new("gateway".to_owned(), Severity::Warning, "rights", text.to_owned()))
}

/// Findings about the sandbox of the gateway's threads on this host.
fn confinement(configuration: &Configuration) -> Vec<PreflightFinding> {
    let seen = |severity, text| PreflightFinding::new("gateway".to_owned(), severity, "sandbox", text);
    if configuration.gateway.sandbox == Sandbox::Off {
        return Vec::new();
    }
    let found = sandbox::probe();
    let first = seen(Severity::Fine, format!("a worker is confined: {}", found.summary()));
    let lacks = found.missing().into_iter().map(|lack| seen(Severity::Warning, lack));
    std::iter::once(first).chain(lacks).collect()
}

/// Finding about configured CPUs that this process may not use.
fn cpus(configuration: &Configuration) -> Vec<PreflightFinding> {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    let is_there =
        |cpu: u16| usize::from(cpu) < rustix::thread::CpuSet::MAX_CPU && allowed.is_set(cpu.into());
    let missing = configuration.gateway.cpus.iter().filter(|&&cpu| !is_there(cpu));
    let missing = missing.map(ToString::to_string).collect::<Vec<_>>();
    if missing.is_empty() {
        return Vec::new();
    }
    let text = format!(
        "this process may not use CPU {}; it may use {} CPUs (`taskset -cp $$`)",
        missing.join(", "),
        allowed.count()
    );
    vec![PreflightFinding::new("gateway".to_owned(), Severity::Warning, "cpus", text)]
}
