//! The rows of `polder show routes` and `polder show neighbors`.

use super::next_hops::{Lead, NOBODY, View};
use super::wanted::Origin;
use super::{Attached, Routing};
use crate::config::model::Configuration;
use crate::kernel::message::{RouteKey, Target};
use crate::kernel::socket::Follow;
use crate::show::routes::{HopRow, MOST, NeighbourRow, RouteRow, Routes};
use polder_buffers::PortId;
use polder_datapath::route::{InterfaceId, Owner, Prefix};
use polder_datapath::units::Nanos;
use polder_datapath::wire::MacAddress;
use std::collections::HashMap;
use std::net::IpAddr;

impl Routing {
    /// Rows of the routes in use.
    pub(in crate::runtime) fn routes(&self, configuration: &Configuration) -> Routes {
        let mut prefixes = self.installed.keys().copied().collect::<Vec<_>>();
        prefixes.sort_unstable_by_key(|prefix| (prefix.is_v6(), prefix.address(), prefix.bits()));
        prefixes.truncate(MOST);
        let rows = prefixes.iter().flat_map(|prefix| self.rows(*prefix, None));
        Routes { routes: rows.collect(), ..self.summary(configuration) }
    }

    /// Routes to a prefix in look-up order; only routes that match the source `of`, if given.
    fn rows(&self, prefix: Prefix, of: Option<IpAddr>) -> Vec<RouteRow> {
        let Some(routes) = self.installed.get(&prefix) else { return Vec::new() };
        let by_source =
            routes.by_source.iter().map(|route| (Some(route.source), route.origin, &route.target));
        let any = routes.any.iter().map(|(origin, target)| (None, *origin, target));
        let is_for =
            |source: Option<Prefix>| of.is_none_or(|of| source.is_none_or(|source| source.contains(of)));
        let all = by_source.chain(any).filter(|(source, ..)| is_for(*source));
        all.map(|(source, origin, target)| self.route((prefix, source), origin, target)).collect()
    }

    /// Totals without routes.
    pub(in crate::runtime) fn summary(&self, configuration: &Configuration) -> Routes {
        let (ipv4, ipv6) = self.count_routes();
        let tables = [self.router.table(false), self.router.table(true)];
        Routes {
            from: configuration.router.routes.word().to_owned(),
            settled: self.kernel.as_ref().map(Follow::is_settled),
            restarts: self.kernel.as_ref().map_or(0, Follow::restarts),
            rules_left_out: self.left_out as u64,
            held: self.kernel.as_ref().map_or(0, |kernel| kernel.hold().held() as u64),
            ipv4,
            ipv6,
            bytes: tables.iter().map(|table| table.bytes() as u64).sum(),
            routes: Vec::new(),
        }
    }

    fn route(&self, (prefix, source): (Prefix, Option<Prefix>), origin: Origin, target: &Target) -> RouteRow {
        let lead = View { attached: &self.attached, mirror: self.mirror() }.lead(target);
        let (origin, table, metric) = match origin {
            Origin::File => ("file", None, None),
            Origin::Address => ("address", None, None),
            Origin::Kernel(table, metric) => ("kernel", Some(table), Some(metric)),
        };
        let key = table.zip(metric).map(|(table, metric)| RouteKey { table, prefix, source, metric });
        let is_held = |key| self.kernel.as_ref().is_some_and(|kernel| kernel.hold().is_held(key));
        RouteRow {
            to: format!("{}/{}", prefix.address(), prefix.bits()),
            source: source.map(|source| format!("{}/{}", source.address(), source.bits())),
            kind: word(&lead).to_owned(),
            origin: origin.to_owned(),
            table,
            metric,
            held: key.is_some_and(is_held),
            hops: self.hops(&lead),
        }
    }

    fn hops(&self, lead: &Lead) -> Vec<HopRow> {
        match lead {
            Lead::Link(interface, _) => {
                let port = self.name_of(*interface);
                vec![HopRow { port, via: None, mac: None, weight: 1, carries: true }]
            }
            Lead::Hops(_) | Lead::Machine(_) => {
                let row = |member: &super::next_hops::Member| HopRow {
                    port: self.name_of(member.key.0),
                    via: (member.key.1 != NOBODY).then(|| member.key.1.to_string()),
                    mac: self.mac_of(member.key.0, member.key.1),
                    weight: member.weight,
                    carries: member.carries,
                };
                lead.members().iter().map(row).collect()
            }
            Lead::Local
            | Lead::Broadcast
            | Lead::Blackhole
            | Lead::Unreachable
            | Lead::Prohibit
            | Lead::Kernel(_)
            | Lead::Nowhere => Vec::new(),
        }
    }

    /// Routes to the longest prefix that contains an address, in look-up order; only routes that match
    /// `source`, if given.
    pub(in crate::runtime) fn covering(&self, address: IpAddr, source: Option<IpAddr>) -> Vec<RouteRow> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let covering = (0..=bits).rev().filter_map(|bits| Prefix::new(address, bits).ok());
        let rows = covering.map(|prefix| self.rows(prefix, source)).find(|rows| !rows.is_empty());
        rows.unwrap_or_default()
    }

    /// Kernel's name for the state of a neighbour.
    pub(in crate::runtime) fn state_of(
        &self,
        interface: InterfaceId,
        address: IpAddr,
    ) -> Option<&'static str> {
        let attached = self.find(interface)?;
        self.mirror()?.neighbour(attached.index, address).map(|known| known.word())
    }

    /// MAC address of the router's untagged interface on a port.
    pub(in crate::runtime) fn station(&self, port: PortId) -> Option<MacAddress> {
        self.find(InterfaceId::untagged(port)).map(|attached| attached.interface.mac)
    }

    /// Addresses of the router's untagged interface on a port, with their prefix lengths.
    pub(in crate::runtime) fn addresses_of(&self, port: PortId) -> Vec<String> {
        let own = self.find(InterfaceId::untagged(port)).map(|attached| &attached.interface.addresses);
        own.into_iter().flatten().map(|own| format!("{}/{}", own.address, own.bits)).collect()
    }

    /// Name of an interface: port and VLAN.
    pub(in crate::runtime) fn interface_name(&self, interface: InterfaceId) -> String {
        self.name_of(interface)
    }

    fn find(&self, interface: InterfaceId) -> Option<&Attached> {
        self.attached.iter().find(|attached| attached.interface.id == interface)
    }

    fn name_of(&self, interface: InterfaceId) -> String {
        self.find(interface).map(|attached| attached.name.clone()).unwrap_or_default()
    }

    fn mac_of(&self, interface: InterfaceId, address: IpAddr) -> Option<String> {
        let attached = self.find(interface);
        let far = attached.and_then(|attached| Some(&attached.far.as_ref()?.neighbour));
        let machine = attached.and_then(|attached| Some(&attached.machine.as_ref()?.neighbour));
        if let Some(known) = far.or(machine.filter(|_| address == NOBODY)) {
            return known.address().map(|mac| mac.to_string());
        }
        let mut all = self.neighbours.iter();
        let (.., entry) = all.find(|(id, known, _)| *id == interface && *known == address)?;
        entry.next_hop.address().map(|mac| mac.to_string())
    }

    /// Number of neighbours, and of resolved ones.
    pub(in crate::runtime) fn count_neighbours(&self) -> (u64, u64) {
        let known = |known: bool| u64::from(known);
        let all = self.neighbours.iter().map(|(.., entry)| (1, known(entry.next_hop.address().is_some())));
        all.fold((0, 0), |(all, known), (one, is_known)| (all + one, known + is_known))
    }

    /// Number of IPv4 and of IPv6 routes.
    pub(in crate::runtime) fn count_routes(&self) -> (u64, u64) {
        let ipv6 = self.installed.keys().filter(|prefix| prefix.is_v6()).count() as u64;
        (self.installed.len() as u64 - ipv6, ipv6)
    }

    /// Number of changes of routes, next hops and neighbours since the start.
    pub(in crate::runtime) fn changes(&self) -> u64 {
        self.router.changes()
    }

    /// Link-layer address of each neighbour, by interface and address.
    pub(in crate::runtime) fn known_neighbours(&self) -> HashMap<(String, String), Option<MacAddress>> {
        let known = self.neighbours.iter().map(|(interface, address, entry)| {
            ((self.name_of(interface), address.to_string()), entry.next_hop.address())
        });
        known.collect()
    }

    /// True if all of the kernel's tables have been read, or none is followed.
    pub(in crate::runtime) fn is_settled(&self) -> bool {
        self.kernel.as_ref().is_none_or(Follow::is_settled)
    }

    /// Rows of the neighbours that workers know or have asked for.
    pub(in crate::runtime) fn neighbours(&self, now: Nanos) -> Vec<NeighbourRow> {
        let mut all = self.neighbours.iter().collect::<Vec<_>>();
        all.sort_unstable_by_key(|(interface, address, _)| (*interface, *address));
        let row =
            |(interface, address, entry): &(InterfaceId, IpAddr, &polder_datapath::route::Neighbour)| {
                let attached = self.find(*interface);
                let is_own = attached.is_some_and(|attached| attached.interface.owner == Owner::Polder);
                let known = attached.and_then(|attached| self.mirror()?.neighbour(attached.index, *address));
                NeighbourRow {
                    port: self.name_of(*interface),
                    address: address.to_string(),
                    mac: entry.next_hop.address().map(|mac| mac.to_string()),
                    owner: if is_own { "polder" } else { "kernel" }.to_owned(),
                    state: known.map(|known| known.word().to_owned()),
                    heard_nanos: (is_own && entry.next_hop.address().is_some())
                        .then(|| now.since(entry.heard).0),
                    gateway: self.registry.has_gateway((*interface, *address)),
                }
            };
        all.iter().map(row).collect()
    }
}

fn word(lead: &Lead) -> &'static str {
    match lead {
        Lead::Hops(_) => "unicast",
        Lead::Link(..) => "link",
        Lead::Machine(_) | Lead::Local => "local",
        Lead::Broadcast => "broadcast",
        Lead::Blackhole => "blackhole",
        Lead::Unreachable => "unreachable",
        Lead::Prohibit => "prohibit",
        Lead::Kernel(_) => "kernel",
        Lead::Nowhere => "nowhere",
    }
}
