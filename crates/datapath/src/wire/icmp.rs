//! ICMP (RFC 792).

use super::TooShort;
use super::checksum::Checksum;
use super::field::{put, u8_at, u16_at, u32_at};
use crate::drops::DropReason;

/// Offsets of the fields, in wire order.
mod field {
    pub(super) const KIND: usize = 0;
    pub(super) const CODE: usize = 1;
    pub(super) const CHECKSUM: usize = 2;
    pub(super) const REST: usize = 4;
}

/// A received ICMP message.
#[derive(Clone, Copy, Debug)]
pub struct Icmp<'a> {
    header: &'a [u8; Icmp::HEADER_BYTES],
    payload: &'a [u8],
}

impl<'a> Icmp<'a> {
    /// Bytes of the header.
    pub const HEADER_BYTES: usize = 8;
    /// Type: echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Type: destination unreachable.
    pub const UNREACHABLE: u8 = 3;
    /// Type: echo request.
    pub const ECHO_REQUEST: u8 = 8;
    /// Type: time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Type: parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 12;
    /// Code of [`Icmp::UNREACHABLE`]: fragmentation needed; the MTU is in the lower half of
    /// [`Icmp::rest`] (RFC 1191).
    pub const FRAGMENTATION_NEEDED: u8 = 4;

    /// Checks the message's length.
    ///
    /// # Errors
    /// [`DropReason::IcmpTruncated`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (header, payload) = bytes.split_first_chunk().ok_or(DropReason::IcmpTruncated)?;
        Ok(Self { header, payload })
    }

    /// Checks the checksum of a contiguous message.
    ///
    /// # Errors
    /// [`DropReason::IcmpBadChecksum`].
    #[inline]
    pub fn verify(&self) -> Result<(), DropReason> {
        let sum = Checksum::new().with(self.header).with(self.payload);
        if sum.is_valid() { Ok(()) } else { Err(DropReason::IcmpBadChecksum) }
    }

    /// Type of the message.
    #[inline]
    pub fn kind(&self) -> u8 {
        u8_at::<{ field::KIND }, _>(self.header)
    }

    /// Code of the message.
    #[inline]
    pub fn code(&self) -> u8 {
        u8_at::<{ field::CODE }, _>(self.header)
    }

    /// The checksum field, unverified.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at::<{ field::CHECKSUM }, _>(self.header)
    }

    /// The second four bytes of the header, whose meaning depends on the type.
    #[inline]
    pub fn rest(&self) -> u32 {
        u32_at::<{ field::REST }, _>(self.header)
    }

    /// True if the message reports an error, which must not be answered with an ICMP error (RFC 1122, 3.2.2);
    /// redirect and source quench count as errors.
    #[inline]
    pub fn is_error(&self) -> bool {
        matches!(self.kind(), Self::UNREACHABLE | 4 | 5 | Self::TIME_EXCEEDED | Self::PARAMETER_PROBLEM)
    }

    /// The bytes after the header: in an error message, the start of the offending packet.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// An ICMP or ICMPv6 header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpHeader {
    /// Type of the message.
    pub kind: u8,
    /// Code of the message.
    pub code: u8,
    /// The second four bytes of the header.
    pub rest: u32,
}

impl IcmpHeader {
    /// Writes the header, with checksum, of the message that fills `bytes` and whose payload is in place;
    /// returns the payload.
    ///
    /// # Errors
    /// [`TooShort`]; nothing is written then.
    pub fn emit(self, bytes: &mut [u8]) -> Result<&mut [u8], TooShort> {
        self.put(bytes, [0, 0])?;
        let checksum = Checksum::of(bytes);
        self.put(bytes, checksum.to_be_bytes())
    }

    /// Writes the header with the given checksum.
    pub(super) fn put(self, bytes: &mut [u8], checksum: [u8; 2]) -> Result<&mut [u8], TooShort> {
        let (header, payload) = bytes.split_first_chunk_mut::<{ Icmp::HEADER_BYTES }>().ok_or(TooShort)?;
        put::<{ field::KIND }, _, _>(header, [self.kind]);
        put::<{ field::CODE }, _, _>(header, [self.code]);
        put::<{ field::CHECKSUM }, _, _>(header, checksum);
        put::<{ field::REST }, _, _>(header, self.rest.to_be_bytes());
        Ok(payload)
    }
}
