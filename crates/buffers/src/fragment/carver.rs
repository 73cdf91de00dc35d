//! One worker's end: carves blocks from their end downwards, without any shared access on the way.

use super::blocks::Blocks;
use std::sync::Arc;

/// References that a worker gives itself with a block (D3). More than a block has units, so that
/// the private count of a block that is held never reaches 0.
const BIAS: u32 = 1024;
const _: () = assert!(BIAS > super::blocks::LARGE_UNITS);

/// How blocks are carved; each technique can be turned off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carving {
    /// References taken at once (D3): [`BIAS`], or none.
    pub(crate) is_biased: bool,
    /// Whether a block starts again as soon as nobody uses it (D1).
    pub(crate) resets: bool,
    /// Blocks held at a time (D6).
    pub(crate) held: usize,
    /// Units whose multiples no fragment crosses: a power of two (E7).
    pub(crate) never_cross: u32,
}

/// What a worker knows of the blocks that it holds.
#[derive(Debug)]
pub(crate) struct Carver {
    blocks: Arc<Blocks>,
    /// The block that is carved; one behind the last when there is none.
    at: u32,
    /// Its first unit.
    first: u32,
    /// Its units.
    whole: u32,
    /// Its units that are not carved yet, from its start.
    left: u32,
    /// References that this worker has to each block; 0 for those that it does not hold. One more
    /// entry stands for no block.
    mine: Box<[u32]>,
    bias: u32,
    /// The private count at which a block starts again; of no block when that is off.
    reset_at: u32,
    never_cross: u32,
    /// Blocks that were carved to their start and may be alone some time.
    parked: Vec<u32>,
    most_parked: usize,
    /// The block whose references are given up next, and how many.
    pending: (u32, u32),
    /// References given up at once at most, so that a block is not kept from its next user for
    /// long; without a bias, one by one.
    most_pending: u32,
}

/// The private count of no block: never a bias.
const NO_BLOCK: u32 = u32::MAX;
/// References given up at once at most.
const PENDING: u32 = 64;

impl Carver {
    pub(crate) fn new(blocks: Arc<Blocks>, carving: Carving) -> Self {
        let count = blocks.count();
        let mut mine = vec![0; count as usize + 1].into_boxed_slice();
        mine[count as usize] = NO_BLOCK;
        let bias = if carving.is_biased { BIAS } else { 0 };
        let most_parked = carving.held.saturating_sub(1);
        Self {
            blocks,
            at: count,
            first: 0,
            whole: 0,
            left: 0,
            mine,
            bias,
            reset_at: if carving.resets { bias } else { NO_BLOCK - 1 },
            never_cross: carving.never_cross,
            parked: Vec::with_capacity(most_parked + 1),
            most_parked,
            pending: (count, 0),
            most_pending: if carving.is_biased { PENDING } else { 1 },
        }
    }

    /// Carves `units` units, at least one, and returns the first of them.
    #[inline]
    pub(crate) fn take(&mut self, units: u32) -> Option<u32> {
        if units > self.never_cross {
            return None;
        }
        self.carve(units).or_else(|| self.take_from_next(units))
    }

    #[inline(always)]
    fn carve(&mut self, units: u32) -> Option<u32> {
        let mine = &mut self.mine[self.at as usize];
        // Without a bias, only the shared count tells whether the block is alone.
        if *mine == self.reset_at && (self.bias > 0 || self.blocks.is_alone(self.at, 1)) {
            self.left = self.whole;
        }
        let start = self.start_below(self.left, units)?;
        let mine = &mut self.mine[self.at as usize];
        match mine.checked_sub(1) {
            Some(fewer) => *mine = fewer,
            None => self.blocks.add(self.at, 1),
        }
        self.left = start;
        Some(self.first + start)
    }

    /// Where a piece of `units` units begins that ends at `left` or, not to cross anything, below it.
    #[inline(always)]
    fn start_below(&self, left: u32, units: u32) -> Option<u32> {
        let start = left.checked_sub(units)?;
        if (start ^ (left - 1)) < self.never_cross {
            return Some(start);
        }
        // Below the last line that it would cross; blocks start at a multiple.
        (left & !(self.never_cross - 1)).checked_sub(units)
    }

    /// Carves up to `wanted` pieces of `units` units; how many.
    #[inline]
    pub(crate) fn take_run(&mut self, units: u32, wanted: usize, mut take: impl FnMut(u32)) -> usize {
        let mut count = 0;
        while count < wanted {
            let run = self.carve_run(units, wanted - count, &mut take);
            // At the end of a block, one goes on to the next.
            if run == 0 && self.take(units).map(&mut take).is_none() {
                break;
            }
            count += run.max(1);
        }
        count
    }

    /// Carves pieces out of the block that is open, as [`Carver::carve`] does one; none without a bias,
    /// when each piece counts.
    #[inline(always)]
    fn carve_run(&mut self, units: u32, most: usize, take: &mut impl FnMut(u32)) -> usize {
        if self.bias == 0 || units > self.never_cross {
            return 0;
        }
        let mine = self.mine[self.at as usize];
        let mut left = if mine == self.reset_at { self.whole } else { self.left };
        let (mut count, most) = (0, u32::try_from(most).unwrap_or(u32::MAX));
        while count < most
            && let Some(start) = self.start_below(left, units)
        {
            left = start;
            count += 1;
            take(self.first + start);
        }
        self.left = left;
        self.mine[self.at as usize] = mine - count;
        count as usize
    }

    /// Takes back fragments that begin with `units`: those of one block together.
    #[inline]
    pub(crate) fn release_run(&mut self, units: impl Iterator<Item = u32>) {
        let (mut block, mut count) = (self.blocks.count(), 0);
        for unit in units {
            let of = self.blocks.block_of(unit);
            if of != block {
                self.release_many(block, count);
                (block, count) = (of, 0);
            }
            count += 1;
        }
        self.release_many(block, count);
    }

    #[inline]
    fn release_many(&mut self, block: u32, count: u32) {
        let mine = &mut self.mine[block as usize];
        if count == 0 {
            return;
        }
        if *mine > 0 {
            *mine += count;
            return;
        }
        if self.bias == 0 {
            return (0..count).for_each(|_| self.release_elsewhere(block));
        }
        if self.pending.0 != block || self.pending.1 + count > self.most_pending {
            self.settle();
            self.pending.0 = block;
        }
        self.pending.1 += count;
    }

    /// Takes back a fragment that begins with `unit`.
    #[inline]
    pub(crate) fn release(&mut self, unit: u32) {
        let block = self.blocks.block_of(unit);
        let mine = &mut self.mine[block as usize];
        if *mine > 0 {
            *mine += 1;
        } else {
            self.release_elsewhere(block);
        }
    }

    #[inline]
    fn release_elsewhere(&mut self, block: u32) {
        if self.pending.0 != block || self.pending.1 >= self.most_pending {
            self.settle();
            self.pending.0 = block;
        }
        self.pending.1 += 1;
    }

    /// Gives up what [`Carver::release`] has put aside: once for a run of fragments of one block.
    #[inline]
    pub(crate) fn settle(&mut self) {
        let (block, references) = self.pending;
        if references > 0 {
            self.pending.1 = 0;
            self.blocks.release(block, references);
        }
    }

    #[cold]
    fn take_from_next(&mut self, units: u32) -> Option<u32> {
        self.settle();
        // A page is shorter than a block, so the first block that is free need not be long enough.
        self.next_block(units).then(|| self.carve(units))?
    }

    /// Goes on to a block with room: one of those held that is alone, a fresh one, or a page.
    fn next_block(&mut self, units: u32) -> bool {
        if self.is_block(self.at) {
            self.parked.push(self.at);
            self.close();
        }
        let alone = self.known_alone().or_else(|| self.oldest_alone());
        let page = || (units <= super::blocks::PAGE_UNITS).then(|| self.blocks.take_page())?;
        let fresh = || self.blocks.take_large().or_else(page);
        // Before there is none, all are looked at.
        let Some(block) = alone.or_else(fresh).or_else(|| self.any_alone()) else { return false };
        self.blocks.set(block, self.bias + 1);
        self.mine[block as usize] = self.bias;
        self.open(block);
        units <= self.whole
    }

    /// Takes the youngest parked block that this worker alone has used: known without a look at a line
    /// that others write, and the warmest one in the cache.
    fn known_alone(&mut self) -> Option<u32> {
        let knows = |&block: &u32| self.bias > 0 && self.mine[block as usize] == self.bias;
        let place = self.parked.iter().rposition(knows)?;
        Some(self.parked.remove(place))
    }

    /// Takes the oldest parked block if nobody else uses it; lets go of it when it has to make room.
    /// Pages only stand in, so they never stay.
    fn oldest_alone(&mut self) -> Option<u32> {
        let oldest = *self.parked.first()?;
        let references = self.mine[oldest as usize] + 1;
        let stays = self.parked.len() <= self.most_parked && self.blocks.is_large(oldest);
        if stays {
            return self.blocks.is_alone(oldest, references).then(|| self.parked.remove(0));
        }
        self.parked.remove(0);
        self.mine[oldest as usize] = 0;
        self.blocks.give_up(oldest, references).then_some(oldest)
    }

    /// Takes whichever parked block nobody else uses.
    fn any_alone(&mut self) -> Option<u32> {
        let is_alone = |&block: &u32| self.blocks.is_alone(block, self.mine[block as usize] + 1);
        let place = self.parked.iter().position(is_alone)?;
        Some(self.parked.remove(place))
    }

    fn open(&mut self, block: u32) {
        self.at = block;
        self.first = self.blocks.first_unit(block);
        self.whole = self.blocks.units_of(block);
        self.left = self.whole;
    }

    fn close(&mut self) {
        self.at = self.blocks.count();
        (self.left, self.whole) = (0, 0);
    }

    /// Lets go of all blocks.
    pub(crate) fn give_back(&mut self) {
        self.settle();
        if self.is_block(self.at) {
            self.parked.push(self.at);
            self.close();
        }
        while let Some(block) = self.parked.pop() {
            let mine = core::mem::take(&mut self.mine[block as usize]);
            self.blocks.release(block, mine + 1);
        }
    }

    fn is_block(&self, block: u32) -> bool {
        block < self.blocks.count()
    }

    /// Blocks that are held.
    pub(crate) fn held(&self) -> usize {
        self.parked.len() + usize::from(self.is_block(self.at))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::fragment::blocks::{LARGE_UNITS, PAGE_UNITS};

    const ON: Carving = Carving { is_biased: true, resets: true, held: 8, never_cross: PAGE_UNITS };

    fn blocks(large: u32, pages: u32) -> Arc<Blocks> {
        Arc::new(Blocks::new(large, LARGE_UNITS, pages))
    }

    /// D3: whatever its own worker does with a block, the shared count stands still.
    #[test]
    fn the_shared_count_is_touched_once_a_block() {
        let blocks = blocks(1, 0);
        let mut carver = Carver::new(Arc::clone(&blocks), ON);
        let mut live = vec![carver.take(4).expect("a free block")];
        for round in 0..1000_u32 {
            assert!(blocks.is_alone(0, BIAS + 1), "in round {round}");
            if round % 3 == 0 {
                carver.release(live.swap_remove(0));
            }
            live.extend(carver.take(1 + round % 2));
        }
        let mut off = Carver::new(Arc::clone(&blocks), Carving { is_biased: false, ..ON });
        live.drain(..).for_each(|unit| carver.release(unit));
        carver.give_back();
        let taken = [off.take(1), off.take(1), off.take(1)].map(|unit| unit.expect("room in the block"));
        assert!(blocks.is_alone(0, 4), "three fragments and the worker itself");
        taken.into_iter().for_each(|unit| off.release(unit));
        off.settle();
        assert!(blocks.is_alone(0, 1));
    }

    /// Different places that a thousand fragments had, of which one lives at a time.
    fn places(carving: Carving) -> usize {
        let mut carver = Carver::new(blocks(2, 0), carving);
        let take_and_release = |_| {
            let unit = carver.take(4).expect("a free block");
            carver.release(unit);
            carver.settle();
            unit
        };
        (0..1000).map(take_and_release).collect::<std::collections::BTreeSet<_>>().len()
    }

    /// D1: alone, the same warm bytes again and again; off, new ones to the end of the block.
    #[test]
    fn a_block_starts_again_when_alone() {
        for is_biased in [true, false] {
            assert_eq!(places(Carving { is_biased, ..ON }), 1);
            assert_eq!(places(Carving { is_biased, resets: false, ..ON }), LARGE_UNITS as usize / 4);
        }
    }

    /// Free blocks after each of 200 takes of a page, of which four live at a time.
    fn levels(held: usize) -> std::collections::BTreeSet<(u32, u32)> {
        let blocks = blocks(20, 0);
        let mut carver = Carver::new(Arc::clone(&blocks), Carving { held, ..ON });
        let mut live = std::collections::VecDeque::new();
        let take = |_| {
            live.push_back(carver.take(PAGE_UNITS).expect("a free block"));
            let free = blocks.free();
            live.drain(..live.len().saturating_sub(4)).for_each(|unit| carver.release(unit));
            carver.settle();
            free
        };
        (0..200).map(take).skip(20).collect()
    }

    /// D6: with several blocks held, a fragment that lives on does not send its worker to the shared
    /// stock at every end of a block.
    #[test]
    fn several_blocks_wait_to_be_alone() {
        assert_eq!(levels(8).len(), 1);
        assert_eq!(levels(1).len(), 2);
    }

    /// Before a worker says that there is none, it looks at every block that it holds.
    #[test]
    fn the_last_block_is_looked_for() {
        let blocks = blocks(3, 0);
        let mut carver = Carver::new(Arc::clone(&blocks), ON);
        let live: Vec<u32> = std::iter::from_fn(|| carver.take(PAGE_UNITS)).collect();
        assert_eq!((live.len(), carver.held()), (24, 3));
        let mut other = Carver::new(Arc::clone(&blocks), ON);
        live[8..16].iter().for_each(|&unit| other.release(unit));
        other.settle();
        assert_eq!(carver.take(1).map(|unit| blocks.block_of(unit)), Some(blocks.block_of(live[8])));
    }

    /// D4: without large blocks, pages; without pages, nothing; and both come home.
    #[test]
    fn pages_stand_in() {
        let blocks = blocks(1, 2);
        let mut carver = Carver::new(Arc::clone(&blocks), ON);
        let mut live: Vec<u32> = std::iter::from_fn(|| carver.take(PAGE_UNITS)).collect();
        assert_eq!(live.len(), 8 + 2);
        assert!(blocks.block_of(live[9]) == 2 && !blocks.is_large(blocks.block_of(live[8])));
        live.drain(..).for_each(|unit| carver.release(unit));
        carver.give_back();
        assert_eq!(blocks.free(), (1, 2));
    }

    #[test]
    fn what_cannot_fit_is_refused() {
        let mut carver = Carver::new(blocks(1, 1), ON);
        assert_eq!(carver.take(PAGE_UNITS + 1), None, "longer than what must not be crossed");
        let free = Carving { never_cross: LARGE_UNITS, ..ON };
        let mut carver = Carver::new(blocks(1, 1), free);
        let thrice = 9000_u32.div_ceil(64);
        let taken = [carver.take(thrice), carver.take(thrice), carver.take(thrice), carver.take(thrice)];
        assert_eq!(taken.map(|unit| unit.is_some()), [true, true, true, false], "three of 9000 bytes (D2)");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;

    /// The bytes of each unit; the model checker finds any two uses that are not in order.
    struct Memory(Vec<UnsafeCell<u32>>);

    impl Memory {
        fn touch(&self, unit: u32) {
            self.0[unit as usize].with_mut(|_| ());
        }
    }

    fn model(is_biased: bool, resets: bool, held: usize) {
        loom::model(move || {
            let blocks = Arc::new(Blocks::new(2, 2, 0));
            let memory = Arc::new(Memory((0..4).map(|_| UnsafeCell::new(0)).collect()));
            let carving = Carving { is_biased, resets, held, never_cross: 2 };
            let mut here = Carver::new(Arc::clone(&blocks), carving);
            let lent = [here.take(1), here.take(1)].map(|unit| unit.expect("a free block"));
            lent.iter().for_each(|&unit| memory.touch(unit));
            let (other_blocks, other_memory) = (Arc::clone(&blocks), Arc::clone(&memory));
            let thread = loom::thread::spawn(move || {
                let mut there = Carver::new(other_blocks, carving);
                for unit in lent {
                    other_memory.touch(unit);
                    there.release(unit);
                    there.settle();
                }
            });
            // Three more do not fit into the other block: the first one has to be alone again, or not.
            for unit in [here.take(1), here.take(1), here.take(1)].into_iter().flatten() {
                memory.touch(unit);
                here.release(unit);
            }
            thread.join().expect("the other thread does not panic");
            here.give_back();
            assert_eq!(blocks.take_all(), 2);
        });
    }

    #[test]
    fn a_block_is_carved_again_when_its_last_user_is_gone() {
        model(true, true, 2);
    }

    #[test]
    fn without_bias_too() {
        model(false, true, 1);
    }

    #[test]
    fn a_block_that_was_let_go_comes_home_once() {
        model(true, false, 1);
    }
}
