//! Tells senders why their packets go no further (RFC 1812, 4.3; RFC 4443).
//!
//! A message goes back the way the packet came: by the same interface, to the station that sent the frame,
//! from the interface's address in the network of the sender, or its first. Not told: who sent an error or a later
//! fragment of IPv4, whose address is no station's, who sent to a group (RFC 1812, 4.3.2.7; RFC 4443, 2.4 (e)), and
//! who comes when the limit of messages is used up (4.3.2.8; 2.4 (f)).

use super::Interface;
use crate::parse::{Addresses, HeaderSummary, Network};
use crate::reply::{IcmpError, are_stations, is_error};
use crate::wire::{
    Dscp, Ecn, Ethernet, Icmp, IcmpHeader, Icmpv6, IpProtocol, Ipv4, Ipv6, Pseudo, TrafficClass,
};
use polder_buffers::{Packet, Pool};

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

    pub(super) const fn icmpv6(self) -> IcmpHeader {
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
        IcmpHeader { kind, code, rest }
    }
}

/// True if the sender of a packet, whose headers are checked, may be told.
pub(super) fn may_tell(packet: &Packet) -> bool {
    let (headers, frame) = HeaderSummary::read_with_bytes(packet);
    let Ok(ethernet) = Ethernet::parse(frame) else { return false };
    if ethernet.destination().is_multicast() || ethernet.source().is_multicast() || headers.is_broken() {
        return false;
    }
    // Later fragments and headers that end early are no errors in IPv6 (RFC 4443, 2.4 (e) does not name them).
    let is_later = headers.network() == Network::Ipv4 && !headers.has_transport();
    let addresses = headers.addresses(frame).map(Addresses::pseudo);
    addresses.is_some_and(are_stations)
        && !is_later
        && !is_error(headers, frame)
        && !is_like_error(headers, frame)
}

/// True for messages of routers (RFC 1256) and of unknown types, which Linux takes for errors here.
fn is_like_error(headers: HeaderSummary, frame: &[u8]) -> bool {
    headers.network() == Network::Ipv4
        && headers.protocol() == IpProtocol::ICMP
        && matches!(headers.payload(frame).first(), Some(9 | 10 | 19..))
}

/// The message, ready to leave; `None` when no frame is free or the interface has no address to speak with.
pub(super) fn message(
    packet: &Packet,
    interface: &Interface,
    problem: Problem,
    pool: &mut Pool,
) -> Option<Packet> {
    let link = usize::from(packet.network_offset);
    let asked = packet.bytes().get(link..)?;
    let mut error = match asked.first()? >> 4 {
        4 => error_v4(asked, interface, problem),
        _ => error_v6(asked, interface, problem),
    }?;
    // A link that is too narrow for IPv6 carries what it can.
    error.most = error.most.min(usize::from(interface.mtu));
    let mut reply = error.message(packet, link, pool)?;
    (reply.ingress, reply.egress) = (packet.ingress, packet.ingress);
    Some(reply)
}

fn error_v4(asked: &[u8], interface: &Interface, problem: Problem) -> Option<IcmpError> {
    let asked = Ipv4::parse_head(asked, usize::MAX).ok()?;
    let (source, destination) = (interface.speaker_v4(asked.source())?, asked.source());
    Some(IcmpError {
        station: interface.mac,
        addresses: Pseudo::V4 { source, destination },
        traffic_class: traffic_class(asked.traffic_class()),
        header: problem.icmp()?,
        most: HEADERS_V4 + usize::from(asked.total_length()),
    })
}

fn error_v6(asked: &[u8], interface: &Interface, problem: Problem) -> Option<IcmpError> {
    let asked = Ipv6::parse_head(asked, usize::MAX).ok()?;
    let (source, destination) = (interface.speaker_v6()?, asked.source());
    Some(IcmpError {
        station: interface.mac,
        addresses: Pseudo::V6 { source, destination },
        traffic_class: TrafficClass(0),
        header: problem.icmpv6(),
        most: match asked.payload_length() {
            // What a jumbo payload is about says no length here.
            0 if asked.next_header() == IpProtocol::HOP_BY_HOP => usize::MAX,
            length => HEADERS_V6 + Ipv6::HEADER_BYTES + usize::from(length),
        },
    })
}

/// Bytes of the headers of a message.
const HEADERS_V4: usize = Ipv4::HEADER_BYTES + Icmp::HEADER_BYTES;
const HEADERS_V6: usize = Ipv6::HEADER_BYTES + Icmp::HEADER_BYTES;

/// The traffic class that Linux gives its ICMPv4 errors: internetwork control, with the type of service of the packet (RFC 1812,
/// 4.3.2.5).
fn traffic_class(asked: TrafficClass) -> TrafficClass {
    TrafficClass(asked.0 & TYPE_OF_SERVICE | TrafficClass::new(Dscp::NETWORK_CONTROL, Ecn::NotCapable).0)
}

/// The bits of the type of service behind the precedence (RFC 1349, 3).
const TYPE_OF_SERVICE: u8 = 0x1e;
