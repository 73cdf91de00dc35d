//! Packets that another worker has to sequence.

use super::{SequenceState, is_marked};
use polder_buffers::{Batch, Packet, PortId};

/// Moves packets that another worker has to sequence to `others`, in order.
///
/// Cost: a test a packet; nothing else where this worker sequences, or nothing has sequence numbers.
pub fn divert(
    batch: &mut Batch,
    sealed_here: impl Fn(PortId) -> bool,
    state: &mut SequenceState,
    others: &mut Batch,
) {
    let is_other = |packet: &Packet| is_marked(packet) && !sealed_here(packet.egress);
    if !batch.iter().any(is_other) {
        return;
    }
    if batch.iter().all(is_other) {
        return core::mem::swap(batch, others);
    }
    core::mem::swap(batch, &mut state.spare);
    for packet in state.spare.drain() {
        let room = if is_other(&packet) { &mut *others } else { &mut *batch };
        let pushed = room.push(packet);
        debug_assert!(pushed.is_ok(), "a batch has room for the packets of one");
    }
}
