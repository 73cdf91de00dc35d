//! VXLAN (RFC 7348).

use super::TooShort;
use super::field::put;
use crate::drops::DropReason;

/// Offsets of the fields, in wire order.
mod field {
    pub(super) const FLAGS: usize = 0;
    pub(super) const NETWORK: usize = 4;
}

/// Flag I: the network identifier is valid. Other flags and reserved bits are ignored (RFC 7348, 5).
const VALID: u8 = 0x08;

/// A received VXLAN header.
#[derive(Clone, Copy, Debug)]
pub struct Vxlan<'a> {
    header: &'a [u8; Vxlan::HEADER_BYTES],
    payload: &'a [u8],
}

impl<'a> Vxlan<'a> {
    /// Bytes of the header.
    pub const HEADER_BYTES: usize = 8;
    /// UDP destination port that IANA has assigned.
    pub const PORT: u16 = 4789;
    /// Largest network identifier: 24 bits.
    pub const MAX_VNI: u32 = 0x00ff_ffff;

    /// Checks the header's length and that its network identifier is valid.
    ///
    /// # Errors
    /// [`DropReason::VxlanTruncated`], [`DropReason::VxlanNoNetwork`].
    #[inline(always)]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (header, payload) =
            bytes.split_first_chunk::<{ Vxlan::HEADER_BYTES }>().ok_or(DropReason::VxlanTruncated)?;
        if header[field::FLAGS] & VALID == 0 {
            return Err(DropReason::VxlanNoNetwork);
        }
        Ok(Self { header, payload })
    }

    /// Network identifier (VNI).
    #[inline(always)]
    pub fn vni(&self) -> u32 {
        let [.., high, middle, low, _] = *self.header;
        u32::from_be_bytes([0, high, middle, low])
    }

    /// The frame after the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A VXLAN header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VxlanHeader {
    /// Network identifier; only the lower 24 bits are used.
    pub vni: u32,
}

impl VxlanHeader {
    /// Writes the header and returns the bytes after it.
    ///
    /// # Errors
    /// [`TooShort`].
    pub fn emit(self, bytes: &mut [u8]) -> Result<&mut [u8], TooShort> {
        let (header, rest) = bytes.split_first_chunk_mut::<{ Vxlan::HEADER_BYTES }>().ok_or(TooShort)?;
        put::<{ field::FLAGS }, _, _>(header, [VALID, 0, 0, 0]);
        put::<{ field::NETWORK }, _, _>(header, (self.vni << 8).to_be_bytes());
        Ok(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7348, 5.
    #[test]
    fn what_is_written_is_read() {
        let mut bytes = [0xee; 12];
        let rest = VxlanHeader { vni: 0x0102_0304 }.emit(&mut bytes).expect("room");
        assert_eq!(rest.len(), 4);
        assert_eq!(bytes[..8], [8, 0, 0, 0, 2, 3, 4, 0]);
        let read = Vxlan::parse(&bytes).expect("a header of ours");
        assert_eq!((read.vni(), read.payload()), (0x0002_0304, &[0xee; 4][..]));
        assert_eq!(VxlanHeader { vni: 0 }.emit(&mut [0; 7]), Err(TooShort));
    }

    #[test]
    fn reserved_bits_are_ignored_and_the_flag_is_not() {
        let read = Vxlan::parse(&[0xff, 0xff, 0xff, 0xff, 0, 0, 7, 0xff]).expect("reserved bits");
        assert_eq!(read.vni(), 7);
        assert_eq!(Vxlan::parse(&[0xf7, 0, 0, 0, 0, 0, 7, 0]).err(), Some(DropReason::VxlanNoNetwork));
        assert_eq!(Vxlan::parse(&[8; 7]).err(), Some(DropReason::VxlanTruncated));
    }
}
