//! Bridges: their members, what they say about VLANs, static entries; every port has its place.

use super::super::bridge::BridgeDraft;
use super::super::diagnostics::Diagnostic;
use super::super::file::FileDraft;
use super::super::keys::Draft;
use super::super::model::{Bridge, Member, MemberVlan, Port, Role, StaticEntry, Tunnel, TunnelKind};
use super::super::names::unknown_name;
use super::super::patterns::is_pattern;
use super::super::section::{Findings, Span};
use super::NameKind;
use polder_buffers::PortId;
use std::collections::{BTreeMap, BTreeSet};

/// Resolves all bridges.
pub(super) fn resolve(draft: &FileDraft, findings: &Findings) -> Vec<Bridge> {
    let mut taken: BTreeMap<&str, (&str, Span)> = BTreeMap::new();
    let mut bridges = Vec::new();
    for bridge in &draft.bridges {
        members(bridge, draft, &mut taken, findings);
        let names = ByName::of(bridge, draft);
        bridge.options.iter().for_each(|(name, _)| names.is_member((&name.value, &name.span), findings));
        let aware = vlan_awareness(&names, findings);
        static_entries(&names, draft, aware, findings);
        bridge.static_entries.iter().for_each(|entry| remote(entry, draft, findings));
        bridges.push(resolved(&names, draft));
    }
    // A member list that could not be read may name any port.
    if draft.bridges.iter().all(|bridge| bridge.bridge.at("members").is_some()) {
        homeless(draft, &taken, findings);
    }
    bridges
}

/// Each member is no underlay, and is a member once.
fn members<'a>(
    bridge: &'a BridgeDraft,
    draft: &'a FileDraft,
    taken: &mut BTreeMap<&'a str, (&'a str, Span)>,
    findings: &Findings,
) {
    let bridge = &bridge.bridge;
    let Some(list) = bridge.at("members") else { return };
    for (index, Member { port: id, .. }) in bridge.value.members.iter().enumerate() {
        let Some((kind, place)) = draft.name(*id) else { continue };
        let (name, span) = (draft.text(*id), bridge.element("members", index));
        let (message, of, remedy) = match kind {
            NameKind::Port(Some(Role::Underlay)) => (
                format!("`{name}` is an underlay port and cannot be a member of a bridge"),
                "the port",
                "make the tunnel over this port a member, or give the port `role = \"bridge\"`",
            ),
            NameKind::Port(Some(Role::Router)) => (
                format!("`{name}` belongs to the router and cannot be a member of a bridge"),
                "the port",
                "remove the port from the list, or give it `role = \"bridge\"`",
            ),
            NameKind::Tunnel(_) if kind.is_tunnel_of(false) => (
                format!("`{name}` carries packets without Ethernet and cannot be a member of a bridge"),
                "the tunnel",
                "remove the tunnel from the list, or give it `kind = \"gretap\"` at both gateways",
            ),
            NameKind::Port(_) | NameKind::Tunnel(_) => {
                if let Some((other, earlier)) = taken.insert(name, (&bridge.value.name, span.clone())) {
                    let message = twice(name, other, &bridge.value.name);
                    let remedy = "name a port once, in one bridge";
                    findings
                        .note(Diagnostic::error(span, message).related(earlier, "first here").remedy(remedy));
                }
                continue;
            }
        };
        findings.note(Diagnostic::error(span, message).related(place.clone(), of).remedy(remedy));
    }
    let one = match &bridge.value.members[..] {
        [one] => Some(draft.text(one.port)),
        _ => None,
    };
    if one.is_some_and(|name| !is_pattern(name)) {
        let message = format!("`{}` has one member and no other to forward to", bridge.value.name);
        findings.note(
            Diagnostic::warning(list.clone(), message).remedy("name a second member: a port or a tunnel"),
        );
    }
}

fn twice(name: &str, first: &str, second: &str) -> String {
    if first == second {
        format!("`{name}` is named twice")
    } else {
        format!("`{name}` is a member of `{first}` and of `{second}`")
    }
}

/// A bridge with its members by name.
struct ByName<'a> {
    bridge: &'a BridgeDraft,
    /// In the order of the file; `None` if the list could not be read.
    members: Option<Vec<&'a str>>,
    known: BTreeSet<&'a str>,
    /// Options of single members.
    options: BTreeMap<&'a str, &'a Draft<Member>>,
}

impl<'a> ByName<'a> {
    fn of(bridge: &'a BridgeDraft, draft: &'a FileDraft) -> Self {
        let names = bridge.bridge.value.members.iter().map(|member| draft.text(member.port));
        let members = bridge.bridge.at("members").map(|_| names.collect::<Vec<_>>());
        let known = members.iter().flatten().copied().collect();
        let options = bridge.options.iter().map(|(name, option)| (name.value.as_str(), option)).collect();
        Self { bridge, members, known, options }
    }

    /// Notes a name that is not that of a member.
    fn is_member(&self, (name, span): (&str, &Span), findings: &Findings) {
        // A list that could not be read may contain it.
        let Some(members) = self.members.as_ref().filter(|_| !self.known.contains(name)) else { return };
        let message = format!("`{name}` is not a member of `{}`", self.bridge.bridge.value.name);
        let remedy = unknown_name(name, members.iter().copied(), "member");
        let remedy = remedy.replace("the file has", "the bridge's members are");
        findings.note(Diagnostic::error(span.clone(), message).remedy(remedy));
    }
}

/// True if the bridge keeps VLANs apart; `None` when that cannot be told. If it does, a member without
/// `vlan` would belong to all of them or to none, and either is a surprise.
fn vlan_awareness(names: &ByName<'_>, findings: &Findings) -> Option<bool> {
    let bridge = names.bridge;
    if bridge.options.iter().any(|(_, option)| option.is_unreadable("vlan")) {
        return None;
    }
    let Some(example) = bridge.options.iter().find_map(|(name, option)| Some((name, option.at("vlan")?)))
    else {
        return Some(false);
    };
    let has_vlan = |member| names.options.get(member).is_some_and(|option| option.at("vlan").is_some());
    let title = &bridge.bridge.value.name;
    for (index, &member) in names.members.iter().flatten().enumerate() {
        if !has_vlan(member) && !member.is_empty() {
            let message = format!("`{title}` does not say which VLANs `{member}` carries");
            let remedy = format!(
                "add `[bridge.{title}.port.{member}]` with `vlan = {{ access = … }}` or `vlan = {{ trunk = […] }}`"
            );
            let related = format!("`{}` has a `vlan`, so all members need one", example.0.value);
            findings.note(
                Diagnostic::error(bridge.bridge.element("members", index), message)
                    .related(example.1.clone(), related)
                    .remedy(remedy),
            );
        }
    }
    Some(true)
}

fn static_entries(names: &ByName<'_>, draft: &FileDraft, aware: Option<bool>, findings: &Findings) {
    let bridge = names.bridge;
    let mut seen = BTreeMap::new();
    for entry in &bridge.static_entries {
        let port = entry.at("port").map(|span| (draft.text(entry.value.port), span));
        if let Some(port) = port.filter(|(name, _)| !name.is_empty()) {
            names.is_member(port, findings);
        }
        match (aware, entry.at("vlan")) {
            (Some(true), None) if !entry.has("vlan") => findings.note(
                Diagnostic::error(
                    entry.span.clone(),
                    "the entry has no `vlan`, but its bridge separates VLANs",
                )
                .remedy("add `vlan = …` to the entry"),
            ),
            (Some(false), Some(vlan)) => findings.note(
                Diagnostic::error(vlan.clone(), "the entry has a `vlan`, but its bridge has no VLANs")
                    .remedy("remove `vlan` from the entry, or give the members of the bridge a `vlan`"),
            ),
            (Some(true), Some(vlan)) => {
                if let (Some((port, _)), Some(number)) = (port, entry.value.vlan) {
                    vlan_carried(names, port, (number, vlan), findings);
                }
            }
            (Some(_), None) | (None, _) => {}
        }
        let Some((mac, span)) = entry.get("mac", |entry| entry.mac) else { continue };
        if let Some(earlier) = seen.insert((mac, entry.value.vlan), span.clone()) {
            findings.note(
                Diagnostic::error(span.clone(), format!("{mac} is bound twice"))
                    .related(earlier, "first here")
                    .remedy("bind an address to one member"),
            );
        }
    }
    let (limit, count) = (bridge.bridge.value.max_entries, bridge.static_entries.len());
    if let Some(span) = bridge.bridge.at("max_entries").filter(|_| count > limit as usize) {
        let message = format!("{count} static entries exceed the table");
        findings.note(Diagnostic::error(span.clone(), message).remedy("raise `max_entries`"));
    }
}

/// A static entry for a tunnel with several remotes names one of them.
fn remote(entry: &Draft<StaticEntry>, draft: &FileDraft, findings: &Findings) {
    let Some((id, port)) = entry.get("port", |entry| entry.port) else { return };
    let (Some((kind, _)), name) = (draft.name(id), draft.text(id)) else { return };
    let tunnel = draft.tunnel(id);
    let remotes = tunnel.map(Draft::<Tunnel>::remotes).unwrap_or_default();
    let error = |span: &Span, message: String, remedy: &str| {
        findings.note(Diagnostic::error(span.clone(), message).remedy(remedy));
    };
    let Some(span) = entry.at("remote") else {
        if tunnel.is_some_and(|tunnel| tunnel.has("remotes")) && !entry.has("remote") {
            let remedy = "add `remote = \"…\"`, the remote that leads to the station";
            error(port, format!("`{name}` has a list of remotes"), remedy);
        }
        return;
    };
    if matches!(kind, NameKind::Port(_)) {
        return error(span, format!("`{name}` is not a tunnel and has no remote"), "remove `remote`");
    }
    // A list that could not be read may contain it.
    if !remotes.is_empty() && remotes.iter().all(|(known, _)| Some(*known) != entry.value.remote) {
        let known = remotes.iter().take(12).map(|(known, _)| known.to_string()).collect::<Vec<_>>();
        let remedy = format!("the tunnel's remotes are {}", known.join(", "));
        error(span, format!("`{name}` has no such remote"), &remedy);
    }
}

/// The number of the member that a static entry is bound to.
fn member_of(entry: &StaticEntry, draft: &FileDraft) -> PortId {
    let mut remotes = draft.tunnel(entry.port).map(Draft::<Tunnel>::remotes).unwrap_or_default().into_iter();
    let place = remotes.position(|(remote, _)| Some(remote) == entry.remote);
    place.and_then(|place| draft.remote_ids(entry.port).get(place).copied()).unwrap_or(entry.port)
}

/// The member of a static entry has to carry the entry's VLAN.
fn vlan_carried(names: &ByName<'_>, port: &str, (vlan, span): (u16, &Span), findings: &Findings) {
    let member =
        names.options.get(port).and_then(|option| Some((option.value.vlan.as_ref()?, option.at("vlan")?)));
    let Some((vlans, place)) = member else { return };
    let carried = match vlans {
        MemberVlan::Access(access) => *access == vlan,
        MemberVlan::Trunk { allowed, .. } => allowed.contains(&vlan),
    };
    if !carried {
        findings.note(
            Diagnostic::error(span.clone(), format!("`{port}` does not carry VLAN {vlan}"))
                .related(place.clone(), "VLANs of the member")
                .remedy("bind the address to a member that carries the entry's VLAN, or add the VLAN to this member"),
        );
    }
}

/// Bridge ports and tunnels that are in no bridge: all that they receive would be dropped.
fn homeless(draft: &FileDraft, taken: &BTreeMap<&str, (&str, Span)>, findings: &Findings) {
    let port = |port: &Draft<Port>| port.role() == Some(Role::Bridge);
    let tunnel = |tunnel: &Draft<Tunnel>| tunnel.kind().is_some_and(TunnelKind::carries_frames);
    let ports = draft.ports.iter().map(|draft| (&draft.name, "port", port(draft)));
    let tunnels = draft.tunnels.iter().map(|draft| (&draft.name, "tunnel", tunnel(draft)));
    let first = draft.bridges.iter().map(|bridge| bridge.bridge.value.name.as_str()).min();
    for (id, (span, noun, is_bridged)) in (0..).map(PortId).zip(ports.chain(tunnels)) {
        // A name with a slip of the pen has been reported, and most likely means its neighbour.
        let name = draft.text(id);
        if !is_bridged || taken.contains_key(name) || draft.names.is_meant(id) {
            continue;
        }
        let message =
            format!("the {noun} `{name}` is in no bridge, so nothing can be forwarded to or from it");
        let remedy = match first {
            Some(bridge) => format!("add \"{name}\" to the `members` of [bridge.{bridge}]"),
            None => format!("add `[bridge.br0]` with `members = [\"{name}\", …]`"),
        };
        findings.note(Diagnostic::error(span.clone(), message).remedy(remedy));
    }
}

fn resolved(names: &ByName<'_>, draft: &FileDraft) -> Bridge {
    let bridge = names.bridge;
    let mut resolved = bridge.bridge.value.clone();
    let members = |member: &Member| {
        let option = names.options.get(draft.text(member.port));
        let options = option.map_or_else(Member::default, |option| option.value.clone());
        let ids = draft.remote_ids(member.port).into_iter();
        ids.map(|port| Member { port, ..options.clone() }).collect::<Vec<_>>()
    };
    resolved.members = bridge.bridge.value.members.iter().flat_map(members).collect();
    let entry = |entry: &Draft<StaticEntry>| StaticEntry {
        port: member_of(&entry.value, draft),
        ..entry.value.clone()
    };
    resolved.static_entries = bridge.static_entries.iter().map(entry).collect();
    resolved
}
