//! Tunnels in tunnels.

use super::inner::{Flow, Inner, Network};
use super::{OuterHeader, Tunnels};
use crate::wire::{EtherType, IpProtocol, Ipv6, Link};
use polder_buffers::Packet;

/// Tunnels in tunnels that a packet may be in before it is put into one of ours.
const NESTING: usize = 4;

/// Protocols that may be, or lead to, a tunnel, one bit each: GRE, the headers that an outer IPv6 packet may have in
/// front of it, and UDP where there are tunnels over it.
#[inline]
pub(super) fn suspects(tunnels: &Tunnels) -> u64 {
    const ALWAYS: u64 =
        1 << IpProtocol::GRE.0 | 1 << IpProtocol::FRAGMENT.0 | 1 << IpProtocol::DESTINATION_OPTIONS.0;
    ALWAYS | u64::from(tunnels.takes_udp()) << IpProtocol::UDP.0
}

/// True if the payload of a frame's IP header may be, or lead to, a tunnel.
#[inline(always)]
pub(super) fn may_be_tunnelled(
    suspects: u64,
    packet: &Packet,
    (inner, flow): (Inner, Flow),
    tunnels: &Tunnels,
) -> bool {
    let protocol = inner.protocol();
    let is_suspect = protocol.0 < 64 && suspects >> protocol.0 & 1 != 0;
    is_suspect && (protocol != IpProtocol::UDP || has_port(packet, (inner, flow), tunnels))
}

/// Offset of the destination port in a UDP header.
const PORT_AT: usize = 2;

/// True if a UDP packet is for a port of tunnels.
#[inline(always)]
fn has_port(packet: &Packet, (inner, flow): (Inner, Flow), tunnels: &Tunnels) -> bool {
    match flow.destination_port() {
        Some(port) => tunnels.takes_port(port),
        None => has_port_elsewhere(packet.bytes(), inner, tunnels),
    }
}

/// The same of a packet with options, tags or another family.
#[inline(never)]
fn has_port_elsewhere(frame: &[u8], inner: Inner, tunnels: &Tunnels) -> bool {
    let header = match inner.network() {
        Network::Ipv4 => {
            let first = frame.get(inner.network_offset()).copied().unwrap_or_default();
            usize::from(first & 0x0f) * 4
        }
        Network::Ipv6 => Ipv6::HEADER_BYTES,
        Network::Other => return false,
    };
    let port = frame.get(inner.network_offset() + header + PORT_AT..).and_then(|rest| rest.first_chunk());
    port.is_some_and(|&port| tunnels.takes_port(u16::from_be_bytes(port)))
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
