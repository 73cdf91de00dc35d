//! Echo requests to addresses of interfaces that Polder owns (RFC 792; RFC 4443, 4.2).
//!
//! The request packet itself is rewritten to the reply and sent back.

use super::Interface;
use crate::offload::complete_checksum;
use crate::wire::checksum::update_u16;
use crate::wire::{Icmp, Icmpv6, IpProtocol, Ipv4, Ipv6};
use polder_buffers::Packet;

/// TTL of a reply.
const TIME_TO_LIVE: u8 = 64;

/// Classification of a packet to an address of Polder's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// An echo request.
    Echo,
    /// A UDP datagram; no port has a listener.
    Port,
    /// An echo reply or an ICMP error to a message that Polder sent.
    Message,
    /// A packet that is not answered.
    Other,
}

/// Classifies a packet with a checked header; `ip` starts with the IP header.
pub(super) fn asks(ip: &[u8]) -> Asks {
    match ip.first().map(|first| first >> 4) {
        Some(4) => Ipv4::parse_head(ip, usize::MAX).map_or(Asks::Other, |ip| asks_v4(&ip)),
        Some(6) => Ipv6::parse_head(ip, usize::MAX).map_or(Asks::Other, |ip| asks_v6(&ip)),
        Some(_) | None => Asks::Other,
    }
}

fn asks_v4(ip: &Ipv4<'_>) -> Asks {
    // Fragments are not reassembled here.
    if ip.is_fragment() {
        return Asks::Other;
    }
    match (ip.protocol(), Icmp::parse(ip.payload())) {
        (IpProtocol::UDP, _) => Asks::Port,
        (IpProtocol::ICMP, Ok(message)) if message.kind() == Icmp::ECHO_REQUEST && message.code() == 0 => {
            Asks::Echo
        }
        (IpProtocol::ICMP, Ok(message)) if message.is_error() || message.kind() == Icmp::ECHO_REPLY => {
            Asks::Message
        }
        _ => Asks::Other,
    }
}

fn asks_v6(ip: &Ipv6<'_>) -> Asks {
    let Ok(upper) = ip.upper() else { return Asks::Other };
    if upper.fragment.is_some() {
        return Asks::Other;
    }
    match (upper.protocol, Icmpv6::parse(upper.payload)) {
        (IpProtocol::UDP, _) => Asks::Port,
        // A reply would have to leave out the extension headers.
        (IpProtocol::ICMPV6, Ok(message))
            if message.kind() == Icmpv6::ECHO_REQUEST && message.code() == 0 =>
        {
            if upper.offset == Ipv6::HEADER_BYTES { Asks::Echo } else { Asks::Other }
        }
        (IpProtocol::ICMPV6, Ok(message)) if message.is_error() || message.kind() == Icmpv6::ECHO_REPLY => {
            Asks::Message
        }
        _ => Asks::Other,
    }
}

/// Rewrites an echo request to the reply; `None` if it is malformed.
///
/// The checksum is updated incrementally, so a corrupted request is returned corrupted.
pub(super) fn turn(packet: &mut Packet, interface: &Interface) -> Option<()> {
    complete_checksum(packet).ok()?;
    let link = usize::from(packet.network_offset);
    let frame = packet.bytes_mut();
    let (addresses, sender) = frame.get_mut(..12)?.split_at_mut(6);
    addresses.copy_from_slice(sender);
    sender.copy_from_slice(&interface.mac.0);
    let ip = frame.get_mut(link..)?;
    if ip.first()? >> 4 == 4 {
        turn_v4(ip)?;
    } else {
        turn_v6(ip)?;
    }
    packet.egress = packet.ingress;
    Some(())
}

fn turn_v4(ip: &mut [u8]) -> Option<()> {
    let bytes = Ipv4::parse_head(ip, usize::MAX).ok()?.header_bytes();
    let (header, message) = ip.split_at_mut_checked(bytes)?;
    let (source, destination) = header.get_mut(12..20)?.split_at_mut(4);
    source.swap_with_slice(destination);
    header[8] = TIME_TO_LIVE;
    header[10..12].fill(0);
    let checksum = crate::wire::Checksum::of(header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    change_kind(message, Icmp::ECHO_REPLY)
}

fn turn_v6(ip: &mut [u8]) -> Option<()> {
    let (header, message) = ip.split_at_mut_checked(Ipv6::HEADER_BYTES)?;
    let (source, destination) = header.get_mut(8..40)?.split_at_mut(16);
    source.swap_with_slice(destination);
    header[7] = TIME_TO_LIVE;
    change_kind(message, Icmpv6::ECHO_REPLY)
}

/// Changes the ICMP type and updates the checksum. Type, code and checksum are at the same offsets in both
/// families, and the sum does not depend on the order of addresses.
fn change_kind(message: &mut [u8], kind: u8) -> Option<()> {
    let head: &mut [u8; 4] = message.first_chunk_mut()?;
    let old = u16::from_be_bytes([head[0], head[1]]);
    let new = u16::from_be_bytes([kind, head[1]]);
    let checksum = update_u16(u16::from_be_bytes([head[2], head[3]]), old, new);
    head[0] = kind;
    head[2..4].copy_from_slice(&checksum.to_be_bytes());
    Some(())
}
