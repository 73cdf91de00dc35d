//! The frame type.

use super::address::BufferAddress;
use core::num::NonZeroU16;

/// Owner of one slot of a [`Region`](crate::Region) or one fragment of a
/// [`FragmentMemory`](crate::FragmentMemory): moving the frame moves the buffer.
///
/// Eight bytes, also as `Option<Frame>`. Frames are released in bulk through a [`Pool`](crate::Pool);
/// dropping a frame frees the buffer too and is counted as late free.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    pub(super) place: BufferAddress,
}

const _: () = assert!(size_of::<Frame>() == 8 && size_of::<Option<Frame>>() == 8);

impl Frame {
    /// Creates the frame at an address; the caller gives up every other frame at that address.
    #[inline]
    pub(crate) fn from_place(place: BufferAddress) -> Self {
        Self { place }
    }

    /// Ends the frame without freeing the buffer; the caller takes it over.
    #[inline]
    pub(crate) fn into_place(self) -> BufferAddress {
        let place = self.place;
        core::mem::forget(self);
        place
    }

    /// Address of the buffer.
    #[inline(always)]
    pub(crate) fn place(&self) -> BufferAddress {
        self.place
    }

    /// Number of its first unit in the region, from 0; for a slot, the slot's number. A shared frame has an
    /// alias number beyond all units.
    #[inline]
    pub fn index(&self) -> u32 {
        self.place.index()
    }

    /// Identity of its region.
    #[inline]
    pub fn region(&self) -> NonZeroU16 {
        // An address always has a region, which is not 0.
        NonZeroU16::new(self.place.region()).unwrap_or(NonZeroU16::MIN)
    }

    /// True if the frame is one of several aliases; the bytes are then read-only.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.place.is_shared()
    }
}
