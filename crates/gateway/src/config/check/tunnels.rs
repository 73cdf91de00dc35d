//! Tunnels: the port that carries each, overlaps between them, sizes that fit.

use super::super::diagnostics::Diagnostic;
use super::super::model::{Dscp, FlowLabel, Role, Ttl, Tunnel, TunnelKind};
use super::super::read::{Draft, PortDraft, TunnelDraft};
use super::super::section::Findings;
use super::super::vxlan::VxlanDraft;
use super::{NameKind, Names, unknown_name};
use polder_datapath::tunnel::{Ends, TunnelOptions};
use std::net::IpAddr;

/// Resolves all tunnels.
pub(super) fn resolve(draft: &Draft, names: &Names<'_>, findings: &Findings) -> Vec<Tunnel> {
    let mut tunnels = Vec::new();
    for (index, tunnel) in draft.tunnels.iter().enumerate() {
        addresses(tunnel, findings);
        families(tunnel, findings);
        for earlier in &draft.tunnels[..index] {
            overlap(tunnel, earlier, findings);
        }
        carrier(tunnel, draft, names, findings);
        if let Some(resolved) = resolved(tunnel, names) {
            size(tunnel, &resolved, draft, findings);
            tunnels.push(resolved);
        }
    }
    for port in &draft.ports {
        unused_underlay(port, draft, findings);
    }
    tunnels
}

fn addresses(tunnel: &TunnelDraft, findings: &Findings) {
    let (Some(local), Some(remote)) = (&tunnel.local, &tunnel.remote) else { return };
    if local.value == remote.value {
        findings.note(
            Diagnostic::error(remote.span.clone(), "both ends of the tunnel have the same address")
                .related(local.span.clone(), "")
                .remedy("`remote` is the address of the other gateway"),
        );
    }
    if let Some(next_hop) = tunnel.next_hop.as_ref().filter(|next_hop| next_hop.value == local.value) {
        findings.note(
            Diagnostic::error(next_hop.span.clone(), "the next hop is this end itself")
                .related(local.span.clone(), "")
                .remedy(
                    "name the neighbour on the underlay that leads to the other end, or leave `next_hop` out",
                ),
        );
    }
}

/// All addresses are of one family, and what IPv6 alone has is asked of IPv6 alone.
fn families(tunnel: &TunnelDraft, findings: &Findings) {
    let Some(local) = &tunnel.local else { return };
    let family = |address: IpAddr| if address.is_ipv6() { "IPv6" } else { "IPv4" };
    for (other, what) in [(&tunnel.remote, "the other end"), (&tunnel.next_hop, "the next hop")] {
        let Some(other) = other.as_ref().filter(|at| at.value.is_ipv6() != local.value.is_ipv6()) else {
            continue;
        };
        let (ours, theirs) = (family(local.value), family(other.value));
        findings.note(
            Diagnostic::error(
                other.span.clone(),
                format!("{what} has an {theirs} address, this end an {ours} one"),
            )
            .related(local.span.clone(), "")
            .remedy(format!("take {ours} addresses for both, or {theirs} ones")),
        );
    }
    if let Some(vxlan) = &tunnel.vxlan {
        vxlan.check(local.value.is_ipv6(), &local.span, findings);
    }
    if local.value.is_ipv6() {
        return;
    }
    let label = tunnel.flow_label.as_ref().map(|at| ("flow_label", at.span.clone()));
    let limit = tunnel.encapsulation_limit.as_ref().map(|at| ("encapsulation_limit", at.span.clone()));
    for (key, span) in [label, limit].into_iter().flatten() {
        findings.note(
            Diagnostic::error(span, format!("`{key}` is for tunnels over IPv6"))
                .related(local.span.clone(), "this one runs over IPv4")
                .remedy(format!("remove `{key}`, or give both ends IPv6 addresses")),
        );
    }
}

/// Two tunnels that would claim the same packets.
fn overlap(tunnel: &TunnelDraft, earlier: &TunnelDraft, findings: &Findings) {
    let ends = |tunnel: &TunnelDraft| Some((tunnel.local.as_ref()?.value, tunnel.remote.as_ref()?.value));
    let key = |tunnel: &TunnelDraft| tunnel.key.as_ref().map(|key| key.value);
    let (Some(mine), Some(others)) = (ends(tunnel), ends(earlier)) else { return };
    let is_vxlan = |tunnel: &TunnelDraft| tunnel.kind == Some(TunnelKind::Vxlan);
    if is_vxlan(tunnel) || is_vxlan(earlier) {
        let both = is_vxlan(tunnel) && is_vxlan(earlier) && mine == others;
        if let Some((vni, port)) = network(tunnel).filter(|mine| both && Some(*mine) == network(earlier)) {
            same_network((tunnel, earlier), (vni, port), findings);
        }
        return;
    }
    if mine != others || key(tunnel) != key(earlier) || tunnel.key_unreadable || earlier.key_unreadable {
        return;
    }
    let what = match key(tunnel) {
        Some(key) => format!("have the same ends and the key {key}"),
        None => "have the same ends and no key".to_owned(),
    };
    let message = format!("the tunnels `{}` and `{}` {what}", earlier.name.value, tunnel.name.value);
    findings.note(
        Diagnostic::error(tunnel.name.span.clone(), message)
            .label("packets of this one")
            .related(earlier.name.span.clone(), "cannot be told from packets of this one")
            .remedy("give each a `key` of its own, the same at both gateways"),
    );
}

/// Network and port of a VXLAN tunnel.
fn network(tunnel: &TunnelDraft) -> Option<(u32, u16)> {
    tunnel.vxlan.as_ref().and_then(VxlanDraft::identity)
}

/// Two VXLAN tunnels that would claim the same packets.
fn same_network(
    (tunnel, earlier): (&TunnelDraft, &TunnelDraft),
    (vni, port): (u32, u16),
    findings: &Findings,
) {
    let (name, other) = (&tunnel.name.value, &earlier.name.value);
    let message =
        format!("the tunnels `{other}` and `{name}` have the same ends, VNI {vni} and UDP port {port}");
    findings.note(
        Diagnostic::error(tunnel.name.span.clone(), message)
            .label("packets of this one")
            .related(earlier.name.span.clone(), "cannot be told from packets of this one")
            .remedy("give each a `vni` of its own, the same at both ends"),
    );
}

/// The port that carries the tunnel has to be an underlay.
fn carrier(tunnel: &TunnelDraft, draft: &Draft, names: &Names<'_>, findings: &Findings) {
    let Some(port) = &tunnel.port else { return };
    let error = |message: String| Diagnostic::error(port.span.clone(), message);
    match names.get(port.value.as_str()).map(|name| (name.kind, name.span.clone())) {
        Some((NameKind::Port(Some(Role::Underlay | Role::Router) | None), _)) => {}
        Some((NameKind::Port(Some(Role::Bridge)), span)) => findings.note(
            error(format!("`{}` is a bridge port and carries no tunnels", port.value))
                .related(span.clone(), "the port")
                .remedy(format!("add `role = \"underlay\"` to [port.{}]", port.value)),
        ),
        Some((NameKind::Tunnel(_), span)) => findings.note(
            error(format!("`{}` is a tunnel, and tunnels do not run inside tunnels", port.value))
                .related(span.clone(), "the tunnel")
                .remedy("name an underlay port"),
        ),
        None => {
            let ports = draft.ports.iter().map(|port| port.name.value.as_str());
            let remedy = unknown_name(&port.value, ports, "port");
            findings.note(error(format!("there is no port `{}`", port.value)).remedy(remedy));
        }
    }
}

fn resolved(tunnel: &TunnelDraft, names: &Names<'_>) -> Option<Tunnel> {
    let (local, remote) = (tunnel.local.as_ref()?.value, tunnel.remote.as_ref()?.value);
    Ends::of(local, remote)?;
    let next_hop = tunnel.next_hop.as_ref().map_or(remote, |next_hop| next_hop.value);
    if next_hop.is_ipv6() != local.is_ipv6() {
        return None;
    }
    let limit = tunnel.encapsulation_limit.as_ref().map(|at| at.value);
    Some(Tunnel {
        id: names.get(tunnel.name.value.as_str())?.id,
        name: tunnel.name.value.clone(),
        kind: tunnel.kind?,
        addresses: tunnel.own_addresses().map(|at| at.value).collect(),
        local,
        remote,
        port: names.get(tunnel.port.as_ref()?.value.as_str())?.id,
        next_hop,
        next_hop_mac: tunnel.next_hop_mac,
        vxlan: match &tunnel.vxlan {
            Some(vxlan) => Some(vxlan.resolved(local.is_ipv6())?),
            None => None,
        },
        key: tunnel.key.as_ref().map(|key| key.value),
        checksum: tunnel.checksum.unwrap_or(false),
        sequence: tunnel.sequence.unwrap_or(false),
        ttl: tunnel.ttl.unwrap_or(Ttl::Fixed(64)),
        dscp: tunnel.dscp.unwrap_or(Dscp::Inherit),
        ecn: tunnel.ecn.unwrap_or_default(),
        flow_label: tunnel.flow_label.as_ref().map_or_else(FlowLabel::default, |at| at.value),
        encapsulation_limit: limit
            .unwrap_or(Some(TunnelOptions::ENCAPSULATION_LIMIT))
            .filter(|_| local.is_ipv6() && tunnel.vxlan.is_none()),
        dont_fragment: tunnel.dont_fragment.unwrap_or(tunnel.vxlan.is_some()),
        mtu: tunnel.mtu.as_ref().map(|mtu| mtu.value),
        tcp_mss: tunnel.tcp_mss.unwrap_or_default(),
    })
}

/// With DF, what the tunnel promises has to fit the underlay.
fn size(tunnel: &TunnelDraft, resolved: &Tunnel, draft: &Draft, findings: &Findings) {
    let named = |port: &&PortDraft| Some(&port.name.value) == tunnel.port.as_ref().map(|at| &at.value);
    let underlay = draft.ports.iter().find(named).and_then(|port| port.mtu.as_ref());
    let (Some(inner), Some(outer), true) = (&tunnel.mtu, underlay, resolved.dont_fragment) else { return };
    let overhead = resolved.overhead_bytes();
    let needed = inner.value.saturating_add(overhead);
    if needed <= outer.value {
        return;
    }
    let message = format!(
        "{} bytes through the tunnel are {needed} bytes on the underlay, which carries {}",
        inner.value, outer.value
    );
    let remedy = match outer.value.checked_sub(overhead).filter(|&fitting| fitting >= 68) {
        Some(fitting) if resolved.vxlan.is_some() => {
            format!("set `mtu = {fitting}`: VXLAN is never fragmented")
        }
        Some(fitting) => format!("set `mtu = {fitting}`, or `dont_fragment = false` to send it in fragments"),
        None => "raise the MTU of the underlay".to_owned(),
    };
    findings.note(
        Diagnostic::error(inner.span.clone(), message)
            .label(format!("plus {overhead} bytes of outer headers"))
            .related(outer.span.clone(), "the underlay")
            .remedy(remedy),
    );
}

fn unused_underlay(port: &PortDraft, draft: &Draft, findings: &Findings) {
    let used = draft.tunnels.iter().any(|tunnel| match &tunnel.port {
        Some(carrier) => carrier.value == port.name.value,
        // A tunnel whose port could not be read may well run over this one.
        None => true,
    });
    let is_device = port.device.as_ref().is_some_and(|device| device.value.interface().is_some());
    if port.role == Some(Role::Underlay) && is_device && !used {
        let message = format!("no tunnel runs over the underlay `{}`", port.name.value);
        let remedy = format!("add a tunnel with `port = \"{}\"`, or remove this port", port.name.value);
        findings.note(Diagnostic::warning(port.name.span.clone(), message).remedy(remedy));
    }
}
