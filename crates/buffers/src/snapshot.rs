//! Snapshot: read-mostly table that is replaced whole while readers run.
//!
//! Once per batch a reader loads a version counter that only replacements write; while it is unchanged, the
//! reader's table is the latest, and reading costs nothing else. The last reader that moves on frees a
//! replaced table.

use crate::sync::{Arc, AtomicU64, Mutex, Ordering};

struct Shared<T> {
    latest: Mutex<Arc<T>>,
    version: AtomicU64,
}

/// Writer's end; there may be several.
pub struct Snapshot<T> {
    shared: Arc<Shared<T>>,
}

/// One reader, owned by one worker.
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    held: Arc<T>,
    version: u64,
}

impl<T> Snapshot<T> {
    /// A snapshot of `value`.
    pub fn new(value: T) -> Self {
        let shared = Shared { latest: Mutex::new(Arc::new(value)), version: AtomicU64::new(0) };
        Self { shared: Arc::new(shared) }
    }

    /// Replaces the table. Readers see it whole, at their next [`Reader::refresh`].
    ///
    /// # Panics
    /// Never: no code under the lock can panic.
    pub fn replace(&self, value: T) {
        let value = Arc::new(value);
        let mut latest = self.shared.latest.lock().expect("nothing panics under this lock");
        let old = core::mem::replace(&mut *latest, value);
        // Release pairs with the Acquire in `refresh`: a reader that sees the new version sees, under the
        // lock, the new table or a later one.
        self.shared.version.fetch_add(1, Ordering::Release);
        drop(latest);
        // Freed outside the lock, since freeing a large table takes long.
        drop(old);
    }

    /// Returns the latest table.
    ///
    /// # Panics
    /// Never: no code under the lock can panic.
    pub fn latest(&self) -> Arc<T> {
        Arc::clone(&self.shared.latest.lock().expect("nothing panics under this lock"))
    }

    /// Creates a reader of the latest table.
    pub fn reader(&self) -> Reader<T> {
        let version = self.shared.version.load(Ordering::Acquire);
        Reader { held: self.latest(), shared: Arc::clone(&self.shared), version }
    }
}

impl<T> Reader<T> {
    /// Switches to the latest table; returns true if it changed.
    ///
    /// Cost: one load of a cache line that only replacements write.
    #[inline]
    pub fn refresh(&mut self) -> bool {
        // Acquire pairs with the Release in `replace`.
        let version = self.shared.version.load(Ordering::Acquire);
        if version == self.version {
            return false;
        }
        self.follow(version);
        true
    }

    /// Table as of the last refresh.
    #[inline]
    pub fn get(&self) -> &T {
        &self.held
    }

    #[cold]
    fn follow(&mut self, version: u64) {
        let latest = Arc::clone(&self.shared.latest.lock().expect("nothing panics under this lock"));
        self.held = latest;
        self.version = version;
    }
}

impl<T> core::fmt::Debug for Snapshot<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

impl<T> core::fmt::Debug for Reader<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Reader").field("version", &self.version).finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn a_reader_never_goes_back_and_ends_at_the_latest() {
        loom::model(|| {
            let snapshot = Snapshot::new(0);
            let mut reader = snapshot.reader();
            let writer = loom::thread::spawn(move || {
                snapshot.replace(1);
                snapshot.replace(2);
                snapshot
            });
            let mut last = *reader.get();
            for _ in 0..2 {
                reader.refresh();
                assert!(*reader.get() >= last);
                last = *reader.get();
            }
            let snapshot = writer.join().expect("the writer does not panic");
            reader.refresh();
            assert_eq!(*reader.get(), 2);
            drop(snapshot);
        });
    }
}
