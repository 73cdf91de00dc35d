//! Link header check, and the summary of a packet's headers.
//!
//! In: received frames. Out: frames of at least an Ethernet header. Exits: `EthernetTruncated`,
//! `FrameTooLong`. Cost: less than a nanosecond per packet; no byte of the packet is read.
//!
//! A bridge forwards unknown protocols, so the stage reads nothing above the link header. The first stage
//! that needs headers parses them into a [`HeaderSummary`], one word that stays with the packet and is shared
//! with later stages. Every method that changes the packet's start, end or bytes [clears the
//! summary](Packet::header_summary), so inner headers are never taken for outer ones. Addresses, ports and
//! fields that routers change are not in the summary.
//!
//! | bits | field |
//! |---|---|
//! | 0 to 7 | protocol after the IP header and its extension headers |
//! | 8 to 20 | length of IP header and extension headers in words of four bytes |
//! | 21, 22 | number of VLAN tags; 3 without a link header |
//! | 23, 24 | [`Network`]; 0 when no summary is stored |
//! | 25, 26 | [`Part`] |
//! | 27, 28 | [`Extent`] |
//!
//! Cost: 20 instructions for an unfragmented IPv4 packet without tags and options. Source: `skb_flow_dissect`
//! of Linux and `packet_type` of DPDK's mbufs have the same fields.

mod bytes;
mod closely;
mod fields;

pub use bytes::{Addresses, PlainV4};
pub use fields::Extent;

use crate::drops::{Context, DropReason, is_dropped};
use crate::wire::{EtherType, Ethernet, IpProtocol, Ipv4, Ipv6};
use polder_buffers::{Batch, Packet};

/// Length of an Ethernet header without tags, in bytes.
const ETHERNET: u16 = 14;

/// Drops packets without a complete Ethernet header or longer than `longest` bytes; returns the number of
/// packets that are not dropped.
pub fn parse(batch: &mut Batch, longest: usize, context: &Context<'_>) -> usize {
    let mut alive = 0;
    for packet in batch.iter_mut() {
        if is_dropped(packet) {
            continue;
        }
        match decide(packet, longest) {
            None => {
                packet.network_offset = ETHERNET;
                alive += 1;
            }
            Some(reason) => context.discard(packet, reason),
        }
    }
    alive
}

/// Drop reason of a frame; `None` if it is accepted.
#[inline]
fn decide(packet: &Packet, longest: usize) -> Option<DropReason> {
    if packet.head_len() < usize::from(ETHERNET) {
        // Devices fill the first frame of a chain first, so a short head means a short packet.
        return Some(DropReason::EthernetTruncated);
    }
    (packet.len() > longest).then_some(DropReason::FrameTooLong)
}

/// Network protocol of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Network {
    /// Not IP, or a truncated IP header, or one of another version.
    Other = 1,
    /// IPv4 with a complete fixed header.
    Ipv4 = 2,
    /// IPv6 with a complete fixed header.
    Ipv6 = 3,
}

/// Part of an IP datagram that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// A whole datagram.
    Whole = 0,
    /// First fragment, which has the transport header; also the only fragment of an atomic fragment (RFC
    /// 6946).
    First = 1,
    /// Fragment at offset 8, inside a transport header (RFC 3128).
    Second = 2,
    /// Any later fragment.
    Later = 3,
}

/// Types and lengths of a packet's headers, as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderSummary(u32);

const WORDS_AT: u32 = 8;
const WORDS: u32 = 0x1fff;
const LINK_AT: u32 = 21;
const NETWORK_AT: u32 = 23;
const PART_AT: u32 = 25;
const EXTENT_AT: u32 = 27;
/// Value of the tag field: the packet starts with its network header.
const NO_LINK: u32 = 3;
/// Length in bytes of link headers with 0, 1 and 2 tags, and of none; lowest byte first.
const LINK_BYTES: u32 = u32::from_le_bytes([14, 18, 22, 0]);
/// Length in bytes of the headers of a plain IPv4 packet.
const PLAIN: usize = Ethernet::HEADER_BYTES + Ipv4::HEADER_BYTES;
/// Length of the fixed IPv6 header in words.
const WORDS_V6: usize = Ipv6::HEADER_BYTES / 4;

impl HeaderSummary {
    /// Summary of an unfragmented IPv4 packet without tags and options, except for its protocol.
    const PLAIN_V4: u32 = (Network::Ipv4 as u32) << NETWORK_AT | 5 << WORDS_AT;
    /// Summary of an unfragmented IPv6 packet without tags and extension headers, except for its protocol.
    const PLAIN_V6: u32 = (Network::Ipv6 as u32) << NETWORK_AT | 10 << WORDS_AT;

    /// Returns the summary of a packet and stores it with the packet.
    #[inline(always)]
    pub fn of(packet: &mut Packet) -> Self {
        Self::with_bytes(packet).0
    }

    /// Returns the summary of a packet, stored with the packet, and the bytes in its head frame.
    #[inline(always)]
    pub fn with_bytes(packet: &mut Packet) -> (Self, &[u8]) {
        let length = packet.len();
        let (bytes, known) = packet.bytes_and_header_summary();
        let summary = Self::known_or_parsed(*known, bytes, length);
        *known = summary.0;
        (summary, bytes)
    }

    #[inline(always)]
    fn known_or_parsed(known: u32, bytes: &[u8], length: usize) -> Self {
        if known == 0 {
            return Self::parse(bytes, length);
        }
        debug_assert_eq!(Self(known), Self::parse(bytes, length), "no header has changed");
        Self(known)
    }

    /// Parses a frame of `length` bytes that starts with `bytes`.
    #[inline(always)]
    pub fn parse(bytes: &[u8], length: usize) -> Self {
        match Self::parse_plain(bytes, length) {
            Some(plain) => plain,
            None => Self::parse_closely(bytes, length),
        }
    }

    /// Parses a [plain](Self::is_plain_v4) packet; `None` for any other.
    #[inline(always)]
    fn parse_plain(bytes: &[u8], length: usize) -> Option<Self> {
        let head = bytes.first_chunk::<PLAIN>()?;
        let is_plain = [head[12], head[13]] == EtherType::IPV4.0.to_be_bytes()
            && head[14] == 0x45
            && u16::from_be_bytes([head[20], head[21]]) & 0x3fff == 0;
        let total = usize::from(u16::from_be_bytes([head[16], head[17]]));
        let room = length.wrapping_sub(Ethernet::HEADER_BYTES);
        if !is_plain || !(Ipv4::HEADER_BYTES..=room).contains(&total) {
            return None;
        }
        let padded = u32::from(total != room) << EXTENT_AT;
        Some(Self(Self::PLAIN_V4 | padded | u32::from(head[23])))
    }

    /// The word that is stored with a packet.
    #[inline(always)]
    pub(crate) const fn word(self) -> u32 {
        self.0
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

    /// Length of the link header in bytes: Ethernet header and at most two tags.
    #[inline(always)]
    pub const fn network_offset(self) -> usize {
        (LINK_BYTES >> ((self.0 >> LINK_AT & 3) * 8) & 0xff) as usize
    }

    /// Length in bytes of the IP header with options or extension headers; 0 for [`Network::Other`].
    #[inline(always)]
    pub const fn network_bytes(self) -> usize {
        ((self.0 >> WORDS_AT & WORDS) * 4) as usize
    }

    /// Offset in bytes of the IP packet's payload.
    #[inline(always)]
    pub const fn transport_offset(self) -> usize {
        self.network_offset() + self.network_bytes()
    }

    /// Protocol of the IP packet's payload, also in later fragments. It is an extension header if extension
    /// headers are unreadable, and may be one in a later fragment.
    #[inline(always)]
    pub const fn protocol(self) -> IpProtocol {
        IpProtocol(self.0.to_le_bytes()[0])
    }

    /// Part of an IP datagram in this packet.
    #[inline(always)]
    pub const fn part(self) -> Part {
        match self.0 >> PART_AT & 3 {
            0 => Part::Whole,
            1 => Part::First,
            2 => Part::Second,
            _ => Part::Later,
        }
    }

    /// True if the packet is a fragment.
    #[inline(always)]
    pub const fn is_fragment(self) -> bool {
        self.0 >> PART_AT & 3 != 0
    }

    /// True if a transport header follows the IP header; it may be truncated.
    #[inline(always)]
    pub const fn has_transport(self) -> bool {
        matches!(self.part(), Part::Whole | Part::First) && self.is_readable()
    }

    /// True if all headers before the transport header could be parsed.
    #[inline(always)]
    pub const fn is_readable(self) -> bool {
        self.0 >> (EXTENT_AT + 1) & 1 == 0
    }

    /// True for an unfragmented IPv4 packet without tags and options, padded or not.
    #[inline(always)]
    pub const fn is_plain_v4(self) -> bool {
        self.0 & !(0xff | 1 << EXTENT_AT) == Self::PLAIN_V4
    }

    /// True for an unfragmented IPv6 packet without tags and extension headers, padded or not.
    #[inline(always)]
    pub const fn is_plain_v6(self) -> bool {
        self.0 & !(0xff | 1 << EXTENT_AT) == Self::PLAIN_V6
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Pseudo;

    fn summary(frame: &[u8]) -> HeaderSummary {
        HeaderSummary::parse(frame, frame.len())
    }

    /// Frame with that many tags.
    fn frame(tags: usize, ether_type: u16, packet: &[u8]) -> Vec<u8> {
        let tags = [0x81, 0, 0, 7].repeat(tags);
        [&[2; 12][..], &tags, &ether_type.to_be_bytes(), packet].concat()
    }

    /// Packet with that many words of options, these flags and offset, and eight bytes of payload.
    fn ipv4(options: u8, fragment: u16, protocol: u8) -> Vec<u8> {
        let mut packet = vec![0; 20 + usize::from(options) * 4 + 8];
        packet[0] = 0x45 + options;
        packet[3] = u8::try_from(packet.len()).expect("a short packet");
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet[8] = 64;
        packet[9] = protocol;
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        packet[20 + usize::from(options) * 4..].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        packet
    }

    /// Packet whose first header behind the fixed one is of this protocol.
    fn ipv6(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x60;
        packet[5] = u8::try_from(payload.len()).expect("a short packet");
        packet[6] = protocol;
        packet[8] = 0x20;
        packet[39] = 1;
        [packet, payload.to_vec()].concat()
    }

    /// Fragment header, with eight bytes of the protocol behind it.
    fn fragment(protocol: u8, offset_and_more: u16) -> Vec<u8> {
        let [high, low] = offset_and_more.to_be_bytes();
        ipv6(44, &[protocol, 0, high, low, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8])
    }

    #[test]
    fn tags_move_the_network_header() {
        for tags in 0..3 {
            for options in [0, 1, 10] {
                let read = summary(&frame(tags, 0x0800, &ipv4(options, 0, 17)));
                let network = 14 + tags * 4;
                let transport = network + 20 + usize::from(options) * 4;
                assert_eq!((read.network(), read.network_offset()), (Network::Ipv4, network));
                assert_eq!((read.transport_offset(), read.protocol()), (transport, IpProtocol::UDP));
                assert_eq!(read.is_plain_v4(), (tags, options) == (0, 0));
            }
            let read = summary(&frame(tags, 0x86dd, &ipv6(6, &[0; 8])));
            assert_eq!((read.network(), read.network_offset()), (Network::Ipv6, 14 + tags * 4));
            assert_eq!((read.transport_offset(), read.protocol()), (54 + tags * 4, IpProtocol::TCP));
            let read = summary(&frame(tags, 0x0806, &[0; 28]));
            assert_eq!((read.network(), read.network_offset()), (Network::Other, 14 + tags * 4));
        }
        let read = HeaderSummary::without_link(EtherType::IPV4, &ipv4(0, 0, 17), 28);
        assert_eq!((read.network_offset(), read.transport_offset(), read.is_plain_v4()), (0, 20, false));
    }

    #[test]
    fn fragments_are_told_by_their_offset() {
        let parts = [
            (0x0000, Part::Whole, true),
            (0x4000, Part::Whole, true),
            (0x2000, Part::First, true),
            (0x2001, Part::Second, false),
            (0x0001, Part::Second, false),
            (0x2002, Part::Later, false),
            (0x0100, Part::Later, false),
            (0x1000, Part::Later, false),
        ];
        for (flags, part, has_transport) in parts {
            let read = summary(&frame(0, 0x0800, &ipv4(0, flags, 17)));
            assert_eq!((read.part(), read.has_transport()), (part, has_transport), "{flags:#x}");
            assert_eq!((read.is_fragment(), read.is_plain_v4()), (part != Part::Whole, part == Part::Whole));
        }
        for (flags, part, has_transport) in [
            (0x0000, Part::First, true),
            (0x0001, Part::First, true),
            (0x0008, Part::Second, false),
            (0x0010, Part::Later, false),
        ] {
            let read = summary(&frame(0, 0x86dd, &fragment(17, flags)));
            assert_eq!((read.part(), read.has_transport()), (part, has_transport), "{flags:#x}");
            assert_eq!((read.protocol(), read.transport_offset()), (IpProtocol::UDP, 62));
            assert!(read.is_fragment() && read.is_extended_v6() && read.is_readable());
        }
        assert!(!summary(&frame(0, 0x86dd, &ipv6(17, &[0; 8]))).is_extended_v6());
    }

    #[test]
    fn the_end_of_a_packet_is_that_of_its_header() {
        let packets = [(0x0800, ipv4(0, 0, 17)), (0x0800, ipv4(3, 0, 17)), (0x86dd, ipv6(17, &PAYLOAD))];
        for (tags, (ether_type, packet)) in
            [0, 2].iter().flat_map(|&tags| packets.iter().map(move |of| (tags, of)))
        {
            let exact = frame(tags, *ether_type, packet);
            let padded = [exact.clone(), vec![0xee; 5]].concat();
            let short = summary(&exact[..exact.len() - 1]);
            assert_eq!((short.extent(), short.is_broken()), (Extent::Broken, true));
            for (frame, extent) in [(&exact, Extent::Exact), (&padded, Extent::Padded)] {
                let read = summary(frame);
                assert_eq!((read.extent(), read.end(frame, frame.len())), (extent, exact.len()));
                assert_eq!(read.payload(frame), PAYLOAD);
                let plain = read.plain_v4(frame).map(|plain| plain.payload);
                assert_eq!(plain, read.is_plain_v4().then_some(&PAYLOAD[..]));
            }
        }
    }

    const PAYLOAD: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

    #[test]
    fn headers_that_cannot_be_followed() {
        let extent = |frame: &[u8]| (summary(frame).network(), summary(frame).extent());
        assert_eq!(extent(&[2; 13]), (Network::Other, Extent::Unreadable));
        assert_eq!(extent(&frame(1, 0x0800, &[])[..17]), (Network::Other, Extent::Unreadable));
        assert_eq!(extent(&frame(0, 0x0800, &[0x45; 19])), (Network::Other, Extent::Broken));
        assert_eq!(extent(&frame(0, 0x0800, &[0x65; 40])), (Network::Other, Extent::Broken));
        assert_eq!(extent(&frame(0, 0x86dd, &[0x45; 40])), (Network::Other, Extent::Broken));
        let mut short = ipv4(0, 0, 17);
        short[3] = 19;
        assert_eq!(extent(&frame(0, 0x0800, &short)), (Network::Ipv4, Extent::Broken));
        let endless = summary(&frame(0, 0x86dd, &ipv6(60, &[60, 9, 0, 0, 0, 0, 0, 0])));
        assert_eq!((endless.extent(), endless.protocol()), (Extent::Unreadable, IpProtocol(60)));
        assert!(endless.is_extended_v6() && !endless.has_transport() && !endless.is_broken());
    }

    #[test]
    fn addresses_are_those_of_the_header() {
        for tags in 0..3 {
            let bytes = frame(tags, 0x0800, &ipv4(tags.try_into().expect("few"), 0, 17));
            let addresses = [0x0a00_0001, 0x0a00_0002];
            assert_eq!(summary(&bytes).addresses(&bytes), Some(Addresses::V4(addresses)));
            let plain = summary(&bytes).plain_v4(&bytes);
            assert_eq!(plain.map(|plain| plain.addresses), (tags == 0).then_some(addresses));
            let bytes = frame(tags, 0x86dd, &ipv6(17, &PAYLOAD));
            assert_eq!(summary(&bytes).addresses(&bytes), Some(Addresses::V6([0x20 << 120, 1])));
            let pseudo = summary(&bytes).addresses(&bytes).map(Addresses::pseudo);
            let [source, destination] = ["2000::", "::1"].map(|text| text.parse().expect("an address"));
            assert_eq!(pseudo, Some(Pseudo::V6 { source, destination }));
        }
    }
}
