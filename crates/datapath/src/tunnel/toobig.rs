//! ICMP errors with the MTU to senders of packets that are too big for the tunnel (RFC 1191, RFC 8201).
//!
//! A bridge has no address of its own, so the error's source is the packet's destination, in the IP header
//! and in the Ethernet header, as if the remote endpoint had sent it. Linux answers for bridged tunnels the
//! same way (`skb_tunnel_check_pmtu`). ADR 0005 has the reasons.

use super::{MOST_CUT, Tunnel};
use crate::parse::{Addresses, HeaderSummary, Network};
use crate::reply::{IcmpError, are_stations, is_error};
use crate::wire::{Dscp, Ecn, Ethernet, Icmp, IcmpHeader, Icmpv6, Ipv4, Pseudo, TrafficClass};
use polder_buffers::{Packet, Pool};

/// Minimum MTU of IPv6 in bytes (RFC 8200, 5). Hosts ignore smaller values.
pub(super) const LEAST_MTU_V6: u16 = 1280;

/// Maximum size in bytes of this packet in the tunnel, Ethernet header and tags excluded, if `carried` bytes
/// fit into one outer packet (RFC 4459; ADR 0005).
pub(super) fn limit(tunnel: &Tunnel, carried: u16, frame: &[u8], headers: HeaderSummary) -> u16 {
    let options = tunnel.options();
    let mut limit = tunnel.mtu();
    if options.dont_fragment || options.mtu.is_none() {
        limit = limit.min(carried);
    }
    if options.dont_fragment {
        return limit;
    }
    // Senders of these packets cannot be told, so the packets are fragmented.
    match headers.network() {
        Network::Ipv6 => limit.max(LEAST_MTU_V6),
        Network::Ipv4 if is_bound(frame, headers) => limit,
        Network::Ipv4 | Network::Other => limit.max(MOST_CUT),
    }
}

/// True if the sender of this frame should get an ICMP error.
///
/// No error is sent for IPv4 without DF, ICMP errors, later fragments, multicast, and addresses that are not
/// a station's (RFC 1122, 3.2.2; RFC 4443, 2.4 (e)).
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

/// True if an IPv4 packet has the DF flag.
pub(super) fn is_bound(frame: &[u8], headers: HeaderSummary) -> bool {
    Ipv4::parse_head(headers.network_header(frame), usize::MAX).is_ok_and(|ip| ip.dont_fragment())
}

/// Builds the ICMP error: a frame with the packet's tags, from its destination to its source. `None` if the
/// pool is empty or the packet's headers are unreadable.
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
