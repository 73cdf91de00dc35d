//! ICMPv6 (RFC 4443), neighbour discovery (RFC 4861) included as far as its kinds go.

use super::checksum::Pseudo;
use super::field::{u8_at, u16_at};
use super::icmp::IcmpHeader;
use super::{IpProtocol, TooShort};
use crate::drops::DropReason;

/// Offsets of the fields, in wire order.
mod field {
    pub(super) const KIND: usize = 0;
    pub(super) const CODE: usize = 1;
    pub(super) const CHECKSUM: usize = 2;
}

/// A received ICMPv6 message.
#[derive(Clone, Copy, Debug)]
pub struct Icmpv6<'a> {
    header: &'a [u8; Icmpv6::HEADER_BYTES],
    message: &'a [u8],
    body: &'a [u8],
}

impl<'a> Icmpv6<'a> {
    /// Bytes of the header that all kinds have (RFC 4443, 2.1).
    pub const HEADER_BYTES: usize = 4;
    /// Kind: destination unreachable.
    pub const UNREACHABLE: u8 = 1;
    /// Kind: packet too big; the MTU is in [`Icmpv6::rest`].
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Kind: time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Kind: parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Kind: echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Kind: echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Kind: neighbour solicitation.
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    /// Kind: neighbour advertisement.
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

    /// Checks the message's length.
    ///
    /// # Errors
    /// [`DropReason::IcmpTruncated`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (header, body) = bytes.split_first_chunk().ok_or(DropReason::IcmpTruncated)?;
        Ok(Self { header, message: bytes, body })
    }

    /// Checks the checksum of a message that is all in one place.
    ///
    /// # Errors
    /// [`DropReason::IcmpBadChecksum`].
    #[inline]
    pub fn verify(&self, pseudo: Pseudo) -> Result<(), DropReason> {
        let sum = pseudo.sum_over(IpProtocol::ICMPV6, self.message);
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

    /// The checksum as it stands.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at::<{ field::CHECKSUM }, _>(self.header)
    }

    /// True if it reports an error, which must not be answered with one (RFC 4443, 2.4).
    #[inline]
    pub fn is_error(&self) -> bool {
        self.kind() < Self::ECHO_REQUEST
    }

    /// The four bytes behind the header, which most kinds have.
    #[inline]
    pub fn rest(&self) -> Option<u32> {
        self.body.first_chunk().map(|&rest| u32::from_be_bytes(rest))
    }

    /// The bytes behind the header, [`Icmpv6::rest`] included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.body
    }
}

impl IcmpHeader {
    /// Writes the header of the ICMPv6 message that fills `bytes`, its payload in place, with its checksum,
    /// and returns the bytes behind [`IcmpHeader::rest`].
    ///
    /// # Errors
    /// [`TooShort`]; nothing is written then.
    pub fn emit_v6(self, bytes: &mut [u8], pseudo: Pseudo) -> Result<&mut [u8], TooShort> {
        self.put(bytes, [0, 0])?;
        let checksum = pseudo.sum_over(IpProtocol::ICMPV6, bytes).finish();
        self.put(bytes, checksum.to_be_bytes())
    }
}
