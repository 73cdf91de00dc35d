//! Candidate for coalescing: header offsets of a packet, and whether it may be merged.

use crate::parse::{Addresses, Extent, HeaderSummary, Network};
use crate::wire::{EtherType, IpProtocol, Ipv4, Ipv6, Pseudo, Tcp, TcpFlags, Udp};
use polder_buffers::{ChecksumState, Packet, SegmentationKind};

/// EtherType of double tagging before IEEE 802.1ad, still in use.
const OLD_TAG: EtherType = EtherType(0x9100);

/// Classification of a packet.
#[derive(Debug)]
pub(super) enum MergeCheck {
    /// Neither TCP nor UDP: belongs to no flow.
    Other,
    /// Possibly TCP or UDP of an unknown flow: no later packet may be merged with earlier ones.
    Unclear,
    /// TCP or UDP of a known flow.
    Flow(Candidate),
}

/// An unfragmented TCP or UDP packet over IP with plain headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Hash of addresses and ports.
    pub(super) flow: u32,
    /// The protocols.
    pub(super) protocol: Protocol,
    /// Offset of the network header in bytes.
    pub(super) network: u16,
    /// Offset of the transport header in bytes.
    pub(super) transport: u16,
    /// Length of all headers in bytes.
    pub(super) headers: u16,
    /// Length of the payload in bytes.
    pub(super) payload: u32,
    /// TCP sequence number of the first byte.
    pub(super) sequence: u32,
    /// IPv4 identification; 0 over IPv6.
    pub(super) identification: u16,
    /// Positions that the packet may have in a merged packet.
    pub(super) part: MergePosition,
}

/// Transport and network protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Tcp4,
    Tcp6,
    Udp4,
    Udp6,
}

/// Positions that a packet may have in a merged packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MergePosition {
    /// Any position.
    Any,
    /// Last only, because PSH or FIN belongs to the last byte.
    Last,
    /// Not merged; later packets of the flow must not be merged with earlier ones.
    None,
}

impl Protocol {
    pub(super) const fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp4 | Self::Tcp6)
    }

    pub(super) const fn is_v4(self) -> bool {
        matches!(self, Self::Tcp4 | Self::Udp4)
    }

    /// Offset of the checksum in the transport header.
    pub(super) const fn checksum_offset(self) -> u16 {
        if self.is_tcp() { Tcp::CHECKSUM_OFFSET } else { Udp::CHECKSUM_OFFSET }
    }
}

/// Classifies a packet.
///
/// Cost: reads the first 54 to 78 bytes.
#[inline]
pub(super) fn classify(packet: &Packet) -> MergeCheck {
    let (headers, bytes) = HeaderSummary::read_with_bytes(packet);
    if !headers.is_readable() {
        return MergeCheck::Unclear;
    }
    let protocol = match (headers.network(), headers.protocol()) {
        (Network::Ipv4, IpProtocol::TCP) => Protocol::Tcp4,
        (Network::Ipv4, IpProtocol::UDP) => Protocol::Udp4,
        (Network::Ipv4, _) => return MergeCheck::Other,
        // TCP or UDP may follow the extension headers.
        (Network::Ipv6, _) if headers.is_extended_v6() => return MergeCheck::Unclear,
        (Network::Ipv6, IpProtocol::TCP) => Protocol::Tcp6,
        (Network::Ipv6, IpProtocol::UDP) => Protocol::Udp6,
        (Network::Ipv6, IpProtocol::ICMPV6) => return MergeCheck::Other,
        (Network::Ipv6, _) => return MergeCheck::Unclear,
        (Network::Other, _) => return look_other(bytes, headers),
    };
    let fixed = if protocol.is_v4() { Ipv4::HEADER_BYTES } else { Ipv6::HEADER_BYTES };
    if headers.is_fragment() || headers.network_bytes() != fixed {
        return MergeCheck::Unclear;
    }
    let Some(addresses) = headers.addresses(bytes) else { return MergeCheck::Unclear };
    let (network, transport) = (headers.network_offset(), headers.transport_offset());
    let is_exact = headers.extent() == Extent::Exact;
    let place = HeaderOffsets { network, transport, is_exact, addresses: mixed(addresses) };
    let identification = bytes.get(network + 4..).and_then(<[u8]>::first_chunk).filter(|_| protocol.is_v4());
    let identification = identification.map_or(0, |&field| u16::from_be_bytes(field));
    look_transport(packet, bytes.get(transport..).unwrap_or_default(), &place, protocol, identification)
}

/// Classifies a frame without IP packet.
#[cold]
fn look_other(bytes: &[u8], headers: HeaderSummary) -> MergeCheck {
    let ether_type = bytes.get(headers.network_offset() - 2..).and_then(<[u8]>::first_chunk);
    let ether_type = EtherType(ether_type.map_or(0, |&field| u16::from_be_bytes(field)));
    // Any flow may follow a further tag.
    if ether_type.is_tag() || ether_type == OLD_TAG { MergeCheck::Unclear } else { MergeCheck::Other }
}

/// Sum of the addresses; for IPv6 of their last four bytes, which distinguish hosts of a link.
#[inline]
fn mixed(addresses: Addresses) -> u32 {
    let [source, destination] = match addresses {
        Addresses::V4(addresses) => addresses,
        Addresses::V6(addresses) => addresses.map(|address| {
            let [.., a, b, c, d] = address.to_be_bytes();
            u32::from_be_bytes([a, b, c, d])
        }),
    };
    source.wrapping_add(destination.rotate_left(16))
}

/// Offset of a transport header, and properties of the headers before it.
struct HeaderOffsets {
    network: usize,
    transport: usize,
    /// True if the frame ends with the IP packet.
    is_exact: bool,
    addresses: u32,
}

#[inline]
fn look_transport(
    packet: &Packet,
    bytes: &[u8],
    place: &HeaderOffsets,
    protocol: Protocol,
    id: u16,
) -> MergeCheck {
    let (header_bytes, sequence, mut part, ports) = if protocol.is_tcp() {
        let Ok(tcp) = Tcp::parse(bytes) else { return MergeCheck::Unclear };
        let ports = u32::from(tcp.source_port()) << 16 | u32::from(tcp.destination_port());
        (tcp.header_bytes(), tcp.sequence(), part_of(tcp.flags()), ports)
    } else {
        let Some(&[a, b, c, d, high, low, _, _]) = bytes.first_chunk() else { return MergeCheck::Unclear };
        let whole = usize::from(u16::from_be_bytes([high, low])) + place.transport == packet.len();
        (
            Udp::HEADER_BYTES,
            0,
            if whole { MergePosition::Any } else { MergePosition::None },
            u32::from_be_bytes([a, b, c, d]),
        )
    };
    let headers = place.transport + header_bytes;
    let payload = packet.len().saturating_sub(headers);
    let is_single = packet.segmentation.kind == SegmentationKind::None;
    let is_whole = headers <= bytes.len() + place.transport;
    if payload == 0 || !place.is_exact || !is_single || !is_whole || is_odd(packet, place, protocol) {
        part = MergePosition::None;
    }
    // Fibonacci hashing: the upper bits depend on all bits.
    let flow = (place.addresses ^ ports.rotate_left(7)).wrapping_mul(0x9e37_79b9);
    let (Ok(network), Ok(transport), Ok(headers), Ok(payload)) = (
        u16::try_from(place.network),
        u16::try_from(place.transport),
        u16::try_from(headers),
        u32::try_from(payload),
    ) else {
        return MergeCheck::Unclear;
    };
    let identification = id;
    MergeCheck::Flow(Candidate {
        flow,
        protocol,
        network,
        transport,
        headers,
        payload,
        sequence,
        identification,
        part,
    })
}

/// True if the packet's partial checksum is not that of its transport header.
#[inline]
fn is_odd(packet: &Packet, place: &HeaderOffsets, protocol: Protocol) -> bool {
    let field = (usize::from(packet.checksum_start), packet.checksum_offset);
    packet.checksum == ChecksumState::Partial && field != (place.transport, protocol.checksum_offset())
}

/// Positions that the TCP flags allow.
#[inline]
const fn part_of(flags: TcpFlags) -> MergePosition {
    const LASTS: TcpFlags = TcpFlags::PSH.with(TcpFlags::FIN);
    let rest = flags.without(LASTS.with(TcpFlags::ECE));
    match (rest.0 == TcpFlags::ACK.0, flags.0 & LASTS.0) {
        (true, 0) => MergePosition::Any,
        (true, _) => MergePosition::Last,
        (false, _) => MergePosition::None,
    }
}

/// True if `next` has the same headers as `head`, except for fields that differ between segments: lengths,
/// identification, checksums, sequence number, PSH and FIN.
#[inline]
pub(super) fn same_headers(head: &Packet, next: &Packet, at: &Candidate) -> bool {
    let (a, b) = (head.bytes(), next.bytes());
    let (network, transport) = (usize::from(at.network), usize::from(at.transport));
    let same = |from: usize, to: usize| a.get(from..to) == b.get(from..to);
    let link = same(0, network);
    let ip = if at.protocol.is_v4() {
        // Version and class; flags, TTL and protocol; addresses.
        same(network, network + 2) && same(network + 6, network + 10) && same(network + 12, network + 20)
    } else {
        // Version, class and flow label; next header, hop limit and addresses.
        same(network, network + 4) && same(network + 6, network + 40)
    };
    link && ip && same(transport, transport + 4) && (!at.protocol.is_tcp() || same_tcp(a, b, at))
}

#[inline]
fn same_tcp(a: &[u8], b: &[u8], at: &Candidate) -> bool {
    const EITHER: u8 = TcpFlags::PSH.0 | TcpFlags::FIN.0;
    let transport = usize::from(at.transport);
    let same = |from: usize, to: usize| a.get(transport + from..to) == b.get(transport + from..to);
    let flags = |bytes: &[u8]| bytes.get(transport + 13).map(|flags| flags | EITHER);
    // Acknowledgement and data offset; window; urgent pointer and options.
    same(8, transport + 13)
        && flags(a) == flags(b)
        && same(14, transport + 16)
        && same(18, usize::from(at.headers))
}

/// True if both checksums are exactly those that segmentation would compute: correct, with the usual
/// representation of zero; or the transport checksum is partial.
///
/// Cost: reads the whole packet, unless its checksum is verified by the device or partial.
pub(super) fn is_exact(packet: &Packet, at: &Candidate) -> bool {
    let bytes = packet.bytes();
    let network = bytes.get(usize::from(at.network)..).unwrap_or_default();
    let protocol = if at.protocol.is_tcp() { IpProtocol::TCP } else { IpProtocol::UDP };
    let field = bytes.get(usize::from(at.transport + at.protocol.checksum_offset())..);
    let Some(&field) = field.and_then(<[u8]>::first_chunk::<2>) else { return false };
    let Some(pseudo) = pseudo(network, at, packet.len()) else { return false };
    let unusual = if at.protocol.is_tcp() { [0xff, 0xff] } else { [0, 0] };
    match packet.checksum {
        ChecksumState::Partial => {
            let length = u32::try_from(packet.len() - usize::from(at.transport)).unwrap_or(u32::MAX);
            u16::from_be_bytes(field) == pseudo.sum(protocol, length).partial()
        }
        ChecksumState::Verified => field != unusual,
        ChecksumState::Unknown => field != unusual && sum(packet, pseudo, protocol, at).is_valid(),
    }
}

/// Pseudo-header addresses; `None` if the IPv4 header's checksum is not exact.
fn pseudo(network: &[u8], at: &Candidate, length: usize) -> Option<Pseudo> {
    if at.protocol.is_v4() {
        let ip = Ipv4::parse_head(network, length).ok()?;
        (ip.checksum() != 0xffff && ip.verify().is_ok()).then(|| ip.pseudo())
    } else {
        Some(Ipv6::parse_head(network, length).ok()?.pseudo())
    }
}

fn sum(packet: &Packet, pseudo: Pseudo, protocol: IpProtocol, at: &Candidate) -> crate::wire::Checksum {
    let mut skip = usize::from(at.transport);
    let length = u32::try_from(packet.len() - skip).unwrap_or(u32::MAX);
    let mut sum = pseudo.sum(protocol, length);
    for segment in packet.segments() {
        let from = skip.min(segment.len());
        skip -= from;
        sum.add(&segment[from..]);
    }
    sum
}
