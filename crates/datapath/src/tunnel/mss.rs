//! MSS clamping: lowers the MSS of TCP connections so that their segments fit into the tunnel.
//!
//! Path MTU discovery needs ICMP, which many networks filter; a connection then hangs at its first full
//! segment. So the MSS option of SYNs is lowered in both directions to the size that the tunnel carries in
//! one piece.
//!
//! A SYN without the option is not changed: its default MSS of 536 bytes over IPv4 and 1220 over IPv6 (RFC
//! 9293, 3.7.1) fits into the smallest MTUs.
//!
//! Cost: none for segments without SYN, see `inner.rs`.

use super::{ETHERNET_BYTES, TcpMss, Tunnel, TunnelCounters};
use crate::parse::{HeaderSummary, Network};
use crate::wire::TcpMut;
use polder_buffers::Packet;

/// Length of IPv4 and TCP headers without options, in bytes.
const HEADERS_V4: u16 = 40;
/// Length of IPv6 and TCP headers without options, in bytes.
const HEADERS_V6: u16 = 60;

/// Maximum MSS in bytes that the tunnel carries in one piece, for a frame with `network_offset` bytes before
/// the network header.
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

/// Lowers the MSS option of a SYN if it exceeds the limit.
#[cold]
pub(super) fn clamp_syn(
    packet: &mut Packet,
    headers: HeaderSummary,
    tunnel: &Tunnel,
    counters: &TunnelCounters,
) {
    let limit = limit(tunnel, headers.network(), headers.network_offset());
    // Payload by the IP header's length: later bytes are neither read nor written.
    let payload = headers.payload(packet.bytes()).len();
    let state = packet.checksum;
    let segment = packet.bytes_mut().get_mut(headers.transport_offset()..);
    let segment = segment.and_then(|segment| segment.get_mut(..payload)).unwrap_or_default();
    // A malformed segment is forwarded unchanged: its receiver refuses it.
    if TcpMut::parse(segment).and_then(|mut segment| segment.clamp_mss(limit, state)) == Ok(true) {
        counters.mss_clamped.add(1);
    }
}
