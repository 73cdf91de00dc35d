//! Messages to the sender of a packet that is too big for the tunnel, with the MTU (RFC 1191, RFC 8201).
//!
//! A bridge has no address of its own to speak with, so the message comes from the address that the
//! packet was for, in the IP header as in the Ethernet header, as if the other end of the tunnel had
//! sent it; Linux answers for its bridged tunnels the same way (`skb_tunnel_check_pmtu`). ADR 0005
//! has the reasons.

use super::inner::{Inner, Network};
use super::reply::{LONGEST_V4, LONGEST_V6, TIME_TO_LIVE, is_station_v4, is_station_v6};
use crate::wire::{
    Dscp, Ecn, Ethernet, EthernetHeader, Icmp, IcmpHeader, Icmpv6, Icmpv6Header, IpProtocol, Ipv4,
    Ipv4Header, Ipv6, Ipv6Header, TrafficClass,
};
use polder_buffers::{HEADROOM, Packet, Pool};

/// The least MTU of IPv6 (RFC 8200, 5). No host believes less.
pub(super) const LEAST_MTU_V6: u16 = 1280;

/// True if the sender of this frame may and wants to be told that it is too big.
///
/// Not told: who allows fragmentation, who sent an ICMP error or a later fragment, who sent to a
/// group (no group can answer), whose address is no station's (RFC 1122, 3.2.2; RFC 4443, 2.4 (e)).
pub(super) fn wants_report(frame: &[u8], inner: Inner, limit: u16) -> bool {
    let Ok(ethernet) = Ethernet::parse(frame) else { return false };
    if !ethernet.destination().is_station() || !ethernet.source().is_station() {
        return false;
    }
    let packet = frame.get(inner.network_offset()..).unwrap_or_default();
    match inner.network() {
        Network::Ipv4 => Ipv4::parse_head(packet, usize::MAX).is_ok_and(|ip| wants_v4(&ip)),
        Network::Ipv6 => {
            limit >= LEAST_MTU_V6 && Ipv6::parse_head(packet, usize::MAX).is_ok_and(|ip| wants_v6(&ip))
        }
        Network::Other => false,
    }
}

/// True if the sender of an IPv4 packet forbids to fragment it.
pub(super) fn is_bound(frame: &[u8], inner: Inner) -> bool {
    let packet = frame.get(inner.network_offset()..).unwrap_or_default();
    Ipv4::parse_head(packet, usize::MAX).is_ok_and(|ip| ip.dont_fragment())
}

fn wants_v4(ip: &Ipv4<'_>) -> bool {
    let is_error = ip.protocol() == IpProtocol::ICMP
        && Icmp::parse(ip.payload()).map_or(true, |message| message.is_error());
    ip.dont_fragment()
        && ip.fragment_offset() == 0
        && !is_error
        && is_station_v4(ip.source())
        && is_station_v4(ip.destination())
}

fn wants_v6(ip: &Ipv6<'_>) -> bool {
    let Ok(upper) = ip.upper() else { return false };
    let is_error = upper.protocol == IpProtocol::ICMPV6
        && upper.has_header()
        && Icmpv6::parse(upper.payload).map_or(true, |message| message.is_error());
    !is_error && is_station_v6(ip.source()) && is_station_v6(ip.destination())
}

/// The message: a frame with the packet's tags, from its destination to its source. `None` when no
/// frame is free or the packet is not what [`wants_report`] says.
pub(super) fn message(packet: &Packet, inner: Inner, limit: u16, pool: &mut Pool) -> Option<Packet> {
    let longest = if inner.network() == Network::Ipv6 { LONGEST_V6 } else { LONGEST_V4 };
    let bytes = usize::from(HEADROOM) + inner.network_offset() + longest;
    let bytes = u32::try_from(bytes).ok()?.min(pool.region().slot_bytes());
    let frame = pool.take_control_for(bytes)?;
    let mut reply = Packet::new(frame);
    if write(&mut reply, packet, inner, limit).is_none() {
        pool.release_packet(reply);
        return None;
    }
    reply.network_offset = u16::try_from(inner.network_offset()).unwrap_or_default();
    Some(reply)
}

fn write(reply: &mut Packet, packet: &Packet, inner: Inner, limit: u16) -> Option<()> {
    let (ip_bytes, longest) = match inner.network() {
        Network::Ipv4 => (Ipv4::HEADER_BYTES, LONGEST_V4),
        Network::Ipv6 => (Ipv6::HEADER_BYTES, LONGEST_V6),
        Network::Other => return None,
    };
    let before = inner.network_offset() + ip_bytes + Icmp::HEADER_BYTES;
    let quote = (longest - ip_bytes - Icmp::HEADER_BYTES)
        .min(packet.len().checked_sub(inner.network_offset())?)
        .min(reply.tailroom().checked_sub(before)?);
    let bytes = reply.append(u16::try_from(before + quote).ok()?).ok()?;
    let (link, ip) = bytes.split_at_mut_checked(inner.network_offset())?;
    let frame = packet.bytes();
    link.copy_from_slice(frame.get(..inner.network_offset())?);
    let ethernet = Ethernet::parse(frame).ok()?;
    let (source, destination, ether_type) =
        (ethernet.destination(), ethernet.source(), ethernet.ether_type());
    EthernetHeader { destination, source, ether_type }.emit(link).ok()?;
    let quoted = packet.copy_out(inner.network_offset(), ip.get_mut(ip_bytes + Icmp::HEADER_BYTES..)?);
    debug_assert_eq!(quoted, quote, "the packet has the bytes that its length says");
    let asked = frame.get(inner.network_offset()..)?;
    if inner.network() == Network::Ipv4 { write_v4(ip, asked, limit) } else { write_v6(ip, asked, limit) }
}

/// Writes the headers in front of the quoted packet, which starts `asked`.
fn write_v4(bytes: &mut [u8], asked: &[u8], limit: u16) -> Option<()> {
    let asked = Ipv4::parse_head(asked, usize::MAX).ok()?;
    let header = Ipv4Header {
        traffic_class: traffic_class(),
        total_length: u16::try_from(bytes.len()).ok()?,
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        time_to_live: TIME_TO_LIVE,
        protocol: IpProtocol::ICMP,
        source: asked.destination(),
        destination: asked.source(),
    };
    let message = header.emit(bytes).ok()?;
    let (kind, code) = (Icmp::UNREACHABLE, Icmp::FRAGMENTATION_NEEDED);
    IcmpHeader { kind, code, rest: u32::from(limit) }.emit(message).ok()?;
    Some(())
}

fn write_v6(bytes: &mut [u8], asked: &[u8], limit: u16) -> Option<()> {
    let asked = Ipv6::parse_head(asked, usize::MAX).ok()?;
    let header = Ipv6Header {
        traffic_class: traffic_class(),
        flow_label: 0,
        payload_length: u16::try_from(bytes.len() - Ipv6::HEADER_BYTES).ok()?,
        next_header: IpProtocol::ICMPV6,
        hop_limit: TIME_TO_LIVE,
        source: asked.destination(),
        destination: asked.source(),
    };
    let pseudo = crate::wire::Pseudo::V6 { source: header.source, destination: header.destination };
    let message = header.emit(bytes).ok()?;
    Icmpv6Header { kind: Icmpv6::PACKET_TOO_BIG, code: 0, rest: u32::from(limit) }
        .emit(message, pseudo)
        .ok()?;
    Some(())
}

/// Traffic class of Linux' ICMP errors.
fn traffic_class() -> TrafficClass {
    TrafficClass::new(Dscp::NETWORK_CONTROL, Ecn::NotCapable)
}
