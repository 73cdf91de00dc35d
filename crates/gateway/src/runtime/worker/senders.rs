//! The sending half of a worker: its device queues, and its rings to workers that own others.

mod ports;
mod waiting;

use super::SendPath;
use crate::runtime::wake::Wakeup;
use polder_buffers::ring::Producer;
use polder_buffers::{Batch, Packet, Pool, PortId, wire_packets};
use polder_datapath::counters::{Stage, WorkerCounters};
use polder_datapath::drops::DropReason;
use polder_datapath::port::Turn;
use polder_datapath::scheduler::Backlog;
use polder_datapath::transmit::Egress;
use polder_datapath::units::Nanos;
use std::sync::Arc;

/// Ring to another worker, with its wake-up.
pub(super) type WorkerRing = Option<(Producer<Packet>, Arc<Wakeup>)>;

/// The sending half, a struct of its own so that it can be borrowed separately.
pub(super) struct Senders {
    /// Time of the round.
    pub(super) now: Nanos,
    ports: Vec<Option<SendPath>>,
    outgoing: Vec<WorkerRing>,
    counters: Arc<WorkerCounters>,
    /// Consumers behind ports, which run on this worker's CPU time.
    consumers: Vec<Consumer>,
    /// Number of packets offered to consumers in this turn, and whether a backlog exceeds its limit.
    offered: u32,
    sated: bool,
    /// True if unsent packets wait in a device.
    has_unsent: bool,
    /// True while a capture runs.
    pub(super) is_watched: bool,
}

/// A consumer behind a port.
struct Consumer {
    port: PortId,
    backlog: Arc<Backlog>,
    /// True if packets reach it without an egress queue.
    is_direct: bool,
}

/// Worker that assigns sequence numbers: it owns the first queue of every port.
const SEQUENCER: usize = 0;

impl Senders {
    /// Reclaims sent packets from devices, and sends waiting packets. Returns true if another call should
    /// follow at once.
    pub(super) fn round(&mut self, pool: &mut Pool) -> bool {
        let (mut busy, mut has_queues) = (false, false);
        self.has_unsent = false;
        for sender in self.ports.iter_mut().flatten() {
            match sender {
                SendPath::Own(queue) => {
                    busy |= queue.reclaim(pool) == Turn::OutOfBudget;
                    self.has_unsent |= queue.has_unsent();
                }
                SendPath::Queued(outlet) => {
                    has_queues = true;
                    outlet.watch(self.is_watched, pool);
                    busy |= outlet.pump(self.now, pool, &self.counters);
                }
                SendPath::Through(_) => {}
            }
        }
        if has_queues {
            self.count_waiting();
        }
        busy
    }
}

fn backlog_of(consumers: &[Consumer], port: PortId) -> Option<&Backlog> {
    let consumer = consumers.iter().find(|consumer| consumer.port == port && consumer.is_direct);
    consumer.map(|consumer| &*consumer.backlog)
}

impl Egress for Senders {
    fn send(&mut self, port: PortId, batch: &mut Batch, pool: &mut Pool) -> bool {
        let Some(Some(sender)) = self.ports.get_mut(usize::from(port.0)) else { return false };
        match sender {
            SendPath::Own(queue) => {
                if let Some(backlog) = backlog_of(&self.consumers, port) {
                    self.offered += u32::try_from(batch.len()).unwrap_or(0);
                    queue.transmit(batch, pool);
                    self.sated |= backlog.is_exceeded();
                    return true;
                }
                queue.transmit(batch, pool);
                if !batch.is_empty() && queue.reclaim(pool) != Turn::Closed {
                    queue.transmit(batch, pool);
                }
                self.has_unsent |= queue.has_unsent();
            }
            SendPath::Queued(outlet) => {
                let stage = self.counters.stage(Stage::Queue);
                stage.packets.add(batch.len() as u64);
                stage.batches.add(1);
                outlet.put(batch, self.now, pool, &self.counters);
                // A turn can bring more packets than the queue holds, so packets are sent during the turn.
                if outlet.is_due(self.now) {
                    outlet.pump(self.now, pool, &self.counters);
                }
            }
            SendPath::Through(owner) => {
                let owner = *owner;
                self.hand_over(owner, batch, pool);
            }
        }
        true
    }

    fn assigns_sequence(&self, _: PortId) -> bool {
        // A worker has no ring to itself.
        self.outgoing.get(SEQUENCER).is_none_or(Option::is_none)
    }

    fn hand_to_sequencer(&mut self, batch: &mut Batch) {
        self.push_to(SEQUENCER, batch);
    }

    fn show_dropped(&mut self, pool: &mut Pool, look: &mut dyn FnMut(PortId, &[Packet])) {
        for (port, sender) in (0..).map(PortId).zip(&mut self.ports) {
            if let Some(SendPath::Queued(outlet)) = sender {
                outlet.show_dropped(pool, |packets| look(port, packets));
            }
        }
    }
}

impl Senders {
    /// Hands packets over to worker `owner`. Packets beyond the ring's room are dropped here, before more
    /// work is spent on them.
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
