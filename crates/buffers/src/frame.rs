//! The only live name of one slot of memory.

use crate::region;
use core::num::NonZeroU16;

/// One slot of a [`Region`](crate::Region), owned: moving the frame moves the slot.
///
/// Eight bytes, as is `Option<Frame>`. Frames are released in bulk through a
/// [`Pool`](crate::Pool); dropping one is a counted safety net that sends the slot home.
#[derive(Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Frame {
    region: NonZeroU16,
    index: u32,
}

const _: () = assert!(size_of::<Frame>() == 8 && size_of::<Option<Frame>>() == 8);

impl Frame {
    /// Names slot `index` of region `region`. The caller gives up every other name of it.
    #[inline]
    pub(crate) fn from_parts(region: NonZeroU16, index: u32) -> Self {
        Self { region, index }
    }

    /// Ends the frame without sending the slot home; the caller takes over the slot.
    #[inline]
    pub(crate) fn into_index(self) -> u32 {
        let index = self.index;
        core::mem::forget(self);
        index
    }

    /// The number of the slot in its region, from 0.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The identity of the region that the slot belongs to.
    #[inline]
    pub fn region(&self) -> NonZeroU16 {
        self.region
    }

    /// The size of the slot in bytes.
    #[inline]
    pub fn slot_bytes(&self) -> u32 {
        region::slot_bytes(self.region)
    }

    /// The distance of the slot's first byte from the start of its region, in bytes.
    #[inline]
    pub fn offset_in_region(&self) -> u64 {
        u64::from(self.index) << region::slot_shift(self.region)
    }

    /// All bytes of the slot.
    #[inline]
    pub fn slot(&self) -> &[u8] {
        region::slot(self, 0, self.slot_bytes())
    }

    /// All bytes of the slot, for writing.
    #[inline]
    pub fn slot_mut(&mut self) -> &mut [u8] {
        let length = self.slot_bytes();
        region::slot_mut(self, 0, length)
    }
}

impl Drop for Frame {
    #[cold]
    fn drop(&mut self) {
        region::send_home(self.region, self.index);
    }
}
