//! Release of many frames, and of frames that do not belong to the cache.

use super::{FragmentEnd, Pool, SOON};
use crate::fragment::Fragments;
use crate::frame::table;
use crate::frame::{BufferAddress, Frame};

impl Pool {
    /// Releases all `frames`.
    ///
    /// Cost: a quarter of a nanosecond per slot into the cache; fragments of one block are released together.
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

    /// Prefetches cache lines for a flush, while there is still room.
    #[inline(never)]
    fn expect_flush(&self) {
        self.reserve.expect_put(self.count + SOON > self.most);
    }

    /// Stores frames in the cache if there is room and all are slots of this kind, and returns true; the
    /// caller then forgets the frames.
    #[inline]
    fn put_all(&mut self, frames: &[Frame]) -> bool {
        let Some(room) = self.free.get_mut(self.count..self.count + frames.len()) else { return false };
        // Without early exit the compiler can vectorise; foreign entries are overwritten later.
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

    /// Releases frames that do not all fit into the cache.
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

    /// Stores slots of this region in the cache; the caller forgets their frames.
    #[inline]
    pub(crate) fn put_slots<T>(&mut self, mut owners: &[T], place: impl Fn(&T) -> BufferAddress) {
        if cfg!(debug_assertions) {
            owners.iter().for_each(|owner| table::trace_released(place(owner)));
        }
        while !owners.is_empty() {
            // The cache may exceed the limit after a refill.
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

    /// Releases one alias; the buffer is freed with the last one.
    #[cold]
    fn put_name(&mut self, frame: Frame) {
        if let Some(place) = table::release_name(frame.into_place()) {
            self.put(Frame::from_place(place));
        }
    }

    /// True if this pool can release an unshared frame without its region's list.
    #[inline]
    fn is_home_of(&self, frame: &Frame) -> bool {
        let owns = |fragments: &Fragments| fragments.owns(frame);
        self.is_slot(frame) || matches!(&self.fragments, FragmentEnd::Own(end) if owns(end))
    }

    /// Updates the counts of other workers' blocks for released fragments.
    pub(crate) fn settle(&mut self) {
        if let Some(control) = &mut self.control {
            control.settle();
        }
        if let FragmentEnd::Own(fragments) = &mut self.fragments {
            fragments.settle();
        }
    }
}
