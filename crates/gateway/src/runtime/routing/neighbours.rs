//! The kernel's neighbours, published to workers and probed so that they stay valid.

use super::Routing;
use super::attached::Attached;
use crate::kernel::message::Neighbour;
use polder_buffers::PortId;
use polder_datapath::route::{Interface, InterfaceId, Owner};
use polder_datapath::units::Nanos;
use polder_datapath::wire::MacAddress;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// Interval at which known neighbours are probed.
const CHECK: Nanos = Nanos::from_seconds(5);
/// Interval at which unresolved gateways are asked for.
const ASK: Nanos = Nanos::from_millis(900);
/// Maximum number of neighbours probed or asked for at a time.
const MOST: usize = 256;

/// Neighbours that workers know.
#[derive(Debug, Default)]
pub(super) struct Known {
    told: HashMap<(u32, IpAddr), Told>,
    checked: Nanos,
    asked: Nanos,
}

/// Entry of a neighbour as published to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    mac: [u8; 6],
    /// True if the neighbour is an on-link destination; false if it is only a gateway.
    is_destination: bool,
    source: MacAddress,
    mtu: u16,
}

impl Routing {
    /// Publishes changed neighbours to the workers; all neighbours if `changed` is `None`.
    pub(super) fn look_at_neighbours(&mut self, changed: Option<&HashSet<(u32, IpAddr)>>, now: Nanos) {
        let Some(mirror) = self.mirror() else { return };
        let looked_at = match changed {
            Some(changed) => changed.iter().copied().collect::<Vec<_>>(),
            None => {
                let all = mirror.neighbours().map(|(index, address, _)| (index, address));
                let told = self.known.told.keys().copied();
                all.chain(told).collect::<HashSet<_>>().into_iter().collect()
            }
        };
        for (index, address) in looked_at {
            self.look_at_neighbour(index, address, now);
        }
    }

    /// Link-layer address of a neighbour on a port that the kernel does not have, once Polder has resolved
    /// it.
    pub(in crate::runtime) fn own_neighbour(&self, port: PortId, address: IpAddr) -> Option<MacAddress> {
        self.neighbours.address(InterfaceId::untagged(port), address)
    }

    /// Removes the neighbours on interfaces that are gone or belong to another port.
    pub(super) fn leave(&mut self, before: &[Attached]) {
        for Attached { index, interface, .. } in before {
            let stays = |now: &Attached| (now.index, now.interface.id) == (*index, interface.id);
            if !self.attached.iter().any(stays) {
                self.known.told.retain(|told, _| told.0 != *index);
                self.neighbours.leave(&mut self.router, interface.id);
            }
        }
    }

    fn look_at_neighbour(&mut self, index: u32, address: IpAddr, now: Nanos) {
        let entry = self.mirror().and_then(|mirror| mirror.neighbour(index, address));
        let told = self.known.told.get(&(index, address)).copied();
        let Some(Attached { interface, carries, .. }) = self.by_index(index).cloned() else {
            return;
        };
        let mac = entry.as_ref().and_then(Neighbour::usable).filter(|_| carries);
        let link = self.link_of(address).filter(|(link, _)| *link == interface.id);
        let is_destination = link.is_some();
        let interface = Interface { mtu: interface.mtu_by(link.map_or(0, |(_, mtu)| mtu)), ..interface };
        let is_gateway = self.registry.has_gateway((interface.id, address));
        let wanted = mac.filter(|_| is_destination || is_gateway).map(|mac| Told {
            mac,
            is_destination,
            source: interface.mac,
            mtu: interface.mtu,
        });
        if wanted == told {
            return;
        }
        if told.is_some_and(|told| told.is_destination) && !wanted.is_some_and(|wanted| wanted.is_destination)
        {
            self.neighbours.forget(&mut self.router, interface.id, address);
        }
        match wanted {
            None => {
                self.known.told.remove(&(index, address));
                self.neighbours.forget(&mut self.router, interface.id, address);
            }
            Some(new) => {
                self.known.told.insert((index, address), new);
                let mac = MacAddress(new.mac);
                if is_destination {
                    self.neighbours.set(&mut self.router, &interface, address, mac, (now, true));
                } else {
                    self.neighbours.set_gateway(&mut self.router, (interface.id, address), mac);
                }
            }
        }
    }

    /// Asks for unresolved gateways, and makes the kernel probe known ones, because it does not see Polder's
    /// use of them. Returns true if a gateway is unresolved.
    pub(in crate::runtime) fn ask_neighbours(&mut self, now: Nanos) -> bool {
        self.neighbours.expire(&mut self.router, now);
        let Some(kernel) = &mut self.kernel else { return false };
        let mut missing = Vec::new();
        for (interface, address) in self.registry.gateways() {
            let found = self.attached.iter().find(|attached| attached.interface.id == interface);
            let Some(found) = found.filter(|found| found.carries && is_kernels(found) && found.far.is_none())
            else {
                continue;
            };
            if !self.known.told.contains_key(&(found.index, address)) {
                missing.push((found.index, address));
            }
        }
        if now.since(self.known.asked) >= ASK {
            self.known.asked = now;
            missing.iter().take(MOST).for_each(|&(index, address)| kernel.resolve(index, address));
        }
        if now.since(self.known.checked) >= CHECK {
            self.known.checked = now;
            let is_stale = |&&(index, address): &&(u32, IpAddr)| {
                let entry = kernel.mirror().neighbour(index, address);
                entry.is_some_and(|entry| entry.is_stale())
            };
            let stale = self.known.told.keys().filter(is_stale).take(MOST).copied().collect::<Vec<_>>();
            stale.into_iter().for_each(|(index, address)| kernel.resolve(index, address));
        }
        !missing.is_empty()
    }
}

fn is_kernels(attached: &Attached) -> bool {
    matches!(attached.interface.owner, Owner::Kernel { .. })
}
