//! Addresses of the router's links: who has them, and what they may not be.

use super::super::super::diagnostics::Diagnostic;
use super::super::super::model::Role;
use super::super::super::read::{Draft, TunnelDraft};
use super::super::super::router::InterfaceAddress;
use super::super::super::section::{At, Findings};
use super::covers;

/// What IPv6 asks of every link (RFC 8200, 5).
const LEAST_MTU_V6: u16 = 1280;

/// Looks at the addresses of all links.
pub(super) fn check(draft: &Draft, findings: &Findings) {
    for tunnel in &draft.tunnels {
        has_addresses(tunnel, findings);
        is_pair(tunnel, findings);
        carries_v6(tunnel, findings);
    }
    let ports = draft.ports.iter().filter(|port| port.role == Some(Role::Router));
    let of_ports = ports.flat_map(|port| {
        let addresses = port.addresses.iter().flat_map(|addresses| &addresses.value);
        addresses.map(move |address| (&port.name.value, address))
    });
    let of_tunnels = draft
        .tunnels
        .iter()
        .flat_map(|tunnel| tunnel.own_addresses().map(move |address| (&tunnel.name.value, address)));
    overlaps(&of_ports.chain(of_tunnels).collect::<Vec<_>>(), findings);
}

/// A tunnel of packets has addresses, and one of frames has not.
fn has_addresses(tunnel: &TunnelDraft, findings: &Findings) {
    let name = &tunnel.name.value;
    match (tunnel.kind, &tunnel.addresses) {
        (Some(kind), Some(addresses)) if kind.carries_frames() => {
            let message = format!("`{name}` carries Ethernet frames and has no addresses");
            let remedy = "remove `addresses`, or make it `kind = \"gre\"` at both gateways";
            findings.note(Diagnostic::error(addresses.span.clone(), message).remedy(remedy));
        }
        (Some(kind), None) if !kind.carries_frames() && !tunnel.addresses_unreadable => {
            let message = format!("nobody but Polder has `{name}`, so it needs addresses to route by");
            let remedy = "add `addresses = [\"192.0.2.0/31\", \"2001:db8::/127\"]`";
            findings.note(Diagnostic::error(tunnel.name.span.clone(), message).remedy(remedy));
        }
        (Some(_) | None, _) => {}
    }
}

/// A packet for an address that neither end has goes to and fro until its time to live is used up
/// (RFC 6164, 5.1).
fn is_pair(tunnel: &TunnelDraft, findings: &Findings) {
    for address in tunnel.own_addresses() {
        let (enough, pair) = if address.value.address.is_ipv4() { (30, 31) } else { (126, 127) };
        if address.value.bits < enough {
            let message = format!("a tunnel has two ends, and {} is a network of more", address.value);
            let remedy =
                format!("make it /{pair}: what is for an address that nobody has would go to and fro");
            findings.note(Diagnostic::warning(address.span.clone(), message).remedy(remedy));
        }
    }
}

/// What is not cut has to carry what IPv6 asks for.
fn carries_v6(tunnel: &TunnelDraft, findings: &Findings) {
    let Some(mtu) = tunnel.mtu.as_ref().filter(|mtu| mtu.value < LEAST_MTU_V6) else { return };
    let v6 = tunnel.own_addresses().find(|address| address.value.address.is_ipv6());
    if let Some(address) = v6.filter(|_| tunnel.dont_fragment == Some(true)) {
        let message = format!("an MTU of {} is too small for IPv6", mtu.value);
        findings.note(
            Diagnostic::error(mtu.span.clone(), message)
                .related(address.span.clone(), "the address")
                .remedy(format!("set `mtu = {LEAST_MTU_V6}` or more, or `dont_fragment = false`")),
        );
    }
}

/// Two links cannot have the same network.
fn overlaps(all: &[(&String, &At<InterfaceAddress>)], findings: &Findings) {
    for (index, (name, address)) in all.iter().enumerate() {
        let clash = all[..index].iter().find(|(other, earlier)| {
            let same_link = other == name && earlier.value.address != address.value.address;
            !same_link && (covers(earlier.value, address.value) || covers(address.value, earlier.value))
        });
        if let Some((other, earlier)) = clash {
            let message = format!("the networks of `{other}` and `{name}` overlap");
            findings.note(
                Diagnostic::error(address.span.clone(), message)
                    .related(earlier.span.clone(), "the other")
                    .remedy("give each link a network of its own"),
            );
        }
    }
}
