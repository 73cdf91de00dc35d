//! A sending queue of a device, and the packets that wait in front of it.
//!
//! A device takes what it is given, far more than it sends in the time that a packet may wait. So it is
//! given little at a time, and the rest waits here, where the discipline sees it.

use polder_buffers::{BATCH, Batch, Packet, Pool, wire_packets};
use polder_datapath::counters::WorkerCounters;
use polder_datapath::drops::{DropReason, mark};
use polder_datapath::port::{Turn, TxQueue};
use polder_datapath::queue::{EgressCounters, EgressQueue, QueueOptions, Refusal};
use polder_datapath::units::Nanos;
use std::num::NonZeroU16;
use std::sync::Arc;

/// Packets that the device has at most: 1.5 ms of long ones at 1 Gbit/s.
const IN_FLIGHT: u32 = 128;
/// Batches that one turn sends at most.
const TURN: usize = 8;
/// A device that has enough does not say when it wants more; so it is asked again after this.
const LOOK_AGAIN: Nanos = Nanos(200_000);

/// Dropped packets that wait for a capture at most; a look comes several times a turn.
const MOST_DROPPED: usize = 8 * BATCH;

/// A queue to be put in front of a sending queue of a device. Its memory is taken by the control thread.
pub struct NewQueue {
    /// The queue, empty.
    pub queue: EgressQueue,
    /// Counters of the queue.
    pub counters: Arc<EgressCounters>,
}

/// Both together.
pub struct Outlet {
    tx: Box<dyn TxQueue>,
    queue: EgressQueue,
    /// Taken out of the queue, and not yet taken by the device.
    next: Batch,
    waiting: Waiting,
    counters: Arc<EgressCounters>,
    /// Dropped packets that a capture is to see; none while nobody captures.
    dropped: Option<Vec<Packet>>,
}

impl Outlet {
    /// A queue like that in front of `tx`; it counts in `counters`.
    pub fn new(tx: Box<dyn TxQueue>, options: &QueueOptions, counters: Arc<EgressCounters>) -> Self {
        Self::with(tx, NewQueue { queue: EgressQueue::new(options), counters })
    }

    /// Outlet with that queue in front of `tx`.
    pub fn with(tx: Box<dyn TxQueue>, NewQueue { queue, counters }: NewQueue) -> Self {
        Self { tx, queue, next: Batch::new(), waiting: Waiting::default(), counters, dropped: None }
    }

    /// Packets that wait, a super-packet as one.
    pub fn len(&self) -> usize {
        self.queue.len() + self.next.len()
    }

    /// True if none does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slots of the packet memory that they have to themselves.
    pub fn slots(&self) -> u64 {
        self.waiting.slots
    }

    /// Packets that wait, as they are on a link.
    pub fn wire_packets(&self) -> u64 {
        self.waiting.wire_packets
    }

    /// Packets that the device has.
    pub fn in_flight(&self) -> u32 {
        self.tx.held()
    }

    /// Frames of those packets.
    pub fn posted(&self) -> u32 {
        self.tx.posted()
    }

    /// Takes all packets of `batch`; those that find no room are dropped.
    pub fn put(&mut self, batch: &mut Batch, now: Nanos, pool: &mut Pool, worker: &WorkerCounters) {
        let counters = &*self.counters;
        counters.entered.add(wire_packets(batch));
        let region = pool.region().id();
        batch.iter().for_each(|packet| self.waiting.add(packet, region));
        let (waiting, dropped) = (&mut self.waiting, &mut self.dropped);
        self.queue.put(batch, now, |packet, why| {
            waiting.remove(&packet, region);
            refuse(packet, why, pool, dropped, counters, worker);
        });
    }

    /// True if a whole batch waits, and the device may be given it at `now`.
    pub fn is_due(&self, now: Nanos) -> bool {
        let may_leave = self.queue.next_deadline().is_none_or(|at| at <= now);
        self.len() >= BATCH && may_leave && self.tx.held() < IN_FLIGHT
    }

    /// Gives the device as many packets as it has room for and as may go. Returns true if there is
    /// reason to do so again at once.
    pub fn pump(&mut self, now: Nanos, pool: &mut Pool, worker: &WorkerCounters) -> bool {
        let mut busy = self.tx.reclaim(pool) == Turn::OutOfBudget;
        for turn in 0.. {
            self.fill(now, pool, worker);
            if self.next.is_empty() {
                break;
            }
            if turn == TURN {
                busy = true;
                break;
            }
            self.send(pool);
            // What was sent at once makes room for more.
            if self.tx.reclaim(pool) == Turn::Closed || !self.next.is_empty() {
                break;
            }
        }
        self.publish();
        busy
    }

    /// Gives the device the packets that were taken out of the queue.
    fn send(&mut self, pool: &mut Pool) {
        let region = pool.region().id();
        self.next.iter().for_each(|packet| self.waiting.remove(packet, region));
        self.tx.transmit(&mut self.next, pool);
        self.next.iter().for_each(|packet| self.waiting.add(packet, region));
    }

    /// Takes as many packets out of the queue as the device may have.
    fn fill(&mut self, now: Nanos, pool: &mut Pool, worker: &WorkerCounters) {
        let room = usize::try_from(IN_FLIGHT.saturating_sub(self.tx.held())).unwrap_or(0).min(BATCH);
        let (counters, waiting, region) = (&*self.counters, &mut self.waiting, pool.region().id());
        let dropped = &mut self.dropped;
        while self.next.len() < room {
            let packet = self.queue.take(now, |packet, why| {
                waiting.remove(&packet, region);
                refuse(packet, why, pool, dropped, counters, worker);
            });
            let Some(packet) = packet else { break };
            counters.left.add(packet.wire_packets.into());
            counters.left_bytes.add(packet.len() as u64);
            counters.waits.add(packet.wire_packets.into(), self.queue.wait());
            let pushed = self.next.push(packet);
            debug_assert!(pushed.is_ok(), "a batch has room for a batch");
        }
    }

    fn publish(&self) {
        self.counters.waiting.set(self.waiting.wire_packets);
        self.counters.waiting_bytes.set(self.queue.bytes());
        self.counters.wait_nanos.set(self.queue.wait().0);
    }

    /// Time of the next work of [`pump`](Self::pump), if no packet comes before.
    pub fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        if self.is_empty() {
            return None;
        }
        let has_room = self.next.is_empty() && self.tx.held() < IN_FLIGHT;
        Some(self.queue.next_deadline().filter(|_| has_room).unwrap_or(now + LOOK_AGAIN))
    }

    /// Puts `queue` in the place of the one in front of the device. Packets that wait stay in order, as far as
    /// `queue` has room for them.
    pub fn exchange(&mut self, queue: EgressQueue, pool: &mut Pool, worker: &WorkerCounters) {
        let old = std::mem::replace(&mut self.queue, queue);
        let (counters, waiting, region) = (&*self.counters, &mut self.waiting, pool.region().id());
        let dropped = &mut self.dropped;
        self.queue.take_over(old, |packet, why| {
            waiting.remove(&packet, region);
            refuse(packet, why, pool, dropped, counters, worker);
        });
        self.publish();
    }

    /// Keeps packets that it drops for a capture to see, or does so no more.
    pub fn watch(&mut self, is_watched: bool, pool: &mut Pool) {
        if is_watched != self.dropped.is_some() {
            let kept = std::mem::replace(&mut self.dropped, is_watched.then(Vec::new));
            kept.into_iter().flatten().for_each(|packet| pool.release_packet(packet));
        }
    }

    /// Shows the packets that were dropped since the last time, and releases them.
    pub fn show_dropped(&mut self, pool: &mut Pool, mut look: impl FnMut(&[Packet])) {
        let Some(dropped) = self.dropped.as_mut().filter(|dropped| !dropped.is_empty()) else { return };
        dropped.chunks(BATCH).for_each(&mut look);
        dropped.drain(..).for_each(|packet| pool.release_packet(packet));
    }

    /// The sending queue of the device, for a port whose queue is taken away. The device is given the packets that
    /// wait, as far as it has room; the rest is dropped.
    pub fn remove(mut self, pool: &mut Pool, worker: &WorkerCounters) -> Box<dyn TxQueue> {
        let Self { tx, queue, next, counters, .. } = &mut self;
        let bytes = |batch: &Batch| batch.iter().map(|packet| packet.len() as u64).sum::<u64>();
        // Those in `next` have left the queue already.
        let mut counted = (wire_packets(next), bytes(next));
        let mut waiting = queue.clear();
        loop {
            while next.len() < BATCH
                && let Some(packet) = waiting.next()
            {
                let pushed = next.push(packet);
                debug_assert!(pushed.is_ok(), "a batch has room for a batch");
            }
            let before = (wire_packets(next), bytes(next));
            tx.transmit(next, pool);
            let _ = tx.reclaim(pool);
            let after = (wire_packets(next), bytes(next));
            counters.left.add(before.0 - after.0 - counted.0.min(before.0 - after.0));
            counters.left_bytes.add(before.1 - after.1 - counted.1.min(before.1 - after.1));
            counted = (0, 0);
            if before == after {
                break;
            }
        }
        let mut refused = wire_packets(next);
        pool.release(next);
        for packet in waiting {
            refused += u64::from(packet.wire_packets);
            pool.release_packet(packet);
        }
        counters.full.add(refused);
        worker.drops.count(DropReason::QueueFull, refused);
        self.waiting = Waiting::default();
        self.watch(false, pool);
        self.publish();
        self.tx
    }

    /// The sending queue without the one in front of it; what waits is dropped.
    pub fn into_tx(mut self, pool: &mut Pool, worker: &WorkerCounters) -> Box<dyn TxQueue> {
        self.clear(pool, worker);
        self.watch(false, pool);
        self.tx
    }

    /// Drops everything that waits: the port is closed.
    pub fn clear(&mut self, pool: &mut Pool, worker: &WorkerCounters) {
        worker.drops.count(DropReason::PortDown, self.waiting.wire_packets);
        self.queue.clear().for_each(|packet| pool.release_packet(packet));
        pool.release(&mut self.next);
        self.waiting = Waiting::default();
        self.publish();
    }
}

/// Sizes of what waits in front of a device.
#[derive(Clone, Copy, Default)]
struct Waiting {
    /// Slots of the packet memory that packets have to themselves.
    slots: u64,
    wire_packets: u64,
}

impl Waiting {
    fn add(&mut self, packet: &Packet, region: NonZeroU16) {
        self.slots += packet.slots_of(region);
        self.wire_packets += u64::from(packet.wire_packets);
    }

    fn remove(&mut self, packet: &Packet, region: NonZeroU16) {
        self.slots -= packet.slots_of(region);
        self.wire_packets -= u64::from(packet.wire_packets);
    }
}

fn refuse(
    mut packet: Packet,
    why: Refusal,
    pool: &mut Pool,
    dropped: &mut Option<Vec<Packet>>,
    counters: &EgressCounters,
    worker: &WorkerCounters,
) {
    let (counter, reason) = match why {
        Refusal::Full => (&counters.full, DropReason::QueueFull),
        Refusal::Delay => (&counters.delay, DropReason::QueueDelay),
    };
    counter.add(packet.wire_packets.into());
    worker.drops.count(reason, packet.wire_packets.into());
    match dropped.as_mut().filter(|dropped| dropped.len() < MOST_DROPPED) {
        Some(dropped) => {
            mark(&mut packet, reason);
            dropped.push(packet);
        }
        None => pool.release_packet(packet),
    }
}
