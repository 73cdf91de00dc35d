//! Published counters of pools, and totals of pools that have ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Published counters of one worker, with one writer and any number of readers; aligned to avoid false
/// sharing.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct PoolCounters {
    cached: AtomicU64,
    taken: AtomicU64,
    exhausted: AtomicU64,
}

impl PoolCounters {
    pub(crate) fn write(&self, counts: PoolCounts) {
        // Relaxed: the numbers are independent.
        self.cached.store(counts.cached, Ordering::Relaxed);
        self.taken.store(counts.taken, Ordering::Relaxed);
        self.exhausted.store(counts.exhausted, Ordering::Relaxed);
    }
}

/// Counters of pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolCounts {
    /// Number of buffers in caches.
    pub(crate) cached: u64,
    /// Number of buffers allocated.
    pub(crate) taken: u64,
    /// Number of times that no buffer was free.
    pub(crate) exhausted: u64,
}

impl PoolCounts {
    fn add(&mut self, counters: &PoolCounters) {
        self.cached += counters.cached.load(Ordering::Relaxed);
        self.taken += counters.taken.load(Ordering::Relaxed);
        self.exhausted += counters.exhausted.load(Ordering::Relaxed);
    }
}

/// Counters of all pools.
#[derive(Debug, Default)]
pub(crate) struct PoolCounterSet(Mutex<CounterList>);

#[derive(Debug, Default)]
struct CounterList {
    open: Vec<Arc<PoolCounters>>,
    closed: PoolCounts,
}

impl PoolCounterSet {
    /// Creates the counters of a new pool.
    pub(crate) fn open(&self) -> Arc<PoolCounters> {
        let counters = Arc::default();
        self.list().open.push(Arc::clone(&counters));
        counters
    }

    /// Keeps the counts of a pool that ends.
    pub(crate) fn close(&self, counters: &Arc<PoolCounters>) {
        let mut list = self.list();
        list.open.retain(|open| !Arc::ptr_eq(open, counters));
        list.closed.add(counters);
    }

    /// Sum of all counters.
    pub(crate) fn counts(&self) -> PoolCounts {
        let list = self.list();
        let mut counts = list.closed;
        list.open.iter().for_each(|counters| counts.add(counters));
        counts
    }

    /// After a panic with the lock, a set of counters may be missing or counted twice, which is harmless.
    fn list(&self) -> MutexGuard<'_, CounterList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_books_are_kept() {
        let counters = PoolCounterSet::default();
        let (first, second) = (counters.open(), counters.open());
        first.write(PoolCounts { cached: 1, taken: 10, exhausted: 100 });
        second.write(PoolCounts { cached: 2, taken: 20, exhausted: 200 });
        assert_eq!(counters.counts(), PoolCounts { cached: 3, taken: 30, exhausted: 300 });
        first.write(PoolCounts { cached: 0, taken: 11, exhausted: 100 });
        counters.close(&first);
        assert_eq!(counters.counts(), PoolCounts { cached: 2, taken: 31, exhausted: 300 });
    }
}
