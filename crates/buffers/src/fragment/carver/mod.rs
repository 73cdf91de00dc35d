//! Carver: one worker's allocator, which carves blocks from their end downwards without shared accesses.

#[cfg(all(test, loom))]
mod loom_tests;
mod parked;
mod release;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::blocks::Blocks;
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of references that a worker adds to a block in advance (D3). More than a block has units, so that
/// the private count of a held block never reaches 0.
const BIAS: u32 = 2048;
const _: () = assert!(BIAS as usize > crate::region::LARGEST_PAGE >> crate::blocks::UNIT_SHIFT);

/// Options of the carver; each technique can be turned off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carving {
    /// True if [`BIAS`] references are added in advance (D3).
    pub(crate) is_biased: bool,
    /// True if a block is carved again as soon as all its fragments are released (D1).
    pub(crate) resets: bool,
    /// Maximum number of blocks held at a time (D6).
    pub(crate) held: usize,
    /// Number of units whose multiples no fragment crosses: a power of two (E7).
    pub(crate) never_cross: u32,
}

/// Private state of a worker for its blocks.
#[derive(Debug)]
pub(crate) struct Carver {
    blocks: Arc<Blocks>,
    open: Open,
    /// Private references to each block; 0 for blocks that the worker does not hold. References of fragments
    /// carved from the open block since its start are still included. The additional last entry belongs to no
    /// block.
    mine: Box<[u32]>,
    bias: u32,
    /// Private count at which the open block restarts; [`NEVER`] if that is off.
    reset_at: u32,
    never_cross: u32,
    parked: Parked,
    pending: Pending,
}

/// The block that is being carved.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Index of the block; the number of blocks if there is none.
    at: u32,
    /// First unit of the block.
    first: u32,
    /// Number of units of the block.
    whole: u32,
    /// Number of units not carved yet, from the block's start.
    left: u32,
    /// Number of fragments carved since the block's last start, with a bias: kept here, because a count that
    /// changes with every fragment is read back faster at a fixed address.
    carved: u32,
}

/// Blocks of one worker that wait for the release of their fragments, oldest first.
#[derive(Debug)]
struct Parked {
    blocks: VecDeque<u32>,
    /// Maximum number of parked blocks.
    most: usize,
    /// Blocks found unused by other threads, latest last; a scan of all blocks would cost more than it saves.
    alone: Vec<u32>,
}

/// Block whose released references are being collected.
#[derive(Debug)]
struct Pending {
    block: u32,
    /// First unit and number of units of the block; 0 units without a bias, so that references are released
    /// one by one.
    first: u32,
    units: u32,
    /// Number of collected references.
    count: u32,
    is_biased: bool,
}

/// Private count of the entry for no block: never a valid count.
const NO_BLOCK: u32 = u32::MAX;
/// Restart count for blocks that never restart.
const NEVER: u32 = 1 << 31;

impl Carver {
    pub(crate) fn new(blocks: Arc<Blocks>, carving: Carving) -> Self {
        let count = blocks.count();
        let mut mine = vec![0; count as usize + 1].into_boxed_slice();
        mine[count as usize] = NO_BLOCK;
        let bias = if carving.is_biased { BIAS } else { 0 };
        Self {
            blocks,
            open: Open::none(count),
            mine,
            bias,
            reset_at: if carving.resets { bias } else { NEVER },
            never_cross: carving.never_cross,
            parked: Parked::new(carving.held.saturating_sub(1)),
            pending: Pending::new(carving.is_biased),
        }
    }

    /// Carves `units` units, at least one; returns the first of them, or `None` if no block has room.
    #[inline]
    pub(crate) fn take(&mut self, units: u32) -> Option<u32> {
        if units > self.never_cross {
            return None;
        }
        self.carve(units).or_else(|| self.take_from_next(units))
    }

    #[inline(always)]
    fn carve(&mut self, units: u32) -> Option<u32> {
        // Without a bias, only the shared count shows whether all fragments are released.
        if self.knows_alone() && (self.bias > 0 || self.blocks.is_alone(self.open.at, 1)) {
            self.start_again();
        }
        let left = self.open.left;
        let mut start = left.checked_sub(units)?;
        if (start ^ (left - 1)) >= self.never_cross {
            // Below the boundary that it would cross; blocks start at a multiple.
            start = (left & !(self.never_cross - 1)).checked_sub(units)?;
        }
        match self.bias {
            0 => self.blocks.add(self.open.at, 1),
            _ => self.open.carved += 1,
        }
        self.open.left = start;
        Some(self.open.first + start)
    }

    /// True if all fragments of the open block are released, by the private count.
    #[inline(always)]
    fn knows_alone(&self) -> bool {
        self.mine[self.open.at as usize] == self.reset_at + self.open.carved
    }

    /// Restarts the open block at its end (D1).
    #[inline(always)]
    fn start_again(&mut self) {
        self.mine[self.open.at as usize] -= self.open.carved;
        (self.open.left, self.open.carved) = (self.open.whole, 0);
    }

    /// Carves up to `wanted` fragments of `units` units; returns their number. `take` gets each run: the
    /// first unit of its first fragment, and the number of fragments, each `units` below the one before.
    #[inline]
    pub(crate) fn take_run(&mut self, units: u32, wanted: usize, mut take: impl FnMut(u32, u32)) -> usize {
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let mut count = 0;
        while count < wanted {
            let run = self.carve_run(units, wanted - count, &mut take);
            // At the end of a block, one fragment is taken from the next block.
            if run == 0 && self.take(units).map(|first| take(first, 1)).is_none() {
                break;
            }
            count += run.max(1);
        }
        count as usize
    }

    /// Carves a run from the open block, like [`Carver::carve`]; 0 without a bias, when each fragment is
    /// counted.
    #[inline(always)]
    fn carve_run(&mut self, units: u32, most: u32, take: &mut impl FnMut(u32, u32)) -> u32 {
        if self.bias == 0 || units > self.never_cross {
            return 0;
        }
        if self.knows_alone() {
            self.start_again();
        }
        let (mut left, mut count) = (self.open.left, 0);
        while count < most && left >= units {
            let line = self.line_below(left, units);
            let fitting = if units.is_power_of_two() {
                (left - line) >> units.trailing_zeros()
            } else {
                (left - line) / units
            };
            let run = fitting.min(most - count);
            if run == 0 {
                left = line;
                continue;
            }
            take(self.open.first + left - units, run);
            left -= run * units;
            count += run;
        }
        self.open.left = left;
        self.open.carved += count;
        count
    }

    /// Boundary below `left` that fragments of `units` units must not cross: the block's start if fragments
    /// of that size cannot cross a boundary.
    #[inline(always)]
    fn line_below(&self, left: u32, units: u32) -> u32 {
        if units.is_power_of_two() && left & (units - 1) == 0 {
            return 0;
        }
        (left - 1) & !(self.never_cross - 1)
    }

    #[cold]
    fn take_from_next(&mut self, units: u32) -> Option<u32> {
        self.settle();
        // A page is shorter than a block, so the first free block may be too short.
        self.next_block(units).then(|| self.carve(units))?
    }

    /// Opens a block with room: a held block whose fragments are all released, a free block, or a page.
    fn next_block(&mut self, units: u32) -> bool {
        self.park();
        let alone = self.known_alone().or_else(|| self.oldest_alone());
        let page = || (units <= crate::blocks::PAGE_UNITS).then(|| self.blocks.take_page())?;
        let fresh = || self.blocks.take_large().or_else(page);
        // As a last resort, all held blocks are examined.
        let Some(block) = alone.or_else(fresh).or_else(|| self.any_alone()) else { return false };
        self.blocks.set(block, self.bias + 1);
        self.mine[block as usize] = self.bias;
        self.open = Open::new(&self.blocks, block);
        units <= self.open.whole
    }

    /// Releases all blocks.
    pub(crate) fn give_back(&mut self) {
        self.settle();
        self.park();
        while let Some(block) = self.parked.take_youngest() {
            let mine = core::mem::take(&mut self.mine[block as usize]);
            self.blocks.release(block, mine + 1);
        }
    }

    fn has_open(&self) -> bool {
        self.open.at < self.blocks.count()
    }

    /// Number of blocks held.
    pub(crate) fn held(&self) -> usize {
        self.parked.len() + usize::from(self.has_open())
    }
}

impl Open {
    fn new(blocks: &Blocks, at: u32) -> Self {
        let whole = blocks.units_of(at);
        Self { at, first: blocks.first_unit(at), whole, left: whole, carved: 0 }
    }

    fn none(count: u32) -> Self {
        Self { at: count, first: 0, whole: 0, left: 0, carved: 0 }
    }
}
