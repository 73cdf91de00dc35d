//! What workers publish of their pools, and what is kept of those that have ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What one worker has published. One writer; anybody reads. On lines of its own: its neighbour in memory
/// is another worker's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Book {
    cached: AtomicU64,
    taken: AtomicU64,
    exhausted: AtomicU64,
}

impl Book {
    pub(crate) fn write(&self, takings: Takings) {
        // Relaxed: numbers that are read one by one.
        self.cached.store(takings.cached, Ordering::Relaxed);
        self.taken.store(takings.taken, Ordering::Relaxed);
        self.exhausted.store(takings.exhausted, Ordering::Relaxed);
    }
}

/// What workers have, and what they did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Takings {
    /// Buffers in their own caches.
    pub(crate) cached: u64,
    /// Buffers taken.
    pub(crate) taken: u64,
    /// How often there was none.
    pub(crate) exhausted: u64,
}

impl Takings {
    fn add(&mut self, book: &Book) {
        self.cached += book.cached.load(Ordering::Relaxed);
        self.taken += book.taken.load(Ordering::Relaxed);
        self.exhausted += book.exhausted.load(Ordering::Relaxed);
    }
}

/// The books of all workers.
#[derive(Debug, Default)]
pub(crate) struct Books(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    open: Vec<Arc<Book>>,
    closed: Takings,
}

impl Books {
    /// A book for a new worker.
    pub(crate) fn open(&self) -> Arc<Book> {
        let book = Arc::default();
        self.shelf().open.push(Arc::clone(&book));
        book
    }

    /// Keeps what a worker that ends has written.
    pub(crate) fn close(&self, book: &Arc<Book>) {
        let mut shelf = self.shelf();
        shelf.open.retain(|open| !Arc::ptr_eq(open, book));
        shelf.closed.add(book);
    }

    /// The sum over all books.
    pub(crate) fn takings(&self) -> Takings {
        let shelf = self.shelf();
        let mut takings = shelf.closed;
        shelf.open.iter().for_each(|book| takings.add(book));
        takings
    }

    /// A book that was added twice or not at all by a thread that panicked is a number, not a fault.
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_books_are_kept() {
        let books = Books::default();
        let (first, second) = (books.open(), books.open());
        first.write(Takings { cached: 1, taken: 10, exhausted: 100 });
        second.write(Takings { cached: 2, taken: 20, exhausted: 200 });
        assert_eq!(books.takings(), Takings { cached: 3, taken: 30, exhausted: 300 });
        first.write(Takings { cached: 0, taken: 11, exhausted: 100 });
        books.close(&first);
        assert_eq!(books.takings(), Takings { cached: 2, taken: 31, exhausted: 300 });
    }
}
