//! The only live name of one piece of memory.

use crate::table;
use core::num::{NonZeroU16, NonZeroU32, NonZeroU64};

/// One slot of a [`Region`](crate::Region) or one piece of a
/// [`FragmentMemory`](crate::FragmentMemory), owned: moving the frame moves the bytes.
///
/// Eight bytes, as is `Option<Frame>`. Frames are released in bulk through a
/// [`Pool`](crate::Pool); dropping one is a counted safety net that sends it home.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    place: BufferAddress,
}

/// A run of units of one region; names bytes without owning them.
///
/// One word, so that it is moved, compared and copied in bulk as one: the region in the lowest 8 bits,
/// 8 bits for the class of a slot, 15 for the number of units (1 for a slot), one for a name that is
/// not the only one, 32 for the first unit, or for the number of that name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferAddress(NonZeroU64);

/// The sign of the number of units: set, the frame is one of several names of its bytes.
const SHARED: u64 = 1 << 31;
/// The bits of the region.
const REGION: u64 = 0xff;

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

    /// What it names.
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

    /// Whether it was made one of several names of its bytes, which nobody writes any more.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.place.is_shared()
    }

    /// Another name of the same bytes; from here on nobody writes them. `None` when the region has no
    /// names left: it has [`SHARED_FRAMES`](crate::SHARED_FRAMES).
    ///
    /// The bytes go home with the last name, whoever releases it.
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

#[expect(clippy::cast_possible_truncation, reason = "the parts of a word")]
impl BufferAddress {
    /// `units` units of `region` from `index`.
    #[inline(always)]
    pub(crate) fn new(region: NonZeroU16, units: u16, index: u32) -> Self {
        Self(NonZeroU64::from(region) | (u64::from(index) << 32 | u64::from(units) << 16))
    }

    #[inline(always)]
    pub(crate) fn region(self) -> u16 {
        self.0.get() as u16 & 0xff
    }

    #[inline(always)]
    pub(crate) fn units(self) -> u32 {
        u32::from((self.0.get() >> 16) as u16 & 0x7fff)
    }

    /// The number of units when it is the only name of them; else less than 0, so that a comparison
    /// with it tells both.
    #[inline(always)]
    pub(crate) fn own_units(self) -> i64 {
        i64::from((self.0.get() >> 16) as i16)
    }

    /// Whether it is not the only name of its units.
    #[inline(always)]
    pub(crate) fn is_shared(self) -> bool {
        self.0.get() & SHARED != 0
    }

    /// Name `number` of the same units, which has others beside it.
    pub(crate) fn with_name(self, number: u32) -> Self {
        let word = u64::from(self.kind()) | SHARED | u64::from(number) << 32;
        Self::from_word(word).expect("a place is made with a region, which is not 0")
    }

    #[inline(always)]
    pub(crate) fn index(self) -> u32 {
        (self.0.get() >> 32) as u32
    }

    /// All but the number of the first unit.
    #[inline(always)]
    pub(crate) fn kind(self) -> u32 {
        self.0.get() as u32
    }

    /// Zero when a place is of `region` and its only name; for looking at many at a time.
    #[inline(always)]
    pub(crate) fn difference(self, region: NonZeroU16) -> u64 {
        (self.0.get() ^ u64::from(region.get())) & (SHARED | REGION)
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

/// What all slots of one class of a region have in common: everything but their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotKind(NonZeroU32);

impl SlotKind {
    /// Slots of `region`; control slots have another kind than data slots.
    pub(crate) fn new(region: NonZeroU16, is_control: bool) -> Self {
        debug_assert!(region.get() < 256, "the table has 255 regions");
        Self(NonZeroU32::from(region) | (u32::from(is_control) << 8 | 1 << 16))
    }

    /// Slot `index` of the kind.
    #[inline(always)]
    pub(crate) fn slot(self, index: u32) -> BufferAddress {
        BufferAddress(NonZeroU64::from(self.0) | u64::from(index) << 32)
    }

    /// Whether a place is a slot of this kind.
    #[inline(always)]
    pub(crate) fn has(self, place: BufferAddress) -> bool {
        place.kind() == self.0.get()
    }

    /// Zero when a place is a slot of this kind; for looking at many at a time.
    #[inline(always)]
    pub(crate) fn difference(self, place: BufferAddress) -> u32 {
        place.kind() ^ self.0.get()
    }
}

impl core::fmt::Debug for BufferAddress {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "{}+{} of region {}", self.index(), self.units(), self.region())
    }
}
