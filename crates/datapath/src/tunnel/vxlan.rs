//! Declaration of VXLAN (RFC 7348).
//!
//! A packet belongs to a tunnel by its addresses, its UDP destination port and its VNI. The source port is a
//! hash of the inner flow, so that routers can balance flows.
//!
//! Outer packets are never fragmented, neither here nor on the path, since they have DF (RFC 7348, 4.3);
//! received fragments are dropped.
//!
//! Over IPv4 the UDP checksum is zero, as RFC 7348 recommends, unless configured. Over IPv6 a checksum is
//! sent unless disabled, and a packet without checksum is accepted only if configured (RFC 6935, RFC 6936). A
//! received checksum is always verified.

use super::decapsulate::Lane;
use super::encapsulation::{Carrier, Declaration, Encapsulation, Expected, Header, TunnelId, TunnelLabel};
use super::lane::Completion;
use super::options::TunnelOptions;
use super::outer::{Envelope, Opened, Refused};
use super::{ETHERNET_BYTES, Ends, Tunnels};
use crate::drops::DropReason;
use crate::offload::sum_as_completed;
use crate::units::Nanos;
use crate::wire::{EtherType, Inside, IpProtocol, Pseudo, TooShort, Udp, UdpHeader, Vxlan, VxlanHeader};
use polder_buffers::{OuterHeaders, Packet};

/// Options of a VXLAN tunnel in addition to the common ones; [`TunnelOptions::checksum`] enables UDP
/// checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VxlanOptions {
    /// Network identifier (VNI), 24 bits.
    pub vni: u32,
    /// UDP destination port of both directions.
    pub port: u16,
    /// True if packets over IPv6 without UDP checksum are accepted.
    pub accept_zero_checksum: bool,
}

impl VxlanOptions {
    /// Options with this VNI and the port assigned by IANA.
    pub const fn new(vni: u32) -> Self {
        Self { vni, port: Vxlan::PORT, accept_zero_checksum: false }
    }
}

impl Declaration for VxlanOptions {
    fn carrier(&self) -> Carrier {
        Carrier::Udp(self.port)
    }

    #[inline(always)]
    fn id(&self, _: &TunnelOptions) -> TunnelId {
        TunnelId::vxlan(self.port, self.vni)
    }

    fn label(&self, _: &TunnelOptions) -> TunnelLabel {
        TunnelLabel::Vxlan(self.vni)
    }

    fn header_bytes(&self, _optional_fields: u8) -> u8 {
        HEADER_BYTES
    }

    /// Writes both headers; source port, length and checksum stay zero.
    fn emit<'b>(&self, _: &TunnelOptions, bytes: &'b mut [u8]) -> Result<&'b mut [u8], TooShort> {
        let (udp, rest) = bytes.split_at_mut_checked(Udp::HEADER_BYTES).ok_or(TooShort)?;
        UdpHeader { source_port: 0, destination_port: self.port }.emit(udp, None)?;
        udp[LENGTH..].fill(0);
        VxlanHeader { vni: self.vni }.emit(rest)
    }

    fn completion(&self, options: &TunnelOptions) -> Completion {
        if options.checksum { Completion::UdpChecksum } else { Completion::None }
    }

    fn uncut(&self, options: &TunnelOptions, inner_ip_bytes: usize) -> Option<OuterHeaders> {
        OuterHeaders::udp(inner_ip_bytes, options.checksum)
    }

    fn expected(&self, _: &TunnelOptions) -> Option<Expected> {
        const ALL: u8 = 0xff;
        let ([high, low], [_, a, b, c]) = (self.port.to_be_bytes(), self.vni.to_be_bytes());
        // Source port and reserved bits are ignored; a packet with a checksum takes the slow path.
        Some(Expected {
            values: [[0, 0, high, low, 0, 0, 0, 0], [NETWORK, 0, 0, 0, a, b, c, 0]],
            bits: [[0, 0, ALL, ALL, 0, 0, ALL, ALL], [NETWORK, 0, 0, 0, ALL, ALL, ALL, 0]],
        })
    }
}

/// Length of UDP and VXLAN header in bytes.
pub(super) const HEADER_BYTES: u8 = 16;
/// Flag of a VXLAN header with a valid VNI.
const NETWORK: u8 = 0x08;

/// Verdict on an outer fragment (RFC 7348, 4.3).
pub(super) const FRAGMENT: Refused = Refused::Drop(DropReason::VxlanFragment);

/// Parses both headers; `None` if they are malformed.
pub(super) fn read(bytes: &[u8]) -> Option<Header<'_>> {
    let udp = Udp::parse_head(bytes, usize::MAX).ok()?;
    let vxlan = Vxlan::parse(udp.payload()).ok()?;
    let protocol = EtherType::TRANSPARENT_ETHERNET;
    Some(Header {
        label: TunnelLabel::Vxlan(vxlan.vni()),
        inside: Inside { protocol, payload: vxlan.payload(), sequence: None },
    })
}

/// Offset of the length field in a UDP header, in bytes.
pub(super) const LENGTH: usize = 4;
/// Lowest source port: the dynamic port range (RFC 7348, 5; RFC 6335, 6).
const FIRST_PORT: u16 = 0xc000;

/// UDP source port for a flow with this hash.
#[inline(always)]
pub(super) fn source_port(hash: u32) -> u16 {
    let [.., high, low] = hash.to_le_bytes();
    FIRST_PORT | u16::from_be_bytes([high, low])
}

/// Writes the UDP checksum of an outer packet; for a super-packet, the sum of the pseudo-header.
#[inline(never)]
pub(super) fn put_checksum(packet: &mut Packet, options: &TunnelOptions) {
    let at = usize::from(packet.transport_offset);
    // The template has checked that the length fits.
    let length = u16::try_from(packet.len() - at).unwrap_or(u16::MAX);
    let sum = pseudo(options.ends.reversed()).sum(IpProtocol::UDP, length.into());
    let checksum = if packet.segmentation.outer.is_some() {
        sum.partial()
    } else {
        sum_as_completed(sum, packet, at, usize::MAX).finish_nonzero()
    };
    let field = packet.bytes_mut().get_mut(at + usize::from(Udp::CHECKSUM_OFFSET)..);
    if let Some(field) = field.and_then(|rest| rest.first_chunk_mut()) {
        *field = checksum.to_be_bytes();
    }
}

/// Pseudo-header addresses of a packet with these endpoints, as seen by its receiver.
fn pseudo(ends: Ends) -> Pseudo {
    match ends {
        Ends::V4 { local, remote } => Pseudo::V4 { source: remote, destination: local },
        Ends::V6 { local, remote } => Pseudo::V6 { source: remote, destination: local },
    }
}

/// Parses UDP and VXLAN headers after an IP header; sets `lane` to a run of the packet's tunnel.
#[inline(never)]
pub(super) fn decide<'a>(
    packet: &Packet,
    envelope: &Envelope<'_>,
    tunnels: &'a Tunnels,
    lane: &mut Option<Lane<'a>>,
    place: (usize, Nanos),
) -> Result<Opened, Refused> {
    if !tunnels.takes_udp() {
        return Err(Refused::Drop(DropReason::NotForUs));
    }
    let &Envelope { ref ends, start, end, ecn, payload } = envelope;
    let udp = Udp::parse_head(payload, end - start)?;
    let port = udp.destination_port();
    if !tunnels.takes_port(port) {
        return Err(Refused::Drop(DropReason::NotForUs));
    }
    // The UDP length must cover both headers; the length in the head frame of a chain is not sufficient.
    let length = usize::from(udp.length());
    if length < usize::from(HEADER_BYTES) {
        return Err(Refused::Drop(DropReason::VxlanTruncated));
    }
    let vxlan = Vxlan::parse(udp.payload())?;
    let lane = Lane::enter(lane, (ends, TunnelId::vxlan(port, vxlan.vni())), tunnels, place)?;
    if packet.segmentation.outer.has_udp_checksum() {
        // The field has the pseudo-header sum of a super-packet, whose segments have no checksum yet.
    } else if udp.checksum() != 0 {
        verify(packet, (start, length), *ends)?;
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

/// Verifies a UDP checksum.
#[inline(never)]
fn verify(packet: &Packet, (start, length): (usize, usize), ends: Ends) -> Result<(), Refused> {
    let first = pseudo(ends).sum(IpProtocol::UDP, u32::try_from(length).unwrap_or(u32::MAX));
    let is_valid = sum_as_completed(first, packet, start, length).is_valid();
    if is_valid { Ok(()) } else { Err(Refused::OfTunnel(DropReason::UdpBadChecksum)) }
}

/// Accepts a packet over IPv6 without checksum if the tunnel's options allow it.
fn accept_zero(options: &TunnelOptions) -> Result<(), Refused> {
    if let Encapsulation::Vxlan(VxlanOptions { accept_zero_checksum: true, .. }) = options.encapsulation {
        return Ok(());
    }
    Err(Refused::OfTunnel(DropReason::TunnelMissingChecksum))
}
