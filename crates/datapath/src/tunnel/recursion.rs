//! Tunnels in tunnels.

use super::{OuterHeader, Tunnels};
use crate::wire::{EtherType, IpProtocol, Link};

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
        let Some(outer) = OuterHeader::read(protocol, bytes) else { return false };
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
