//! Several aliases for the same bytes: numbers for them, and a count of how many are left.
//!
//! A frame is the only name of its bytes, and its number leads to its link in a chain. When bytes are
//! shared, each name needs a link of its own, so it gets a number of its own, behind those of the units.
//! The number that was given first keeps the count and the place of the bytes, until the last name is
//! gone; the others lead to it.

use super::BufferAddress;
use crate::stack::Stack;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Aliases that the shared frames of one region have at a time.
pub const SHARED_FRAMES: u32 = if cfg!(loom) { 4 } else { 4096 };

/// The aliases that one region has for bytes that are shared.
pub(crate) struct Aliases {
    free: Stack,
    entries: Box<[Entry]>,
    /// The number of the first one.
    first: u32,
    /// Places that have several aliases.
    places: AtomicU32,
}

/// Target of an alias, and its reference count.
#[derive(Default)]
struct Entry {
    /// The entry that has the count and the place.
    keeper: AtomicU32,
    /// Aliases that are left.
    count: AtomicU32,
    /// The place of the bytes.
    target: AtomicU64,
}

impl Aliases {
    /// Aliases for a region of `units` units, with numbers behind theirs.
    pub(crate) fn new(units: u32) -> Self {
        let count = units.min(SHARED_FRAMES);
        let free = Stack::new(count);
        (0..count).rev().for_each(|entry| free.push(entry));
        let entries = (0..count).map(|_| Entry::default()).collect();
        Self { free, entries, first: units, places: AtomicU32::new(0) }
    }

    /// Places that have several aliases.
    pub(crate) fn places(&self) -> u32 {
        self.places.load(Ordering::Relaxed)
    }

    /// Number of entries.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Two aliases for a place that the caller has alone and gives up.
    pub(crate) fn share(&self, place: BufferAddress) -> Option<(BufferAddress, BufferAddress)> {
        let keeper = self.free.pop()?;
        let Some(other) = self.free.pop() else {
            self.free.push(keeper);
            return None;
        };
        // Relaxed, all three: the aliases reach another thread by something that synchronises.
        self.entry(keeper).count.store(2, Ordering::Relaxed);
        self.entry(keeper).target.store(place.into_word(), Ordering::Relaxed);
        [keeper, other].iter().for_each(|&name| self.entry(name).keeper.store(keeper, Ordering::Relaxed));
        self.places.fetch_add(1, Ordering::Relaxed);
        Some((self.named(place, keeper), self.named(place, other)))
    }

    /// Adds an alias to a frame that has some already.
    pub(crate) fn share_again(&self, name: BufferAddress) -> Option<BufferAddress> {
        let other = self.free.pop()?;
        let keeper = self.keeper(name);
        self.entry(other).keeper.store(keeper, Ordering::Relaxed);
        // Relaxed: the caller's own name keeps the count above 0.
        self.entry(keeper).count.fetch_add(1, Ordering::Relaxed);
        Some(self.named(name, other))
    }

    /// The place of the bytes.
    pub(crate) fn target(&self, name: BufferAddress) -> BufferAddress {
        let word = self.entry(self.keeper(name)).target.load(Ordering::Relaxed);
        BufferAddress::from_word(word).expect("a name is made with a place")
    }

    /// Ends a name; the place of the bytes when it was the last one.
    pub(crate) fn release(&self, name: BufferAddress) -> Option<BufferAddress> {
        let keeper = self.keeper(name);
        let target = self.target(name);
        let number = name.index() - self.first;
        if number != keeper {
            self.free.push(number);
        }
        // Release pairs with the Acquire of the last one: every user has read the bytes before they
        // are written again.
        let before = self.entry(keeper).count.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a name is released once");
        (before == 1).then(|| {
            self.places.fetch_sub(1, Ordering::Relaxed);
            self.free.push(keeper);
            target
        })
    }

    /// Ends a name that is the last one; nothing changes when it is not.
    pub(crate) fn end(&self, name: BufferAddress) -> Option<BufferAddress> {
        // Relaxed: `release` acquires. Only who has a name makes another one, and the caller has the only
        // one, so the count does not change in between.
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

    /// Two threads have a name each, make another one, read, and release: one of them gets the place
    /// back, and may write; and all numbers are free again.
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
