//! The encapsulation of a tunnel: the protocol between the outer IP header and the inner packet.
//!
//! An encapsulation consists of a file that implements [`Declaration`], a variant of [`Encapsulation`], and
//! an arm of [`read`] and [`decide`], where the tunnel of a received packet is not known yet. All other code
//! is common: tables, outer header template, recursion check, XDP programs, path MTU discovery, traces and
//! `show`.
//! | question | type |
//! |---|---|
//! | outer field by which a receiver recognises it | [`Carrier`] |
//! | number that distinguishes tunnels between the same endpoints | [`TunnelId`] |
//! | header before the inner packet | [`Declaration::header_bytes`], [`Declaration::emit`] |
//! | permitted inner packets | [`Declaration::admits`] |
//! | parsed header | [`OuterHeader`] |
//!
//! Cost: the declaration is evaluated when tables are built, and its results are stored beside the template.
//! Only bare packets call [`Declaration::admits`].

use super::decapsulate::Lane;
use super::lane::{Completion, TunnelVerdict};
use super::options::TunnelOptions;
use super::outer::{Envelope, NOT_FOR_US, Opened, Refused};
use super::vxlan::{self, VxlanOptions};
use super::{Ends, Tunnels, gre, ip_in_ip};
use crate::parse::HeaderSummary;
use crate::units::Nanos;
use crate::wire::{EtherType, Inside, IpProtocol, Ipv4, Ipv6, Link, TooShort, Udp};
use core::fmt;
use polder_buffers::{OuterHeaders, Packet};

/// Protocol between the outer IP header and the inner packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encapsulation {
    /// GRE (RFC 2784, RFC 2890).
    #[default]
    Gre,
    /// VXLAN (RFC 7348).
    Vxlan(VxlanOptions),
    /// IPv4 in IPv4 (RFC 2003).
    Ipip,
    /// IPv6 in IPv4 (RFC 4213).
    Sit,
}

/// Everything that distinguishes one encapsulation from another.
pub(super) trait Declaration {
    /// Outer field by which a receiver recognises the encapsulation.
    fn carrier(&self) -> Carrier;

    /// Number that distinguishes the tunnel from others between the same endpoints.
    fn id(&self, options: &TunnelOptions) -> TunnelId;

    /// The same number for display.
    fn label(&self, options: &TunnelOptions) -> TunnelLabel;

    /// Length in bytes of the headers between the outer IP header and the inner packet, with
    /// `optional_fields` fields of four bytes each.
    fn header_bytes(&self, optional_fields: u8) -> u8;

    /// Writes the header at the start of `bytes`, without the fields that vary per packet, and returns the
    /// bytes after it.
    ///
    /// # Errors
    /// [`TooShort`] if the header does not fit.
    fn emit<'b>(&self, options: &TunnelOptions, bytes: &'b mut [u8]) -> Result<&'b mut [u8], TooShort>;

    /// Checksum after the outer IP header.
    fn completion(&self, _: &TunnelOptions) -> Completion {
        Completion::None
    }

    /// True if the header contains the EtherType of the inner packet.
    fn names_protocol(&self) -> bool {
        false
    }

    /// Outer header offsets of a super-packet whose inner IP header has `inner_ip_bytes` bytes; `None` if the
    /// encapsulation cannot be described, so that the packet is segmented first.
    fn uncut(&self, _: &TunnelOptions, _inner_ip_bytes: usize) -> Option<OuterHeaders> {
        None
    }

    /// Expected header for the fast path of decapsulation; `None` for a tunnel without fast path.
    fn expected(&self, _: &TunnelOptions) -> Option<Expected> {
        None
    }

    /// Refuses a bare packet that must not enter the tunnel.
    fn admits(&self, _: &TunnelOptions, _: HeaderSummary, _frame: &[u8]) -> Result<(), TunnelVerdict> {
        Ok(())
    }
}

/// Expected bytes after the outer IP header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// Values of the bytes.
    pub(super) values: [[u8; 8]; 2],
    /// Mask of the bits that are compared.
    pub(super) bits: [[u8; 8]; 2],
}

/// Evaluates an expression on the declaration of an encapsulation.
macro_rules! declared {
    ($encapsulation:expr, $declaration:ident => $answer:expr) => {
        match $encapsulation {
            Encapsulation::Gre => {
                let $declaration = gre::Gre;
                $answer
            }
            Encapsulation::Vxlan($declaration) => $answer,
            Encapsulation::Ipip => {
                let $declaration = ip_in_ip::IPIP;
                $answer
            }
            Encapsulation::Sit => {
                let $declaration = ip_in_ip::SIT;
                $answer
            }
        }
    };
}

impl Encapsulation {
    /// Outer field by which a receiver recognises the encapsulation.
    pub fn carrier(self) -> Carrier {
        declared!(self, it => it.carrier())
    }

    /// Length in bytes of the headers between the outer IP header and the inner packet, with
    /// `optional_fields` fields.
    pub fn header_bytes(self, optional_fields: u8) -> u8 {
        declared!(self, it => it.header_bytes(optional_fields))
    }
}

impl TunnelOptions {
    /// Number that distinguishes the tunnel from others between the same endpoints.
    #[inline(always)]
    pub fn id(&self) -> TunnelId {
        declared!(self.encapsulation, it => it.id(self))
    }

    /// Length in bytes of the headers between the outer IP header and the inner packet.
    pub fn header_bytes(&self) -> u8 {
        let fields = [self.checksum, self.key.is_some(), self.sequence];
        self.encapsulation.header_bytes(fields.map(u8::from).iter().sum())
    }

    /// Writes the header of the encapsulation: [`Declaration::emit`].
    pub(super) fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], TooShort> {
        declared!(self.encapsulation, it => it.emit(self, bytes))
    }

    /// Checksum after the outer IP header.
    pub(super) fn completion(&self) -> Completion {
        declared!(self.encapsulation, it => it.completion(self))
    }

    /// True if the header contains the EtherType of the inner packet.
    pub(super) fn names_protocol(&self) -> bool {
        declared!(self.encapsulation, it => it.names_protocol())
    }

    /// Outer header offsets of a super-packet: [`Declaration::uncut`].
    pub(super) fn uncut(&self, inner_ip_bytes: usize) -> Option<OuterHeaders> {
        declared!(self.encapsulation, it => it.uncut(self, inner_ip_bytes))
    }

    /// Expected header for the fast path: [`Declaration::expected`].
    pub(super) fn expected(&self) -> Option<Expected> {
        declared!(self.encapsulation, it => it.expected(self))
    }

    /// Refuses a bare packet that must not enter the tunnel; `frame` begins with the gateway-internal link
    /// header.
    #[inline(always)]
    pub(super) fn admits(&self, headers: HeaderSummary, frame: &[u8]) -> Result<(), TunnelVerdict> {
        declared!(self.encapsulation, it => it.admits(self, headers, frame))
    }
}

/// Parsed header of an encapsulation, and the inner packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header<'p> {
    pub(super) label: TunnelLabel,
    pub(super) inside: Inside<'p>,
}

/// Parses the header of an encapsulation; over UDP, the port selects it. `None` for a malformed header.
fn read(carrier: Carrier, payload: &[u8]) -> Option<Header<'_>> {
    match carrier {
        Carrier::GRE => gre::read(payload),
        Carrier::Ip(protocol) => ip_in_ip::read(protocol, payload),
        Carrier::Udp(_) => vxlan::read(payload),
    }
}

/// Parses the header after an outer IPv4 header of this protocol; sets `lane` to a run of the packet's tunnel.
#[inline(always)]
pub(super) fn decide<'a>(
    protocol: IpProtocol,
    packet: &Packet,
    envelope: &Envelope<'_>,
    tunnels: &'a Tunnels,
    lane: &mut Option<Lane<'a>>,
    place: (usize, Nanos),
) -> Result<Opened, Refused> {
    match protocol {
        IpProtocol::GRE => gre::decide(packet, envelope, tunnels, lane, place),
        IpProtocol::UDP => vxlan::decide(packet, envelope, tunnels, lane, place),
        other => ip_in_ip::decide(other, envelope, tunnels, lane, place),
    }
}

/// Verdict on a fragment of an outer IPv4 packet of this protocol.
#[cold]
pub(super) fn fragment(protocol: IpProtocol, tunnels: &Tunnels) -> Refused {
    if protocol == IpProtocol::UDP && tunnels.takes_udp() {
        vxlan::FRAGMENT
    } else if tunnels.takes(Carrier::Ip(protocol)) {
        Refused::Fragment
    } else {
        NOT_FOR_US
    }
}

/// Outer field by which a receiver recognises an encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Carrier {
    /// Protocol of the IP header.
    Ip(IpProtocol),
    /// UDP with this destination port.
    Udp(u16),
}

impl Carrier {
    /// Carrier of GRE.
    pub const GRE: Self = Self::Ip(IpProtocol::GRE);

    /// Protocol of the outer IP header.
    pub const fn protocol(self) -> IpProtocol {
        match self {
            Self::Ip(protocol) => protocol,
            Self::Udp(_) => IpProtocol::UDP,
        }
    }

    /// UDP destination port; `None` without UDP.
    pub const fn port(self) -> Option<u16> {
        match self {
            Self::Ip(_) => None,
            Self::Udp(port) => Some(port),
        }
    }
}

/// Number that distinguishes tunnels between the same endpoints.
///
/// For GRE, bits 0 to 31 are the key and bit 32 is set if there is a key. For VXLAN, bits 0 to 23 are the VNI
/// and bits 40 to 55 the UDP destination port, which is not 0. For an encapsulation without number, bits 56
/// to 63 are its IP protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelId(u64);

impl TunnelId {
    /// Number of a GRE tunnel with this key, or without key.
    #[inline(always)]
    pub const fn gre(key: Option<u32>) -> Self {
        match key {
            Some(key) => Self(1 << 32 | key as u64),
            None => Self(0),
        }
    }

    /// Number of a VXLAN tunnel with this UDP destination port and VNI.
    #[inline(always)]
    pub const fn vxlan(port: u16, vni: u32) -> Self {
        Self((port as u64) << 40 | vni as u64)
    }

    /// Number of a tunnel that is identified by its endpoints and protocol only.
    #[inline(always)]
    pub const fn protocol(protocol: IpProtocol) -> Self {
        Self((protocol.0 as u64) << 56)
    }

    /// The bits, for hashing.
    #[inline(always)]
    pub(super) const fn bits(self) -> u64 {
        self.0
    }
}

/// Parsed outer headers of a tunnel packet, whether or not the tunnel is configured.
#[derive(Clone, Copy, Debug)]
pub struct OuterHeader<'p> {
    /// Both endpoints, as seen by the packet's receiver.
    pub ends: Ends,
    /// Outer field by which the encapsulation is recognised.
    pub carrier: Carrier,
    /// Encapsulation and number; `None` in a later fragment or if the header is malformed.
    pub label: Option<TunnelLabel>,
    /// GRE sequence number; `None` without one.
    pub sequence: Option<u32>,
    /// EtherType of the inner packet.
    pub(super) protocol: EtherType,
    /// Bytes of the inner packet in the head frame.
    pub(super) payload: &'p [u8],
}

/// Encapsulation and number of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TunnelLabel {
    /// GRE with this key, or without key.
    Gre(Option<u32>),
    /// VXLAN with this VNI.
    Vxlan(u32),
    /// An encapsulation of this name, without a number.
    Named(&'static str),
}

impl TunnelLabel {
    /// Label of a tunnel.
    pub fn of(options: &TunnelOptions) -> Self {
        declared!(options.encapsulation, it => it.label(options))
    }

    /// Name of the encapsulation.
    pub const fn encapsulation(self) -> &'static str {
        match self {
            Self::Gre(_) => "GRE",
            Self::Vxlan(_) => "VXLAN",
            Self::Named(name) => name,
        }
    }

    /// Name and value of the number; `None` as value if there is none.
    pub const fn number(self) -> (&'static str, Option<u32>) {
        match self {
            Self::Gre(key) => ("key", key),
            Self::Vxlan(vni) => ("vni", Some(vni)),
            Self::Named(_) => ("key", None),
        }
    }
}

impl fmt::Display for TunnelLabel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gre(Some(key)) => write!(formatter, "GRE with key {key}"),
            Self::Gre(None) => formatter.write_str("GRE without a key"),
            Self::Vxlan(vni) => write!(formatter, "VXLAN with VNI {vni}"),
            Self::Named(name) => formatter.write_str(name),
        }
    }
}

impl<'p> OuterHeader<'p> {
    /// Parses the outer headers of a frame; `None` if the frame is no tunnel packet.
    ///
    /// Cost: several parsers; not for use on every packet.
    #[cold]
    pub fn of_frame(frame: &'p [u8], tunnels: &Tunnels) -> Option<Self> {
        let link = Link::parse(frame).ok()?;
        Self::read(link.ether_type(), link.payload(), tunnels)
    }

    /// Parses the outer headers of an IP packet. The encapsulation's header may be missing or malformed.
    pub(super) fn read(ether_type: EtherType, bytes: &'p [u8], tunnels: &Tunnels) -> Option<Self> {
        let (ends, protocol, payload) = match ether_type {
            EtherType::IPV4 => {
                let ip = Ipv4::parse_head(bytes, usize::MAX).ok()?;
                let ends = Ends::V4 { local: ip.destination(), remote: ip.source() };
                let payload = if ip.fragment_offset() == 0 { ip.payload() } else { &[] };
                (ends, ip.protocol(), payload)
            }
            EtherType::IPV6 => {
                let ip = Ipv6::parse_head(bytes, usize::MAX).ok()?;
                let upper = ip.upper().ok()?;
                let ends = Ends::V6 { local: ip.destination(), remote: ip.source() };
                (ends, upper.protocol, if upper.has_header() { upper.payload } else { &[] })
            }
            _ => return None,
        };
        let carrier = match protocol {
            IpProtocol::UDP => Carrier::Udp(Udp::parse_head(payload, usize::MAX).ok()?.destination_port()),
            other => Carrier::Ip(other),
        };
        if !tunnels.takes(carrier) {
            return None;
        }
        let read = read(carrier, payload);
        Some(Self {
            ends,
            carrier,
            label: read.map(|header| header.label),
            sequence: read.and_then(|header| header.inside.sequence),
            protocol: read.map_or(EtherType(0), |header| header.inside.protocol),
            payload: read.map_or(&[], |header| header.inside.payload),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::TunnelState;
    use super::*;
    use polder_buffers::PortId;
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    fn options() -> TunnelOptions {
        let ends = (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
        TunnelOptions::new(PortId(5), ends, PortId(1), Arc::new(TunnelState::new(1)))
    }

    /// RFC 2890, 2: four bytes, and four for each field.
    #[test]
    fn header_lengths_of_gre() {
        let mut options = options();
        assert_eq!(options.header_bytes(), 4);
        options.key = Some(0);
        assert_eq!(options.header_bytes(), 8);
        options.checksum = true;
        assert_eq!(options.header_bytes(), 12);
        options.sequence = true;
        assert_eq!(options.header_bytes(), 16);
    }

    #[test]
    fn a_key_of_zero_is_not_no_key() {
        assert_ne!(TunnelId::gre(None), TunnelId::gre(Some(0)));
        assert_ne!(TunnelId::gre(Some(1)), TunnelId::gre(Some(0)));
        assert_eq!(TunnelLabel::Gre(Some(7)).to_string(), "GRE with key 7");
        assert_eq!(TunnelLabel::of(&options()).to_string(), "GRE without a key");
    }

    /// Numbers of all encapsulations differ, whatever keys, networks and ports they have.
    #[test]
    fn no_two_encapsulations_share_a_number() {
        let protocols = [IpProtocol::IPV4, IpProtocol::IPV6].map(TunnelId::protocol);
        let [key, all] = [0, u32::MAX].map(|key| TunnelId::gre(Some(key)));
        let networks = [TunnelId::vxlan(1, 0), TunnelId::vxlan(u16::MAX, 0x00ff_ffff)];
        let ids = [&protocols[..], &[TunnelId::gre(None), key, all], &networks].concat();
        for (place, id) in ids.iter().enumerate() {
            assert_eq!(ids.iter().position(|other| other == id), Some(place), "{id:?}");
        }
    }
}
