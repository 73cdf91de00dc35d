//! Addresses of the router's links: who has them, and what they may not be.

use super::super::super::diagnostics::Diagnostic;
use super::super::super::file::FileDraft;
use super::super::super::keys::Draft;
use super::super::super::model::{Role, Tunnel};
use super::super::super::router::InterfaceAddress;
use super::super::super::section::{Findings, Span};
use super::covers;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Smallest MTU of a link with IPv6 (RFC 8200, 5).
const LEAST_MTU_V6: u16 = 1280;

/// An address of a link: who has it, and where it stands.
type Owned<'a> = (&'a str, InterfaceAddress, Span);

/// Looks at the addresses of all links.
pub(super) fn check(draft: &FileDraft, findings: &Findings) {
    let mut all: Vec<Owned<'_>> = Vec::new();
    for port in draft.ports.iter().filter(|port| port.role() == Some(Role::Router)) {
        let addresses = port.value.addresses.iter().enumerate();
        all.extend(addresses.map(|(index, &it)| (&*port.value.name, it, port.element("addresses", index))));
    }
    for tunnel in &draft.tunnels {
        let own = own_addresses(tunnel);
        has_addresses(tunnel, findings);
        is_pair(&own, findings);
        carries_v6(tunnel, &own, findings);
        all.extend(own);
    }
    overlaps(&all, findings);
}

/// The addresses that a tunnel has as an interface of the router.
fn own_addresses(tunnel: &Draft<Tunnel>) -> Vec<Owned<'_>> {
    let addresses = tunnel.value.addresses.iter().enumerate();
    addresses.map(|(index, &it)| (&*tunnel.value.name, it, tunnel.element("addresses", index))).collect()
}

/// A tunnel of packets has addresses, and one of frames has not.
fn has_addresses(tunnel: &Draft<Tunnel>, findings: &Findings) {
    let name = &tunnel.value.name;
    let Some(kind) = tunnel.kind() else { return };
    if let Some(addresses) = tunnel.at("addresses").filter(|_| kind.carries_frames()) {
        let message = format!("`{name}` carries Ethernet frames and cannot have addresses");
        let remedy = "remove `addresses`, or give the tunnel `kind = \"gre\"` at both gateways";
        findings.note(Diagnostic::error(addresses.clone(), message).remedy(remedy));
    } else if !kind.carries_frames() && !tunnel.has("addresses") && !tunnel.has("device") {
        let message = format!(
            "the kernel has no interface `{name}`, so its addresses have to stand in the \
                               file"
        );
        let examples =
            [Ipv4Addr::new(192, 0, 2, 0).into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0).into()];
        let examples = examples.into_iter().filter(|&address: &IpAddr| kind.carries(address));
        let examples =
            examples.map(|address| format!("\"{address}/{}\"", if address.is_ipv4() { 31 } else { 127 }));
        let remedy = format!(
            "add `addresses = [{}]`, or `device = \"NAME\"`, an interface that can be given addresses",
            examples.collect::<Vec<_>>().join(", ")
        );
        findings.note(Diagnostic::error(tunnel.name.clone(), message).remedy(remedy));
    }
}

/// A packet for an address that neither end has goes to and fro until its time to live is used up
/// (RFC 6164, 5.1).
fn is_pair(own: &[Owned<'_>], findings: &Findings) {
    for (_, address, span) in own {
        let (enough, pair) = if address.address.is_ipv4() { (30, 31) } else { (126, 127) };
        if address.bits < enough {
            let message = format!("a tunnel has two ends, but {address} is a network of more addresses");
            let remedy = format!(
                "use /{pair}: packets to unused addresses would go back and forth between the \
                         ends"
            );
            findings.note(Diagnostic::warning(span.clone(), message).remedy(remedy));
        }
    }
}

/// A tunnel without fragments has to carry the smallest MTU of IPv6.
fn carries_v6(tunnel: &Draft<Tunnel>, own: &[Owned<'_>], findings: &Findings) {
    let v6 = own.iter().find(|(_, address, _)| address.address.is_ipv6());
    let mtu = tunnel.get("mtu", |tunnel| tunnel.mtu).filter(|_| tunnel.value.dont_fragment);
    if let (Some((_, _, address)), Some((Some(mtu), span))) = (v6, mtu)
        && mtu < LEAST_MTU_V6
    {
        let message = format!("the MTU {mtu} is too small for IPv6");
        findings.note(
            Diagnostic::error(span.clone(), message)
                .related(address.clone(), "the address")
                .remedy(format!("set `mtu = {LEAST_MTU_V6}` or more, or `dont_fragment = false`")),
        );
    }
}

/// Two links cannot have the same network.
fn overlaps(all: &[Owned<'_>], findings: &Findings) {
    for (index, (name, address, span)) in all.iter().enumerate() {
        let clash = all[..index].iter().find(|(other, earlier, _)| {
            let same_link = other == name && earlier.address != address.address;
            !same_link && (covers(*earlier, *address) || covers(*address, *earlier))
        });
        if let Some((other, _, earlier)) = clash {
            let message = format!("the networks of `{other}` and `{name}` overlap");
            findings.note(
                Diagnostic::error(span.clone(), message)
                    .related(earlier.clone(), "the other")
                    .remedy("give each link a network of its own"),
            );
        }
    }
}
