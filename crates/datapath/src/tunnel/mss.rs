//! Lowers the segment size that TCP connections agree on, so that their packets fit the tunnel.
//!
//! Path MTU discovery needs ICMP, and ICMP is filtered in many networks; then a connection opens and
//! hangs at its first full segment. What both ends announce in their SYN is therefore lowered, in
//! both directions, to what the tunnel carries in one piece.
//!
//! A SYN without the option stays as it is: without it, 536 bytes over IPv4 and 1220 over IPv6 are
//! agreed on (RFC 9293, 3.7.1), which the smallest MTUs carry.
//!
//! Cost: a comparison for what is not TCP, a load and a test for what is no SYN.

use super::inner::{Inner, Network};
use super::{ETHERNET_BYTES, TcpMss, Tunnel, TunnelCounters};
use crate::drops::DropReason;
use crate::wire::{IpProtocol, Ipv4, Ipv6, TcpFlags, TcpMut};
use polder_buffers::Packet;

/// Offset of the flags in a TCP header.
const FLAGS: usize = 13;
/// IPv4 and TCP headers without options.
const HEADERS_V4: u16 = 40;
/// IPv6 and TCP headers without options.
const HEADERS_V6: u16 = 60;

/// Lowers the segment size in the frame, if it is a SYN that announces more than fits.
#[inline(always)]
pub(super) fn clamp(packet: &mut Packet, inner: Inner, tunnel: &Tunnel, counters: &TunnelCounters) {
    if tunnel.options.tcp_mss == TcpMss::Off {
        return;
    }
    let transport = match (inner.network(), inner.protocol()) {
        (Network::Ipv4, IpProtocol::TCP) => {
            let first = packet.bytes().get(inner.network_offset());
            inner.network_offset() + usize::from(first.map_or(0, |first| first & 0x0f)) * 4
        }
        (Network::Ipv6, IpProtocol::TCP) => inner.network_offset() + Ipv6::HEADER_BYTES,
        (Network::Ipv6, protocol) if may_precede_tcp(protocol) => {
            return clamp_syn(packet, inner, tunnel, counters);
        }
        (Network::Ipv4 | Network::Ipv6 | Network::Other, _) => return,
    };
    let flags = packet.bytes().get(transport + FLAGS);
    if flags.is_some_and(|&flags| TcpFlags(flags).contains(TcpFlags::SYN)) {
        clamp_syn(packet, inner, tunnel, counters);
    }
}

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

/// True if it is an extension header behind which TCP may stand.
#[inline]
const fn may_precede_tcp(protocol: IpProtocol) -> bool {
    matches!(
        protocol,
        IpProtocol::HOP_BY_HOP
            | IpProtocol::ROUTING
            | IpProtocol::FRAGMENT
            | IpProtocol::AUTHENTICATION
            | IpProtocol::DESTINATION_OPTIONS
    )
}

#[cold]
fn clamp_syn(packet: &mut Packet, inner: Inner, tunnel: &Tunnel, counters: &TunnelCounters) {
    let limit = limit(tunnel, inner.network(), inner.network_offset());
    // What cannot be parsed goes on as it is: it is for its receiver to refuse.
    if let Ok(true) = try_clamp(packet, inner, limit) {
        counters.mss_clamped.add(1);
    }
}

fn try_clamp(packet: &mut Packet, inner: Inner, limit: u16) -> Result<bool, DropReason> {
    let length = packet.len();
    let state = packet.checksum;
    let Some(bytes) = packet.bytes_mut().get_mut(inner.network_offset()..) else { return Ok(false) };
    let length = length - inner.network_offset();
    let (transport, payload) = match inner.network() {
        Network::Ipv4 => {
            let ip = Ipv4::parse_head(bytes, length)?;
            if ip.fragment_offset() != 0 {
                return Ok(false);
            }
            (ip.header_bytes(), ip.payload().len())
        }
        Network::Ipv6 => {
            let upper = Ipv6::parse_head(bytes, length)?.upper()?;
            if upper.protocol != IpProtocol::TCP || !upper.has_header() {
                return Ok(false);
            }
            (upper.offset, upper.payload.len())
        }
        Network::Other => return Ok(false),
    };
    // The payload as the IP header says: nothing behind it is looked at, let alone written.
    let Some(segment) = bytes.get_mut(transport..transport + payload) else { return Ok(false) };
    TcpMut::parse(segment)?.clamp_mss(limit, state)
}
