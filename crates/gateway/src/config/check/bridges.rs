//! Bridges: their members, what they say about VLANs, static entries; every port has its place.

use super::super::diagnostics::Diagnostic;
use super::super::model::{Bridge, Member, MemberVlan, Role, StaticEntry, TunnelKind};
use super::super::read::{BridgeDraft, Draft, MemberDraft};
use super::super::section::{At, Findings, Span, closest};
use super::{NameKind, Names, unknown_name};
use std::collections::{BTreeMap, BTreeSet};

/// Seconds after which an address is forgotten when nothing is said (IEEE 802.1D, table 7-5).
const AGEING_SECONDS: u32 = 300;
/// Most addresses when nothing is said.
const MAX_ENTRIES: u32 = 8192;

/// Resolves all bridges.
pub(super) fn resolve(draft: &Draft, names: &Names<'_>, findings: &Findings) -> Vec<Bridge> {
    let mut taken: BTreeMap<&str, (&str, Span)> = BTreeMap::new();
    let mut bridges = Vec::new();
    for bridge in &draft.bridges {
        members(bridge, names, &mut taken, findings);
        options(bridge, findings);
        let aware = vlan_awareness(bridge, findings);
        static_entries(bridge, aware, findings);
        bridges.push(resolved(bridge, names));
    }
    // A member list that could not be read may name any port.
    if draft.bridges.iter().all(|bridge| bridge.members.is_some()) {
        homeless(draft, names, &taken, findings);
    }
    bridges
}

/// Each member exists, is no underlay, and is a member once.
fn members<'a>(
    bridge: &'a BridgeDraft,
    names: &Names<'_>,
    taken: &mut BTreeMap<&'a str, (&'a str, Span)>,
    findings: &Findings,
) {
    let Some(list) = &bridge.members else { return };
    for At { value: name, span } in &list.value {
        let error = |message: String| Diagnostic::error(span.clone(), message);
        match names.get(name.as_str()) {
            None => {
                let remedy = unknown_name(name, names.keys().copied(), "port");
                findings.note(error(format!("there is no port or tunnel `{name}`")).remedy(remedy));
            }
            Some(known) if known.kind == NameKind::Port(Some(Role::Underlay)) => findings.note(
                error(format!("`{name}` is an underlay and cannot be a member of a bridge"))
                    .related(known.span.clone(), "the port")
                    .remedy("make the tunnel over it a member, or give the port `role = \"bridge\"`"),
            ),
            Some(known) if known.kind == NameKind::Port(Some(Role::Router)) => findings.note(
                error(format!("`{name}` belongs to the router and cannot be a member of a bridge"))
                    .related(known.span.clone(), "the port")
                    .remedy("take it off the list, or give the port `role = \"bridge\"`"),
            ),
            Some(known) if known.kind.is_tunnel_of(false) => findings.note(
                error(format!(
                    "`{name}` carries packets without Ethernet and cannot be a member of a bridge"
                ))
                .related(known.span.clone(), "the tunnel")
                .remedy("take it off the list, or make it `kind = \"gretap\"` at both gateways"),
            ),
            Some(_) => {
                if let Some((other, earlier)) = taken.insert(name, (&bridge.name.value, span.clone())) {
                    let message = twice(name, other, &bridge.name.value);
                    let remedy = "a port is a member of one bridge, once";
                    findings.note(error(message).related(earlier, "first here").remedy(remedy));
                }
            }
        }
    }
    if list.value.len() == 1 {
        let message = format!("`{}` has one member and nobody to forward to", bridge.name.value);
        findings.note(Diagnostic::warning(list.span.clone(), message).remedy("name a second port or tunnel"));
    }
}

fn twice(name: &str, first: &str, second: &str) -> String {
    if first == second {
        format!("`{name}` is named twice")
    } else {
        format!("`{name}` is a member of `{first}` and of `{second}`")
    }
}

fn is_member(bridge: &BridgeDraft, name: &str) -> bool {
    // A list that could not be read may contain it.
    bridge.members.as_ref().is_none_or(|members| members.value.iter().any(|member| member.value == name))
}

fn not_a_member(bridge: &BridgeDraft, name: &At<String>, findings: &Findings) {
    let message = format!("`{}` is not a member of `{}`", name.value, bridge.name.value);
    let members = bridge.members.iter().flat_map(|members| &members.value);
    let remedy = unknown_name(&name.value, members.map(|member| member.value.as_str()), "member");
    let remedy = remedy.replace("the file has", "its members are");
    findings.note(Diagnostic::error(name.span.clone(), message).remedy(remedy));
}

fn options(bridge: &BridgeDraft, findings: &Findings) {
    for option in &bridge.options {
        if !is_member(bridge, &option.name.value) {
            not_a_member(bridge, &option.name, findings);
        }
    }
}

/// True if the bridge keeps VLANs apart; `None` when that cannot be told. If it does, a member without
/// `vlan` would belong to all of them or to none, and either is a surprise.
fn vlan_awareness(bridge: &BridgeDraft, findings: &Findings) -> Option<bool> {
    if bridge.options.iter().any(|option| option.vlan_unreadable) {
        return None;
    }
    let Some(example) = bridge.options.iter().find_map(|option| Some((option, option.vlan.as_ref()?))) else {
        return Some(false);
    };
    let has_vlan =
        |name: &str| bridge.options.iter().any(|option| option.name.value == name && option.vlan.is_some());
    for member in bridge.members.iter().flat_map(|members| &members.value) {
        if !has_vlan(&member.value) {
            let message =
                format!("`{}` does not say which VLANs `{}` carries", bridge.name.value, member.value);
            let remedy = format!(
                "add `[bridge.{}.port.{}]` with `vlan = {{ access = … }}` or `vlan = {{ trunk = […] }}`",
                bridge.name.value, member.value
            );
            let related = format!("`{}` says it, so all members have to", example.0.name.value);
            findings.note(
                Diagnostic::error(member.span.clone(), message)
                    .related(example.1.span.clone(), related)
                    .remedy(remedy),
            );
        }
    }
    Some(true)
}

fn static_entries(bridge: &BridgeDraft, aware: Option<bool>, findings: &Findings) {
    let mut seen = BTreeMap::new();
    for entry in &bridge.static_entries {
        let port = entry.port.as_ref();
        if let Some(port) = port.filter(|port| !is_member(bridge, &port.value)) {
            not_a_member(bridge, port, findings);
        }
        match (aware, &entry.vlan) {
            (Some(true), None) => findings.note(
                Diagnostic::error(
                    entry.span.clone(),
                    "the entry has no `vlan`, and its bridge keeps VLANs apart",
                )
                .remedy("add `vlan = …`"),
            ),
            (Some(false), Some(vlan)) => findings.note(
                Diagnostic::error(vlan.span.clone(), "the entry has a `vlan`, and its bridge knows no VLANs")
                    .remedy("remove it, or give the members of the bridge a `vlan`"),
            ),
            (Some(true), Some(vlan)) => {
                if let Some(port) = port {
                    vlan_carried(bridge, port, vlan, findings);
                }
            }
            (Some(false), None) | (None, _) => {}
        }
        let Some(mac) = &entry.mac else { continue };
        let key = (mac.value, entry.vlan.as_ref().map(|vlan| vlan.value));
        if let Some(earlier) = seen.insert(key, mac.span.clone()) {
            findings.note(
                Diagnostic::error(mac.span.clone(), format!("{} is bound twice", mac.value))
                    .related(earlier, "first here")
                    .remedy("an address is bound to one member"),
            );
        }
    }
    let limit = bridge.max_entries.as_ref();
    if let Some(limit) = limit.filter(|limit| bridge.static_entries.len() > limit.value as usize) {
        let message = format!("{} static entries do not fit", bridge.static_entries.len());
        findings.note(Diagnostic::error(limit.span.clone(), message).remedy("raise `max_entries`"));
    }
}

/// The member of a static entry has to carry the entry's VLAN.
fn vlan_carried(bridge: &BridgeDraft, port: &At<String>, vlan: &At<u16>, findings: &Findings) {
    let option = bridge.options.iter().find(|option| option.name.value == port.value);
    let Some(member) = option.and_then(|option| option.vlan.as_ref()) else { return };
    let carried = match &member.value {
        MemberVlan::Access(access) => *access == vlan.value,
        MemberVlan::Trunk { allowed, .. } => allowed.contains(&vlan.value),
    };
    if !carried {
        findings.note(
            Diagnostic::error(
                vlan.span.clone(),
                format!("`{}` does not carry VLAN {}", port.value, vlan.value),
            )
            .related(member.span.clone(), "what it carries")
            .remedy("bind the address to a member that carries its VLAN, or let this one carry it"),
        );
    }
}

/// Bridge ports and tunnels that are in no bridge: all that they receive would be dropped.
fn homeless(draft: &Draft, names: &Names<'_>, taken: &BTreeMap<&str, (&str, Span)>, findings: &Findings) {
    // A name with a slip of the pen has been reported, and most likely means its neighbour.
    let members = draft.bridges.iter().flat_map(|bridge| &bridge.members).flat_map(|members| &members.value);
    let unknown = members.filter(|member| !names.contains_key(member.value.as_str()));
    let meant: BTreeSet<&str> =
        unknown.filter_map(|member| closest(&member.value, names.keys().copied())).collect();
    let ports = draft.ports.iter().filter(|port| port.role == Some(Role::Bridge)).map(|port| &port.name);
    let ports = ports.map(|name| (name, "port"));
    let tunnels = draft.tunnels.iter().filter(|tunnel| tunnel.kind.is_some_and(TunnelKind::carries_frames));
    let tunnels = tunnels.map(|tunnel| (&tunnel.name, "tunnel"));
    let bridges: BTreeSet<&str> = draft.bridges.iter().map(|bridge| bridge.name.value.as_str()).collect();
    for (name, noun) in ports.chain(tunnels) {
        if taken.contains_key(name.value.as_str()) || meant.contains(name.value.as_str()) {
            continue;
        }
        let message =
            format!("the {noun} `{}` is in no bridge, so nothing can be forwarded to or from it", name.value);
        let remedy = match bridges.first() {
            Some(bridge) => format!("add \"{}\" to the `members` of [bridge.{bridge}]", name.value),
            None => format!("add `[bridge.br0]` with `members = [\"{}\", …]`", name.value),
        };
        findings.note(Diagnostic::error(name.span.clone(), message).remedy(remedy));
    }
}

fn resolved(bridge: &BridgeDraft, names: &Names<'_>) -> Bridge {
    let id = |name: &str| names.get(name).map(|name| name.id);
    let list = bridge.members.iter().flat_map(|members| &members.value);
    let member = |name: &At<String>| {
        let option = bridge.options.iter().find(|option| option.name.value == name.value);
        Some(resolved_member(id(&name.value)?, option))
    };
    let entry = |entry: &super::super::read::StaticDraft| {
        Some(StaticEntry {
            mac: entry.mac.as_ref()?.value,
            vlan: entry.vlan.as_ref().map(|vlan| vlan.value),
            port: id(&entry.port.as_ref()?.value)?,
        })
    };
    Bridge {
        name: bridge.name.value.clone(),
        members: list.filter_map(member).collect(),
        ageing_seconds: bridge.ageing_seconds.unwrap_or(AGEING_SECONDS),
        max_entries: bridge.max_entries.as_ref().map_or(MAX_ENTRIES, |at| at.value),
        flood_limit: bridge.flood_limit,
        static_entries: bridge.static_entries.iter().filter_map(entry).collect(),
    }
}

fn resolved_member(port: polder_buffers::PortId, option: Option<&MemberDraft>) -> Member {
    let on = |pick: fn(&MemberDraft) -> Option<bool>, default| option.and_then(pick).unwrap_or(default);
    Member {
        port,
        vlan: option.and_then(|option| option.vlan.as_ref()).map(|vlan| vlan.value.clone()),
        isolated: on(|option| option.isolated, false),
        learning: on(|option| option.learning, true),
        flood: on(|option| option.flood, true),
        fdb_max_learned: option.and_then(|option| option.fdb_max_learned),
    }
}
