//! Counters of matches, per rule and worker.
//!
//! A rule has a *slot* that it keeps over reloads. Slots are in chunks that never move, so that a reload
//! loses no count. Each worker has its own part of a chunk.

use crate::counter::Counter;
use polder_buffers::Packet;
use std::sync::Arc;

/// Number of slots per chunk.
const CHUNK: usize = 256;

/// Matches of one rule on one worker.
#[derive(Debug, Default)]
pub(super) struct RuleCount {
    packets: Counter,
    bytes: Counter,
}

/// Counters of [`CHUNK`] rules, by worker.
#[derive(Debug)]
struct Chunk(Box<[Arc<[RuleCount]>]>);

/// Allocates one worker's part of a chunk.
fn fresh() -> Arc<[RuleCount]> {
    (0..CHUNK).map(|_| RuleCount::default()).collect()
}

/// Counters of all rules. Clones share the same counters.
#[derive(Clone, Debug, Default)]
pub struct RuleCounts {
    workers: usize,
    chunks: Vec<Arc<Chunk>>,
}

impl RuleCounts {
    /// Counters for `workers` workers, without slots.
    pub fn new(workers: usize) -> Self {
        Self { workers, chunks: Vec::new() }
    }

    /// Extends the counters to `workers` workers; counts are kept.
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

    /// Extends the counters to `slots` rules; counts are kept.
    pub fn grow_to(&mut self, slots: usize) {
        while self.chunks.len() * CHUNK < slots {
            self.chunks.push(Arc::new(Chunk((0..self.workers).map(|_| fresh()).collect())));
        }
    }

    /// A worker's counters of a slot; `None` if out of range.
    #[inline]
    fn of(&self, worker: usize, slot: u32) -> Option<&RuleCount> {
        let slot = slot as usize;
        self.chunks.get(slot / CHUNK)?.0.get(worker)?.get(slot % CHUNK)
    }

    /// Counts one packet. Called only by worker `worker`.
    #[inline]
    pub(super) fn count(&self, worker: usize, slot: u32, packet: &Packet) {
        if let Some(count) = self.of(worker, slot) {
            count.packets.add(packet.wire_packets.into());
            count.bytes.add(packet.len() as u64);
        }
    }

    /// Packets and bytes that all workers have counted in a slot.
    pub fn get(&self, slot: u32) -> (u64, u64) {
        let counts = (0..self.workers).filter_map(|worker| self.of(worker, slot));
        counts.fold((0, 0), |(packets, bytes), count| {
            (packets + count.packets.get(), bytes + count.bytes.get())
        })
    }
}
