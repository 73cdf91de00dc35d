//! Tunnels: the port that carries each, overlaps between them, sizes that fit, devices.

use super::super::diagnostics::Diagnostic;
use super::super::file::FileDraft;
use super::super::keys::Draft;
use super::super::model::{Configuration, Port, Role, Tunnel, TunnelKind};
use super::super::section::{Findings, Span};
use super::NameKind;
use polder_buffers::PortId;
use polder_datapath::tunnel::{Carrier, Ends};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// Resolves all tunnels.
pub(super) fn resolve(draft: &FileDraft, findings: &Findings) -> Vec<Tunnel> {
    let mut tunnels = Vec::new();
    let mut claims = Claims::default();
    for (index, (id, tunnel)) in draft.tunnel_ids().zip(&draft.tunnels).enumerate() {
        tunnel.check_kind(findings);
        tunnel.check_vxlan(findings);
        addresses(tunnel, findings);
        families(tunnel, findings);
        for (earlier, shared) in claims.add(index, tunnel) {
            overlap(tunnel, &draft.tunnels[earlier], shared, findings);
        }
        carrier(tunnel, draft, findings);
        keepalives(tunnel, findings);
        let resolved = tunnel.resolved(draft.remote_ids(id));
        if let Some(first) = resolved.first() {
            size(tunnel, first, draft, findings);
        }
        tunnels.extend(resolved);
    }
    shared_sessions(&tunnels, draft, findings);
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
        if !self.is_complete() || self.kind() == Some(TunnelKind::Vxlan) && self.at("vni").is_none() {
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
        let is_v6 = tunnel.is_v6();
        if tunnel.next_hop.is_some_and(|next_hop| next_hop.is_ipv6() != is_v6) {
            return None;
        }
        let is_routed = tunnel.next_hop.is_some_and(|next_hop| next_hop != remote);
        if let Some(bfd) = &mut tunnel.bfd {
            bfd.multihop.get_or_insert(is_routed);
        }
        if let Some(vxlan) = &mut tunnel.vxlan {
            vxlan.udp_checksum = self.at("udp_checksum").map_or(is_v6, |_| vxlan.udp_checksum);
        }
        tunnel.encapsulation_limit = tunnel.encapsulation_limit.filter(|_| tunnel.has_limit());
        tunnel.dont_fragment |= !tunnel.kind.may_be_cut();
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
    if let Some(span) = tunnel.at("next_hop").filter(|_| next_hop == Some(local)) {
        findings.note(
            Diagnostic::error(span.clone(), "the next hop is this end itself")
                .related(local_at.clone(), "")
                .remedy(
                    "name the neighbour on the underlay that leads to the other end, or remove `next_hop`",
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
    let hop = next_hop.zip(tunnel.at("next_hop")).map(|(hop, span)| (hop, span.clone(), "the next hop"));
    for (other, span, what) in remotes.chain(hop).filter(|(other, ..)| other.is_ipv6() != local.is_ipv6()) {
        let (ours, theirs) = (family(local), family(other));
        findings.note(
            Diagnostic::error(
                span,
                format!("{what} has an {theirs} address, but this end an {ours} address"),
            )
            .related(local_at.clone(), "")
            .remedy(format!("use {ours} addresses for both, or {theirs} addresses for both")),
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

/// Number by which packets between two ends are told apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// Key of GRE.
    Key(Option<u32>),
    /// Network and port of VXLAN.
    Network(u32, u16),
    /// Protocol of the outer IP header.
    Protocol(u8),
}

impl Claim {
    /// The number of a tunnel, if it could be read.
    fn of(tunnel: &Draft<Tunnel>) -> Option<Self> {
        match tunnel.value.carrier() {
            Carrier::Udp(_) => tunnel.network().map(|(vni, port)| Self::Network(vni, port)),
            Carrier::GRE => (!tunnel.is_unreadable("key")).then_some(Self::Key(tunnel.value.key)),
            Carrier::Ip(protocol) => Some(Self::Protocol(protocol.0)),
        }
    }
}

/// Tunnels by the packets that they claim: local address, remote address, number.
#[derive(Default)]
struct Claims(BTreeMap<(IpAddr, IpAddr, Claim), Vec<usize>>);

impl Claims {
    /// Adds a tunnel. Gives the earlier tunnels that claim the same packets, each with the first remote that is shared.
    fn add(&mut self, index: usize, tunnel: &Draft<Tunnel>) -> BTreeMap<usize, IpAddr> {
        let mut others = BTreeMap::new();
        let (Some(_), Some(claim)) = (tunnel.at("local"), Claim::of(tunnel)) else { return others };
        for (remote, _) in tunnel.remotes() {
            let known = self.0.entry((tunnel.value.local, remote, claim)).or_default();
            for &earlier in known.iter().filter(|&&earlier| earlier != index) {
                others.entry(earlier).or_insert(remote);
            }
            known.push(index);
        }
        others
    }
}

/// Two tunnels that would claim the same packets.
fn overlap(tunnel: &Draft<Tunnel>, earlier: &Draft<Tunnel>, shared: IpAddr, findings: &Findings) {
    let (name, other) = (&tunnel.value.name, &earlier.value.name);
    let clash = |message: String, remedy: &str| {
        let finding = Diagnostic::error(tunnel.name.clone(), message).label("packets of this tunnel");
        let finding =
            finding.related(earlier.name.clone(), "cannot be distinguished from packets of this tunnel");
        findings.note(finding.remedy(remedy));
    };
    if let Some((vni, port)) = tunnel.network() {
        let ends = match tunnel.has("remotes") || earlier.has("remotes") {
            true => format!("the same local end, the remote {shared}"),
            false => "the same ends".to_owned(),
        };
        return clash(
            format!("the tunnels `{other}` and `{name}` have {ends}, VNI {vni} and UDP port {port}"),
            "give each a `vni` of its own, the same at both ends",
        );
    }
    if !tunnel.value.kind.is_gre() {
        let word = tunnel.value.kind.word();
        return clash(
            format!("the tunnels `{other}` and `{name}` have the same ends"),
            &format!(
                "give one of the tunnels other end addresses: `{word}` has no key that distinguishes tunnels"
            ),
        );
    }
    let what = match tunnel.value.key {
        Some(key) => format!("have the same ends and the key {key}"),
        None => "have the same ends and no key".to_owned(),
    };
    clash(
        format!("the tunnels `{other}` and `{name}` {what}"),
        "give each a `key` of its own, the same at both gateways",
    );
}

/// Tunnels between the same ends have one session of BFD, and so the same values of it, or none.
fn shared_sessions(tunnels: &[Tunnel], draft: &FileDraft, findings: &Findings) {
    let mut sessions = BTreeMap::new();
    for tunnel in tunnels {
        let Some(bfd) = &tunnel.bfd else { continue };
        let (name, known) = *sessions.entry((tunnel.local, tunnel.remote)).or_insert((&tunnel.table, bfd));
        let draft = draft.tunnels.iter().find(|draft| draft.value.name == tunnel.table);
        let Some(span) = draft.and_then(|draft| draft.at("bfd")).filter(|_| known != bfd) else { continue };
        let message =
            format!("the tunnels `{name}` and `{}` have the same ends and differ in `bfd`", tunnel.table);
        let remedy = "they share one BFD session (RFC 5881, 2): give both the same `bfd`, or only one of \
                      them";
        findings.note(Diagnostic::error(span.clone(), message).remedy(remedy));
    }
}

/// Keepalives that can be answered, and one way to watch a tunnel.
fn keepalives(tunnel: &Draft<Tunnel>, findings: &Findings) {
    let (Some(span), Some(keepalive), Some(kind)) =
        (tunnel.at("keepalive"), tunnel.value.keepalive, tunnel.kind())
    else {
        return;
    };
    let refuse = |message: &str, remedy: &str| {
        findings.note(Diagnostic::error(span.clone(), message.to_owned()).remedy(remedy));
    };
    if !kind.has_keepalives() {
        let message = format!("`keepalive` is for GRE and VXLAN, but `{}` is neither", kind.word());
        return refuse(&message, "use `bfd`, or give the tunnel `kind = \"gre\"` at both gateways");
    }
    if tunnel.has("bfd") {
        refuse(
            "`keepalive` and `bfd` monitor the same end",
            "remove one of them: `bfd` detects failures \
                sooner",
        );
    }
    match (kind.carries_frames(), keepalive.address) {
        (true, None) => refuse(
            "`keepalive` of an Ethernet tunnel needs an address to probe, but has none",
            "add `address = \"…\"`, the address of a host or a bridge behind the other end",
        ),
        (false, Some(_)) => {
            refuse(
                "`address` is for `gretap` and `vxlan`",
                "remove it: the other end of a `gre` tunnel answers by itself",
            );
        }
        (true, Some(_)) | (false, None) => {}
    }
    if tunnel.value.sequence {
        refuse(
            "`keepalive` is not for a tunnel with `sequence`",
            "use `bfd`: keepalives cannot be ordered with the workers' sequence numbers",
        );
    }
    if tunnel.has("remotes") {
        refuse(
            "`keepalive` probes one address, but the tunnel has several remotes",
            "use `bfd`, or a tunnel for each remote",
        );
    }
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
    let message = format!(
        "packets of {inner} bytes in the tunnel are {needed} bytes long on the underlay, whose MTU \
                 is {outer}"
    );
    let remedy = match outer.checked_sub(overhead).filter(|&fitting| fitting >= 68) {
        Some(fitting) if !resolved.kind.may_be_cut() => {
            format!("set `mtu = {fitting}`: VXLAN is never fragmented")
        }
        Some(fitting) => format!(
            "set `mtu = {fitting}`, or `dont_fragment = false` to send them in \
                                  fragments"
        ),
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

/// Checks the devices of tunnels, and adds the port of each.
pub(super) fn add_devices(draft: &FileDraft, configuration: &mut Configuration, findings: &Findings) {
    let mut known = interfaces(draft);
    for tunnel in &draft.tunnels {
        let Some((Some(name), span)) = tunnel.get("device", |tunnel| tunnel.device.as_deref()) else {
            continue;
        };
        carries_packets(tunnel, span, findings);
        match known.get(name) {
            Some((of, earlier)) => in_use(name, (span, tunnel), (of, earlier), findings),
            None => drop(known.insert(name, (format!("[tunnel.{}]", tunnel.value.name), span.clone()))),
        }
    }
    let devices = configuration.tunnels.iter().filter(|tunnel| tunnel.is_routed());
    let mut devices = devices.filter_map(|tunnel| tunnel.device.clone()).collect::<Vec<_>>();
    devices.dedup();
    let first = u16::try_from(configuration.id_limit()).unwrap_or(u16::MAX);
    let ports = (first..).zip(&devices).map(|(id, device)| Port::of_tunnel(PortId(id), device));
    configuration.ports.extend(ports);
}

/// Interfaces and TAPs of ports, each with the table that has it.
fn interfaces(draft: &FileDraft) -> HashMap<&str, (String, Span)> {
    let port = |port| {
        let (device, span) = Draft::<Port>::device(port)?;
        Some((device.kernel_name()?, (format!("[port.{}]", port.value.name), span.clone())))
    };
    draft.ports.iter().filter_map(port).collect()
}

/// A tunnel of frames has no device: its packets are a bridge's.
fn carries_packets(tunnel: &Draft<Tunnel>, span: &Span, findings: &Findings) {
    if !tunnel.kind().is_some_and(|kind| kind.carries_frames()) {
        return;
    }
    let name = &tunnel.value.name;
    let message = format!("`{name}` carries Ethernet frames and has no device of its own");
    let remedy = "remove `device`, and make the host a member of the bridge by a port with `tap = \"…\"`; or make the \
                  tunnel `kind = \"gre\"` at both gateways";
    findings.note(Diagnostic::error(span.clone(), message).remedy(remedy));
}

/// Two tables name one interface.
fn in_use(
    name: &str,
    (span, tunnel): (&Span, &Draft<Tunnel>),
    (of, earlier): (&str, &Span),
    findings: &Findings,
) {
    let message = format!("{of} has the interface {name}, which [tunnel.{}] would make", tunnel.value.name);
    findings.note(
        Diagnostic::error(span.clone(), message)
            .related(earlier.clone(), "the other")
            .remedy("give the tunnel's `device` another name"),
    );
}

#[cfg(test)]
mod tests {
    use super::super::super::{difference, parse};
    use crate::clock::Clock;
    use polder_datapath::units::Nanos;
    use std::fmt::Write as _;
    use std::path::Path;

    /// A file with a bridge and many tunnels, whose remotes differ.
    fn file(tunnels: u32) -> String {
        let mut text = "version = 1\n[port.lan]\ninterface = \"eth0\"\n[port.core]\ninterface = \"eth1\"\n\
                        role = \"underlay\"\n"
            .to_owned();
        let mut members = vec!["\"lan\"".to_owned()];
        for number in 0..tunnels {
            let remote = std::net::Ipv4Addr::from_bits(0x0a01_0000 + number);
            let _ = writeln!(
                text,
                "[tunnel.t{number}]\nkind = \"gretap\"\nlocal = \"192.0.2.1\"\nremote = \"{remote}\"\nport = \"core\""
            );
            members.push(format!("\"t{number}\""));
        }
        let _ = writeln!(text, "[bridge.br0]\nmembers = [{}]", members.join(", "));
        text
    }

    /// CPU time in which a file is read, compared with a smaller one and written.
    fn cost(tunnels: u32) -> Nanos {
        let (text, fewer) = (file(tunnels), file(tunnels / 2));
        let (clock, count) = (Clock::start(), |number: u32| usize::try_from(number).expect("a few"));
        let begun = clock.cpu();
        let read = |text: &str| parse(text, Path::new("a.toml")).expect("valid").configuration;
        let (all, fewer) = (read(&text), read(&fewer));
        assert_eq!(difference(&fewer, &all).tunnels.added.len(), count(tunnels - tunnels / 2));
        assert!(all.to_toml().contains("remote"));
        clock.cpu().since(begun)
    }

    /// Sixteen times as many cost 256 times as much where each is compared with each.
    #[test]
    fn time_grows_with_the_number_of_tunnels() {
        let least = |tunnels| (0..3).map(|_| cost(tunnels)).min().expect("three rounds");
        let (few, many) = (least(500), least(8000));
        assert!(many.0 < few.0 * 64, "{few:?} for 500, {many:?} for 8000");
    }
}
