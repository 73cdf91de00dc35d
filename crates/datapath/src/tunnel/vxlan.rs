//! VXLAN: what differs from GRE (RFC 7348).
//!
//! A packet belongs to a tunnel by its addresses, its UDP destination port and its network identifier. The source port
//! is a hash of the flow inside, so that routers on the way spread flows over their paths.
//!
//! Outer packets are never fragmented, neither here nor, since they have the bit DF, on the way (RFC 7348, 4.3), and
//! outer fragments are not taken.
//!
//! The UDP checksum is zero over IPv4, as RFC 7348 recommends, unless it is asked for. Over IPv6 it is there unless the
//! tunnel is told to leave it out, and a packet without it is taken where the tunnel is told to (RFC 6935, RFC 6936). One
//! that is there is checked.

use super::decapsulate::Lane;
use super::encapsulation::{Carrier, Encapsulation, TunnelId};
use super::inner::{Inner, Network};
use super::options::TunnelOptions;
use super::outer::{Opened, Refused};
use super::template::sum_onto;
use super::{ETHERNET_BYTES, Ends, Tunnels};
use crate::drops::DropReason;
use crate::units::Nanos;
use crate::wire::{Ecn, IpProtocol, Ipv4, Ipv6, Pseudo, TooShort, Udp, UdpHeader, Vxlan, VxlanHeader};
use polder_buffers::Packet;

/// Options of a VXLAN tunnel beyond those of all tunnels; [`TunnelOptions::checksum`] says if it sends UDP checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VxlanOptions {
    /// Network identifier (VNI), 24 bits.
    pub vni: u32,
    /// UDP destination port, in both directions.
    pub port: u16,
    /// True if packets over IPv6 are taken without a UDP checksum.
    pub accept_zero_checksum: bool,
}

impl VxlanOptions {
    /// A network with the port of IANA.
    pub const fn new(vni: u32) -> Self {
        Self { vni, port: Vxlan::PORT, accept_zero_checksum: false }
    }

    /// Number of the tunnel.
    #[inline(always)]
    pub(super) const fn id(&self) -> TunnelId {
        TunnelId::vxlan(self.port, self.vni)
    }
}

/// Bytes of both headers.
pub(super) const HEADER_BYTES: u8 = 16;

/// Writes both headers, without source port, length and checksum.
pub(super) fn emit(options: VxlanOptions, bytes: &mut [u8]) -> Result<&mut [u8], TooShort> {
    let (udp, rest) = bytes.split_at_mut_checked(Udp::HEADER_BYTES).ok_or(TooShort)?;
    UdpHeader { source_port: 0, destination_port: options.port }.emit(udp, None)?;
    udp[LENGTH..].fill(0);
    VxlanHeader { vni: options.vni }.emit(rest)
}

/// Offset of the length in a UDP header.
const LENGTH: usize = 4;
/// Lowest source port: the dynamic ports (RFC 7348, 5; RFC 6335, 6).
const FIRST_PORT: u16 = 0xc000;

/// UDP source port for a flow with this hash.
#[inline(always)]
pub(super) fn source_port(hash: u32) -> u16 {
    let [high, low, ..] = hash.to_be_bytes();
    FIRST_PORT | u16::from_be_bytes([high, low]) >> 2
}

/// Hash of TCP or UDP in a whole IPv4 packet without options or tags; `None` for all else, which has a slower one.
#[inline(always)]
pub(super) fn quick_hash(frame: &[u8], inner: Inner) -> Option<u32> {
    const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
    const SECOND: u64 = 0xc2b2_ae3d_27d4_eb4f;
    const PORTS: usize = ETHERNET_BYTES as usize + Ipv4::HEADER_BYTES;
    let frame = frame.first_chunk::<{ PORTS + 4 }>()?;
    let is_usual = inner.network() == Network::Ipv4
        && inner.network_offset() == usize::from(ETHERNET_BYTES)
        && matches!(inner.protocol(), IpProtocol::TCP | IpProtocol::UDP)
        && frame[14] == 0x45
        && frame[20] & 0x3f == 0
        && frame[21] == 0;
    if !is_usual {
        return None;
    }
    let addresses = u64::from_be_bytes(*frame[26..].first_chunk()?);
    let ports = u64::from(u32::from_be_bytes(*frame[PORTS..].first_chunk()?));
    let mixed = (addresses ^ FIRST).wrapping_mul(SECOND);
    let mixed = (mixed ^ mixed >> 32 ^ ports << 8 ^ u64::from(inner.protocol().0)).wrapping_mul(FIRST);
    let [first, second, third, fourth, ..] = mixed.to_be_bytes();
    Some(u32::from_be_bytes([first, second, third, fourth]))
}

/// Fills in source port, length and, if it has one, checksum of an outer packet whose UDP header is at `at`.
#[inline(always)]
pub(super) fn finish(packet: &mut Packet, at: usize, source_port: u16, options: &TunnelOptions) {
    // The template has looked that the length fits.
    let length = u16::try_from(packet.len() - at).unwrap_or(u16::MAX);
    let Some(header) = packet.bytes_mut().get_mut(at..).and_then(|rest| rest.first_chunk_mut::<8>()) else {
        return;
    };
    header[..2].copy_from_slice(&source_port.to_be_bytes());
    header[LENGTH..6].copy_from_slice(&length.to_be_bytes());
    if options.checksum {
        put_checksum(packet, at, pseudo(options.ends.reversed()), length);
    }
}

#[inline(never)]
fn put_checksum(packet: &mut Packet, at: usize, pseudo: Pseudo, length: u16) {
    let sum = sum_onto(pseudo.sum(IpProtocol::UDP, length.into()), packet, at, usize::MAX);
    let field = packet.bytes_mut().get_mut(at + usize::from(Udp::CHECKSUM_OFFSET)..);
    if let Some(field) = field.and_then(|rest| rest.first_chunk_mut()) {
        *field = sum.finish_nonzero().to_be_bytes();
    }
}

/// Addresses of a packet whose receiver sees these ends.
fn pseudo(ends: Ends) -> Pseudo {
    match ends {
        Ends::V4 { local, remote } => Pseudo::V4 { source: remote, destination: local },
        Ends::V6 { local, remote } => Pseudo::V6 { source: remote, destination: local },
    }
}

/// Fields of the IP header that UDP needs.
struct Datagram<'p> {
    ends: Ends,
    ecn: Ecn,
    /// Bytes before the UDP header, and up to the end of the IP packet.
    start: usize,
    end: usize,
    payload: &'p [u8],
}

/// Reads UDP and VXLAN headers behind an IP header, which has `link` bytes before it; `lane` becomes that of the
/// packet's tunnel.
#[inline(never)]
pub(super) fn decide<'a>(
    packet: &Packet,
    network: (usize, &[u8]),
    tunnels: &'a Tunnels,
    lane: &mut Option<Lane<'a>>,
    (worker, now): (usize, Nanos),
) -> Result<Opened, Refused> {
    if !tunnels.takes_udp() {
        return Err(Refused::Drop(DropReason::NotForUs));
    }
    let Datagram { ends, ecn, start, end, payload } = datagram(packet, network)?;
    let udp = Udp::parse_head(payload, end - start)?;
    let port = udp.destination_port();
    if !tunnels.takes(Carrier::Udp(port)) {
        return Err(Refused::Drop(DropReason::NotForUs));
    }
    // The length covers both headers at least; that of what is in the head of a chain does not tell.
    let length = usize::from(udp.length());
    if length < usize::from(HEADER_BYTES) {
        return Err(Refused::Drop(DropReason::VxlanTruncated));
    }
    let vxlan = Vxlan::parse(udp.payload())?;
    let id = TunnelId::vxlan(port, vxlan.vni());
    if !lane.as_ref().is_some_and(|lane| lane.tunnel.is_between(&ends, id)) {
        let tunnel = tunnels.find(&ends, id).ok_or(Refused::Drop(DropReason::NoTunnel))?;
        *lane = Some(Lane::new(tunnel, worker, now));
    }
    let Some(lane) = lane else { return Err(Refused::Drop(DropReason::NoTunnel)) };
    if udp.checksum() != 0 {
        verify(packet, (start, length), ends)?;
    } else if ends.is_v6() {
        accept_zero(lane.tunnel.options())?;
    }
    if length < usize::from(HEADER_BYTES) + usize::from(ETHERNET_BYTES) {
        return Err(Refused::Drop(DropReason::EthernetTruncated));
    }
    let strip = u16::try_from(start + usize::from(HEADER_BYTES));
    let strip = strip.map_err(|_| Refused::Drop(DropReason::VxlanTruncated))?;
    Ok(Opened { strip, end: start + length, ecn, sequence: None })
}

#[inline(always)]
fn datagram<'p>(packet: &Packet, (link, bytes): (usize, &'p [u8])) -> Result<Datagram<'p>, Refused> {
    if bytes.first().is_some_and(|first| first >> 4 == 4) {
        let ip = Ipv4::parse_head(bytes, packet.len() - link)?;
        if ip.is_fragment() {
            return Err(Refused::Drop(DropReason::VxlanFragment));
        }
        return Ok(Datagram {
            ends: Ends::V4 { local: ip.destination(), remote: ip.source() },
            ecn: ip.traffic_class().ecn(),
            start: link + ip.header_bytes(),
            end: link + usize::from(ip.total_length()),
            payload: ip.payload(),
        });
    }
    let ip = Ipv6::parse_head(bytes, packet.len() - link)?;
    Ok(Datagram {
        ends: Ends::V6 { local: ip.destination(), remote: ip.source() },
        ecn: ip.traffic_class().ecn(),
        start: link + Ipv6::HEADER_BYTES,
        end: link + Ipv6::HEADER_BYTES + usize::from(ip.payload_length()),
        payload: ip.payload(),
    })
}

/// Checks a UDP checksum that is there.
#[inline(never)]
fn verify(packet: &Packet, (start, length): (usize, usize), ends: Ends) -> Result<(), Refused> {
    let first = pseudo(ends).sum(IpProtocol::UDP, u32::try_from(length).unwrap_or(u32::MAX));
    let is_valid = sum_onto(first, packet, start, length).is_valid();
    if is_valid { Ok(()) } else { Err(Refused::OfTunnel(DropReason::UdpBadChecksum)) }
}

/// True for a packet over IPv6 without a checksum, where the tunnel takes such packets.
fn accept_zero(options: &TunnelOptions) -> Result<(), Refused> {
    match options.encapsulation {
        Encapsulation::Vxlan(VxlanOptions { accept_zero_checksum: true, .. }) => Ok(()),
        Encapsulation::Vxlan(_) | Encapsulation::Gre => {
            Err(Refused::OfTunnel(DropReason::TunnelMissingChecksum))
        }
    }
}
