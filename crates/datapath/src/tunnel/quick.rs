//! Fast path of decapsulation: compares outer headers with the headers expected from the tunnel.
//!
//! In: packets of a lane's tunnel, contiguous, without options, extension headers, tags, sequence numbers,
//! and checksums after the IP header. Out: inner frames. Exits: none; other packets take the slow path.
//!
//! Cost: six loads with a comparison each, the IP checksum, and the inner header summary.

use super::decapsulate::REASSEMBLED;
use super::encapsulation::Expected;
use super::{ETHERNET_BYTES, Ends, TunnelOptions, Underlay, vxlan};
use crate::parse::HeaderSummary;
use crate::wire::{Checksum, EtherType, Ethernet, IpProtocol, Ipv4, Ipv6, MacAddress};
use polder_buffers::{ChecksumState, Packet};

/// Length in bytes of the compared headers after the IP header: UDP and VXLAN.
const BEHIND: usize = vxlan::HEADER_BYTES as usize;

/// MAC address of an underlay without VLAN, in the form that is compared with a frame's first eight bytes.
#[derive(Clone, Copy)]
pub(super) struct Station(u64);

impl Station {
    /// Address of an underlay; `None` if it has a VLAN.
    pub(super) fn of(underlay: &Underlay) -> Option<Self> {
        let MacAddress([a, b, c, d, e, f]) = underlay.mac;
        underlay.vlan.is_none().then(|| Self(u64::from_le_bytes([0, 0, a, b, c, d, e, f])))
    }

    /// True if a frame's header has this destination and EtherType.
    #[inline(always)]
    fn is_met(self, link: &[u8; Ethernet::HEADER_BYTES], kind: EtherType) -> bool {
        let &[a, b, c, d, e, f, g, h, .., high, low] = link;
        (u64::from_le_bytes([a, b, c, d, e, f, g, h]) << 16 == self.0) & ([high, low] == kind.0.to_be_bytes())
    }
}

/// Expected outer headers of one tunnel.
pub(super) struct Quick {
    addresses: Addresses,
    protocol: IpProtocol,
    /// Values of the bytes after the IP header, and masks of the bits that are compared.
    values: [u64; 2],
    bits: [u64; 2],
    /// Length in bytes of the headers before the inner frame.
    strip: u16,
}

/// Source and destination in the byte order of a packet.
enum Addresses {
    V4(u64),
    V6([u128; 2]),
}

impl Quick {
    /// Expected headers of a tunnel; `None` if comparison is not sufficient.
    pub(super) fn of(options: &TunnelOptions) -> Option<Self> {
        let carrier = options.encapsulation.carrier();
        let is_checked = options.checksum || carrier.port().is_some() && options.ends.is_v6();
        if is_checked || options.sequence || options.is_bare() || options.keepalive.is_some() {
            return None;
        }
        let (addresses, ip_bytes) = match options.ends {
            Ends::V4 { local, remote } => {
                let ([a, b, c, d], [e, f, g, h]) = (remote.octets(), local.octets());
                (Addresses::V4(u64::from_le_bytes([a, b, c, d, e, f, g, h])), Ipv4::HEADER_BYTES)
            }
            Ends::V6 { local, remote } => {
                let addresses = [remote, local].map(|end| u128::from_le_bytes(end.octets()));
                (Addresses::V6(addresses), Ipv6::HEADER_BYTES)
            }
        };
        let strip = Ethernet::HEADER_BYTES + ip_bytes + usize::from(options.header_bytes());
        let Expected { values, bits } = options.expected()?;
        let [values, bits] = [values, bits].map(|bytes| bytes.map(u64::from_le_bytes));
        Some(Self {
            addresses,
            protocol: carrier.protocol(),
            values,
            bits,
            strip: u16::try_from(strip).ok()?,
        })
    }

    /// Length of the outer headers in bytes and the inner header summary; `None` if the packet takes the slow
    /// path.
    #[inline(always)]
    pub(super) fn read(&self, packet: &Packet, station: Station) -> Option<(u16, HeaderSummary)> {
        let bytes = packet.bytes();
        let inner = bytes.get(usize::from(self.strip)..)?;
        let (link, rest) = bytes.split_first_chunk()?;
        let is_same = match self.addresses {
            Addresses::V4(addresses) => {
                let (ip, behind) = rest.split_first_chunk()?;
                let behind = behind.first_chunk()?;
                station.is_met(link, EtherType::IPV4)
                    & self.is_same_v4(ip, addresses, rest.len())
                    & self.leads_in(behind, rest.len().wrapping_sub(Ipv4::HEADER_BYTES))
            }
            Addresses::V6(addresses) => {
                let (ip, behind) = rest.split_first_chunk()?;
                let behind = behind.first_chunk()?;
                station.is_met(link, EtherType::IPV6)
                    & self.is_same_v6(ip, addresses, rest.len())
                    & self.leads_in(behind, rest.len().wrapping_sub(Ipv6::HEADER_BYTES))
            }
        };
        let is_plain = is_same & is_ready(packet) & (inner.len() >= usize::from(ETHERNET_BYTES));
        is_plain.then(|| (self.strip, HeaderSummary::parse(inner, inner.len())))
    }

    /// True for this tunnel's IPv4 header of an unfragmented packet of `length` bytes whose ECN mark changes
    /// nothing.
    #[inline(always)]
    fn is_same_v4(&self, ip: &[u8; Ipv4::HEADER_BYTES], addresses: u64, length: usize) -> bool {
        let &[.., a, b, c, d, e, f, g, h] = ip;
        (ip[0] == 0x45)
            & is_ecn_plain(ip[1])
            & (usize::from(u16::from_be_bytes([ip[2], ip[3]])) == length)
            & (u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff == 0)
            & (ip[9] == self.protocol.0)
            & (u64::from_le_bytes([a, b, c, d, e, f, g, h]) == addresses)
            & Checksum::of_header(ip).is_valid()
    }

    /// True for this tunnel's IPv6 header of a packet of `length` bytes whose ECN mark changes nothing.
    #[inline(always)]
    fn is_same_v6(&self, ip: &[u8; Ipv6::HEADER_BYTES], addresses: [u128; 2], length: usize) -> bool {
        let payload = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
        let (ends, _) = ip[8..].as_chunks::<16>();
        let differs =
            ends.iter().zip(addresses).fold(0, |all, (end, to)| all | (u128::from_le_bytes(*end) ^ to));
        (ip[0] >> 4 == 6)
            & is_ecn_plain(ip[1] >> 4)
            & (payload + Ipv6::HEADER_BYTES == length)
            & (ip[6] == self.protocol.0)
            & (differs == 0)
    }

    /// True for the encapsulation's header, at the start of `length` bytes.
    #[inline(always)]
    fn leads_in(&self, behind: &[u8; BEHIND], length: usize) -> bool {
        let &[first, second] = behind.as_chunks::<8>().0 else { return false };
        let differs = (u64::from_le_bytes(first) ^ self.values[0]) & self.bits[0]
            | (u64::from_le_bytes(second) ^ self.values[1]) & self.bits[1];
        let has_length = usize::from(u16::from_be_bytes([first[4], first[5]])) == length;
        (differs == 0) & (has_length | (self.protocol != IpProtocol::UDP))
    }
}

/// False for ECT(1) and CE, which change the inner frame (RFC 6040, figure 4).
#[inline(always)]
const fn is_ecn_plain(class: u8) -> bool {
    class & 1 == 0
}

/// True for a contiguous packet that needs only its headers removed.
#[inline(always)]
fn is_ready(packet: &Packet) -> bool {
    packet.is_contiguous() & (packet.flags & REASSEMBLED == 0) & (packet.checksum != ChecksumState::Partial)
}
