//! The only live name of one piece of memory.

use crate::table;
use core::num::{NonZeroU16, NonZeroU64};

/// One slot of a [`Region`](crate::Region) or one piece of a
/// [`FragmentMemory`](crate::FragmentMemory), owned: moving the frame moves the bytes.
///
/// Eight bytes, as is `Option<Frame>`. Frames are released in bulk through a
/// [`Pool`](crate::Pool); dropping one is a counted safety net that sends it home.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    place: Place,
}

/// A run of units of one region; names bytes without owning them.
///
/// One word, so that it is moved, compared and copied in bulk as one: the region in the lowest 16 bits,
/// then 16 bits for the number of units (1 for a slot), then 32 for the first of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(NonZeroU64);

const _: () = assert!(size_of::<Frame>() == 8 && size_of::<Option<Frame>>() == 8);

impl Frame {
    /// Names `place`. The caller gives up every other name of it.
    #[inline]
    pub(crate) fn from_place(place: Place) -> Self {
        Self { place }
    }

    /// Names slot `index` of region `region`. The caller gives up every other name of it.
    #[inline]
    pub(crate) fn from_slot(region: NonZeroU16, index: u32) -> Self {
        Self { place: Place::new(region, 1, index) }
    }

    /// Ends the frame without sending its bytes home; the caller takes them over.
    #[inline]
    pub(crate) fn into_place(self) -> Place {
        let place = self.place;
        core::mem::forget(self);
        place
    }

    /// What it names.
    #[inline(always)]
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// The number of its first unit in its region, from 0: of the slot, when the region has slots.
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
        u64::from(self.place.index()) << table::unit_shift(self.place.region())
    }

    /// All its bytes.
    #[inline]
    pub fn slot(&self) -> &[u8] {
        table::slot(self, 0, self.slot_bytes())
    }

    /// All its bytes, for writing.
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

#[expect(clippy::cast_possible_truncation, reason = "the parts of a word")]
impl Place {
    /// `units` units of `region` from `index`.
    #[inline(always)]
    pub(crate) fn new(region: NonZeroU16, units: u16, index: u32) -> Self {
        Self(NonZeroU64::from(region) | (u64::from(index) << 32 | u64::from(units) << 16))
    }

    #[inline(always)]
    pub(crate) fn region(self) -> u16 {
        self.0.get() as u16
    }

    #[inline(always)]
    pub(crate) fn units(self) -> u32 {
        u32::from((self.0.get() >> 16) as u16)
    }

    #[inline(always)]
    pub(crate) fn index(self) -> u32 {
        (self.0.get() >> 32) as u32
    }

    /// Region and units together, to be compared with those of another place.
    #[inline(always)]
    pub(crate) fn kind(self) -> u32 {
        self.0.get() as u32
    }

    /// The word, which is never 0.
    #[inline(always)]
    pub(crate) fn into_word(self) -> u64 {
        self.0.get()
    }

    /// The place of a word; `None` for 0.
    #[inline(always)]
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        NonZeroU64::new(word).map(Self)
    }
}

impl core::fmt::Debug for Place {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "{}+{} of region {}", self.index(), self.units(), self.region())
    }
}
