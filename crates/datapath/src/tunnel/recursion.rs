//! Recursion check: tunnel packets that would enter a tunnel again.

use super::{OuterHeader, Tunnels};
use crate::parse::HeaderSummary;
use crate::wire::{EtherType, IpProtocol, Link};
use polder_buffers::Packet;

/// Maximum number of encapsulations that a packet may have before it enters a tunnel.
const NESTING: usize = 4;

/// Offset of the destination port in a UDP header, in bytes.
const PORT_AT: usize = 2;

/// True if a packet is, or contains, an outer packet of one of this gateway's tunnels.
#[inline(never)]
pub(super) fn is_tunnelled(packet: &Packet, headers: HeaderSummary, tunnels: &Tunnels) -> bool {
    let bytes = packet.bytes();
    let is_other_udp = headers.protocol() == IpProtocol::UDP && !has_port(bytes, headers, tunnels);
    !is_other_udp && is_recursive(bytes, tunnels)
}

/// True if a UDP packet's destination port is that of a tunnel.
fn has_port(frame: &[u8], headers: HeaderSummary, tunnels: &Tunnels) -> bool {
    let port = frame.get(headers.transport_offset() + PORT_AT..).and_then(|rest| rest.first_chunk());
    headers.has_transport() && port.is_some_and(|&port| tunnels.takes_port(u16::from_be_bytes(port)))
}

/// True if the frame is, or contains, an outer packet of one of this gateway's tunnels in either direction,
/// or has more than [`NESTING`] encapsulations.
///
/// Without this check, an underlay that is also a bridge port, here or at the remote endpoint, would form a
/// loop in which a packet grows by a header in each round.
#[cold]
pub(super) fn is_recursive(frame: &[u8], tunnels: &Tunnels) -> bool {
    let Ok(link) = Link::parse(frame) else { return false };
    let (mut protocol, mut bytes) = (link.ether_type(), link.payload());
    for _ in 0..NESTING {
        if protocol == EtherType::TRANSPARENT_ETHERNET {
            let Ok(link) = Link::parse(bytes) else { return false };
            (protocol, bytes) = (link.ether_type(), link.payload());
        }
        let Some(outer) = OuterHeader::read(protocol, bytes, tunnels) else { return false };
        let (ends, carrier) = (outer.ends, outer.carrier);
        if tunnels.has(&ends, carrier) || tunnels.has(&ends.reversed(), carrier) {
            return true;
        }
        if outer.label.is_none() {
            return false;
        }
        (protocol, bytes) = (outer.protocol, outer.payload);
    }
    true
}
