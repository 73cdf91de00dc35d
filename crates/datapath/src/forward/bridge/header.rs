//! Ethernet header as the bridge reads it.

use crate::drops::DropReason;
use crate::forward::vlan::Tag;
use polder_buffers::{Packet, Pool};

/// MAC addresses, EtherType and tag of a frame: bytes 0 to 7 and 8 to 15, first byte lowest.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Header(pub(super) u64, u64);

impl Header {
    #[inline(always)]
    pub(super) fn read(packet: &mut Packet, pool: &mut Pool) -> Result<Self, DropReason> {
        if let Some(bytes) = packet.bytes().first_chunk() {
            return Ok(Self::parse(bytes));
        }
        Self::read_short(packet, pool)
    }

    /// Reads a frame of less than 18 bytes, or one whose head frame is too short for its header.
    #[cold]
    fn read_short(packet: &mut Packet, pool: &mut Pool) -> Result<Self, DropReason> {
        let length = packet.len().min(TAGGED);
        if length < UNTAGGED {
            return Err(DropReason::EthernetTruncated);
        }
        let wanted = u16::try_from(length).unwrap_or(u16::MAX);
        packet.gather(wanted, pool).map_err(|_| DropReason::EthernetTruncated)?;
        let mut bytes = [0; TAGGED];
        bytes[..length].copy_from_slice(&packet.bytes()[..length]);
        let header = Self::parse(&bytes);
        match header.tag() {
            Tag::Control(_) if length < TAGGED => Err(DropReason::VlanTruncated),
            Tag::Control(_) | Tag::None => Ok(header),
        }
    }

    #[inline(always)]
    fn parse(bytes: &[u8; TAGGED]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ..] = *bytes;
        Self(u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([i, j, k, l, m, n, o, p]))
    }

    /// Destination address, first byte lowest.
    #[inline(always)]
    pub(super) fn destination(self) -> u64 {
        self.0 & ADDRESS
    }

    /// Source address, first byte lowest.
    #[inline(always)]
    pub(super) fn source(self) -> u64 {
        self.0 >> 48 | self.1 << 16 & ADDRESS
    }

    #[inline(always)]
    pub(super) fn tag(self) -> Tag {
        Tag::from_wire((self.1 >> 32) as u32)
    }
}

/// Mask of an address, first byte lowest.
const ADDRESS: u64 = 0xffff_ffff_ffff;

/// Group bit of the source address in the first word.
pub(super) const GROUP_SOURCE: u64 = 1 << 48;

/// Length of a header without tag, in bytes.
const UNTAGGED: usize = 14;

/// Length of a header with one tag, in bytes.
const TAGGED: usize = 18;
