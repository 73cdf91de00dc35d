//! The name of one piece of memory.

use super::address::BufferAddress;
use core::num::NonZeroU16;

/// One slot of a [`Region`](crate::Region) or one piece of a
/// [`FragmentMemory`](crate::FragmentMemory), owned: moving the frame moves the bytes.
///
/// Eight bytes, as is `Option<Frame>`. Frames are released in bulk through a
/// [`Pool`](crate::Pool); dropping one is a counted safety net that sends it home.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    pub(super) place: BufferAddress,
}

const _: () = assert!(size_of::<Frame>() == 8 && size_of::<Option<Frame>>() == 8);

impl Frame {
    /// Names `place`. The caller gives up every other name of it.
    #[inline]
    pub(crate) fn from_place(place: BufferAddress) -> Self {
        Self { place }
    }

    /// Ends the frame without sending its bytes home; the caller takes them over.
    #[inline]
    pub(crate) fn into_place(self) -> BufferAddress {
        let place = self.place;
        core::mem::forget(self);
        place
    }

    /// Address of its bytes.
    #[inline(always)]
    pub(crate) fn place(&self) -> BufferAddress {
        self.place
    }

    /// The number of its first unit in its region, from 0: of the slot, when the region has slots. A
    /// shared frame has a number behind all units, which is its own.
    #[inline]
    pub fn index(&self) -> u32 {
        self.place.index()
    }

    /// The identity of the region that it belongs to.
    #[inline]
    pub fn region(&self) -> NonZeroU16 {
        // A place is made with a region, which is not 0.
        NonZeroU16::new(self.place.region()).unwrap_or(NonZeroU16::MIN)
    }

    /// True if it is one of several names of its bytes, which are read-only then.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.place.is_shared()
    }
}
