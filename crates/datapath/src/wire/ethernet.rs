//! Ethernet II (IEEE 802.3).

use super::field::{bytes_at, put, u16_at};
use super::{MacAddress, TooShort};
use crate::drops::DropReason;
use core::fmt;

/// Offsets of the fields, in wire order.
mod field {
    pub(super) const DESTINATION: usize = 0;
    pub(super) const SOURCE: usize = 6;
    pub(super) const ETHER_TYPE: usize = 12;
}

/// Type field of an Ethernet header or tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// ARP.
    pub const ARP: Self = Self(0x0806);
    /// Transparent Ethernet bridging: an Ethernet frame in GRE (RFC 1701).
    pub const TRANSPARENT_ETHERNET: Self = Self(0x6558);
    /// An 802.1Q customer tag.
    pub const VLAN: Self = Self(0x8100);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
    /// An 802.1ad service tag.
    pub const SERVICE_VLAN: Self = Self(0x88a8);

    /// True if a VLAN tag follows.
    #[inline]
    pub const fn is_tag(self) -> bool {
        matches!(self, Self::VLAN | Self::SERVICE_VLAN)
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#06x}", self.0)
    }
}

/// A received Ethernet frame, FCS excluded.
#[derive(Clone, Copy, Debug)]
pub struct Ethernet<'a> {
    header: &'a [u8; Ethernet::HEADER_BYTES],
    payload: &'a [u8],
}

impl<'a> Ethernet<'a> {
    /// Bytes of the header.
    pub const HEADER_BYTES: usize = 14;

    /// Checks the frame's length.
    ///
    /// # Errors
    /// [`DropReason::EthernetTruncated`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (header, payload) = bytes.split_first_chunk().ok_or(DropReason::EthernetTruncated)?;
        Ok(Self { header, payload })
    }

    /// Destination address.
    #[inline]
    pub fn destination(&self) -> MacAddress {
        MacAddress(bytes_at::<{ field::DESTINATION }, _, _>(self.header))
    }

    /// Source address.
    #[inline]
    pub fn source(&self) -> MacAddress {
        MacAddress(bytes_at::<{ field::SOURCE }, _, _>(self.header))
    }

    /// Type of the payload: a protocol, a tag, or a length.
    #[inline]
    pub fn ether_type(&self) -> EtherType {
        EtherType(u16_at::<{ field::ETHER_TYPE }, _>(self.header))
    }

    /// The bytes after the header, padding included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// An Ethernet header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetHeader {
    /// Destination address.
    pub destination: MacAddress,
    /// Source address.
    pub source: MacAddress,
    /// Type of the payload.
    pub ether_type: EtherType,
}

impl EthernetHeader {
    /// Writes the header and returns the bytes after it.
    ///
    /// # Errors
    /// [`TooShort`]; nothing is written then.
    #[inline]
    pub fn emit(self, bytes: &mut [u8]) -> Result<&mut [u8], TooShort> {
        let (header, rest) = bytes.split_first_chunk_mut::<{ Ethernet::HEADER_BYTES }>().ok_or(TooShort)?;
        put::<{ field::DESTINATION }, _, _>(header, self.destination.0);
        put::<{ field::SOURCE }, _, _>(header, self.source.0);
        put::<{ field::ETHER_TYPE }, _, _>(header, self.ether_type.0.to_be_bytes());
        Ok(rest)
    }
}
