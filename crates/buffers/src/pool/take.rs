//! Allocation of many slots, and of fragments.

use super::{FragmentEnd, Pool, SOON};
use crate::frame::Frame;
use crate::frame::table;
use core::panic::Location;

impl Pool {
    /// Allocates up to `wanted` slots and appends them to `frames`; returns their number.
    ///
    /// Cost: a quarter of a nanosecond per slot from the cache.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn take_bulk(&mut self, wanted: usize, frames: &mut Vec<Frame>) -> usize {
        let (mut left, site) = (wanted, Location::caller());
        while left > 0 && (self.count > 0 || self.refill()) {
            let count = left.min(self.count);
            let (kept, taken) = self.free[..self.count].split_at(self.count - count);
            frames.extend(taken.iter().map(|&place| Frame::from_place(place)));
            if cfg!(debug_assertions) {
                let made = &frames[frames.len() - count..];
                made.iter().for_each(|frame| table::trace_taken(frame.place(), site));
            }
            self.count = kept.len();
            left -= count;
        }
        self.taken += (wanted - left) as u64;
        if self.count <= 2 * SOON {
            self.expect_refill();
        }
        wanted - left
    }

    /// Prefetches cache lines for a refill, while there are still slots.
    #[inline(never)]
    fn expect_refill(&self) {
        self.reserve.expect_take(self.count <= SOON);
    }

    /// Allocates a frame of at least `bytes` bytes: a fragment for up to half a slot, if one is free,
    /// otherwise a slot.
    ///
    /// `None` if `bytes` exceeds a slot, or no buffer is free.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn take_for(&mut self, bytes: u32) -> Option<Frame> {
        let slot_bytes = self.region.slot_bytes();
        if bytes > slot_bytes / 2 {
            return if bytes > slot_bytes { None } else { self.take() };
        }
        let fragment = match &mut self.fragments {
            FragmentEnd::Own(fragments) => fragments.take(bytes),
            FragmentEnd::Shared(fragments) => fragments.take(bytes),
            FragmentEnd::None => None,
        };
        match fragment {
            Some(fragment) => Some(fragment),
            None => self.take(),
        }
    }

    /// Allocates up to `wanted` frames of at least `bytes` bytes, like [`Pool::take_for`], and appends them
    /// to `frames`; returns their number.
    ///
    /// Cost: about a nanosecond per fragment.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn take_bulk_for(&mut self, bytes: u32, wanted: usize, frames: &mut Vec<Frame>) -> usize {
        let slot_bytes = self.region.slot_bytes();
        if bytes > slot_bytes {
            return 0;
        }
        let mut count = 0;
        if bytes <= slot_bytes / 2
            && let FragmentEnd::Own(fragments) = &mut self.fragments
        {
            count = fragments.take_bulk(bytes, wanted, frames);
        }
        while count < wanted && bytes <= slot_bytes / 2 && matches!(self.fragments, FragmentEnd::Shared(_)) {
            let Some(frame) = self.take_for(bytes) else { return count };
            frames.push(frame);
            count += 1;
        }
        count + self.take_bulk(wanted - count, frames)
    }

    /// Allocates a frame for control traffic: like [`Pool::take_for`], or from the control class if the data
    /// class is exhausted.
    pub fn take_control_for(&mut self, bytes: u32) -> Option<Frame> {
        self.take_for(bytes).or_else(|| self.control.as_mut()?.take_for(bytes))
    }
}
