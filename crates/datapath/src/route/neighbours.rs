//! Neighbours of all interfaces, as the control thread knows them.

use super::{Hop, Interface, InterfaceId, NextHopEntry, NextHopId, Notice, Router};
use crate::next_hop::NextHop;
use crate::units::Nanos;
use crate::wire::MacAddress;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

/// Time for which a neighbour on an interface of Polder's own is believed without a word from it (RFC 1122,
/// 2.3.2.1: of the order of a minute).
const BELIEVED: Nanos = Nanos::from_seconds(60);
/// Maximum number of neighbours that have made themselves known and are neither configured nor the
/// kernel's.
const MOST: usize = 1 << 16;
/// Number of later neighbours after which a next hop is used again, when no batch has it any more.
const SPARE: usize = 64;

/// State of one neighbour.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// Its link-layer address, which hops share and workers read.
    pub next_hop: Arc<NextHop>,
    /// Time at which it was last heard.
    pub heard: Nanos,
    /// True if it never expires by itself: the kernel's, or configured.
    pub is_permanent: bool,
    /// The way to it as a destination on a connected network.
    way: Option<NextHopId>,
    /// True if hops of routes have its `next_hop`.
    is_gateway: bool,
}

/// The neighbours of one router, owned by its control thread.
///
/// A gateway of a route and a neighbour of a connected network are the same entry: [`Neighbours::next_hop`]
/// makes it, also while the address is not known, and [`Neighbours::set`] makes it known.
#[derive(Debug, Default)]
pub struct Neighbours {
    known: HashMap<(InterfaceId, IpAddr), Neighbour>,
    /// Unused next hops, oldest first, to be used again.
    spare: VecDeque<NextHopId>,
}

impl Neighbours {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// The link-layer address of a neighbour, known or not: what a [`Hop`] is made with.
    pub fn next_hop(&mut self, interface: InterfaceId, address: IpAddr) -> Arc<NextHop> {
        let entry = self.entry(interface, address);
        entry.is_gateway = true;
        Arc::clone(&entry.next_hop)
    }

    /// The hop that leads to a neighbour by an interface, for a route that has it as its gateway.
    pub fn hop(&mut self, interface: &Interface, address: IpAddr) -> Hop {
        hop(interface, address, self.next_hop(interface.id, address))
    }

    /// Takes note of a neighbour's link-layer address, from the kernel or the configuration (`is_permanent`) or
    /// because it was heard. Packets that wait for it go on; the address is led to it from here on, unless
    /// it is of its link alone.
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
            // The interface may have another address or MTU than before.
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

    /// Takes note of the link-layer address of a neighbour that is a gateway alone.
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

    /// Forgets a neighbour's link-layer address: packets for it wait again.
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

    /// Forgets all on an interface that is gone. Cost: all neighbours are looked at.
    pub fn leave(&mut self, router: &mut Router, interface: InterfaceId) {
        let of_interface = self.known.keys().filter(|key| key.0 == interface).copied();
        for (interface, address) in of_interface.collect::<Vec<_>>() {
            self.forget(router, interface, address);
        }
    }

    /// Does the work for a notice on an interface of Polder's own.
    pub fn handle(&mut self, router: &mut Router, interface: &Interface, notice: Notice, now: Nanos) {
        match notice {
            Notice::Heard { address, mac, .. } => self.set(router, interface, address, mac, (now, false)),
            Notice::Silent { address, .. } => self.forget(router, interface.id, address),
            // The worker asks by itself.
            Notice::Wanted { .. } => {}
        }
    }

    /// Forgets those that have not been heard for long; who is still there answers when it is asked.
    pub fn expire(&mut self, router: &mut Router, now: Nanos) {
        let is_old = |entry: &Neighbour| !entry.is_permanent && now.since(entry.heard) > BELIEVED;
        let old = self.known.iter().filter(|(_, entry)| is_old(entry) && entry.next_hop.address().is_some());
        let old: Vec<_> = old.map(|(&key, _)| key).collect();
        old.into_iter().for_each(|(interface, address)| self.forget(router, interface, address));
    }

    /// Link-layer address of a neighbour, if it is known.
    pub fn address(&self, interface: InterfaceId, address: IpAddr) -> Option<MacAddress> {
        self.known.get(&(interface, address))?.next_hop.address()
    }

    /// All neighbours, in no order.
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

/// True if an address is valid on its link alone, so that no route leads there.
fn is_of_link(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}
