//! Header summaries of borrowed packets, and fields that stages for IP packets need.

use super::{EXTENT_AT, HeaderSummary, NETWORK_AT, Network};
use crate::wire::Ipv6;
use polder_buffers::Packet;

/// Length of the IP packet compared with that of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Extent {
    /// The frame ends with the IP packet.
    Exact = 0,
    /// Link-layer padding follows the IP packet.
    Padded = 1,
    /// The tags or the extension headers do not end within the frame.
    Unreadable = 2,
    /// The fixed header or the options are truncated, or the lengths are inconsistent.
    Broken = 3,
}

impl HeaderSummary {
    /// Returns the summary of a packet without storing it.
    #[inline(always)]
    pub fn read(packet: &Packet) -> Self {
        Self::read_with_bytes(packet).0
    }

    /// Returns the summary of a packet without storing it, and the bytes in the head frame.
    #[inline(always)]
    pub fn read_with_bytes(packet: &Packet) -> (Self, &[u8]) {
        let bytes = packet.bytes();
        (Self::known_or_parsed(packet.header_summary(), bytes, packet.len()), bytes)
    }

    /// Length of the IP packet compared with that of the frame.
    #[inline(always)]
    pub const fn extent(self) -> Extent {
        match self.0 >> EXTENT_AT & 3 {
            0 => Extent::Exact,
            1 => Extent::Padded,
            2 => Extent::Unreadable,
            _ => Extent::Broken,
        }
    }

    /// True if the IP header is truncated or inconsistent with the packet's length.
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
