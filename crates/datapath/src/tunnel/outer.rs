//! Outer IP headers of received tunnel packets, up to the encapsulation's header.

use super::datagram::FragmentHeader;
use super::{Carrier, Ends, Tunnels, Underlay};
use crate::drops::DropReason;
use crate::parse::PlainV4;
use crate::wire::{
    Checksum, Ecn, EtherType, Ethernet, IpProtocol, Ipv4, Ipv6, Ipv6Extension, TrafficClass, Vlan, VlanId,
};
use polder_buffers::Packet;
use std::net::Ipv4Addr;

/// Result other than a frame that can be decapsulated at once.
pub(super) enum Refused {
    /// The packet is a fragment of a possible tunnel packet.
    Fragment,
    /// The packet is dropped.
    Drop(DropReason),
    /// The packet is dropped and counted by the tunnel.
    OfTunnel(DropReason),
    /// The inner packet has no Ethernet header; its fields are stored in the lane to keep this type small.
    Bare,
}

/// Accepted outer headers.
pub(super) struct Opened {
    /// Length in bytes of the headers before the inner frame.
    pub(super) strip: u16,
    /// Offset in bytes of the inner frame's end.
    pub(super) end: usize,
    pub(super) ecn: Ecn,
    pub(super) sequence: Option<u32>,
}

impl From<DropReason> for Refused {
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}

/// Verdict on a packet that is not for this gateway.
pub(super) const NOT_FOR_US: Refused = Refused::Drop(DropReason::NotForUs);

/// Maximum number of IPv6 extension headers before the GRE header.
const MOST_EXTENSIONS: usize = 4;

/// Fields before the encapsulation's header, of an unfragmented packet.
pub(super) struct Envelope<'p> {
    /// Source and destination as remote and local endpoint.
    pub(super) ends: Ends,
    /// Offset in bytes of the encapsulation's header, and of the IP packet's end.
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) ecn: Ecn,
    /// Bytes from the encapsulation's header on, as far as they are in the head frame.
    pub(super) payload: &'p [u8],
}

/// EtherType of an IP packet for the underlay, length of its link header in bytes, and the bytes after that.
/// A priority tag counts as untagged.
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

/// Checks an unfragmented IPv4 packet without tags and options in the frame `bytes`.
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

/// Reads an IPv4 header after a link header of `link` bytes.
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

/// Reads an IPv6 header after a link header of `link` bytes, and the extension headers before GRE.
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

/// Header after the extension headers.
enum Walk<'p> {
    /// GRE header, at this offset in bytes from the start of the IPv6 header.
    Gre(usize),
    /// Fragment header.
    Fragment(Ipv6Extension<'p>),
}

/// Skips the extension headers of a packet for this gateway: skippable options, and the header of an atomic
/// fragment (RFC 6946).
fn skip<'p>(ip: &Ipv6<'p>) -> Result<Walk<'p>, Refused> {
    let (mut kind, mut offset) = (ip.next_header(), Ipv6::HEADER_BYTES);
    for _ in 0..=MOST_EXTENSIONS {
        if kind == IpProtocol::GRE {
            return Ok(Walk::Gre(offset));
        }
        // A packet with a routing header has not arrived yet, and tunnels do not use authentication headers.
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

/// Endpoints and carrier of a packet that may belong to a tunnel, even if it is malformed later; `None`
/// otherwise.
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
    // Options that must be understood are the tunnel's to judge if GRE follows.
    let is_gre =
        ip.next_header() == IpProtocol::GRE || !matches!(skip(&ip), Err(Refused::Drop(DropReason::NotForUs)));
    is_gre.then(|| (ends_v6(&ip), Carrier::GRE))
}

/// Carrier of a UDP packet, even if it is malformed otherwise.
fn udp(bytes: &[u8]) -> Option<Carrier> {
    let port = bytes.get(2..4)?.first_chunk()?;
    Some(Carrier::Udp(u16::from_be_bytes(*port)))
}

/// Header of a fragment of a possible tunnel packet; `None` for other packets.
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
