//! Fragments: parts of large blocks, for short-lived memory: copied small packets, packets of one USB
//! transfer, headers made by the datapath.
//!
//! A fragment is a [`Frame`]: it is chained, split, joined and released like one. Each worker carves its own
//! blocks from their end downwards. A release by the same worker needs no atomic operation; releases by
//! others decrement the block's shared count, once per run of a batch. A block without fragments restarts at
//! its end, still warm in the cache.
//!
//! Cost: docs/adr/0006. Source: D1 to D6, E7.

mod carver;
mod shared;
#[cfg(all(test, not(loom)))]
mod tests;

pub use shared::SharedFragments;

use crate::blocks::{Blocks, LARGE_UNITS, PAGE_UNITS, UNIT_SHIFT};
use crate::frame::table::{self, Keeper};
use crate::frame::{BufferAddress, Frame};
use crate::mapping::Memory;
use crate::policy::{AllocationPolicy, ReserveOptions};
use crate::pool_counters::{PoolCounterSet, PoolCounters, PoolCounts};
use crate::region::check_page;
use crate::region_error::RegionError;
use carver::{Carver, Carving};
use core::num::NonZeroU16;
use core::panic::Location;
use std::sync::Arc;

/// Maximum number of blocks of one memory: 16 GiB.
const MOST_BLOCKS: u32 = 1 << 19;
const PAGE_BYTES: usize = (PAGE_UNITS as usize) << UNIT_SHIFT;

/// Sizes and techniques of a fragment memory.
#[derive(Clone, Copy, Debug)]
pub struct FragmentOptions {
    /// Number of blocks of 32 KiB; with larger pages the same memory in blocks of a page.
    pub blocks: u32,
    /// Number of single pages that are used when no block is free (D4).
    pub spare_pages: u32,
    /// True for blocks of 32 KiB; false for 4 KiB pages, or larger system pages (D2).
    pub large_blocks: bool,
    /// True if the shared count is updated once per block and run of releases; false if it is updated for
    /// each fragment (D3).
    pub biased_count: bool,
    /// True if a block restarts as soon as it has no fragments; false if it restarts only when it is used up
    /// (D1).
    pub reset_when_alone: bool,
    /// Maximum number of blocks that a worker holds, 1 to 64 (D6); 1 turns this off.
    pub held_blocks: u8,
    /// Bytes whose multiples no fragment crosses, a power of two from 64 to 32 768 (E7).
    pub never_cross: u32,
    /// Allocation policy of blocks; thresholds count blocks of 32 KiB.
    pub policy: AllocationPolicy,
    /// Techniques of the blocks' reserve.
    pub reserve_options: ReserveOptions,
}

impl Default for FragmentOptions {
    fn default() -> Self {
        Self {
            blocks: 256,
            spare_pages: 32,
            large_blocks: true,
            biased_count: true,
            reset_when_alone: true,
            held_blocks: 8,
            never_cross: 4096,
            policy: AllocationPolicy::Fixed,
            reserve_options: ReserveOptions::default(),
        }
    }
}

/// Memory for fragments, shared by all workers.
///
/// Cloning is cheap; clones share the memory.
#[derive(Clone)]
pub struct FragmentMemory {
    inner: Arc<Inner>,
}

struct Inner {
    id: NonZeroU16,
    options: FragmentOptions,
    memory: Arc<Memory>,
    blocks: Arc<Blocks>,
    counters: PoolCounterSet,
}

impl FragmentMemory {
    /// Maps memory for fragments.
    ///
    /// # Errors
    /// [`RegionError`] with the parameters and a remedy.
    pub fn new(options: FragmentOptions) -> Result<Self, RegionError> {
        Self::with_pages(options, rustix::param::page_size())
    }

    /// As `new`, loading and returning memory in units of `page_bytes`.
    pub(crate) fn with_pages(options: FragmentOptions, page_bytes: usize) -> Result<Self, RegionError> {
        let FragmentOptions { blocks, spare_pages, never_cross, held_blocks, .. } = options;
        check_page(page_bytes)?;
        if !never_cross.is_power_of_two() || !(64..=32_768).contains(&never_cross) {
            return Err(RegionError::NeverCross(never_cross));
        }
        if blocks.saturating_add(spare_pages) == 0 || blocks > MOST_BLOCKS || spare_pages > MOST_BLOCKS {
            return Err(RegionError::Blocks(blocks));
        }
        if !(1..=64).contains(&held_blocks) {
            return Err(RegionError::HeldBlocks(held_blocks));
        }
        let (blocks, units, policy) = blocks_of(options, page_bytes);
        let bytes = (((blocks * units) as usize) << UNIT_SHIFT) + spare_pages as usize * PAGE_BYTES;
        let no_memory = |source| RegionError::Map { bytes, source };
        let memory = Arc::new(Memory::map_pages(bytes, page_bytes).map_err(no_memory)?);
        let shape = (blocks, units, spare_pages);
        let blocks = Blocks::over(shape, &memory, policy, options.reserve_options).map_err(no_memory)?;
        let blocks = Arc::new(blocks);
        let keeper = Keeper::Blocks(Arc::clone(&blocks));
        let id = table::register(&memory, UNIT_SHIFT, blocks.units(), keeper)?;
        let inner = Inner { id, options, memory, blocks, counters: PoolCounterSet::default() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Identity of the memory in its fragments.
    pub fn id(&self) -> NonZeroU16 {
        self.inner.id
    }

    /// Options of the memory.
    pub fn options(&self) -> FragmentOptions {
        self.inner.options
    }

    /// Creates one worker's allocator.
    pub fn fragments(&self) -> Fragments {
        let options = self.inner.options;
        let carving = Carving {
            is_biased: options.biased_count,
            resets: options.reset_when_alone,
            held: usize::from(options.held_blocks),
            never_cross: options.never_cross >> UNIT_SHIFT,
        };
        let carver = Carver::new(Arc::clone(&self.inner.blocks), carving);
        let counters = self.inner.counters.open();
        Fragments { carver, id: self.inner.id, taken: 0, exhausted: 0, counters, memory: self.clone() }
    }

    /// Number of free large blocks and of free single pages.
    pub fn free_blocks(&self) -> (u32, u32) {
        self.inner.blocks.free()
    }

    /// True if every block is free: no fragment exists and no worker holds a block.
    pub fn is_home(&self) -> bool {
        let (large, pages) = self.free_blocks();
        large + pages + self.inner.blocks.cold() == self.inner.blocks.count()
    }

    /// Makes loading of memory fail or work again, to simulate a system without memory.
    pub fn simulate_shortage(&self, is_short: bool) {
        self.inner.memory.set_short(is_short);
    }

    /// The memory's blocks.
    pub(crate) fn reserve(&self) -> &Arc<Blocks> {
        &self.inner.blocks
    }

    /// Counters that the workers have published.
    pub(crate) fn counts(&self) -> PoolCounts {
        self.inner.counters.counts()
    }

    /// Allocated fragments with their allocation sites, like [`Region::out`](crate::Region::out). Only in
    /// debug builds.
    pub fn out(&self) -> Vec<(u32, &'static Location<'static>)> {
        table::traces(self.inner.id).out()
    }

    /// Number of fragments that were dropped instead of released (late frees); 0 in normal operation.
    pub fn late_frees(&self) -> u64 {
        table::late_frees(self.inner.id)
    }
}

/// Number of large blocks, units of each, and their policy. A block consists of whole pages, so that its
/// memory can be returned.
fn blocks_of(options: FragmentOptions, page_bytes: usize) -> (u32, u32, AllocationPolicy) {
    let FragmentOptions { blocks, policy, .. } = options;
    let page_units = u32::try_from(page_bytes >> UNIT_SHIFT).unwrap_or(LARGE_UNITS);
    let units = page_units.max(if options.large_blocks { LARGE_UNITS } else { PAGE_UNITS });
    if units > LARGE_UNITS {
        let factor = units / LARGE_UNITS;
        (blocks.div_ceil(factor), units, policy.over(factor))
    } else {
        let factor = LARGE_UNITS / units;
        (blocks * factor, units, policy.times(factor))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.blocks.take_all() == self.blocks.count() {
            table::close(self.id);
        }
        // Otherwise fragments outlive their memory, whose bytes then stay mapped for ever.
    }
}

impl core::fmt::Debug for FragmentMemory {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("FragmentMemory")
            .field("id", &self.inner.id)
            .field("options", &self.inner.options)
            .field("blocks", &self.inner.blocks)
            .finish_non_exhaustive()
    }
}

/// One worker's allocator of fragments, without atomic read-modify-write as long as the worker releases its
/// own fragments (D5).
#[derive(Debug)]
pub struct Fragments {
    carver: Carver,
    id: NonZeroU16,
    taken: u64,
    exhausted: u64,
    counters: Arc<PoolCounters>,
    memory: FragmentMemory,
}

impl Fragments {
    /// Allocates a fragment of at least `bytes` bytes (rounded up to 64); `None` if no block is free, or if
    /// it would cross a boundary. Its content is left by its last owner.
    ///
    /// Cost: a few instructions; at the end of a block a check of the held blocks.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn take(&mut self, bytes: u32) -> Option<Frame> {
        let units = bytes.div_ceil(1 << UNIT_SHIFT).max(1);
        let Some(index) = self.carver.take(units) else {
            self.exhausted += 1;
            return None;
        };
        self.taken += 1;
        // A fragment is no longer than a block: 512 units.
        let units = u16::try_from(units).unwrap_or(u16::MAX);
        let place = BufferAddress::new(self.id, units, index);
        table::trace_taken(place, Location::caller());
        Some(Frame::from_place(place))
    }

    /// Allocates up to `wanted` fragments, like [`Fragments::take`], and appends them to `frames`; returns
    /// their number.
    ///
    /// Cost: about a nanosecond each.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn take_bulk(&mut self, bytes: u32, wanted: usize, frames: &mut Vec<Frame>) -> usize {
        let units = bytes.div_ceil(1 << UNIT_SHIFT).max(1);
        let (id, site) = (self.id, Location::caller());
        let size = u16::try_from(units).unwrap_or(u16::MAX);
        frames.reserve(wanted);
        let count = self.carver.take_run(units, wanted, |first, count| {
            // The addresses of a run follow from its first one, so several are written at a time.
            let places = (0..count).map(|number| BufferAddress::new(id, size, first - number * units));
            if cfg!(debug_assertions) {
                places.clone().for_each(|place| table::trace_taken(place, site));
            }
            frames.extend(places.map(Frame::from_place));
        });
        self.taken += count as u64;
        self.exhausted += u64::from(count < wanted);
        count
    }

    /// Releases all `frames`, which must belong to this memory, and updates shared counts at once.
    ///
    /// # Panics
    /// If a frame belongs to another region.
    ///
    /// Cost: less than a nanosecond each, and an access to the count of each block of another worker.
    #[inline]
    pub fn release_bulk(&mut self, frames: &mut Vec<Frame>) {
        // Without early exit the compiler can vectorise.
        let strange = frames.iter().fold(0, |bits, frame| bits | frame.place().difference(self.id));
        if strange != 0 {
            frames.drain(..).for_each(|frame| self.release(frame));
            return self.settle();
        }
        if cfg!(debug_assertions) {
            frames.iter().for_each(|frame| table::trace_released(frame.place()));
        }
        self.carver.release_run(frames, |frame| frame.place().index());
        frames.drain(..).for_each(core::mem::forget);
    }

    /// Releases a fragment of this memory, allocated by any worker. Its block's count is updated by the next
    /// [`Fragments::settle`], or with the first fragment of another block.
    ///
    /// # Panics
    /// If the frame belongs to another region.
    #[inline]
    pub fn release(&mut self, frame: Frame) {
        assert!(self.owns(&frame), "a fragment of another memory");
        if frame.is_shared() {
            return self.release_name(frame);
        }
        table::trace_released(frame.place());
        self.carver.release(frame.into_place().index());
    }

    /// Releases one alias; the bytes are freed with the last one.
    #[cold]
    fn release_name(&mut self, frame: Frame) {
        if let Some(place) = table::release_name(frame.into_place()) {
            table::trace_released(place);
            self.carver.release(place.index());
        }
    }

    /// Updates the counts of blocks for released fragments, also of other workers' blocks; called at the end
    /// of a batch.
    #[inline]
    pub fn settle(&mut self) {
        self.carver.settle();
    }

    /// The fragment memory.
    pub fn memory(&self) -> &FragmentMemory {
        &self.memory
    }

    /// True if a frame belongs to this memory.
    #[inline]
    pub fn owns(&self, frame: &Frame) -> bool {
        frame.place().region() == self.id.get()
    }

    /// Number of blocks held.
    pub fn held_blocks(&self) -> usize {
        self.carver.held()
    }

    /// Number of fragments allocated so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Number of failed allocations.
    pub fn exhausted(&self) -> u64 {
        self.exhausted
    }

    /// Releases all blocks, for a worker that sleeps for long.
    pub fn give_back(&mut self) {
        self.carver.give_back();
        self.publish();
    }

    /// Publishes the counters, like [`Pool::publish`](crate::Pool::publish).
    pub fn publish(&self) {
        let Self { taken, exhausted, .. } = *self;
        self.counters.write(PoolCounts { cached: self.held_blocks() as u64, taken, exhausted });
    }
}

impl Drop for Fragments {
    fn drop(&mut self) {
        self.give_back();
        self.memory.inner.counters.close(&self.counters);
    }
}
