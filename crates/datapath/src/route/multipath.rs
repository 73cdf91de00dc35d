//! Multipath hash: selects a packet's member of a next-hop group, by the fields that the kernel's settings
//! name.
//!
//! | `fib_multipath_hash_policy` | fields |
//! |---|---|
//! | 0 | addresses; for IPv6 also flow label and next header; for an ICMP error the fields of the packet in it |
//! | 1 | addresses, protocol, ports |
//! | 2 | as 0, of the innermost packet of IP-in-IP and GRE |
//! | 3 | the fields in `fib_multipath_hash_fields` |
//!
//! The kernel's hash has a secret seed, so the kernel may select another member for the same flow; the shares
//! are the same. Source: Documentation/networking/ip-sysctl.rst.

use crate::wire::{EtherType, Gre, Icmp, Icmpv6, IpProtocol, Ipv4, Ipv6, Link};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Packet fields that select a member of a next-hop group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashPolicy {
    /// Addresses, and the flow label of IPv6.
    #[default]
    Addresses,
    /// Addresses, protocol and ports.
    Ports,
    /// Addresses of the innermost packet.
    Inner,
    /// Bit set as in `fib_multipath_hash_fields`.
    Fields(u16),
}

impl HashPolicy {
    /// Policy of the kernel's two settings; `None` for an unknown number.
    pub fn new(policy: u8, fields: u16) -> Option<Self> {
        match policy {
            0 => Some(Self::Addresses),
            1 => Some(Self::Ports),
            2 => Some(Self::Inner),
            3 => Some(Self::Fields(fields)),
            _ => None,
        }
    }
}

/// Bits of `fib_multipath_hash_fields`; bits of the inner packet are [`INNER`] higher.
const SOURCE: u16 = 1 << 0;
const DESTINATION: u16 = 1 << 1;
const PROTOCOL: u16 = 1 << 2;
const FLOW_LABEL: u16 = 1 << 3;
const SOURCE_PORT: u16 = 1 << 4;
const DESTINATION_PORT: u16 = 1 << 5;
const INNER: u32 = 6;
/// Maximum number of nested tunnels that are parsed.
const DEPTH: usize = 4;
/// Odd multiplier with well-mixed bits: 2⁶⁴ divided by the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hash of an IP packet under a policy; 0 if it is malformed.
pub(super) fn hash(ip: &[u8], policy: HashPolicy) -> u32 {
    let Some(outer) = Keys::of(ip) else { return 0 };
    let state = match policy {
        HashPolicy::Addresses => outer.about(ip).unwrap_or(outer).layer_3(),
        HashPolicy::Ports => {
            outer.mix(FACTOR, SOURCE | DESTINATION | PROTOCOL | SOURCE_PORT | DESTINATION_PORT)
        }
        HashPolicy::Inner => match innermost(ip) {
            Some(inner) => inner.layer_3(),
            None => outer.about(ip).unwrap_or(outer).layer_3(),
        },
        HashPolicy::Fields(fields) => {
            let state = outer.mix(FACTOR, fields);
            match innermost(ip).filter(|_| fields >> INNER != 0) {
                Some(inner) => inner.mix(state, fields >> INNER),
                None => state,
            }
        }
    };
    u32::try_from(fold(state, FACTOR) >> 32).unwrap_or(0)
}

/// Fields of an IP header and of the transport header.
#[derive(Clone, Copy)]
struct Keys {
    addresses: [u128; 2],
    is_v6: bool,
    /// Next-header field of the IP header itself.
    next: IpProtocol,
    /// Protocol after extension headers.
    protocol: IpProtocol,
    flow_label: u32,
    ports: [u16; 2],
}

impl Keys {
    fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.first()? >> 4 == 4 {
            let ip = Ipv4::parse_head(bytes, usize::MAX).ok()?;
            let readable = if ip.is_fragment() { &[][..] } else { ip.payload() };
            return Some(Self {
                addresses: [ip.source(), ip.destination()]
                    .map(|address: Ipv4Addr| u128::from(address.to_bits())),
                is_v6: false,
                next: ip.protocol(),
                protocol: ip.protocol(),
                flow_label: 0,
                ports: ports(ip.protocol(), readable),
            });
        }
        let ip = Ipv6::parse_head(bytes, usize::MAX).ok()?;
        let upper = ip.upper().ok();
        let readable = upper.filter(|upper| upper.fragment.is_none()).map_or(&[][..], |upper| upper.payload);
        let protocol = upper.map_or(ip.next_header(), |upper| upper.protocol);
        Some(Self {
            addresses: [ip.source(), ip.destination()].map(Ipv6Addr::to_bits),
            is_v6: true,
            next: ip.next_header(),
            protocol,
            flow_label: ip.flow_label(),
            ports: ports(protocol, readable),
        })
    }

    /// Fields of the packet in an ICMP error, so that the error takes the same path as its flow.
    fn about(&self, bytes: &[u8]) -> Option<Self> {
        if !self.is_v6 {
            let ip = Ipv4::parse_head(bytes, usize::MAX).ok()?;
            let message = Icmp::parse(ip.payload()).ok()?;
            let is_error =
                ip.protocol() == IpProtocol::ICMP && ip.fragment_offset() == 0 && message.is_error();
            return if is_error { Self::of(message.payload()) } else { None };
        }
        let ip = Ipv6::parse_head(bytes, usize::MAX).ok()?;
        let message = Icmpv6::parse(ip.payload()).ok()?;
        let is_error = ip.next_header() == IpProtocol::ICMPV6 && message.is_error();
        if is_error { Self::of(message.payload().get(4..)?) } else { None }
    }

    fn layer_3(self) -> u64 {
        if !self.is_v6 {
            return self.mix(FACTOR, SOURCE | DESTINATION);
        }
        Self { protocol: self.next, ..self }.mix(FACTOR, SOURCE | DESTINATION | FLOW_LABEL | PROTOCOL)
    }

    /// Mixes the selected fields into a hash.
    fn mix(self, mut state: u64, fields: u16) -> u64 {
        let [source, destination] = self.addresses.map(halves);
        let [from, to] = self.ports.map(u64::from);
        let words = [
            (SOURCE, source),
            (DESTINATION, destination),
            (PROTOCOL, [u64::from(self.protocol.0), 1]),
            (FLOW_LABEL, [u64::from(self.flow_label), 2]),
            (SOURCE_PORT, [from, 3]),
            (DESTINATION_PORT, [to, 4]),
        ];
        for (_, [high, low]) in words.into_iter().filter(|(field, _)| fields & field != 0) {
            state = fold(fold(state, high), low);
        }
        state
    }
}

/// Fields of the innermost packet of nested tunnels; `None` if the packet is no tunnel packet.
fn innermost(bytes: &[u8]) -> Option<Keys> {
    let (mut found, mut ip) = (None, inside(bytes));
    for _ in 0..DEPTH {
        let Some(inner) = ip else { break };
        found = Keys::of(inner).or(found);
        ip = inside(inner);
    }
    found
}

/// Inner IP packet of a tunnel packet; `None` if there is none.
fn inside(bytes: &[u8]) -> Option<&[u8]> {
    let (protocol, payload) = if bytes.first()? >> 4 == 4 {
        let ip = Ipv4::parse_head(bytes, usize::MAX).ok().filter(|ip| !ip.is_fragment())?;
        (ip.protocol(), ip.payload())
    } else {
        let upper = Ipv6::parse_head(bytes, usize::MAX).ok()?.upper().ok()?;
        (upper.protocol, if upper.fragment.is_some() { &[][..] } else { upper.payload })
    };
    match protocol {
        IpProtocol::IPV4 | IpProtocol::IPV6 => Some(payload),
        IpProtocol::GRE => {
            let gre = Gre::parse(payload).ok()?;
            match gre.protocol() {
                EtherType::IPV4 | EtherType::IPV6 => Some(gre.payload()),
                EtherType::TRANSPARENT_ETHERNET => {
                    let link = Link::parse(gre.payload()).ok()?;
                    matches!(link.ether_type(), EtherType::IPV4 | EtherType::IPV6).then_some(link.payload())
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// First four bytes after the IP header: ports, or the SPI of ESP; zero for protocols without either.
fn ports(protocol: IpProtocol, payload: &[u8]) -> [u16; 2] {
    const DCCP: IpProtocol = IpProtocol(33);
    const ESP: IpProtocol = IpProtocol(50);
    const UDP_LITE: IpProtocol = IpProtocol(136);
    let has = protocol.has_ports() || matches!(protocol, DCCP | ESP | UDP_LITE);
    match payload.first_chunk::<4>().filter(|_| has) {
        Some(&[a, b, c, d]) => [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])],
        None => [0; 2],
    }
}

/// Mixes a word into a hash by a 128-bit product whose halves are combined by XOR.
fn fold(state: u64, word: u64) -> u64 {
    let [high, low] = halves(u128::from(state ^ word.rotate_left(23)) * u128::from(FACTOR));
    (high ^ low).wrapping_add(FACTOR)
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves of a number")]
const fn halves(number: u128) -> [u64; 2] {
    [(number >> 64) as u64, number as u64]
}
