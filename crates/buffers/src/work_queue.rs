//! Work queue: a bounded queue with one producer and any number of consumers.
//!
//! Cells are pointers; consumers advance one shared cursor by compare-and-swap. A consumer reads the cell
//! first and owns the value only if its swap succeeds, so a thread that stops anywhere holds only values that
//! it has taken, and no other thread waits for it.

use crate::sync::{Arc, AtomicPtr, AtomicUsize, Ordering};
use core::marker::PhantomData;
use crossbeam_utils::CachePadded;

struct Shared<T> {
    cells: Box<[AtomicPtr<T>]>,
    /// Number of values put in so far; stored by the producer.
    given: CachePadded<AtomicUsize>,
    /// Number of values taken so far; advanced by consumers.
    taken: CachePadded<AtomicUsize>,
    /// The queue owns the values behind its pointers.
    owned: PhantomData<T>,
    /// For the model checker: tracks accesses to each cell if there is a single consumer.
    #[cfg(loom)]
    watched: Option<Box<[crate::sync::UnsafeCell<()>]>>,
}

impl<T> Shared<T> {
    #[inline(always)]
    fn write(&self, cell: usize, value: *mut T) {
        #[cfg(loom)]
        self.watched.iter().for_each(|watched| watched[cell].with_mut(|_| ()));
        self.cells[cell].store(value, Ordering::Relaxed);
    }

    #[inline(always)]
    fn read(&self, cell: usize) -> *mut T {
        #[cfg(loom)]
        self.watched.iter().for_each(|watched| watched[cell].with(|_| ()));
        self.cells[cell].load(Ordering::Relaxed)
    }
}

/// Producer end of a queue.
pub struct WorkProducer<T> {
    shared: Arc<Shared<T>>,
    given: usize,
    taken: usize,
}

/// Consumer end of a queue; it can be cloned.
pub struct WorkConsumer<T> {
    shared: Arc<Shared<T>>,
}

/// Creates a queue of `capacity` cells, rounded up to a power of two.
pub fn channel<T: Send>(capacity: usize) -> (WorkProducer<T>, WorkConsumer<T>) {
    let capacity = capacity.max(1).next_power_of_two();
    let shared = Arc::new(Shared {
        cells: (0..capacity).map(|_| AtomicPtr::new(core::ptr::null_mut())).collect(),
        given: CachePadded::new(AtomicUsize::new(0)),
        taken: CachePadded::new(AtomicUsize::new(0)),
        owned: PhantomData,
        #[cfg(loom)]
        watched: None,
    });
    (WorkProducer { shared: Arc::clone(&shared), given: 0, taken: 0 }, WorkConsumer { shared })
}

impl<T: Send> WorkProducer<T> {
    /// Enqueues a value.
    ///
    /// # Errors
    /// The value itself if the queue is full.
    ///
    /// Cost: two stores; a read of the consumers' cursor if the queue seems full.
    #[inline]
    pub fn give(&mut self, value: Box<T>) -> Result<(), Box<T>> {
        let capacity = self.shared.cells.len();
        if self.given.wrapping_sub(self.taken) >= capacity {
            // Acquire pairs with the Release of `take`: the consumer has read the cell before it is written
            // again.
            self.taken = self.shared.taken.load(Ordering::Acquire);
            if self.given.wrapping_sub(self.taken) >= capacity {
                return Err(value);
            }
        }
        self.shared.write(self.given & (capacity - 1), Box::into_raw(value));
        self.given = self.given.wrapping_add(1);
        // Release pairs with the Acquire of `take`: consumers see the cell and its value.
        self.shared.given.store(self.given, Ordering::Release);
        Ok(())
    }

    /// Number of values that no consumer has taken; may be outdated at once.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.given.wrapping_sub(self.shared.taken.load(Ordering::Relaxed))
    }
}

impl<T: Send> WorkConsumer<T> {
    /// Dequeues the oldest value; `None` if the queue is empty.
    ///
    /// Cost: two loads if the queue is empty; otherwise one compare-and-swap, and one more for each consumer
    /// that is faster.
    #[inline]
    pub fn take(&self) -> Option<Box<T>> {
        let mask = self.shared.cells.len() - 1;
        let mut taken = self.shared.taken.load(Ordering::Relaxed);
        loop {
            // Acquire pairs with the Release of `give`.
            let given = self.shared.given.load(Ordering::Acquire);
            // A stale cursor may lag by more than the queue's length.
            if given.wrapping_sub(taken).cast_signed() <= 0 {
                return None;
            }
            let value = self.shared.read(taken & mask);
            let next = taken.wrapping_add(1);
            // Release pairs with the producer's Acquire: the cell was read before it is written again.
            match self.shared.taken.compare_exchange(taken, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Some(Self::own(value)),
                Err(current) => taken = current,
            }
        }
    }

    /// True if the queue is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let taken = self.shared.taken.load(Ordering::Relaxed);
        // Relaxed: a hint. A thread that is about to sleep has executed a fence before.
        self.shared.given.load(Ordering::Relaxed).wrapping_sub(taken).cast_signed() <= 0
    }

    #[expect(unsafe_code, reason = "UNSAFETY: the pointer becomes a box again")]
    fn own(value: *mut T) -> Box<T> {
        // SAFETY: (1) the pointer came from `Box::into_raw` in `give`: the Acquire of `given` shows
        // the cell as it was written for this count or later, and it cannot be later, because the
        // producer writes it again only after it has seen `taken` beyond this count, which our swap
        // has just shown not to be so when it happened; (2) the swap from this count succeeds once,
        // so nobody else makes a box of it.
        unsafe { Box::from_raw(value) }
    }
}

impl<T> Clone for WorkConsumer<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Shared<T> {
    #[expect(unsafe_code, reason = "UNSAFETY: drops what nobody took out")]
    fn drop(&mut self) {
        // Relaxed: dropping the last `Arc` has synchronised with the other ends.
        let given = self.given.load(Ordering::Relaxed);
        let mut taken = self.taken.load(Ordering::Relaxed);
        while taken != given {
            let value = self.cells[taken & (self.cells.len() - 1)].load(Ordering::Relaxed);
            // SAFETY: the cell was given and not taken, and nobody else is left.
            drop(unsafe { Box::from_raw(value) });
            taken = taken.wrapping_add(1);
        }
    }
}

impl<T> core::fmt::Debug for WorkProducer<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("WorkProducer").field("given", &self.given).finish_non_exhaustive()
    }
}

impl<T> core::fmt::Debug for WorkConsumer<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("WorkConsumer").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn values_come_out_as_they_went_in_until_it_is_full() {
        let (mut producer, consumer) = channel(3);
        for round in 0..5 {
            for value in 0..4 {
                producer.give(Box::new(4 * round + value)).expect("four cells");
            }
            assert_eq!((producer.waiting(), producer.give(Box::new(99))), (4, Err(Box::new(99))));
            let other = consumer.clone();
            let taken =
                [&consumer, &other, &other, &consumer].map(|consumer| *consumer.take().expect("four values"));
            assert_eq!(taken, [0, 1, 2, 3].map(|value| 4 * round + value));
            assert!(consumer.take().is_none() && consumer.is_empty());
        }
    }

    #[test]
    fn what_nobody_took_is_dropped() {
        let witness = Arc::new(());
        let (mut producer, consumer) = channel(8);
        for _ in 0..5 {
            producer.give(Box::new(Arc::clone(&witness))).expect("room");
        }
        drop(consumer.take());
        drop((producer, consumer));
        assert_eq!(Arc::strong_count(&witness), 1);
    }

    fn take_until(consumer: &WorkConsumer<usize>, last: usize) -> Vec<usize> {
        let mut seen = Vec::new();
        while seen.last() != Some(&last) {
            seen.extend(consumer.take().map(|value| *value));
        }
        seen
    }

    #[test]
    fn four_threads_take_each_value_once() {
        const VALUES: usize = 40_000;
        let (mut producer, consumer) = channel(16);
        let threads = [0; 4].map(|_| {
            let consumer = consumer.clone();
            std::thread::spawn(move || take_until(&consumer, VALUES))
        });
        // The end is told once to each thread.
        for value in (0..VALUES).chain([VALUES; 4]) {
            let mut value = Box::new(value);
            while let Err(back) = producer.give(value) {
                value = back;
                std::hint::spin_loop();
            }
        }
        let seen = threads.map(|thread| thread.join().expect("a consumer does not panic"));
        assert!(seen.iter().all(|seen| seen.is_sorted()), "each consumer sees them in order");
        let mut all = seen.concat();
        all.sort_unstable();
        assert_eq!(all, (0..VALUES).chain([VALUES; 4]).collect::<Vec<_>>());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::UnsafeCell;

    /// A queue whose cells the model checker treats as plain memory, so that a late read or an early write is
    /// a race. For one consumer only: with several, a slow consumer may read a cell that is being written,
    /// and discards the value.
    fn watched<T: Send>(capacity: usize) -> (WorkProducer<T>, WorkConsumer<T>) {
        let (mut producer, consumer) = channel(capacity);
        drop(consumer);
        let shared = Arc::get_mut(&mut producer.shared).expect("there is one end");
        shared.watched = Some((0..capacity).map(|_| UnsafeCell::new(())).collect());
        let consumer = WorkConsumer { shared: Arc::clone(&producer.shared) };
        (producer, consumer)
    }

    /// A cell is read before it is written again: Release of the consumer's swap, Acquire of the producer's
    /// load. The cell and its target are written before they are read: Release of the producer's count,
    /// Acquire of the consumer's load.
    #[test]
    fn a_cell_is_read_between_its_writes() {
        loom::model(|| {
            let (mut producer, consumer) = watched::<UnsafeCell<usize>>(1);
            let thread = loom::thread::spawn(move || {
                let mut seen = 0;
                for _ in 0..2 {
                    if let Some(value) = consumer.take() {
                        value.with_mut(|_| ());
                        seen += 1;
                    }
                }
                (seen, consumer)
            });
            let mut given = 0;
            for value in 0..2 {
                given += usize::from(producer.give(Box::new(UnsafeCell::new(value))).is_ok());
            }
            let (seen, consumer) = thread.join().expect("the consumer does not panic");
            let left = core::iter::from_fn(|| consumer.take()).count();
            assert_eq!(seen + left, given);
        });
    }

    #[test]
    fn every_value_is_taken_once_while_cells_come_round() {
        loom::model(|| {
            let (mut producer, consumer) = channel::<usize>(2);
            let other = consumer.clone();
            let thread = loom::thread::spawn(move || {
                let first = other.take().map(|value| *value);
                (first, other.take().map(|value| *value))
            });
            let mut seen = Vec::new();
            for value in 0..3 {
                while producer.give(Box::new(value)).is_err() {
                    seen.extend(consumer.take().map(|value| *value));
                }
            }
            let (first, second) = thread.join().expect("the consumer does not panic");
            assert!(first.is_none_or(|first| second.is_none_or(|second| first < second)));
            seen.extend(core::iter::from_fn(|| consumer.take().map(|value| *value)));
            seen.extend(first);
            seen.extend(second);
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2]);
        });
    }
}
