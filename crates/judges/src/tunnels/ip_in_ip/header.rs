//! Outer IPv4 headers with nothing between them and the packet inside.

use super::tunnel::Tunnel;
use crate::tunnels::guest::Linked as _;
use crate::tunnels::outer::Outer;

/// Protocols of outer headers: IPv4 inside, and IPv6 inside.
pub(super) const PROTOCOLS: [u8; 2] = [4, 41];
/// The DF bit in the word with the offset of a fragment.
const BOUND: u8 = 0x40;

/// Reads a frame; `None` for what is not one of both kinds, with room for an inner header.
pub(super) fn read(frame: &[u8]) -> Option<Outer> {
    let outer = PROTOCOLS.iter().find_map(|&protocol| Outer::read(frame, protocol))?;
    (!outer.v6 && frame.len() >= outer.end).then_some(outer)
}

/// Type of the packet inside, and where it begins; `None` for a later fragment.
pub(super) fn inner(outer: &Outer) -> Option<(u16, usize)> {
    let kind = if outer.protocol == PROTOCOLS[0] { 0x0800 } else { 0x86dd };
    (outer.offset == 0).then_some((kind, outer.payload))
}

impl Tunnel {
    /// True if a packet that end 0, Polder's, or 1, the guest's, has sent is of this tunnel.
    pub(super) fn has(&self, end: usize, (frame, outer): &(Vec<u8>, Outer)) -> bool {
        outer.is_from(frame, self.ends()[end]) && outer.protocol == self.protocol()
    }
}

impl Outer {
    /// True if the outer packet must not be cut on the way.
    pub(super) fn forbids_cuts(frame: &[u8]) -> bool {
        frame[20] & BOUND != 0
    }

    /// Sets or clears DF of the outer packet.
    pub(super) fn set_forbids_cuts(&self, frame: &mut [u8], forbids: bool) {
        frame[20] = frame[20] & !BOUND | if forbids { BOUND } else { 0 };
        self.repair(frame);
    }

    /// Sets the protocol number in the outer header.
    pub(super) fn set_protocol(&self, frame: &mut [u8], protocol: u8) {
        frame[23] = protocol;
        self.repair(frame);
    }

    /// Sets the last octet of the outer source address.
    pub(super) fn set_sender(&self, frame: &mut [u8], last: u8) {
        frame[29] = last;
        self.repair(frame);
    }
}
