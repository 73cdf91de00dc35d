//! Makes headroom for a packet that lacks it, by copying the packet.
//!
//! Ports leave as much headroom as the configuration can use (E4), so this is needed only for packets made
//! elsewhere, and in comparisons.

use polder_buffers::{Packet, Pool};

/// Moves the packet into frames with headroom; false if the pool is empty.
///
/// Cost: a copy of the packet.
#[cold]
pub(crate) fn make(packet: &mut Packet, pool: &mut Pool) -> bool {
    let Some(copy) = packet.duplicate(pool) else { return false };
    pool.release_packet(core::mem::replace(packet, copy));
    true
}
