//! Magazine depot: free slots between workers, exchanged as whole magazines without lock or allocation.
//!
//! A magazine is an index and [`MAGAZINE`] words of preallocated memory. It is on one of two stacks, of full
//! and of empty magazines, or is owned by the thread that fills or empties it. So an exchange is two stack
//! operations for any number of slots.

use crate::prefetch::{prefetch, prefetch_to_write};
use crate::stack::{HEAVIEST, Head, Links};
use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// Maximum number of slots per magazine.
pub const MAGAZINE: usize = if cfg!(loom) { 2 } else { 256 };
const _: () = assert!(MAGAZINE <= HEAVIEST as usize);
/// Additional magazines: for threads in the middle of an exchange, and for partly filled magazines of pools
/// that end.
const SPARE: u32 = if cfg!(loom) { 1 } else { 64 };

const _: () = assert!(MAGAZINE.is_multiple_of(2));
/// Number of words per cache line.
const LINE: usize = 8;

/// Free slots of one region that are in no pool.
pub(crate) struct MagazineDepot {
    /// Both heads in one cache line: an exchange uses both.
    heads: CachePadded<Heads>,
    links: Links,
    /// Slots of each magazine, two per word. Only the owner of a magazine accesses them.
    slots: Box<[AtomicU64]>,
    magazine: usize,
    /// Number of words of a magazine: two slots each, whole cache lines.
    words: usize,
}

struct Heads {
    full: Head,
    empty: Head,
    /// Stack of magazines that are used after all others, if early reuse is off.
    last: Head,
}

impl MagazineDepot {
    /// An empty depot with room for `slots` slots.
    pub(crate) fn new(slots: u32) -> Self {
        let magazine = magazine_for(slots);
        let words = usize::from(magazine).div_ceil(2).next_multiple_of(LINE);
        let magazines = slots.div_ceil(u32::from(magazine)) + SPARE;
        let depot = Self {
            heads: CachePadded::new(Heads { full: Head::new(), empty: Head::new(), last: Head::new() }),
            links: Links::new(magazines),
            slots: (0..magazines as usize * words).map(|_| AtomicU64::new(0)).collect(),
            magazine: usize::from(magazine),
            words,
        };
        (0..magazines).rev().for_each(|magazine| depot.heads.empty.push(&depot.links, magazine, 0));
        depot
    }

    /// Number of slots of a full magazine: half of a pool's cache.
    pub(crate) fn magazine(&self) -> usize {
        self.magazine
    }

    /// Number of slots in the depot; exact while no thread exchanges.
    #[inline]
    pub(crate) fn level(&self) -> u32 {
        self.heads.full.level() + self.heads.last.level()
    }

    /// Stores the first slots of `slots` as a magazine; `index` returns a slot's number. Returns the number
    /// of slots stored: 0 if `slots` is empty, or if no magazine is free because too many are partly filled.
    #[inline]
    pub(crate) fn put<T>(&self, slots: &[T], index: impl Fn(&T) -> u32) -> usize {
        self.put_on(&self.heads.full, slots, index)
    }

    /// As `put`, but the slots are reused after all others.
    pub(crate) fn put_last<T>(&self, slots: &[T], index: impl Fn(&T) -> u32) -> usize {
        self.put_on(&self.heads.last, slots, index)
    }

    /// Makes the magazines on `last` available.
    pub(crate) fn turn_over(&self) {
        while let Some((magazine, count)) = self.heads.last.pop(&self.links, |_| ()) {
            self.heads.full.push(&self.links, magazine, count);
        }
    }

    #[inline]
    fn put_on<T>(&self, head: &Head, slots: &[T], index: impl Fn(&T) -> u32) -> usize {
        if slots.is_empty() {
            return 0;
        }
        let soon = |magazine| {
            self.cells(magazine)[..self.magazine.div_ceil(2)].chunks(LINE).for_each(prefetch_to_write)
        };
        let Some((magazine, _)) = self.heads.empty.pop(&self.links, soon) else { return 0 };
        let count = slots.len().min(self.magazine);
        let (pairs, rest) = slots[..count].as_chunks::<2>();
        let words =
            pairs.iter().map(|[first, second]| u64::from(index(second)) << 32 | u64::from(index(first)));
        let words = words.chain(rest.iter().map(|last| u64::from(index(last))));
        // Relaxed, as for the load in `get`: the stacks order the accesses.
        let cells = self.cells(magazine).iter();
        cells.zip(words).for_each(|(cell, word)| cell.store(word, Ordering::Relaxed));
        head.push(&self.links, magazine, u16::try_from(count).unwrap_or(HEAVIEST));
        count
    }

    /// Takes a magazine and stores the results of `make` for its slots at the front of `target`. Returns
    /// their number.
    #[inline]
    pub(crate) fn get<T>(&self, target: &mut [T; MAGAZINE], make: impl Fn(u32) -> T) -> usize {
        let soon =
            |magazine| self.cells(magazine)[..self.magazine.div_ceil(2)].chunks(LINE).for_each(prefetch);
        let Some((magazine, count)) = self.heads.full.pop(&self.links, soon) else { return 0 };
        let count = usize::from(count).min(MAGAZINE);
        // If the number of slots is odd, the last word has an unused upper half.
        let pairs = target.as_chunks_mut::<2>().0.iter_mut();
        for (pair, cell) in pairs.zip(&self.cells(magazine)[..count.div_ceil(2)]) {
            let word = cell.load(Ordering::Relaxed);
            *pair = [make(lower(word)), make(lower(word >> 32))];
        }
        self.heads.empty.push(&self.links, magazine, 0);
        count
    }

    /// Prefetches for a magazine that will be taken soon (`is_next` false: the stack's head) or next (its
    /// memory).
    #[inline]
    pub(crate) fn expect_get(&self, is_next: bool) {
        self.expect(&self.heads.full, is_next, prefetch);
    }

    /// Prefetches for a magazine that will be put.
    #[inline]
    pub(crate) fn expect_put(&self, is_next: bool) {
        self.expect(&self.heads.empty, is_next, prefetch_to_write);
    }

    #[inline(always)]
    fn expect(&self, head: &Head, is_next: bool, cells: impl Fn(&[AtomicU64])) {
        if !is_next {
            return prefetch_to_write(head);
        }
        if let Some(magazine) = head.likely_next(&self.links) {
            self.cells(magazine)[..self.magazine.div_ceil(2)].chunks(LINE).for_each(cells);
        }
    }

    /// Empties the depot and returns the number of slots. Unlike the level, this counts a magazine only after
    /// the putting thread's last access.
    pub(crate) fn take_all(&self) -> u32 {
        self.turn_over();
        let all = core::iter::from_fn(|| self.heads.full.pop(&self.links, |_| ()));
        all.map(|(_, count)| u32::from(count)).sum()
    }

    #[inline]
    fn cells(&self, magazine: u32) -> &[AtomicU64] {
        let start = magazine as usize * self.words;
        &self.slots[start..start + self.words]
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half of a word")]
fn lower(word: u64) -> u32 {
    word as u32
}

/// Small regions have small magazines, so that the caches of a few pools do not hold all slots.
fn magazine_for(slots: u32) -> u16 {
    u16::try_from(slots / 32).unwrap_or(u16::MAX).clamp(8.min(MOST), MOST)
}

#[expect(clippy::cast_possible_truncation, reason = "checked below")]
const MOST: u16 = MAGAZINE as u16;
const _: () = assert!(MOST as usize == MAGAZINE);

impl core::fmt::Debug for MagazineDepot {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("MagazineDepot").field("level", &self.level()).finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// Two workers exchange magazines; no slot is lost, none has two owners.
    #[test]
    fn a_slot_is_exchanged_and_not_lost() {
        loom::model(|| {
            let depot = Arc::new(MagazineDepot::new(4));
            let put = |depot: &MagazineDepot, slots: &[u32]| depot.put(slots, |&slot| slot);
            let get = |depot: &MagazineDepot, slots: &mut [u32; MAGAZINE]| depot.get(slots, |slot| slot);
            assert_eq!([put(&depot, &[0, 1]), put(&depot, &[2, 3])], [2, 2]);
            let other = Arc::clone(&depot);
            let thread = loom::thread::spawn(move || {
                let mut slots = [0; MAGAZINE];
                let count = get(&other, &mut slots);
                assert_eq!(put(&other, &slots[..count]), count);
            });
            let mut slots = [0; MAGAZINE];
            let count = get(&depot, &mut slots);
            let mut all = slots[..count].to_vec();
            thread.join().expect("the other thread does not panic");
            loop {
                let count = get(&depot, &mut slots);
                if count == 0 {
                    break;
                }
                all.extend(&slots[..count]);
            }
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3]);
        });
    }
}
