//! FQ-CoDel (RFC 8290): flows take turns by deficit round robin, and each has its CoDel state.
//!
//! In: packets in the order of transmission. Out: packets of all flows in turn, each flow in order. Exits:
//! [`Refusal::Full`] for packets of the flows with most bytes if the queue is full, [`Refusal::Delay`] by
//! CoDel. Cost: two moves of a packet and a hash; a packet of *n* quanta costs its flow *n* turns. Memory: 80
//! bytes per packet of the capacity and 68 per flow, allocated once.
//!
//! Section numbers in comments are those of RFC 8290. Deviations: a packet that does not fit makes room first
//! and is enqueued then, so the limit is never exceeded; a flow's backlog, not the queue's, is what CoDel
//! compares with the longest packet.

use super::flow::{Aqm, Flow, Refuse, drop_batch, relieve};
use super::link::LinkLayer;
use super::list::{Link, Linked, Turn, Turns};
use super::report::{FlowCounts, QueueReport, flow_report, largest};
use super::store::{PacketStore, Stored};
use super::{QueueDiscipline, Refusal};
use crate::steer::Hasher;
use crate::units::Nanos;
use core::any::Any;
use polder_buffers::Packet;

/// Parameters of FQ-CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodelOptions {
    /// CoDel's parameters and ECN.
    pub aqm: Aqm,
    /// Bytes that a flow sends in a turn; at least [`LEAST_QUANTUM`](Self::LEAST_QUANTUM).
    pub quantum: u32,
    /// Number of flows that are told apart, 1 to [`MOST_FLOWS`](Self::MOST_FLOWS).
    pub flows: u32,
    /// Secret of the hash, so that no sender chooses the flow that it shares.
    pub seed: u64,
}

impl FqCodelOptions {
    /// Least quantum in bytes: a smaller one is raised, because a turn would not pay for an IPv6 header chain.
    pub const LEAST_QUANTUM: u32 = 256;
    /// Largest number of flows.
    pub const MOST_FLOWS: u32 = 65_536;

    /// The same with a quantum and a number of flows in range.
    fn in_range(self) -> Self {
        let flows = self.flows.clamp(1, Self::MOST_FLOWS);
        Self { quantum: self.quantum.max(Self::LEAST_QUANTUM), flows, ..self }
    }
}

impl Default for FqCodelOptions {
    /// As 5.2 advises.
    fn default() -> Self {
        Self { aqm: Aqm::default(), quantum: 1514, flows: 1024, seed: 0 }
    }
}

/// A flow, and the list in which it takes turns.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    flow: Flow,
    link: Link,
    turn: Turn,
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Linked for Entry {
    #[inline]
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// A queue with FQ-CoDel.
#[derive(Debug)]
pub(super) struct FqCodel {
    options: FqCodelOptions,
    link: LinkLayer,
    hasher: Hasher,
    entries: Box<[Entry]>,
    /// By flow: bytes that wait.
    backlogs: Box<[u32]>,
    turns: Turns,
    counts: FlowCounts,
    store: PacketStore,
    marks: u64,
}

impl FqCodel {
    pub(super) fn new(options: FqCodelOptions, link: LinkLayer, store: PacketStore) -> Self {
        let options = options.in_range();
        Self {
            options,
            link,
            hasher: Hasher::mixed(options.seed, false),
            entries: (0..options.flows).map(|_| Entry::default()).collect(),
            backlogs: (0..options.flows).map(|_| 0).collect(),
            turns: Turns::default(),
            counts: FlowCounts::default(),
            store,
            marks: 0,
        }
    }

    /// Changes the parameters; the number of flows and the seed stay.
    pub(super) fn adjust(&mut self, new: FqCodelOptions, link: LinkLayer) {
        let FqCodelOptions { flows, seed, .. } = self.options;
        self.options = FqCodelOptions { flows, seed, ..new.in_range() };
        self.link = link;
    }

    /// Flow of a packet.
    #[inline]
    fn index(&self, packet: &Packet) -> u32 {
        // As on an underlay: a tunnel with sequence numbers is one flow.
        let hash = self.hasher.flow(packet, true).hash;
        u32::try_from((u64::from(hash) * u64::from(self.options.flows)) >> 32).unwrap_or(0)
    }

    /// Drops packets of the flows that have most bytes, from their heads (4.1.3).
    #[cold]
    fn drop_from_fattest(&mut self, refuse: Refuse<'_>) {
        let Self { options, entries, backlogs, store, .. } = self;
        relieve(backlogs, drop_batch(store.len(), options.aqm.drop_batch), |index, backlog| {
            let Some(stored) = entries[index].flow.pop(store, backlog) else { return false };
            refuse(stored.packet, Refusal::Full);
            true
        });
    }

    /// Dequeues a packet of the next flow in turn, as `take` does it (4.2).
    #[inline]
    fn next(
        &mut self,
        mut take: impl FnMut(&mut Flow, &mut PacketStore, &mut u32, &mut u64) -> Option<Stored>,
    ) -> Option<(Packet, Nanos)> {
        let Self { options, entries, backlogs, turns, counts, store, marks, .. } = self;
        loop {
            let index = turns.first()?;
            let entry = &mut entries[index as usize];
            if entry.flow.deficit <= 0 {
                entry.flow.deficit += i64::from(options.quantum);
                counts.moved(entry.turn, Turn::Old);
                entry.turn = Turn::Old;
                turns.pop(entries);
                turns.old.push(index, entries);
                continue;
            }
            if let Some(stored) = take(&mut entry.flow, store, &mut backlogs[index as usize], marks) {
                entry.flow.deficit -= i64::from(stored.charge);
                return Some((stored.packet, stored.came));
            }
            let was_new = entry.turn == Turn::New;
            let turn = if was_new { Turn::Old } else { Turn::Idle };
            counts.moved(entry.turn, turn);
            entry.turn = turn;
            turns.pop(entries);
            if was_new {
                // So that a flow does not go first again as soon as it has a packet.
                turns.old.push(index, entries);
            }
        }
    }
}

impl QueueDiscipline for FqCodel {
    fn enqueue(&mut self, packet: Packet, came: Nanos, refuse: &mut dyn FnMut(Packet, Refusal)) {
        let bytes = packet.len() as u64;
        while !self.store.has_room(bytes) {
            if !self.store.could_hold(bytes) {
                return refuse(packet, Refusal::Full);
            }
            self.drop_from_fattest(refuse);
        }
        let index = self.index(&packet);
        let charge = u32::try_from(self.link.charge(&packet)).unwrap_or(u32::MAX);
        let entry = &mut self.entries[index as usize];
        if let Err(packet) = self.store.append(&mut entry.flow.chain, Stored { packet, came, charge }) {
            return refuse(packet, Refusal::Full);
        }
        self.backlogs[index as usize] += u32::try_from(bytes).unwrap_or(u32::MAX);
        if entry.turn == Turn::Idle {
            self.counts.moved(Turn::Idle, Turn::New);
            entry.turn = Turn::New;
            entry.flow.deficit = i64::from(self.options.quantum);
            self.turns.new.push(index, &mut self.entries);
        }
    }

    fn dequeue(&mut self, now: Nanos, refuse: &mut dyn FnMut(Packet, Refusal)) -> Option<(Packet, Nanos)> {
        let aqm = self.options.aqm;
        self.next(|flow, store, backlog, marks| flow.take((store, backlog), &aqm, now, marks, &mut *refuse))
    }

    fn pop(&mut self) -> Option<(Packet, Nanos)> {
        self.next(|flow, store, backlog, _| flow.pop(store, backlog))
    }

    fn len(&self) -> usize {
        self.store.len()
    }

    fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn take_marks(&mut self) -> u64 {
        core::mem::take(&mut self.marks)
    }

    fn take_flow_counts(&mut self) -> FlowCounts {
        self.counts.take()
    }

    #[cold]
    fn report(&self, now: Nanos) -> QueueReport {
        let report = |(bytes, index): (u32, usize)| {
            let Entry { flow, turn, .. } = &self.entries[index];
            flow_report((&self.store, flow.chain), (bytes, *turn, 0), now)
        };
        QueueReport { flows: largest(&self.backlogs).into_iter().map(report).collect(), hosts: Vec::new() }
    }
}
