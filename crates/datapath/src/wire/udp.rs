//! UDP (RFC 768).

use super::checksum::Pseudo;
use super::field::{put, u16_at};
use super::{IpProtocol, TooShort};
use crate::drops::DropReason;

/// Offsets of the fields, in wire order.
mod field {
    pub(super) const SOURCE: usize = 0;
    pub(super) const DESTINATION: usize = 2;
    pub(super) const LENGTH: usize = 4;
    pub(super) const CHECKSUM: usize = 6;
}

/// A received UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a> {
    header: &'a [u8; Udp::HEADER_BYTES],
    datagram: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Udp<'a> {
    /// Bytes of the header.
    pub const HEADER_BYTES: usize = 8;
    /// Bytes from the start of the header to the checksum.
    pub const CHECKSUM_OFFSET: u16 = 6;

    /// Checks the datagram's length. `bytes` is the whole payload of an IP packet: a first fragment is
    /// shorter than its datagram and is refused.
    ///
    /// # Errors
    /// [`DropReason::UdpTruncated`], [`DropReason::UdpBadLength`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        Self::parse_head(bytes, bytes.len())
    }

    /// [`Udp::parse`] for the start of an IP payload that is `length` bytes long. The payload ends at the end
    /// of `bytes`.
    ///
    /// # Errors
    /// As [`Udp::parse`].
    #[inline]
    pub fn parse_head(bytes: &'a [u8], length: usize) -> Result<Self, DropReason> {
        let (header, rest) = bytes.split_first_chunk().ok_or(DropReason::UdpTruncated)?;
        let datagram_bytes = usize::from(u16_at::<{ field::LENGTH }, _>(header));
        let payload_bytes = datagram_bytes.checked_sub(Self::HEADER_BYTES).ok_or(DropReason::UdpBadLength)?;
        if datagram_bytes > length {
            return Err(DropReason::UdpBadLength);
        }
        let payload = rest.get(..payload_bytes).unwrap_or(rest);
        let datagram = bytes.get(..datagram_bytes).unwrap_or(bytes);
        Ok(Self { header, datagram, payload })
    }

    /// Checks the checksum of a contiguous datagram. A zero checksum ("none") is accepted over IPv4 and
    /// refused over IPv6 (RFC 8200, 8.1).
    ///
    /// # Errors
    /// [`DropReason::UdpBadChecksum`].
    #[inline]
    pub fn verify(&self, pseudo: Pseudo) -> Result<(), DropReason> {
        let right = match (self.checksum(), pseudo) {
            (0, Pseudo::V4 { .. }) => true,
            (0, Pseudo::V6 { .. }) => false,
            (_, pseudo) => pseudo.sum_over(IpProtocol::UDP, self.datagram).is_valid(),
        };
        if right { Ok(()) } else { Err(DropReason::UdpBadChecksum) }
    }

    /// Source port.
    #[inline]
    pub fn source_port(&self) -> u16 {
        u16_at::<{ field::SOURCE }, _>(self.header)
    }

    /// Destination port.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        u16_at::<{ field::DESTINATION }, _>(self.header)
    }

    /// Length of header and payload in bytes, as stated in the header.
    #[inline]
    pub fn length(&self) -> u16 {
        u16_at::<{ field::LENGTH }, _>(self.header)
    }

    /// The checksum field, unverified; 0 for none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at::<{ field::CHECKSUM }, _>(self.header)
    }

    /// The bytes after the header, up to the datagram's length.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A UDP header to be modified in place.
#[derive(Debug)]
pub struct UdpMut<'a> {
    header: &'a mut [u8; Udp::HEADER_BYTES],
}

impl<'a> UdpMut<'a> {
    /// Parses the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`DropReason::UdpTruncated`].
    #[inline]
    pub fn parse_head(bytes: &'a mut [u8]) -> Result<Self, DropReason> {
        Ok(Self { header: bytes.first_chunk_mut().ok_or(DropReason::UdpTruncated)? })
    }

    /// Sets the length of header and payload in bytes. The caller must recompute the checksum.
    #[inline]
    pub fn set_length(&mut self, length: u16) {
        put::<{ field::LENGTH }, _, _>(self.header, length.to_be_bytes());
    }

    /// Writes `sum` into the checksum field.
    #[inline]
    pub fn set_checksum(&mut self, sum: u16) {
        put::<{ field::CHECKSUM }, _, _>(self.header, sum.to_be_bytes());
    }
}

/// A UDP header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeader {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

impl UdpHeader {
    /// Writes the header of the datagram that fills `bytes` and whose payload is in place; returns the
    /// payload. The checksum is zero ("none") without `pseudo`.
    ///
    /// # Errors
    /// [`TooShort`] if the header does not fit, or if the datagram's length exceeds 65 535; nothing is
    /// written then.
    pub fn emit(self, bytes: &mut [u8], pseudo: Option<Pseudo>) -> Result<&mut [u8], TooShort> {
        let length = u16::try_from(bytes.len()).map_err(|_| TooShort)?;
        let header = bytes.first_chunk_mut::<{ Udp::HEADER_BYTES }>().ok_or(TooShort)?;
        put::<{ field::SOURCE }, _, _>(header, self.source_port.to_be_bytes());
        put::<{ field::DESTINATION }, _, _>(header, self.destination_port.to_be_bytes());
        put::<{ field::LENGTH }, _, _>(header, length.to_be_bytes());
        put::<{ field::CHECKSUM }, _, _>(header, [0, 0]);
        let checksum = pseudo.map_or(0, |pseudo| pseudo.sum_over(IpProtocol::UDP, bytes).finish_nonzero());
        let (header, payload) = bytes.split_first_chunk_mut::<{ Udp::HEADER_BYTES }>().ok_or(TooShort)?;
        put::<{ field::CHECKSUM }, _, _>(header, checksum.to_be_bytes());
        Ok(payload)
    }
}
