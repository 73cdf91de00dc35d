//! A packet as coalescing sees it: the ends of its headers, and whether it may be merged at all.

use crate::wire::{EtherType, IpProtocol, Ipv4, Ipv6, Link, Pseudo, Tcp, TcpFlags, Udp};
use polder_buffers::{ChecksumState, Packet, SegmentationKind};

/// A tag as double tagging was done before IEEE 802.1ad; some still do.
const OLD_TAG: EtherType = EtherType(0x9100);

/// Result of examining a packet.
#[derive(Debug)]
pub(super) enum Look {
    /// Neither TCP nor UDP: no flow is waiting for it.
    Other,
    /// Perhaps part of a flow that cannot be told: no packet may overtake it.
    Unclear,
    /// Part of a flow.
    Flow(Candidate),
}

/// A whole TCP or UDP packet over IP, none of whose headers is out of the ordinary.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// A hash of addresses and ports.
    pub(super) flow: u32,
    /// The protocols.
    pub(super) protocol: Protocol,
    /// Bytes from the start of the packet to the network header.
    pub(super) network: u16,
    /// Bytes from the start of the packet to the transport header.
    pub(super) transport: u16,
    /// Bytes of all headers.
    pub(super) headers: u16,
    /// Bytes of payload.
    pub(super) payload: u32,
    /// TCP: number of the first byte.
    pub(super) sequence: u32,
    /// IPv4: identification; 0 over IPv6.
    pub(super) identification: u16,
    /// Possible position in a merged packet.
    pub(super) part: Part,
}

/// Transport and network protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Tcp4,
    Tcp6,
    Udp4,
    Udp6,
}

/// Possible position of a packet in a merged packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Any.
    Any,
    /// The last, because PSH or FIN belongs to the last byte.
    Last,
    /// None; those of the flow that come after it are not to overtake it.
    None,
}

impl Protocol {
    pub(super) const fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp4 | Self::Tcp6)
    }

    pub(super) const fn is_v4(self) -> bool {
        matches!(self, Self::Tcp4 | Self::Udp4)
    }
}

/// Looks at a packet.
///
/// Cost: reads the first 54 to 78 bytes.
#[inline]
pub(super) fn look(packet: &Packet) -> Look {
    let bytes = packet.bytes();
    let Ok(link) = Link::parse(bytes) else { return Look::Unclear };
    let network = link.header_bytes();
    match link.ether_type() {
        EtherType::IPV4 => look_v4(packet, link.payload(), network),
        EtherType::IPV6 => look_v6(packet, link.payload(), network),
        // Behind a further tag there may be any flow.
        other if other.is_tag() || other == OLD_TAG => Look::Unclear,
        _ => Look::Other,
    }
}

#[inline]
fn look_v4(packet: &Packet, bytes: &[u8], network: usize) -> Look {
    let behind = packet.len() - network;
    let Ok(ip) = Ipv4::parse_head(bytes, behind) else { return Look::Unclear };
    let is_tcp = match ip.protocol() {
        IpProtocol::TCP => true,
        IpProtocol::UDP => false,
        _ => return Look::Other,
    };
    if ip.is_fragment() || ip.header_bytes() != Ipv4::HEADER_BYTES {
        return Look::Unclear;
    }
    let is_exact = usize::from(ip.total_length()) == behind;
    let addresses = u32::from(ip.source()).wrapping_add(u32::from(ip.destination()).rotate_left(16));
    let place = HeaderOffsets { network, transport: network + Ipv4::HEADER_BYTES, is_exact, addresses };
    let payload = bytes.get(Ipv4::HEADER_BYTES..).unwrap_or_default();
    let protocol = if is_tcp { Protocol::Tcp4 } else { Protocol::Udp4 };
    look_transport(packet, payload, &place, protocol, ip.identification())
}

#[inline]
fn look_v6(packet: &Packet, bytes: &[u8], network: usize) -> Look {
    let behind = packet.len() - network;
    let Ok(ip) = Ipv6::parse_head(bytes, behind) else { return Look::Unclear };
    let protocol = match ip.next_header() {
        IpProtocol::TCP => Protocol::Tcp6,
        IpProtocol::UDP => Protocol::Udp6,
        IpProtocol::ICMPV6 => return Look::Other,
        // Behind extension headers there may be either.
        _ => return Look::Unclear,
    };
    let is_exact = usize::from(ip.payload_length()) + Ipv6::HEADER_BYTES == behind;
    let (source, destination) = (ip.source().octets(), ip.destination().octets());
    // The lower halves tell hosts of a link apart.
    let word = |octets: &[u8; 16]| u32::from_be_bytes([octets[12], octets[13], octets[14], octets[15]]);
    let addresses = word(&source).wrapping_add(word(&destination).rotate_left(16));
    let place = HeaderOffsets { network, transport: network + Ipv6::HEADER_BYTES, is_exact, addresses };
    let payload = bytes.get(Ipv6::HEADER_BYTES..).unwrap_or_default();
    look_transport(packet, payload, &place, protocol, 0)
}

/// Offset of a transport header, and properties of the headers in front of it.
struct HeaderOffsets {
    network: usize,
    transport: usize,
    /// True if the frame ends where the IP packet does.
    is_exact: bool,
    addresses: u32,
}

#[inline]
fn look_transport(packet: &Packet, bytes: &[u8], place: &HeaderOffsets, protocol: Protocol, id: u16) -> Look {
    let (header_bytes, sequence, mut part, ports) = if protocol.is_tcp() {
        let Ok(tcp) = Tcp::parse(bytes) else { return Look::Unclear };
        let ports = u32::from(tcp.source_port()) << 16 | u32::from(tcp.destination_port());
        (tcp.header_bytes(), tcp.sequence(), part_of(tcp.flags()), ports)
    } else {
        let Some(&[a, b, c, d, high, low, _, _]) = bytes.first_chunk() else { return Look::Unclear };
        let whole = usize::from(u16::from_be_bytes([high, low])) + place.transport == packet.len();
        (Udp::HEADER_BYTES, 0, if whole { Part::Any } else { Part::None }, u32::from_be_bytes([a, b, c, d]))
    };
    let headers = place.transport + header_bytes;
    let payload = packet.len().saturating_sub(headers);
    let is_raw = packet.checksum != ChecksumState::Partial
        && packet.segmentation.kind == SegmentationKind::None
        && headers <= bytes.len() + place.transport;
    if payload == 0 || !place.is_exact || !is_raw {
        part = Part::None;
    }
    // Fibonacci hashing: the upper bits depend on all bits.
    let flow = (place.addresses ^ ports.rotate_left(7)).wrapping_mul(0x9e37_79b9);
    let (Ok(network), Ok(transport), Ok(headers), Ok(payload)) = (
        u16::try_from(place.network),
        u16::try_from(place.transport),
        u16::try_from(headers),
        u32::try_from(payload),
    ) else {
        return Look::Unclear;
    };
    let identification = id;
    Look::Flow(Candidate {
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

/// By its flags alone.
#[inline]
const fn part_of(flags: TcpFlags) -> Part {
    const LASTS: TcpFlags = TcpFlags::PSH.with(TcpFlags::FIN);
    let rest = flags.without(LASTS.with(TcpFlags::ECE));
    match (rest.0 == TcpFlags::ACK.0, flags.0 & LASTS.0) {
        (true, 0) => Part::Any,
        (true, _) => Part::Last,
        (false, _) => Part::None,
    }
}

/// True if `next` has the headers of `head`, but for the fields that differ from segment to
/// segment: lengths, identification, checksums, sequence number, PSH and FIN.
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

/// True if both checksums are exactly those of a sender that computes them anew: right, and of the two
/// ways to write zero the usual one.
///
/// Cost: reads the whole packet, unless the device has verified it.
pub(super) fn is_exact(packet: &Packet, at: &Candidate) -> bool {
    let bytes = packet.bytes();
    let network = bytes.get(usize::from(at.network)..).unwrap_or_default();
    let (protocol, usual) = if at.protocol.is_tcp() {
        (IpProtocol::TCP, bytes.get(usize::from(at.transport + Tcp::CHECKSUM_OFFSET)..))
    } else {
        (IpProtocol::UDP, bytes.get(usize::from(at.transport + Udp::CHECKSUM_OFFSET)..))
    };
    let Some(&field) = usual.and_then(<[u8]>::first_chunk::<2>) else { return false };
    let unusual = if at.protocol.is_tcp() { [0xff, 0xff] } else { [0, 0] };
    let Some(pseudo) = pseudo(network, at, packet.len()) else { return false };
    if field == unusual {
        return false;
    }
    packet.checksum == ChecksumState::Verified || sum(packet, pseudo, protocol, at).is_valid()
}

/// The addresses; `None` when the IPv4 header's checksum is not exactly right.
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
