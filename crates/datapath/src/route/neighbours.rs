//! Neighbour table of all interfaces, owned by the control thread.

use super::{Hop, Interface, InterfaceId, NextHopEntry, NextHopId, Notice, Router};
use crate::next_hop::NextHop;
use crate::units::Nanos;
use crate::wire::MacAddress;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

/// Lifetime of a neighbour entry on an interface that Polder owns (RFC 1122, 2.3.2.1: of the order of a
/// minute).
const BELIEVED: Nanos = Nanos::from_seconds(60);
/// Maximum number of learnt neighbours, configured ones and the kernel's excluded.
const MOST: usize = 1 << 16;
/// Number of unused next hops kept before the oldest is reused, so that no batch still refers to it.
const SPARE: usize = 64;

/// One neighbour.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// Link-layer address, shared with hops and read by workers.
    pub next_hop: Arc<NextHop>,
    /// Time of the last message from the neighbour.
    pub heard: Nanos,
    /// True if the entry never expires: configured, or the kernel's.
    pub is_permanent: bool,
    /// Next hop to the neighbour as a destination on a connected network.
    way: Option<NextHopId>,
    /// True if hops of routes share its `next_hop`.
    is_gateway: bool,
}

/// Neighbours of one router, owned by its control thread.
///
/// A gateway of a route and a neighbour on a connected network share one entry: [`Neighbours::next_hop`]
/// creates it even while the address is unresolved, and [`Neighbours::set`] resolves it.
#[derive(Debug, Default)]
pub struct Neighbours {
    known: HashMap<(InterfaceId, IpAddr), Neighbour>,
    /// Unused next hops, oldest first, to be used again.
    spare: VecDeque<NextHopId>,
}

impl Neighbours {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Link-layer address of a neighbour, resolved or not, as a [`Hop`] needs it.
    pub fn next_hop(&mut self, interface: InterfaceId, address: IpAddr) -> Arc<NextHop> {
        let entry = self.entry(interface, address);
        entry.is_gateway = true;
        Arc::clone(&entry.next_hop)
    }

    /// Hop to a neighbour by an interface, for a route with this gateway.
    pub fn hop(&mut self, interface: &Interface, address: IpAddr) -> Hop {
        hop(interface, address, self.next_hop(interface.id, address))
    }

    /// Sets a neighbour's link-layer address: from the kernel or configuration (`is_permanent`), or learnt.
    /// Waiting packets are sent; from now on packets to the address go to this neighbour, unless the address
    /// is link-local.
    pub fn set(
        &mut self,
        router: &mut Router,
        interface: &Interface,
        address: IpAddr,
        mac: MacAddress,
        (now, is_permanent): (Nanos, bool),
    ) {
        let is_known = self.known.contains_key(&(interface.id, address));
        if !is_known && !is_permanent && self.known.len() >= MOST {
            return;
        }
        let spare = if self.spare.len() > SPARE { self.spare.front().copied() } else { None };
        let entry = self.entry(interface.id, address);
        (entry.heard, entry.is_permanent) = (now, is_permanent);
        if entry.next_hop.address() != Some(mac) {
            entry.next_hop.set_address(Some(mac));
            router.count_change();
        }
        let way = hop(interface, address, Arc::clone(&entry.next_hop));
        let is_same =
            |known| matches!(router.next_hops().get(known), Some(NextHopEntry::Hop(hop)) if hop.is(&way));
        match entry.way {
            Some(known) if is_same(known) => {}
            // The interface may have a new address or MTU.
            Some(known) => {
                router.replace_next_hop(known, NextHopEntry::Hop(way));
                router.publish();
            }
            None if is_of_link(address) => {}
            None => {
                let way = NextHopEntry::Hop(way);
                entry.way = match spare {
                    Some(spare) => router.replace_next_hop(spare, way).then_some(spare),
                    None => router.add_next_hop(way),
                };
                router.set_neighbour(address, entry.way);
                if spare.is_some() {
                    self.spare.pop_front();
                }
            }
        }
        router.notices().announce();
    }

    /// Sets the link-layer address of a neighbour that is only a gateway.
    pub fn set_gateway(
        &mut self,
        router: &mut Router,
        (interface, address): (InterfaceId, IpAddr),
        mac: MacAddress,
    ) {
        self.next_hop(interface, address).set_address(Some(mac));
        router.count_change();
        router.notices().announce();
    }

    /// Removes a neighbour's link-layer address: packets to it wait again.
    pub fn forget(&mut self, router: &mut Router, interface: InterfaceId, address: IpAddr) {
        let Some(entry) = self.known.get_mut(&(interface, address)) else { return };
        entry.next_hop.set_address(None);
        router.count_change();
        if let Some(way) = entry.way.take() {
            router.set_neighbour(address, None);
            router.replace_next_hop(way, NextHopEntry::Unreachable);
            self.spare.push_back(way);
        }
        if !entry.is_gateway {
            self.known.remove(&(interface, address));
        }
    }

    /// Removes all neighbours of an interface. Cost: scans all neighbours.
    pub fn leave(&mut self, router: &mut Router, interface: InterfaceId) {
        let of_interface = self.known.keys().filter(|key| key.0 == interface).copied();
        for (interface, address) in of_interface.collect::<Vec<_>>() {
            self.forget(router, interface, address);
        }
    }

    /// Applies a worker's notice about an interface that Polder owns.
    pub fn handle(&mut self, router: &mut Router, interface: &Interface, notice: Notice, now: Nanos) {
        match notice {
            Notice::Heard { address, mac, .. } => self.set(router, interface, address, mac, (now, false)),
            Notice::Silent { address, .. } => self.forget(router, interface.id, address),
            // The worker sends the request itself.
            Notice::Wanted { .. } => {}
        }
    }

    /// Removes expired neighbours; packets to them cause new requests.
    pub fn expire(&mut self, router: &mut Router, now: Nanos) {
        let is_old = |entry: &Neighbour| !entry.is_permanent && now.since(entry.heard) > BELIEVED;
        let old = self.known.iter().filter(|(_, entry)| is_old(entry) && entry.next_hop.address().is_some());
        let old: Vec<_> = old.map(|(&key, _)| key).collect();
        old.into_iter().for_each(|(interface, address)| self.forget(router, interface, address));
    }

    /// Link-layer address of a neighbour; `None` if it is unresolved.
    pub fn address(&self, interface: InterfaceId, address: IpAddr) -> Option<MacAddress> {
        self.known.get(&(interface, address))?.next_hop.address()
    }

    /// Iterates over all neighbours in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (InterfaceId, IpAddr, &Neighbour)> {
        self.known.iter().map(|(&(interface, address), entry)| (interface, address, entry))
    }

    fn entry(&mut self, interface: InterfaceId, address: IpAddr) -> &mut Neighbour {
        self.known.entry((interface, address)).or_insert_with(|| Neighbour {
            next_hop: Arc::default(),
            heard: Nanos(0),
            is_permanent: false,
            way: None,
            is_gateway: false,
        })
    }
}

fn hop(interface: &Interface, address: IpAddr, neighbour: Arc<NextHop>) -> Hop {
    let Interface { id, mac, mtu, .. } = *interface;
    Hop { interface: id, source: mac, mtu, cuts: false, address, neighbour }
}

/// True for a link-local address, to which no route leads.
fn is_of_link(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}
