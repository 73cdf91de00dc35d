//! One worker's cache of free slots, and its end of the fragments.
//!
//! A worker takes and releases from its own cache without any shared access. When the cache is
//! empty it is filled by one magazine, when it is full one magazine goes back, so that half of it
//! stays: a worker that swings around the edge does not pay at every swing. A slot freed on another
//! core than it was taken on travels home the same way, a magazine at a time.

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

/// Slots that a cache holds at most; a power of two.
const CACHE: usize = 2 * MAGAZINE;
const _: () = assert!(CACHE.is_power_of_two());

/// Slots before the end of a cache at which its next exchange is prepared: a batch of half the usual size.
const SOON: usize = 32;

/// One worker's cache of free slots.
#[derive(Debug)]
pub struct Pool {
    /// The first `count` are free slots; those that were released last come last.
    free: Box<[BufferAddress; CACHE]>,
    count: usize,
    /// Slots that it keeps after a release.
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

/// Source of a pool's fragments.
#[derive(Debug)]
enum FragmentEnd {
    /// There are none: everything is a slot.
    None,
    /// This worker's own end.
    Own(Fragments),
    /// One that all threads share (D5 off).
    Shared(Arc<SharedFragments>),
}

impl Pool {
    /// The pool to take control traffic's buffers from: that of the control class, if it was added.
    #[inline]
    pub fn control(&mut self) -> &mut Self {
        match self.control {
            Some(ref mut control) => control,
            None => self,
        }
    }

    /// Takes one free slot; `None` when there is none anywhere. Its bytes are what its last owner left.
    ///
    /// Cost: a few instructions; once in a magazine two operations on a shared line.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn take(&mut self) -> Option<Frame> {
        if self.count == 0 && !self.refill() {
            return None;
        }
        self.count -= 1;
        self.taken += 1;
        // The mask keeps the index inside without a branch; the count is below the size here.
        let frame = Frame::from_place(self.free[self.count & (CACHE - 1)]);
        table::trace_taken(frame.place(), Location::caller());
        Some(frame)
    }

    /// Releases one frame.
    ///
    /// A frame of a region or class that this pool does not know goes home over its region's list.
    #[inline]
    pub fn release_frame(&mut self, frame: Frame) {
        if self.is_slot(&frame) {
            self.put_slot(frame);
        } else {
            self.release_elsewhere(frame);
        }
    }

    /// Out of line, as everything that is not the common slot: what comes back to itself by way of the
    /// control pool cannot be a part of its caller, and would take the few instructions of a slot along.
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

    /// Takes a frame back, wherever it is at home; fragments of others are told of by
    /// [`Pool::settle`].
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

    /// The region that the slots come from.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Free slots that this worker can take without going to the depot.
    pub fn cached(&self) -> usize {
        self.count
    }

    /// Number of failed allocations.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }
}
