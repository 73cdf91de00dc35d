//! Messages to the sender of a packet that is too big for the tunnel, with the MTU (RFC 1191, RFC 8201).
//!
//! A bridge has no address of its own to speak with, so the message comes from the address that the
//! packet was for, in the IP header as in the Ethernet header, as if the other end of the tunnel had
//! sent it; Linux answers for its bridged tunnels the same way (`skb_tunnel_check_pmtu`). ADR 0005
//! has the reasons.

use super::{MOST_CUT, Tunnel};
use crate::parse::{Addresses, HeaderSummary, Network};
use crate::reply::{IcmpError, are_stations, is_error};
use crate::wire::{Dscp, Ecn, Ethernet, Icmp, IcmpHeader, Icmpv6, Ipv4, Pseudo, TrafficClass};
use polder_buffers::{Packet, Pool};

/// The least MTU of IPv6 (RFC 8200, 5). No host believes less.
pub(super) const LEAST_MTU_V6: u16 = 1280;

/// The largest packet that the tunnel takes of this kind, Ethernet header and tags excluded, when
/// `carried` bytes of it fit into one outer packet (RFC 4459; ADR 0005).
pub(super) fn limit(tunnel: &Tunnel, carried: u16, frame: &[u8], headers: HeaderSummary) -> u16 {
    let options = tunnel.options();
    let mut limit = tunnel.mtu();
    if options.dont_fragment || options.mtu.is_none() {
        limit = limit.min(carried);
    }
    if options.dont_fragment {
        return limit;
    }
    // Nobody can be told that these are too big, so they are cut.
    match headers.network() {
        Network::Ipv6 => limit.max(LEAST_MTU_V6),
        Network::Ipv4 if is_bound(frame, headers) => limit,
        Network::Ipv4 | Network::Other => limit.max(MOST_CUT),
    }
}

/// True if the sender of this frame may and wants to be told that it is too big.
///
/// Not told: who allows fragmentation, who sent an ICMP error or a later fragment, who sent to a
/// group (no group can answer), whose address is no station's (RFC 1122, 3.2.2; RFC 4443, 2.4 (e)).
pub(super) fn wants_report(frame: &[u8], headers: HeaderSummary, limit: u16) -> bool {
    let Ok(ethernet) = Ethernet::parse(frame) else { return false };
    let wants = match headers.network() {
        Network::Ipv4 => headers.has_transport() && is_bound(frame, headers),
        Network::Ipv6 => headers.is_readable() && limit >= LEAST_MTU_V6,
        Network::Other => false,
    };
    wants
        && ethernet.destination().is_station()
        && ethernet.source().is_station()
        && headers.addresses(frame).map(Addresses::pseudo).is_some_and(are_stations)
        && !is_error(headers, frame)
}

/// True if the sender of an IPv4 packet forbids to fragment it.
pub(super) fn is_bound(frame: &[u8], headers: HeaderSummary) -> bool {
    Ipv4::parse_head(headers.network_header(frame), usize::MAX).is_ok_and(|ip| ip.dont_fragment())
}

/// The message: a frame with the packet's tags, from its destination to its source. `None` when no
/// frame is free or the packet is not what [`wants_report`] says.
pub(super) fn message(
    packet: &Packet,
    headers: HeaderSummary,
    limit: u16,
    pool: &mut Pool,
) -> Option<Packet> {
    let frame = packet.bytes();
    let addresses = headers.addresses(frame)?.pseudo().reversed();
    let (kind, code) = match addresses {
        Pseudo::V4 { .. } => (Icmp::UNREACHABLE, Icmp::FRAGMENTATION_NEEDED),
        Pseudo::V6 { .. } => (Icmpv6::PACKET_TOO_BIG, 0),
    };
    let error = IcmpError {
        station: Ethernet::parse(frame).ok()?.destination(),
        addresses,
        traffic_class: TrafficClass::new(Dscp::NETWORK_CONTROL, Ecn::NotCapable),
        header: IcmpHeader { kind, code, rest: u32::from(limit) },
        most: usize::MAX,
    };
    error.message(packet, headers.network_offset(), pool)
}
