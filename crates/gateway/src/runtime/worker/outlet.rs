//! A device's sending queue with an egress queue in front of it.
//!
//! A device accepts far more packets than it sends within an acceptable queueing delay. So the device is
//! limited to [`IN_FLIGHT`] packets, and the others wait in the egress queue, where the discipline sees them.

use super::cut::{cut, is_long, longest};
use polder_buffers::{BATCH, Batch, Packet, Pool, wire_packets};
use polder_datapath::counters::WorkerCounters;
use polder_datapath::drops::{DropReason, mark};
use polder_datapath::port::{Turn, TxQueue};
use polder_datapath::queue::{EgressCounters, EgressQueue, QueueOptions, QueueReport, Refusal};
use polder_datapath::units::Nanos;
use std::num::NonZeroU16;
use std::sync::Arc;

/// Maximum number of packets in the device: 1.5 ms of full-size packets at 1 Gbit/s.
const IN_FLIGHT: u32 = 128;
/// Maximum number of batches sent in one turn.
const TURN: usize = 8;
/// Interval of retries while the device is full, because a full device sends no event.
const LOOK_AGAIN: Nanos = Nanos(200_000);

/// Maximum number of dropped packets kept for captures, which look several times a turn.
const MOST_DROPPED: usize = 8 * BATCH;

/// An egress queue for a device's sending queue, allocated by the control thread.
pub struct NewQueue {
    /// The queue, empty.
    pub queue: EgressQueue,
    /// Counters of the queue.
    pub counters: Arc<EgressCounters>,
    /// Options with which the queue was created.
    pub options: QueueOptions,
}

/// A device's sending queue with its egress queue.
pub struct Outlet {
    tx: Box<dyn TxQueue>,
    queue: EgressQueue,
    /// Packets that have left the queue and that the device has not accepted yet.
    next: Batch,
    waiting: Waiting,
    /// Maximum length of a super-packet in bytes.
    longest: usize,
    counters: Arc<EgressCounters>,
    /// Dropped packets that captures have not seen yet; `None` without captures.
    dropped: Option<Vec<Packet>>,
}

impl Outlet {
    /// Creates an egress queue in front of `tx`, with counters in `counters`.
    pub fn new(tx: Box<dyn TxQueue>, options: &QueueOptions, counters: Arc<EgressCounters>) -> Self {
        Self::with(tx, NewQueue { queue: EgressQueue::new(options), counters, options: *options })
    }

    /// Puts a prepared queue in front of `tx`.
    pub fn with(tx: Box<dyn TxQueue>, NewQueue { queue, counters, options }: NewQueue) -> Self {
        let (next, waiting, longest) = (Batch::new(), Waiting::default(), longest(&options));
        Self { tx, queue, next, waiting, longest, counters, dropped: None }
    }

    /// Number of waiting packets; a super-packet counts as one.
    pub fn len(&self) -> usize {
        self.queue.len() + self.next.len()
    }

    /// True if no packet waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of slots of packet memory that waiting packets own alone.
    pub fn slots(&self) -> u64 {
        self.waiting.slots
    }

    /// Number of waiting packets on the wire, with super-packets counted by their segments.
    pub fn wire_packets(&self) -> u64 {
        self.waiting.wire_packets
    }

    /// Number of packets in the device.
    pub fn in_flight(&self) -> u32 {
        self.tx.held()
    }

    /// Number of frames in the device.
    pub fn posted(&self) -> u32 {
        self.tx.posted()
    }

    /// Enqueues all packets of `batch`; packets beyond the limit are dropped.
    pub fn put(&mut self, batch: &mut Batch, now: Nanos, pool: &mut Pool, worker: &WorkerCounters) {
        if batch.iter().any(|packet| is_long(packet, self.longest)) {
            let longest = self.longest;
            cut(batch, longest, (pool, worker), |batch, pool| self.enter(batch, now, pool, worker));
        } else {
            self.enter(batch, now, pool, worker);
        }
    }

    fn enter(&mut self, batch: &mut Batch, now: Nanos, pool: &mut Pool, worker: &WorkerCounters) {
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

    /// True if a whole batch waits and the device may get packets at `now`.
    pub fn is_due(&self, now: Nanos) -> bool {
        let may_leave = self.queue.next_deadline().is_none_or(|at| at <= now);
        self.len() >= BATCH && may_leave && self.tx.held() < IN_FLIGHT
    }

    /// Sends as many packets as the device and the rate allow. Returns true if another call should follow at
    /// once.
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
            // Packets that were sent at once make room for others.
            if self.tx.reclaim(pool) == Turn::Closed || !self.next.is_empty() {
                break;
            }
        }
        self.publish();
        busy
    }

    /// Passes the packets in `next` to the device.
    fn send(&mut self, pool: &mut Pool) {
        let region = pool.region().id();
        self.next.iter().for_each(|packet| self.waiting.remove(packet, region));
        self.tx.transmit(&mut self.next, pool);
        self.next.iter().for_each(|packet| self.waiting.add(packet, region));
    }

    /// Dequeues as many packets as the device may hold.
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

    fn publish(&mut self) {
        self.counters.waiting.set(self.waiting.wire_packets);
        self.counters.publish(&mut self.queue);
    }

    /// Changes the parameters of the egress queue; waiting packets stay.
    pub fn adjust(&mut self, options: &QueueOptions) {
        self.queue.adjust(options);
        self.longest = longest(options);
    }

    /// Report of what waits in the egress queue.
    #[cold]
    pub fn report(&self, now: Nanos) -> QueueReport {
        self.queue.report(now)
    }

    /// Time of the next work of [`pump`](Self::pump) if no packet arrives before; `None` if the queue is
    /// empty.
    pub fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        if self.is_empty() {
            return None;
        }
        let has_room = self.next.is_empty() && self.tx.held() < IN_FLIGHT;
        Some(self.queue.next_deadline().filter(|_| has_room).unwrap_or(now + LOOK_AGAIN))
    }

    /// Replaces the egress queue. Waiting packets stay in order, as far as `new` has room.
    pub fn exchange(&mut self, new: NewQueue, pool: &mut Pool, worker: &WorkerCounters) {
        self.publish();
        self.longest = longest(&new.options);
        let old = std::mem::replace(&mut self.queue, new.queue);
        let (counters, waiting, region) = (&*self.counters, &mut self.waiting, pool.region().id());
        let dropped = &mut self.dropped;
        self.queue.take_over(old, |packet, why| {
            waiting.remove(&packet, region);
            refuse(packet, why, pool, dropped, counters, worker);
        });
        self.publish();
    }

    /// Starts or stops keeping dropped packets for captures.
    pub fn watch(&mut self, is_watched: bool, pool: &mut Pool) {
        if is_watched != self.dropped.is_some() {
            let kept = std::mem::replace(&mut self.dropped, is_watched.then(Vec::new));
            kept.into_iter().flatten().for_each(|packet| pool.release_packet(packet));
        }
    }

    /// Passes the packets dropped since the last call to `look`, and releases them.
    pub fn show_dropped(&mut self, pool: &mut Pool, mut look: impl FnMut(&[Packet])) {
        let Some(dropped) = self.dropped.as_mut().filter(|dropped| !dropped.is_empty()) else { return };
        dropped.chunks(BATCH).for_each(&mut look);
        dropped.drain(..).for_each(|packet| pool.release_packet(packet));
    }

    /// Removes the egress queue and returns the device's sending queue. Waiting packets go to the device as
    /// far as it has room; the others are dropped.
    pub fn remove(mut self, pool: &mut Pool, worker: &WorkerCounters) -> Box<dyn TxQueue> {
        let Self { tx, queue, next, counters, .. } = &mut self;
        let bytes = |batch: &Batch| batch.iter().map(|packet| packet.len() as u64).sum::<u64>();
        // Packets in `next` have left the queue already.
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

    /// Drops all waiting packets and returns the device's sending queue.
    pub fn into_tx(mut self, pool: &mut Pool, worker: &WorkerCounters) -> Box<dyn TxQueue> {
        self.clear(pool, worker);
        self.watch(false, pool);
        self.tx
    }

    /// Drops all waiting packets because the port is closed.
    pub fn clear(&mut self, pool: &mut Pool, worker: &WorkerCounters) {
        worker.drops.count(DropReason::PortDown, self.waiting.wire_packets);
        self.queue.clear().for_each(|packet| pool.release_packet(packet));
        pool.release(&mut self.next);
        self.waiting = Waiting::default();
        self.publish();
    }
}

/// Totals of the packets that wait in a queue.
#[derive(Clone, Copy, Default)]
pub(super) struct Waiting {
    /// Number of slots of packet memory that packets own alone.
    slots: u64,
    wire_packets: u64,
}

impl Waiting {
    /// Number of slots of packet memory that packets own alone.
    pub(super) fn slots(self) -> u64 {
        self.slots
    }

    /// Number of packets, with super-packets counted by their segments.
    pub(super) fn wire_packets(self) -> u64 {
        self.wire_packets
    }

    pub(super) fn add(&mut self, packet: &Packet, region: NonZeroU16) {
        self.slots += packet.slots_of(region);
        self.wire_packets += u64::from(packet.wire_packets);
    }

    pub(super) fn remove(&mut self, packet: &Packet, region: NonZeroU16) {
        self.slots -= packet.slots_of(region);
        self.wire_packets -= u64::from(packet.wire_packets);
    }
}

/// Counts a packet that a queue has dropped, and releases it or keeps it for captures.
pub(super) fn refuse(
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
