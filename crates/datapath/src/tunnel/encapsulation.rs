//! The encapsulation of a tunnel: the protocol between the outer IP header and the packet inside.
//!
//! The tables, the template of outer headers, the test for recursion, XDP programs, path MTU discovery, traces and
//! `show` ask this file what an encapsulation is; all else about a tunnel is the same for all of them.
//!
//! | question | type |
//! |---|---|
//! | by which outer field does a receiver know it? | [`Carrier`] |
//! | which number tells tunnels between the same ends apart? | [`TunnelId`] |
//! | which header stands before the packet inside? | [`TunnelOptions::header_bytes`], [`emit`] |
//! | what does such a header say? | [`OuterHeader`] |

use super::options::TunnelOptions;
use super::vxlan::{self, VxlanOptions};
use super::{Ends, Tunnels};
use crate::wire::{EtherType, Gre, GreHeader, IpProtocol, Ipv4, Ipv6, Link, TooShort, Udp, Vxlan};
use core::fmt;

/// Protocol between the outer IP header and the packet inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encapsulation {
    /// GRE (RFC 2784, RFC 2890).
    #[default]
    Gre,
    /// VXLAN (RFC 7348).
    Vxlan(VxlanOptions),
}

/// Outer field by which a receiver knows an encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Carrier {
    /// IP protocol 47.
    Gre,
    /// UDP with this destination port.
    Udp(u16),
}

impl Carrier {
    /// Protocol of the outer IP header.
    pub const fn protocol(self) -> IpProtocol {
        match self {
            Self::Gre => IpProtocol::GRE,
            Self::Udp(_) => IpProtocol::UDP,
        }
    }

    /// UDP destination port, if there is one.
    pub const fn port(self) -> Option<u16> {
        match self {
            Self::Gre => None,
            Self::Udp(port) => Some(port),
        }
    }
}

/// Number that tells tunnels between the same ends apart.
///
/// Of GRE it is the key: bits 0 to 31, and bit 32 says that there is one. Of VXLAN, bits 0 to 23 are the network
/// identifier, bits 40 to 55 the UDP destination port, which is not 0.
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

    /// The bits, to be hashed.
    #[inline(always)]
    pub(super) const fn bits(self) -> u64 {
        self.0
    }
}

impl Encapsulation {
    /// Outer field by which a receiver knows it.
    pub const fn carrier(self) -> Carrier {
        match self {
            Self::Gre => Carrier::Gre,
            Self::Vxlan(options) => Carrier::Udp(options.port),
        }
    }
}

impl TunnelOptions {
    /// Number that tells the tunnel from others between the same ends.
    #[inline(always)]
    pub const fn id(&self) -> TunnelId {
        match self.encapsulation {
            Encapsulation::Gre => TunnelId::gre(self.key),
            Encapsulation::Vxlan(options) => options.id(),
        }
    }

    /// Bytes between the outer IP header and the packet inside.
    pub const fn header_bytes(&self) -> u8 {
        match self.encapsulation {
            Encapsulation::Gre => {
                4 + 4 * (self.checksum as u8 + self.key.is_some() as u8 + self.sequence as u8)
            }
            Encapsulation::Vxlan(_) => vxlan::HEADER_BYTES,
        }
    }
}

/// Writes the header of the encapsulation at the start of `bytes`, without the fields that differ from packet
/// to packet, and returns the bytes behind it.
pub(super) fn emit<'b>(options: &TunnelOptions, bytes: &'b mut [u8]) -> Result<&'b mut [u8], TooShort> {
    match options.encapsulation {
        Encapsulation::Gre => GreHeader {
            // Of packets each says its own.
            protocol: if options.is_bare() { EtherType(0) } else { EtherType::TRANSPARENT_ETHERNET },
            checksum: options.checksum,
            key: options.key,
            sequence: options.sequence.then_some(0),
        }
        .emit(bytes),
        Encapsulation::Vxlan(options) => vxlan::emit(options, bytes),
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
}

impl TunnelLabel {
    /// Label of a tunnel.
    pub const fn of(options: &TunnelOptions) -> Self {
        match options.encapsulation {
            Encapsulation::Gre => Self::Gre(options.key),
            Encapsulation::Vxlan(VxlanOptions { vni, .. }) => Self::Vxlan(vni),
        }
    }

    /// Name of the encapsulation.
    pub const fn encapsulation(self) -> &'static str {
        match self {
            Self::Gre(_) => "GRE",
            Self::Vxlan(_) => "VXLAN",
        }
    }

    /// Name and value of the number, if there is one.
    pub const fn number(self) -> (&'static str, Option<u32>) {
        match self {
            Self::Gre(key) => ("key", key),
            Self::Vxlan(vni) => ("vni", Some(vni)),
        }
    }
}

impl fmt::Display for TunnelLabel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gre(Some(key)) => write!(formatter, "with key {key}"),
            Self::Gre(None) => formatter.write_str("without a key"),
            Self::Vxlan(vni) => write!(formatter, "with VNI {vni}"),
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
        let none = |carrier| Self {
            ends,
            carrier,
            label: None,
            sequence: None,
            protocol: EtherType(0),
            payload: &[],
        };
        match protocol {
            IpProtocol::GRE => {
                let none = none(Carrier::Gre);
                let Ok(gre) = Gre::parse(payload) else { return Some(none) };
                Some(Self {
                    label: Some(TunnelLabel::Gre(gre.key())),
                    sequence: gre.sequence(),
                    protocol: gre.protocol(),
                    payload: gre.payload(),
                    ..none
                })
            }
            IpProtocol::UDP => {
                let udp = Udp::parse_head(payload, usize::MAX).ok()?;
                let none = none(Carrier::Udp(udp.destination_port()));
                if !tunnels.takes(none.carrier) {
                    return None;
                }
                let Ok(vxlan) = Vxlan::parse(udp.payload()) else { return Some(none) };
                Some(Self {
                    label: Some(TunnelLabel::Vxlan(vxlan.vni())),
                    protocol: EtherType::TRANSPARENT_ETHERNET,
                    payload: vxlan.payload(),
                    ..none
                })
            }
            _ => None,
        }
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
        assert_eq!(TunnelLabel::Gre(Some(7)).to_string(), "with key 7");
        assert_eq!(TunnelLabel::of(&options()).to_string(), "without a key");
    }
}
