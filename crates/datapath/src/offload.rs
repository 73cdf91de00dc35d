//! What a sender left to the device, done here when the device cannot.
//!
//! A local sender behind a TAP or a virtual machine's port leaves only the sum of the pseudo-header in
//! a TCP or UDP checksum. A port that cannot complete it must not be given such a packet.

use crate::wire::Checksum;
use polder_buffers::{ChecksumState, Packet};

/// A packet whose metadata say that a checksum is to be computed where there is no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the checksum is to be written outside the packet")]
pub struct OutsidePacket;

/// Computes a partial checksum; does nothing to a packet that has none.
///
/// # Errors
/// [`OutsidePacket`] when the metadata, which a local sender chose, do not fit the packet.
///
/// Cost: reads the packet from where the checksum starts, a nanosecond for some 20 bytes.
#[cold]
pub fn complete_checksum(packet: &mut Packet) -> Result<(), OutsidePacket> {
    if packet.checksum != ChecksumState::Partial {
        return Ok(());
    }
    let start = usize::from(packet.checksum_start);
    let field = start + usize::from(packet.checksum_offset);
    if field + 2 > packet.bytes().len() {
        return Err(OutsidePacket);
    }
    let mut sum = Checksum::new();
    let mut skip = start;
    for segment in packet.segments() {
        let from = skip.min(segment.len());
        skip -= from;
        sum.add(&segment[from..]);
    }
    // The field holds the sum of the pseudo-header and is summed along. Zero would mean "none" to UDP,
    // and its complement is as good for TCP.
    let checksum = sum.finish_nonzero();
    packet.bytes_mut()[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    packet.checksum = ChecksumState::Unknown;
    Ok(())
}
