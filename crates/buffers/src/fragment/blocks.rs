//! Blocks of a memory of fragments: who still uses them, and which are free.

use crate::stack::Stack;
use crate::sync::{AtomicU32, Ordering};
use crossbeam_utils::CachePadded;

/// The size of a unit as a power of two: a line of the cache, so that two fragments never share one.
pub(crate) const UNIT_SHIFT: u32 = 6;
/// Units of a single page.
pub(crate) const PAGE_UNITS: u32 = 4096 >> UNIT_SHIFT;
/// Units of a large block (D2).
pub(crate) const LARGE_UNITS: u32 = 32_768 >> UNIT_SHIFT;

/// Counts and stocks of blocks. The large ones come first, then single pages.
pub(crate) struct Blocks {
    large: u32,
    all: u32,
    /// Units of a large block, as a power of two.
    large_shift: u32,
    /// References to each block: of the worker that holds it, and of fragments.
    counts: Box<[CachePadded<AtomicU32>]>,
    ready: Stack,
    pages: Stack,
}

impl Blocks {
    /// `large` blocks of `large_units` units (a power of two) and `pages` single pages, all of them free.
    pub(crate) fn new(large: u32, large_units: u32, pages: u32) -> Self {
        let all = large + pages;
        let blocks = Self {
            large,
            all,
            large_shift: large_units.trailing_zeros(),
            counts: (0..all).map(|_| CachePadded::new(AtomicU32::new(0))).collect(),
            ready: Stack::new(all),
            pages: Stack::new(all),
        };
        (0..all).rev().for_each(|block| blocks.put(block));
        blocks
    }

    /// Number of blocks, single pages included.
    pub(crate) fn count(&self) -> u32 {
        self.all
    }

    /// Units of all blocks.
    pub(crate) fn units(&self) -> u32 {
        self.first_unit(self.count())
    }

    /// The block that a unit belongs to.
    #[inline]
    pub(crate) fn block_of(&self, unit: u32) -> u32 {
        let pages_from = self.large << self.large_shift;
        if unit < pages_from {
            unit >> self.large_shift
        } else {
            self.large + (unit - pages_from) / PAGE_UNITS
        }
    }

    /// The first unit of a block.
    pub(crate) fn first_unit(&self, block: u32) -> u32 {
        let large = block.min(self.large);
        (large << self.large_shift) + (block - large) * PAGE_UNITS
    }

    /// Units of a block.
    pub(crate) fn units_of(&self, block: u32) -> u32 {
        if self.is_large(block) { 1 << self.large_shift } else { PAGE_UNITS }
    }

    /// Whether it is one of the large blocks.
    pub(crate) fn is_large(&self, block: u32) -> bool {
        block < self.large
    }

    /// Takes a free large block.
    pub(crate) fn take_large(&self) -> Option<u32> {
        self.ready.pop()
    }

    /// Takes a free single page (D4).
    pub(crate) fn take_page(&self) -> Option<u32> {
        self.pages.pop()
    }

    /// Puts a block that nobody uses to the free ones.
    pub(crate) fn put(&self, block: u32) {
        if self.is_large(block) { &self.ready } else { &self.pages }.push(block);
    }

    /// Takes every free block; how many there were. Unlike a level, this counts a block only when
    /// whoever freed it has done its last access here.
    pub(crate) fn take_all(&self) -> u32 {
        let mut count = 0;
        while self.take_large().or_else(|| self.take_page()).is_some() {
            count += 1;
        }
        count
    }

    /// Free blocks: large ones, and single pages.
    pub(crate) fn free(&self) -> (u32, u32) {
        (self.ready.level(), self.pages.level())
    }

    /// Sets the references to a block that the caller alone has.
    pub(crate) fn set(&self, block: u32, references: u32) {
        // Relaxed: fragments of the block, through which others reach the count, are made later and
        // travel by something that synchronises.
        self.counts[block as usize].store(references, Ordering::Relaxed);
    }

    /// Adds references to a block that the caller holds.
    pub(crate) fn add(&self, block: u32, references: u32) {
        // Relaxed, as for `set`: the caller's own reference keeps the block.
        self.counts[block as usize].fetch_add(references, Ordering::Relaxed);
    }

    /// Whether nobody but the holder of `references` has any.
    pub(crate) fn is_alone(&self, block: u32, references: u32) -> bool {
        // Acquire pairs with the Release in `give_up`: what the last users did to the bytes is done.
        self.counts[block as usize].load(Ordering::Acquire) == references
    }

    /// Gives references up. Who gives up the last ones puts the block to the free ones.
    #[inline]
    pub(crate) fn release(&self, block: u32, references: u32) {
        if self.give_up(block, references) {
            self.put(block);
        }
    }

    /// Gives references up; whether they were the last ones, so that the caller has the block alone.
    #[inline]
    pub(crate) fn give_up(&self, block: u32, references: u32) -> bool {
        // Release pairs with the Acquire in `is_alone` and with that of the last one here, so that
        // every user is done with the bytes before they are carved again.
        let before = self.counts[block as usize].fetch_sub(references, Ordering::AcqRel);
        debug_assert!(before >= references, "block {block} is released more often than taken");
        before == references
    }
}

impl core::fmt::Debug for Blocks {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (large, pages) = self.free();
        formatter
            .debug_struct("Blocks")
            .field("large", &self.large)
            .field("free_large", &large)
            .field("free_pages", &pages)
            .finish_non_exhaustive()
    }
}
