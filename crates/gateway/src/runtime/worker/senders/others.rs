//! Packets that are handed over to other workers, which send them.

use super::Senders;
use polder_buffers::{Batch, Pool, wire_packets};
use polder_datapath::drops::DropReason;

impl Senders {
    /// Hands packets over to worker `owner`; what its ring has no room for is dropped here, before
    /// any more work is spent on it.
    pub(super) fn hand_over(&mut self, owner: usize, batch: &mut Batch, pool: &mut Pool) {
        self.push_to(owner, batch);
        if !batch.is_empty() {
            self.counters.drops.count(DropReason::NoCore, wire_packets(batch));
            pool.release(batch);
        }
    }

    /// Hands packets over to worker `owner` while its ring has room.
    pub(super) fn push_to(&mut self, owner: usize, batch: &mut Batch) {
        let Some(Some((ring, wakeup))) = self.outgoing.get_mut(owner) else { return };
        let room = ring.room(batch.len());
        let counted = wire_packets(&batch[..room.min(batch.len())]);
        let handed = ring.push_all(room, batch.drain_front(room));
        if handed > 0 {
            self.counters.handed_over.add(counted);
            wakeup.wake();
        }
    }
}
