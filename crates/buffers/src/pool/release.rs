//! Releasing many frames, and frames that are at home elsewhere than in a worker's cache.

use super::{FragmentEnd, Pool, SOON};
use crate::fragment::Fragments;
use crate::frame::table;
use crate::frame::{BufferAddress, Frame};

impl Pool {
    /// Releases all of `frames`.
    ///
    /// Cost: a quarter of a nanosecond a slot into the cache; fragments of one block are released together.
    #[inline]
    pub fn release_bulk(&mut self, frames: &mut Vec<Frame>) {
        if !self.put_all(frames) {
            return self.put_mixed(frames);
        }
        frames.drain(..).for_each(core::mem::forget);
        if self.count + 2 * SOON > self.most {
            self.expect_flush();
        }
    }

    /// Prefetches cache lines of other cores that a flush needs, while there is still room.
    #[inline(never)]
    fn expect_flush(&self) {
        self.reserve.expect_put(self.count + SOON > self.most);
    }

    /// Puts frames into the cache if there is room and all of them are slots of this kind; the caller
    /// gives them up then.
    #[inline]
    fn put_all(&mut self, frames: &[Frame]) -> bool {
        let Some(room) = self.free.get_mut(self.count..self.count + frames.len()) else { return false };
        // Without an early end the processor copies several at a time; what is strange is overwritten.
        let strange = room.iter_mut().zip(frames).fold(0, |bits, (cell, frame)| {
            *cell = frame.place();
            bits | self.kind.difference(frame.place())
        });
        if strange != 0 || self.count + frames.len() > self.most {
            return false;
        }
        if cfg!(debug_assertions) {
            frames.iter().for_each(|frame| table::trace_released(frame.place()));
        }
        self.count += frames.len();
        true
    }

    /// Releases frames that do not all go into the cache.
    #[cold]
    fn put_mixed(&mut self, frames: &mut Vec<Frame>) {
        let strange = frames.iter().fold(0, |bits, frame| bits | self.kind.difference(frame.place()));
        if strange == 0 {
            self.put_slots(frames, Frame::place);
            return frames.drain(..).for_each(core::mem::forget);
        }
        if let FragmentEnd::Own(fragments) = &mut self.fragments
            && frames.iter().all(|frame| fragments.owns(frame))
        {
            return fragments.release_bulk(frames);
        }
        frames.drain(..).for_each(|frame| self.put(frame));
        self.settle();
    }

    /// Puts slots of this region into the cache; the caller gives up their frames.
    #[inline]
    pub(crate) fn put_slots<T>(&mut self, mut owners: &[T], place: impl Fn(&T) -> BufferAddress) {
        if cfg!(debug_assertions) {
            owners.iter().for_each(|owner| table::trace_released(place(owner)));
        }
        while !owners.is_empty() {
            // What is not kept after a release may have come with a refill.
            if self.count > self.most {
                self.flush();
                continue;
            }
            let room = &mut self.free[self.count..self.most + 1];
            let (fitting, left) = owners.split_at(room.len().min(owners.len()));
            room.iter_mut().zip(fitting).for_each(|(cell, owner)| *cell = place(owner));
            self.count += fitting.len();
            owners = left;
            if self.count > self.most {
                self.flush();
            }
        }
    }

    #[inline(never)]
    pub(super) fn put_elsewhere(&mut self, frame: Frame) {
        if frame.is_shared() {
            return self.put_name(frame);
        }
        if let Some(control) = self.control.as_mut().filter(|control| control.is_home_of(&frame)) {
            return control.put(frame);
        }
        match &mut self.fragments {
            FragmentEnd::Own(fragments) if fragments.owns(&frame) => fragments.release(frame),
            FragmentEnd::Own(_) | FragmentEnd::Shared(_) | FragmentEnd::None => {
                table::send_home(frame.into_place());
            }
        }
    }

    /// Ends one of several names; the bytes go home with the last one.
    #[cold]
    fn put_name(&mut self, frame: Frame) {
        if let Some(place) = table::release_name(frame.into_place()) {
            self.put(Frame::from_place(place));
        }
    }

    /// True if a frame, which is not shared, is released without going over its region's list.
    #[inline]
    fn is_home_of(&self, frame: &Frame) -> bool {
        let owns = |fragments: &Fragments| fragments.owns(frame);
        self.is_slot(frame) || matches!(&self.fragments, FragmentEnd::Own(end) if owns(end))
    }

    /// Adds the released fragments to the counts of other workers' blocks.
    pub(crate) fn settle(&mut self) {
        if let Some(control) = &mut self.control {
            control.settle();
        }
        if let FragmentEnd::Own(fragments) = &mut self.fragments {
            fragments.settle();
        }
    }
}
