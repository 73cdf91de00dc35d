//! One worker's cache of free slots, and its end of the fragments.
//!
//! A worker takes and releases from its own cache without any shared access. When the cache is
//! empty it is filled by one magazine, when it is full one magazine goes back, so that half of it
//! stays: a worker that swings around the edge does not pay at every swing. A slot freed on another
//! core than it was taken on travels home the same way, a magazine at a time.

mod exchange;
mod release;
mod take;

use crate::depot::MAGAZINE;
use crate::fragment::{Fragments, SharedFragments};
use crate::frame::{BufferAddress, SlotKind};
use crate::pool_counters::{PoolCounters, PoolCounts};
use crate::region::{Class, Region};
use crate::slot_reserve::SlotReserve;
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

impl Region {
    /// A cache of free data slots for one worker.
    pub fn pool(&self) -> Pool {
        self.pool_of(Class::Data)
    }

    /// A cache of free slots of one class for one worker.
    pub fn pool_of(&self, class: Class) -> Pool {
        let kind = SlotKind::new(self.id(), class == Class::Control);
        Pool::new(self.clone(), Arc::clone(self.reserve(class)), kind)
    }
}

impl Pool {
    pub(crate) fn new(region: Region, reserve: Arc<SlotReserve>, kind: SlotKind) -> Self {
        Self {
            free: Box::new([kind.slot(0); CACHE]),
            count: 0,
            most: reserve.cache(),
            kind,
            counters: reserve.counters().open(),
            reserve,
            region,
            fragments: FragmentEnd::None,
            control: None,
            taken: 0,
            exhausted: 0,
        }
    }

    /// Adds this worker's end of a memory of fragments: [`Pool::take_for`] takes from it, and every
    /// release knows its fragments.
    #[must_use]
    pub fn with_fragments(mut self, fragments: Fragments) -> Self {
        self.fragments = FragmentEnd::Own(fragments);
        self
    }

    /// The same with an end that all threads share.
    #[must_use]
    pub fn with_shared_fragments(mut self, fragments: Arc<SharedFragments>) -> Self {
        self.fragments = FragmentEnd::Shared(fragments);
        self
    }

    /// Adds the same worker's pool of the control class: what is released here goes home to it without a
    /// shared access, and [`Pool::take_control_for`] falls back on it.
    #[must_use]
    pub fn with_control(mut self, control: Self) -> Self {
        self.control = Some(Box::new(control));
        self
    }

    /// The pool to take control traffic's buffers from: that of the control class, if it was added.
    #[inline]
    pub fn control(&mut self) -> &mut Self {
        match self.control {
            Some(ref mut control) => control,
            None => self,
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

    /// Publishes the counters of this pool, for [`BufferManager::accounts`](crate::BufferManager); a
    /// worker does so at the end of a turn. Exchanges publish by themselves.
    pub fn publish(&self) {
        let Self { count, taken, exhausted, .. } = *self;
        self.counters.write(PoolCounts { cached: count as u64, taken, exhausted });
        if let FragmentEnd::Own(fragments) = &self.fragments {
            fragments.publish();
        }
        if let Some(control) = &self.control {
            control.publish();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.give_back();
        self.reserve.counters().close(&self.counters);
    }
}
