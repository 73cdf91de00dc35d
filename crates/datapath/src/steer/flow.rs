//! Flow of a packet, as a number of 32 bits.
//!
//! In: frames of any kind, checked or not. Out: a hash over what all packets of a flow have in common.
//! Exits: none; what cannot be read is hashed by what could be.
//! Cost: one cache line, a few nanoseconds. Source: E2.
//!
//! | frame | hashed |
//! |---|---|
//! | TCP, UDP, SCTP | addresses, protocol, ports |
//! | any fragment, and other protocols over IP | addresses, protocol |
//! | GRE and gretap | the same of the packet inside, so that one tunnel is many flows |
//! | anything else | Ethernet addresses and type |
//!
//! Fragments of one datagram stay together, because no fragment is hashed by ports that only the first
//! one has. On an *underlay*, whose GRE packets end here, what has to stay in order before reordering is
//! *pinned*: outer fragments, which are reassembled, and packets with sequence numbers, which are
//! checked. Those are hashed by their outer addresses.

use super::board::{Ends, FlowName};
use super::toeplitz::Toeplitz;
use crate::wire::{EtherType, Gre, IpProtocol, Ipv4, Ipv6, Link};
use polder_buffers::Packet;
use std::net::IpAddr;

/// Steering facts about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The hash.
    pub hash: u32,
    /// True if stages need the packet's flow in order before reordering.
    pub pinned: bool,
}

/// Addresses and ports of a packet's flow: of a tunnel packet, inside it. `None` for a packet that
/// is no valid frame.
#[cold]
pub(super) fn name(packet: &Packet) -> Option<FlowName> {
    let link = Link::parse(packet.bytes()).ok()?;
    let outer = network(link.ether_type(), link.payload(), packet.len() - link.header_bytes());
    let carried = outer.as_ref().filter(|key| key.protocol == IpProtocol::GRE && !key.fragment);
    let inner = carried.and_then(|key| inner_ends(key.payload));
    let inside = inner.is_some();
    let ends = inner.or_else(|| outer.as_ref().map(Key::ends)).unwrap_or_else(|| link_ends(&link));
    Some(FlowName { ingress: packet.ingress, inside, ends })
}

fn inner_ends(bytes: &[u8]) -> Option<Ends> {
    let gre = Gre::parse(bytes).ok()?;
    match gre.protocol() {
        EtherType::TRANSPARENT_ETHERNET => {
            let link = Link::parse(gre.payload()).ok()?;
            let key = network(link.ether_type(), link.payload(), usize::MAX);
            Some(key.map_or_else(|| link_ends(&link), |key| key.ends()))
        }
        other => network(other, gre.payload(), usize::MAX).map(|key| key.ends()),
    }
}

fn link_ends(link: &Link<'_>) -> Ends {
    Ends::Link([link.ethernet.source(), link.ethernet.destination()])
}

/// Hash function of flows.
#[derive(Clone, Debug)]
pub struct Hasher {
    kind: Kind,
    symmetric: bool,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Products of secret seeds, so that senders cannot aim at one bucket.
    Mixed([u64; 4]),
    /// As adapters do it, to agree with them; the key is known to all.
    Toeplitz(Toeplitz),
}

impl Hasher {
    /// A hash of its own, made different by `seed`. A `symmetric` one is the same for both directions
    /// of a connection.
    pub fn mixed(seed: u64, symmetric: bool) -> Self {
        let mut state = seed;
        let seeds = [0; 4].map(|_: u64| {
            // SplitMix64 (Steele, Lea, Flood), so that similar seeds differ.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31 | 1
        });
        Self { kind: Kind::Mixed(seeds), symmetric }
    }

    /// The hash that adapters compute.
    pub fn toeplitz(symmetric: bool) -> Self {
        let key = if symmetric { Toeplitz::SYMMETRIC_KEY } else { Toeplitz::VERIFICATION_KEY };
        Self { kind: Kind::Toeplitz(Toeplitz::new(&key)), symmetric }
    }

    /// The flow of a packet that came in by an underlay (whose tunnels end here) or by another port.
    #[inline]
    pub fn flow(&self, packet: &Packet, is_underlay: bool) -> Flow {
        let bytes = packet.bytes();
        let Ok(link) = Link::parse(bytes) else { return Flow { hash: 0, pinned: false } };
        let length = packet.len() - link.header_bytes();
        let key = network(link.ether_type(), link.payload(), length);
        let inner = match &key {
            Some(key) if key.protocol == IpProtocol::GRE && !key.fragment => {
                let (inner, sequenced) = self.inside(key.payload);
                if is_underlay && sequenced {
                    return Flow { hash: self.hash(key), pinned: true };
                }
                inner
            }
            Some(_) | None => None,
        };
        let hash = inner.or_else(|| key.as_ref().map(|key| self.hash(key)));
        let pinned = is_underlay && key.is_some_and(|key| key.fragment);
        Flow { hash: hash.unwrap_or_else(|| self.hash_link(&link)), pinned }
    }

    /// Hash of the inner packet of a GRE packet, and true if that has a sequence number.
    fn inside(&self, bytes: &[u8]) -> (Option<u32>, bool) {
        let Ok(gre) = Gre::parse(bytes) else { return (None, false) };
        // The outer length has been checked; how much of the packet is in the head does not matter.
        let hash = match gre.protocol() {
            EtherType::TRANSPARENT_ETHERNET => Link::parse(gre.payload()).ok().map(|link| {
                let key = network(link.ether_type(), link.payload(), usize::MAX);
                key.map_or_else(|| self.hash_link(&link), |key| self.hash(&key))
            }),
            other => network(other, gre.payload(), usize::MAX).map(|key| self.hash(&key)),
        };
        (hash, gre.sequence().is_some())
    }

    #[inline]
    fn hash(&self, key: &Key<'_>) -> u32 {
        match &self.kind {
            Kind::Mixed(seeds) => {
                let [from, to] = match &key.addresses {
                    Addresses::V4(addresses) => addresses.map(|address| u64::from(address) << 16),
                    Addresses::V6(addresses) => addresses.map(|address| {
                        let [high, low] = halves(address);
                        folded(high ^ seeds[2], low ^ seeds[3])
                    }),
                };
                let [from_port, to_port] = key.ports.unwrap_or_default();
                let (from, to) = (from ^ u64::from(from_port), to ^ u64::from(to_port));
                mix(seeds, self.symmetric, from, to, u64::from(key.protocol.0))
            }
            Kind::Toeplitz(toeplitz) => {
                let ports = key.ports.map(u16_pair);
                let ports = ports.iter().flatten();
                match &key.addresses {
                    Addresses::V4(addresses) => {
                        toeplitz.hash(addresses.map(u32::to_be_bytes).as_flattened().iter().chain(ports))
                    }
                    Addresses::V6(addresses) => {
                        toeplitz.hash(addresses.map(u128::to_be_bytes).as_flattened().iter().chain(ports))
                    }
                }
            }
        }
    }

    fn hash_link(&self, link: &Link<'_>) -> u32 {
        let [from, to] = [link.ethernet.source(), link.ethernet.destination()].map(|mac| mac.to_u64());
        match &self.kind {
            Kind::Mixed(seeds) => mix(seeds, self.symmetric, from, to, u64::from(link.ether_type().0)),
            Kind::Toeplitz(toeplitz) => {
                let addresses = [from, to].map(|address| address << 16);
                toeplitz.hash(addresses.map(u64::to_be_bytes).as_flattened())
            }
        }
    }
}

#[inline]
fn mix(seeds: &[u64; 4], symmetric: bool, from: u64, to: u64, kind: u64) -> u32 {
    let (first, second) = if symmetric && to < from { (to, from) } else { (from, to) };
    let product = folded(first ^ seeds[0], second.rotate_left(32) ^ seeds[1] ^ kind << 8);
    let [high, low] = product_halves(product);
    high ^ low
}

/// The two halves of a product of 128 bits, added without carry.
#[inline]
fn folded(a: u64, b: u64) -> u64 {
    let [high, low] = halves(u128::from(a) * u128::from(b));
    high ^ low
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the two halves of a number")]
const fn halves(number: u128) -> [u64; 2] {
    [(number >> 64) as u64, number as u64]
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the two halves of a number")]
const fn product_halves(number: u64) -> [u32; 2] {
    [(number >> 32) as u32, number as u32]
}

fn u16_pair([first, second]: [u16; 2]) -> [u8; 4] {
    (u32::from(first) << 16 | u32::from(second)).to_be_bytes()
}

/// Key of a flow, equal in all its packets.
struct Key<'a> {
    addresses: Addresses,
    ports: Option<[u16; 2]>,
    protocol: IpProtocol,
    fragment: bool,
    payload: &'a [u8],
}

impl Key<'_> {
    fn ends(&self) -> Ends {
        let addresses = match self.addresses {
            Addresses::V4(addresses) => addresses.map(|address| IpAddr::V4(address.into())),
            Addresses::V6(addresses) => addresses.map(|address| IpAddr::V6(address.into())),
        };
        Ends::Ip { addresses, protocol: self.protocol, ports: self.ports }
    }
}

/// Source and destination.
enum Addresses {
    V4([u32; 2]),
    V6([u128; 2]),
}

/// The key of an IP packet; `None` for anything else.
#[inline]
fn network(ether_type: EtherType, bytes: &[u8], length: usize) -> Option<Key<'_>> {
    let (addresses, protocol, fragment, payload) = match ether_type {
        EtherType::IPV4 => {
            let ip = Ipv4::parse_head(bytes, length).ok()?;
            let addresses = Addresses::V4([ip.source().to_bits(), ip.destination().to_bits()]);
            (addresses, ip.protocol(), ip.is_fragment(), ip.payload())
        }
        EtherType::IPV6 => {
            let ip = Ipv6::parse_head(bytes, length).ok()?;
            let addresses = Addresses::V6([ip.source().to_bits(), ip.destination().to_bits()]);
            // Fragments and headers that cannot be followed leave the addresses alone: what one
            // fragment does not say, the others must not know.
            let upper = ip.upper().ok();
            let fragment = upper.is_some_and(|upper| upper.fragment.is_some());
            let readable = upper.filter(|_| !fragment);
            let (protocol, payload) =
                readable.map_or((IpProtocol::FRAGMENT, &[][..]), |upper| (upper.protocol, upper.payload));
            (addresses, protocol, fragment, payload)
        }
        _ => return None,
    };
    let ports = payload.first_chunk().filter(|_| protocol.has_ports() && !fragment);
    let ports = ports.map(|&[a, b, c, d]| [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]);
    Some(Key { addresses, ports, protocol, fragment, payload })
}
