//! A cache's exchanges with the depot, a magazine at a time, and its counters.

use super::{FragmentEnd, Pool};
use crate::depot::MAGAZINE;
use crate::pool_counters::PoolCounts;

impl Pool {
    /// Fills an empty cache by a magazine; whether there was one.
    #[cold]
    pub(super) fn refill(&mut self) -> bool {
        let (kind, region) = (self.kind, &self.region);
        // The first half of a cache is a magazine.
        let (half, _) = self.free.split_first_chunk_mut::<MAGAZINE>().expect("a cache is two magazines");
        self.count = self.reserve.take(half, |slot| kind.slot(slot), || region.collect_strays());
        self.exhausted += u64::from(self.count == 0);
        self.publish();
        self.count > 0
    }

    /// Gives a magazine back: the oldest slots, since what was released last is warm in this
    /// core's cache.
    #[cold]
    pub(super) fn flush(&mut self) {
        let count = self.count.min(MAGAZINE);
        let taken = self.reserve.put(&self.free[..count], |place| place.index());
        if taken == 0 {
            // Every magazine is in use, most of them partly filled.
            self.count -= 1;
            self.region.bring_home(self.free[self.count].index());
            return;
        }
        self.free.copy_within(taken..self.count, 0);
        self.count -= taken;
        self.publish();
    }

    /// Gives the whole cache back and lets go of all blocks, for a worker that goes to sleep for long.
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
