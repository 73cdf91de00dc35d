//! Link headers.
//!
//! In: received frames. Out: frames of at least an Ethernet header.
//! Exits: `EthernetTruncated`, `FrameTooLong`. Cost: less than a nanosecond a packet; no byte of it is read.
//!
//! A bridge forwards what it does not understand, so nothing above the link header is looked at here. The first stage
//! that asks what stands there has it read into a [`HeaderSummary`], which the later ones share.

mod summary;

pub use summary::{Addresses, Extent, HeaderSummary, Network, Part, PlainV4};

use crate::drops::{Context, DropReason, is_dropped};
use polder_buffers::{Batch, Packet};

/// Length of an Ethernet header without tags, in bytes.
const ETHERNET: u16 = 14;

/// Marks packets that are too short to have addresses or longer than `longest` bytes; returns the number
/// of packets that are still on their way.
pub fn parse(batch: &mut Batch, longest: usize, context: &Context<'_>) -> usize {
    let mut alive = 0;
    for packet in batch.iter_mut() {
        if is_dropped(packet) {
            continue;
        }
        match decide(packet, longest) {
            None => {
                packet.network_offset = ETHERNET;
                alive += 1;
            }
            Some(reason) => context.discard(packet, reason),
        }
    }
    alive
}

/// Reason why the frame cannot go on, if it cannot.
#[inline]
fn decide(packet: &Packet, longest: usize) -> Option<DropReason> {
    if packet.head_len() < usize::from(ETHERNET) {
        // Devices fill the head frame first, so a short head is a short frame.
        return Some(DropReason::EthernetTruncated);
    }
    (packet.len() > longest).then_some(DropReason::FrameTooLong)
}
