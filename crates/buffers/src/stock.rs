//! The slots of one class of a region: ready ones in a depot, cold ones without memory behind them.

use crate::bits::Bits;
use crate::book::Books;
use crate::depot::{Depot, MAGAZINE};
use crate::mapping::Memory;
use crate::reserve::{Marks, Reserve};
use crate::supply::{Stock, Stocking, Supply};
use core::ops::Range;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pages that are brought in by one system call, so that what is there can be used meanwhile.
const STEP_PAGES: u32 = 64;

/// The slots of one class.
pub(crate) struct SlotStock {
    depot: Depot,
    memory: Arc<Memory>,
    numbers: Range<u32>,
    slot_shift: u32,
    /// Slots of one page (at least one), as a power of two.
    page_slots_shift: u32,
    stocking: Stocking,
    reserve: Reserve,
    asleep: Mutex<Asleep>,
    /// Slots in [`Asleep::waiting`], for who looks without the lock.
    waiting: AtomicU32,
    /// Whether slots are moved out of the depot and back.
    is_moving: AtomicBool,
    /// What the pools of the class have published.
    books: Books,
}

/// What is not in the depot and not out. Slots and pages are counted from the first of the class.
#[derive(Debug)]
struct Asleep {
    /// Pages (or slots, if they are larger) without memory.
    cold: Bits,
    /// Slots with memory whose page has other slots that are out.
    waiting: Bits,
}

impl SlotStock {
    /// The slots `numbers` of `memory`. A class begins on a page.
    pub(crate) fn new(
        memory: &Arc<Memory>,
        numbers: Range<u32>,
        slot_shift: u32,
        supply: Supply,
        stocking: Stocking,
    ) -> Result<Self, Errno> {
        let page_shift = rustix::param::page_size().trailing_zeros();
        let page_slots_shift = page_shift.saturating_sub(slot_shift);
        let count = numbers.end - numbers.start;
        let (marks, stocking) = match supply {
            // Memory that a device holds is not given back by parts, whatever is asked for.
            Supply::Fixed => (
                Marks { target: count, reload_below: 0, give_back_above: u32::MAX },
                Stocking { is_reused: stocking.is_reused, ..Stocking::default() },
            ),
            Supply::Growing(marks) => (marks, stocking),
        };
        let pages = count.div_ceil(1 << page_slots_shift);
        let stock = Self {
            depot: Depot::new(count),
            memory: Arc::clone(memory),
            numbers,
            slot_shift,
            page_slots_shift,
            stocking,
            reserve: Reserve::new(marks),
            asleep: Mutex::new(Asleep { cold: Bits::new(pages), waiting: Bits::new(count) }),
            waiting: AtomicU32::new(0),
            is_moving: AtomicBool::new(false),
            books: Books::default(),
        };
        match supply {
            Supply::Fixed => stock.fill(0..count),
            Supply::Growing(_) => stock.fill_to_target(pages)?,
        }
        Ok(stock)
    }

    fn fill_to_target(&self, pages: u32) -> Result<(), Errno> {
        (0..pages).for_each(|page| self.asleep().cold.insert(page));
        let target = self.reserve.marks().target;
        while self.level() < target && self.load(target - self.level())? > 0 {}
        Ok(())
    }

    /// Slots that a pool keeps after a release: fewer than two magazines, so that half of them stay
    /// when one goes back.
    pub(crate) fn cache(&self) -> usize {
        if self.stocking.is_pooled { 2 * self.depot.magazine() - 1 } else { 0 }
    }

    /// What the pools of the class have published.
    pub(crate) fn books(&self) -> &Books {
        &self.books
    }

    /// The numbers of the class.
    pub(crate) fn numbers(&self) -> Range<u32> {
        self.numbers.clone()
    }

    /// Slots that are nowhere else: ready, waiting or cold; exact while nobody exchanges.
    pub(crate) fn home(&self) -> u32 {
        let asleep = self.asleep();
        self.level() + asleep.waiting.count() + self.cold_slots(&asleep)
    }

    /// Slots without memory, and slots that wait for the others of their page.
    pub(crate) fn sleeping(&self) -> (u32, u32) {
        let asleep = self.asleep();
        (self.cold_slots(&asleep), asleep.waiting.count())
    }

    /// Takes everything out; how many slots there were that are nowhere else.
    pub(crate) fn take_all(&self) -> u32 {
        let asleep = self.asleep();
        self.depot.take_all() + asleep.waiting.count() + self.cold_slots(&asleep)
    }

    /// Hints that slots are going to be taken soon, or next.
    #[inline]
    pub(crate) fn expect_take(&self, is_next: bool) {
        self.depot.expect_get(is_next);
    }

    /// Hints that slots are going to be put in soon, or next.
    #[inline]
    pub(crate) fn expect_put(&self, is_next: bool) {
        self.depot.expect_put(is_next);
    }

    /// Puts what `make` makes of slots at the front of `target`; how many. `collect` looks for slots on their
    /// way home.
    #[inline]
    pub(crate) fn take<T>(
        &self,
        target: &mut [T; MAGAZINE],
        make: impl Fn(u32) -> T,
        collect: impl FnOnce(),
    ) -> usize {
        let mut count = self.depot.get(target, &make);
        if count == 0 {
            collect();
            if !self.stocking.is_reused {
                self.depot.turn_over();
            }
            count = self.depot.get(target, &make);
        }
        if count == 0 && (self.has_waiting() || !self.stocking.is_reloaded) {
            let mut slots = [0; MAGAZINE];
            count = self.take_asleep(&mut slots);
            target.iter_mut().zip(&slots[..count]).for_each(|(cell, &slot)| *cell = make(slot));
        }
        self.reserve.look(self.depot.level());
        count
    }

    /// Puts slots, whose numbers `index` tells, into the depot; how many, from the front. None, when every
    /// magazine is in use.
    #[inline]
    pub(crate) fn put<T>(&self, slots: &[T], index: impl Fn(&T) -> u32) -> usize {
        if !self.stocking.is_pooled {
            self.put_to_sleep(slots.iter().map(index));
            return slots.len();
        }
        let count = if self.stocking.is_reused {
            self.depot.put(slots, index)
        } else {
            self.depot.put_last(slots, index)
        };
        self.reserve.look_for_surplus(|| self.depot.level());
        count
    }

    /// Takes slots that have memory but wait for others of their page; and, in a class that is not
    /// reloaded, cold ones, whose memory comes when their bytes are touched (C2 off).
    #[cold]
    fn take_asleep(&self, target: &mut [u32; MAGAZINE]) -> usize {
        let most = if self.stocking.is_pooled { self.depot.magazine() } else { 1 };
        let mut asleep = self.asleep();
        // What was moved while nobody held the lock lies in the depot again.
        let mut count = self.depot.get(target, |slot| slot);
        while count < most {
            if let Some(slot) = asleep.waiting.take_first() {
                target[count] = self.numbers.start + slot;
                count += 1;
                continue;
            }
            if self.stocking.is_reloaded {
                break;
            }
            let Some(page) = asleep.cold.take_first() else { break };
            let slots = self.slots_of(page..page + 1);
            self.reserve.count_on_demand(slots.end - slots.start);
            slots.for_each(|slot| asleep.waiting.insert(slot));
        }
        self.publish(&asleep);
        count
    }

    /// Gives slots back to the system, each with the page that it completes (C1 off).
    #[cold]
    fn put_to_sleep(&self, slots: impl Iterator<Item = u32>) {
        let mut asleep = self.asleep();
        for slot in slots.map(|slot| slot - self.numbers.start) {
            asleep.waiting.insert(slot);
            let page = slot >> self.page_slots_shift;
            if self.is_complete(&asleep, page) && self.memory.give_back(self.bytes_of(page..page + 1)).is_ok()
            {
                self.slots_of(page..page + 1).for_each(|slot| asleep.waiting.remove(slot));
                asleep.cold.insert(page);
                self.reserve.count_given_back(1 << self.page_slots_shift);
            }
        }
        self.publish(&asleep);
    }

    /// Whether the depot may be empty although there are ready slots: the truth is under the lock.
    fn has_waiting(&self) -> bool {
        // Relaxed: the Acquire of the pop that found the depot empty pairs with the fence in `unload`.
        self.is_moving.load(Ordering::Relaxed) || self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether all slots of a page wait.
    fn is_complete(&self, asleep: &Asleep, page: u32) -> bool {
        self.slots_of(page..page + 1).all(|slot| asleep.waiting.contains(slot))
    }

    fn publish(&self, asleep: &Asleep) {
        self.waiting.store(asleep.waiting.count(), Ordering::Relaxed);
    }

    /// Takes everything out of the depot. With the lock: who finds the depot empty finds it here.
    fn drain(&self, asleep: &mut Asleep) {
        let mut slots = [0; MAGAZINE];
        loop {
            let count = self.depot.get(&mut slots, |slot| slot);
            if count == 0 {
                return;
            }
            slots[..count].iter().for_each(|slot| asleep.waiting.insert(slot - self.numbers.start));
        }
    }

    /// Takes complete pages out of those that wait, the last ones first; at most `most`.
    fn take_pages(&self, asleep: &mut Asleep, most: u32) -> Vec<u32> {
        let pages = (self.numbers.end - self.numbers.start).div_ceil(1 << self.page_slots_shift);
        let complete = (0..pages).rev().filter(|&page| self.is_complete(asleep, page));
        let taken = complete.take(most as usize).collect::<Vec<_>>();
        for &page in &taken {
            self.slots_of(page..page + 1).for_each(|slot| asleep.waiting.remove(slot));
        }
        taken
    }

    /// Puts everything that waits back into the depot, as far as there are magazines.
    fn wake(&self, asleep: &mut Asleep) -> u32 {
        let slots = core::iter::from_fn(|| Some(self.numbers.start + asleep.waiting.take_first()?));
        let mut slots = slots.collect::<Vec<_>>();
        slots.reverse();
        let left = self.put_in_depot(&slots);
        left.iter().for_each(|slot| asleep.waiting.insert(slot - self.numbers.start));
        self.publish(asleep);
        u32::try_from(slots.len() - left.len()).unwrap_or(u32::MAX)
    }

    fn fill(&self, slots: Range<u32>) {
        let mut numbers = slots.map(|slot| self.numbers.start + slot).collect::<Vec<_>>();
        // Low numbers come out first.
        for chunk in numbers.chunks_mut(self.depot.magazine()).rev() {
            chunk.reverse();
            self.put_ready(chunk);
        }
    }

    /// Puts slots in that have memory. Those for which there is no magazine wait.
    pub(crate) fn put_ready(&self, slots: &[u32]) {
        let left = self.put_in_depot(slots);
        if !left.is_empty() {
            let mut asleep = self.asleep();
            left.iter().for_each(|slot| asleep.waiting.insert(slot - self.numbers.start));
            self.publish(&asleep);
        }
    }

    /// Puts slots into magazines; returns those that found none.
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

    fn slots_of(&self, pages: Range<u32>) -> Range<u32> {
        let count = self.numbers.end - self.numbers.start;
        pages.start << self.page_slots_shift..(pages.end << self.page_slots_shift).min(count)
    }

    /// The bytes of whole pages of the class, of which the last one may be shared with nothing.
    fn bytes_of(&self, pages: Range<u32>) -> Range<usize> {
        let slots = self.slots_of(pages);
        let place = |slot: u32| (self.numbers.start as usize + slot as usize) << self.slot_shift;
        place(slots.start)..place(slots.end).next_multiple_of(rustix::param::page_size())
    }

    fn cold_slots(&self, asleep: &Asleep) -> u32 {
        let last = self.numbers.end - self.numbers.start;
        let whole = asleep.cold.count() << self.page_slots_shift;
        // The last page may have fewer slots than fit.
        let pages = last.div_ceil(1 << self.page_slots_shift);
        let short = (pages << self.page_slots_shift) - last;
        whole - if short > 0 && asleep.cold.contains(pages - 1) { short } else { 0 }
    }

    /// Nothing is left half done when a thread panics with the lock: sets are changed bit by bit.
    fn asleep(&self) -> MutexGuard<'_, Asleep> {
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pages that follow each other, at most [`STEP_PAGES`] in a run; `pages` has them from the last to the first.
fn runs(pages: &[u32]) -> impl Iterator<Item = Range<u32>> {
    let whole = pages.chunk_by(|&later, &earlier| later == earlier + 1);
    let steps = whole.flat_map(|run| run.chunks(STEP_PAGES as usize));
    steps.map(|run| run[run.len() - 1]..run[0] + 1)
}

impl Stock for SlotStock {
    fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    fn level(&self) -> u32 {
        self.depot.level()
    }

    fn load(&self, wanted: u32) -> Result<u32, Errno> {
        let mut asleep = self.asleep();
        let woken = self.wake(&mut asleep);
        if woken > 0 {
            return Ok(woken);
        }
        let most = wanted.div_ceil(1 << self.page_slots_shift).clamp(1, STEP_PAGES);
        let Some((first, count)) = asleep.cold.first_run(most) else { return Ok(0) };
        let pages = first..first + count;
        pages.clone().for_each(|page| asleep.cold.remove(page));
        drop(asleep);
        // The pages are in no set and out of everybody's reach while the system works.
        if let Err(error) = self.memory.bring_in(self.bytes_of(pages.clone())) {
            let mut asleep = self.asleep();
            pages.for_each(|page| asleep.cold.insert(page));
            return Err(error);
        }
        let slots = self.slots_of(pages);
        let loaded = slots.end - slots.start;
        self.fill(slots);
        Ok(loaded)
    }

    /// Everything is taken out and what stays is put back, low numbers on top: so pages that have been
    /// mixed by use come together, and the next user finds them side by side. Who comes in between
    /// waits for the lock: a fraction of a millisecond for the largest regions.
    fn unload(&self, surplus: u32, meanwhile: &mut dyn FnMut()) -> u32 {
        self.is_moving.store(true, Ordering::Relaxed);
        // Release, with the pops that follow, pairs with the Acquire of a pop that finds the depot empty.
        fence(Ordering::Release);
        let mut asleep = self.asleep();
        self.drain(&mut asleep);
        let pages = self.take_pages(&mut asleep, surplus >> self.page_slots_shift);
        self.wake(&mut asleep);
        drop(asleep);
        self.is_moving.store(false, Ordering::Relaxed);
        let mut given_back = 0;
        for run in runs(&pages) {
            // What the system does not take stays as it is: with memory, and counted as cold.
            let _ = self.memory.give_back(self.bytes_of(run.clone()));
            let slots = self.slots_of(run.clone());
            given_back += slots.end - slots.start;
            let mut asleep = self.asleep();
            run.for_each(|page| asleep.cold.insert(page));
            drop(asleep);
            meanwhile();
        }
        self.reserve.count_given_back(given_back);
        given_back
    }
}

impl core::fmt::Debug for SlotStock {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("SlotStock")
            .field("numbers", &self.numbers)
            .field("ready", &self.level())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_side_by_side_are_one_run() {
        let of = |pages: &[u32]| runs(pages).collect::<Vec<_>>();
        assert_eq!(of(&[9, 8, 7, 3, 1, 0]), [7..10, 3..4, 0..2]);
        let many = (0..STEP_PAGES + 2).rev().collect::<Vec<_>>();
        assert_eq!(of(&many), [2..STEP_PAGES + 2, 0..2]);
        assert_eq!(of(&[]), []);
    }
}
