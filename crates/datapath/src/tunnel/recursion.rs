//! Tunnels in tunnels.

use super::{Ends, Tunnels};
use crate::wire::{EtherType, Gre, IpProtocol, Ipv4, Ipv6, Link};

/// Tunnels in tunnels that a packet may be in before it is put into one of ours.
const NESTING: usize = 4;

/// Whether what follows an IP header may be, or lead to, a tunnel: GRE, or in front of it the headers that
/// an outer IPv6 packet may have.
#[inline(always)]
pub(super) const fn may_be_tunnelled(protocol: IpProtocol) -> bool {
    const SUCH: u64 =
        1 << IpProtocol::GRE.0 | 1 << IpProtocol::FRAGMENT.0 | 1 << IpProtocol::DESTINATION_OPTIONS.0;
    protocol.0 < 64 && SUCH >> protocol.0 & 1 != 0
}

/// Whether the frame is, or carries, an outer packet of one of our tunnels in either direction, or is
/// in more tunnels than anybody has a use for.
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
        let Some((ends, payload)) = outer(protocol, bytes) else { return false };
        if tunnels.has_ends(&ends) || tunnels.has_ends(&ends.reversed()) {
            return true;
        }
        let Ok(gre) = Gre::parse(payload) else { return false };
        (protocol, bytes) = (gre.protocol(), gre.payload());
    }
    true
}

/// The ends of an outer packet, as its receiver sees them, and what is in the head of the packet from its
/// GRE header on; nothing of that for a later fragment.
fn outer(protocol: EtherType, bytes: &[u8]) -> Option<(Ends, &[u8])> {
    match protocol {
        EtherType::IPV4 => {
            let ip = Ipv4::parse_head(bytes, usize::MAX).ok()?;
            let ends = Ends::V4 { local: ip.destination(), remote: ip.source() };
            (ip.protocol() == IpProtocol::GRE).then(|| (ends, ip.payload()))
        }
        EtherType::IPV6 => {
            let ip = Ipv6::parse_head(bytes, usize::MAX).ok()?;
            let upper = ip.upper().ok()?;
            let ends = Ends::V6 { local: ip.destination(), remote: ip.source() };
            let payload = if upper.has_header() { upper.payload } else { &[] };
            (upper.protocol == IpProtocol::GRE).then_some((ends, payload))
        }
        _ => None,
    }
}
