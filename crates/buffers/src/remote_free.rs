//! Remote-free list: slots that were not released in bulk.
//!
//! Any thread pushes; one thread at a time takes the whole list. Since no single node is unlinked while
//! another thread reads it, there is no ABA problem.

use crate::sync::{AtomicU32, Ordering};

/// The end of the list.
const NIL: u32 = u32::MAX;

/// Stack of slot numbers, linked through one word per slot.
pub(crate) struct RemoteFreeList {
    head: AtomicU32,
    next: Box<[AtomicU32]>,
}

impl RemoteFreeList {
    pub(crate) fn new(slots: u32) -> Self {
        Self { head: AtomicU32::new(NIL), next: (0..slots).map(|_| AtomicU32::new(NIL)).collect() }
    }

    /// Pushes slot `index`. The caller owns the slot and gives it up.
    pub(crate) fn push(&self, index: u32) {
        let link = &self.next[index as usize];
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            link.store(head, Ordering::Relaxed);
            // Release pairs with the Acquire of `take_all`: a thread that takes the list sees its links and
            // the last owner's writes to the slot.
            match self.head.compare_exchange_weak(head, index, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(current) => head = current,
            }
        }
    }

    /// Empties the list into `take`, newest first.
    pub(crate) fn take_all(&self, mut take: impl FnMut(u32)) {
        if self.head.load(Ordering::Relaxed) == NIL {
            return;
        }
        // Acquire pairs with the Release of `push`.
        let mut index = self.head.swap(NIL, Ordering::Acquire);
        while index != NIL {
            let next = self.next[index as usize].load(Ordering::Relaxed);
            take(index);
            index = next;
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn every_slot_comes_home_once() {
        loom::model(|| {
            let list = Arc::new(RemoteFreeList::new(3));
            let other = Arc::clone(&list);
            let pusher = loom::thread::spawn(move || {
                other.push(0);
                other.push(1);
            });
            list.push(2);
            let mut seen = Vec::new();
            list.take_all(|index| seen.push(index));
            pusher.join().expect("the pusher does not panic");
            list.take_all(|index| seen.push(index));
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2]);
        });
    }
}
