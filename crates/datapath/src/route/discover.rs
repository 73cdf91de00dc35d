//! Resolution of link-layer addresses on interfaces that Polder owns: ARP (RFC 826, RFC 5227) and neighbour
//! discovery (RFC 4861), requests and answers.
//!
//! Not supported: router advertisements, redirects, duplicate address detection of own addresses, multicast
//! listener reports.

use super::Interface;
use crate::reply::{is_station_v4, is_station_v6};
use crate::wire::{
    Arp, ArpHeader, ArpOperation, Dscp, Ecn, EtherType, Ethernet, EthernetHeader, IcmpHeader, Icmpv6,
    IpProtocol, Ipv6, Ipv6Header, MacAddress, Pseudo, TrafficClass, Vlan, VlanId,
};
use polder_buffers::{Packet, Pool};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Hop limit of neighbour discovery: a routed message has less and is refused (RFC 4861, 7.1).
const HOP_LIMIT: u8 = 255;
/// Length in bytes of a solicitation or advertisement with one link-layer address option.
const MESSAGE: usize = 8 + 16 + 8;
/// Option types (RFC 4861, 4.6).
const SOURCE_ADDRESS: u8 = 1;
const TARGET_ADDRESS: u8 = 2;
/// Flags of an advertisement (RFC 4861, 4.4).
const ROUTER: u32 = 1 << 31;
const SOLICITED: u32 = 1 << 30;
const OVERRIDE: u32 = 1 << 29;

/// Parsed ARP or neighbour discovery message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// IP and link-layer address of the sender; `None` if it has no address yet.
    pub(super) sender: Option<(IpAddr, MacAddress)>,
    /// Own address that is requested; `None` if the message is no request.
    pub(super) asked: Option<IpAddr>,
}

/// Parses an ARP packet; `None` if it is not for this interface.
pub(super) fn read_arp(arp: &Arp<'_>, interface: &Interface) -> Option<Word> {
    let (target, sender) = (IpAddr::V4(arp.target_ip()), arp.sender_ip());
    let is_ours = interface.has(target);
    let asked = (arp.operation() == ArpOperation::REQUEST && is_ours).then_some(target);
    let is_answer = arp.operation() == ArpOperation::REPLY && is_ours;
    let speaks = is_station_v4(sender) && arp.sender_mac().is_station() && !interface.has(sender.into());
    (asked.is_some() || is_answer)
        .then(|| Word { sender: speaks.then(|| (sender.into(), arp.sender_mac())), asked })
}

/// Parses a message of neighbour discovery; `None` if it fails the checks of RFC 4861, 7.1 or is not for this
/// interface. `ethernet` is the frame's source address.
pub(super) fn read_nd(ip: &Ipv6<'_>, interface: &Interface, ethernet: MacAddress) -> Option<Word> {
    let upper = ip.upper().ok()?;
    let message = Icmpv6::parse(upper.payload).ok()?;
    let is_sound = upper.offset == Ipv6::HEADER_BYTES
        && ip.hop_limit() == HOP_LIMIT
        && message.code() == 0
        && message.verify(ip.pseudo()).is_ok();
    let body = message.payload();
    let target = Ipv6Addr::from(*body.get(4..)?.first_chunk::<16>()?);
    if !is_sound || target.is_multicast() {
        return None;
    }
    let options = body.get(20..)?;
    match message.kind() {
        Icmpv6::NEIGHBOUR_SOLICITATION if interface.has(target.into()) => {
            let source = ip.source();
            let said = option(options, SOURCE_ADDRESS)?;
            // A sender without IP address must not give a link-layer address (7.1.1).
            let sender = match (source.is_unspecified(), said) {
                (true, Some(_)) => return None,
                (true, None) => None,
                (false, said) => Some((source.into(), said.unwrap_or(ethernet))),
            };
            let speaks = sender.filter(|(_, mac)| mac.is_station() && is_station_v6(source));
            Some(Word { sender: speaks, asked: Some(target.into()) })
        }
        Icmpv6::NEIGHBOUR_ADVERTISEMENT if !interface.has(target.into()) => {
            let mac = option(options, TARGET_ADDRESS)?.unwrap_or(ethernet);
            let is_asked = message.rest()? & SOLICITED != 0;
            (is_asked && mac.is_station()).then(|| Word { sender: Some((target.into(), mac)), asked: None })
        }
        _ => None,
    }
}

/// Returns the link-layer address in the first option of type `kind`, `Some(None)` without such an option;
/// `None` if the options are malformed.
fn option(mut options: &[u8], kind: u8) -> Option<Option<MacAddress>> {
    let mut found = None;
    while let Some(head) = options.first_chunk::<2>() {
        let length = usize::from(head[1]) * 8;
        let (option, behind) = options.split_at_checked(length).filter(|_| length > 0)?;
        if head[0] == kind
            && let Some(mac) = option.get(2..).and_then(<[u8]>::first_chunk)
        {
            found = found.or(Some(MacAddress(*mac)));
        }
        options = behind;
    }
    options.is_empty().then_some(found)
}

/// Builds the answer to the request for `asked`; `None` if there is no request or the pool is empty.
pub(super) fn answer(interface: &Interface, word: Word, to: MacAddress, pool: &mut Pool) -> Option<Packet> {
    let sender = word.sender;
    match word.asked? {
        IpAddr::V4(asked) => {
            let target = match sender {
                Some((IpAddr::V4(address), _)) => address,
                // A probe (RFC 5227, 2.1.1).
                Some((IpAddr::V6(_), _)) | None => Ipv4Addr::UNSPECIFIED,
            };
            let mac = sender.map_or(to, |(_, mac)| mac);
            let operation = ArpOperation::REPLY;
            arp(
                interface,
                mac,
                ArpHeader { operation, target_mac: mac, target_ip: target, ..ours(interface, asked) },
                pool,
            )
        }
        IpAddr::V6(asked) => {
            let (mac, destination, solicited) = match sender {
                Some((IpAddr::V6(address), mac)) => (mac, address, SOLICITED),
                Some((IpAddr::V4(_), _)) | None => {
                    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
                    (group_mac(all), all, 0)
                }
            };
            let header = IcmpHeader {
                kind: Icmpv6::NEIGHBOUR_ADVERTISEMENT,
                code: 0,
                rest: ROUTER | solicited | OVERRIDE,
            };
            let ends = (asked, destination);
            discovery(interface, mac, ends, header, asked, TARGET_ADDRESS, pool)
        }
    }
}

/// Builds a request for a neighbour's link-layer address; `None` if the interface has no address of the
/// family or the pool is empty.
pub(super) fn question(interface: &Interface, address: IpAddr, pool: &mut Pool) -> Option<Packet> {
    match address {
        IpAddr::V4(address) => {
            let target_mac = MacAddress::ZERO;
            let own = interface.speaker_v4(address)?;
            let header = ArpHeader { target_mac, target_ip: address, ..ours(interface, own) };
            arp(interface, MacAddress::BROADCAST, header, pool)
        }
        IpAddr::V6(address) => {
            // Solicited-node multicast (RFC 4291, 2.7.1).
            let [.., a, b, c] = address.octets();
            let group =
                Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
            let header = IcmpHeader { kind: Icmpv6::NEIGHBOUR_SOLICITATION, code: 0, rest: 0 };
            let ends = (interface.speaker_v6()?, group);
            discovery(interface, group_mac(group), ends, header, address, SOURCE_ADDRESS, pool)
        }
    }
}

fn ours(interface: &Interface, address: Ipv4Addr) -> ArpHeader {
    ArpHeader {
        operation: ArpOperation::REQUEST,
        sender_mac: interface.mac,
        sender_ip: address,
        target_mac: MacAddress::ZERO,
        target_ip: Ipv4Addr::UNSPECIFIED,
    }
}

fn arp(interface: &Interface, to: MacAddress, header: ArpHeader, pool: &mut Pool) -> Option<Packet> {
    frame(interface, to, EtherType::ARP, Arp::HEADER_BYTES, pool, |bytes| {
        header.emit(bytes).ok()?;
        Some(())
    })
}

fn discovery(
    interface: &Interface,
    to: MacAddress,
    (source, destination): (Ipv6Addr, Ipv6Addr),
    header: IcmpHeader,
    target: Ipv6Addr,
    kind: u8,
    pool: &mut Pool,
) -> Option<Packet> {
    frame(interface, to, EtherType::IPV6, Ipv6::HEADER_BYTES + MESSAGE, pool, |bytes| {
        let ip = Ipv6Header {
            traffic_class: TrafficClass::new(Dscp::NETWORK_CONTROL, Ecn::NotCapable),
            flow_label: 0,
            payload_length: u16::try_from(MESSAGE).ok()?,
            next_header: IpProtocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            source,
            destination,
        };
        let message = ip.emit(bytes).ok()?;
        message.get_mut(8..24)?.copy_from_slice(&target.octets());
        // One unit of eight bytes: type, length, address.
        message.get_mut(24..26)?.copy_from_slice(&[kind, 1]);
        message.get_mut(26..32)?.copy_from_slice(&interface.mac.0);
        header.emit_v6(message, Pseudo::V6 { source, destination }).ok()?;
        Some(())
    })
}

/// Builds a frame to be sent by an interface, with `length` bytes after the link header that `write` fills.
fn frame(
    interface: &Interface,
    destination: MacAddress,
    ether_type: EtherType,
    length: usize,
    pool: &mut Pool,
    write: impl FnOnce(&mut [u8]) -> Option<()>,
) -> Option<Packet> {
    let vlan = interface.id.vlan;
    let link = Ethernet::HEADER_BYTES + if vlan == VlanId::PRIORITY { 0 } else { Vlan::HEADER_BYTES };
    let mut packet = Packet::new(pool.take()?);
    let written = packet.append(u16::try_from(link + length).ok()?).ok().and_then(|bytes| {
        let kind = if vlan == VlanId::PRIORITY { ether_type } else { EtherType::VLAN };
        let rest =
            EthernetHeader { destination, source: interface.mac, ether_type: kind }.emit(bytes).ok()?;
        let (tag, rest) = rest.split_at_mut_checked(link - Ethernet::HEADER_BYTES)?;
        if !tag.is_empty() {
            tag[..2].copy_from_slice(&vlan.get().to_be_bytes());
            tag[2..].copy_from_slice(&ether_type.0.to_be_bytes());
        }
        write(rest)
    });
    if written.is_none() {
        pool.release_packet(packet);
        return None;
    }
    packet.network_offset = u16::try_from(link).ok()?;
    (packet.ingress, packet.egress) = (interface.id.port, interface.id.port);
    Some(packet)
}

/// MAC address of an IPv6 multicast group (RFC 2464, 7).
fn group_mac(group: Ipv6Addr) -> MacAddress {
    let [.., a, b, c, d] = group.octets();
    MacAddress([0x33, 0x33, a, b, c, d])
}
