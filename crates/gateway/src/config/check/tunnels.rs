//! Tunnels: the port that carries each, overlaps between them, sizes that fit.

use super::super::diagnostics::Diagnostic;
use super::super::file::FileDraft;
use super::super::keys::Draft;
use super::super::model::{Port, Role, Tunnel, TunnelKind};
use super::super::section::{Findings, Span};
use super::NameKind;
use polder_buffers::PortId;
use polder_datapath::tunnel::Ends;
use std::net::IpAddr;

/// Resolves all tunnels.
pub(super) fn resolve(draft: &FileDraft, findings: &Findings) -> Vec<Tunnel> {
    let mut tunnels = Vec::new();
    for (index, (id, tunnel)) in draft.tunnel_ids().zip(&draft.tunnels).enumerate() {
        tunnel.check_vxlan(findings);
        addresses(tunnel, findings);
        families(tunnel, findings);
        for earlier in &draft.tunnels[..index] {
            overlap(tunnel, earlier, findings);
        }
        carrier(tunnel, draft, findings);
        let resolved = tunnel.resolved(draft.remote_ids(id));
        if let Some(first) = resolved.first() {
            size(tunnel, first, draft, findings);
        }
        tunnels.extend(resolved);
    }
    for (id, port) in (0..).map(PortId).zip(&draft.ports) {
        unused_underlay(id, port, draft, findings);
    }
    tunnels
}

impl Draft<Tunnel> {
    /// Kind of the tunnel; `None` when that is missing or could not be read.
    pub(in super::super) fn kind(&self) -> Option<TunnelKind> {
        self.at("kind").map(|_| self.value.kind)
    }

    /// Addresses of the other ends with their places: all of a list, or one; none that could not be read.
    pub(super) fn remotes(&self) -> Vec<(IpAddr, Span)> {
        if !self.has("remotes") {
            return self
                .get("remote", |tunnel| tunnel.remote)
                .map(|(one, at)| (one, at.clone()))
                .into_iter()
                .collect();
        }
        let remotes = self.value.remotes.iter().enumerate();
        remotes.map(|(index, remote)| (*remote, self.element("remotes", index))).collect()
    }

    /// The tunnel to each remote, as far as they are complete.
    fn resolved(&self, ids: Vec<PortId>) -> Vec<Tunnel> {
        if !self.is_complete() || self.value.vxlan.is_some() && self.at("vni").is_none() {
            return Vec::new();
        }
        let ends = ids.into_iter().zip(self.remotes());
        ends.filter_map(|(id, (remote, _))| self.resolved_one(id, remote)).collect()
    }

    /// The tunnel to a remote, with defaults that depend on other keys; over IPv4 without UDP checksums
    /// (RFC 7348, 5), over IPv6 with (RFC 8200, 8.1).
    fn resolved_one(&self, id: PortId, remote: IpAddr) -> Option<Tunnel> {
        let table = self.value.name.clone();
        let name = if self.has("remotes") { format!("{table}@{remote}") } else { table.clone() };
        let mut tunnel = Tunnel { id, name, table, remote, remotes: Vec::new(), ..self.value.clone() };
        Ends::of(tunnel.local, tunnel.remote)?;
        tunnel.next_hop = self.at("next_hop").map_or(tunnel.remote, |_| tunnel.next_hop);
        let is_v6 = tunnel.is_v6();
        if tunnel.next_hop.is_ipv6() != is_v6 {
            return None;
        }
        if let Some(vxlan) = &mut tunnel.vxlan {
            vxlan.udp_checksum = self.at("udp_checksum").map_or(is_v6, |_| vxlan.udp_checksum);
        }
        tunnel.encapsulation_limit = tunnel.encapsulation_limit.filter(|_| tunnel.has_limit());
        tunnel.dont_fragment |= tunnel.vxlan.is_some();
        Some(tunnel)
    }
}

fn addresses(tunnel: &Draft<Tunnel>, findings: &Findings) {
    if !tunnel.has("remote") && !tunnel.has("remotes") {
        let message = format!("{} has no `remote`", tunnel.title);
        let remedy = "add `remote = \"…\"`, the address of the other end";
        findings.note(Diagnostic::error(tunnel.span.clone(), message).remedy(remedy));
    }
    let Tunnel { local, next_hop, .. } = tunnel.value;
    let Some(local_at) = tunnel.at("local") else { return };
    let remotes = tunnel.remotes();
    for (index, (remote, span)) in remotes.iter().enumerate() {
        if local == *remote {
            findings.note(
                Diagnostic::error(span.clone(), "both ends of the tunnel have the same address")
                    .related(local_at.clone(), "")
                    .remedy("`remote` is the address of the other gateway"),
            );
        }
        if let Some((_, earlier)) = remotes[..index].iter().find(|(earlier, _)| earlier == remote) {
            findings.note(
                Diagnostic::error(span.clone(), format!("{remote} is named twice"))
                    .related(earlier.clone(), "first here")
                    .remedy("name each remote once"),
            );
        }
    }
    if let Some(span) = tunnel.at("next_hop").filter(|_| next_hop == local) {
        findings.note(
            Diagnostic::error(span.clone(), "the next hop is this end itself")
                .related(local_at.clone(), "")
                .remedy(
                    "name the neighbour on the underlay that leads to the other end, or leave `next_hop` out",
                ),
        );
    }
}

/// All addresses are of one family, and what IPv6 alone has is asked of IPv6 alone.
fn families(tunnel: &Draft<Tunnel>, findings: &Findings) {
    let Some(local_at) = tunnel.at("local") else { return };
    let Tunnel { local, next_hop, .. } = tunnel.value;
    let family = |address: IpAddr| if address.is_ipv6() { "IPv6" } else { "IPv4" };
    let remotes = tunnel.remotes().into_iter().map(|(remote, span)| (remote, span, "the other end"));
    let hop = tunnel.at("next_hop").map(|span| (next_hop, span.clone(), "the next hop"));
    for (other, span, what) in remotes.chain(hop).filter(|(other, ..)| other.is_ipv6() != local.is_ipv6()) {
        let (ours, theirs) = (family(local), family(other));
        findings.note(
            Diagnostic::error(span, format!("{what} has an {theirs} address, this end an {ours} one"))
                .related(local_at.clone(), "")
                .remedy(format!("take {ours} addresses for both, or {theirs} ones")),
        );
    }
    for key in ["flow_label", "encapsulation_limit"] {
        let Some(span) = tunnel.at(key).filter(|_| local.is_ipv4()) else { continue };
        findings.note(
            Diagnostic::error(span.clone(), format!("`{key}` is for tunnels over IPv6"))
                .related(local_at.clone(), "this one runs over IPv4")
                .remedy(format!("remove `{key}`, or give both ends IPv6 addresses")),
        );
    }
}

/// Two tunnels that would claim the same packets.
fn overlap(tunnel: &Draft<Tunnel>, earlier: &Draft<Tunnel>, findings: &Findings) {
    let local = |tunnel: &Draft<Tunnel>| tunnel.at("local").map(|_| tunnel.value.local);
    if local(tunnel).is_none() || local(tunnel) != local(earlier) {
        return;
    }
    let others = earlier.remotes();
    let is_shared = |(remote, _): &(IpAddr, _)| others.iter().any(|(other, _)| other == remote);
    let Some((shared, _)) = tunnel.remotes().into_iter().find(is_shared) else { return };
    let (name, other) = (&tunnel.value.name, &earlier.value.name);
    let clash = |message: String, remedy: &str| {
        let finding = Diagnostic::error(tunnel.name.clone(), message).label("packets of this one");
        let finding = finding.related(earlier.name.clone(), "cannot be told from packets of this one");
        findings.note(finding.remedy(remedy));
    };
    let is_vxlan = |tunnel: &Draft<Tunnel>| tunnel.kind() == Some(TunnelKind::Vxlan);
    if is_vxlan(tunnel) || is_vxlan(earlier) {
        let both = tunnel.network().filter(|mine| Some(*mine) == earlier.network());
        if let Some((vni, port)) = both {
            let ends = match tunnel.has("remotes") || earlier.has("remotes") {
                true => format!("the same local end, the remote {shared}"),
                false => "the same ends".to_owned(),
            };
            clash(
                format!("the tunnels `{other}` and `{name}` have {ends}, VNI {vni} and UDP port {port}"),
                "give each a `vni` of its own, the same at both ends",
            );
        }
        return;
    }
    let (key, other_key) = (tunnel.value.key, earlier.value.key);
    if key != other_key || tunnel.is_unreadable("key") || earlier.is_unreadable("key") {
        return;
    }
    let what = match key {
        Some(key) => format!("have the same ends and the key {key}"),
        None => "have the same ends and no key".to_owned(),
    };
    clash(
        format!("the tunnels `{other}` and `{name}` {what}"),
        "give each a `key` of its own, the same at both gateways",
    );
}

/// The port that carries the tunnel has to be an underlay.
fn carrier(tunnel: &Draft<Tunnel>, draft: &FileDraft, findings: &Findings) {
    let Some((id, span)) = tunnel.get("port", |tunnel| tunnel.port) else { return };
    let (Some((kind, place)), name) = (draft.name(id), draft.text(id)) else { return };
    let error = |message: String| Diagnostic::error(span.clone(), message);
    match kind {
        NameKind::Port(Some(Role::Underlay | Role::Router) | None) => {}
        NameKind::Port(Some(Role::Bridge)) => findings.note(
            error(format!("`{name}` is a bridge port and carries no tunnels"))
                .related(place.clone(), "the port")
                .remedy(format!("add `role = \"underlay\"` to [port.{name}]")),
        ),
        NameKind::Tunnel(_) => findings.note(
            error(format!("`{name}` is a tunnel, and tunnels do not run inside tunnels"))
                .related(place.clone(), "the tunnel")
                .remedy("name an underlay port"),
        ),
    }
}

/// With DF, what the tunnel promises has to fit the underlay.
fn size(tunnel: &Draft<Tunnel>, resolved: &Tunnel, draft: &FileDraft, findings: &Findings) {
    let underlay = draft.ports.get(usize::from(resolved.port.0)).and_then(Draft::<Port>::mtu);
    let inner = resolved.mtu.zip(tunnel.at("mtu"));
    let (Some((inner, span)), Some((outer, underlay)), true) = (inner, underlay, resolved.dont_fragment)
    else {
        return;
    };
    let overhead = resolved.overhead_bytes();
    let needed = inner.saturating_add(overhead);
    if needed <= outer {
        return;
    }
    let message =
        format!("{inner} bytes through the tunnel are {needed} bytes on the underlay, which carries {outer}");
    let remedy = match outer.checked_sub(overhead).filter(|&fitting| fitting >= 68) {
        Some(fitting) if resolved.vxlan.is_some() => {
            format!("set `mtu = {fitting}`: VXLAN is never fragmented")
        }
        Some(fitting) => format!("set `mtu = {fitting}`, or `dont_fragment = false` to send it in fragments"),
        None => "raise the MTU of the underlay".to_owned(),
    };
    findings.note(
        Diagnostic::error(span.clone(), message)
            .label(format!("plus {overhead} bytes of outer headers"))
            .related(underlay.clone(), "the underlay")
            .remedy(remedy),
    );
}

fn unused_underlay(id: PortId, port: &Draft<Port>, draft: &FileDraft, findings: &Findings) {
    // A tunnel whose port could not be read may well run over this one.
    let may_use = |tunnel: &Draft<Tunnel>| tunnel.at("port").is_none() || tunnel.value.port == id;
    let used = draft.tunnels.iter().any(|tunnel| may_use(tunnel) || draft.name(tunnel.value.port).is_none());
    let is_interface = port.device().is_some_and(|(device, _)| device.interface().is_some());
    if port.role() == Some(Role::Underlay) && is_interface && !used {
        let name = &port.value.name;
        let remedy = format!("add a tunnel with `port = \"{name}\"`, or remove this port");
        let message = format!("no tunnel runs over the underlay `{name}`");
        findings.note(Diagnostic::warning(port.name.clone(), message).remedy(remedy));
    }
}
