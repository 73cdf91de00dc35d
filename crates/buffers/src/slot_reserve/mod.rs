//! Slot reserve: the slots of one class of a region, ready ones in a depot, cold ones without memory.

mod asleep;
#[cfg(all(test, loom))]
mod loom_tests;

use crate::bits::Bits;
use crate::depot::{MAGAZINE, MagazineDepot};
use crate::mapping::Memory;
use crate::policy::{AllocationPolicy, Reloadable, ReserveOptions};
use crate::pool_counters::PoolCounterSet;
use crate::reserve::{Marks, Reserve};
use crate::sync::{AtomicU32, Mutex, Ordering};
use core::ops::Range;
use rustix::io::Errno;
use std::sync::Arc;

/// Slots of one class.
pub(crate) struct SlotReserve {
    depot: MagazineDepot,
    memory: Arc<Memory>,
    numbers: Range<u32>,
    slot_shift: u32,
    /// Slots per page (at least one), as a power of two.
    page_slots_shift: u32,
    reserve_options: ReserveOptions,
    reserve: Reserve,
    asleep: Mutex<Asleep>,
    /// Number of slots in [`Asleep::waiting`], for readers without the lock.
    waiting: AtomicU32,
    /// Incremented before and after slots are moved out of the depot and back: odd during the move.
    moves: AtomicU32,
    /// Published counters of the class's pools.
    counters: PoolCounterSet,
}

/// Free slots outside of the depot, numbered from the first slot of the class.
#[derive(Debug)]
struct Asleep {
    /// Pages (or slots, if these are larger) without memory.
    cold: Bits,
    /// Slots with memory whose page has allocated slots.
    waiting: Bits,
}

impl SlotReserve {
    /// Slots `numbers` of `memory`. A class begins on a page.
    pub(crate) fn new(
        memory: &Arc<Memory>,
        numbers: Range<u32>,
        slot_shift: u32,
        policy: AllocationPolicy,
        reserve_options: ReserveOptions,
    ) -> Result<Self, Errno> {
        let page_shift = memory.page_bytes().trailing_zeros();
        let page_slots_shift = page_shift.saturating_sub(slot_shift);
        let count = numbers.end - numbers.start;
        let (marks, reserve_options) = match policy {
            // Memory that a device holds is never returned in parts.
            AllocationPolicy::Fixed => (
                Marks { target: count, reload_below: 0, give_back_above: u32::MAX },
                ReserveOptions { is_reused: reserve_options.is_reused, ..ReserveOptions::default() },
            ),
            AllocationPolicy::Growing(marks) => (marks, reserve_options),
        };
        let pages = count.div_ceil(1 << page_slots_shift);
        let reserve = Self {
            depot: MagazineDepot::new(count),
            memory: Arc::clone(memory),
            numbers,
            slot_shift,
            page_slots_shift,
            reserve_options,
            reserve: Reserve::new(marks),
            asleep: Mutex::new(Asleep { cold: Bits::new(pages), waiting: Bits::new(count) }),
            waiting: AtomicU32::new(0),
            moves: AtomicU32::new(0),
            counters: PoolCounterSet::default(),
        };
        match policy {
            AllocationPolicy::Fixed => reserve.fill(0..count),
            AllocationPolicy::Growing(_) => reserve.fill_to_target(pages)?,
        }
        Ok(reserve)
    }

    fn fill_to_target(&self, pages: u32) -> Result<(), Errno> {
        (0..pages).for_each(|page| self.asleep().cold.insert(page));
        let target = self.reserve.marks().target;
        while self.level() < target && self.load(target - self.level())? > 0 {}
        Ok(())
    }

    /// Maximum number of slots that a pool keeps: less than two magazines, so that half of them stay when one
    /// is returned.
    pub(crate) fn cache(&self) -> usize {
        if self.reserve_options.is_pooled { 2 * self.depot.magazine() - 1 } else { 0 }
    }

    /// Published counters of the class's pools.
    pub(crate) fn counters(&self) -> &PoolCounterSet {
        &self.counters
    }

    /// Slot numbers of the class.
    pub(crate) fn numbers(&self) -> Range<u32> {
        self.numbers.clone()
    }

    /// Number of slots in this reserve: ready, waiting or cold; exact while no thread exchanges.
    pub(crate) fn free_slots(&self) -> u32 {
        let asleep = self.asleep();
        self.level() + asleep.waiting.count() + self.cold_slots(&asleep)
    }

    /// Number of slots without memory, and of slots that wait for others of their page.
    pub(crate) fn sleeping(&self) -> (u32, u32) {
        let asleep = self.asleep();
        (self.cold_slots(&asleep), asleep.waiting.count())
    }

    /// Empties the reserve and returns the number of its slots.
    pub(crate) fn take_all(&self) -> u32 {
        let asleep = self.asleep();
        self.depot.take_all() + asleep.waiting.count() + self.cold_slots(&asleep)
    }

    /// Prefetches for slots that will be taken soon, or next.
    #[inline]
    pub(crate) fn expect_take(&self, is_next: bool) {
        self.depot.expect_get(is_next);
    }

    /// Prefetches for slots that will be put soon, or next.
    #[inline]
    pub(crate) fn expect_put(&self, is_next: bool) {
        self.depot.expect_put(is_next);
    }

    /// Stores the results of `make` for slots at the front of `target`; returns their number. `collect` moves
    /// slots of the remote-free list here.
    #[inline]
    pub(crate) fn take<T>(
        &self,
        target: &mut [T; MAGAZINE],
        make: impl Fn(u32) -> T,
        collect: impl FnOnce(),
    ) -> usize {
        let mut count = self.depot.get(target, &make);
        if count == 0 {
            // Acquire pairs with the Release at the end of `unload`: slots that were put back are found
            // below.
            let moves = self.moves.load(Ordering::Acquire);
            collect();
            if !self.reserve_options.is_reused {
                self.depot.turn_over();
            }
            count = self.depot.get(target, &make);
            if count == 0 && (self.has_waiting(moves) || !self.reserve_options.is_reloaded) {
                let mut slots = [0; MAGAZINE];
                count = self.take_asleep(&mut slots);
                target.iter_mut().zip(&slots[..count]).for_each(|(cell, &slot)| *cell = make(slot));
            }
        }
        self.reserve.look(self.depot.level());
        count
    }

    /// Puts slots, whose numbers `index` returns, into the depot; returns how many, from the front. 0 if no
    /// magazine is free.
    #[inline]
    pub(crate) fn put<T>(&self, slots: &[T], index: impl Fn(&T) -> u32) -> usize {
        if !self.reserve_options.is_pooled {
            self.put_to_sleep(slots.iter().map(index));
            return slots.len();
        }
        let count = if self.reserve_options.is_reused {
            self.depot.put(slots, index)
        } else {
            self.depot.put_last(slots, index)
        };
        self.reserve.look_for_surplus(|| self.depot.level());
        count
    }

    /// True if the depot may have been empty although there are ready slots, so that the lock is needed.
    /// `moves` was read before the depot.
    fn has_waiting(&self, moves: u32) -> bool {
        // Relaxed, both: the Acquire of the pop that found the depot empty pairs with the fence in `unload`.
        let is_moving = moves % 2 == 1 || self.moves.load(Ordering::Relaxed) != moves;
        is_moving || self.waiting.load(Ordering::Relaxed) > 0
    }

    fn fill(&self, slots: Range<u32>) {
        let mut numbers = slots.map(|slot| self.numbers.start + slot).collect::<Vec<_>>();
        // Low numbers are taken first.
        for chunk in numbers.chunks_mut(self.depot.magazine()).rev() {
            chunk.reverse();
            self.put_ready(chunk);
        }
    }

    /// Adds slots with memory. Slots for which no magazine is free wait.
    pub(crate) fn put_ready(&self, slots: &[u32]) {
        let left = self.put_in_depot(slots);
        if !left.is_empty() {
            let mut asleep = self.asleep();
            left.iter().for_each(|slot| asleep.waiting.insert(slot - self.numbers.start));
            self.publish(&asleep);
        }
    }

    /// Puts slots into magazines; returns the rest.
    fn put_in_depot<'a>(&self, slots: &'a [u32]) -> &'a [u32] {
        let mut left = slots;
        loop {
            let count = self.depot.put(left, |&slot| slot);
            if count == 0 {
                return left;
            }
            left = &left[count..];
        }
    }
}

impl core::fmt::Debug for SlotReserve {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("SlotReserve")
            .field("numbers", &self.numbers)
            .field("ready", &self.level())
            .finish_non_exhaustive()
    }
}
