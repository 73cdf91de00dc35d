//! Matches of each rule, by worker.
//!
//! A rule has a *slot*, which it keeps from configuration to configuration; slots stand in chunks that
//! are never moved, so that a reload loses no count. Each worker writes its own half of a chunk alone.

use crate::counter::Counter;
use polder_buffers::Packet;
use std::sync::Arc;

/// Slots of one chunk.
const CHUNK: usize = 256;

/// Matches of one rule at one worker.
#[derive(Debug, Default)]
pub(super) struct RuleCount {
    packets: Counter,
    bytes: Counter,
}

/// The counters of some rules, by worker.
#[derive(Debug)]
struct Chunk(Box<[Arc<[RuleCount]>]>);

/// A chunk of one worker.
fn fresh() -> Arc<[RuleCount]> {
    (0..CHUNK).map(|_| RuleCount::default()).collect()
}

/// The counters of all rules. Clones are the same counters.
#[derive(Clone, Debug, Default)]
pub struct RuleCounts {
    workers: usize,
    chunks: Vec<Arc<Chunk>>,
}

impl RuleCounts {
    /// Room for no rule yet, for `workers` workers.
    pub fn new(workers: usize) -> Self {
        Self { workers, chunks: Vec::new() }
    }

    /// Makes room for `workers` workers, if there is less; counts stay.
    pub fn serve(&mut self, workers: usize) {
        if workers <= self.workers {
            return;
        }
        self.workers = workers;
        for chunk in &mut self.chunks {
            let more = (chunk.0.len()..workers).map(|_| fresh());
            *chunk = Arc::new(Chunk(chunk.0.iter().map(Arc::clone).chain(more).collect()));
        }
    }

    /// Makes room for `slots` rules; what was counted stays.
    pub fn grow_to(&mut self, slots: usize) {
        while self.chunks.len() * CHUNK < slots {
            self.chunks.push(Arc::new(Chunk((0..self.workers).map(|_| fresh()).collect())));
        }
    }

    /// A worker's counters of a slot.
    #[inline]
    fn of(&self, worker: usize, slot: u32) -> Option<&RuleCount> {
        let slot = slot as usize;
        self.chunks.get(slot / CHUNK)?.0.get(worker)?.get(slot % CHUNK)
    }

    /// Counts one packet. To be called by the worker alone.
    #[inline]
    pub(super) fn count(&self, worker: usize, slot: u32, packet: &Packet) {
        if let Some(count) = self.of(worker, slot) {
            count.packets.add(packet.wire_packets.into());
            count.bytes.add(packet.len() as u64);
        }
    }

    /// Packets and bytes that all workers have counted in a slot, since it was made.
    pub fn get(&self, slot: u32) -> (u64, u64) {
        let counts = (0..self.workers).filter_map(|worker| self.of(worker, slot));
        counts.fold((0, 0), |(packets, bytes), count| {
            (packets + count.packets.get(), bytes + count.bytes.get())
        })
    }
}
