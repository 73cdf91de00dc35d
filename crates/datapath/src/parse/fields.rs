//! Header summaries that are not kept, and fields that stages for IP packets read: lengths, extension headers.

use super::{EXTENT_AT, HeaderSummary, NETWORK_AT, Network};
use crate::wire::Ipv6;
use polder_buffers::Packet;

/// Length of an IP packet, compared with that of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Extent {
    /// The frame ends where the IP packet does.
    Exact = 0,
    /// The link's padding follows.
    Padded = 1,
    /// The tags of the frame, or the extension headers of the packet, do not end within it.
    Unreadable = 2,
    /// The fixed header or the options are not there, or lengths contradict each other.
    Broken = 3,
}

impl HeaderSummary {
    /// Summary of a packet, not kept.
    #[inline(always)]
    pub fn read(packet: &Packet) -> Self {
        Self::read_with_bytes(packet).0
    }

    /// Summary of a packet, not kept, and the bytes in the packet's head frame.
    #[inline(always)]
    pub fn read_with_bytes(packet: &Packet) -> (Self, &[u8]) {
        let bytes = packet.bytes();
        (Self::known_or_parsed(packet.header_summary(), bytes, packet.len()), bytes)
    }

    /// Length of the IP packet, compared with that of the frame.
    #[inline(always)]
    pub const fn extent(self) -> Extent {
        match self.0 >> EXTENT_AT & 3 {
            0 => Extent::Exact,
            1 => Extent::Padded,
            2 => Extent::Unreadable,
            _ => Extent::Broken,
        }
    }

    /// True if the IP header contradicts itself or the packet's length, or is not all there.
    #[inline(always)]
    pub const fn is_broken(self) -> bool {
        self.0 >> EXTENT_AT & 3 == Extent::Broken as u32
    }

    /// True for an IPv6 packet with extension headers.
    #[inline(always)]
    pub const fn is_extended_v6(self) -> bool {
        self.0 >> NETWORK_AT & 3 == Network::Ipv6 as u32
            && (self.network_bytes() != Ipv6::HEADER_BYTES || !self.is_readable())
    }
}
