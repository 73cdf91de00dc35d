//! Buffer address: a run of units in a region, in one word.

use core::num::{NonZeroU16, NonZeroU32, NonZeroU64};

/// A run of units of one region; does not own them.
///
/// One word, so that it is moved, compared and copied in bulk: bits 0 to 7 region, 8 to 15 class of a slot,
/// 16 to 30 number of units (1 for a slot), 31 set for an alias, 32 to 63 first unit, or number of the alias.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferAddress(NonZeroU64);

/// Set if the frame is one of several aliases of its bytes.
const SHARED: u64 = 1 << 31;
/// Mask of the region.
const REGION: u64 = 0xff;

#[expect(clippy::cast_possible_truncation, reason = "the parts of a word")]
impl BufferAddress {
    /// Address of `units` units of `region` from `index`.
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

    /// Number of units if the frame is their only owner; negative for an alias, so that one comparison checks
    /// both.
    #[inline(always)]
    pub(crate) fn own_units(self) -> i64 {
        i64::from((self.0.get() >> 16) as i16)
    }

    /// True for an alias.
    #[inline(always)]
    pub(crate) fn is_shared(self) -> bool {
        self.0.get() & SHARED != 0
    }

    /// Alias number `number` of the same units.
    pub(crate) fn with_name(self, number: u32) -> Self {
        let word = u64::from(self.kind()) | SHARED | u64::from(number) << 32;
        Self::from_word(word).expect("a place is made with a region, which is not 0")
    }

    #[inline(always)]
    pub(crate) fn index(self) -> u32 {
        (self.0.get() >> 32) as u32
    }

    /// All fields except the first unit.
    #[inline(always)]
    pub(crate) fn kind(self) -> u32 {
        self.0.get() as u32
    }

    /// Zero if the address belongs to `region` and is no alias; for checking many at a time.
    #[inline(always)]
    pub(crate) fn difference(self, region: NonZeroU16) -> u64 {
        (self.0.get() ^ u64::from(region.get())) & (SHARED | REGION)
    }

    /// The word, which is never 0.
    #[inline(always)]
    pub(crate) fn into_word(self) -> u64 {
        self.0.get()
    }

    /// Address of a word; `None` for 0.
    #[inline(always)]
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        NonZeroU64::new(word).map(Self)
    }
}

/// Kind of a slot: all fields of a buffer address except the slot's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotKind(NonZeroU32);

impl SlotKind {
    /// Kind of the slots of `region`; control and data slots differ.
    pub(crate) fn new(region: NonZeroU16, is_control: bool) -> Self {
        debug_assert!(region.get() < 256, "the table has 255 regions");
        Self(NonZeroU32::from(region) | (u32::from(is_control) << 8 | 1 << 16))
    }

    /// Address of slot `index`.
    #[inline(always)]
    pub(crate) fn slot(self, index: u32) -> BufferAddress {
        BufferAddress(NonZeroU64::from(self.0) | u64::from(index) << 32)
    }

    /// True if the address is a slot of this kind.
    #[inline(always)]
    pub(crate) fn has(self, place: BufferAddress) -> bool {
        place.kind() == self.0.get()
    }

    /// Zero if the address is a slot of this kind; for checking many at a time.
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
