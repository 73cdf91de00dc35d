//! Publishes decisions about address pairs for BPF programs that forward packets by themselves (fast path).
//!
//! In: packets on ports with a fast path, before the stage processes them. Out: for each due pair of
//! addresses, the stage's own decision about a plain packet. The program leaves all other packets to the
//! stage.
//!
//! A decision is not published if it depends on more than the pair (next-hop groups), for packets whose
//! ingress and egress are the same interface, for packets between tunnel endpoints, and while packets wait
//! for the neighbour, because these must be sent first.
//!
//! Cost: headers are parsed once more; a due pair costs its look-ups and a system call.

use super::check::{is_plain_v4, is_plain_v6};
use super::decide::{Facts, RouteVerdict, decide};
use super::sources::Origin;
use super::state::{Lane, RouteState};
use super::waiting::Waiting;
use super::{Hop, Interface, InterfaceId, NextHopEntry, NextHopId, Routers};
use crate::drops::is_dropped;
use crate::fast_path::{
    AddressPair, FastPathPort, FastPaths, FlowKey, Forwarding, LinkAddresses, TagChange, Validity,
};
use crate::tunnel::{Ends, Tunnels};
use crate::units::Nanos;
use crate::wire::{EtherType, Link, MacAddress, VlanId};
use polder_buffers::{Batch, Packet, PortId};
use std::net::IpAddr;

/// Tables that decisions about pairs depend on.
#[derive(Clone, Copy, Debug)]
pub struct PairTables<'a> {
    /// Interfaces and routes.
    pub routers: &'a Routers,
    /// Tunnels, whose packets are not routed.
    pub tunnels: &'a Tunnels,
    /// Ports with a fast path.
    pub fast_paths: &'a FastPaths,
}

/// Decides about address pairs outside of workers.
#[derive(Debug)]
pub struct PairDecisions<'a> {
    tables: PairTables<'a>,
    lanes: Vec<Lane>,
}

impl<'a> PairDecisions<'a> {
    /// Decisions by these tables.
    pub fn new(tables: PairTables<'a>) -> Self {
        Self { tables, lanes: tables.routers.routers().iter().map(Lane::new).collect() }
    }

    /// Current decision about packets of a pair received on a port; `None` if a worker must process each
    /// packet.
    pub fn decide(&mut self, from: PortId, pair: &AddressPair) -> Option<Forwarding> {
        let arrival = self.tables.arrival(from, pair)?;
        let lane = self.lanes.get_mut(usize::from(arrival.router.0))?;
        self.tables.decide((from, pair), arrival, lane, None)
    }
}

impl RouteState {
    /// Publishes decisions about the due address pairs of a batch.
    #[inline(never)]
    pub(crate) fn publish(&mut self, batch: &Batch, tables: PairTables<'_>, now: Nanos) {
        let mut last = None;
        for packet in batch.iter().filter(|packet| !is_dropped(packet)) {
            let from = packet.ingress;
            let Some(port) = tables.fast_paths.device(from).filter(|_| tables.routers.has(from)) else {
                continue;
            };
            let Some(pair) = pair_of(packet).filter(|pair| last != Some((from, *pair))) else { continue };
            last = Some((from, pair));
            if self.seen.is_due(hash(from, &pair), now) {
                self.publish_pair((from, &pair), port, tables);
            }
        }
    }

    fn publish_pair(
        &mut self,
        (from, pair): (PortId, &AddressPair),
        port: &FastPathPort,
        tables: PairTables<'_>,
    ) {
        // Read before anything that the decision depends on.
        let validity = Validity { version: tables.fast_paths.version(), moves: port.table.moves() };
        let Some(arrival) = tables.arrival(from, pair) else { return };
        let Some(lane) = self.lanes.get_mut(usize::from(arrival.router.0)) else { return };
        if let Some(forwarding) = tables.decide((from, pair), arrival, lane, Some(&self.waiting)) {
            port.table.publish(&FlowKey::Addresses(*pair), &forwarding, validity);
        }
    }
}

impl<'a> PairTables<'a> {
    /// Ingress interface of a pair's packets; `None` if they are not routed.
    fn arrival(&self, from: PortId, pair: &AddressPair) -> Option<&'a Interface> {
        let vlan = pair.tag.map_or(Some(VlanId::PRIORITY), VlanId::new)?;
        let arrival = self.routers.arrival(from, vlan, pair.station)?;
        let ends = Ends::of(pair.destination, pair.source);
        let is_tunnels = self.tunnels.underlay(from).is_some()
            && self.tunnels.iter().any(|tunnel| Some(tunnel.options().ends) == ends);
        (arrival.mac == pair.station && !is_tunnels).then_some(arrival)
    }

    /// Decision about packets of a pair.
    fn decide(
        &self,
        (from, pair): (PortId, &AddressPair),
        arrival: &Interface,
        lane: &mut Lane,
        waiting: Option<&Waiting>,
    ) -> Option<Forwarding> {
        let found = lane.lookup(pair.destination);
        let looks_back = pair.source.is_ipv4() && arrival.sources.looks_up();
        let origin = looks_back.then(|| lane.lookup(pair.source));
        // After the look-ups: a next hop is published before a route that refers to it.
        lane.next_hops.refresh();
        let next_hops = lane.next_hops.get();
        let found = next_hops.for_source(found, pair.source);
        if !matches!(next_hops.get(found), Some(NextHopEntry::Hop(_))) {
            return None;
        }
        let facts = Facts::of_pair(pair.source, pair.destination);
        let source = Origin::of(pair.source, origin, arrival, self.routers);
        let refuses = |egress| source.as_ref()?.refusal(egress, next_hops);
        let arrived = (arrival.router, arrival.id);
        match decide(&facts, arrived, (next_hops, found), || 0, refuses) {
            RouteVerdict::Forward(hop, _) if hop.interface == arrival.id => None,
            RouteVerdict::Forward(hop, _)
                if waiting.is_some_and(|waiting| waiting.wants(hop.interface, hop.address)) =>
            {
                None
            }
            RouteVerdict::Forward(hop, mac) => self.forwarding((from, pair), hop, mac),
            RouteVerdict::Cut(..)
            | RouteVerdict::Wait(_)
            | RouteVerdict::Host
            | RouteVerdict::Kernel
            | RouteVerdict::Refuse(..) => None,
        }
    }

    fn forwarding(
        &self,
        (from, pair): (PortId, &AddressPair),
        hop: &Hop,
        destination: MacAddress,
    ) -> Option<Forwarding> {
        let InterfaceId { port, vlan, .. } = hop.interface;
        let tag = match (pair.tag, vlan) {
            (None, VlanId::PRIORITY) => TagChange::Keep,
            (Some(_), VlanId::PRIORITY) => TagChange::Pop,
            (None, vlan) => TagChange::Push(vlan.get()),
            (Some(_), vlan) => TagChange::Replace(vlan.get()),
        };
        Some(Forwarding {
            from,
            port,
            interface: self.fast_paths.device(port)?.interface,
            longest: u32::from(hop.mtu) + ETHERNET,
            tag,
            vlan: 0,
            outer: None,
            link: Some(LinkAddresses { destination, source: hop.source }),
        })
    }
}

impl Lane {
    /// Next hop of an address.
    fn lookup(&mut self, address: IpAddr) -> NextHopId {
        match address {
            IpAddr::V4(address) => self.v4.view().lookup_v4(address),
            IpAddr::V6(address) => self.v6.view().lookup_v6(address),
        }
    }
}

/// Address pair of a plain packet; `None` for other packets.
fn pair_of(packet: &Packet) -> Option<AddressPair> {
    let link = Link::parse(packet.bytes()).ok()?;
    let tag = match (link.tag, link.inner_tag) {
        (None, _) => None,
        (Some(tag), None) => Some(tag.id().filter(|id| *id != VlanId::PRIORITY)?.get()),
        (Some(_), Some(_)) => return None,
    };
    let room = packet.len() - link.header_bytes();
    let (source, destination): (IpAddr, IpAddr) = match link.ether_type() {
        EtherType::IPV4 => {
            let header = link.payload().first_chunk().filter(|header| is_plain_v4(header, room))?;
            let [.., a, b, c, d, e, f, g, h] = *header;
            ([a, b, c, d].into(), [e, f, g, h].into())
        }
        EtherType::IPV6 => {
            let header = link.payload().first_chunk::<40>().filter(|header| is_plain_v6(header, room))?;
            let [source, destination] = [8, 24].map(|at| header[at..].first_chunk::<16>().copied());
            (source?.into(), destination?.into())
        }
        _ => return None,
    };
    Some(AddressPair { source, destination, tag, station: link.ethernet.destination() })
}

/// Hash of an address pair and its ingress port; never 0.
fn hash(from: PortId, pair: &AddressPair) -> u64 {
    let word = |address: IpAddr| match address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => {
            let octets = address.octets();
            let halves = octets.as_chunks().0.iter();
            halves.fold(0_u64, |word, half| word.wrapping_mul(FACTOR) ^ u64::from_ne_bytes(*half))
        }
    };
    let place = u64::from(from.0) << 16 | u64::from(pair.tag.unwrap_or_default());
    let parts = [word(pair.source), word(pair.destination), place];
    parts.into_iter().fold(0_u64, |hash, part| (hash ^ part).wrapping_mul(FACTOR).rotate_left(29)) >> 8
        | 1 << 63
}

/// Length of an Ethernet header in bytes.
const ETHERNET: u32 = 14;
/// Odd multiplier with well-mixed bits: 2⁶⁴ divided by the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
