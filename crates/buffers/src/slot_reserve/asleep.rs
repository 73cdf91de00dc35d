//! Sleeping slots: without memory, or waiting for the other slots of their page; loading and returning.

use super::{Asleep, SlotReserve};
use crate::depot::MAGAZINE;
use crate::policy::Reloadable;
use crate::reserve::Reserve;
use crate::sync::{MutexGuard, Ordering, fence};
use core::ops::Range;
use rustix::io::Errno;
use std::sync::PoisonError;

/// Maximum number of pages loaded by one system call, so that loaded pages can be used during the next call.
const STEP_PAGES: u32 = 64;

impl SlotReserve {
    /// Takes slots that wait for others of their page; without a reloader also slots without memory, which is
    /// loaded on first access (C2 off).
    #[cold]
    pub(super) fn take_asleep(&self, target: &mut [u32; MAGAZINE]) -> usize {
        let most = if self.reserve_options.is_pooled { self.depot.magazine() } else { 1 };
        let mut asleep = self.asleep();
        // Slots moved before the lock was taken are in the depot again.
        let mut count = self.depot.get(target, |slot| slot);
        while count < most {
            if let Some(slot) = asleep.waiting.take_first() {
                target[count] = self.numbers.start + slot;
                count += 1;
                continue;
            }
            if self.reserve_options.is_reloaded {
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

    /// Returns slots to the system, together with the page that each completes (C1 off).
    #[cold]
    pub(super) fn put_to_sleep(&self, slots: impl Iterator<Item = u32>) {
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

    /// True if all slots of a page wait.
    fn is_complete(&self, asleep: &Asleep, page: u32) -> bool {
        self.slots_of(page..page + 1).all(|slot| asleep.waiting.contains(slot))
    }

    pub(super) fn publish(&self, asleep: &Asleep) {
        self.waiting.store(asleep.waiting.count(), Ordering::Relaxed);
    }

    /// Empties the depot under the lock: a thread that finds the depot empty finds the slots here.
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

    /// Takes at most `most` complete pages of waiting slots, last pages first.
    fn take_pages(&self, asleep: &mut Asleep, most: u32) -> Vec<u32> {
        let pages = (self.numbers.end - self.numbers.start).div_ceil(1 << self.page_slots_shift);
        let complete = (0..pages).rev().filter(|&page| self.is_complete(asleep, page));
        let taken = complete.take(most as usize).collect::<Vec<_>>();
        for &page in &taken {
            self.slots_of(page..page + 1).for_each(|slot| asleep.waiting.remove(slot));
        }
        taken
    }

    /// Moves waiting slots back to the depot, as far as magazines are free; returns their number.
    fn wake(&self, asleep: &mut Asleep) -> u32 {
        let slots = core::iter::from_fn(|| Some(self.numbers.start + asleep.waiting.take_first()?));
        let mut slots = slots.collect::<Vec<_>>();
        slots.reverse();
        let left = self.put_in_depot(&slots);
        left.iter().for_each(|slot| asleep.waiting.insert(slot - self.numbers.start));
        self.publish(asleep);
        u32::try_from(slots.len() - left.len()).unwrap_or(u32::MAX)
    }

    fn slots_of(&self, pages: Range<u32>) -> Range<u32> {
        let count = self.numbers.end - self.numbers.start;
        pages.start << self.page_slots_shift..(pages.end << self.page_slots_shift).min(count)
    }

    /// Byte range of whole pages of the class; no other class shares its last page.
    fn bytes_of(&self, pages: Range<u32>) -> Range<usize> {
        let slots = self.slots_of(pages);
        let place = |slot: u32| (self.numbers.start as usize + slot as usize) << self.slot_shift;
        place(slots.start)..place(slots.end).next_multiple_of(self.memory.page_bytes())
    }

    pub(super) fn cold_slots(&self, asleep: &Asleep) -> u32 {
        let last = self.numbers.end - self.numbers.start;
        let whole = asleep.cold.count() << self.page_slots_shift;
        // The last page may have fewer slots than fit.
        let pages = last.div_ceil(1 << self.page_slots_shift);
        let short = (pages << self.page_slots_shift) - last;
        whole - if short > 0 && asleep.cold.contains(pages - 1) { short } else { 0 }
    }

    /// A thread that panics with the lock leaves consistent sets: bits are changed one by one.
    pub(super) fn asleep(&self) -> MutexGuard<'_, Asleep> {
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs of consecutive pages, at most [`STEP_PAGES`] each; `pages` is in descending order.
fn runs(pages: &[u32]) -> impl Iterator<Item = Range<u32>> {
    let whole = pages.chunk_by(|&later, &earlier| later == earlier + 1);
    let steps = whole.flat_map(|run| run.chunks(STEP_PAGES as usize));
    steps.map(|run| run[run.len() - 1]..run[0] + 1)
}

impl Reloadable for SlotReserve {
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
        // The pages are in no set, so no other thread uses them during the system call.
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

    /// Takes all slots out and puts the remaining ones back, low numbers first, so that slots of one page
    /// come together again and users find them adjacent. Other threads wait for the lock meanwhile: a
    /// fraction of a millisecond for the largest regions.
    fn unload(&self, surplus: u32, meanwhile: &mut dyn FnMut()) -> u32 {
        // Relaxed: only one thread reloads a class.
        self.moves.fetch_add(1, Ordering::Relaxed);
        // Release, with the pops that follow, pairs with the Acquire of a pop that finds the depot empty.
        fence(Ordering::Release);
        let mut asleep = self.asleep();
        self.drain(&mut asleep);
        let pages = self.take_pages(&mut asleep, surplus >> self.page_slots_shift);
        self.wake(&mut asleep);
        drop(asleep);
        // Release pairs with the Acquire in `take`: a thread that sees the end sees the slots that were put
        // back.
        self.moves.fetch_add(1, Ordering::Release);
        let mut given_back = 0;
        for run in runs(&pages) {
            // Pages that the system does not accept keep their memory, but count as cold.
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
