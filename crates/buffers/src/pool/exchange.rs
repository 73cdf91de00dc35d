//! Exchange of magazines between a pool and the depot, and the pool's counters.

use super::{FragmentEnd, Pool};
use crate::depot::MAGAZINE;
use crate::pool_counters::PoolCounts;

impl Pool {
    /// Fills an empty cache with a magazine; false if there is none.
    #[cold]
    pub(super) fn refill(&mut self) -> bool {
        let (kind, region) = (self.kind, &self.region);
        // The first half of a cache is a magazine.
        let (half, _) = self.free.split_first_chunk_mut::<MAGAZINE>().expect("a cache is two magazines");
        self.count = self.reserve.take(half, |slot| kind.slot(slot), || region.collect_remote_frees());
        self.exhausted += u64::from(self.count == 0);
        self.publish();
        self.count > 0
    }

    /// Returns a magazine of the oldest slots, since the latest are warm in this core's cache.
    #[cold]
    pub(super) fn flush(&mut self) {
        let count = self.count.min(MAGAZINE);
        let taken = self.reserve.put(&self.free[..count], |place| place.index());
        if taken == 0 {
            // No magazine is free; most are partly filled.
            self.count -= 1;
            self.region.bring_home(self.free[self.count].index());
            return;
        }
        self.free.copy_within(taken..self.count, 0);
        self.count -= taken;
        self.publish();
    }

    /// Returns the whole cache and releases all blocks, for a worker that sleeps for long.
    pub fn give_back(&mut self) {
        while self.count > 0 {
            self.flush();
        }
        if let FragmentEnd::Own(fragments) = &mut self.fragments {
            fragments.give_back();
        }
        if let Some(control) = &mut self.control {
            control.give_back();
        }
        self.publish();
    }

    /// Publishes the counters of this pool for [`BufferManager::accounts`](crate::BufferManager); called by
    /// the worker at the end of a turn. Exchanges publish too.
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
