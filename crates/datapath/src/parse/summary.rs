//! Kinds and lengths of a packet's headers, in one word that stays with the packet.
//!
//! The first stage that asks has the headers read; later ones read the word. Every method that changes the packet's
//! start, end or bytes [forgets it](Packet::header_summary), so headers inside a tunnel are never taken for outer ones.
//! Addresses, ports and fields that routers change are not in it: stages read them where it says that they are.
//!
//! | bits | field |
//! |---|---|
//! | 0 to 7 | protocol behind the IP header and its extension headers |
//! | 8 to 20 | length of those in words of four bytes |
//! | 21, 22 | number of VLAN tags; 3 without a link header |
//! | 23, 24 | [`Network`]; 0 when nothing is known |
//! | 25, 26 | [`Part`] |
//! | 27, 28 | [`Extent`] |
//!
//! Cost: 20 instructions for a whole IPv4 packet without tags and options. Source: `skb_flow_dissect` of Linux and
//! `packet_type` of DPDK's mbufs have the same fields.

use crate::wire::{EtherType, Ethernet, IpProtocol, Ipv4, Ipv6, Link, Pseudo};
use polder_buffers::Packet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Network protocol of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Network {
    /// Neither version of IP, or a header of IP that is not there or of another version.
    Other = 1,
    /// The fixed header is there and of version 4.
    Ipv4 = 2,
    /// The fixed header is there and of version 6.
    Ipv6 = 3,
}

/// Part of an IP datagram that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// All of it.
    Whole = 0,
    /// First fragment, which has the transport header; also the only one of an atomic fragment (RFC 6946).
    First = 1,
    /// Fragment that starts eight bytes behind the first, within a transport header (RFC 3128).
    Second = 2,
    /// Any later fragment.
    Later = 3,
}

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

/// Source and destination of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// IPv4.
    V4([u32; 2]),
    /// IPv6.
    V6([u128; 2]),
}

impl Addresses {
    /// Addresses for the checksum of the payload.
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

/// Fields of a whole IPv4 packet without tags and options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainV4<'a> {
    /// Source and destination.
    pub addresses: [u32; 2],
    /// Protocol of the payload.
    pub protocol: IpProtocol,
    /// Payload without the link's padding, as far as it is in the head frame.
    pub payload: &'a [u8],
}

/// Kinds and lengths of a packet's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderSummary(u32);

const WORDS_AT: u32 = 8;
const WORDS: u32 = 0x1fff;
const LINK_AT: u32 = 21;
const NETWORK_AT: u32 = 23;
const PART_AT: u32 = 25;
const EXTENT_AT: u32 = 27;
/// In the place of a number of tags: the packet starts with its network header.
const NO_LINK: u32 = 3;
/// Bytes of link headers with 0, 1 and 2 tags, and without an Ethernet header; the first is lowest.
const LINK_BYTES: u32 = u32::from_le_bytes([14, 18, 22, 0]);
/// Bytes of the headers of a plain IPv4 packet.
const PLAIN: usize = Ethernet::HEADER_BYTES + Ipv4::HEADER_BYTES;
/// Words of the fixed header of IPv6.
const WORDS_V6: usize = Ipv6::HEADER_BYTES / 4;

impl HeaderSummary {
    /// A whole IPv4 packet without tags and options, but for its protocol.
    const PLAIN_V4: u32 = (Network::Ipv4 as u32) << NETWORK_AT | 5 << WORDS_AT;

    /// Summary of a packet, kept with it.
    #[inline(always)]
    pub fn of(packet: &mut Packet) -> Self {
        Self::with_bytes(packet).0
    }

    /// Summary of a packet, kept with it, and the bytes in the packet's head frame.
    #[inline(always)]
    pub fn with_bytes(packet: &mut Packet) -> (Self, &[u8]) {
        let length = packet.len();
        let (bytes, known) = packet.bytes_and_header_summary();
        let summary = Self::known_or_parsed(*known, bytes, length);
        *known = summary.0;
        (summary, bytes)
    }

    /// Summary of a packet, not kept.
    #[inline(always)]
    pub fn read(packet: &Packet) -> Self {
        Self::known_or_parsed(packet.header_summary(), packet.bytes(), packet.len())
    }

    #[inline(always)]
    fn known_or_parsed(known: u32, bytes: &[u8], length: usize) -> Self {
        if known == 0 {
            return Self::parse(bytes, length);
        }
        debug_assert_eq!(Self(known), Self::parse(bytes, length), "no header has changed");
        Self(known)
    }

    /// Summary of a frame of `length` bytes, of which `bytes` is the first part.
    #[inline(always)]
    pub fn parse(bytes: &[u8], length: usize) -> Self {
        if let Some(head) = bytes.first_chunk::<PLAIN>()
            && [head[12], head[13]] == EtherType::IPV4.0.to_be_bytes()
            && head[14] == 0x45
            && u16::from_be_bytes([head[20], head[21]]) & 0x3fff == 0
        {
            let total = usize::from(u16::from_be_bytes([head[16], head[17]]));
            let room = length.wrapping_sub(Ethernet::HEADER_BYTES);
            if (Ipv4::HEADER_BYTES..=room).contains(&total) {
                let padded = u32::from(total != room) << EXTENT_AT;
                return Self(Self::PLAIN_V4 | padded | u32::from(head[23]));
            }
        }
        Self::parse_closely(bytes, length)
    }

    #[inline(never)]
    fn parse_closely(bytes: &[u8], length: usize) -> Self {
        let Ok(link) = Link::parse(bytes) else { return Self::other(0).ending(Extent::Unreadable) };
        let tags = u32::from(link.tag.is_some()) + u32::from(link.inner_tag.is_some());
        Self::network_of(tags, link.ether_type(), link.payload(), length - link.header_bytes())
    }

    /// Summary of a packet of that type without a link header, `length` bytes long, of which `bytes` is the first part.
    pub fn without_link(ether_type: EtherType, bytes: &[u8], length: usize) -> Self {
        Self::network_of(NO_LINK, ether_type, bytes, length)
    }

    fn network_of(link: u32, ether_type: EtherType, bytes: &[u8], length: usize) -> Self {
        match ether_type {
            EtherType::IPV4 => Self::ipv4(link, bytes, length),
            EtherType::IPV6 => Self::ipv6(link, bytes, length),
            _ => Self::other(link),
        }
    }

    fn ipv4(link: u32, bytes: &[u8], length: usize) -> Self {
        let header = bytes.first_chunk::<{ Ipv4::HEADER_BYTES }>().filter(|header| header[0] >> 4 == 4);
        let Some(header) = header else { return Self::other(link).ending(Extent::Broken) };
        let words = usize::from(header[0] & 0x0f).max(Ipv4::HEADER_BYTES / 4);
        let summary = Self::ip(link, Network::Ipv4, words, IpProtocol(header[9]));
        let Ok(ip) = Ipv4::parse_head(bytes, length) else { return summary.ending(Extent::Broken) };
        let fragment = ip.is_fragment().then(|| ip.fragment_offset());
        summary.part_at(fragment).ending_at(usize::from(ip.total_length()), length)
    }

    fn ipv6(link: u32, bytes: &[u8], length: usize) -> Self {
        let header = bytes.first_chunk::<{ Ipv6::HEADER_BYTES }>().filter(|header| header[0] >> 4 == 6);
        let Some(header) = header else { return Self::other(link).ending(Extent::Broken) };
        let summary = Self::ip(link, Network::Ipv6, WORDS_V6, IpProtocol(header[6]));
        let Ok(ip) = Ipv6::parse_head(bytes, length) else { return summary.ending(Extent::Broken) };
        let Ok(upper) = ip.upper() else { return summary.ending(Extent::Unreadable) };
        Self::ip(link, Network::Ipv6, upper.offset / 4, upper.protocol)
            .part_at(upper.fragment.map(|fragment| fragment.offset))
            .ending_at(Ipv6::HEADER_BYTES + usize::from(ip.payload_length()), length)
    }

    const fn other(link: u32) -> Self {
        Self(link << LINK_AT | (Network::Other as u32) << NETWORK_AT)
    }

    #[expect(clippy::cast_possible_truncation, reason = "eight extension headers of 2048 bytes at most")]
    const fn ip(link: u32, network: Network, words: usize, protocol: IpProtocol) -> Self {
        let words = words as u32 & WORDS;
        Self(link << LINK_AT | (network as u32) << NETWORK_AT | words << WORDS_AT | protocol.0 as u32)
    }

    /// Adds the part that starts so many bytes behind the first, if the packet is a fragment.
    const fn part_at(self, offset: Option<u16>) -> Self {
        let part = match offset {
            None => Part::Whole,
            Some(0) => Part::First,
            Some(8) => Part::Second,
            Some(_) => Part::Later,
        };
        Self(self.0 | (part as u32) << PART_AT)
    }

    const fn ending(self, extent: Extent) -> Self {
        Self(self.0 | (extent as u32) << EXTENT_AT)
    }

    const fn ending_at(self, end: usize, length: usize) -> Self {
        self.ending(if end == length { Extent::Exact } else { Extent::Padded })
    }

    /// Network protocol.
    #[inline(always)]
    pub const fn network(self) -> Network {
        match self.0 >> NETWORK_AT & 3 {
            2 => Network::Ipv4,
            3 => Network::Ipv6,
            _ => Network::Other,
        }
    }

    /// Bytes before the network header: Ethernet header and at most two tags.
    #[inline(always)]
    pub const fn network_offset(self) -> usize {
        (LINK_BYTES >> ((self.0 >> LINK_AT & 3) * 8) & 0xff) as usize
    }

    /// Bytes of the IP header with its options or extension headers; 0 for [`Network::Other`].
    #[inline(always)]
    pub const fn network_bytes(self) -> usize {
        ((self.0 >> WORDS_AT & WORDS) * 4) as usize
    }

    /// Bytes before the payload of the IP packet.
    #[inline(always)]
    pub const fn transport_offset(self) -> usize {
        self.network_offset() + self.network_bytes()
    }

    /// Protocol that the IP packet carries, of a later fragment as well. Where extension headers cannot be read it is
    /// the first of them; behind the header of a later fragment it may be one.
    #[inline(always)]
    pub const fn protocol(self) -> IpProtocol {
        IpProtocol(self.0.to_le_bytes()[0])
    }

    /// Part of an IP datagram that the packet carries.
    #[inline(always)]
    pub const fn part(self) -> Part {
        match self.0 >> PART_AT & 3 {
            0 => Part::Whole,
            1 => Part::First,
            2 => Part::Second,
            _ => Part::Later,
        }
    }

    /// True if the packet carries a part of an IP datagram.
    #[inline(always)]
    pub const fn is_fragment(self) -> bool {
        self.0 >> PART_AT & 3 != 0
    }

    /// True if a transport header follows the IP header, as far as the packet reaches.
    #[inline(always)]
    pub const fn has_transport(self) -> bool {
        matches!(self.part(), Part::Whole | Part::First) && self.is_readable()
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

    /// True if all headers up to the transport header could be read.
    #[inline(always)]
    pub const fn is_readable(self) -> bool {
        self.0 >> (EXTENT_AT + 1) & 1 == 0
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

    /// True for a whole IPv4 packet without tags and options, padded or not.
    #[inline(always)]
    pub const fn is_plain_v4(self) -> bool {
        self.0 & !(0xff | 1 << EXTENT_AT) == Self::PLAIN_V4
    }

    /// Fields of a [plain](Self::is_plain_v4) packet in the frame `bytes`; `None` for any other.
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

    /// Network header and all bytes behind it, of the frame `bytes`.
    #[inline(always)]
    pub fn network_header(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.network_offset()..).unwrap_or_default()
    }

    /// Payload of the IP packet, of the frame `bytes`, without the link's padding.
    #[inline]
    pub fn payload(self, bytes: &[u8]) -> &[u8] {
        let payload = bytes.get(self.transport_offset()..).unwrap_or_default();
        if self.extent() != Extent::Padded {
            return payload;
        }
        let header = self.network_header(bytes);
        let (at, fixed) = if self.network() == Network::Ipv6 { (4, Ipv6::HEADER_BYTES) } else { (2, 0) };
        let field = header.get(at..).and_then(<[u8]>::first_chunk);
        let length = fixed + field.map_or(0, |&field| usize::from(u16::from_be_bytes(field)));
        payload.get(..length.saturating_sub(self.network_bytes())).unwrap_or(payload)
    }

    /// Addresses of an IP packet, of the frame `bytes`.
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
