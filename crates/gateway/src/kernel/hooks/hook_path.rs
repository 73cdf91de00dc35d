//! Hooks that packets of a port would pass, and the packet fields that are known there.

use super::chain_walk::Packet;
use super::links::Links;
use super::policy::{Direction, Interface, Policy};
use super::port::{Port, Takes, Tunnel};
use super::ruleset::{Base, Family, Field, Hook, NAME_BYTES};
use std::net::{IpAddr, UdpSocket};

/// Packets at a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HookPath {
    families: &'static [Family],
    hook: Hook,
    /// Interfaces whose ingress and egress chains are called.
    devices: Vec<String>,
    /// Known fields of the packets.
    pub(super) packet: Packet,
}

impl HookPath {
    /// True if the hook calls a chain for these packets.
    pub(super) fn meets(&self, family: Family, base: &Base) -> bool {
        let is_of = |device: &String| {
            base.devices.iter().any(|of| match of.strip_suffix('*') {
                Some(beginning) => device.starts_with(beginning),
                None => of == device,
            })
        };
        let is_bound = matches!(self.hook, Hook::Ingress | Hook::Egress);
        self.families.contains(&family)
            && self.hook == base.hook
            && (!is_bound || self.devices.iter().any(is_of))
    }
}

/// Hooks that packets of `port` would pass.
pub(super) fn hook_paths(port: &Port, links: &Links) -> Vec<HookPath> {
    let route = Route { links, families: &[], packet: Packet::default() };
    let own = links.and_vlans(&port.interface);
    let mut hook_paths = match &port.takes {
        Takes::Bridge { bridge, members } => bridged((port, bridge, members), links),
        Takes::Tunnels(tunnels) => tunnelled(tunnels, &own, links),
        Takes::Router { tunnels, interfaces } => {
            let all = interfaces.iter().flat_map(|name| links.and_vlans(name)).collect::<Vec<_>>();
            let mut hook_paths = tunnelled(tunnels, &own, links);
            for (families, version) in [(&IPV4, NFPROTO_IPV4), (&IPV6, NFPROTO_IPV6)] {
                let packet = Packet::default().with(Field::Version, vec![vec![version]]);
                let route = Route { links, families, packet };
                hook_paths.push(route.at(Hook::Prerouting, (&own, &[])));
                for hook in [Hook::Forward, Hook::Postrouting] {
                    hook_paths.push(route.at(hook, (&own, &all)));
                    hook_paths.push(route.at(hook, (&all, &own)));
                }
            }
            hook_paths
        }
    };
    if !matches!(port.takes, Takes::Tunnels(_)) {
        let route = Route { families: &DEVICE, ..route };
        hook_paths.push(route.at(Hook::Ingress, (&own, &[])));
        hook_paths.push(route.at(Hook::Egress, (&[], &own)));
    }
    hook_paths
}

/// Hooks that carried packets would pass between two interfaces, with their known fields.
pub(super) fn carried(interfaces: [&str; 2], links: &Links) -> Vec<HookPath> {
    let [from, to] = interfaces.map(|name| links.and_vlans(name));
    let mut hook_paths = Vec::new();
    for (families, version) in [(&IPV4, NFPROTO_IPV4), (&IPV6, NFPROTO_IPV6)] {
        // Data and acknowledgements: no SYN, FIN or RST.
        let flags =
            (0..0x100).filter(|flags| flags & 0x07 == 0).map(|flags: u16| flags.to_le_bytes()[..1].to_vec());
        let packet = Packet::default()
            .with(Field::Version, vec![vec![version]])
            .with(Field::Protocol, vec![vec![6], vec![17], vec![136]])
            .with(Field::TcpFlags, flags.collect());
        let route = Route { links, families, packet };
        hook_paths.push(route.at(Hook::Prerouting, (&from, &[])));
        hook_paths.push(route.at(Hook::Forward, (&from, &to)));
        hook_paths.push(route.at(Hook::Postrouting, (&from, &to)));
        let route = Route { families: &DEVICE, ..route };
        hook_paths.push(route.at(Hook::Ingress, (&from, &[])));
        hook_paths.push(route.at(Hook::Egress, (&[], &to)));
    }
    hook_paths
}

/// A packet of an established connection; its state is only known at chains after conntrack.
pub(super) fn established(packet: &Packet, base: &Base) -> Packet {
    let is_before = base.hook == Hook::Ingress || base.hook == Hook::Prerouting && base.priority <= TRACKING;
    let packet = packet.clone();
    if is_before { packet } else { packet.with(Field::State, vec![ESTABLISHED.to_ne_bytes().to_vec()]) }
}

/// `NF_IP_PRI_CONNTRACK` of linux/netfilter_ipv4.h; `NF_CT_STATE_BIT(IP_CT_ESTABLISHED)`.
const TRACKING: i32 = -200;
const ESTABLISHED: u32 = 2;

/// Hooks of outer packets, from and to this host.
fn tunnelled(tunnels: &[Tunnel], own: &[String], links: &Links) -> Vec<HookPath> {
    let mut hook_paths = Vec::new();
    for &Tunnel { local, remote, protocol } in tunnels {
        let (families, version) = if local.is_ipv6() { (&IPV6, NFPROTO_IPV6) } else { (&IPV4, NFPROTO_IPV4) };
        let between = |source: IpAddr, destination: IpAddr| {
            Packet::default()
                .with(Field::Version, vec![vec![version]])
                .with(Field::Protocol, vec![vec![protocol]])
                .with(Field::Source, vec![octets(source)])
                .with(Field::Destination, vec![octets(destination)])
        };
        let inward = Route { links, families, packet: between(remote, local) };
        let outward = Route { links, families, packet: between(local, remote) };
        hook_paths.push(inward.at(Hook::Prerouting, (own, &[])));
        hook_paths.push(inward.at(Hook::Input, (own, &[])));
        hook_paths.push(outward.at(Hook::Output, (&[], own)));
        hook_paths.push(outward.at(Hook::Postrouting, (&[], own)));
        let inward = Route { families: &DEVICE, ..inward };
        let outward = Route { families: &DEVICE, ..outward };
        hook_paths.push(inward.at(Hook::Ingress, (own, &[])));
        hook_paths.push(outward.at(Hook::Egress, (&[], own)));
    }
    hook_paths
}

/// Hooks of a bridge's packets, including iptables called by the bridge.
fn bridged((port, bridge, members): (&Port, &str, &[String]), links: &Links) -> Vec<HookPath> {
    // Rules may name the kernel bridge of the interface, or the bridge that Polder replaces.
    let master = links.master(&port.interface);
    let bridges = master.into_iter().chain([bridge]).map(ToOwned::to_owned).collect::<Vec<_>>();
    let known = [Field::InBridge, Field::OutBridge].into_iter();
    let packet = known.fold(Packet::default(), |packet, field| packet.with(field, names(&bridges)));
    let route = Route { links, families: &[Family::Bridge], packet };
    let own = [port.interface.clone()];
    let mut hook_paths = vec![
        route.at(Hook::Prerouting, (&own, &[])),
        route.at(Hook::Input, (&own, &[])),
        route.at(Hook::Output, (&[], &own)),
    ];
    for hook in [Hook::Forward, Hook::Postrouting] {
        hook_paths.push(route.at(hook, (&own, members)));
        hook_paths.push(route.at(hook, (members, &own)));
    }
    let calls = [("iptables", &IPV4[..], NFPROTO_IPV4), ("ip6tables", &IPV6, NFPROTO_IPV6)];
    let own_calls = links.calls(&port.interface);
    for ((program, families, version), own_call) in calls.into_iter().zip(own_calls) {
        if !own_call && !is_called(program) {
            continue;
        }
        let packet = Packet::default().with(Field::Version, vec![vec![version]]);
        let route = Route { links, families, packet };
        hook_paths.push(route.at(Hook::Prerouting, (&bridges, &[])));
        hook_paths.push(route.at(Hook::Forward, (&bridges, &bridges)));
        hook_paths.push(route.at(Hook::Postrouting, (&bridges, &bridges)));
    }
    hook_paths
}

/// True if kernel bridges call the chains of `program`.
fn is_called(program: &str) -> bool {
    let path = format!("/proc/sys/net/bridge/bridge-nf-call-{program}");
    std::fs::read_to_string(path).is_ok_and(|value| value.trim() == "1")
}

/// Fields of packets that do not change between hooks.
struct Route<'a> {
    links: &'a Links,
    families: &'static [Family],
    packet: Packet,
}

impl Route<'_> {
    /// Packets at a hook, with possible ingress and egress interfaces.
    fn at(&self, hook: Hook, (received, transmits): (&[String], &[String])) -> HookPath {
        let indices = |of: &[String]| match of {
            [] => vec![vec![0; 4]],
            some => some
                .iter()
                .map(|name| self.links.index(name).unwrap_or(u32::MAX).to_ne_bytes().to_vec())
                .collect(),
        };
        let packet = self
            .packet
            .clone()
            .with(Field::InName, names(received))
            .with(Field::OutName, names(transmits))
            .with(Field::InIndex, indices(received))
            .with(Field::OutIndex, indices(transmits));
        let devices = received.iter().chain(transmits).cloned().collect();
        HookPath { families: self.families, hook, devices, packet }
    }
}

/// Interface names as rules compare them; an empty name for none.
fn names(of: &[String]) -> Vec<Vec<u8>> {
    let padded = |name: &str| {
        let mut bytes = name.as_bytes().to_vec();
        bytes.resize(NAME_BYTES, 0);
        bytes
    };
    match of {
        [] => vec![padded("")],
        some => some.iter().map(|name| padded(name)).collect(),
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// True if a policy applies to packets that a port takes.
pub(super) fn concerns(policy: &Policy, port: &Port, links: &Links) -> bool {
    let selects = &policy.selects;
    let own = links.and_vlans(&port.interface);
    let is_of = |names: &[String]| match &selects.interface {
        None => true,
        Some(Interface::Name(name)) => names.contains(name),
        Some(Interface::Index(index)) => names.iter().any(|name| links.index(name) == Some(*index)),
        Some(Interface::Vrf) => names.iter().any(|name| links.master(name).is_some()),
    };
    let holds = |network: Option<(IpAddr, u8)>, address: IpAddr| {
        network.is_none_or(|(network, bits)| contains((network, bits), address))
    };
    let tunnels = |tunnels: &[Tunnel]| {
        tunnels.iter().any(|&Tunnel { local, remote, protocol }| {
            let (from, to) = match selects.direction {
                Some(Direction::In) => (remote, local),
                Some(Direction::Out) => (local, remote),
                Some(Direction::Forward) | None => return false,
            };
            selects.protocol.is_none_or(|selected| selected == protocol)
                && is_of(&own)
                && holds(selects.source, from)
                && holds(selects.destination, to)
                && selects.is_v6 == local.is_ipv6()
        })
    };
    match &port.takes {
        Takes::Bridge { .. } => false,
        Takes::Tunnels(of) => tunnels(of),
        Takes::Router { tunnels: of, interfaces } => {
            let all = interfaces.iter().flat_map(|name| links.and_vlans(name)).collect::<Vec<_>>();
            let is_routed = match selects.direction {
                // A rule matches the ingress interface.
                None => is_of(&own),
                Some(Direction::In) => false,
                // Packets of this host itself are the kernel's.
                Some(Direction::Out) => is_of(&all) && !selects.source.is_some_and(is_own),
                Some(Direction::Forward) => is_of(&all),
            };
            is_routed || tunnels(of)
        }
    }
}

/// True for a single address of this host.
fn is_own((address, bits): (IpAddr, u8)) -> bool {
    bits == if address.is_ipv6() { 128 } else { 32 } && UdpSocket::bind((address, 0)).is_ok()
}

fn contains((network, bits): (IpAddr, u8), address: IpAddr) -> bool {
    polder_datapath::route::Prefix::new(network, bits).is_ok_and(|network| network.contains(address))
}

const IPV4: [Family; 2] = [Family::Inet, Family::Ip];
const IPV6: [Family; 2] = [Family::Inet, Family::Ip6];
const DEVICE: [Family; 2] = [Family::Inet, Family::Netdev];
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
