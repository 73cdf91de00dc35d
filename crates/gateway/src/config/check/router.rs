//! The router: ports and tunnels that belong to it, and routes that lead somewhere.

mod links;

use super::super::diagnostics::Diagnostic;
use super::super::filters::Network;
use super::super::model::{Role, TunnelKind};
use super::super::read::{Draft, PortDraft, RouteDraft, TunnelDraft};
use super::super::router::{InterfaceAddress, RouteKind, Router, StaticRoute};
use super::super::section::{At, Findings};
use super::{NameKind, Names, unknown_name};
use std::net::IpAddr;

/// Resolves the router.
pub(super) fn resolve(draft: &Draft, names: &Names<'_>, findings: &Findings) -> Router {
    let ports = || draft.ports.iter().filter(|port| port.role == Some(Role::Router));
    ports().for_each(|port| has_addresses(port, findings));
    links::check(draft, findings);
    let is_attached = ports().next().is_some()
        || draft.tunnels.iter().any(|tunnel| !tunnel.kind.is_some_and(TunnelKind::carries_frames));
    if let Some(span) = &draft.router.span
        && !is_attached
        && draft.ports.iter().all(|port| port.role.is_some())
    {
        let finding = Diagnostic::error(span.clone(), "there is a router, and no port belongs to it");
        findings.note(finding.remedy("give the ports that it routes between `role = \"router\"`"));
    }
    for route in &draft.router.route {
        check_route(route, draft, names, findings);
    }
    twice(&draft.router.route, findings);
    Router {
        routes: draft.router.routes.unwrap_or_default(),
        tables: draft.router.tables.as_ref().map(|at| at.value.clone()).unwrap_or_default(),
        route: draft.router.route.iter().filter_map(|route| resolved(route, names)).collect(),
    }
}

/// A port that the kernel does not have gets its addresses here, and one that it has does not.
fn has_addresses(port: &PortDraft, findings: &Findings) {
    let Some(device) = &port.device else { return };
    let name = &port.name.value;
    match (device.value.interface(), &port.addresses) {
        (Some(interface), Some(addresses)) => {
            let message =
                format!("`{name}` has the addresses that the kernel gives {interface}, and no others");
            let remedy = format!(
                "remove `addresses`, and give them to the kernel: `ip address add … dev {interface}`"
            );
            findings.note(Diagnostic::error(addresses.span.clone(), message).remedy(remedy));
        }
        (None, None) if !port.addresses_unreadable => {
            let message = format!("nobody but Polder has `{name}`, so it needs addresses to route by");
            let remedy = "add `addresses = [\"192.0.2.1/24\", \"2001:db8::1/64\"]`";
            findings.note(Diagnostic::error(port.name.span.clone(), message).remedy(remedy));
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

fn check_route(route: &RouteDraft, draft: &Draft, names: &Names<'_>, findings: &Findings) {
    let (via, port) = (route.via.as_ref(), route.port.as_ref());
    match route.kind {
        Some(RouteKind::Unicast) if via.is_none() && port.is_none() => findings.note(
            Diagnostic::error(route.span.clone(), "the route leads nowhere")
                .remedy("add `via = \"…\"`, a router, or `port = \"…\"`, or a `kind` that drops"),
        ),
        Some(RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit) => {
            let places = via.map(|at| &at.span).into_iter().chain(port.map(|at| &at.span));
            for place in places {
                let message = "packets of this kind of route go nowhere";
                findings.note(Diagnostic::error(place.clone(), message).remedy("remove it, or the `kind`"));
            }
        }
        Some(RouteKind::Unicast) | None => {}
    }
    if let Some(port) = port {
        known_port(port, names, findings);
    }
    let (Some(to), Some(via)) = (&route.to, via) else { return };
    for router in &via.value {
        let place = if router.span.is_empty() { &via.span } else { &router.span };
        if router.value.is_ipv4() != to.value.0.is_ipv4() {
            let message = format!("{} is of another family than {}", router.value, to.value);
            let remedy = "name a router of the network's own family";
            findings.note(Diagnostic::error(place.clone(), message).remedy(remedy));
        } else if port.is_none() {
            reachable(router.value, place.clone(), draft, findings);
        }
    }
}

/// Without a port that the kernel has, all links are known.
fn reachable(router: IpAddr, place: std::ops::Range<usize>, draft: &Draft, findings: &Findings) {
    let link_local = matches!(router, IpAddr::V6(address) if address.is_unicast_link_local());
    if link_local {
        let message = format!("{router} is an address of every link");
        findings.note(Diagnostic::error(place, message).remedy("add `port = \"…\"` to say which is meant"));
        return;
    }
    let ports = || draft.ports.iter().filter(|port| port.role == Some(Role::Router));
    let known = |port: &PortDraft| {
        let is_kernels = port.device.as_ref().is_none_or(|device| device.value.interface().is_some());
        let addresses = port.addresses.iter().flat_map(|addresses| &addresses.value);
        is_kernels || addresses.into_iter().any(|link| contains(link.value, router))
    };
    let of_tunnels = || draft.tunnels.iter().flat_map(TunnelDraft::own_addresses);
    let is_near = ports().any(known) || of_tunnels().any(|link| contains(link.value, router));
    if (ports().next().is_some() || of_tunnels().next().is_some()) && !is_near {
        let message = format!("{router} is on the link of no port");
        findings.note(Diagnostic::error(place, message).remedy("name a router in a network of a port's"));
    }
}

fn known_port(port: &At<String>, names: &Names<'_>, findings: &Findings) {
    let error = |message: String| Diagnostic::error(port.span.clone(), message);
    match names.get(port.value.as_str()) {
        None => {
            let remedy = unknown_name(&port.value, names.keys().copied(), "port");
            findings.note(error(format!("there is no port `{}`", port.value)).remedy(remedy));
        }
        Some(name) => {
            if name.kind.is_tunnel_of(true) {
                let message =
                    format!("`{}` carries Ethernet frames and does not belong to the router", port.value);
                let remedy = format!("make [tunnel.{}] `kind = \"gre\"` at both gateways", port.value);
                findings.note(error(message).related(name.span.clone(), "the tunnel").remedy(remedy));
            } else if matches!(name.kind, NameKind::Port(Some(Role::Bridge | Role::Underlay))) {
                let remedy = format!("give [port.{}] `role = \"router\"`", port.value);
                let message = format!("`{}` does not belong to the router", port.value);
                findings.note(error(message).related(name.span.clone(), "the port").remedy(remedy));
            }
        }
    }
}

fn twice(routes: &[RouteDraft], findings: &Findings) {
    for (index, route) in routes.iter().enumerate() {
        let Some(to) = &route.to else { continue };
        let earlier = routes[..index].iter().filter_map(|route| route.to.as_ref());
        if let Some(earlier) = earlier.into_iter().find(|earlier| earlier.value == to.value) {
            let message = format!("two routes lead to {}", to.value);
            findings.note(
                Diagnostic::error(to.span.clone(), message)
                    .related(earlier.span.clone(), "the first")
                    .remedy("name several routers in the `via` of one: `via = [\"…\", \"…\"]`"),
            );
        }
    }
}

fn resolved(route: &RouteDraft, names: &Names<'_>) -> Option<StaticRoute> {
    let via = route.via.iter().flat_map(|at| &at.value).map(|at| at.value).collect();
    let port = match &route.port {
        Some(port) => Some(names.get(port.value.as_str())?.id),
        None => None,
    };
    let Network(address, bits) = route.to.as_ref()?.value;
    Some(StaticRoute { to: Network(address, bits), kind: route.kind?, via, port })
}
