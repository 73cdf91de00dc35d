//! Flow of a packet as a 32-bit hash.
//!
//! In: frames of any kind, checked or not. Out: a hash over the fields that all packets of a flow share.
//! Exits: none; a malformed frame is hashed by its readable fields. Cost: one cache line, a few nanoseconds.
//! Source: E2.
//!
//! | frame | hashed |
//! |---|---|
//! | TCP, UDP, SCTP | addresses, protocol, ports |
//! | any fragment, and other protocols over IP | addresses, protocol |
//! | GRE and gretap, IP in IP | the same of the packet inside, so that one tunnel is many flows |
//! | anything else | Ethernet addresses and type |
//!
//! Fragments of a datagram have the same hash, because no fragment is hashed by ports, which only the first
//! fragment has. On an *underlay*, whose tunnels end here, packets that must stay in order before reordering
//! are *pinned*: outer fragments (for reassembly) and packets with sequence numbers (for their check). Pinned
//! packets are hashed by their outer addresses.

use super::flow_name::{Ends, FlowName};
use super::toeplitz::Toeplitz;
use crate::parse::{Addresses, HeaderSummary, Network, PlainV4};
use crate::wire::{EtherType, Inside, IpProtocol, Link};
use polder_buffers::Packet;
use std::net::IpAddr;

/// Flow of a packet, for steering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Hash of the flow.
    pub hash: u32,
    /// True if stages need the flow's packets in order before reordering.
    pub pinned: bool,
}

/// Addresses and ports of a packet's flow; in a tunnel, of the inner packet's flow. `None` if the frame is
/// malformed.
#[cold]
pub(crate) fn name(packet: &Packet) -> Option<FlowName> {
    let link = Link::parse(packet.bytes()).ok()?;
    let outer = Key::of(packet.bytes(), HeaderSummary::read(packet));
    let inner = outer.as_ref().filter(|key| !key.fragment).and_then(inner_ends);
    let inside = inner.is_some();
    let ends = inner.or_else(|| outer.as_ref().map(Key::ends)).unwrap_or_else(|| link_ends(&link));
    Some(FlowName { ingress: packet.ingress, inside, ends })
}

fn inner_ends(outer: &Key<'_>) -> Option<Ends> {
    let inner = Inner::of(outer)?;
    match inner.key() {
        Some(key) => Some(key.ends()),
        None if inner.has_link => Link::parse(inner.bytes).ok().map(|link| link_ends(&link)),
        None => None,
    }
}

fn link_ends(link: &Link<'_>) -> Ends {
    Ends::Link([link.ethernet.source(), link.ethernet.destination()])
}

/// Hash function over flows.
#[derive(Clone, Debug)]
pub struct Hasher {
    kind: HashKind,
    symmetric: bool,
}

#[derive(Clone, Debug)]
enum HashKind {
    /// Multiplication by secret seeds, so that a sender cannot target one bucket.
    Mixed([u64; 4]),
    /// The RSS hash of network adapters, to agree with them; its key is public.
    Toeplitz(Toeplitz),
}

impl Hasher {
    /// Hash function seeded with `seed`. If `symmetric`, both directions of a connection have the same hash.
    pub fn mixed(seed: u64, symmetric: bool) -> Self {
        let mut state = seed;
        let seeds = [0; 4].map(|_: u64| {
            // SplitMix64 (Steele, Lea, Flood), so that similar seeds differ.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31 | 1
        });
        Self { kind: HashKind::Mixed(seeds), symmetric }
    }

    /// The RSS hash that network adapters compute.
    pub fn toeplitz(symmetric: bool) -> Self {
        let key = if symmetric { Toeplitz::SYMMETRIC_KEY } else { Toeplitz::VERIFICATION_KEY };
        Self { kind: HashKind::Toeplitz(Toeplitz::new(&key)), symmetric }
    }

    /// Flow of a packet that was received on an underlay, whose tunnels end here, or on another port.
    #[inline]
    pub fn flow(&self, packet: &Packet, is_underlay: bool) -> Flow {
        let (headers, bytes) = HeaderSummary::read_with_bytes(packet);
        match headers.plain_v4(bytes) {
            Some(plain) if !plain.protocol.is_encapsulation() => {
                Flow { hash: self.hash(&Key::plain(plain)), pinned: false }
            }
            Some(_) | None => self.flow_closely(bytes, headers, is_underlay),
        }
    }

    #[inline(never)]
    fn flow_closely(&self, bytes: &[u8], headers: HeaderSummary, is_underlay: bool) -> Flow {
        let Some(key) = Key::of(bytes, headers) else {
            return Flow { hash: self.hash_link(bytes).unwrap_or(0), pinned: false };
        };
        if key.protocol.is_encapsulation() && !key.fragment {
            return self.inside(&key, is_underlay);
        }
        Flow { hash: self.hash(&key), pinned: is_underlay && key.fragment }
    }

    /// Flow of a tunnel packet: by its inner packet, or by its outer addresses if the tunnel has sequence
    /// numbers.
    fn inside(&self, outer: &Key<'_>, is_underlay: bool) -> Flow {
        let inner = Inner::of(outer);
        let pinned = is_underlay && inner.as_ref().is_some_and(|inner| inner.is_sequenced);
        let hash = inner.filter(|_| !pinned).and_then(|inner| match inner.key() {
            Some(key) => Some(self.hash(&key)),
            None if inner.has_link => self.hash_link(inner.bytes),
            None => None,
        });
        Flow { hash: hash.unwrap_or_else(|| self.hash(outer)), pinned }
    }

    /// Hash of a waiting packet's flow, and hashes of its source and destination; in a tunnel without sequence
    /// numbers, of the inner packet. The only function that reads hosts for queues, so a table of translated
    /// addresses has its place here.
    pub fn flow_and_hosts(&self, packet: &Packet) -> (u32, [u32; 2]) {
        let (headers, bytes) = HeaderSummary::read_with_bytes(packet);
        let Some(outer) = Key::of(bytes, headers) else { return self.link_and_hosts(bytes) };
        if !outer.protocol.is_encapsulation() || outer.fragment {
            return self.key_and_hosts(&outer);
        }
        match Inner::of(&outer).filter(|inner| !inner.is_sequenced) {
            None => self.key_and_hosts(&outer),
            Some(inner) => match inner.key() {
                Some(key) => self.key_and_hosts(&key),
                None if inner.has_link => self.link_and_hosts(inner.bytes),
                None => self.key_and_hosts(&outer),
            },
        }
    }

    #[inline]
    fn key_and_hosts(&self, key: &Key<'_>) -> (u32, [u32; 2]) {
        let hosts = match key.addresses {
            Addresses::V4(addresses) => addresses.map(|address| self.host(0, u64::from(address))),
            Addresses::V6(addresses) => addresses.map(|address| {
                let [high, low] = halves(address);
                self.host(high, low)
            }),
        };
        (self.hash(key), hosts)
    }

    #[cold]
    fn link_and_hosts(&self, frame: &[u8]) -> (u32, [u32; 2]) {
        let hosts = Link::parse(frame).map(|link| {
            [link.ethernet.source(), link.ethernet.destination()].map(|mac| self.host(0, mac.to_u64()))
        });
        (self.hash_link(frame).unwrap_or(0), hosts.unwrap_or_default())
    }

    /// Hash of an address.
    #[inline]
    fn host(&self, high: u64, low: u64) -> u32 {
        match &self.kind {
            HashKind::Mixed(seeds) if high == 0 => mix(seeds, false, low, 0, 0),
            HashKind::Mixed(seeds) => mix(seeds, false, folded(high ^ seeds[2], low ^ seeds[3]), 0, 0),
            HashKind::Toeplitz(toeplitz) => toeplitz.hash([high, low].map(u64::to_be_bytes).as_flattened()),
        }
    }

    #[inline]
    fn hash(&self, key: &Key<'_>) -> u32 {
        match &self.kind {
            HashKind::Mixed(seeds) => {
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
            HashKind::Toeplitz(toeplitz) => {
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

    /// Hash of a frame's MAC addresses and EtherType; `None` for a malformed frame.
    #[cold]
    fn hash_link(&self, frame: &[u8]) -> Option<u32> {
        let link = Link::parse(frame).ok()?;
        let [from, to] = [link.ethernet.source(), link.ethernet.destination()].map(|mac| mac.to_u64());
        Some(match &self.kind {
            HashKind::Mixed(seeds) => mix(seeds, self.symmetric, from, to, u64::from(link.ether_type().0)),
            HashKind::Toeplitz(toeplitz) => {
                let addresses = [from, to].map(|address| address << 16);
                toeplitz.hash(addresses.map(u64::to_be_bytes).as_flattened())
            }
        })
    }
}

#[inline]
fn mix(seeds: &[u64; 4], symmetric: bool, from: u64, to: u64, kind: u64) -> u32 {
    let (first, second) = if symmetric && to < from { (to, from) } else { (from, to) };
    let product = folded(first ^ seeds[0], second.rotate_left(32) ^ seeds[1] ^ kind << 8);
    let [high, low] = product_halves(product);
    high ^ low
}

/// Upper and lower half of a 128-bit product, combined by XOR.
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

/// Fields that all packets of a flow share.
struct Key<'a> {
    addresses: Addresses,
    ports: Option<[u16; 2]>,
    protocol: IpProtocol,
    fragment: bool,
    payload: &'a [u8],
}

impl<'a> Key<'a> {
    #[inline(always)]
    fn plain(PlainV4 { addresses, protocol, payload }: PlainV4<'a>) -> Self {
        let ports = ports(protocol, payload);
        Self { addresses: Addresses::V4(addresses), ports, protocol, fragment: false, payload }
    }

    /// Key of a packet with these headers; `None` if it is not IP.
    #[inline]
    fn of(bytes: &'a [u8], headers: HeaderSummary) -> Option<Self> {
        if let Some(plain) = headers.plain_v4(bytes) {
            return Some(Self::plain(plain));
        }
        if headers.is_broken() {
            return None;
        }
        let addresses = headers.addresses(bytes)?;
        let fragment = headers.is_fragment();
        // IPv6 fragments and unreadable extension headers are hashed by addresses only: fields that are in
        // one fragment only must not be used.
        if headers.network() == Network::Ipv6 && (fragment || !headers.is_readable()) {
            return Some(Self {
                addresses,
                ports: None,
                protocol: IpProtocol::FRAGMENT,
                fragment,
                payload: &[],
            });
        }
        let (protocol, payload) = (headers.protocol(), headers.payload(bytes));
        let ports = if fragment { None } else { ports(protocol, payload) };
        Some(Self { addresses, ports, protocol, fragment, payload })
    }

    fn ends(&self) -> Ends {
        let addresses = match self.addresses {
            Addresses::V4(addresses) => addresses.map(|address| IpAddr::V4(address.into())),
            Addresses::V6(addresses) => addresses.map(|address| IpAddr::V6(address.into())),
        };
        Ends::Ip { addresses, protocol: self.protocol, ports: self.ports }
    }
}

#[inline(always)]
fn ports(protocol: IpProtocol, payload: &[u8]) -> Option<[u16; 2]> {
    let &[a, b, c, d] = payload.first_chunk().filter(|_| protocol.has_ports())?;
    Some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
}

/// Inner packet of a tunnel packet.
struct Inner<'a> {
    bytes: &'a [u8],
    headers: HeaderSummary,
    has_link: bool,
    is_sequenced: bool,
}

impl<'a> Inner<'a> {
    fn of(outer: &Key<'a>) -> Option<Self> {
        let inside = Inside::of(outer.protocol, outer.payload)?;
        let (bytes, has_link) = (inside.payload, inside.protocol == EtherType::TRANSPARENT_ETHERNET);
        // The outer length has been checked; the inner length is not limited here.
        let headers = match has_link {
            true => HeaderSummary::parse(bytes, usize::MAX),
            false => HeaderSummary::without_link(inside.protocol, bytes, usize::MAX),
        };
        Some(Self { bytes, headers, has_link, is_sequenced: inside.sequence.is_some() })
    }

    fn key(&self) -> Option<Key<'a>> {
        Key::of(self.bytes, self.headers)
    }
}
