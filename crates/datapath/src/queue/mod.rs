//! Stage `queue`: egress queues of ports that are slower than their traffic.
//!
//! In: packets in the order of transmission. Out: the same, except those that the discipline drops. Exits:
//! [`Refusal`]. Cost: two moves of a packet; none for a port without queue.
//!
//! The stage comes after reordering and [`sequence`](crate::sequence): a drop leaves the remaining order
//! intact, and no ticket waits for a dropped packet (E8). Each sending queue of a device has its own, so
//! workers do not contend (E3). A discipline is one file, a [`QueueDiscipline`], and a variant of
//! [`Discipline`]: [`drop_tail`], [`codel`], [`fq_codel`] (RFC 8290) and [`cake`]. A queue can limit its
//! [rate](pace), for which a super-packet is charged by [what its segments occupy](link). Its parameters change
//! while packets wait ([`QueueOptions::is_adjustable_to`]); a [report] names the flows that have most of them.

pub mod cake;
pub mod codel;
mod counters;
mod discipline;
pub mod drop_tail;
mod fifo;
mod flow;
pub mod fq_codel;
pub mod link;
mod list;
mod mark;
pub mod pace;
pub mod report;
mod store;
pub mod waits;

pub use cake::{CakeOptions, Isolation, TIN_NAMES, Tins};
pub use codel::{Codel, CodelOptions, CodelState};
pub use counters::{EgressCounters, TinCounters, TinsCounters};
pub use discipline::{QueueDiscipline, Refusal};
pub use fifo::Fifo;
pub use flow::Aqm;
pub use fq_codel::FqCodelOptions;
pub use link::{Framing, LinkLayer};
pub use pace::Pace;
pub use report::QueueReport;
pub use waits::Waits;

use crate::units::{BytesPerSecond, Nanos};
use polder_buffers::{Batch, Packet};
use store::PacketStore;

/// Queue disciplines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// Drops packets only if the queue is full.
    DropTail,
    /// Drops packets to limit the delay (RFC 8289).
    Codel(CodelOptions),
    /// Flows take turns, and each has its CoDel state (RFC 8290).
    FqCodel(FqCodelOptions),
    /// Tins, hosts and flows take turns, and each flow has its CoDel state.
    Cake(CakeOptions),
}

impl Discipline {
    /// Creates an empty queue of this discipline, with its memory allocated.
    fn start(self, queue: &QueueOptions) -> Box<dyn QueueDiscipline> {
        let fifo = || Fifo::new(queue.limit_packets(), queue.limit_bytes);
        let store = || PacketStore::new(queue.limit_packets(), queue.limit_bytes);
        match self {
            Self::DropTail => Box::new(fifo()),
            Self::Codel(options) => Box::new(codel::CodelQueue::new(options, fifo())),
            Self::FqCodel(options) => Box::new(fq_codel::FqCodel::new(options, queue.link, store())),
            Self::Cake(options) => Box::new(cake::Cake::new(options, queue.link, store())),
        }
    }

    /// The same with this seed, if it has flows.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        match self {
            Self::DropTail | Self::Codel(_) => self,
            Self::FqCodel(options) => Self::FqCodel(FqCodelOptions { seed, ..options }),
            Self::Cake(options) => Self::Cake(CakeOptions { seed, ..options }),
        }
    }
}

/// Options of an egress queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Discipline, which decides about drops.
    pub discipline: Discipline,
    /// Capacity in bytes, Ethernet headers included, FCS excluded. An empty queue accepts any packet.
    pub limit_bytes: u64,
    /// Maximum rate; `None` for no limit.
    pub rate: Option<BytesPerSecond>,
    /// Link whose overhead packets are charged for.
    pub link: LinkLayer,
}

impl QueueOptions {
    /// Options without a rate, for a link without overhead.
    pub const fn new(discipline: Discipline, limit_bytes: u64) -> Self {
        Self { discipline, limit_bytes, rate: None, link: LinkLayer::RAW }
    }

    /// True if a queue with these options can take `other` while packets wait in it; if not, another queue
    /// has to [take over](EgressQueue::take_over) its packets.
    pub fn is_adjustable_to(&self, other: &Self) -> bool {
        let is_same_discipline = match (self.discipline, other.discipline) {
            (Discipline::DropTail, Discipline::DropTail) | (Discipline::Codel(_), Discipline::Codel(_)) => {
                true
            }
            (Discipline::FqCodel(old), Discipline::FqCodel(new)) => old.flows == new.flows,
            // In another tin, a flow would overtake its waiting packets.
            (Discipline::Cake(old), Discipline::Cake(new)) => old.flows == new.flows && old.tins == new.tins,
            (
                Discipline::DropTail | Discipline::Codel(_) | Discipline::FqCodel(_) | Discipline::Cake(_),
                _,
            ) => false,
        };
        is_same_discipline && self.limit_bytes == other.limit_bytes
    }

    /// Capacity in packets: one for each [`BYTES_A_PACKET`](Self::BYTES_A_PACKET) of `limit_bytes`, because a
    /// short packet takes a whole frame.
    pub fn limit_packets(&self) -> usize {
        usize::try_from(self.limit_bytes / Self::BYTES_A_PACKET).unwrap_or(usize::MAX).max(64)
    }

    /// Bytes of the limit per packet of capacity.
    pub const BYTES_A_PACKET: u64 = 512;
}

/// Egress queue of a port: a discipline and a rate.
#[derive(Debug)]
pub struct EgressQueue {
    discipline: Box<dyn QueueDiscipline>,
    pace: Option<Pace>,
    link: LinkLayer,
    wait: Nanos,
}

impl EgressQueue {
    /// Creates an empty queue and allocates its memory.
    pub fn new(options: &QueueOptions) -> Self {
        let pace = options.rate.map(Pace::new);
        let discipline = options.discipline.start(options);
        Self { discipline, pace, link: options.link, wait: Nanos::default() }
    }

    /// Takes options that are [adjustable](QueueOptions::is_adjustable_to); waiting packets stay.
    pub fn adjust(&mut self, options: &QueueOptions) {
        let (queue, link) = (self.discipline.as_any(), options.link);
        match options.discipline {
            Discipline::DropTail => {}
            Discipline::Codel(new) => {
                queue.downcast_mut::<codel::CodelQueue>().into_iter().for_each(|queue| queue.adjust(new));
            }
            Discipline::FqCodel(new) => {
                let queue = queue.downcast_mut::<fq_codel::FqCodel>();
                queue.into_iter().for_each(|queue| queue.adjust(new, link));
            }
            Discipline::Cake(new) => {
                queue.downcast_mut::<cake::Cake>().into_iter().for_each(|queue| queue.adjust(new, link));
            }
        }
        self.link = options.link;
        match (&mut self.pace, options.rate) {
            (Some(pace), Some(rate)) => pace.set_rate(rate),
            (pace, rate) => *pace = rate.map(Pace::new),
        }
    }

    /// Enqueues all packets of `batch`; dropped packets are passed to `refuse`.
    pub fn put(&mut self, batch: &mut Batch, now: Nanos, mut refuse: impl FnMut(Packet, Refusal)) {
        if let Some(pace) = self.pace.as_mut().filter(|_| self.discipline.is_empty()) {
            pace.begin(now);
        }
        for packet in batch.drain() {
            self.discipline.enqueue(packet, now, &mut refuse);
        }
    }

    /// Dequeues the next packet, if the rate allows one at `now`; packets that the discipline drops are
    /// passed to `refuse`.
    pub fn take(&mut self, now: Nanos, mut refuse: impl FnMut(Packet, Refusal)) -> Option<Packet> {
        if self.pace.as_ref().is_some_and(|pace| !pace.is_free(now)) {
            return None;
        }
        let (packet, came) = self.discipline.dequeue(now, &mut refuse)?;
        self.wait = now.since(came);
        if let Some(pace) = &mut self.pace {
            pace.spend(self.link.charge(&packet), now);
        }
        Some(packet)
    }

    /// Time at which the rate allows the next packet; `None` if the queue is empty or has no rate.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.pace.as_ref().filter(|_| !self.is_empty()).map(Pace::free_at)
    }

    /// Time that the last dequeued packet spent in the queue.
    pub fn wait(&self) -> Nanos {
        self.wait
    }

    /// Number of packets in the queue.
    pub fn len(&self) -> usize {
        self.discipline.len()
    }

    /// True if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.discipline.is_empty()
    }

    /// Bytes in the queue, Ethernet headers included, FCS excluded.
    pub fn bytes(&self) -> u64 {
        self.discipline.bytes()
    }

    /// Number of packets that the discipline marked with "congestion experienced" since the last call.
    pub fn take_marks(&mut self) -> u64 {
        self.discipline.take_marks()
    }

    /// State of each tin, whose events the caller takes; empty for a discipline without tins.
    pub fn tins(&mut self) -> &mut [report::TinState] {
        self.discipline.tins()
    }

    /// Number of flows that take turns, and of those that started since the last call.
    pub fn take_flow_counts(&mut self) -> report::FlowCounts {
        self.discipline.take_flow_counts()
    }

    /// Flows and hosts with most bytes.
    ///
    /// Cost: 4 bytes read per flow and per host of the discipline's tables, and an allocation.
    #[cold]
    pub fn report(&self, now: Nanos) -> QueueReport {
        self.discipline.report(now)
    }

    /// Takes the packets of the queue that this one replaces, with their times of arrival; packets beyond the
    /// capacity are passed to `refuse`. What the old queue has sent counts for the rate of this one.
    pub fn take_over(&mut self, mut old: Self, mut refuse: impl FnMut(Packet, Refusal)) {
        if let (Some(pace), Some(before)) = (&mut self.pace, &old.pace) {
            pace.go_on_from(before);
        }
        let had_tins = !old.discipline.tins().is_empty();
        while let Some((packet, came)) = old.discipline.pop() {
            self.discipline.enqueue(packet, came, &mut refuse);
        }
        // The packets have entered their tins once.
        self.discipline.tins().iter_mut().filter(|_| had_tins).for_each(|tin| tin.events.entered = 0);
        self.wait = old.wait;
    }

    /// Removes all packets, for a port that closes.
    pub fn clear(&mut self) -> impl Iterator<Item = Packet> + '_ {
        core::iter::from_fn(|| self.discipline.pop()).map(|(packet, _)| packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_buffers::{Pool, Region, RegionOptions};

    const MILLIS: u64 = 1_000_000;

    fn batch(ids: core::ops::Range<u32>, pool: &mut Pool) -> Batch {
        let mut batch = Batch::new();
        for id in ids {
            let mut packet = Packet::copy_from(&[0; 100], pool).expect("a free slot");
            packet.flow_hash = id;
            batch.push(packet).expect("room");
        }
        batch
    }

    fn drop_tail(limit_bytes: u64) -> QueueOptions {
        QueueOptions::new(Discipline::DropTail, limit_bytes)
    }

    #[test]
    fn short_packets_count_as_packets_and_a_long_one_always_finds_room() {
        let region = Region::new(RegionOptions { slots: 256, slot_bytes: 512 }).expect("memory");
        let mut pool = region.pool();
        let mut queue = EgressQueue::new(&drop_tail(50));
        let mut refused = 0;
        queue.put(&mut batch(0..2, &mut pool), Nanos(1), |packet, _| {
            refused += 1;
            region.pool().release_packet(packet);
        });
        assert_eq!((queue.len(), refused), (1, 1), "100 bytes where 50 are allowed");
        let mut queue = EgressQueue::new(&drop_tail(1 << 16));
        for ids in [0..60, 60..120, 120..180] {
            queue.put(&mut batch(ids, &mut pool), Nanos(1), |packet, _| {
                refused += 1;
                region.pool().release_packet(packet);
            });
        }
        assert_eq!((queue.len(), refused), (128, 53));
    }

    #[test]
    fn a_rate_lets_packets_go_one_by_one() {
        let region = Region::new(RegionOptions { slots: 256, slot_bytes: 512 }).expect("memory");
        let mut pool = region.pool();
        // 100 bytes take 100 µs.
        let rate = Some(BytesPerSecond(1_000_000));
        let mut queue = EgressQueue::new(&QueueOptions { rate, ..drop_tail(100_000) });
        assert_eq!(queue.next_deadline(), None, "nothing waits");
        let start = Nanos::from_seconds(1);
        queue.put(&mut batch(0..40, &mut pool), start, |_, _| unreachable!("there is room"));
        let mut take = |queue: &mut EgressQueue, now: Nanos| {
            let packets = core::iter::from_fn(|| queue.take(now, |_, _| unreachable!("no reason to")));
            let ids = packets.map(|packet| {
                let id = packet.flow_hash;
                pool.release_packet(packet);
                id
            });
            ids.collect::<Vec<_>>()
        };
        assert_eq!(take(&mut queue, start), (0..11).collect::<Vec<_>>(), "a millisecond, and one");
        let due = queue.next_deadline().expect("some wait");
        assert_eq!(due, start + Nanos(100_000));
        assert_eq!(take(&mut queue, Nanos(due.0 - 1)), []);
        assert_eq!(take(&mut queue, due), [11]);
        assert_eq!(queue.wait(), Nanos(100_000));
    }

    #[test]
    fn what_finds_no_room_is_refused_and_the_rest_keeps_its_order() {
        let region = Region::new(RegionOptions { slots: 256, slot_bytes: 512 }).expect("memory");
        let mut pool = region.pool();
        let mut queue = EgressQueue::new(&drop_tail(599));
        let mut refused = Vec::new();
        for ids in [0..3, 3..8] {
            let mut batch = batch(ids, &mut pool);
            queue.put(&mut batch, Nanos(1), |packet, why| refused.push((packet, why)));
        }
        assert_eq!((queue.len(), queue.bytes()), (5, 500));
        let left =
            core::iter::from_fn(|| queue.take(Nanos(9_999_999_999), |_, _| unreachable!("no reason to")));
        let left = left.collect::<Vec<_>>();
        assert!(left.iter().map(|packet| packet.flow_hash).eq(0..5));
        assert!(refused.iter().all(|(_, why)| *why == Refusal::Full));
        assert!(refused.iter().map(|(packet, _)| packet.flow_hash).eq(5..8));
        let refused = refused.into_iter().map(|(packet, _)| packet);
        left.into_iter().chain(refused).for_each(|packet| pool.release_packet(packet));
    }

    #[test]
    fn a_queue_that_replaces_another_keeps_order_and_times_and_refuses_what_is_too_much() {
        let region = Region::new(RegionOptions { slots: 256, slot_bytes: 512 }).expect("memory");
        let mut pool = region.pool();
        // 100 bytes take a second.
        let slow = QueueOptions { rate: Some(BytesPerSecond(100)), ..drop_tail(4000) };
        let mut queue = EgressQueue::new(&slow);
        queue.put(&mut batch(0..30, &mut pool), Nanos(MILLIS), |_, _| unreachable!("there is room"));
        let mut next = EgressQueue::new(&drop_tail(2500));
        let mut refused = Vec::new();
        next.take_over(queue, |packet, why| refused.push((packet, why)));
        assert_eq!((next.len(), next.bytes(), refused.len()), (25, 2500, 5));
        assert!(refused.iter().all(|(_, why)| *why == Refusal::Full));
        let now = Nanos(3 * MILLIS);
        let left = core::iter::from_fn(|| next.take(now, |_, _| unreachable!("no reason to")));
        let left = left.collect::<Vec<_>>();
        assert!(left.iter().map(|packet| packet.flow_hash).eq(0..25), "the rate is gone, the order is not");
        assert_eq!(next.wait(), Nanos(2 * MILLIS), "counted from the arrival");
        left.into_iter()
            .chain(refused.into_iter().map(|(packet, _)| packet))
            .for_each(|packet| pool.release_packet(packet));
    }

    #[test]
    fn codel_keeps_the_order_of_what_it_leaves() {
        let region = Region::new(RegionOptions { slots: 4096, slot_bytes: 512 }).expect("memory");
        let mut pool = region.pool();
        let codel = CodelOptions { longest_packet: 100, ..CodelOptions::default() };
        let discipline = Discipline::Codel(codel);
        let mut queue = EgressQueue::new(&QueueOptions::new(discipline, 2_000_000));
        let (mut id, mut left, mut dropped) = (0, Vec::new(), Vec::new());
        for tick in 0..2000_u64 {
            // Three come and two go each millisecond.
            let now = Nanos((1000 + tick) * MILLIS);
            let mut batch = batch(id..id + 3, &mut pool);
            id += 3;
            queue.put(&mut batch, now, |_, _| unreachable!("it is long enough"));
            for _ in 0..2 {
                let mut gone = Vec::new();
                let packet = queue.take(now, |packet, why| gone.push((packet, why))).expect("some wait");
                left.push(packet.flow_hash);
                pool.release_packet(packet);
                assert!(gone.iter().all(|(_, why)| *why == Refusal::Delay));
                dropped.extend(gone.iter().map(|(packet, _)| packet.flow_hash));
                gone.into_iter().for_each(|(packet, _)| pool.release_packet(packet));
            }
        }
        assert!(left.is_sorted() && dropped.is_sorted() && dropped.len() > 50, "{} dropped", dropped.len());
        let rest = queue.len();
        queue.clear().for_each(|packet| pool.release_packet(packet));
        assert_eq!((left.len() + dropped.len() + rest, queue.bytes()), (6000, 0));
    }
}
