//! The only live name of one piece of memory.

use crate::table;
use core::num::NonZeroU16;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Place {
    pub(crate) region: NonZeroU16,
    /// Length in units of the region: 1 for a slot.
    pub(crate) units: u16,
    /// The first unit.
    pub(crate) index: u32,
}

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
        Self { place: Place { region, units: 1, index } }
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
        self.place.index
    }

    /// The identity of the region that it belongs to.
    #[inline]
    pub fn region(&self) -> NonZeroU16 {
        self.place.region
    }

    /// Its size in bytes.
    #[inline]
    pub fn slot_bytes(&self) -> u32 {
        u32::from(self.place.units) << table::unit_shift(self.place.region)
    }

    /// The distance of its first byte from the start of its region, in bytes.
    #[inline]
    pub fn offset_in_region(&self) -> u64 {
        u64::from(self.place.index) << table::unit_shift(self.place.region)
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

impl Place {
    /// The place in one word, which is never 0.
    #[inline]
    pub(crate) fn into_word(self) -> u64 {
        u64::from(self.index) << 32 | u64::from(self.units) << 16 | u64::from(self.region.get())
    }

    /// The place that was put into `word`; `None` for 0.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the parts of a word")]
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let region = NonZeroU16::new(word as u16)?;
        Some(Self { region, units: (word >> 16) as u16, index: (word >> 32) as u32 })
    }
}
