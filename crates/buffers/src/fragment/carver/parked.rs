//! Parked blocks: carved to their start, waiting for the release of their fragments (D6).

use super::{Carver, Open, Parked};
use std::collections::VecDeque;

impl Parked {
    pub(super) fn new(most: usize) -> Self {
        Self { blocks: VecDeque::with_capacity(most + 1), most, alone: Vec::with_capacity(2 * most + 2) }
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn take_youngest(&mut self) -> Option<u32> {
        self.blocks.pop_back()
    }

    /// Records that only this worker uses a block.
    #[inline]
    pub(super) fn tell_alone(&mut self, block: u32) {
        self.alone.push(block);
    }

    fn remove(&mut self, block: u32) -> bool {
        if self.blocks.front() == Some(&block) {
            return self.blocks.pop_front().is_some();
        }
        let place = self.blocks.iter().position(|&other| other == block);
        place.is_some_and(|place| self.blocks.remove(place).is_some())
    }
}

impl Carver {
    /// Parks the open block, if any.
    pub(super) fn park(&mut self) {
        if !self.has_open() {
            return;
        }
        let Open { at, carved, .. } = self.open;
        let mine = &mut self.mine[at as usize];
        *mine -= carved;
        // Without a bias, only the shared count shows this.
        if self.bias > 0 && *mine == self.bias {
            self.parked.tell_alone(at);
        }
        self.parked.blocks.push_back(at);
        self.open = Open::none(self.blocks.count());
    }

    /// Takes the parked block that was last recorded as used by this worker only: known without reading a
    /// shared cache line, and the warmest in the cache.
    pub(super) fn known_alone(&mut self) -> Option<u32> {
        // Records are not removed when a block is carved again, so they may be outdated.
        while let Some(block) = self.parked.alone.pop() {
            if self.mine[block as usize] == self.bias && self.parked.remove(block) {
                return Some(block);
            }
        }
        None
    }

    /// Takes the oldest parked block if only this worker uses it; releases the block if room is needed. Pages
    /// are only a substitute and never stay.
    pub(super) fn oldest_alone(&mut self) -> Option<u32> {
        let oldest = *self.parked.blocks.front()?;
        let references = self.mine[oldest as usize] + 1;
        let stays = self.parked.len() <= self.parked.most && self.blocks.is_large(oldest);
        if stays {
            let is_alone = self.blocks.is_alone(oldest, references);
            return is_alone.then(|| self.parked.blocks.pop_front())?;
        }
        self.parked.blocks.pop_front();
        self.mine[oldest as usize] = 0;
        self.blocks.give_up(oldest, references).then_some(oldest)
    }

    /// Takes any parked block that only this worker uses.
    pub(super) fn any_alone(&mut self) -> Option<u32> {
        let is_alone = |&block: &u32| self.blocks.is_alone(block, self.mine[block as usize] + 1);
        let place = self.parked.blocks.iter().position(is_alone)?;
        self.parked.blocks.remove(place)
    }
}
