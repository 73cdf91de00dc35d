//! The frames that the kernel holds: posting moves one in, completion moves it out.
//!
//! The kernel returns an address, not a frame. The table turns it back into a frame, once, and only if that
//! frame was posted; any other address is an error of the kernel or its driver.

use core::num::NonZeroU16;
use polder_buffers::{Frame, Packet, Region};

/// The posted frames of one direction of one queue, by slot.
#[derive(Debug)]
pub(super) struct Posted {
    frames: Box<[Option<Frame>]>,
    region: NonZeroU16,
    slot_shift: u32,
    count: u32,
}

impl Posted {
    /// Creates an empty table for the slots of `region`.
    pub(super) fn new(region: &Region) -> Self {
        let frames = (0..region.slots()).map(|_| None).collect();
        let slot_shift = region.slot_bytes().trailing_zeros();
        Self { frames, region: region.id(), slot_shift, count: 0 }
    }

    /// Returns the number of posted frames.
    #[inline(always)]
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of slots of the region.
    pub(super) fn slots(&self) -> usize {
        self.frames.len()
    }

    /// True if the packet lies in slots of the table's region.
    #[inline(always)]
    pub(super) fn knows(&self, packet: &Packet) -> bool {
        packet.lies_in(self.region)
    }

    /// Moves a frame in, and returns the address of its slot.
    ///
    /// # Errors
    /// The frame itself if it is of another region.
    #[inline(always)]
    pub(super) fn put(&mut self, frame: Frame) -> Result<u64, Frame> {
        let index = frame.index();
        let Some(place) = self.frames.get_mut(index as usize).filter(|_| frame.region() == self.region)
        else {
            return Err(frame);
        };
        debug_assert!(place.is_none(), "a frame is the only name of its slot");
        *place = Some(frame);
        self.count += 1;
        Ok(u64::from(index) << self.slot_shift)
    }

    /// Moves the frame at `address` out, with the address's offset in its slot.
    #[inline(always)]
    pub(super) fn take(&mut self, address: u64) -> Option<(Frame, u16)> {
        let index = usize::try_from(address >> self.slot_shift).ok()?;
        let frame = self.frames.get_mut(index)?.take()?;
        self.count -= 1;
        let within = address & ((1 << self.slot_shift) - 1);
        Some((frame, u16::try_from(within).unwrap_or(0)))
    }

    /// Moves all frames out.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.count = 0;
        self.frames.iter_mut().filter_map(Option::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_buffers::RegionOptions;

    #[test]
    fn only_what_was_posted_comes_out_and_only_once() {
        let region = Region::new(RegionOptions { slots: 8, slot_bytes: 2048 }).expect("memory for a test");
        let mut pool = region.pool();
        let mut posted = Posted::new(&region);
        let frame = pool.take().expect("8 slots");
        let index = frame.index();
        let address = posted.put(frame).expect("of this region");
        assert_eq!(address, u64::from(index) * 2048);
        for lie in [address + 2048, 8 * 2048, u64::MAX] {
            assert!(posted.take(lie).is_none(), "{lie}");
        }
        let (frame, within) = posted.take(address + 256).expect("it was posted");
        assert_eq!((frame.index(), within, posted.count()), (index, 256, 0));
        assert!(posted.take(address).is_none());
        pool.release_frame(frame);
        drop(pool);
        assert_eq!((region.free_slots(), region.late_frees()), (8, 0));
    }
}
