//! Lowers the segment size that TCP connections agree on, so that their packets fit the tunnel.
//!
//! Path MTU discovery needs ICMP, and ICMP is filtered in many networks; then a connection opens and
//! hangs at its first full segment. What both ends announce in their SYN is therefore lowered, in
//! both directions, to what the tunnel carries in one piece.
//!
//! A SYN without the option stays as it is: without it, 536 bytes over IPv4 and 1220 over IPv6 are
//! agreed on (RFC 9293, 3.7.1), which the smallest MTUs carry.
//!
//! Cost: none for what is no SYN: `inner.rs` tells.

use super::{ETHERNET_BYTES, TcpMss, Tunnel, TunnelCounters};
use crate::parse::{HeaderSummary, Network};
use crate::wire::TcpMut;
use polder_buffers::Packet;

/// IPv4 and TCP headers without options.
const HEADERS_V4: u16 = 40;
/// IPv6 and TCP headers without options.
const HEADERS_V6: u16 = 60;

/// Largest segment that the tunnel carries in one piece, for a frame with `network_offset` bytes
/// before the network header.
pub(super) fn limit(tunnel: &Tunnel, network: Network, network_offset: usize) -> u16 {
    if let TcpMss::AtMost(limit) = tunnel.options.tcp_mss {
        return limit;
    }
    let before = u16::try_from(network_offset).unwrap_or(ETHERNET_BYTES);
    let carried = tunnel.carried_frame().saturating_sub(before).min(tunnel.mtu);
    match network {
        Network::Ipv6 => carried.saturating_sub(HEADERS_V6),
        Network::Ipv4 | Network::Other => carried.saturating_sub(HEADERS_V4),
    }
}

/// Lowers the segment size in a SYN that announces more than fits.
#[cold]
pub(super) fn clamp_syn(
    packet: &mut Packet,
    headers: HeaderSummary,
    tunnel: &Tunnel,
    counters: &TunnelCounters,
) {
    let limit = limit(tunnel, headers.network(), headers.network_offset());
    // The payload as the IP header says: nothing behind it is looked at, let alone written.
    let payload = headers.payload(packet.bytes()).len();
    let state = packet.checksum;
    let segment = packet.bytes_mut().get_mut(headers.transport_offset()..);
    let segment = segment.and_then(|segment| segment.get_mut(..payload)).unwrap_or_default();
    // What cannot be parsed goes on as it is: it is for its receiver to refuse.
    if TcpMut::parse(segment).and_then(|mut segment| segment.clamp_mss(limit, state)) == Ok(true) {
        counters.mss_clamped.add(1);
    }
}
