//! GRE (RFC 2784) with key and sequence number (RFC 2890).

use super::checksum::Checksum;
use super::field::{put, u16_at};
use super::{EtherType, TooShort};
use crate::drops::DropReason;

/// Offsets of the fixed fields, in wire order. Optional fields follow, each if its flag is set: checksum with
/// two reserved bytes, key, sequence number.
mod field {
    pub(super) const FLAGS: usize = 0;
    pub(super) const PROTOCOL: usize = 2;
    pub(super) const CHECKSUM: usize = 4;
}

/// Flag: a checksum is present.
const CHECKSUM: u16 = 0x8000;
/// Flag: a key is present.
const KEY: u16 = 0x2000;
/// Flag: a sequence number is present.
const SEQUENCE: u16 = 0x1000;
/// Bits 1, 4 and 5: a receiver that does not implement RFC 1701 discards packets with these flags; bits 6 to
/// 12 are ignored (RFC 2784, 2.3).
const REFUSED: u16 = 0x4c00;
/// Version field, which must be 0.
const VERSION: u16 = 0x0007;
/// Length of each optional field in bytes.
const OPTIONAL: usize = 4;

/// A received GRE packet.
#[derive(Clone, Copy, Debug)]
pub struct Gre<'a> {
    packet: &'a [u8],
    payload: &'a [u8],
    protocol: EtherType,
    checksum: Option<u16>,
    key: Option<u32>,
    sequence: Option<u32>,
}

impl<'a> Gre<'a> {
    /// Bytes of the header without optional fields.
    pub const HEADER_BYTES: usize = 4;
    /// Bytes of the header with all optional fields.
    pub const MAX_HEADER_BYTES: usize = 16;

    /// Checks the version, the flags and that the optional fields are present.
    ///
    /// # Errors
    /// [`DropReason::GreTruncated`], [`DropReason::GreBadVersion`], [`DropReason::GreBadFlags`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let header: (&[u8; Gre::HEADER_BYTES], _) =
            bytes.split_first_chunk().ok_or(DropReason::GreTruncated)?;
        let (header, mut payload) = header;
        let flags = u16_at::<{ field::FLAGS }, _>(header);
        if flags & VERSION != 0 {
            return Err(DropReason::GreBadVersion);
        }
        if flags & REFUSED != 0 {
            return Err(DropReason::GreBadFlags);
        }
        let mut optional = |flag: u16| -> Result<Option<u32>, DropReason> {
            if flags & flag == 0 {
                return Ok(None);
            }
            let (value, rest) = payload.split_first_chunk::<OPTIONAL>().ok_or(DropReason::GreTruncated)?;
            payload = rest;
            Ok(Some(u32::from_be_bytes(*value)))
        };
        let checksum = optional(CHECKSUM)?.map(|word| u16_at::<0, _>(&word.to_be_bytes()));
        let key = optional(KEY)?;
        let sequence = optional(SEQUENCE)?;
        let protocol = EtherType(u16_at::<{ field::PROTOCOL }, _>(header));
        Ok(Self { packet: bytes, payload, protocol, checksum, key, sequence })
    }

    /// Checks the checksum, if present, of a contiguous packet. For a chain of frames, compute the
    /// [`Checksum`] over all bytes from the GRE header on.
    ///
    /// # Errors
    /// [`DropReason::GreBadChecksum`].
    #[inline]
    pub fn verify(&self) -> Result<(), DropReason> {
        let right = self.checksum.is_none() || Checksum::new().with(self.packet).is_valid();
        if right { Ok(()) } else { Err(DropReason::GreBadChecksum) }
    }

    /// Length of the header with its optional fields, in bytes.
    #[inline]
    pub fn header_bytes(&self) -> usize {
        self.packet.len() - self.payload.len()
    }

    /// EtherType of the payload.
    #[inline]
    pub fn protocol(&self) -> EtherType {
        self.protocol
    }

    /// The checksum field, unverified; `None` if absent.
    #[inline]
    pub fn checksum(&self) -> Option<u16> {
        self.checksum
    }

    /// The key; `None` if absent.
    #[inline]
    pub fn key(&self) -> Option<u32> {
        self.key
    }

    /// The sequence number; `None` if absent.
    #[inline]
    pub fn sequence(&self) -> Option<u32> {
        self.sequence
    }

    /// The bytes after the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A GRE header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GreHeader {
    /// EtherType of the payload.
    pub protocol: EtherType,
    /// True if the header has a checksum field.
    pub checksum: bool,
    /// The key; `None` for a header without key.
    pub key: Option<u32>,
    /// The sequence number; `None` for a header without sequence number.
    pub sequence: Option<u32>,
}

impl GreHeader {
    /// Bytes of the header.
    #[inline]
    pub const fn header_bytes(self) -> usize {
        let optional =
            self.checksum as usize + self.key.is_some() as usize + self.sequence.is_some() as usize;
        Gre::HEADER_BYTES + optional * OPTIONAL
    }

    /// Writes the header and returns the bytes after it. The checksum field is zero until
    /// [`GreMut::set_checksum`], since the checksum covers the payload.
    ///
    /// # Errors
    /// [`TooShort`]; nothing is written then.
    #[inline]
    pub fn emit(self, bytes: &mut [u8]) -> Result<&mut [u8], TooShort> {
        if bytes.len() < self.header_bytes() {
            return Err(TooShort);
        }
        let mut flags = if self.checksum { CHECKSUM } else { 0 };
        if self.key.is_some() {
            flags |= KEY;
        }
        if self.sequence.is_some() {
            flags |= SEQUENCE;
        }
        let (header, mut rest) = bytes.split_first_chunk_mut::<{ Gre::HEADER_BYTES }>().ok_or(TooShort)?;
        put::<{ field::FLAGS }, _, _>(header, flags.to_be_bytes());
        put::<{ field::PROTOCOL }, _, _>(header, self.protocol.0.to_be_bytes());
        let checksum = self.checksum.then_some(0);
        for value in [checksum, self.key, self.sequence].into_iter().flatten() {
            let (word, behind) = rest.split_first_chunk_mut::<OPTIONAL>().ok_or(TooShort)?;
            *word = value.to_be_bytes();
            rest = behind;
        }
        Ok(rest)
    }
}

/// A GRE packet to be modified in place.
#[derive(Debug)]
pub struct GreMut<'a> {
    packet: &'a mut [u8],
    has_checksum: bool,
    sequence_at: Option<usize>,
}

impl<'a> GreMut<'a> {
    /// Checks as [`Gre::parse`] does. `bytes` must contain the whole header, but need not contain the
    /// payload.
    ///
    /// # Errors
    /// As [`Gre::parse`].
    #[inline]
    pub fn parse(bytes: &'a mut [u8]) -> Result<Self, DropReason> {
        let view = Gre::parse(bytes)?;
        let has_checksum = view.checksum.is_some();
        let sequence_at = view.sequence.map(|_| view.header_bytes() - OPTIONAL);
        Ok(Self { packet: bytes, has_checksum, sequence_at })
    }

    /// Sets the sequence number, if the header has the field. Set the checksum afterwards.
    #[inline]
    pub fn set_sequence(&mut self, sequence: u32) {
        let field = self.sequence_at.and_then(|at| self.packet.get_mut(at..)?.first_chunk_mut());
        if let Some(field) = field {
            *field = sequence.to_be_bytes();
        }
    }

    /// Computes the checksum, if the header has the field, over `bytes` and `behind`, the remaining frames of
    /// a chain.
    #[inline]
    pub fn set_checksum<'b>(&mut self, behind: impl IntoIterator<Item = &'b [u8]>) {
        if !self.has_checksum {
            return;
        }
        self.put_checksum(0);
        let mut sum = Checksum::new().with(self.packet);
        for part in behind {
            sum.add(part);
        }
        self.put_checksum(sum.finish());
    }

    #[inline]
    fn put_checksum(&mut self, checksum: u16) {
        if let Some(header) = self.packet.first_chunk_mut::<{ Gre::HEADER_BYTES + OPTIONAL }>() {
            put::<{ field::CHECKSUM }, _, _>(header, checksum.to_be_bytes());
        }
    }
}
