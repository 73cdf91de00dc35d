//! ICMPv6 (RFC 4443), with the message types of neighbour discovery (RFC 4861).

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
    /// Length in bytes of the header that all types share (RFC 4443, 2.1).
    pub const HEADER_BYTES: usize = 4;
    /// Type: destination unreachable.
    pub const UNREACHABLE: u8 = 1;
    /// Type: packet too big; the MTU is in [`Icmpv6::rest`].
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Type: time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Type: parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Type: echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Type: echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Type: neighbour solicitation.
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    /// Type: neighbour advertisement.
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

    /// Checks the checksum of a contiguous message.
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

    /// The checksum field, unverified.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at::<{ field::CHECKSUM }, _>(self.header)
    }

    /// True if the message reports an error, which must not be answered with an ICMPv6 error (RFC 4443, 2.4).
    #[inline]
    pub fn is_error(&self) -> bool {
        self.kind() < Self::ECHO_REQUEST
    }

    /// The four bytes after the header, which most types define; `None` if the message is shorter.
    #[inline]
    pub fn rest(&self) -> Option<u32> {
        self.body.first_chunk().map(|&rest| u32::from_be_bytes(rest))
    }

    /// The bytes after the header, [`Icmpv6::rest`] included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.body
    }
}

impl IcmpHeader {
    /// Writes the header, with checksum, of the ICMPv6 message that fills `bytes` and whose payload is in
    /// place; returns the bytes after [`IcmpHeader::rest`].
    ///
    /// # Errors
    /// [`TooShort`]; nothing is written then.
    pub fn emit_v6(self, bytes: &mut [u8], pseudo: Pseudo) -> Result<&mut [u8], TooShort> {
        self.put(bytes, [0, 0])?;
        let checksum = pseudo.sum_over(IpProtocol::ICMPV6, bytes).finish();
        self.put(bytes, checksum.to_be_bytes())
    }
}
