//! The encapsulation of a tunnel: the protocol between the outer IP header and the packet inside.
//!
//! An encapsulation is a file that implements [`Declaration`], a variant of [`Encapsulation`], and an arm of [`read`] and
//! [`decide`], where a packet from outside does not say yet of which tunnel it is. Everything else about a tunnel is the
//! same for all of them: the tables, the template of outer headers, the test for recursion, XDP programs, path MTU
//! discovery, traces and `show` ask here.
//!
//! | question | type |
//! |---|---|
//! | by which outer field does a receiver know it? | [`Carrier`] |
//! | which number tells tunnels between the same ends apart? | [`TunnelId`] |
//! | which header stands before the packet inside? | [`Declaration::header_bytes`], [`Declaration::emit`] |
//! | which packets may be inside? | [`Declaration::admits`] |
//! | what does such a header say? | [`OuterHeader`] |
//!
//! Cost: a tunnel's declaration is read when the tables are built; a packet finds what follows from it beside the
//! template. A packet without Ethernet asks once more if it may enter.

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

/// Protocol between the outer IP header and the packet inside.
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

/// Everything in which one encapsulation differs from another; the file of an encapsulation implements it.
pub(super) trait Declaration {
    /// Outer field by which a receiver knows it.
    fn carrier(&self) -> Carrier;

    /// Number that tells a tunnel from others between the same ends.
    fn id(&self, options: &TunnelOptions) -> TunnelId;

    /// The same for people.
    fn label(&self, options: &TunnelOptions) -> TunnelLabel;

    /// Bytes between the outer IP header and the packet inside, of which there are so many optional fields of four
    /// bytes, where the encapsulation has such fields.
    fn header_bytes(&self, optional_fields: u8) -> u8;

    /// Writes the header at the start of `bytes`, without the fields that differ from packet to packet, and returns the
    /// bytes behind it.
    ///
    /// # Errors
    /// When there is no room.
    fn emit<'b>(&self, options: &TunnelOptions, bytes: &'b mut [u8]) -> Result<&'b mut [u8], TooShort>;

    /// Checksum behind the outer IP header.
    fn completion(&self, _: &TunnelOptions) -> Completion {
        Completion::None
    }

    /// True if the header names the protocol of the packet inside.
    fn names_protocol(&self) -> bool {
        false
    }

    /// Description of the outer headers of an uncut packet, whose own IP header has so many bytes; `None` for a packet
    /// that cannot be described, which is cut before it is encapsulated.
    fn uncut(&self, _: &TunnelOptions, _inner_ip_bytes: usize) -> Option<OuterHeaders> {
        None
    }

    /// Header as it is compared at the short way out of a tunnel of frames; `None` for a tunnel without that.
    fn expected(&self, _: &TunnelOptions) -> Option<Expected> {
        None
    }

    /// Refusal of a packet without Ethernet that may not enter.
    fn admits(&self, _: &TunnelOptions, _: HeaderSummary, _frame: &[u8]) -> Result<(), TunnelVerdict> {
        Ok(())
    }
}

/// Bytes behind the outer IP header that tell a tunnel, for a comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// Their values.
    pub(super) values: [[u8; 8]; 2],
    /// The bits of them that count.
    pub(super) bits: [[u8; 8]; 2],
}

/// Asks the declaration of an encapsulation.
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
    /// Outer field by which a receiver knows it.
    pub fn carrier(self) -> Carrier {
        declared!(self, it => it.carrier())
    }

    /// Bytes between the outer IP header and the packet inside, of which there are so many optional fields, where it has
    /// such fields.
    pub fn header_bytes(self, optional_fields: u8) -> u8 {
        declared!(self, it => it.header_bytes(optional_fields))
    }
}

impl TunnelOptions {
    /// Number that tells the tunnel from others between the same ends.
    #[inline(always)]
    pub fn id(&self) -> TunnelId {
        declared!(self.encapsulation, it => it.id(self))
    }

    /// Bytes between the outer IP header and the packet inside.
    pub fn header_bytes(&self) -> u8 {
        let fields = [self.checksum, self.key.is_some(), self.sequence];
        self.encapsulation.header_bytes(fields.map(u8::from).iter().sum())
    }

    /// Writes the header of the encapsulation: [`Declaration::emit`].
    pub(super) fn emit<'b>(&self, bytes: &'b mut [u8]) -> Result<&'b mut [u8], TooShort> {
        declared!(self.encapsulation, it => it.emit(self, bytes))
    }

    /// Checksum behind the outer IP header.
    pub(super) fn completion(&self) -> Completion {
        declared!(self.encapsulation, it => it.completion(self))
    }

    /// True if the header of the encapsulation names the protocol of the packet inside.
    pub(super) fn names_protocol(&self) -> bool {
        declared!(self.encapsulation, it => it.names_protocol())
    }

    /// Description of the outer headers of an uncut packet: [`Declaration::uncut`].
    pub(super) fn uncut(&self, inner_ip_bytes: usize) -> Option<OuterHeaders> {
        declared!(self.encapsulation, it => it.uncut(self, inner_ip_bytes))
    }

    /// Header that is compared at the short way out.
    pub(super) fn expected(&self) -> Option<Expected> {
        declared!(self.encapsulation, it => it.expected(self))
    }

    /// Refusal of a packet without Ethernet that may not enter; `frame` begins with the gateway's own link header.
    #[inline(always)]
    pub(super) fn admits(&self, headers: HeaderSummary, frame: &[u8]) -> Result<(), TunnelVerdict> {
        declared!(self.encapsulation, it => it.admits(self, headers, frame))
    }
}

/// Header of an encapsulation, and the packet behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header<'p> {
    pub(super) label: TunnelLabel,
    pub(super) inside: Inside<'p>,
}

/// Reads the header behind the outer field by which an encapsulation is known; of UDP, the port says which one it is. `None`
/// for a header that cannot be read.
fn read(carrier: Carrier, payload: &[u8]) -> Option<Header<'_>> {
    match carrier {
        Carrier::GRE => gre::read(payload),
        Carrier::Ip(protocol) => ip_in_ip::read(protocol, payload),
        Carrier::Udp(_) => vxlan::read(payload),
    }
}

/// Reads the header behind an outer IPv4 header with this protocol; `lane` becomes that of the packet's tunnel.
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

/// Verdict on a fragment of an outer IPv4 packet with this protocol.
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

/// Outer field by which a receiver knows an encapsulation.
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

    /// UDP destination port, if there is one.
    pub const fn port(self) -> Option<u16> {
        match self {
            Self::Ip(_) => None,
            Self::Udp(port) => Some(port),
        }
    }
}

/// Number that tells tunnels between the same ends apart.
///
/// Of GRE it is the key: bits 0 to 31, and bit 32 says that there is one. Of VXLAN, bits 0 to 23 are the network
/// identifier, bits 40 to 55 the UDP destination port, which is not 0. Of an encapsulation without a number, bits 56 to 63
/// are its IP protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelId(u64);

impl TunnelId {
    /// Number of a GRE tunnel with this key.
    #[inline(always)]
    pub const fn gre(key: Option<u32>) -> Self {
        match key {
            Some(key) => Self(1 << 32 | key as u64),
            None => Self(0),
        }
    }

    /// Number of a VXLAN tunnel with this UDP destination port and network identifier.
    #[inline(always)]
    pub const fn vxlan(port: u16, vni: u32) -> Self {
        Self((port as u64) << 40 | vni as u64)
    }

    /// Number of a tunnel that is known by its ends and this protocol alone.
    #[inline(always)]
    pub const fn protocol(protocol: IpProtocol) -> Self {
        Self((protocol.0 as u64) << 56)
    }

    /// The bits, to be hashed.
    #[inline(always)]
    pub(super) const fn bits(self) -> u64 {
        self.0
    }
}

/// Outer headers of a packet of some tunnel, of ours or not.
#[derive(Clone, Copy, Debug)]
pub struct OuterHeader<'p> {
    /// Both ends, as the packet's receiver sees them.
    pub ends: Ends,
    /// Outer field by which the encapsulation is known.
    pub carrier: Carrier,
    /// Number of the tunnel; `None` in a later fragment and where the header cannot be read.
    pub label: Option<TunnelLabel>,
    /// Sequence number, if there is one.
    pub sequence: Option<u32>,
    /// Type of the packet inside.
    pub(super) protocol: EtherType,
    /// Bytes of the packet inside that are in the head of the packet.
    pub(super) payload: &'p [u8],
}

/// Encapsulation and number of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TunnelLabel {
    /// GRE with this key, if any.
    Gre(Option<u32>),
    /// VXLAN with this network identifier.
    Vxlan(u32),
    /// An encapsulation of this name, which has no number.
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

    /// Name and value of the number, if there is one.
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
    /// Reads the outer headers of a frame; `None` for a frame that is of no tunnel.
    ///
    /// Cost: not for each packet.
    #[cold]
    pub fn of_frame(frame: &'p [u8], tunnels: &Tunnels) -> Option<Self> {
        let link = Link::parse(frame).ok()?;
        Self::read(link.ether_type(), link.payload(), tunnels)
    }

    /// The same of an IP packet. The header behind it may be missing or broken.
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
