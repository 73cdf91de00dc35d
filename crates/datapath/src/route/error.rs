//! ICMP errors to senders of packets that are not forwarded (RFC 1812, 4.3; RFC 4443).
//!
//! An error is sent back by the packet's ingress interface to the frame's source; its source address is the
//! interface's address in the sender's network, or the interface's first. No error is sent about ICMP errors,
//! later IPv4 fragments, addresses that are not a station's, and multicast (RFC 1812, 4.3.2.7; RFC 4443, 2.4
//! (e)), nor beyond the rate limit (4.3.2.8; 2.4 (f)).

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
    /// There is no route.
    NoRoute,
    /// The neighbour does not answer, or the route's interface is down.
    HostUnreachable,
    /// A `prohibit` route, or a filter that the kernel's path would bypass.
    Prohibited,
    /// A UDP port without listener on an address of Polder's own.
    Port,
    /// An `unreachable` route.
    Unreachable,
    /// A field with an unacceptable value.
    Parameter {
        /// Code of the ICMPv6 error (RFC 4443, 3.4).
        code: u8,
        /// Offset of the field from the start of the IPv6 header, in bytes.
        pointer: u32,
    },
    /// The packet exceeds this MTU in bytes.
    TooBig(u16),
    /// TTL or hop limit expired.
    TimeExceeded,
    /// The source is link-local and the egress another link (RFC 4443, 3.1, code 2).
    BeyondScope,
}

impl Problem {
    /// Header of the ICMP error; `None` if the cause exists only in IPv6.
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

/// True if an error may be sent about a packet, whose headers are checked.
pub(super) fn may_tell(packet: &Packet) -> bool {
    let (headers, frame) = HeaderSummary::read_with_bytes(packet);
    let Ok(ethernet) = Ethernet::parse(frame) else { return false };
    if ethernet.destination().is_multicast() || ethernet.source().is_multicast() || headers.is_broken() {
        return false;
    }
    // In IPv6, later fragments and truncated headers are no exception (RFC 4443, 2.4 (e) does not name them).
    let is_later = headers.network() == Network::Ipv4 && !headers.has_transport();
    let addresses = headers.addresses(frame).map(Addresses::pseudo);
    addresses.is_some_and(are_stations)
        && !is_later
        && !is_error(headers, frame)
        && !is_like_error(headers, frame)
}

/// True for router advertisements and solicitations (RFC 1256) and unknown types, which Linux treats like
/// errors here.
fn is_like_error(headers: HeaderSummary, frame: &[u8]) -> bool {
    headers.network() == Network::Ipv4
        && headers.protocol() == IpProtocol::ICMP
        && matches!(headers.payload(frame).first(), Some(9 | 10 | 19..))
}

/// Builds the error, ready to be sent; `None` if the pool is empty or the interface has no address.
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
    // An interface whose MTU is below IPv6's minimum sends as much as fits.
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
            // With a jumbo payload option, the length field says nothing.
            0 if asked.next_header() == IpProtocol::HOP_BY_HOP => usize::MAX,
            length => HEADERS_V6 + Ipv6::HEADER_BYTES + usize::from(length),
        },
    })
}

/// Length of an error's headers in bytes.
const HEADERS_V4: usize = Ipv4::HEADER_BYTES + Icmp::HEADER_BYTES;
const HEADERS_V6: usize = Ipv6::HEADER_BYTES + Icmp::HEADER_BYTES;

/// Traffic class of Linux's ICMPv4 errors: internetwork control, with the type of service of the packet (RFC
/// 1812, 4.3.2.5).
fn traffic_class(asked: TrafficClass) -> TrafficClass {
    TrafficClass(asked.0 & TYPE_OF_SERVICE | TrafficClass::new(Dscp::NETWORK_CONTROL, Ecn::NotCapable).0)
}

/// Mask of the type of service without precedence (RFC 1349, 3).
const TYPE_OF_SERVICE: u8 = 0x1e;
