//! Outer IP headers of received tunnel packets, up to the header of the encapsulation.

use super::datagram::FragmentHeader;
use super::{Carrier, Ends, Tunnels, Underlay};
use crate::drops::DropReason;
use crate::parse::PlainV4;
use crate::wire::{
    Checksum, Ecn, EtherType, Ethernet, IpProtocol, Ipv4, Ipv6, Ipv6Extension, TrafficClass, Vlan, VlanId,
};
use polder_buffers::Packet;
use std::net::Ipv4Addr;

/// Reason why a packet on an underlay cannot be opened as it is.
pub(super) enum Refused {
    /// The packet is a fragment of a possible tunnel packet.
    Fragment,
    /// Its journey ends.
    Drop(DropReason),
    /// Its journey ends, and the tunnel counts it.
    OfTunnel(DropReason),
    /// The payload is a packet without a frame; its facts are in the lane, for here they would make the
    /// result for every frame longer.
    Bare,
}

/// Fields of accepted outer headers.
pub(super) struct Opened {
    /// Bytes in front of the frame inside.
    pub(super) strip: u16,
    /// Bytes up to the end of that frame.
    pub(super) end: usize,
    pub(super) ecn: Ecn,
    pub(super) sequence: Option<u32>,
}

impl From<DropReason> for Refused {
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}

/// Verdict on a packet that no tunnel is for.
pub(super) const NOT_FOR_US: Refused = Refused::Drop(DropReason::NotForUs);

/// Extension headers of IPv6 that may stand before the GRE header.
const MOST_EXTENSIONS: usize = 4;

/// Fields of the headers before that of the encapsulation, of a packet that is all there.
pub(super) struct Envelope<'p> {
    /// As this gateway sees them.
    pub(super) ends: Ends,
    /// Bytes before the header of the encapsulation, and up to the end of the IP packet.
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) ecn: Ecn,
    /// The bytes from that header on that are in the head of the packet.
    pub(super) payload: &'p [u8],
}

/// The family of an IP packet for the underlay, the bytes before it, and its first bytes. A priority tag counts as
/// none.
#[inline]
pub(super) fn network<'p>(
    bytes: &'p [u8],
    underlay: &Underlay,
) -> Result<(EtherType, usize, &'p [u8]), Refused> {
    let ethernet = Ethernet::parse(bytes)?;
    if ethernet.destination() != underlay.mac {
        return Err(NOT_FOR_US);
    }
    let ether_type = ethernet.ether_type();
    if matches!(ether_type, EtherType::IPV4 | EtherType::IPV6) && underlay.vlan.is_none() {
        return Ok((ether_type, Ethernet::HEADER_BYTES, ethernet.payload()));
    }
    if ether_type == EtherType::VLAN {
        let tag = Vlan::parse(ethernet.payload())?;
        let vlan = tag.id().filter(|&id| id != VlanId::PRIORITY);
        let is_ip = matches!(tag.ether_type(), EtherType::IPV4 | EtherType::IPV6);
        if tag.id().is_some() && vlan == underlay.vlan && is_ip {
            let before = Ethernet::HEADER_BYTES + Vlan::HEADER_BYTES;
            return Ok((tag.ether_type(), before, tag.payload()));
        }
    }
    Err(NOT_FOR_US)
}

/// Checks a whole IPv4 packet without tags and options, in the frame `bytes`.
#[inline(always)]
pub(super) fn envelope_plain<'p>(
    plain: PlainV4<'p>,
    bytes: &'p [u8],
    underlay: &Underlay,
) -> Result<Envelope<'p>, Refused> {
    let ethernet = Ethernet::parse(bytes)?;
    if ethernet.destination() != underlay.mac {
        return Err(NOT_FOR_US);
    }
    let header =
        ethernet.payload().first_chunk::<{ Ipv4::HEADER_BYTES }>().ok_or(DropReason::Ipv4Truncated)?;
    if !Checksum::of_header(header).is_valid() {
        return Err(Refused::Drop(DropReason::Ipv4BadChecksum));
    }
    let [remote, local] = plain.addresses.map(Ipv4Addr::from_bits);
    Ok(Envelope {
        ends: Ends::V4 { local, remote },
        start: Ethernet::HEADER_BYTES + Ipv4::HEADER_BYTES,
        end: Ethernet::HEADER_BYTES + usize::from(u16::from_be_bytes([header[2], header[3]])),
        ecn: TrafficClass(header[1]).ecn(),
        payload: plain.payload,
    })
}

/// Reads an IPv4 header, which has `link` bytes before it.
#[inline(always)]
pub(super) fn envelope_v4<'p>(ip: &Ipv4<'p>, link: usize) -> Envelope<'p> {
    Envelope {
        ends: Ends::V4 { local: ip.destination(), remote: ip.source() },
        start: link + ip.header_bytes(),
        end: link + usize::from(ip.total_length()),
        ecn: ip.traffic_class().ecn(),
        payload: ip.payload(),
    }
}

#[inline(always)]
pub(super) fn header_v4<'p>(
    packet: &'p Packet,
    (link, bytes): (usize, &'p [u8]),
) -> Result<Ipv4<'p>, Refused> {
    let ip = Ipv4::parse_head(bytes, packet.len() - link)?;
    ip.verify()?;
    Ok(ip)
}

/// Reads an IPv6 header, which has `link` bytes before it, and the extension headers before GRE.
#[inline(always)]
pub(super) fn envelope_v6<'p>(ip: &Ipv6<'p>, link: usize) -> Result<Envelope<'p>, Refused> {
    let before = if matches!(ip.next_header(), IpProtocol::GRE | IpProtocol::UDP) {
        Ipv6::HEADER_BYTES
    } else {
        match skip(ip)? {
            Walk::Gre(before) => before,
            Walk::Fragment(_) => return Err(Refused::Fragment),
        }
    };
    Ok(Envelope {
        ends: ends_v6(ip),
        start: link + before,
        end: link + Ipv6::HEADER_BYTES + usize::from(ip.payload_length()),
        ecn: ip.traffic_class().ecn(),
        payload: ip.payload().get(before - Ipv6::HEADER_BYTES..).unwrap_or_default(),
    })
}

fn ends_v6(ip: &Ipv6<'_>) -> Ends {
    Ends::V6 { local: ip.destination(), remote: ip.source() }
}

/// Header behind the extension headers.
enum Walk<'p> {
    /// GRE header, at this offset from the start of the IPv6 header.
    Gre(usize),
    /// Fragment header.
    Fragment(Ipv6Extension<'p>),
}

/// Skips the extension headers of a packet that has arrived: options that need not be understood, and the
/// header of a fragment that is a whole packet (RFC 6946).
fn skip<'p>(ip: &Ipv6<'p>) -> Result<Walk<'p>, Refused> {
    let (mut kind, mut offset) = (ip.next_header(), Ipv6::HEADER_BYTES);
    for _ in 0..=MOST_EXTENSIONS {
        if kind == IpProtocol::GRE {
            return Ok(Walk::Gre(offset));
        }
        // What a routing header leads elsewhere has not arrived, and nobody authenticates to a tunnel.
        let is_known =
            matches!(kind, IpProtocol::DESTINATION_OPTIONS | IpProtocol::FRAGMENT | IpProtocol::HOP_BY_HOP);
        if !is_known {
            return Err(NOT_FOR_US);
        }
        let bytes = ip.payload().get(offset - Ipv6::HEADER_BYTES..).unwrap_or_default();
        let extension = Ipv6Extension::parse(kind, bytes, offset)?;
        if extension.fragment().is_some_and(|fragment| fragment.more || fragment.offset > 0) {
            let is_gre = matches!(extension.next_header, IpProtocol::GRE | IpProtocol::DESTINATION_OPTIONS);
            return if is_gre { Ok(Walk::Fragment(extension)) } else { Err(NOT_FOR_US) };
        }
        for option in extension.options() {
            if !option?.may_be_skipped() {
                return Err(Refused::Drop(DropReason::Ipv6BadExtension));
            }
        }
        (kind, offset) = (extension.next_header, extension.end());
    }
    Err(Refused::Drop(DropReason::Ipv6BadExtension))
}

/// The ends of a packet that may be of an encapsulation, however it goes on, and the field by which that is known; `None`
/// for all others.
#[cold]
pub(super) fn ends(packet: &Packet, underlay: &Underlay) -> Option<(Ends, Carrier)> {
    let (ether_type, link, bytes) = network(packet.bytes(), underlay).ok()?;
    if ether_type == EtherType::IPV4 {
        let ip = header_v4(packet, (link, bytes)).ok()?;
        let carrier = match ip.protocol() {
            IpProtocol::UDP if ip.is_fragment() => return None,
            IpProtocol::UDP => udp(ip.payload())?,
            other => Carrier::Ip(other),
        };
        return Some((Ends::V4 { local: ip.destination(), remote: ip.source() }, carrier));
    }
    let ip = Ipv6::parse_head(bytes, packet.len() - link).ok()?;
    if ip.next_header() == IpProtocol::UDP {
        return Some((ends_v6(&ip), udp(ip.payload())?));
    }
    // Options that have to be understood are a tunnel's business, if they are in front of GRE.
    let is_gre =
        ip.next_header() == IpProtocol::GRE || !matches!(skip(&ip), Err(Refused::Drop(DropReason::NotForUs)));
    is_gre.then(|| (ends_v6(&ip), Carrier::GRE))
}

/// The field by which a packet over UDP is known, whatever else is wrong with it.
fn udp(bytes: &[u8]) -> Option<Carrier> {
    let port = bytes.get(2..4)?.first_chunk()?;
    Some(Carrier::Udp(u16::from_be_bytes(*port)))
}

/// Header of a packet that is a fragment of a possible tunnel packet; `None` for all others.
#[cold]
pub(super) fn place(packet: &Packet, underlay: &Underlay, tunnels: &Tunnels) -> Option<FragmentHeader> {
    let (ether_type, link, bytes) = network(packet.bytes(), underlay).ok()?;
    if ether_type == EtherType::IPV4 {
        let ip = header_v4(packet, (link, bytes)).ok()?;
        let may_be_ours = ip.is_fragment() && tunnels.takes(Carrier::Ip(ip.protocol()));
        return may_be_ours.then(|| FragmentHeader::v4(link, &ip));
    }
    let ip = Ipv6::parse_head(bytes, packet.len() - link).ok()?;
    match skip(&ip).ok()? {
        Walk::Fragment(extension) => FragmentHeader::v6(link, &ip, ends_v6(&ip), &extension),
        Walk::Gre(_) => None,
    }
}
