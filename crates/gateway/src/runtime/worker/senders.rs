//! The sending half of a worker: a queue of its own for each port, or another worker's.

use super::SendPath;
use crate::runtime::wake::Bell;
use polder_buffers::ring::Producer;
use polder_buffers::{Batch, Packet, Pool, PortId};
use polder_datapath::counters::WorkerCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::Turn;
use polder_datapath::transmit::Egress;
use std::sync::Arc;

/// The sending half, apart from the rest so that it can be borrowed beside it.
pub(super) struct Senders {
    pub(super) ports: Vec<Option<SendPath>>,
    pub(super) outgoing: Vec<Option<(Producer<Packet>, Arc<Bell>)>>,
    pub(super) counters: Arc<WorkerCounters>,
}

impl Senders {
    pub(super) fn reclaim(&mut self, pool: &mut Pool) -> bool {
        let mut busy = false;
        for sender in self.ports.iter_mut().flatten() {
            if let SendPath::Own(queue) = sender {
                busy |= queue.reclaim(pool) == Turn::OutOfBudget;
            }
        }
        busy
    }

    pub(super) fn in_flight(&self) -> u32 {
        let held = |sender: &SendPath| match sender {
            SendPath::Own(queue) => queue.held(),
            SendPath::Through(_) => 0,
        };
        self.ports.iter().flatten().map(held).sum()
    }

    /// Hands packets over to worker `owner`; what its ring has no room for is dropped here, before
    /// any more work is spent on it.
    fn hand_over(&mut self, owner: usize, batch: &mut Batch, pool: &mut Pool) {
        self.push_to(owner, batch);
        if !batch.is_empty() {
            self.counters.drops.count(DropReason::NoCore, batch.len() as u64);
            pool.release(batch);
        }
    }
}

impl Senders {
    /// Hands packets over to worker `owner` while its ring has room.
    fn push_to(&mut self, owner: usize, batch: &mut Batch) {
        let Some(Some((ring, bell))) = self.outgoing.get_mut(owner) else { return };
        let room = ring.room(batch.len());
        let handed = ring.push_all(room, batch.drain_front(room));
        if handed > 0 {
            self.counters.handed_over.add(handed as u64);
            bell.ring();
        }
    }
}

/// The worker that writes sequence numbers: it has the first queue of every port.
const SEALER: usize = 0;

impl Egress for Senders {
    fn send(&mut self, port: PortId, batch: &mut Batch, pool: &mut Pool) -> bool {
        let Some(Some(sender)) = self.ports.get_mut(usize::from(port.0)) else { return false };
        match sender {
            SendPath::Own(queue) => {
                queue.transmit(batch, pool);
                if !batch.is_empty() && queue.reclaim(pool) != Turn::Closed {
                    queue.transmit(batch, pool);
                }
            }
            SendPath::Through(owner) => {
                let owner = *owner;
                self.hand_over(owner, batch, pool);
            }
        }
        true
    }

    fn seals(&self, _: PortId) -> bool {
        // There is no ring from a worker to itself.
        self.outgoing.get(SEALER).is_none_or(Option::is_none)
    }

    fn hand_to_sealer(&mut self, batch: &mut Batch) {
        self.push_to(SEALER, batch);
    }
}
