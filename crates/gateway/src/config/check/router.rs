//! The router: ports and tunnels that belong to it, and routes that lead somewhere.

mod links;

use super::super::diagnostics::Diagnostic;
use super::super::file::FileDraft;
use super::super::keys::Draft;
use super::super::model::{Port, Role, TunnelKind};
use super::super::router::{InterfaceAddress, RouteKind, Router, StaticRoute};
use super::super::section::{Findings, Span};
use super::NameKind;
use std::net::IpAddr;

/// Resolves the router.
pub(super) fn resolve(draft: &FileDraft, findings: &Findings) -> Router {
    let ports = || draft.ports.iter().filter(|port| port.role() == Some(Role::Router));
    ports().for_each(|port| has_addresses(port, findings));
    links::check(draft, findings);
    let is_attached = ports().next().is_some()
        || draft.tunnels.iter().any(|tunnel| !tunnel.kind().is_some_and(TunnelKind::carries_frames));
    if let Some(span) = &draft.router_span
        && !is_attached
        && draft.ports.iter().all(|port| port.role().is_some())
    {
        let finding = Diagnostic::error(span.clone(), "there is a router but no port that belongs to it");
        findings.note(finding.remedy("give the ports of the router `role = \"router\"`"));
    }
    for route in &draft.routes {
        check_route(route, draft, findings);
    }
    twice(&draft.routes, findings);
    let routes = draft.routes.iter().map(|route| route.value.clone());
    Router { route: routes.collect(), ..draft.router.value.clone() }
}

/// A port that the kernel does not have gets its addresses here, and one that it has does not.
fn has_addresses(port: &Draft<Port>, findings: &Findings) {
    let Some((device, _)) = port.device() else { return };
    let name = &port.value.name;
    match (device.interface(), port.at("addresses")) {
        (Some(interface), Some(addresses)) => {
            let message = format!("`{name}` can only have the addresses that {interface} has in the kernel");
            let remedy = format!(
                "remove `addresses` and configure them in the kernel: `ip address add … dev {interface}`"
            );
            findings.note(Diagnostic::error(addresses.clone(), message).remedy(remedy));
        }
        (None, None) if !port.has("addresses") && !port.has_modem() => {
            let message = format!(
                "the kernel has no interface `{name}`, so its addresses have to stand in \
                                   the file"
            );
            let remedy = "add `addresses = [\"192.0.2.1/24\", \"2001:db8::1/64\"]`";
            findings.note(Diagnostic::error(port.name.clone(), message).remedy(remedy));
        }
        (Some(_) | None, _) => {}
    }
}

fn covers(network: InterfaceAddress, other: InterfaceAddress) -> bool {
    network.bits <= other.bits && contains(network, other.address)
}

/// True if an address is on the link of another.
fn contains(link: InterfaceAddress, address: IpAddr) -> bool {
    match (link.address, address) {
        (IpAddr::V4(link_address), IpAddr::V4(address)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(link.bits)).unwrap_or(0);
            link_address.to_bits() & mask == address.to_bits() & mask
        }
        (IpAddr::V6(link_address), IpAddr::V6(address)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(link.bits)).unwrap_or(0);
            link_address.to_bits() & mask == address.to_bits() & mask
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

fn check_route(route: &Draft<StaticRoute>, draft: &FileDraft, findings: &Findings) {
    let (via, port) = (route.at("via"), route.at("port"));
    let kind = (!route.is_unreadable("kind")).then_some(route.value.kind);
    match kind {
        Some(RouteKind::Unicast) if via.is_none() && port.is_none() => findings.note(
            Diagnostic::error(route.span.clone(), "the route has no next hop")
                .remedy("add `via = \"…\"` (a router), `port = \"…\"`, or a `kind` that drops packets"),
        ),
        Some(RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit) => {
            for place in via.into_iter().chain(port) {
                let message = "a route of this kind drops packets and has no next hop";
                findings.note(
                    Diagnostic::error(place.clone(), message).remedy("remove the next hop, or the `kind`"),
                );
            }
        }
        Some(RouteKind::Unicast) | None => {}
    }
    if let Some(port) = port {
        belongs(route, port, draft, findings);
    }
    if route.at("to").is_none() {
        return;
    }
    for (index, &router) in route.value.via.iter().enumerate() {
        let (to, place) = (route.value.to, route.element("via", index));
        if router.is_ipv4() != to.0.is_ipv4() {
            let message = format!("{router} and {to} have different address families");
            let remedy = "name a router whose address is of the network's family";
            findings.note(Diagnostic::error(place, message).remedy(remedy));
        } else if port.is_none() {
            reachable(router, place, draft, findings);
        }
    }
}

/// Without a port that the kernel has, all links are known.
fn reachable(router: IpAddr, place: Span, draft: &FileDraft, findings: &Findings) {
    let link_local = matches!(router, IpAddr::V6(address) if address.is_unicast_link_local());
    if link_local {
        let message = format!("{router} is a link-local address, which does not identify the link");
        findings.note(Diagnostic::error(place, message).remedy("add `port = \"…\"` to name the link"));
        return;
    }
    let is_on = |links: &[InterfaceAddress]| links.iter().any(|link| contains(*link, router));
    let ports = || draft.ports.iter().filter(|port| port.role() == Some(Role::Router));
    let tunnels = || draft.tunnels.iter().filter(|tunnel| !tunnel.value.addresses.is_empty());
    let known = |port: &Draft<Port>| {
        let is_kernels = port.device().is_none_or(|(device, _)| device.interface().is_some());
        is_kernels || port.has_modem() || is_on(&port.value.addresses)
    };
    let has_device = draft.tunnels.iter().any(|tunnel| tunnel.has("device"));
    let is_near = has_device || ports().any(known) || tunnels().any(|tunnel| is_on(&tunnel.value.addresses));
    if (ports().next().is_some() || tunnels().next().is_some()) && !is_near {
        let message = format!("{router} is in no network of a port");
        findings.note(Diagnostic::error(place, message).remedy("name a router in a network of a port"));
    }
}

/// The port of a route belongs to the router.
fn belongs(route: &Draft<StaticRoute>, span: &Span, draft: &FileDraft, findings: &Findings) {
    let Some((id, (kind, place))) = route.value.port.and_then(|id| Some((id, draft.name(id)?))) else {
        return;
    };
    let name = draft.text(id);
    let (message, of, remedy) = if kind.is_tunnel_of(true) {
        let message = format!("`{name}` carries Ethernet frames and does not belong to the router");
        (message, "the tunnel", format!("make [tunnel.{name}] `kind = \"gre\"` at both gateways"))
    } else if let (NameKind::Tunnel(Some(of)), Some(to)) = (kind, route.get("to", |route| route.to))
        && !of.carries(to.0.0)
    {
        let message = format!("`{name}` does not carry packets of the address family of {}", to.0);
        (message, "the tunnel", format!("make [tunnel.{name}] `kind = \"gre\"` at both gateways"))
    } else if matches!(kind, NameKind::Port(Some(Role::Bridge | Role::Underlay))) {
        let message = format!("`{name}` does not belong to the router");
        (message, "the port", format!("give [port.{name}] `role = \"router\"`"))
    } else {
        return;
    };
    findings.note(Diagnostic::error(span.clone(), message).related(place.clone(), of).remedy(remedy));
}

fn twice(routes: &[Draft<StaticRoute>], findings: &Findings) {
    for (index, route) in routes.iter().enumerate() {
        let Some((to, span)) = route.get("to", |route| route.to) else { continue };
        let mut earlier = routes[..index].iter().filter_map(|route| route.get("to", |route| route.to));
        if let Some((_, earlier)) = earlier.find(|&(earlier, _)| earlier == to) {
            findings.note(
                Diagnostic::error(span.clone(), format!("two routes lead to {to}"))
                    .related(earlier.clone(), "the first")
                    .remedy("name several routers in the `via` of one: `via = [\"…\", \"…\"]`"),
            );
        }
    }
}
