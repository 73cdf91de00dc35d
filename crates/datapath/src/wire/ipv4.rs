//! IPv4 (RFC 791).

use super::checksum::{Checksum, Pseudo, update_u16};
use super::field::{bytes_at, put, u8_at, u16_at};
use super::{IpProtocol, TooShort, TrafficClass};
use crate::drops::DropReason;
use std::net::Ipv4Addr;

/// Offsets of the fields, in wire order.
mod field {
    pub(super) const VERSION_LENGTH: usize = 0;
    pub(super) const TRAFFIC_CLASS: usize = 1;
    pub(super) const TOTAL_LENGTH: usize = 2;
    pub(super) const IDENTIFICATION: usize = 4;
    pub(super) const FRAGMENT: usize = 6;
    pub(super) const TIME_TO_LIVE: usize = 8;
    pub(super) const PROTOCOL: usize = 9;
    pub(super) const CHECKSUM: usize = 10;
    pub(super) const SOURCE: usize = 12;
    pub(super) const DESTINATION: usize = 16;
}

/// Fragment word: do not fragment.
const DONT_FRAGMENT: u16 = 0x4000;
/// Fragment word: more fragments follow.
const MORE_FRAGMENTS: u16 = 0x2000;
/// Fragment word: the offset, in units of eight bytes.
const OFFSET: u16 = 0x1fff;

/// A received IPv4 packet.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<'a> {
    header: &'a [u8; Ipv4::HEADER_BYTES],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ipv4<'a> {
    /// Bytes of the header without options.
    pub const HEADER_BYTES: usize = 20;

    /// Checks version and lengths.
    ///
    /// # Errors
    /// [`DropReason::Ipv4Truncated`], [`DropReason::Ipv4BadVersion`],
    /// [`DropReason::Ipv4BadHeaderLength`], [`DropReason::Ipv4BadTotalLength`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        Self::parse_head(bytes, bytes.len())
    }

    /// [`Ipv4::parse`] for the start of a packet that is `length` bytes long, link-layer padding included.
    /// The payload ends at the end of `bytes`.
    ///
    /// # Errors
    /// As [`Ipv4::parse`]; the header with its options must be in `bytes`.
    #[inline]
    pub fn parse_head(bytes: &'a [u8], length: usize) -> Result<Self, DropReason> {
        let (header, rest) = bytes.split_first_chunk().ok_or(DropReason::Ipv4Truncated)?;
        let first = u8_at::<{ field::VERSION_LENGTH }, _>(header);
        if first >> 4 != 4 {
            return Err(DropReason::Ipv4BadVersion);
        }
        let header_bytes = usize::from(first & 0x0f) * 4;
        let option_bytes =
            header_bytes.checked_sub(Self::HEADER_BYTES).ok_or(DropReason::Ipv4BadHeaderLength)?;
        let (options, rest) = rest.split_at_checked(option_bytes).ok_or(DropReason::Ipv4Truncated)?;
        let total_bytes = usize::from(u16_at::<{ field::TOTAL_LENGTH }, _>(header));
        let payload_bytes = total_bytes.checked_sub(header_bytes).ok_or(DropReason::Ipv4BadTotalLength)?;
        if total_bytes > length {
            return Err(DropReason::Ipv4BadTotalLength);
        }
        let payload = rest.get(..payload_bytes).unwrap_or(rest);
        Ok(Self { header, options, payload })
    }

    /// Checks the header's checksum.
    ///
    /// # Errors
    /// [`DropReason::Ipv4BadChecksum`].
    #[inline]
    pub fn verify(&self) -> Result<(), DropReason> {
        let mut sum = Checksum::of_header(self.header);
        if !self.options.is_empty() {
            sum.add(self.options);
        }
        if sum.is_valid() { Ok(()) } else { Err(DropReason::Ipv4BadChecksum) }
    }

    /// Bytes of the header, options included.
    #[inline]
    pub fn header_bytes(&self) -> usize {
        Self::HEADER_BYTES + self.options.len()
    }

    /// DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> TrafficClass {
        TrafficClass(u8_at::<{ field::TRAFFIC_CLASS }, _>(self.header))
    }

    /// Length of header and payload in bytes, as stated in the header.
    #[inline]
    pub fn total_length(&self) -> u16 {
        u16_at::<{ field::TOTAL_LENGTH }, _>(self.header)
    }

    /// Identification, the same in all fragments of a datagram.
    #[inline]
    pub fn identification(&self) -> u16 {
        u16_at::<{ field::IDENTIFICATION }, _>(self.header)
    }

    #[inline(always)]
    fn fragment(&self) -> u16 {
        u16_at::<{ field::FRAGMENT }, _>(self.header)
    }

    /// True if routers must not fragment the packet.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.fragment() & DONT_FRAGMENT != 0
    }

    /// True if further fragments of the same datagram follow.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.fragment() & MORE_FRAGMENTS != 0
    }

    /// Bytes of the datagram's payload in earlier fragments: at most 65 528.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        (self.fragment() & OFFSET) << 3
    }

    /// True if the packet is a fragment of a datagram.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.fragment() & (MORE_FRAGMENTS | OFFSET) != 0
    }

    /// Number of routers that the packet may still pass.
    #[inline]
    pub fn time_to_live(&self) -> u8 {
        u8_at::<{ field::TIME_TO_LIVE }, _>(self.header)
    }

    /// Protocol of the payload; only the first fragment starts with that protocol's header.
    #[inline]
    pub fn protocol(&self) -> IpProtocol {
        IpProtocol(u8_at::<{ field::PROTOCOL }, _>(self.header))
    }

    /// The header checksum field, unverified.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at::<{ field::CHECKSUM }, _>(self.header)
    }

    /// Source address.
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        Ipv4Addr::from(bytes_at::<{ field::SOURCE }, 4, _>(self.header))
    }

    /// Destination address.
    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from(bytes_at::<{ field::DESTINATION }, 4, _>(self.header))
    }

    /// Pseudo-header for the payload's checksum.
    #[inline]
    pub fn pseudo(&self) -> Pseudo {
        Pseudo::V4 { source: self.source(), destination: self.destination() }
    }

    /// The options, unparsed.
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// The bytes after the header, up to the packet's total length.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// An IPv4 header without options, to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header {
    /// DSCP and ECN.
    pub traffic_class: TrafficClass,
    /// Length of header and payload in bytes.
    pub total_length: u16,
    /// Identification, the same in all fragments of a datagram.
    pub identification: u16,
    /// True if routers must not fragment the packet.
    pub dont_fragment: bool,
    /// True if further fragments of the same datagram follow.
    pub more_fragments: bool,
    /// Bytes of the datagram's payload in earlier fragments, rounded down to a multiple of eight.
    pub fragment_offset: u16,
    /// Number of routers that the packet may pass.
    pub time_to_live: u8,
    /// Protocol of the payload.
    pub protocol: IpProtocol,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

impl Ipv4Header {
    /// Writes the header with its checksum and returns the bytes after it.
    ///
    /// # Errors
    /// [`TooShort`]; nothing is written then.
    #[inline]
    pub fn emit(self, bytes: &mut [u8]) -> Result<&mut [u8], TooShort> {
        let (header, rest) = bytes.split_first_chunk_mut::<{ Ipv4::HEADER_BYTES }>().ok_or(TooShort)?;
        let mut fragment = self.fragment_offset >> 3;
        if self.dont_fragment {
            fragment |= DONT_FRAGMENT;
        }
        if self.more_fragments {
            fragment |= MORE_FRAGMENTS;
        }
        put::<{ field::VERSION_LENGTH }, _, _>(header, [0x45]);
        put::<{ field::TRAFFIC_CLASS }, _, _>(header, [self.traffic_class.0]);
        put::<{ field::TOTAL_LENGTH }, _, _>(header, self.total_length.to_be_bytes());
        put::<{ field::IDENTIFICATION }, _, _>(header, self.identification.to_be_bytes());
        put::<{ field::FRAGMENT }, _, _>(header, fragment.to_be_bytes());
        put::<{ field::TIME_TO_LIVE }, _, _>(header, [self.time_to_live]);
        put::<{ field::PROTOCOL }, _, _>(header, [self.protocol.0]);
        put::<{ field::CHECKSUM }, _, _>(header, [0, 0]);
        put::<{ field::SOURCE }, _, _>(header, self.source.octets());
        put::<{ field::DESTINATION }, _, _>(header, self.destination.octets());
        let checksum = Checksum::of_header(header).finish();
        put::<{ field::CHECKSUM }, _, _>(header, checksum.to_be_bytes());
        Ok(rest)
    }
}

/// An IPv4 header to be modified in place; the checksum is updated, and a wrong checksum stays wrong.
#[derive(Debug)]
pub struct Ipv4Mut<'a> {
    header: &'a mut [u8; Ipv4::HEADER_BYTES],
}

impl<'a> Ipv4Mut<'a> {
    /// Checks as [`Ipv4::parse_head`] does.
    ///
    /// # Errors
    /// As [`Ipv4::parse_head`].
    #[inline]
    pub fn parse_head(bytes: &'a mut [u8], length: usize) -> Result<Self, DropReason> {
        Ipv4::parse_head(bytes, length)?;
        Ok(Self { header: bytes.first_chunk_mut().ok_or(DropReason::Ipv4Truncated)? })
    }

    /// Checks as [`Ipv4::parse`] does.
    ///
    /// # Errors
    /// As [`Ipv4::parse`].
    #[inline]
    pub fn parse(bytes: &'a mut [u8]) -> Result<Self, DropReason> {
        let length = bytes.len();
        Self::parse_head(bytes, length)
    }

    /// Sets DSCP and ECN.
    #[inline]
    pub fn set_traffic_class(&mut self, traffic_class: TrafficClass) {
        let old = u16_at::<{ field::VERSION_LENGTH }, _>(self.header);
        put::<{ field::TRAFFIC_CLASS }, _, _>(self.header, [traffic_class.0]);
        self.update(old, u16_at::<{ field::VERSION_LENGTH }, _>(self.header));
    }

    /// Sets the length of header and payload in bytes.
    #[inline]
    pub fn set_total_length(&mut self, total_length: u16) {
        let old = u16_at::<{ field::TOTAL_LENGTH }, _>(self.header);
        put::<{ field::TOTAL_LENGTH }, _, _>(self.header, total_length.to_be_bytes());
        self.update(old, total_length);
    }

    /// Sets the identification, which all fragments of a datagram share.
    #[inline]
    pub fn set_identification(&mut self, identification: u16) {
        let old = u16_at::<{ field::IDENTIFICATION }, _>(self.header);
        put::<{ field::IDENTIFICATION }, _, _>(self.header, identification.to_be_bytes());
        self.update(old, identification);
    }

    /// Sets the number of routers that the packet may still pass.
    #[inline]
    pub fn set_time_to_live(&mut self, time_to_live: u8) {
        let old = u16_at::<{ field::TIME_TO_LIVE }, _>(self.header);
        put::<{ field::TIME_TO_LIVE }, _, _>(self.header, [time_to_live]);
        self.update(old, u16_at::<{ field::TIME_TO_LIVE }, _>(self.header));
    }

    /// Sets both addresses.
    pub fn set_addresses(&mut self, source: Ipv4Addr, destination: Ipv4Addr) {
        let [[a, b, c, d], [e, f, g, h]] = [source, destination].map(|address| address.octets());
        let words = [[a, b], [c, d], [e, f], [g, h]].map(u16::from_be_bytes);
        let old = [
            u16_at::<{ field::SOURCE }, _>(self.header),
            u16_at::<{ field::SOURCE + 2 }, _>(self.header),
            u16_at::<{ field::DESTINATION }, _>(self.header),
            u16_at::<{ field::DESTINATION + 2 }, _>(self.header),
        ];
        put::<{ field::SOURCE }, _, _>(self.header, source.octets());
        put::<{ field::DESTINATION }, _, _>(self.header, destination.octets());
        old.into_iter().zip(words).for_each(|(old, new)| self.update(old, new));
    }

    #[inline(always)]
    fn update(&mut self, old: u16, new: u16) {
        let checksum = update_u16(u16_at::<{ field::CHECKSUM }, _>(self.header), old, new);
        put::<{ field::CHECKSUM }, _, _>(self.header, checksum.to_be_bytes());
    }
}
