//! Header fields, read at the offsets in a packet's summary.

use super::{EXTENT_AT, Extent, HeaderSummary, Network, PLAIN};
use crate::wire::{IpProtocol, Ipv4, Ipv6, Pseudo};
use polder_buffers::Packet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Source and destination address of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// IPv4.
    V4([u32; 2]),
    /// IPv6.
    V6([u128; 2]),
}

impl Addresses {
    /// Pseudo-header addresses for the payload's checksum.
    pub fn pseudo(self) -> Pseudo {
        match self {
            Self::V4(addresses) => {
                let [source, destination] = addresses.map(Ipv4Addr::from_bits);
                Pseudo::V4 { source, destination }
            }
            Self::V6(addresses) => {
                let [source, destination] = addresses.map(Ipv6Addr::from_bits);
                Pseudo::V6 { source, destination }
            }
        }
    }
}

/// Fields of an unfragmented IPv4 packet without tags and options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainV4<'a> {
    /// Source and destination.
    pub addresses: [u32; 2],
    /// Protocol of the payload.
    pub protocol: IpProtocol,
    /// Payload without link-layer padding, as far as it is in the head frame.
    pub payload: &'a [u8],
}

impl HeaderSummary {
    /// Fields of a [plain](Self::is_plain_v4) packet in `bytes`; `None` for any other.
    #[inline(always)]
    pub fn plain_v4(self, bytes: &[u8]) -> Option<PlainV4<'_>> {
        if !self.is_plain_v4() {
            return None;
        }
        let (head, mut payload) = bytes.split_first_chunk::<PLAIN>()?;
        if self.0 & 1 << EXTENT_AT != 0 {
            let total = usize::from(u16::from_be_bytes([head[16], head[17]]));
            payload = payload.get(..total.wrapping_sub(Ipv4::HEADER_BYTES)).unwrap_or(payload);
        }
        let &[.., a, b, c, d, e, f, g, h] = head;
        let addresses = [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes);
        Some(PlainV4 { addresses, protocol: self.protocol(), payload })
    }

    /// Fields of a [plain](Self::is_plain_v4) packet whose head frame is `bytes`; `None` for any other,
    /// without parsing it further.
    #[inline(always)]
    pub fn read_plain_v4<'p>(packet: &Packet, bytes: &'p [u8]) -> Option<PlainV4<'p>> {
        match packet.header_summary() {
            0 => Self::parse_plain(bytes, packet.len())?.plain_v4(bytes),
            known => Self(known).plain_v4(bytes),
        }
    }

    /// Returns the part of the frame `bytes` from the network header on.
    #[inline(always)]
    pub fn network_header(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.network_offset()..).unwrap_or_default()
    }

    /// Returns the IP payload in the frame `bytes`, without link-layer padding.
    #[inline]
    pub fn payload(self, bytes: &[u8]) -> &[u8] {
        let payload = bytes.get(self.transport_offset()..).unwrap_or_default();
        let end = self.end(bytes, usize::MAX);
        payload.get(..end.saturating_sub(self.transport_offset())).unwrap_or(payload)
    }

    /// Offset of the link-layer padding in the frame `bytes` of `length` bytes; `length` without padding.
    #[inline]
    pub fn end(self, bytes: &[u8], length: usize) -> usize {
        if self.extent() != Extent::Padded {
            return length;
        }
        let (at, fixed) = if self.network() == Network::Ipv6 { (4, Ipv6::HEADER_BYTES) } else { (2, 0) };
        let field = self.network_header(bytes).get(at..).and_then(<[u8]>::first_chunk);
        self.network_offset() + fixed + field.map_or(0, |&field| usize::from(u16::from_be_bytes(field)))
    }

    /// Addresses of the IP packet in the frame `bytes`; `None` if it is not IP.
    #[inline(always)]
    pub fn addresses(self, bytes: &[u8]) -> Option<Addresses> {
        let header = self.network_header(bytes);
        match self.network() {
            Network::Ipv4 => {
                let &[a, b, c, d, e, f, g, h] = header.get(12..)?.first_chunk()?;
                Some(Addresses::V4([[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes)))
            }
            Network::Ipv6 => {
                let (source, rest) = header.get(8..)?.split_first_chunk()?;
                Some(Addresses::V6([*source, *rest.first_chunk()?].map(u128::from_be_bytes)))
            }
            Network::Other => None,
        }
    }
}
