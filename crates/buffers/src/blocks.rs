//! Blocks of a fragment memory: reference counts, free lists, and blocks without memory.

use crate::bits::Bits;
use crate::mapping::Memory;
use crate::policy::{AllocationPolicy, Reloadable, ReserveOptions};
use crate::reserve::{Marks, Reserve, ReserveCounts};
use crate::stack::{Head, Link};
use crate::sync::{AtomicU32, Ordering};
use core::ops::Range;
use crossbeam_utils::CachePadded;
use rustix::io::Errno;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Size of a unit as a power of two: a cache line, so that fragments never share one.
pub(crate) const UNIT_SHIFT: u32 = 6;
/// Units per single page.
pub(crate) const PAGE_UNITS: u32 = 4096 >> UNIT_SHIFT;
/// Units per large block (D2), unless pages are larger.
pub(crate) const LARGE_UNITS: u32 = 32_768 >> UNIT_SHIFT;

/// Blocks of a fragment memory. Large blocks are numbered first, then single pages.
pub(crate) struct Blocks {
    large: u32,
    all: u32,
    /// Units per large block, as a power of two.
    large_shift: u32,
    lines: Lines,
    ready: CachePadded<Head>,
    /// Stack of blocks that are reused after all others, if early reuse is off.
    last: CachePadded<Head>,
    pages: CachePadded<Head>,
    /// Thresholds for loading and returning large blocks, and counters.
    reserve: Reserve,
    system: Option<System>,
}

/// Reference counts and stack links of the blocks.
struct Lines(Box<[CachePadded<Line>]>);

/// Count and link share a cache line: the thread that releases the last reference pushes the block, and the
/// thread that pops the block sets the count.
struct Line {
    /// References to the block: of the worker that holds it, and of fragments.
    count: AtomicU32,
    /// Next block on the stack.
    link: AtomicU32,
}

/// Memory and reserve of large blocks.
struct System {
    memory: Arc<Memory>,
    reserve_options: ReserveOptions,
    /// Blocks without memory.
    cold: Mutex<Bits>,
}

/// Number of blocks loaded by one system call.
const STEP: u32 = 8;

impl Blocks {
    /// `large` blocks of `large_units` units (a power of two) and `pages` single pages, all free.
    pub(crate) fn new(large: u32, large_units: u32, pages: u32) -> Self {
        let marks = Marks { target: large, reload_below: 0, give_back_above: u32::MAX };
        let blocks = Self::empty(large, large_units, pages, marks);
        (0..large + pages).rev().for_each(|block| blocks.put(block));
        blocks
    }

    /// Blocks in `memory`; `policy` sets the number of large blocks that are loaded. Thresholds count blocks.
    pub(crate) fn over(
        (large, large_units, pages): (u32, u32, u32),
        memory: &Arc<Memory>,
        policy: AllocationPolicy,
        reserve_options: ReserveOptions,
    ) -> Result<Self, Errno> {
        let AllocationPolicy::Growing(marks) = policy else {
            return Ok(Self::new(large, large_units, pages));
        };
        let mut blocks = Self::empty(large, large_units, pages, marks);
        let mut cold = Bits::new(large);
        (0..large).for_each(|block| cold.insert(block));
        let (memory, cold) = (Arc::clone(memory), Mutex::new(cold));
        blocks.system = Some(System { memory, reserve_options, cold });
        let single = blocks.first_unit(large)..blocks.units();
        blocks.system().memory.bring_in(bytes_of(single))?;
        (large..large + pages).rev().for_each(|page| blocks.push(&blocks.pages, page));
        while blocks.ready.level() < marks.target && blocks.load(marks.target - blocks.ready.level())? > 0 {}
        Ok(blocks)
    }

    fn empty(large: u32, large_units: u32, pages: u32, marks: Marks) -> Self {
        let all = large + pages;
        Self {
            large,
            all,
            large_shift: large_units.trailing_zeros(),
            lines: Lines::new(all),
            ready: CachePadded::new(Head::new()),
            last: CachePadded::new(Head::new()),
            pages: CachePadded::new(Head::new()),
            reserve: Reserve::new(marks),
            system: None,
        }
    }

    fn push(&self, stack: &Head, block: u32) {
        stack.push(&self.lines, block, 1);
    }

    fn pop(&self, stack: &Head) -> Option<u32> {
        stack.pop(&self.lines, |_| ()).map(|(block, _)| block)
    }

    /// Number of blocks, single pages included.
    pub(crate) fn count(&self) -> u32 {
        self.all
    }

    /// Number of units of all blocks.
    pub(crate) fn units(&self) -> u32 {
        self.first_unit(self.count())
    }

    /// Block of a unit.
    #[inline]
    pub(crate) fn block_of(&self, unit: u32) -> u32 {
        let pages_from = self.large << self.large_shift;
        if unit < pages_from {
            unit >> self.large_shift
        } else {
            self.large + (unit - pages_from) / PAGE_UNITS
        }
    }

    /// First unit of a block.
    pub(crate) fn first_unit(&self, block: u32) -> u32 {
        let large = block.min(self.large);
        (large << self.large_shift) + (block - large) * PAGE_UNITS
    }

    /// Number of units of a block.
    pub(crate) fn units_of(&self, block: u32) -> u32 {
        if self.is_large(block) { 1 << self.large_shift } else { PAGE_UNITS }
    }

    /// True for a large block.
    pub(crate) fn is_large(&self, block: u32) -> bool {
        block < self.large
    }

    /// Takes a free large block; `None` if there is none.
    pub(crate) fn take_large(&self) -> Option<u32> {
        let block = self.pop(&self.ready);
        self.reserve.look(self.ready.level());
        let Some(system) = &self.system else { return block };
        block.or_else(|| self.take_last(system))
    }

    /// Takes a block when none is ready: first blocks on `last`; then, if there is no reloader (C2 off), a
    /// block without memory, which is loaded on first access.
    #[cold]
    fn take_last(&self, system: &System) -> Option<u32> {
        while let Some(block) = self.pop(&self.last) {
            self.push(&self.ready, block);
        }
        let cold = || {
            if system.reserve_options.is_reloaded {
                return None;
            }
            let block = system.cold().take_first()?;
            self.reserve.count_on_demand(1);
            Some(block)
        };
        self.pop(&self.ready).or_else(cold)
    }

    /// Takes a free single page (D4); `None` if there is none.
    pub(crate) fn take_page(&self) -> Option<u32> {
        self.pop(&self.pages)
    }

    /// Frees a block.
    pub(crate) fn put(&self, block: u32) {
        if !self.is_large(block) {
            return self.push(&self.pages, block);
        }
        match &self.system {
            Some(System { reserve_options: ReserveOptions { is_pooled: false, .. }, .. }) => {
                self.give_back(&[block], &mut || {});
            }
            Some(System { reserve_options: ReserveOptions { is_reused: false, .. }, .. }) => {
                self.push(&self.last, block)
            }
            Some(_) | None => self.push(&self.ready, block),
        }
        self.reserve.look_for_surplus(|| self.ready.level());
    }

    /// Removes all free blocks and returns their number, blocks without memory included. Unlike the level,
    /// this counts a block only after the freeing thread's last access.
    pub(crate) fn take_all(&self) -> u32 {
        let stacks = [&self.ready, &self.last, &self.pages];
        let free = stacks.into_iter().flat_map(|stack| core::iter::from_fn(|| self.pop(stack))).count();
        self.cold() + u32::try_from(free).unwrap_or(u32::MAX)
    }

    /// Number of free large blocks and of free single pages.
    pub(crate) fn free(&self) -> (u32, u32) {
        (self.ready.level() + self.last.level(), self.pages.level())
    }

    /// Number of large blocks without memory.
    pub(crate) fn cold(&self) -> u32 {
        self.system.as_ref().map_or(0, |system| system.cold().count())
    }

    /// Bytes of all blocks except `cold` large ones without memory.
    pub(crate) fn bytes(&self, cold: u32) -> u64 {
        let units = self.units() - self.first_unit(cold.min(self.large));
        u64::from(units) << UNIT_SHIFT
    }

    /// Counters of the reserve.
    pub(crate) fn events(&self) -> ReserveCounts {
        self.reserve.counts(self.ready.level())
    }

    /// Returns the memory of blocks owned by the caller to the system, block by block.
    #[cold]
    fn give_back(&self, blocks: &[u32], meanwhile: &mut dyn FnMut()) {
        let system = self.system();
        for &block in blocks {
            let first = self.first_unit(block);
            // A block that the system does not accept keeps its memory, but counts as cold.
            let _ = system.memory.give_back(bytes_of(first..first + self.units_of(block)));
            system.cold().insert(block);
            meanwhile();
        }
        self.reserve.count_given_back(u32::try_from(blocks.len()).unwrap_or(u32::MAX));
    }

    fn system(&self) -> &System {
        self.system.as_ref().expect("memory is brought in and given back where it can grow")
    }

    /// Sets the reference count of a block that only the caller uses.
    pub(crate) fn set(&self, block: u32, references: u32) {
        // Relaxed: fragments of the block, through which other threads reach the count, are made later and
        // passed on with synchronisation.
        self.lines.0[block as usize].count.store(references, Ordering::Relaxed);
    }

    /// Adds references to a block that the caller holds.
    pub(crate) fn add(&self, block: u32, references: u32) {
        // Relaxed, as in `set`: the caller's own reference keeps the block.
        self.lines.0[block as usize].count.fetch_add(references, Ordering::Relaxed);
    }

    /// True if the caller's `references` are all references to the block.
    pub(crate) fn is_alone(&self, block: u32, references: u32) -> bool {
        // Acquire pairs with the Release in `give_up`: the last users' accesses are done.
        self.lines.0[block as usize].count.load(Ordering::Acquire) == references
    }

    /// Releases references; frees the block with the last ones.
    #[inline]
    pub(crate) fn release(&self, block: u32, references: u32) {
        if self.give_up(block, references) {
            self.put(block);
        }
    }

    /// Releases references; true if they were the last ones, so that the caller owns the block.
    #[inline]
    pub(crate) fn give_up(&self, block: u32, references: u32) -> bool {
        // Release pairs with the Acquire in `is_alone` and with that of the last release here, so that every
        // user's accesses are done before the block is carved again.
        let before = self.lines.0[block as usize].count.fetch_sub(references, Ordering::AcqRel);
        debug_assert!(before >= references, "block {block} is released more often than taken");
        before == references
    }
}

impl Lines {
    fn new(blocks: u32) -> Self {
        assert!(blocks < Head::NUMBERS, "a stack links numbers of 23 bits");
        let line = || Line { count: AtomicU32::new(0), link: AtomicU32::new(0) };
        Self((0..blocks).map(|_| CachePadded::new(line())).collect())
    }
}

impl Link for Lines {
    #[inline(always)]
    fn of(&self, number: u32) -> &AtomicU32 {
        &self.0[number as usize].link
    }
}

impl System {
    /// A thread that panics with the lock leaves consistent sets: bits are changed one by one.
    fn cold(&self) -> MutexGuard<'_, Bits> {
        self.cold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Byte range of `units` in the memory.
fn bytes_of(units: Range<u32>) -> Range<usize> {
    (units.start as usize) << UNIT_SHIFT..(units.end as usize) << UNIT_SHIFT
}

impl Reloadable for Blocks {
    fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    fn level(&self) -> u32 {
        self.ready.level()
    }

    fn load(&self, wanted: u32) -> Result<u32, Errno> {
        let system = self.system();
        let mut cold = system.cold();
        let Some((first, count)) = cold.first_run(wanted.clamp(1, STEP)) else { return Ok(0) };
        let blocks = first..first + count;
        blocks.clone().for_each(|block| cold.remove(block));
        drop(cold);
        // The blocks are in no set, so no other thread uses them during the system call.
        let units = self.first_unit(blocks.start)..self.first_unit(blocks.end);
        if let Err(error) = system.memory.bring_in(bytes_of(units)) {
            let mut cold = system.cold();
            blocks.for_each(|block| cold.insert(block));
            return Err(error);
        }
        blocks.rev().for_each(|block| self.push(&self.ready, block));
        Ok(count)
    }

    fn unload(&self, surplus: u32, meanwhile: &mut dyn FnMut()) -> u32 {
        let blocks = core::iter::from_fn(|| self.pop(&self.ready)).take(surplus as usize).collect::<Vec<_>>();
        self.give_back(&blocks, meanwhile);
        u32::try_from(blocks.len()).unwrap_or(u32::MAX)
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
