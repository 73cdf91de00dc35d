//! Bounded single-producer single-consumer ring.
//!
//! Each end caches the other end's cursor and reads it again only if the cached value says "full" or "empty",
//! so a batch costs one shared load and one shared store. Cursors count up without bound and are masked to a
//! cell; each is in a cache line of its own.

use crate::prefetch::{prefetch, prefetch_to_write};
use crate::sync::{Arc, AtomicUsize, Ordering, UnsafeCell};
use core::mem::MaybeUninit;
use crossbeam_utils::CachePadded;

struct Shared<T> {
    cells: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Number of cells written so far; stored by the producer.
    written: CachePadded<AtomicUsize>,
    /// Number of cells read so far; stored by the consumer.
    read: CachePadded<AtomicUsize>,
}

#[expect(unsafe_code, reason = "UNSAFETY: cells are shared between two threads")]
// SAFETY: a cell is accessed by one end at a time: the producer touches cells from `written` to
// `read + capacity`, the consumer those from `read` to `written`, and each hands over by a Release
// store of its own cursor. Values move between threads, hence `T: Send`.
unsafe impl<T: Send> Sync for Shared<T> {}

#[expect(unsafe_code, reason = "UNSAFETY: cells are shared between two threads")]
// SAFETY: as for `Sync`; whoever drops the ring last owns what is left in it.
unsafe impl<T: Send> Send for Shared<T> {}

/// Producer end of a ring.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    written: usize,
    read: usize,
}

/// Consumer end of a ring.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    read: usize,
    written: usize,
}

/// Creates a ring of `capacity` cells, rounded up to a power of two.
pub fn channel<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let capacity = capacity.max(1).next_power_of_two();
    let shared = Arc::new(Shared {
        cells: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        written: CachePadded::new(AtomicUsize::new(0)),
        read: CachePadded::new(AtomicUsize::new(0)),
    });
    (Producer { shared: Arc::clone(&shared), written: 0, read: 0 }, Consumer { shared, read: 0, written: 0 })
}

impl<T: Send> Producer<T> {
    /// Number of free cells, by the cached cursor; if these are fewer than `wanted`, the consumer's cursor is
    /// read again.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> usize {
        let capacity = self.shared.cells.len();
        let room = capacity - self.written.wrapping_sub(self.read);
        if room >= wanted {
            return room;
        }
        // Acquire pairs with the consumer's Release store in `publish`: its reads of the cells happen before
        // they are written again.
        self.read = self.shared.read.load(Ordering::Acquire);
        capacity - self.written.wrapping_sub(self.read)
    }

    /// Enqueues up to `wanted` values while there is room; returns their number.
    ///
    /// The consumer sees all of them at once.
    #[inline]
    #[expect(unsafe_code, reason = "UNSAFETY: writes cells that the consumer does not touch")]
    pub fn push_all(&mut self, wanted: usize, values: impl Iterator<Item = T>) -> usize {
        let room = self.room(wanted).min(wanted);
        let mask = self.shared.cells.len() - 1;
        let mut count = 0;
        for value in values.take(room) {
            let cell = &self.shared.cells[self.written.wrapping_add(count) & mask];
            cell.with_mut(|cell| {
                // SAFETY: (1) fewer than `room` cells were written since `room` was computed, so
                // this one is not between `read` and `written`: the consumer does not touch it;
                // (2) `&mut self` excludes another producer.
                unsafe { cell.cast::<T>().write(value) };
            });
            count += 1;
        }
        self.written = self.written.wrapping_add(count);
        // Release pairs with the consumer's Acquire load in `available`: the consumer sees the cells.
        self.shared.written.store(self.written, Ordering::Release);
        self.fetch_next(count);
        count
    }

    /// Prefetches the cells of the next values, which are in the consumer's cache.
    #[inline]
    fn fetch_next(&self, count: usize) {
        if size_of::<T>() < 64 {
            return;
        }
        let mask = self.shared.cells.len() - 1;
        for ahead in 0..count {
            prefetch_to_write(&self.shared.cells[self.written.wrapping_add(ahead) & mask]);
        }
    }

    /// Enqueues one value.
    ///
    /// # Errors
    /// The value itself if the ring is full.
    pub fn push(&mut self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        if self.room(1) > 0 {
            self.push_all(1, core::iter::from_fn(|| value.take()));
        }
        value.map_or(Ok(()), Err)
    }

    /// True if the consumer was dropped.
    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }
}

impl<T: Send> Consumer<T> {
    /// Number of values that can be dequeued, by the cached cursor if that is not 0.
    #[inline]
    pub fn available(&mut self) -> usize {
        let known = self.written.wrapping_sub(self.read);
        if known > 0 {
            return known;
        }
        // Acquire pairs with the producer's Release store in `push_all`.
        self.written = self.shared.written.load(Ordering::Acquire);
        self.written.wrapping_sub(self.read)
    }

    /// Number of values that can be dequeued; always reads the producer's cursor.
    pub fn refresh(&mut self) -> usize {
        // Acquire pairs with the producer's Release store in `push_all`.
        self.written = self.shared.written.load(Ordering::Acquire);
        self.written.wrapping_sub(self.read)
    }

    /// Dequeues up to `limit` values in order; returns their number.
    #[inline]
    #[expect(unsafe_code, reason = "UNSAFETY: reads cells that the producer does not touch")]
    pub fn pop_all(&mut self, limit: usize, mut take: impl FnMut(T)) -> usize {
        let count = self.available().min(limit);
        let mask = self.shared.cells.len() - 1;
        if size_of::<T>() >= 64 {
            for ahead in 0..count {
                prefetch(&self.shared.cells[self.read.wrapping_add(ahead) & mask]);
            }
        }
        for _ in 0..count {
            let cell = &self.shared.cells[self.read & mask];
            // SAFETY: (1) the cell is between `read` and `written`, so the producer wrote it before
            // its Release store and does not touch it; (2) `&mut self` excludes another consumer.
            let value = cell.with(|cell| unsafe { cell.cast::<T>().read() });
            // The cursor moves before `take` runs, so that a panic in it cannot lead to reading a cell twice.
            self.read = self.read.wrapping_add(1);
            take(value);
        }
        self.publish();
        count
    }

    /// Dequeues one value; `None` if the ring is empty.
    pub fn pop(&mut self) -> Option<T> {
        let mut value = None;
        self.pop_all(1, |taken| value = Some(taken));
        value
    }

    #[inline]
    fn publish(&self) {
        // Release pairs with the producer's Acquire load in `room`.
        self.shared.read.store(self.read, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        // Values that `pop_all` passed to `take` before a panic must not be dropped again.
        self.shared.read.store(self.read, Ordering::Release);
    }
}

impl<T> Drop for Shared<T> {
    #[expect(unsafe_code, reason = "UNSAFETY: drops what nobody took out")]
    fn drop(&mut self) {
        let mask = self.cells.len() - 1;
        // Relaxed: dropping the last `Arc` has synchronised with the other end.
        let written = self.written.load(Ordering::Relaxed);
        let mut read = self.read.load(Ordering::Relaxed);
        while read != written {
            self.cells[read & mask].with_mut(|cell| {
                // SAFETY: the cell was written and not read, and nobody else is left.
                unsafe { cell.cast::<T>().drop_in_place() };
            });
            read = read.wrapping_add(1);
        }
    }
}

impl<T> core::fmt::Debug for Producer<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Producer").field("written", &self.written).finish_non_exhaustive()
    }
}

impl<T> core::fmt::Debug for Consumer<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Consumer").field("read", &self.read).finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn values_cross_once_and_in_order() {
        loom::model(|| {
            let (mut producer, mut consumer) = channel::<Box<u32>>(2);
            let thread = loom::thread::spawn(move || {
                let mut sent = producer.push_all(2, (0..2).map(Box::new));
                assert_eq!(sent, 2);
                for next in 2..4 {
                    sent += usize::from(producer.push(Box::new(next)).is_ok() && sent == next as usize);
                }
                sent
            });
            let mut seen = Vec::new();
            consumer.pop_all(2, |value| seen.push(*value));
            consumer.pop_all(1, |value| seen.push(*value));
            let sent = thread.join().expect("the producer does not panic");
            while consumer.pop_all(2, |value| seen.push(*value)) > 0 {}
            assert!(seen.len() >= sent && seen.is_sorted(), "sent {sent}, seen {seen:?}");
            seen.dedup();
            assert!(seen.starts_with(&[0, 1]));
        });
    }

    #[test]
    fn what_is_left_is_dropped_once() {
        loom::model(|| {
            let (mut producer, mut consumer) = channel::<Box<u32>>(2);
            let thread = loom::thread::spawn(move || {
                producer.push(Box::new(1)).expect("an empty ring has room");
                producer.push(Box::new(2)).expect("one cell is left");
            });
            let first = consumer.pop();
            drop(consumer);
            thread.join().expect("the producer does not panic");
            assert!(first.is_none_or(|value| *value == 1));
        });
    }
}
