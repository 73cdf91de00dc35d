//! Tunnels in the form that BPF programs use: outer headers to be written, and outer fields to be matched.
//!
//! A program does the same as the stages, for the tunnels and packets that it supports: [`Tunnel::obstacle`]
//! returns the reason if it cannot.

use super::{Carrier, ETHERNET_BYTES, Ends, Tunnel, TunnelLabel, Tunnels};
use crate::wire::{Ethernet, Ipv4, Udp, Vxlan};
use std::net::Ipv4Addr;

/// Outer headers of a tunnel over IPv4: Ethernet, IPv4, and GRE or UDP and VXLAN.
///
/// All fields are set except total length, UDP length and source port, and the IP checksum; traffic class and
/// TTL are `inner & bits | fixed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterTemplate {
    headers: [u8; Self::MOST_BYTES],
    length: u8,
    /// Outer field by which the encapsulation is recognised.
    pub carrier: Carrier,
    /// Sum of the IPv4 header in native byte order, with zero for fields that vary per packet.
    pub sum: u32,
    /// Traffic class: mask of the inherited bits, and fixed bits.
    pub class: (u8, u8),
    /// TTL: mask of the inherited bits, and fixed bits.
    pub ttl: (u8, u8),
    /// True if packets have an identification, because they may be fragmented.
    pub is_numbered: bool,
    /// UDP destination port of tunnels: packets to it may be outer packets already; 0 for none.
    pub tunnel_port: u16,
}

/// Outer fields of received packets of a tunnel over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OuterKey {
    /// Destination address.
    pub local: Ipv4Addr,
    /// Source address.
    pub remote: Ipv4Addr,
    /// Outer field by which the encapsulation is recognised.
    pub carrier: Carrier,
    /// Key or VNI of the tunnel; `None` without one.
    pub number: Option<u32>,
}

impl OuterTemplate {
    /// Maximum length of the headers in bytes.
    pub const MOST_BYTES: usize =
        Ethernet::HEADER_BYTES + Ipv4::HEADER_BYTES + Udp::HEADER_BYTES + Vxlan::HEADER_BYTES;

    /// Bytes of the headers.
    pub fn headers(&self) -> &[u8] {
        &self.headers[..usize::from(self.length)]
    }
}

impl Tunnel {
    /// Reason why no program can carry this tunnel's packets; `None` if one can.
    pub fn obstacle(&self, tunnels: &Tunnels) -> Option<&'static str> {
        let options = &self.options;
        if options.is_bare() {
            Some("it carries packets without Ethernet")
        } else if options.ends.is_v6() {
            Some("its outer packets are IPv6")
        } else if options.checksum {
            Some("its packets have a checksum")
        } else if options.sequence {
            Some("its packets have sequence numbers")
        } else if self.underlay.vlan.is_some() {
            Some("its outer packets have a tag")
        } else {
            let (_, others) = tunnels.ports();
            (!others.is_empty()).then_some("tunnels have several UDP ports")
        }
    }

    /// Outer headers of packets into the tunnel, and the maximum frame length in bytes; `None` while the next
    /// hop is unresolved. Packets to the UDP port `tunnel_port` may be outer packets.
    pub(crate) fn outer_template(&self, tunnel_port: u16) -> Option<(OuterTemplate, u32)> {
        let next_hop = self.state().next_hop.address()?;
        let addressed = self.template.addressed(next_hop);
        let (bytes, sum, [class, ttl]) = addressed.parts();
        let mut headers = [0; OuterTemplate::MOST_BYTES];
        headers.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let longest = self.carried_frame().min(self.mtu.saturating_add(ETHERNET_BYTES));
        let outer = OuterTemplate {
            headers,
            length: u8::try_from(bytes.len()).ok()?,
            carrier: self.options.encapsulation.carrier(),
            sum,
            class,
            ttl,
            is_numbered: !self.options.dont_fragment,
            tunnel_port,
        };
        Some((outer, longest.into()))
    }

    /// Outer fields of packets from the remote endpoint; `None` for IPv6.
    pub(crate) fn outer_key(&self) -> Option<OuterKey> {
        let Ends::V4 { local, remote } = self.options.ends else { return None };
        let (_, number) = TunnelLabel::of(&self.options).number();
        Some(OuterKey { local, remote, carrier: self.options.encapsulation.carrier(), number })
    }
}
