//! Room in front of a packet that has none left: the packet is copied to where there is.
//!
//! Ports leave as much room as the configuration can use (E4), so this is for what was made elsewhere, and
//! for comparing.

use polder_buffers::{Packet, Pool};

/// Moves the packet into frames with room in front; whether there were any.
///
/// Cost: a copy of the packet.
#[cold]
pub(crate) fn make(packet: &mut Packet, pool: &mut Pool) -> bool {
    let Some(copy) = packet.duplicate(pool) else { return false };
    pool.release_packet(core::mem::replace(packet, copy));
    true
}
