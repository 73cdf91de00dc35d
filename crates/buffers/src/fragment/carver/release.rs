//! Release of fragments, grouped by block.

use super::{Carver, Pending};
use crate::blocks::Blocks;

impl Pending {
    pub(super) fn new(is_biased: bool) -> Self {
        Self { block: 0, first: 0, units: 0, count: 0, is_biased }
    }

    /// True if the unit belongs to the block.
    #[inline(always)]
    fn has(&self, unit: u32) -> bool {
        unit.wrapping_sub(self.first) < self.units
    }

    /// Starts to collect for the block of a unit.
    fn turn_to(&mut self, unit: u32, blocks: &Blocks) {
        self.block = blocks.block_of(unit);
        self.first = blocks.first_unit(self.block);
        self.units = if self.is_biased { blocks.units_of(self.block) } else { 0 };
    }
}

impl Carver {
    /// Releases the fragment that begins with `unit`. Counts are updated by the next [`Carver::settle`].
    #[inline]
    pub(crate) fn release(&mut self, unit: u32) {
        if self.pending.has(unit) {
            self.pending.count += 1;
        } else {
            self.release_of_next(unit);
        }
    }

    #[inline(never)]
    fn release_of_next(&mut self, unit: u32) {
        self.settle();
        self.pending.turn_to(unit, &self.blocks);
        self.pending.count = 1;
    }

    /// Releases the fragments that begin with the units of `all`, grouped by block.
    #[inline]
    pub(crate) fn release_run<T>(&mut self, mut all: &[T], unit: impl Fn(&T) -> u32) {
        self.settle();
        while let Some(first) = all.first() {
            self.pending.turn_to(unit(first), &self.blocks);
            let Pending { first, units, .. } = self.pending;
            let rest = all[1..].iter().take_while(|of| unit(of).wrapping_sub(first) < units);
            let run = 1 + rest.count();
            // A block has fewer fragments than units.
            self.pending.count = u32::try_from(run).unwrap_or(u32::MAX);
            self.settle();
            all = &all[run..];
        }
    }

    /// Adds the collected references to the block's count: the private one for a block that this worker
    /// holds, otherwise the shared one.
    #[inline]
    pub(crate) fn settle(&mut self) {
        let count = core::mem::take(&mut self.pending.count);
        if count == 0 {
            return;
        }
        let block = self.pending.block;
        let mine = &mut self.mine[block as usize];
        if *mine == 0 {
            return self.blocks.release(block, count);
        }
        *mine += count;
        if *mine == self.bias {
            self.parked.tell_alone(block);
        }
    }
}
