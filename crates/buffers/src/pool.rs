//! Free slots: a cache for each worker, and whole magazines between them.
//!
//! A worker takes and releases from its own cache without any shared access. When the cache is
//! empty it is filled by one magazine, when it is full one magazine goes back, so that half of it
//! stays: a worker that swings around the edge does not pay at every swing. A slot freed on another
//! core than it was taken on travels home the same way, 64 at a time.

use crate::batch::Batch;
use crate::frame::Frame;
use crate::home::HomeList;
use crate::packet::Packet;
use crate::region::Region;
use core::num::NonZeroU16;
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Slots that travel together.
pub const MAGAZINE: usize = 64;
/// Slots that a cache holds at most.
const CACHE: usize = 2 * MAGAZINE;

/// Slot numbers that travel together; full ones in the depot, spare ones in pools.
type Magazine = Vec<u32>;

/// The magazines of one region, shared by all its pools.
pub(crate) struct Depot {
    id: NonZeroU16,
    full: ArrayQueue<Magazine>,
    spare: ArrayQueue<Magazine>,
    /// Slots in `full`. Signed arithmetic is not needed: it is raised before a magazine is put in.
    home: AtomicU32,
}

impl Depot {
    /// A depot that holds all `slots` of region `id`.
    pub(crate) fn new(id: NonZeroU16, slots: u32) -> Self {
        // Partly filled magazines come from pools that end; every slot alone in a magazine is the
        // worst that can happen, and then the queue still has room for all.
        let depot = Self {
            id,
            full: ArrayQueue::new(slots as usize),
            spare: ArrayQueue::new((slots as usize).div_ceil(MAGAZINE) + 1),
            home: AtomicU32::new(0),
        };
        let mut indices = (0..slots).collect::<Vec<_>>();
        // Low numbers come out first.
        for chunk in indices.chunks_mut(MAGAZINE) {
            chunk.reverse();
            let mut magazine = Vec::with_capacity(MAGAZINE);
            magazine.extend_from_slice(chunk);
            depot.put(magazine);
        }
        depot
    }

    pub(crate) fn home(&self) -> u32 {
        self.home.load(Ordering::Relaxed)
    }

    /// Brings the slots on `list` into magazines.
    pub(crate) fn collect(&self, list: &HomeList) {
        let mut magazine = Vec::new();
        list.take_all(|index| {
            magazine.push(index);
            if magazine.len() == MAGAZINE {
                self.put(core::mem::replace(&mut magazine, Vec::with_capacity(MAGAZINE)));
            }
        });
        self.put(magazine);
    }

    fn put(&self, magazine: Magazine) {
        let Ok(count) = u32::try_from(magazine.len()) else { return };
        if count == 0 {
            return;
        }
        self.home.fetch_add(count, Ordering::Relaxed);
        let result = self.full.push(magazine);
        debug_assert!(result.is_ok(), "there are never more magazines than slots");
    }

    fn get(&self) -> Option<Magazine> {
        let magazine = self.full.pop()?;
        let count = u32::try_from(magazine.len()).unwrap_or(u32::MAX);
        self.home.fetch_sub(count, Ordering::Relaxed);
        Some(magazine)
    }
}

/// One worker's cache of free slots.
#[derive(Debug)]
pub struct Pool {
    free: Vec<u32>,
    depot: Arc<Depot>,
    id: NonZeroU16,
    region: Region,
    exhausted: u64,
}

impl Pool {
    pub(crate) fn new(region: Region, depot: Arc<Depot>) -> Self {
        Self { free: Vec::with_capacity(CACHE), id: depot.id, depot, region, exhausted: 0 }
    }

    /// The region that the slots come from.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Takes one free slot; `None` when there is none anywhere. Its bytes are what its last owner left.
    ///
    /// Cost: a few instructions; once in 64 a queue operation.
    #[inline]
    pub fn take(&mut self) -> Option<Frame> {
        if let Some(index) = self.free.pop() {
            return Some(Frame::from_slot(self.id, index));
        }
        self.refill();
        let index = self.free.pop();
        self.exhausted += u64::from(index.is_none());
        index.map(|index| Frame::from_slot(self.id, index))
    }

    /// Releases all packets of `batch` with all their frames.
    ///
    /// Cost: about a nanosecond a packet of one frame.
    pub fn release(&mut self, batch: &mut Batch) {
        for packet in batch.drain() {
            self.release_packet(packet);
        }
    }

    /// Releases a packet with all its frames.
    #[inline]
    pub fn release_packet(&mut self, packet: Packet) {
        match packet.into_single() {
            Ok(segment) => self.release_frame(segment.frame),
            Err(chain) => chain.into_segments().for_each(|segment| self.release_frame(segment.frame)),
        }
    }

    /// Releases one frame.
    ///
    /// A frame of another region goes home over that region's list, as a dropped one does.
    #[inline]
    pub fn release_frame(&mut self, frame: Frame) {
        if frame.region() != self.id {
            drop(frame);
            return;
        }
        if self.free.len() == CACHE {
            self.flush();
        }
        self.free.push(frame.into_place().index);
    }

    /// Free slots that this worker can take without going to the depot.
    pub fn cached(&self) -> usize {
        self.free.len()
    }

    /// How often a slot was wanted and none was free.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }

    /// Gives the whole cache back, for a worker that goes to sleep for long.
    pub fn give_back(&mut self) {
        while !self.free.is_empty() {
            self.flush();
        }
    }

    #[cold]
    fn refill(&mut self) {
        let magazine = self.depot.get().or_else(|| {
            self.region.collect_strays();
            self.depot.get()
        });
        let Some(mut magazine) = magazine else { return };
        self.free.append(&mut magazine);
        // An empty magazine that finds no room is freed; as many stay as the slots can fill.
        let _ = self.depot.spare.push(magazine);
    }

    #[cold]
    fn flush(&mut self) {
        let mut magazine = self.depot.spare.pop().unwrap_or_else(|| Vec::with_capacity(MAGAZINE));
        // The oldest half goes: what was released last is warm in this core's cache.
        let count = self.free.len().min(MAGAZINE);
        magazine.extend(self.free.drain(..count));
        self.depot.put(magazine);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl core::fmt::Debug for Depot {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("Depot")
            .field("id", &self.id)
            .field("home", &self.home())
            .finish_non_exhaustive()
    }
}
