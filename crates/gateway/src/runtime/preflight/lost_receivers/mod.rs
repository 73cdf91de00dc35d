//! Interfaces and sockets of this host that receive fewer packets because a port takes them.
//!
//! A bridge port takes every frame except link-local groups, EAPOL and PTP; interfaces stacked on its
//! interface, and sockets there, do not receive them. A router port takes packets to its MAC address that are
//! not for this host; an interface with the same MAC address in another namespace, such as an ipvlan, loses
//! its packets. Kernel programs and rules are covered by [`hooks`](crate::runtime::hooks), addresses by
//! [`host_traffic`](crate::runtime::silence).

mod frames;
mod host;
mod tables;

use super::{Evidence, PreflightFinding, Severity};
use crate::config::model::{Configuration, Port, Role};
use crate::kernel::namespaces::Place;
use crate::kernel::sockets::{EVERY_PROTOCOL, PacketSocket};
use crate::runtime::gateway::FilteredPorts;
use crate::runtime::host_traffic::{is_stacked, with_uppers};
use frames::Sample;
use host::{Host, ports};
use polder_datapath::wire::MacAddress;
use polder_devices::netlink::link::Link;
use std::collections::BTreeSet;

/// Findings about objects that lose packets to the ports of `configuration`.
pub(super) fn inspect(configuration: &Configuration) -> Vec<PreflightFinding> {
    if ports(configuration).next().is_none() {
        return Vec::new();
    }
    judge(configuration, &Host::look(configuration))
}

fn judge(configuration: &Configuration, host: &Host) -> Vec<PreflightFinding> {
    let (mut found, filtered) = (Vec::new(), FilteredPorts::of(configuration));
    for (port, interface) in ports(configuration) {
        let Some(link) = host.named(interface) else { continue };
        let is_filtered = filtered.contains(port.id);
        let taken = Taken { port, link, bridge: bridge(port, configuration), is_filtered, host };
        found.extend(taken.findings());
    }
    if ports(configuration).any(|(port, _)| port.role == Role::Router) {
        found.extend(host.services.iter().take(MOST).map(|service| rewritten(service)));
    }
    if host.elsewhere.unread > 0 && ports(configuration).any(|(port, _)| port.role == Role::Bridge) {
        // Some namespaces, such as a virtual machine monitor's, cannot be read by any process.
        let (severity, remedy) =
            if host.may_look { (Severity::Fine, "") } else { (Severity::Warning, ": run as root") };
        let text = format!(
            "{} processes or network namespaces could not be examined, so interfaces there that depend on a \
             port may be missing here{remedy}",
            host.elsewhere.unread
        );
        found.push(PreflightFinding::new("gateway".to_owned(), severity, TOPIC, text));
    }
    found
}

/// Finding about an IPVS service whose servers' answers are routed.
fn rewritten(service: &str) -> PreflightFinding {
    let evidence = Evidence {
        object: format!("IPVS service {service}"),
        probe: "ipvsadm -Ln".to_owned(),
        remedy: "use direct routing or tunnels (`ipvsadm -g`, `-i`), or remove the servers' interface from \
                 the configuration"
            .to_owned(),
    };
    let effect = "rewrites addresses, but Polder routes its servers' answers unchanged";
    PreflightFinding::about("router".to_owned(), Severity::Warning, TOPIC, effect, evidence)
}

fn bridge(port: &Port, configuration: &Configuration) -> String {
    configuration.bridge_of(port.id).map_or("the bridge", |bridge| &bridge.name).to_owned()
}

/// A port that takes packets of an interface.
struct Taken<'a> {
    port: &'a Port,
    link: &'a Link,
    /// Name of the port's bridge.
    bridge: String,
    is_filtered: bool,
    host: &'a Host,
}

impl Taken<'_> {
    fn findings(&self) -> Vec<PreflightFinding> {
        let (here, elsewhere) = self.uppers();
        let mut found = Vec::new();
        for link in here.iter().filter(|link| self.starves(link, None)) {
            let probe = format!("ip -d link show dev {}", link.name);
            found.push(self.interface(format!("{} {}", kind(link), link.name), probe, link));
        }
        for (place, link) in elsewhere.iter().filter(|(place, link)| self.starves(link, Some(place))) {
            let object = format!("{} {} {}", kind(link), link.name, place.text());
            found.push(self.interface(object, place.probe(&link.name), link));
        }
        self.sessions(&mut found);
        self.bound(&mut found);
        found.extend(self.sockets());
        self.bounded(found)
    }

    /// Interfaces that receive through the port's interface: here, and in other namespaces.
    fn uppers(&self) -> (Vec<&Link>, Vec<&(Place, Link)>) {
        let below = with_uppers(&self.host.links, [self.link.index], |_| None);
        let is_on = |lower: Option<u32>| lower.is_some_and(|lower| below.contains(&lower));
        let here = self.host.links.iter().filter(|link| {
            let is_upper = is_stacked(link) || is_tunnel(link);
            (is_upper && is_on(link.lower())) || self.link.master == Some(link.index)
        });
        let elsewhere = self.host.elsewhere.links.iter();
        let elsewhere =
            elsewhere.filter(|(_, link)| (is_stacked(link) || is_tunnel(link)) && is_on(link.peer));
        (here.collect(), elsewhere.collect())
    }

    /// True if the port takes packets of an interface that receives through the port's interface.
    fn starves(&self, upper: &Link, place: Option<&Place>) -> bool {
        match self.port.role {
            Role::Bridge => true,
            // A router port leaves this namespace's addresses and unknown VLANs to the kernel. Addresses of
            // other namespaces and of virtual machines are not known here.
            Role::Router => {
                let is_unknown = place.is_some() || matches!(upper.kind.as_str(), "macvtap" | "ipvtap");
                is_unknown && is_stacked(upper) && upper.kind != "vlan" && upper.mac == self.link.mac
            }
            Role::Underlay => false,
        }
    }

    fn interface(&self, object: String, probe: String, upper: &Link) -> PreflightFinding {
        let (port, name) = (&self.port.name, &self.link.name);
        let (effect, remedy) = match self.port.role {
            Role::Router | Role::Underlay => (
                format!("has the MAC address of {name}, so [port.{port}] takes its packets"),
                "use a macvlan with a MAC address of its own".to_owned(),
            ),
            Role::Bridge => {
                let remedy = match upper.kind.as_str() {
                    _ if self.link.master == Some(upper.index) => {
                        format!("`ip link set dev {name} nomaster`")
                    }
                    "vlan" => {
                        let id = upper.vlan.map(|vlan| format!(" type vlan id {vlan}")).unwrap_or_default();
                        format!(
                            "create it on a TAP that is a member of {}: `ip link add link TAP name …{id}`",
                            self.bridge
                        )
                    }
                    _ => format!("put it on a TAP that is a member of {} (`tap = \"…\"`)", self.bridge),
                };
                (format!("receives nothing on {name}: {} takes every frame", self.bridge), remedy)
            }
        };
        self.warn(&effect, Evidence { object, probe, remedy })
    }

    /// Adds findings about PPPoE sessions on the interface of a bridge port.
    fn sessions(&self, found: &mut Vec<PreflightFinding>) {
        let name = &self.link.name;
        let sessions = self.host.sessions.iter().filter(|(device, _)| device == name);
        for (_, session) in sessions.filter(|_| self.port.role == Role::Bridge) {
            let evidence = Evidence {
                object: format!("PPPoE session {session}"),
                probe: "cat /proc/net/pppoe".to_owned(),
                remedy: format!("have pppd use a TAP that is a member of {}", self.bridge),
            };
            found.push(self.warn(&format!("receives nothing on {name}"), evidence));
        }
    }

    /// Adds findings about sockets that are bound to the interface of a bridge port.
    fn bound(&self, found: &mut Vec<PreflightFinding>) {
        let name = &self.link.name;
        let sockets = self.host.bound_sockets.iter().filter(|socket| socket.interface == self.link.index);
        let sockets = sockets.filter(|_| self.port.role == Role::Bridge);
        let told =
            sockets.filter_map(|socket| Some((self.host.owner(socket.inode)?, socket.kind, socket.port)));
        for (owner, kind, port) in told.collect::<BTreeSet<_>>() {
            let word = if kind == "raw" { "protocol" } else { "port" };
            let evidence = Evidence {
                object: format!("{kind} socket of {owner}, {word} {port}"),
                probe: "ss -anp --tcp --udp --raw".to_owned(),
                remedy: format!("bind the socket to a TAP that is a member of {}", self.bridge),
            };
            found.push(self.warn(&format!("is bound to {name} and receives nothing"), evidence));
        }
    }

    /// Findings about packet sockets that lose frames to the port.
    fn sockets(&self) -> Vec<PreflightFinding> {
        let samples = match self.port.role {
            Role::Bridge => frames::bridged(MacAddress(self.link.mac)),
            Role::Router | Role::Underlay => frames::routed(MacAddress(self.link.mac), self.is_filtered),
        };
        let sockets = self.host.packet_sockets.iter().filter(|socket| socket.interface == self.link.index);
        // In mode `skb`, sockets for all protocols see packets before Polder's program (packet(7)).
        let is_skb = self.host.in_skb_mode.contains(&self.link.name);
        let sockets = sockets.filter(|socket| !(is_skb && socket.protocol == EVERY_PROTOCOL));
        let told = sockets.filter_map(|socket| {
            let loss = self.loss(socket, &samples)?;
            Some((self.host.owner(socket.inode)?, loss, socket.protocol == EVERY_PROTOCOL))
        });
        let told = told.collect::<BTreeSet<_>>().into_iter();
        told.map(|(owner, (loss, is_sure), hears_all)| {
            let evidence = Evidence {
                object: format!("packet socket of {owner}"),
                probe: "ss -0lnp".to_owned(),
                remedy: self.remedy(&loss, hears_all),
            };
            let name = &self.link.name;
            match is_sure {
                true => self.warn(&format!("receives no {loss} on {name}"), evidence),
                false => self.note(
                    Severity::Fine,
                    &format!("may receive fewer packets on {name}: its filter could not be read"),
                    evidence,
                ),
            }
        })
        .collect()
    }

    /// Kinds of frames that a socket loses, and true if that is certain; `None` if it loses nothing that it
    /// listens for.
    fn loss(&self, socket: &PacketSocket, samples: &[Sample]) -> Option<(String, bool)> {
        let Some(mut sorts) = frames::heard(socket, samples) else {
            return Some((String::new(), false));
        };
        if self.port.role != Role::Bridge && socket.protocol != EVERY_PROTOCOL {
            // On a router port, a socket for one protocol is interested in the host's own packets.
            sorts.retain(|sort| *sort == frames::OFFERS);
        }
        let is_left = KEPT.contains(&socket.protocol) || self.port.role != Role::Bridge;
        match (sorts.is_empty(), socket.protocol) {
            (false, _) => Some((sorts.join(", "), true)),
            (true, protocol) if protocol != EVERY_PROTOCOL && !is_left && !frames::is_known(protocol) => {
                Some((format!("frames of EtherType {protocol:#06x}"), true))
            }
            (true, _) => None,
        }
    }

    fn remedy(&self, loss: &str, hears_all: bool) -> String {
        let port = &self.port.name;
        match (hears_all, self.port.role) {
            (true, _) => format!("`mode = \"skb\"` in [port.{port}], or `polder capture {port}`"),
            (false, Role::Bridge) => format!("run it on a TAP that is a member of {}", self.bridge),
            (false, Role::Router | Role::Underlay) if loss.contains(frames::OFFERS) => {
                "have the client ask for broadcast answers (`udhcpc -B`, `RequestBroadcast=yes`)".to_owned()
            }
            (false, Role::Router | Role::Underlay) => format!("`polder capture {port}` sees these packets"),
        }
    }

    fn warn(&self, effect: &str, evidence: Evidence) -> PreflightFinding {
        self.note(Severity::Warning, effect, evidence)
    }

    fn note(&self, severity: Severity, effect: &str, evidence: Evidence) -> PreflightFinding {
        PreflightFinding::about(format!("port.{}", self.port.name), severity, TOPIC, effect, evidence)
    }

    /// The first findings of a port, and one with the number of the others.
    fn bounded(&self, mut found: Vec<PreflightFinding>) -> Vec<PreflightFinding> {
        let more = found.len().saturating_sub(MOST);
        if more > 0 {
            found.truncate(MOST);
            let text =
                format!("{more} more receivers on {}: `polder check` lists at most {MOST}", self.link.name);
            found.push(PreflightFinding::new(
                format!("port.{}", self.port.name),
                Severity::Warning,
                TOPIC,
                text,
            ));
        }
        found
    }
}

/// Kind of an interface, as a word.
fn kind(link: &Link) -> &str {
    if link.kind.is_empty() { "interface" } else { &link.kind }
}

/// True if an interface's outer packets arrive through its lower interface.
fn is_tunnel(link: &Link) -> bool {
    const KINDS: [&str; 14] = [
        "vxlan",
        "geneve",
        "gre",
        "gretap",
        "erspan",
        "ip6gre",
        "ip6gretap",
        "ip6erspan",
        "ipip",
        "sit",
        "ip6tnl",
        "vti",
        "vti6",
        "xfrm",
    ];
    KINDS.contains(&link.kind.as_str())
}

/// EtherTypes that the kernel keeps on a bridge port, for link-local groups or the port's own address: IEEE
/// 802.2, EAPOL, slow protocols, LLDP, PTP.
const KEPT: [u16; 6] = [0x0001, 0x0004, 0x888e, 0x8809, 0x88cc, 0x88f7];
/// Maximum number of findings listed for a port.
const MOST: usize = 32;
/// Topic of these findings.
const TOPIC: &str = "starves";

#[cfg(test)]
mod tests;
