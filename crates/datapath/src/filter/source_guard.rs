//! Source guard: accepts packets of a port only from its own stations (RFC 7039, RFC 6105, RFC 5227).
//!
//! In: packets that a port received, before the bridge learns from them. Exits: `SourceGuard`.
//!
//! | packet | required |
//! |---|---|
//! | any frame | the guard's MAC address as source |
//! | ARP | that MAC address and one of the guard's IP addresses as sender; 0.0.0.0 in a probe (RFC 5227, 2.1.1) |
//! | IPv4 | one of the guard's addresses as its source, or 0.0.0.0 |
//! | IPv6 | the same; or `::`, or the link-local address derived from the MAC address (RFC 4291, A) |
//! | neighbour discovery | the guard's addresses in options and as target of an advertisement or a probe |
//! | router advertisement, redirect | always dropped: hosts do not send them |
//!
//! Malformed headers, and neighbour discovery in fragments (RFC 6980), are dropped as well. A guard without
//! IP addresses checks MAC addresses only.
//!
//! Cost: one comparison for each address of the guard; one branch for packets of other ports.

use crate::drops::{Context, DropReason, is_dropped};
use crate::parse::{Addresses, HeaderSummary};
use crate::wire::{Arp, ArpOperation, EtherType, Ethernet, Icmpv6, IpProtocol, MacAddress};
use core::net::IpAddr;
use polder_buffers::{Batch, PortId};

/// Addresses that senders on a port may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceGuard {
    mac: MacAddress,
    /// IPv4 source addresses; `None` if all are accepted.
    v4: Option<Box<[u32]>>,
    /// IPv6 source addresses, the link-local one included; `None` if all are accepted.
    v6: Option<Box<[u128]>>,
}

/// Guards by port; empty if there are none.
pub(super) type Guards = [Option<SourceGuard>];

impl SourceGuard {
    /// Guard for this MAC address and these IP addresses; with an empty list all IP addresses are accepted.
    pub fn new(mac: MacAddress, addresses: &[IpAddr]) -> Self {
        let v4 = addresses.iter().filter_map(|address| match address {
            IpAddr::V4(address) => Some(address.to_bits()),
            IpAddr::V6(_) => None,
        });
        let v6 = addresses.iter().filter_map(|address| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address.to_bits()),
        });
        let is_given = !addresses.is_empty();
        Self {
            mac,
            v4: is_given.then(|| v4.collect()),
            v6: is_given.then(|| v6.chain([link_local(mac)]).collect()),
        }
    }

    /// True if a station of the guard may have sent the frame.
    fn admits(&self, headers: HeaderSummary, bytes: &[u8]) -> bool {
        if Ethernet::parse(bytes).map(|ethernet| ethernet.source()) != Ok(self.mac) {
            return false;
        }
        match headers.addresses(bytes) {
            Some(Addresses::V4([source, _])) => headers.is_readable() && (source == 0 || self.has_v4(source)),
            Some(Addresses::V6([source, _])) => {
                headers.is_readable()
                    && (source == 0 || self.has_v6(source))
                    && (headers.protocol() != IpProtocol::ICMPV6 || self.admits_icmp(headers, bytes, source))
            }
            None => self.admits_other(headers, bytes),
        }
    }

    fn has_v4(&self, address: u32) -> bool {
        self.v4.as_ref().is_none_or(|own| own.contains(&address))
    }

    fn has_v6(&self, address: u128) -> bool {
        self.v6.as_ref().is_none_or(|own| own.contains(&address))
    }

    /// Checks ARP and frames that are not readable IP packets.
    fn admits_other(&self, headers: HeaderSummary, bytes: &[u8]) -> bool {
        let at = headers.network_offset();
        let kind = at.checked_sub(2).and_then(|at| bytes.get(at..)?.first_chunk());
        let Some(kind) = kind.map(|&kind| EtherType(u16::from_be_bytes(kind))) else { return false };
        if kind == EtherType::ARP {
            return Arp::parse(headers.network_header(bytes)).is_ok_and(|arp| {
                let sender = arp.sender_ip().to_bits();
                let is_probe = sender == 0 && arp.operation() == ArpOperation::REQUEST;
                arp.sender_mac() == self.mac && (is_probe || self.has_v4(sender))
            });
        }
        // After a third tag or with a malformed header, a receiver may parse further than this gateway.
        kind != EtherType::IPV4 && kind != EtherType::IPV6 && !kind.is_tag()
    }

    /// Checks ICMPv6 from `source`; 0 is the unspecified address.
    fn admits_icmp(&self, headers: HeaderSummary, bytes: &[u8], source: u128) -> bool {
        if !headers.has_transport() {
            return true;
        }
        let Ok(message) = Icmpv6::parse(headers.payload(bytes)) else { return false };
        let (kind, body) = (message.kind(), message.payload());
        let fixed = match kind {
            ROUTER_SOLICITATION => RESERVED,
            Icmpv6::NEIGHBOUR_SOLICITATION | Icmpv6::NEIGHBOUR_ADVERTISEMENT => RESERVED + ADDRESS,
            ROUTER_ADVERTISEMENT | REDIRECT => return false,
            _ => return true,
        };
        let Some(options) = body.get(fixed..).filter(|_| !headers.is_fragment()) else { return false };
        let target =
            body.get(RESERVED..fixed).and_then(<[u8]>::first_chunk).map(|&at| u128::from_be_bytes(at));
        // A probe for a foreign address would take it from that station (RFC 4862, 5.4).
        let is_claim = kind == Icmpv6::NEIGHBOUR_ADVERTISEMENT || source == 0;
        target.is_none_or(|target| !is_claim || self.has_v6(target)) && self.admits_options(options)
    }

    /// Checks options of neighbour discovery (RFC 4861, 4.6).
    fn admits_options(&self, mut options: &[u8]) -> bool {
        while let Some(&[kind, words]) = options.first_chunk() {
            let Some((option, rest)) = options.split_at_checked(usize::from(words) * 8).filter(|_| words > 0)
            else {
                return false;
            };
            if matches!(kind, SOURCE_ADDRESS | TARGET_ADDRESS) && option.get(2..8) != Some(&self.mac.0[..]) {
                return false;
            }
            options = rest;
        }
        options.is_empty()
    }
}

/// Drops packets that no station of their port may send.
pub(super) fn guard(batch: &mut Batch, guards: &Guards, context: &mut Context<'_>) {
    for packet in batch.iter_mut() {
        let PortId(port) = packet.ingress;
        let Some(Some(guard)) = guards.get(usize::from(port)) else { continue };
        if is_dropped(packet) {
            continue;
        }
        let (headers, bytes) = HeaderSummary::with_bytes(packet);
        if !guard.admits(headers, bytes) {
            context.discard(packet, DropReason::SourceGuard);
        }
    }
}

/// Link-local address with the modified EUI-64 of a MAC address.
fn link_local(MacAddress([a, b, c, d, e, f]): MacAddress) -> u128 {
    u128::from_be_bytes([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// ICMPv6 types (RFC 4861, 4).
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const REDIRECT: u8 = 137;
/// Options with a MAC address (RFC 4861, 4.6.1).
const SOURCE_ADDRESS: u8 = 1;
const TARGET_ADDRESS: u8 = 2;
/// Length in bytes of the reserved field after the ICMPv6 header, and of the address after it.
const RESERVED: usize = 4;
const ADDRESS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 5]);
    const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 6]);
    const LOCAL: u128 = 0xfe80_0000_0000_0000_0000_00ff_fe00_0005;
    const SIX: u128 = 0xfd00_0000_0000_0000_0000_0000_0000_0005;

    fn admits(frame: &[u8]) -> bool {
        let addresses = ["10.0.0.5", "fd00::5"].map(|text| text.parse().expect("an address"));
        SourceGuard::new(OWN, &addresses).admits(HeaderSummary::parse(frame, frame.len()), frame)
    }

    fn frame(source: MacAddress, kind: u16, payload: &[u8]) -> Vec<u8> {
        [&[0xff; 6][..], &source.0, &kind.to_be_bytes(), payload].concat()
    }

    fn v4(source: [u8; 4]) -> Vec<u8> {
        let head = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        [&head[..], &source, &[10, 0, 0, 9], &[0; 8]].concat()
    }

    fn v6(source: u128, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(payload.len()).expect("short").to_be_bytes();
        let head = [0x60, 0, 0, 0, length[0], length[1], protocol, 255];
        [&head[..], &source.to_be_bytes(), &[0xff; 16], payload].concat()
    }

    fn arp(operation: u8, mac: MacAddress, ip: [u8; 4]) -> Vec<u8> {
        [&[0, 1, 8, 0, 6, 4, 0, operation][..], &mac.0, &ip, &[0; 6], &[10, 0, 0, 9]].concat()
    }

    fn discovery(kind: u8, target: u128, option: u8, mac: MacAddress) -> Vec<u8> {
        let target = if kind == ROUTER_SOLICITATION { Vec::new() } else { target.to_be_bytes().to_vec() };
        [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &target, &[option, 1], &mac.0].concat()
    }

    #[test]
    fn frames_and_packets_have_the_guards_sources() {
        for (is_admitted, source, kind, payload) in [
            (true, OWN, 0x0800, v4([10, 0, 0, 5])),
            (false, OTHER, 0x0800, v4([10, 0, 0, 5])),
            (false, OWN, 0x0800, v4([10, 0, 0, 6])),
            (true, OWN, 0x0800, v4([0; 4])),
            (false, OWN, 0x0800, vec![0x45]),
            (true, OWN, 0x86dd, v6(SIX, 17, &[0; 8])),
            (true, OWN, 0x86dd, v6(LOCAL, 17, &[0; 8])),
            (false, OWN, 0x86dd, v6(LOCAL + 1, 17, &[0; 8])),
            (false, OWN, 0x86dd, v6(SIX + 1, 17, &[0; 8])),
            (true, OWN, 0x88cc, vec![0; 8]),
        ] {
            let plain = frame(source, kind, &payload);
            assert_eq!(admits(&plain), is_admitted, "{plain:x?}");
            let tagged = frame(source, 0x8100, &[&[0, 7][..], &kind.to_be_bytes(), &payload].concat());
            assert_eq!(admits(&tagged), is_admitted, "{tagged:x?}");
        }
        let tags = [0x81, 0, 0, 7].repeat(3);
        let deep = frame(OWN, 0x8100, &[&tags[2..], &[8, 0], &v4([10, 0, 0, 5])].concat());
        assert!(!admits(&deep), "{deep:x?}");
    }

    #[test]
    fn arp_is_sent_by_the_guards_station() {
        for (is_admitted, payload) in [
            (true, arp(1, OWN, [10, 0, 0, 5])),
            (true, arp(2, OWN, [10, 0, 0, 5])),
            (true, arp(1, OWN, [0; 4])),
            (false, arp(2, OWN, [0; 4])),
            (false, arp(1, OTHER, [10, 0, 0, 5])),
            (false, arp(2, OWN, [10, 0, 0, 6])),
            (false, vec![0, 1]),
        ] {
            assert_eq!(admits(&frame(OWN, 0x0806, &payload)), is_admitted, "{payload:x?}");
        }
    }

    #[test]
    fn neighbour_discovery_speaks_of_the_guards_station() {
        for (is_admitted, source, message) in [
            (true, SIX, discovery(135, SIX + 1, 1, OWN)),
            (false, SIX, discovery(135, SIX + 1, 1, OTHER)),
            (true, 0, discovery(135, SIX, 14, OTHER)),
            (false, 0, discovery(135, SIX + 1, 14, OTHER)),
            (true, SIX, discovery(136, SIX, 2, OWN)),
            (true, LOCAL, discovery(136, LOCAL, 2, OWN)),
            (false, SIX, discovery(136, SIX + 1, 2, OWN)),
            (false, SIX, discovery(136, SIX, 2, OTHER)),
            (true, LOCAL, discovery(133, 0, 1, OWN)),
            (false, LOCAL, discovery(133, 0, 1, OTHER)),
            (false, LOCAL, discovery(134, 0, 1, OWN)),
            (false, LOCAL, discovery(137, SIX, 2, OWN)),
            (false, SIX, vec![136, 0, 0, 0, 0, 0, 0, 0]),
            (false, SIX, [discovery(136, SIX, 2, OWN), vec![2, 0]].concat()),
            (true, SIX, vec![128, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            let plain = frame(OWN, 0x86dd, &v6(source, 58, &message));
            assert_eq!(admits(&plain), is_admitted, "{message:x?}");
            // Behind a fragment header it is none.
            let first = [&[58, 0, 0, 1, 0, 0, 0, 1][..], &message].concat();
            let is_echo = message[0] == 128;
            assert_eq!(admits(&frame(OWN, 0x86dd, &v6(source, 44, &first))), is_echo, "{message:x?}");
        }
    }

    #[test]
    fn a_guard_without_addresses_looks_at_stations_alone() {
        let guard = SourceGuard::new(OWN, &[]);
        assert!(guard.has_v4(7) && guard.has_v6(7));
    }
}
