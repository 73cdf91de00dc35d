//! Completes what a local sender left undone: a transport checksum of the pseudo-header alone.

use super::template;
use polder_buffers::{ChecksumState, Packet};

/// Computes a partial checksum, so that what covers or cuts the packet finds it complete.
///
/// Offsets that do not lie within the packet are a lie of whoever set them; the packet goes on as it
/// is, and its receiver refuses it.
///
/// Cost: reads the packet from where the checksum starts.
#[cold]
pub(super) fn complete(packet: &mut Packet) {
    if packet.checksum != ChecksumState::Partial {
        return;
    }
    packet.checksum = ChecksumState::Unknown;
    let start = usize::from(packet.checksum_start);
    // The field holds the sum of the pseudo-header and is summed along. Zero would mean "none" to
    // UDP, and the complement of zero is as good for TCP.
    let checksum = template::sum(packet, start, usize::MAX).finish_nonzero();
    let at = start + usize::from(packet.checksum_offset);
    if let Some(field) = packet.bytes_mut().get_mut(at..).and_then(|bytes| bytes.first_chunk_mut()) {
        *field = checksum.to_be_bytes();
    }
}
