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

/// The flags of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Opens a connection.
    pub const SYN: Self = Self(0x02);
    /// Ends a connection at once.
    pub const RST: Self = Self(0x04);
    /// To be given to the application soon.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement number counts.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer counts.
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
    /// Bytes from the start of the header to the byte whose upper half is the header's length in words.
    pub const DATA_OFFSET: usize = 12;

    /// Checks the data offset; options are checked as they are read.
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

    /// Checks the checksum of a segment that is all in one place.
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

    /// Number of the first byte of the payload.
    #[inline]
    pub fn sequence(&self) -> u32 {
        u32_at::<{ field::SEQUENCE }, _>(self.header)
    }

    /// Number of the byte that the sender expects next.
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

    /// The checksum as it stands.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at::<{ field::CHECKSUM }, _>(self.header)
    }

    /// The urgent pointer.
    #[inline]
    pub fn urgent(&self) -> u16 {
        u16_at::<{ field::URGENT }, _>(self.header)
    }

    /// The options, one by one.
    #[inline]
    pub fn options(&self) -> TcpOptions<'a> {
        TcpOptions { rest: self.options, position: Self::HEADER_BYTES }
    }

    /// The largest segment that the sender takes, if it says so.
    ///
    /// # Errors
    /// [`DropReason::TcpBadOption`].
    #[inline]
    pub fn mss(&self) -> Result<Option<u16>, DropReason> {
        Ok(self.find_mss()?.map(|(_, mss)| mss))
    }

    /// Offset of the first MSS option's value in the segment, and the value.
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

    /// The bytes behind the options.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// One option of a segment (RFC 9293, 3.1); padding is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOption<'a> {
    /// Kind of the option.
    pub kind: u8,
    /// Bytes from the start of the segment to the option's kind.
    pub position: usize,
    /// Data behind kind and length.
    pub data: &'a [u8],
}

impl TcpOption<'_> {
    /// Nothing follows.
    pub const END: u8 = 0;
    /// Padding.
    pub const PADDING: u8 = 1;
    /// Maximum segment size.
    pub const MSS: u8 = 2;
}

/// The options of a segment; ends after the first that runs over the header's end.
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
    /// The option whose kind has been read; `behind` starts with its length.
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

/// A TCP segment to be changed in place.
#[derive(Debug)]
pub struct TcpMut<'a> {
    segment: &'a mut [u8],
}

impl<'a> TcpMut<'a> {
    /// Checks as [`Tcp::parse`] does. The header with its options has to be in `bytes`; the payload
    /// may be elsewhere.
    ///
    /// # Errors
    /// As [`Tcp::parse`].
    #[inline]
    pub fn parse(bytes: &'a mut [u8]) -> Result<Self, DropReason> {
        Tcp::parse(bytes)?;
        Ok(Self { segment: bytes })
    }

    /// Lowers the maximum segment size of a SYN to `limit`, and tells whether it was higher.
    ///
    /// The checksum is updated, unless only the pseudo-header sum stands in its field. A SYN without
    /// the option stays without.
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

    /// Sets the number of the payload's first byte and the flags. The checksum stays as it is: the
    /// caller computes it anew.
    ///
    /// Source: segments of one packet differ in these (RFC 9293, 3.1).
    #[inline]
    pub fn set_sequence_and_flags(&mut self, sequence: u32, flags: TcpFlags) {
        if let Some(header) = self.segment.first_chunk_mut::<{ Tcp::HEADER_BYTES }>() {
            put::<{ field::SEQUENCE }, _, _>(header, sequence.to_be_bytes());
            put::<{ field::OFFSET_FLAGS + 1 }, _, _>(header, [flags.0]);
        }
    }

    /// Writes `sum` where the checksum stands.
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
            // At an odd position the value's bytes are halves of two words.
            let odd = at % 2 == 1;
            let (old, new) = if odd { (old.swap_bytes(), new.swap_bytes()) } else { (old, new) };
            put::<{ field::CHECKSUM }, _, _>(header, update_u16(checksum, old, new).to_be_bytes());
        }
        true
    }
}
