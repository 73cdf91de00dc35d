//! The only live name of one piece of memory, and the table by which it finds its bytes.

mod address;
mod aliases;
pub(crate) mod table;

pub(crate) use address::{BufferAddress, SlotKind};
pub use aliases::SHARED_FRAMES;

use core::num::NonZeroU16;

/// One slot of a [`Region`](crate::Region) or one piece of a
/// [`FragmentMemory`](crate::FragmentMemory), owned: moving the frame moves the bytes.
///
/// Eight bytes, as is `Option<Frame>`. Frames are released in bulk through a
/// [`Pool`](crate::Pool); dropping one is a counted safety net that sends it home.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    place: BufferAddress,
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

    /// Its size in bytes.
    #[inline]
    pub fn slot_bytes(&self) -> u32 {
        self.place.units() << table::unit_shift(self.place.region())
    }

    /// The distance of its first byte from the start of its region, in bytes.
    #[inline]
    pub fn offset_in_region(&self) -> u64 {
        let place = if self.is_shared() { table::target(self.place) } else { self.place };
        u64::from(place.index()) << table::unit_shift(place.region())
    }

    /// True if it is one of several names of its bytes, which are read-only then.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.place.is_shared()
    }

    /// Another name of the same bytes; from here on nobody writes them. `None` when the region has no
    /// names left: it has [`SHARED_FRAMES`](crate::SHARED_FRAMES).
    ///
    /// The bytes go back to their pool with the last alias.
    ///
    /// Cost: two operations on a shared line for a name that is new, one for the count.
    pub fn share(&mut self) -> Option<Self> {
        if let Some(place) = self.is_shared().then(|| table::share_again(self.place)) {
            return place.map(Self::from_place);
        }
        let (mine, other) = table::share(self.place)?;
        self.place = mine;
        Some(Self::from_place(other))
    }

    /// The frame as the only name of its bytes again, which may be written.
    ///
    /// # Errors
    /// The frame itself as long as it has other names.
    pub fn into_own(self) -> Result<Self, Self> {
        if !self.is_shared() {
            return Ok(self);
        }
        match table::end_sharing(self.place) {
            Some(place) => {
                core::mem::forget(self);
                Ok(Self::from_place(place))
            }
            None => Err(self),
        }
    }

    /// All its bytes.
    #[inline]
    pub fn slot(&self) -> &[u8] {
        table::slot(self, 0, self.slot_bytes())
    }

    /// All its bytes, for writing.
    ///
    /// # Panics
    /// When the frame is shared.
    #[inline]
    pub fn slot_mut(&mut self) -> &mut [u8] {
        let length = self.slot_bytes();
        table::slot_mut(self, 0, length)
    }
}

impl Drop for Frame {
    #[cold]
    fn drop(&mut self) {
        table::send_stray_home(self.place);
    }
}
