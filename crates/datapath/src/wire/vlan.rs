//! VLAN tags (IEEE 802.1Q, 9.6), which follow EtherType 0x8100 or 0x88a8.

use super::field::{put, u16_at};
use super::{EtherType, Ethernet, TooShort};
use crate::drops::DropReason;
use core::fmt;

/// Offsets of the fields, in wire order.
mod field {
    pub(super) const CONTROL: usize = 0;
    pub(super) const ETHER_TYPE: usize = 2;
}

/// Length in bytes of the two MAC addresses before the tag.
const ADDRESSES: usize = 12;

/// VLAN number: 1 to 4094, or 0 for a priority tag.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VlanId(u16);

impl VlanId {
    /// Number 0: the tag has a priority and no VLAN.
    pub const PRIORITY: Self = Self(0);
    /// VLAN of ports by default.
    pub const DEFAULT: Self = Self(1);
    /// The highest VLAN; 4095 is reserved.
    pub const HIGHEST: Self = Self(4094);

    /// VLAN `number`, 0 included; `None` above 4094.
    pub const fn new(number: u16) -> Option<Self> {
        if number <= Self::HIGHEST.0 { Some(Self(number)) } else { None }
    }

    /// VLAN that a configuration may name, 1 to 4094; `None` for another number.
    pub const fn configured(number: u16) -> Option<Self> {
        if number == 0 { None } else { Self::new(number) }
    }

    /// The number.
    #[inline(always)]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

impl fmt::Debug for VlanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

/// A received tag and the bytes after it.
#[derive(Clone, Copy, Debug)]
pub struct Vlan<'a> {
    header: &'a [u8; Vlan::HEADER_BYTES],
    payload: &'a [u8],
}

impl<'a> Vlan<'a> {
    /// Length of a tag in bytes: control information and the EtherType after it.
    pub const HEADER_BYTES: usize = 4;

    /// Checks that `bytes`, which follow a tag's EtherType, contain a tag.
    ///
    /// # Errors
    /// [`DropReason::VlanTruncated`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (header, payload) = bytes.split_first_chunk().ok_or(DropReason::VlanTruncated)?;
        Ok(Self { header, payload })
    }

    #[inline(always)]
    fn control(&self) -> u16 {
        u16_at::<{ field::CONTROL }, _>(self.header)
    }

    /// The VLAN; `None` for the reserved number 4095.
    #[inline]
    pub fn id(&self) -> Option<VlanId> {
        VlanId::new(self.control() & 0x0fff)
    }

    /// Priority code point, 0 to 7.
    #[inline]
    pub fn priority(&self) -> u8 {
        self.control().to_be_bytes()[0] >> 5
    }

    /// Drop eligible indicator.
    #[inline]
    pub fn drop_eligible(&self) -> bool {
        self.control() & 0x1000 != 0
    }

    /// Type of the payload: a protocol, a further tag, or a length.
    #[inline]
    pub fn ether_type(&self) -> EtherType {
        EtherType(u16_at::<{ field::ETHER_TYPE }, _>(self.header))
    }

    /// The bytes after the tag, padding included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A tag to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag {
    /// [`EtherType::VLAN`] or [`EtherType::SERVICE_VLAN`].
    pub kind: EtherType,
    /// The VLAN.
    pub id: VlanId,
    /// Priority code point; only the lower three bits are used.
    pub priority: u8,
    /// Drop eligible indicator.
    pub drop_eligible: bool,
}

impl VlanTag {
    /// A customer tag of priority 0.
    pub const fn customer(id: VlanId) -> Self {
        Self { kind: EtherType::VLAN, id, priority: 0, drop_eligible: false }
    }

    #[inline]
    fn control(self) -> u16 {
        u16::from(self.priority & 7) << 13 | u16::from(self.drop_eligible) << 12 | self.id.get()
    }
}

/// Inserts a tag into a frame: `bytes` starts with four free bytes, then the frame.
///
/// # Errors
/// [`TooShort`] if no Ethernet header follows the free bytes; nothing is written then.
///
/// Cost: twelve bytes are moved.
#[inline]
pub fn push_tag(bytes: &mut [u8], tag: VlanTag) -> Result<(), TooShort> {
    const ROOM: usize = Vlan::HEADER_BYTES;
    let header = bytes.first_chunk_mut::<{ ROOM + Ethernet::HEADER_BYTES }>().ok_or(TooShort)?;
    header.copy_within(ROOM..ROOM + ADDRESSES, 0);
    put::<ADDRESSES, _, _>(header, tag.kind.0.to_be_bytes());
    put::<{ ADDRESSES + 2 }, _, _>(header, tag.control().to_be_bytes());
    Ok(())
}

/// Removes the outer tag of a frame; the frame then starts four bytes later.
///
/// The caller has parsed the tag ([`Link::parse`](super::Link::parse)).
///
/// # Errors
/// [`TooShort`] if the frame is shorter than a header with tag; nothing is written then.
///
/// Cost: twelve bytes are moved.
#[inline]
pub fn pop_tag(bytes: &mut [u8]) -> Result<(), TooShort> {
    let header =
        bytes.first_chunk_mut::<{ Ethernet::HEADER_BYTES + Vlan::HEADER_BYTES }>().ok_or(TooShort)?;
    header.copy_within(0..ADDRESSES, Vlan::HEADER_BYTES);
    Ok(())
}
