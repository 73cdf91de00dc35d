//! Chains of frames: append, remove, split and join.

use super::{Chain, NoRoom, Packet, Segment};
use crate::frame::table::{self, Link};
use crate::frame::{BufferAddress, Frame};
use crate::pool::Pool;
use core::num::NonZeroU16;
use std::sync::atomic::Ordering;

impl Packet {
    /// Maximum number of bytes in a packet after its head frame: that of an IP packet.
    pub const CHAINED: usize = u16::MAX as usize;

    /// Creates a packet with a copy of `bytes`, in as many frames as needed; `None` if the pool has too few.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn copy_from(bytes: &[u8], pool: &mut Pool) -> Option<Self> {
        let mut packet = Self::new(pool.take()?);
        if packet.extend_from(bytes, pool).is_err() {
            packet.into_segments().for_each(|segment| pool.release_frame(segment.frame));
            return None;
        }
        Some(packet)
    }

    /// Copies the packet's bytes and metadata into other frames; `None` if the pool has too few.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn duplicate(&self, pool: &mut Pool) -> Option<Self> {
        let mut copy = Self::new(pool.take()?);
        for segment in self.segments() {
            if copy.extend_from(segment, pool).is_err() {
                copy.into_segments().for_each(|segment| pool.release_frame(segment.frame));
                return None;
            }
        }
        copy.take_metadata_of(self);
        Some(copy)
    }

    /// Appends a copy of `bytes`, in new frames once the last one is full.
    ///
    /// # Errors
    /// [`NoRoom::Back`] if the pool is empty, or the chain would exceed [`CHAINED`](Self::CHAINED); bytes
    /// that fitted stay in the packet.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn extend_from(&mut self, mut bytes: &[u8], pool: &mut Pool) -> Result<(), NoRoom> {
        if self.rest.is_none() {
            let fits = bytes.len().min(self.tailroom());
            let (here, there) = bytes.split_at(fits);
            let length = u16::try_from(fits).map_err(|_| NoRoom::Back)?;
            self.append(length)?.copy_from_slice(here);
            bytes = there;
        }
        if bytes.len() > Self::CHAINED - usize::from(self.rest_length) {
            return Err(NoRoom::Back);
        }
        self.push_copy(bytes, pool)
    }

    /// Truncates the packet to `length` bytes; unused frames are released to `pool`.
    ///
    /// # Errors
    /// [`NoRoom::Short`] if the packet is shorter; nothing is changed then.
    pub fn truncate(&mut self, length: usize, pool: &mut Pool) -> Result<(), NoRoom> {
        if length > self.len() {
            return Err(NoRoom::Short);
        }
        self.forget_headers();
        if let Ok(head) = u16::try_from(length)
            && head <= self.length
        {
            self.length = head;
            self.release_rest(pool);
            return Ok(());
        }
        let kept = self.take_rest();
        let mut room = length - usize::from(self.length);
        for mut segment in kept {
            if room == 0 {
                pool.release_frame(segment.frame);
                continue;
            }
            segment.length = segment.length.min(u16::try_from(room).unwrap_or(u16::MAX));
            room -= usize::from(segment.length);
            self.push_segment(segment);
        }
        Ok(())
    }

    /// Makes the first `length` bytes contiguous in the head frame.
    ///
    /// # Errors
    /// [`NoRoom::Short`] if the packet is shorter, [`NoRoom::Back`] if the head frame is too small.
    ///
    /// Cost: nothing if they are contiguous already; otherwise a copy of the missing bytes.
    pub fn gather(&mut self, length: u16, pool: &mut Pool) -> Result<(), NoRoom> {
        if length <= self.length {
            return Ok(());
        }
        if usize::from(length) > self.len() {
            return Err(NoRoom::Short);
        }
        let mut missing = length - self.length;
        if usize::from(missing) > self.tailroom() {
            return Err(NoRoom::Back);
        }
        let rest = self.take_rest();
        for mut segment in rest {
            let moved = missing.min(segment.length);
            if moved > 0 {
                let source = table::slot(&segment.frame, u32::from(segment.offset), u32::from(moved));
                self.append(moved)?.copy_from_slice(source);
                missing -= moved;
                segment.offset += moved;
                segment.length -= moved;
            }
            if missing > 0 || segment.length == 0 {
                pool.release_frame(segment.frame);
            } else {
                self.push_segment(segment);
            }
        }
        Ok(())
    }

    /// Splits the packet at byte `at`: `self` keeps the bytes before, the result has the bytes after.
    ///
    /// Whole frames move; the part of a frame that is split is copied into a new one.
    ///
    /// # Errors
    /// [`NoRoom::Short`] if the packet is shorter, [`NoRoom::Back`] if the pool is empty; nothing is changed
    /// then.
    pub fn split_off(&mut self, at: usize, pool: &mut Pool) -> Result<Self, NoRoom> {
        if at > self.len() {
            return Err(NoRoom::Short);
        }
        let mut after = Self::new(pool.take().ok_or(NoRoom::Back)?);
        self.forget_headers();
        after.take_metadata_of(self);
        after.wire_packets = 1;
        let mut position = usize::from(self.length);
        if at < position {
            let cut = u16::try_from(at).map_err(|_| NoRoom::Short)?;
            let (kept, moved) = (cut, self.length - cut);
            let room = after.head.slot_bytes() - u32::from(moved);
            after.offset = after.offset.min(u16::try_from(room).unwrap_or(u16::MAX));
            after.append(moved)?.copy_from_slice(&self.bytes()[usize::from(cut)..]);
            self.length = kept;
        }
        for segment in self.take_rest() {
            let end = position + usize::from(segment.length);
            if at >= end {
                self.push_segment(segment);
            } else if at <= position {
                after.push_segment(segment);
            } else {
                let kept = u16::try_from(at - position).map_err(|_| NoRoom::Short)?;
                let moved = segment.length - kept;
                let start = u32::from(segment.offset) + u32::from(kept);
                let room = after.head.slot_bytes() - u32::from(moved);
                after.offset = after.offset.min(u16::try_from(room).unwrap_or(u16::MAX));
                after.append(moved)?.copy_from_slice(table::slot(&segment.frame, start, u32::from(moved)));
                self.push_segment(Segment { length: kept, ..segment });
            }
            position = end;
        }
        Ok(after)
    }

    /// Appends the bytes of `other` without copying.
    pub fn join(&mut self, other: Self) {
        for segment in other.into_segments() {
            self.push_segment(segment);
        }
    }

    /// Appends one frame to the chain.
    ///
    /// # Panics
    /// If the segment exceeds its slot, or the chain would exceed [`CHAINED`](Self::CHAINED).
    ///
    /// Cost: a walk over the chain; chains are short.
    pub fn push_segment(&mut self, segment: Segment) {
        let Segment { ref frame, offset, length } = segment;
        assert!(u32::from(offset) + u32::from(length) <= frame.slot_bytes(), "data beyond its slot");
        self.forget_headers();
        self.rest_length = self.rest_length.checked_add(length).expect("a chain is no longer");
        let last = Some(Chain::of(segment));
        match &self.rest {
            None => self.rest = last,
            Some(chain) => chain.append(last),
        }
    }

    /// Iterates over the data of each frame, in order.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        let first = self.rest.as_ref().map(|Chain(first)| first);
        let mut at = first.map(Frame::place);
        let rest = core::iter::from_fn(move || {
            let place = at?;
            let link = table::link(place);
            let (offset, length) = link.extent();
            at = link.next();
            Some(table::chained_slot(first?, place, offset, length))
        });
        core::iter::once(self.bytes()).chain(rest)
    }

    /// Number of frames.
    pub fn segment_count(&self) -> usize {
        self.segments().count()
    }

    /// Number of unshared slots of `region` in the packet; fragments do not count.
    pub fn slots_of(&self, region: NonZeroU16) -> u64 {
        let is_one = |place: BufferAddress| place.region() == region.get() && !place.is_shared();
        let head = u64::from(is_one(self.head.place()));
        let Some(Chain(first)) = &self.rest else { return head };
        let chained = core::iter::successors(Some(first.place()), |&place| table::link(place).next());
        chained.fold(head, |slots, place| slots + u64::from(is_one(place)))
    }

    /// Copies bytes from `offset` on into `target`; returns their number.
    pub fn copy_out(&self, offset: usize, target: &mut [u8]) -> usize {
        let (mut skip, mut written) = (offset, 0);
        for segment in self.segments() {
            let from = skip.min(segment.len());
            skip -= from;
            let count = (segment.len() - from).min(target.len() - written);
            target[written..written + count].copy_from_slice(&segment[from..from + count]);
            written += count;
        }
        written
    }

    /// Disassembles the packet into its frames, in order.
    pub fn into_segments(self) -> Segments {
        let Self { head, rest, offset, length, .. } = self;
        Segments { head: Some(Segment { frame: head, offset, length }), rest }
    }

    /// Appends a copy of `bytes` in new frames.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn push_copy(&mut self, mut bytes: &[u8], pool: &mut Pool) -> Result<(), NoRoom> {
        while !bytes.is_empty() {
            let mut frame = pool.take().ok_or(NoRoom::Back)?;
            let fits = bytes.len().min(frame.slot_bytes() as usize);
            let (here, there) = bytes.split_at(fits);
            frame.slot_mut()[..fits].copy_from_slice(here);
            let length = u16::try_from(fits).map_err(|_| NoRoom::Back)?;
            self.push_segment(Segment { frame, offset: 0, length });
            bytes = there;
        }
        Ok(())
    }

    /// Releases all frames after the head.
    fn release_rest(&mut self, pool: &mut Pool) {
        for segment in self.take_rest() {
            pool.release_frame(segment.frame);
        }
    }

    pub(super) fn take_rest(&mut self) -> Segments {
        self.rest_length = 0;
        Segments { head: None, rest: self.rest.take() }
    }
}

/// Frames of a disassembled packet, in order.
///
/// Dropping it drops the remaining frames.
#[derive(Debug)]
pub struct Segments {
    head: Option<Segment>,
    rest: Option<Chain>,
}

impl Iterator for Segments {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        if let Some(head) = self.head.take() {
            return Some(head);
        }
        let frame = self.rest.take()?.into_first();
        let link = table::link(frame.place());
        let (offset, length) = link.extent();
        self.rest = link.next().map(|place| Chain(Frame::from_place(place)));
        Some(Segment { frame, offset, length })
    }
}

impl Chain {
    /// A chain of one frame.
    pub(super) fn of(segment: Segment) -> Self {
        Self::before(segment, None)
    }

    /// A chain of one frame, followed by `rest`.
    pub(super) fn before(segment: Segment, rest: Option<Self>) -> Self {
        let Segment { frame, offset, length } = segment;
        let link = table::link(frame.place());
        link.extent.store(u32::from(offset) << 16 | u32::from(length), Ordering::Relaxed);
        link.set_next(rest);
        Self(frame)
    }

    /// Links `more` after the last frame.
    pub(super) fn append(&self, more: Option<Self>) {
        let mut last = table::link(self.0.place());
        while let Some(next) = last.next() {
            last = table::link(next);
        }
        last.set_next(more);
    }

    /// Addresses of its frames, first to last.
    pub(super) fn places(&self) -> impl Iterator<Item = BufferAddress> {
        core::iter::successors(Some(self.0.place()), |&place| table::link(place).next())
    }

    /// Returns the first frame; the caller continues with its link.
    fn into_first(self) -> Frame {
        let place = self.0.place();
        core::mem::forget(self);
        Frame::from_place(place)
    }
}

impl Drop for Chain {
    #[cold]
    fn drop(&mut self) {
        // The first frame frees itself; later frames are reachable by links only.
        let mut next = table::link(self.0.place()).next();
        while let Some(place) = next {
            next = table::link(place).next();
            drop(Frame::from_place(place));
        }
    }
}

impl Link {
    fn next(&self) -> Option<BufferAddress> {
        BufferAddress::from_word(self.next.load(Ordering::Relaxed))
    }

    /// Links the frames of `next`, which from now on belong to this frame's owner.
    fn set_next(&self, next: Option<Chain>) {
        let word = next.map_or(0, |chain| chain.into_first().into_place().into_word());
        self.next.store(word, Ordering::Relaxed);
    }

    fn extent(&self) -> (u16, u16) {
        let [a, b, c, d] = self.extent.load(Ordering::Relaxed).to_be_bytes();
        (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Region, RegionOptions};

    fn region() -> Region {
        Region::new(RegionOptions { slots: 64, slot_bytes: 512 }).expect("memory for a test")
    }

    #[test]
    fn a_dropped_chain_comes_home_and_is_counted() {
        let region = region();
        let mut pool = region.pool();
        let packet = Packet::copy_from(&[7; 2000], &mut pool).expect("64 slots");
        assert_eq!(packet.segment_count(), 5);
        drop(packet);
        drop(pool);
        assert_eq!((region.free_slots(), region.late_frees()), (64, 5));
    }
}
