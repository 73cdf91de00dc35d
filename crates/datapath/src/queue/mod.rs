//! The queue in front of a port that is slower than its traffic.
//!
//! In: packets in the order in which they are to leave. Out: the same, less those that the discipline
//! refuses. Exits: [`Refusal`]. Cost: two moves of a packet; nothing where a port has no queue.
//!
//! It stands behind restoration and [`seal`](crate::seal): whatever it drops, the order of the rest is
//! right, and nobody waits for what is gone (E8). A discipline is one file; [`codel`] is there,
//! flow queueing (RFC 8290) and shaping disciplines find their place beside it.

pub mod codel;

pub use codel::{Codel, CodelOptions};

use crate::units::Nanos;
use polder_buffers::{Batch, Packet};
use std::collections::VecDeque;

/// Why a packet does not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The queue was full when it came.
    Full,
    /// Packets wait too long (CoDel).
    Delay,
}

/// How a queue decides what to refuse.
#[derive(Clone, Copy, Debug)]
pub enum Discipline {
    /// Nothing but what finds no room.
    DropTail,
    /// What is needed to keep the delay short (RFC 8289).
    Codel(CodelOptions),
}

/// A queue of packets with their times of arrival.
#[derive(Debug)]
pub struct EgressQueue {
    fifo: Fifo,
    limit: usize,
    codel: Option<Codel>,
}

/// Packets in order, with the time when each came.
#[derive(Debug)]
struct Fifo {
    packets: VecDeque<(Packet, Nanos)>,
    bytes: u64,
}

impl EgressQueue {
    /// A queue for up to `limit` packets; memory for all of them is taken here.
    pub fn new(limit: usize, discipline: Discipline) -> Self {
        let codel = match discipline {
            Discipline::DropTail => None,
            Discipline::Codel(options) => Some(Codel::new(options)),
        };
        Self { fifo: Fifo { packets: VecDeque::with_capacity(limit), bytes: 0 }, limit, codel }
    }

    /// Takes all packets of `batch`; what finds no room goes to `refuse`.
    pub fn put(&mut self, batch: &mut Batch, now: Nanos, mut refuse: impl FnMut(Packet, Refusal)) {
        for packet in batch.drain() {
            if self.fifo.packets.len() < self.limit {
                self.fifo.push(packet, now);
            } else {
                refuse(packet, Refusal::Full);
            }
        }
    }

    /// The packet that is to leave next; what is not to leave at all goes to `refuse`.
    pub fn take(&mut self, now: Nanos, mut refuse: impl FnMut(Packet, Refusal)) -> Option<Packet> {
        match &mut self.codel {
            None => self.fifo.pop().map(|(packet, _)| packet),
            Some(codel) => {
                let fifo = &mut self.fifo;
                let next = || fifo.pop().map(|(packet, came)| (packet, came, fifo.bytes));
                codel.take(now, next, |packet| refuse(packet, Refusal::Delay))
            }
        }
    }

    /// Packets in the queue.
    pub fn len(&self) -> usize {
        self.fifo.packets.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.fifo.packets.is_empty()
    }

    /// Bytes in the queue, Ethernet headers included, FCS excluded.
    pub fn bytes(&self) -> u64 {
        self.fifo.bytes
    }

    /// Takes out everything, for a port that closes.
    pub fn clear(&mut self) -> impl Iterator<Item = Packet> + '_ {
        self.fifo.bytes = 0;
        self.fifo.packets.drain(..).map(|(packet, _)| packet)
    }
}

impl Fifo {
    fn push(&mut self, packet: Packet, now: Nanos) {
        self.bytes += packet.len() as u64;
        self.packets.push_back((packet, now));
    }

    fn pop(&mut self) -> Option<(Packet, Nanos)> {
        let (packet, came) = self.packets.pop_front()?;
        self.bytes -= packet.len() as u64;
        Some((packet, came))
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

    #[test]
    fn what_finds_no_room_is_refused_and_the_rest_keeps_its_order() {
        let region = Region::new(RegionOptions { slots: 256, slot_bytes: 512 }).expect("memory");
        let mut pool = region.pool();
        let mut queue = EgressQueue::new(5, Discipline::DropTail);
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
    fn codel_keeps_the_order_of_what_it_leaves() {
        let region = Region::new(RegionOptions { slots: 4096, slot_bytes: 512 }).expect("memory");
        let mut pool = region.pool();
        let options = CodelOptions { longest_packet: 100, ..CodelOptions::default() };
        let mut queue = EgressQueue::new(2000, Discipline::Codel(options));
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
