//! Tunnels in tunnels.

use super::{OuterHeader, Tunnels};
use crate::parse::HeaderSummary;
use crate::wire::{EtherType, IpProtocol, Link};
use polder_buffers::Packet;

/// Tunnels in tunnels that a packet may be in before it is put into one of ours.
const NESTING: usize = 4;

/// Offset of the destination port in a UDP header.
const PORT_AT: usize = 2;

/// True if a packet is, or carries, an outer packet of one of our tunnels.
#[inline(never)]
pub(super) fn is_tunnelled(packet: &Packet, headers: HeaderSummary, tunnels: &Tunnels) -> bool {
    let bytes = packet.bytes();
    let is_other_udp = headers.protocol() == IpProtocol::UDP && !has_port(bytes, headers, tunnels);
    !is_other_udp && is_recursive(bytes, tunnels)
}

/// True if a UDP packet is for a port of tunnels.
fn has_port(frame: &[u8], headers: HeaderSummary, tunnels: &Tunnels) -> bool {
    let port = frame.get(headers.transport_offset() + PORT_AT..).and_then(|rest| rest.first_chunk());
    headers.has_transport() && port.is_some_and(|&port| tunnels.takes_port(u16::from_be_bytes(port)))
}

/// True if the frame is, or carries, an outer packet of one of our tunnels in either direction, or
/// has more than [`NESTING`] encapsulations.
///
/// Without this test, an underlay that is also a member of the bridge, here or at the other end,
/// would carry a packet round and round, growing by a header at each turn.
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
