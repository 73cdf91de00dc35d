//! Pool: one worker's cache of free slots, and its fragment allocator.
//!
//! A worker allocates and releases in its own cache without shared access. An empty cache is filled by one
//! magazine, and a full one returns one magazine, so that half of the cache stays and oscillation around a
//! limit costs no exchanges. A slot freed on another core returns the same way, a magazine at a time.

mod construct;
mod exchange;
mod release;
mod take;

use crate::depot::MAGAZINE;
use crate::fragment::{Fragments, SharedFragments};
use crate::frame::table;
use crate::frame::{BufferAddress, Frame, SlotKind};
use crate::pool_counters::PoolCounters;
use crate::region::Region;
use crate::slot_reserve::SlotReserve;
use core::panic::Location;
use std::sync::Arc;

/// Size of a cache in slots; a power of two.
const CACHE: usize = 2 * MAGAZINE;
const _: () = assert!(CACHE.is_power_of_two());

/// Number of slots from a limit of the cache at which the next exchange is prefetched: half a batch.
const SOON: usize = 32;

/// One worker's cache of free slots.
#[derive(Debug)]
pub struct Pool {
    /// The first `count` elements are free slots, latest released last.
    free: Box<[BufferAddress; CACHE]>,
    count: usize,
    /// Number of slots that are kept after a release.
    most: usize,
    kind: SlotKind,
    reserve: Arc<SlotReserve>,
    region: Region,
    fragments: FragmentEnd,
    /// The same worker's pool of the control class.
    control: Option<Box<Self>>,
    taken: u64,
    exhausted: u64,
    counters: Arc<PoolCounters>,
}

/// Fragment allocator of a pool.
#[derive(Debug)]
enum FragmentEnd {
    /// None: every buffer is a slot.
    None,
    /// This worker's own allocator.
    Own(Fragments),
    /// An allocator that all threads share (D5 off).
    Shared(Arc<SharedFragments>),
}

impl Pool {
    /// Pool for control traffic: that of the control class if it was added, otherwise this one.
    #[inline]
    pub fn control(&mut self) -> &mut Self {
        match self.control {
            Some(ref mut control) => control,
            None => self,
        }
    }

    /// Allocates a slot; `None` if no slot is free. Its content is left by its last owner.
    ///
    /// Cost: a few instructions; once per magazine two operations on a shared cache line.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn take(&mut self) -> Option<Frame> {
        if self.count == 0 && !self.refill() {
            return None;
        }
        self.count -= 1;
        self.taken += 1;
        // The mask keeps the index in range without a branch; the count is below the size here.
        let frame = Frame::from_place(self.free[self.count & (CACHE - 1)]);
        table::trace_taken(frame.place(), Location::caller());
        Some(frame)
    }

    /// Releases one frame.
    ///
    /// A frame of a foreign region or class is freed through its region's remote-free list.
    #[inline]
    pub fn release_frame(&mut self, frame: Frame) {
        if self.is_slot(&frame) {
            self.put_slot(frame);
        } else {
            self.release_elsewhere(frame);
        }
    }

    /// Not inlined, like everything but the common slot: it is recursive over the control pool, so inlining
    /// would keep the fast path from being inlined.
    #[inline(never)]
    fn release_elsewhere(&mut self, frame: Frame) {
        self.put_elsewhere(frame);
        self.settle();
    }

    /// True if a frame is a slot of the pool's class.
    #[inline(always)]
    pub(crate) fn is_slot(&self, frame: &Frame) -> bool {
        self.kind.has(frame.place())
    }

    /// Releases a frame of any kind; [`Pool::settle`] completes the release of other workers' fragments.
    #[inline]
    pub(crate) fn put(&mut self, frame: Frame) {
        if self.is_slot(&frame) {
            self.put_slot(frame);
        } else {
            self.put_elsewhere(frame);
        }
    }

    /// Puts a slot of this kind into the cache.
    #[inline(always)]
    fn put_slot(&mut self, frame: Frame) {
        table::trace_released(frame.place());
        self.free[self.count & (CACHE - 1)] = frame.into_place();
        self.count += 1;
        if self.count > self.most {
            self.flush();
        }
    }

    /// Region of the slots.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Number of free slots in the cache.
    pub fn cached(&self) -> usize {
        self.count
    }

    /// Number of failed allocations.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }
}
