//! Aliases: several frames for the same bytes, with a reference count.
//!
//! A frame is normally the only owner of its bytes, and its number is the index of its chain link. Each alias
//! of shared bytes needs a chain link of its own, so it gets a number beyond the units. The first alias's
//! entry keeps the count and the address of the bytes until the last alias is released; the other entries
//! refer to it.

use super::BufferAddress;
use crate::stack::Stack;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of aliases of one region.
pub const SHARED_FRAMES: u32 = if cfg!(loom) { 4 } else { 4096 };

/// Aliases of one region.
pub(crate) struct Aliases {
    free: Stack,
    entries: Box<[Entry]>,
    /// Number of the first alias.
    first: u32,
    /// Number of shared buffers.
    places: AtomicU32,
}

/// Entry of an alias.
#[derive(Default)]
struct Entry {
    /// Entry that has the count and the address.
    keeper: AtomicU32,
    /// Number of remaining aliases.
    count: AtomicU32,
    /// Address of the bytes.
    target: AtomicU64,
}

impl Aliases {
    /// Aliases for a region of `units` units, numbered after the units.
    pub(crate) fn new(units: u32) -> Self {
        let count = units.min(SHARED_FRAMES);
        let free = Stack::new(count);
        (0..count).rev().for_each(|entry| free.push(entry));
        let entries = (0..count).map(|_| Entry::default()).collect();
        Self { free, entries, first: units, places: AtomicU32::new(0) }
    }

    /// Number of shared buffers.
    pub(crate) fn places(&self) -> u32 {
        self.places.load(Ordering::Relaxed)
    }

    /// Number of entries.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Replaces a buffer that the caller owns alone by two aliases; `None` if no alias is free.
    pub(crate) fn share(&self, place: BufferAddress) -> Option<(BufferAddress, BufferAddress)> {
        let keeper = self.free.pop()?;
        let Some(other) = self.free.pop() else {
            self.free.push(keeper);
            return None;
        };
        // Relaxed, all three: aliases reach another thread with synchronisation.
        self.entry(keeper).count.store(2, Ordering::Relaxed);
        self.entry(keeper).target.store(place.into_word(), Ordering::Relaxed);
        [keeper, other].iter().for_each(|&name| self.entry(name).keeper.store(keeper, Ordering::Relaxed));
        self.places.fetch_add(1, Ordering::Relaxed);
        Some((self.named(place, keeper), self.named(place, other)))
    }

    /// Creates a further alias; `None` if no alias is free.
    pub(crate) fn share_again(&self, name: BufferAddress) -> Option<BufferAddress> {
        let other = self.free.pop()?;
        let keeper = self.keeper(name);
        self.entry(other).keeper.store(keeper, Ordering::Relaxed);
        // Relaxed: the caller's own alias keeps the count above 0.
        self.entry(keeper).count.fetch_add(1, Ordering::Relaxed);
        Some(self.named(name, other))
    }

    /// Address of the bytes of an alias.
    pub(crate) fn target(&self, name: BufferAddress) -> BufferAddress {
        let word = self.entry(self.keeper(name)).target.load(Ordering::Relaxed);
        BufferAddress::from_word(word).expect("a name is made with a place")
    }

    /// Releases an alias; returns the address of the bytes if it was the last one.
    pub(crate) fn release(&self, name: BufferAddress) -> Option<BufferAddress> {
        let keeper = self.keeper(name);
        let target = self.target(name);
        let number = name.index() - self.first;
        if number != keeper {
            self.free.push(number);
        }
        // Release pairs with the Acquire of the last release: every user has read the bytes before they are
        // written again.
        let before = self.entry(keeper).count.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a name is released once");
        (before == 1).then(|| {
            self.places.fetch_sub(1, Ordering::Relaxed);
            self.free.push(keeper);
            target
        })
    }

    /// Releases an alias if it is the last one; `None`, and nothing changes, if it is not.
    pub(crate) fn end(&self, name: BufferAddress) -> Option<BufferAddress> {
        // Relaxed: `release` acquires. Aliases are made only from aliases, and the caller has the only one,
        // so the count does not change in between.
        let is_last = self.entry(self.keeper(name)).count.load(Ordering::Relaxed) == 1;
        is_last.then(|| self.release(name))?
    }

    fn named(&self, place: BufferAddress, entry: u32) -> BufferAddress {
        place.with_name(self.first + entry)
    }

    fn keeper(&self, name: BufferAddress) -> u32 {
        self.entry(name.index() - self.first).keeper.load(Ordering::Relaxed)
    }

    fn entry(&self, entry: u32) -> &Entry {
        &self.entries[entry as usize]
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use core::num::NonZeroU16;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    /// Two threads, each with an alias, create another one, read, and release both: one thread gets the buffer
    /// back and may write to it, and all alias numbers are free again.
    #[test]
    fn the_last_name_gives_the_place_back_once() {
        loom::model(|| {
            let aliases = Arc::new(Aliases::new(4));
            let bytes = Arc::new(UnsafeCell::new(0_u32));
            let place = BufferAddress::new(NonZeroU16::MIN, 1, 3);
            let (mine, other) = aliases.share(place).expect("four aliases");
            let use_up = move |aliases: &Aliases, bytes: &UnsafeCell<u32>, name: BufferAddress| {
                assert!(aliases.target(name) == place && name.is_shared());
                bytes.with(|_| ());
                let third = aliases.share_again(name);
                let ended = [Some(name), third].into_iter().flatten().filter_map(|name| {
                    bytes.with(|_| ());
                    aliases.end(name).or_else(|| aliases.release(name))
                });
                let ended = ended.count();
                if ended > 0 {
                    bytes.with_mut(|_| ());
                }
                ended
            };
            let (other_names, other_bytes) = (Arc::clone(&aliases), Arc::clone(&bytes));
            let thread = loom::thread::spawn(move || use_up(&other_names, &other_bytes, other));
            let here = use_up(&aliases, &bytes, mine);
            let there = thread.join().expect("the other thread does not panic");
            assert_eq!(here + there, 1);
            assert_eq!((core::iter::from_fn(|| aliases.free.pop()).count(), aliases.places()), (4, 0));
        });
    }
}
