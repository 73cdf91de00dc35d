//! IPv4 in IPv4 and IPv6 in IPv4, without a header between them (RFC 2003, RFC 4213).
//!
//! A packet belongs to a tunnel by its addresses and the outer protocol, which tells the inner family. So two
//! endpoints can have one tunnel of each kind, and it carries packets of one family.
//!
//! The outer DF flag follows the tunnel's options, not the inner packet (a deviation from RFC 2003, 3.1;
//! reasons in ADR 0005). The outer TTL is ignored, as for all tunnels. Congestion marks follow RFC 6040,
//! which updates RFC 4213.
//!
//! Super-packets are segmented before encapsulation: no device offload describes such a tunnel.

use super::decapsulate::Lane;
use super::encapsulation::{Carrier, Declaration, Header, TunnelId, TunnelLabel};
use super::keepalive::Payload;
use super::lane::TunnelVerdict;
use super::options::TunnelOptions;
use super::outer::{Envelope, NOT_FOR_US, Opened, Refused};
use super::{ETHERNET_BYTES, Ends, Tunnels};
use crate::drops::DropReason;
use crate::parse::{HeaderSummary, Network};
use crate::units::Nanos;
use crate::wire::{EtherType, Inside, IpProtocol, Ipv4, Ipv6, TooShort};
use std::net::Ipv6Addr;

/// Declaration of an encapsulation without header.
#[derive(Clone, Copy, Debug)]
pub(super) struct IpInIp {
    name: &'static str,
    protocol: IpProtocol,
    network: Network,
}

/// IPv4 in IPv4.
pub(super) const IPIP: IpInIp = IpInIp { name: "IPIP", protocol: IpProtocol::IPV4, network: Network::Ipv4 };
/// IPv6 in IPv4.
pub(super) const SIT: IpInIp = IpInIp { name: "SIT", protocol: IpProtocol::IPV6, network: Network::Ipv6 };

/// Outer IPv4 protocols whose payload is the inner packet.
pub const IP_IN_IP_PROTOCOLS: [IpProtocol; 2] = [IPIP.protocol, SIT.protocol];

impl Declaration for IpInIp {
    fn carrier(&self) -> Carrier {
        Carrier::Ip(self.protocol)
    }

    #[inline(always)]
    fn id(&self, _: &TunnelOptions) -> TunnelId {
        TunnelId::protocol(self.protocol)
    }

    fn label(&self, _: &TunnelOptions) -> TunnelLabel {
        TunnelLabel::Named(self.name)
    }

    fn header_bytes(&self, _optional_fields: u8) -> u8 {
        0
    }

    fn emit<'b>(&self, _: &TunnelOptions, bytes: &'b mut [u8]) -> Result<&'b mut [u8], TooShort> {
        Ok(bytes)
    }

    /// Refuses packets of the other family, and IPv4 packets from the remote endpoint, which would return to
    /// this gateway (RFC 2003, 4.4).
    fn admits(
        &self,
        options: &TunnelOptions,
        headers: HeaderSummary,
        frame: &[u8],
    ) -> Result<(), TunnelVerdict> {
        if headers.network() != self.network {
            return Err(TunnelVerdict::NotIp);
        }
        match (self.network, options.ends) {
            (Network::Ipv4, Ends::V4 { remote, .. }) => {
                let source = headers.network_header(frame).get(SOURCE_V4..).and_then(<[u8]>::first_chunk);
                if source == Some(&remote.octets()) { Err(TunnelVerdict::Recursion) } else { Ok(()) }
            }
            (Network::Ipv4 | Network::Ipv6 | Network::Other, Ends::V4 { .. } | Ends::V6 { .. }) => Ok(()),
        }
    }
}

/// Offsets of the source address in IPv4 and IPv6 headers.
const SOURCE_V4: usize = 12;
const SOURCE_V6: usize = 8;

/// Returns the inner packet after an outer IP header; `None` for another protocol.
pub(super) fn read(protocol: IpProtocol, bytes: &[u8]) -> Option<Header<'_>> {
    let label = TunnelLabel::Named(declared(protocol)?.name);
    Some(Header { label, inside: Inside::of(protocol, bytes)? })
}

/// Parses the inner packet after the outer IP header; sets `lane` to a run of the packet's tunnel.
#[inline(never)]
pub(super) fn decide<'a>(
    protocol: IpProtocol,
    envelope: &Envelope<'_>,
    tunnels: &'a Tunnels,
    lane: &mut Option<Lane<'a>>,
    place: (usize, Nanos),
) -> Result<Opened, Refused> {
    let Some(declaration) = declared(protocol).filter(|it| tunnels.takes(it.carrier())) else {
        return Err(NOT_FOR_US);
    };
    let &Envelope { ref ends, start, end, ecn, payload } = envelope;
    let lane = Lane::enter(lane, (ends, TunnelId::protocol(protocol)), tunnels, place)?;
    declaration.check(payload)?;
    // The outer IP header alone is longer than an Ethernet header, so no underflow.
    let strip = u16::try_from(start - usize::from(ETHERNET_BYTES));
    let strip = strip.map_err(|_| Refused::Drop(DropReason::Ipv4Truncated))?;
    let opened = Opened { strip, end, ecn, sequence: None };
    lane.bare = Some((opened, Payload::Packet(declaration.ether_type())));
    Err(Refused::Bare)
}

/// Declaration of the encapsulation with this protocol; `None` for another protocol.
#[inline]
const fn declared(protocol: IpProtocol) -> Option<IpInIp> {
    match protocol {
        IpProtocol::IPV4 => Some(IPIP),
        IpProtocol::IPV6 => Some(SIT),
        _ => None,
    }
}

impl IpInIp {
    #[inline]
    const fn ether_type(self) -> EtherType {
        match self.network {
            Network::Ipv6 => EtherType::IPV6,
            Network::Ipv4 | Network::Other => EtherType::IPV4,
        }
    }

    /// Checks the inner packet's version and that its source is not martian. The router checks the rest.
    fn check(self, packet: &[u8]) -> Result<(), Refused> {
        let (version, least) = match self.network {
            Network::Ipv6 => (6, Ipv6::HEADER_BYTES),
            Network::Ipv4 | Network::Other => (4, Ipv4::HEADER_BYTES),
        };
        if packet.len() < least || packet.first().is_none_or(|first| first >> 4 != version) {
            return Err(Refused::OfTunnel(DropReason::TunnelBadProtocol));
        }
        let source = packet.get(SOURCE_V6..).and_then(<[u8]>::first_chunk::<16>);
        let is_martian =
            self.network == Network::Ipv6 && source.is_some_and(|&source| is_martian(source.into()));
        if is_martian { Err(Refused::OfTunnel(DropReason::MartianSource)) } else { Ok(()) }
    }
}

/// True for an IPv6 source that a packet decapsulated from IPv4 must not have (RFC 4213, 3.6): multicast,
/// loopback, IPv4-compatible or IPv4-mapped. The unspecified address is allowed.
fn is_martian(source: Ipv6Addr) -> bool {
    let [high, low] = [source.to_bits() >> 32, source.to_bits() & u128::from(u32::MAX)];
    let is_compatible = high == 0 && low != 0;
    source.is_multicast() || is_compatible || source.to_ipv4_mapped().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4213, 3.6; `::1` is one of the addresses that begin with 96 zeros.
    #[test]
    fn sources_that_cannot_be_there() {
        let martians = ["::1", "::192.0.2.1", "::ffff:192.0.2.1", "ff02::1"];
        for (source, expected) in martians
            .map(|source| (source, true))
            .into_iter()
            .chain(["::", "2001:db8::1", "fe80::1", "::1:0:0"].map(|source| (source, false)))
        {
            let address = source.parse().expect("an address");
            assert_eq!(is_martian(address), expected, "{source}");
        }
    }

    #[test]
    fn the_version_inside_is_that_of_the_protocol() {
        let packet = |first: u8, length: usize| [&[first][..], &vec![0; length - 1]].concat();
        for (declaration, packet, is_right) in [
            (IPIP, packet(0x45, 20), true),
            (IPIP, packet(0x60, 40), false),
            (IPIP, packet(0x45, 19), false),
            (SIT, packet(0x60, 40), true),
            (SIT, packet(0x45, 40), false),
            (SIT, packet(0x60, 39), false),
        ] {
            assert_eq!(declaration.check(&packet).is_ok(), is_right, "{declaration:?} {packet:x?}");
        }
        assert!(declared(IpProtocol::GRE).is_none());
        assert_eq!(IP_IN_IP_PROTOCOLS.map(|protocol| protocol.0), [4, 41]);
    }
}
