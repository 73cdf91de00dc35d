//! Tells senders why their packets go no further (RFC 1812, 4.3; RFC 4443).
//!
//! A message goes back the way the packet came: by the same interface, to the station that sent the frame,
//! from the interface's first address. Not told: who sent an error or a later fragment of IPv4, whose address is no
//! station's, who sent to a group (RFC 1812, 4.3.2.7; RFC 4443, 2.4 (e)), and who comes when the limit of
//! messages is used up (4.3.2.8; 2.4 (f)).

use super::Interface;
use crate::tunnel::reply::{LONGEST_V4, LONGEST_V6, TIME_TO_LIVE, is_station_v4, is_station_v6};
use crate::wire::{
    Dscp, Ecn, Ethernet, EthernetHeader, Icmp, IcmpHeader, Icmpv6, Icmpv6Header, IpProtocol, Ipv4,
    Ipv4Header, Ipv6, Ipv6Header, Pseudo, TrafficClass,
};
use polder_buffers::{HEADROOM, Packet, Pool};

/// Cause of an error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// No route.
    NoRoute,
    /// The neighbour does not answer, or the route says so.
    HostUnreachable,
    /// The route says so.
    Prohibited,
    /// A port without a listener, at an address of Polder's own.
    Port,
    /// An unreachable route.
    Unreachable,
    /// A field at this offset from the beginning of the IPv6 header, with an unacceptable value.
    Parameter {
        /// RFC 4443, 3.4.
        code: u8,
        /// Offset of the field.
        pointer: u32,
    },
    /// Larger than this.
    TooBig(u16),
    /// Time to live or hop limit are used up.
    TimeExceeded,
    /// A source that is valid on its link alone (RFC 4443, 3.1, code 2).
    BeyondScope,
}

impl Problem {
    /// Kind, code and the second half of the header.
    const fn icmp(self) -> Option<IcmpHeader> {
        let (kind, code, rest) = match self {
            Self::NoRoute => (Icmp::UNREACHABLE, 0, 0),
            Self::HostUnreachable | Self::Unreachable => (Icmp::UNREACHABLE, 1, 0),
            Self::Port => (Icmp::UNREACHABLE, 3, 0),
            Self::TooBig(mtu) => (Icmp::UNREACHABLE, Icmp::FRAGMENTATION_NEEDED, mtu as u32),
            Self::Prohibited => (Icmp::UNREACHABLE, 13, 0),
            Self::TimeExceeded => (Icmp::TIME_EXCEEDED, 0, 0),
            Self::BeyondScope | Self::Parameter { .. } => return None,
        };
        Some(IcmpHeader { kind, code, rest })
    }

    pub(super) const fn icmpv6(self) -> Icmpv6Header {
        let (kind, code, rest) = match self {
            Self::NoRoute | Self::Unreachable => (Icmpv6::UNREACHABLE, 0, 0),
            Self::Prohibited => (Icmpv6::UNREACHABLE, 1, 0),
            Self::BeyondScope => (Icmpv6::UNREACHABLE, 2, 0),
            Self::HostUnreachable => (Icmpv6::UNREACHABLE, 3, 0),
            Self::Port => (Icmpv6::UNREACHABLE, 4, 0),
            Self::TooBig(mtu) => (Icmpv6::PACKET_TOO_BIG, 0, mtu as u32),
            Self::TimeExceeded => (Icmpv6::TIME_EXCEEDED, 0, 0),
            Self::Parameter { code, pointer } => (Icmpv6::PARAMETER_PROBLEM, code, pointer),
        };
        Icmpv6Header { kind, code, rest }
    }
}

/// True if the sender of a packet, whose headers are checked, may be told.
pub(super) fn may_tell(packet: &Packet) -> bool {
    let frame = packet.bytes();
    let Ok(ethernet) = Ethernet::parse(frame) else { return false };
    if ethernet.destination().is_multicast() || ethernet.source().is_multicast() {
        return false;
    }
    let bytes = frame.get(usize::from(packet.network_offset)..).unwrap_or_default();
    match bytes.first().map(|first| first >> 4) {
        Some(4) => Ipv4::parse_head(bytes, usize::MAX).is_ok_and(|ip| may_tell_v4(&ip)),
        Some(6) => Ipv6::parse_head(bytes, usize::MAX).is_ok_and(|ip| may_tell_v6(&ip)),
        Some(_) | None => false,
    }
}

fn may_tell_v4(ip: &Ipv4<'_>) -> bool {
    // Linux takes messages of routers (RFC 1256) and of unknown types for errors here.
    let is_error = ip.protocol() == IpProtocol::ICMP
        && Icmp::parse(ip.payload())
            .map_or(true, |message| message.is_error() || matches!(message.kind(), 9 | 10 | 19..));
    !is_error && ip.fragment_offset() == 0 && is_station_v4(ip.source()) && is_station_v4(ip.destination())
}

fn may_tell_v6(ip: &Ipv6<'_>) -> bool {
    // Later fragments and headers that end early are no errors (RFC 4443, 2.4 (e) does not name them).
    let is_error = ip.upper().is_ok_and(|upper| {
        upper.has_header()
            && upper.protocol == IpProtocol::ICMPV6
            && Icmpv6::parse(upper.payload).map_or(true, |message| message.is_error())
    });
    !is_error && is_station_v6(ip.source()) && is_station_v6(ip.destination())
}

/// The message, ready to leave; `None` when no frame is free or the interface has no address to speak with.
pub(super) fn message(
    packet: &Packet,
    interface: &Interface,
    problem: Problem,
    pool: &mut Pool,
) -> Option<Packet> {
    let is_v4 = packet.bytes().get(usize::from(packet.network_offset))? >> 4 == 4;
    let longest = if is_v4 { LONGEST_V4 } else { LONGEST_V6 };
    let bytes = usize::from(HEADROOM) + usize::from(packet.network_offset) + longest;
    let bytes = u32::try_from(bytes).ok()?.min(pool.region().slot_bytes());
    let mut reply = Packet::new(pool.take_control_for(bytes)?);
    let written = if is_v4 {
        write_v4(packet, &mut reply, interface, problem)
    } else {
        write_v6(packet, &mut reply, interface, problem)
    };
    if written.is_none() {
        pool.release_packet(reply);
        return None;
    }
    reply.network_offset = packet.network_offset;
    (reply.ingress, reply.egress) = (packet.ingress, packet.ingress);
    Some(reply)
}

fn write_v4(packet: &Packet, reply: &mut Packet, interface: &Interface, problem: Problem) -> Option<()> {
    let header = problem.icmp()?;
    let asked =
        Ipv4::parse_head(packet.bytes().get(usize::from(packet.network_offset)..)?, usize::MAX).ok()?;
    let source = interface.speaker_v4()?;
    let quote = usize::from(asked.total_length());
    let bytes = room(packet, reply, interface, (Ipv4::HEADER_BYTES, LONGEST_V4, quote))?;
    let header_v4 = Ipv4Header {
        traffic_class: traffic_class(asked.traffic_class()),
        total_length: u16::try_from(bytes.len()).ok()?,
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        time_to_live: TIME_TO_LIVE,
        protocol: IpProtocol::ICMP,
        source,
        destination: asked.source(),
    };
    header.emit(header_v4.emit(bytes).ok()?).ok()?;
    Some(())
}

fn write_v6(packet: &Packet, reply: &mut Packet, interface: &Interface, problem: Problem) -> Option<()> {
    let asked =
        Ipv6::parse_head(packet.bytes().get(usize::from(packet.network_offset)..)?, usize::MAX).ok()?;
    let source = interface.speaker_v6()?;
    // What a jumbo payload is about says no length here.
    let quote = match asked.payload_length() {
        0 if asked.next_header() == IpProtocol::HOP_BY_HOP => usize::MAX,
        length => Ipv6::HEADER_BYTES + usize::from(length),
    };
    let bytes = room(packet, reply, interface, (Ipv6::HEADER_BYTES, LONGEST_V6, quote))?;
    let header = Ipv6Header {
        traffic_class: TrafficClass(0),
        flow_label: 0,
        payload_length: u16::try_from(bytes.len() - Ipv6::HEADER_BYTES).ok()?,
        next_header: IpProtocol::ICMPV6,
        hop_limit: TIME_TO_LIVE,
        source,
        destination: asked.source(),
    };
    let pseudo = Pseudo::V6 { source, destination: header.destination };
    problem.icmpv6().emit(header.emit(bytes).ok()?, pseudo).ok()?;
    Some(())
}

/// Makes room for the message, with the link header in front and the quoted packet at its end; returns what
/// is behind the link header.
fn room<'a>(
    packet: &Packet,
    reply: &'a mut Packet,
    interface: &Interface,
    (ip_bytes, longest, asked): (usize, usize, usize),
) -> Option<&'a mut [u8]> {
    let link = usize::from(packet.network_offset);
    let headers = ip_bytes + Icmp::HEADER_BYTES;
    // A link that is too narrow for IPv6 carries what it can.
    let longest = longest.min(usize::from(interface.mtu));
    let quote = longest
        .checked_sub(headers)?
        .min(asked)
        .min(packet.len().checked_sub(link)?)
        .min(reply.tailroom().checked_sub(link + headers)?);
    let bytes = reply.append(u16::try_from(link + headers + quote).ok()?).ok()?;
    let (front, ip) = bytes.split_at_mut_checked(link)?;
    front.copy_from_slice(packet.bytes().get(..link)?);
    let ethernet = Ethernet::parse(packet.bytes()).ok()?;
    let (destination, ether_type) = (ethernet.source(), ethernet.ether_type());
    EthernetHeader { destination, source: interface.mac, ether_type }.emit(front).ok()?;
    packet.copy_out(link, ip.get_mut(headers..)?);
    Some(ip)
}

/// The traffic class that Linux gives its ICMPv4 errors: internetwork control, with the type of service of the packet (RFC 1812,
/// 4.3.2.5).
fn traffic_class(asked: TrafficClass) -> TrafficClass {
    TrafficClass(asked.0 & TYPE_OF_SERVICE | TrafficClass::new(Dscp::NETWORK_CONTROL, Ecn::NotCapable).0)
}

/// The bits of the type of service behind the precedence (RFC 1349, 3).
const TYPE_OF_SERVICE: u8 = 0x1e;
