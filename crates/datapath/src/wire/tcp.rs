//! TCP (RFC 9293).

use super::IpProtocol;
use super::checksum::{Pseudo, update_u16};
use super::field::{put, u16_at, u32_at};
use crate::drops::DropReason;
use polder_buffers::ChecksumState;

/// Offsets of the fields, in wire order.
mod field {
    pub(super) const SOURCE: usize = 0;
    pub(super) const DESTINATION: usize = 2;
    pub(super) const SEQUENCE: usize = 4;
    pub(super) const ACKNOWLEDGEMENT: usize = 8;
    pub(super) const OFFSET_FLAGS: usize = 12;
    pub(super) const WINDOW: usize = 14;
    pub(super) const CHECKSUM: usize = 16;
    pub(super) const URGENT: usize = 18;
}

/// Flags of a TCP segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// The sender has no more data.
    pub const FIN: Self = Self(0x01);
    /// Synchronises sequence numbers: opens a connection.
    pub const SYN: Self = Self(0x02);
    /// Resets the connection.
    pub const RST: Self = Self(0x04);
    /// Push: deliver to the application without delay.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement number is valid.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is valid.
    pub const URG: Self = Self(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// Union of these flags and `other`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags without `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// True if all flags of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A received TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    header: &'a [u8; Tcp::HEADER_BYTES],
    options: &'a [u8],
    payload: &'a [u8],
    segment: &'a [u8],
}

impl<'a> Tcp<'a> {
    /// Bytes of the header without options.
    pub const HEADER_BYTES: usize = 20;
    /// Bytes from the start of the header to the checksum.
    pub const CHECKSUM_OFFSET: u16 = 16;
    /// Offset in bytes of the data offset, the upper half of a byte.
    pub const DATA_OFFSET: usize = 12;

    /// Checks the data offset; options are checked when they are read.
    ///
    /// # Errors
    /// [`DropReason::TcpTruncated`], [`DropReason::TcpBadOffset`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (header, rest) = bytes.split_first_chunk().ok_or(DropReason::TcpTruncated)?;
        let header_bytes = usize::from(u16_at::<{ field::OFFSET_FLAGS }, _>(header) >> 12) * 4;
        let option_bytes = header_bytes.checked_sub(Self::HEADER_BYTES).ok_or(DropReason::TcpBadOffset)?;
        let (options, payload) = rest.split_at_checked(option_bytes).ok_or(DropReason::TcpBadOffset)?;
        Ok(Self { header, options, payload, segment: bytes })
    }

    /// Checks the checksum of a contiguous segment.
    ///
    /// # Errors
    /// [`DropReason::TcpBadChecksum`].
    #[inline]
    pub fn verify(&self, pseudo: Pseudo) -> Result<(), DropReason> {
        let sum = pseudo.sum_over(IpProtocol::TCP, self.segment);
        if sum.is_valid() { Ok(()) } else { Err(DropReason::TcpBadChecksum) }
    }

    /// Bytes of the header, options included.
    #[inline]
    pub fn header_bytes(&self) -> usize {
        Self::HEADER_BYTES + self.options.len()
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

    /// Sequence number of the payload's first byte.
    #[inline]
    pub fn sequence(&self) -> u32 {
        u32_at::<{ field::SEQUENCE }, _>(self.header)
    }

    /// Sequence number of the byte that the sender expects next.
    #[inline]
    pub fn acknowledgement(&self) -> u32 {
        u32_at::<{ field::ACKNOWLEDGEMENT }, _>(self.header)
    }

    /// The flags.
    #[inline]
    pub fn flags(&self) -> TcpFlags {
        let [_, flags] = u16_at::<{ field::OFFSET_FLAGS }, _>(self.header).to_be_bytes();
        TcpFlags(flags)
    }

    /// The receive window, not scaled.
    #[inline]
    pub fn window(&self) -> u16 {
        u16_at::<{ field::WINDOW }, _>(self.header)
    }

    /// The checksum field, unverified.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at::<{ field::CHECKSUM }, _>(self.header)
    }

    /// The urgent pointer.
    #[inline]
    pub fn urgent(&self) -> u16 {
        u16_at::<{ field::URGENT }, _>(self.header)
    }

    /// Iterates over the options.
    #[inline]
    pub fn options(&self) -> TcpOptions<'a> {
        TcpOptions { rest: self.options, position: Self::HEADER_BYTES }
    }

    /// Value of the MSS option; `None` without the option.
    ///
    /// # Errors
    /// [`DropReason::TcpBadOption`].
    #[inline]
    pub fn mss(&self) -> Result<Option<u16>, DropReason> {
        Ok(self.find_mss()?.map(|(_, mss)| mss))
    }

    /// Offset of the first MSS option's value in the segment, and that value.
    #[inline]
    fn find_mss(&self) -> Result<Option<(usize, u16)>, DropReason> {
        for option in self.options() {
            let option = option?;
            if option.kind == TcpOption::MSS {
                let &value = option.data.as_array::<2>().ok_or(DropReason::TcpBadOption)?;
                return Ok(Some((option.position + 2, u16::from_be_bytes(value))));
            }
        }
        Ok(None)
    }

    /// The bytes after the options.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// One option of a segment (RFC 9293, 3.1); padding is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOption<'a> {
    /// Kind of the option.
    pub kind: u8,
    /// Bytes from the start of the segment to the option's kind.
    pub position: usize,
    /// Data after kind and length.
    pub data: &'a [u8],
}

impl TcpOption<'_> {
    /// End of the option list.
    pub const END: u8 = 0;
    /// Padding.
    pub const PADDING: u8 = 1;
    /// Maximum segment size.
    pub const MSS: u8 = 2;
}

/// Iterator over a segment's options; ends after the first option that exceeds the header.
#[derive(Clone, Debug)]
pub struct TcpOptions<'a> {
    rest: &'a [u8],
    position: usize,
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<TcpOption<'a>, DropReason>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match *self.rest {
                [] | [TcpOption::END, ..] => return None,
                [TcpOption::PADDING, ref rest @ ..] => {
                    self.rest = rest;
                    self.position += 1;
                }
                [kind, ref rest @ ..] => return Some(self.take(kind, rest)),
            }
        }
    }
}

impl<'a> TcpOptions<'a> {
    /// Parses an option whose kind has been read; `behind` starts with its length.
    #[inline]
    fn take(&mut self, kind: u8, behind: &'a [u8]) -> Result<TcpOption<'a>, DropReason> {
        self.rest = &[];
        let (&length, behind) = behind.split_first().ok_or(DropReason::TcpBadOption)?;
        let length = usize::from(length);
        let data_bytes = length.checked_sub(2).ok_or(DropReason::TcpBadOption)?;
        let (data, rest) = behind.split_at_checked(data_bytes).ok_or(DropReason::TcpBadOption)?;
        let option = TcpOption { kind, position: self.position, data };
        self.rest = rest;
        self.position += length;
        Ok(option)
    }
}

/// A TCP segment to be modified in place.
#[derive(Debug)]
pub struct TcpMut<'a> {
    segment: &'a mut [u8],
}

impl<'a> TcpMut<'a> {
    /// Checks as [`Tcp::parse`] does. `bytes` must contain the header with its options, but need not contain
    /// the payload.
    ///
    /// # Errors
    /// As [`Tcp::parse`].
    #[inline]
    pub fn parse(bytes: &'a mut [u8]) -> Result<Self, DropReason> {
        Tcp::parse(bytes)?;
        Ok(Self { segment: bytes })
    }

    /// Lowers the MSS option of a SYN to `limit`; returns true if the value was higher.
    ///
    /// The checksum is updated, unless it is partial (its field has the pseudo-header sum only). A SYN
    /// without the option is not changed.
    ///
    /// # Errors
    /// [`DropReason::TcpBadOption`]; nothing has changed then.
    #[inline]
    pub fn clamp_mss(&mut self, limit: u16, state: ChecksumState) -> Result<bool, DropReason> {
        let view = Tcp::parse(self.segment)?;
        if !view.flags().contains(TcpFlags::SYN) {
            return Ok(false);
        }
        match view.find_mss()? {
            Some((at, mss)) if mss > limit => Ok(self.replace_mss(at, mss, limit, state)),
            Some(_) | None => Ok(false),
        }
    }

    /// Sets the sequence number and the flags. The caller must recompute the checksum.
    ///
    /// Source: the segments of a super-packet differ in these fields (RFC 9293, 3.1).
    #[inline]
    pub fn set_sequence_and_flags(&mut self, sequence: u32, flags: TcpFlags) {
        if let Some(header) = self.segment.first_chunk_mut::<{ Tcp::HEADER_BYTES }>() {
            put::<{ field::SEQUENCE }, _, _>(header, sequence.to_be_bytes());
            put::<{ field::OFFSET_FLAGS + 1 }, _, _>(header, [flags.0]);
        }
    }

    /// Writes `sum` into the checksum field.
    #[inline]
    pub fn set_checksum(&mut self, sum: u16) {
        if let Some(header) = self.segment.first_chunk_mut::<{ Tcp::HEADER_BYTES }>() {
            put::<{ field::CHECKSUM }, _, _>(header, sum.to_be_bytes());
        }
    }

    fn replace_mss(&mut self, at: usize, old: u16, new: u16, state: ChecksumState) -> bool {
        let Some(value) = self.segment.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut()) else {
            return false;
        };
        *value = new.to_be_bytes();
        let Some(header) = self.segment.first_chunk_mut::<{ Tcp::HEADER_BYTES }>() else {
            return false;
        };
        if state != ChecksumState::Partial {
            let checksum = u16_at::<{ field::CHECKSUM }, _>(header);
            // At an odd position, the value's bytes belong to two words.
            let odd = at % 2 == 1;
            let (old, new) = if odd { (old.swap_bytes(), new.swap_bytes()) } else { (old, new) };
            put::<{ field::CHECKSUM }, _, _>(header, update_u16(checksum, old, new).to_be_bytes());
        }
        true
    }
}
