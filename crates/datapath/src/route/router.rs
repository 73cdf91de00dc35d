//! A router as its control thread uses it: two route tables and their next hops.

use super::fib::{Fib, FibHandle};
use super::notices::Notices;
use super::prefix::Prefix;
use super::{HashPolicy, Interface, NextHopEntry, NextHopId, NextHopTable};
use polder_buffers::snapshot::Snapshot;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// One router: owned and changed by one control thread, kept over reloads.
///
/// Workers read it through [`Router::access`] and are never blocked. A next hop becomes visible before any
/// route that refers to it.
#[derive(Debug)]
pub struct Router {
    v4: Fib,
    v6: Fib,
    next_hops: NextHopTable,
    /// True if `next_hops` has unpublished changes.
    has_changed: bool,
    /// Number of changes that workers can see.
    changes: u64,
    /// Host routes: an address may have both a route and a neighbour.
    hosts: HashMap<Prefix, Host>,
    access: RouterAccess,
}

/// Next hops of one address.
#[derive(Clone, Copy, Debug, Default)]
struct Host {
    route: Option<NextHopId>,
    neighbour: Option<NextHopId>,
}

/// Handle by which workers use a router; part of [`Routers`](super::Routers).
#[derive(Clone, Debug)]
pub struct RouterAccess {
    pub(super) v4: FibHandle,
    pub(super) v6: FibHandle,
    pub(super) next_hops: Arc<Snapshot<NextHopTable>>,
    pub(super) notices: Arc<Notices>,
}

impl RouterAccess {
    /// Notices from workers about neighbours.
    pub fn notices(&self) -> &Arc<Notices> {
        &self.notices
    }

    /// The same routes with a separate queue of notices.
    pub(super) fn unheard(&self) -> Self {
        Self { notices: Arc::default(), ..self.clone() }
    }
}

impl Default for Router {
    fn default() -> Self {
        Self::new()
    }
}

impl Router {
    /// A router without routes.
    pub fn new() -> Self {
        let (v4, v6) = (Fib::v4(), Fib::v6());
        let access = RouterAccess {
            v4: v4.handle(),
            v6: v6.handle(),
            next_hops: Arc::new(Snapshot::new(NextHopTable::new())),
            notices: Arc::default(),
        };
        Self {
            v4,
            v6,
            next_hops: NextHopTable::new(),
            has_changed: false,
            changes: 0,
            hosts: HashMap::new(),
            access,
        }
    }

    /// Handle for workers. It never changes, so a reload may get it again.
    pub fn access(&self) -> RouterAccess {
        self.access.clone()
    }

    /// Notices from workers about neighbours.
    pub fn notices(&self) -> &Arc<Notices> {
        &self.access.notices
    }

    /// Route table of IPv4 or IPv6, for reading.
    pub fn table(&self, is_v6: bool) -> &Fib {
        if is_v6 { &self.v6 } else { &self.v4 }
    }

    /// Next hops, including unpublished changes.
    pub fn next_hops(&self) -> &NextHopTable {
        &self.next_hops
    }

    /// Number of changes of routes, next hops and neighbours that workers can see; published decisions of an
    /// older number are invalid.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Counts a change of a neighbour's address.
    pub(super) fn count_change(&mut self) {
        self.changes += 1;
    }

    /// Adds a next hop and returns its id, for use by routes; `None` if all 2³¹ ids are in use.
    pub fn add_next_hop(&mut self, way: NextHopEntry) -> Option<NextHopId> {
        self.has_changed = true;
        self.next_hops.push(way)
    }

    /// Replaces entry `id`; false if it does not exist. No route is rewritten. Visible after
    /// [`Router::publish`] or the next change of a route.
    ///
    /// The id of an entry without routes may be reused for another next hop, but only after one second: until
    /// then, a batch may still refer to it.
    pub fn replace_next_hop(&mut self, id: NextHopId, way: NextHopEntry) -> bool {
        self.has_changed = true;
        let is_link = |way: Option<&NextHopEntry>| matches!(way, Some(NextHopEntry::Connected(_)));
        let was_link = is_link(self.next_hops.get(id));
        let replaced = self.next_hops.replace(id, way);
        if was_link || is_link(self.next_hops.get(id)) {
            self.lead_hosts_of(id);
        }
        replaced
    }

    /// Updates host routes that refer to `id` and also have a neighbour.
    fn lead_hosts_of(&mut self, id: NextHopId) {
        let of_id = |host: &Host| host.route == Some(id) && host.neighbour.is_some();
        let hosts = self.hosts.iter().filter(|(_, host)| of_id(host)).map(|(prefix, _)| *prefix);
        for prefix in hosts.collect::<Vec<_>>() {
            self.change_host(prefix, |_| ());
        }
    }

    /// Sets the multipath hash policies for IPv4 and IPv6. Visible after [`Router::publish`].
    pub fn set_hash_policies(&mut self, hashes: [HashPolicy; 2]) {
        self.has_changed |= self.next_hops.set_hash_policies(hashes);
    }

    /// Publishes the next hops to workers. Every change of a route does so too.
    pub fn publish(&mut self) {
        if core::mem::take(&mut self.has_changed) {
            self.changes += 1;
            self.access.next_hops.replace(self.next_hops.clone());
        }
    }

    /// Adds or changes a route; returns its previous next hop, if any.
    pub fn insert(&mut self, prefix: Prefix, way: NextHopId) -> Option<NextHopId> {
        if prefix.is_host() {
            return self.change_host(prefix, |host| host.route.replace(way));
        }
        self.publish();
        self.fib(prefix).insert(prefix, way)
    }

    /// Removes a route; returns its next hop, `None` if there was no route.
    pub fn remove(&mut self, prefix: Prefix) -> Option<NextHopId> {
        if prefix.is_host() {
            return self.change_host(prefix, |host| host.route.take());
        }
        self.publish();
        self.fib(prefix).remove(prefix)
    }

    /// Sets or removes the neighbour of an address on a connected network. A host route has precedence,
    /// unless it leads to the neighbour's link. Called by [`Neighbours`](super::Neighbours).
    pub fn set_neighbour(&mut self, address: IpAddr, way: Option<NextHopId>) {
        self.change_host(Prefix::host(address), |host| core::mem::replace(&mut host.neighbour, way));
    }

    /// Adds the routes of an interface that Polder owns: its addresses to local delivery, their networks to
    /// the interface, the networks' broadcast addresses to `Broadcast`. For other interfaces the kernel has
    /// these routes.
    pub fn connect(&mut self, interface: &Interface) {
        let Some(local) = self.add_next_hop(NextHopEntry::Local) else { return };
        let Some(link) = self.add_next_hop(NextHopEntry::Connected(interface.id)) else { return };
        let Some(group) = self.add_next_hop(NextHopEntry::Broadcast) else { return };
        for own in &interface.addresses {
            let Ok(network) = Prefix::new(own.address, own.bits) else { continue };
            let ends = ends(&network).into_iter().map(|address| (Prefix::host(address), group));
            let all = [(network, link)].into_iter().chain(ends).chain([(Prefix::host(own.address), local)]);
            all.for_each(|(prefix, way)| {
                self.insert(prefix, way);
            });
        }
    }

    /// Removes the routes that [`Router::connect`] added.
    pub fn disconnect(&mut self, interface: &Interface) {
        for own in &interface.addresses {
            let Ok(network) = Prefix::new(own.address, own.bits) else { continue };
            self.remove(Prefix::host(own.address));
            self.remove(network);
            ends(&network).into_iter().for_each(|address| {
                self.remove(Prefix::host(address));
            });
        }
    }

    /// Route table of a prefix, for a change.
    fn fib(&mut self, prefix: Prefix) -> &mut Fib {
        self.changes += 1;
        if prefix.is_v6() { &mut self.v6 } else { &mut self.v4 }
    }

    fn change_host<T>(&mut self, prefix: Prefix, change: impl FnOnce(&mut Host) -> T) -> T {
        let mut host = self.hosts.get(&prefix).copied().unwrap_or_default();
        let result = change(&mut host);
        self.publish();
        let neighbour = host.neighbour.filter(|neighbour| self.is_on_link(host.route, *neighbour));
        match neighbour.or(host.route).or(host.neighbour) {
            Some(way) => {
                self.hosts.insert(prefix, host);
                self.fib(prefix).insert(prefix, way);
            }
            None => {
                self.hosts.remove(&prefix);
                self.fib(prefix).remove(prefix);
            }
        }
        result
    }

    /// True if a route leads to a link and a neighbour is on that link.
    fn is_on_link(&self, route: Option<NextHopId>, neighbour: NextHopId) -> bool {
        let route = route.and_then(|route| self.next_hops.get(route));
        let (Some(NextHopEntry::Connected(link)), Some(NextHopEntry::Hop(hop))) =
            (route, self.next_hops.get(neighbour))
        else {
            return false;
        };
        hop.interface == *link
    }
}

/// First and last address of an IPv4 network, which are no hosts. A network of two addresses has neither (RFC
/// 3021).
fn ends(network: &Prefix) -> Vec<IpAddr> {
    match network.address() {
        IpAddr::V4(first) if network.bits() < 31 => {
            let last = first.to_bits() | u32::MAX.checked_shr(u32::from(network.bits())).unwrap_or(0);
            vec![first.into(), Ipv4Addr::from_bits(last).into()]
        }
        IpAddr::V4(_) | IpAddr::V6(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{InterfaceId, Neighbours, Owner, RouterId};
    use super::*;
    use crate::units::Nanos;
    use crate::wire::MacAddress;
    use polder_buffers::PortId;

    fn prefix(text: &str, bits: u8) -> Prefix {
        Prefix::new(text.parse().expect("an address"), bits).expect("bits of the family")
    }

    #[test]
    fn a_route_to_an_address_goes_before_its_neighbour() {
        let mut router = Router::new();
        let mut reader = router.access().v4.reader();
        let at = |reader: &mut super::super::FibReader| reader.view().lookup_v4(Ipv4Addr::new(10, 0, 0, 9));
        let [near, far] = [NextHopEntry::Unreachable, NextHopEntry::Blackhole]
            .map(|way| router.add_next_hop(way).expect("few"));
        let address = prefix("10.0.0.9", 32);
        router.set_neighbour(address.address(), Some(near));
        assert_eq!(at(&mut reader), near);
        assert_eq!(router.insert(address, far), None);
        assert_eq!(at(&mut reader), far);
        router.set_neighbour(address.address(), None);
        assert_eq!(at(&mut reader), far);
        router.set_neighbour(address.address(), Some(near));
        assert_eq!(router.remove(address), Some(far));
        assert_eq!(at(&mut reader), near);
        router.set_neighbour(address.address(), None);
        assert_eq!(at(&mut reader), NextHopId::NONE);
        assert!(router.table(false).is_empty() && router.hosts.is_empty());
    }

    #[test]
    fn an_interface_that_goes_takes_its_neighbours_along() {
        let mut router = Router::new();
        let mut neighbours = Neighbours::new();
        let mut reader = router.access().v4.reader();
        let mut at = |host| reader.view().lookup_v4(Ipv4Addr::new(10, 0, 0, host));
        let of = |port| Interface {
            id: InterfaceId::untagged(PortId(port)),
            router: RouterId(0),
            mac: MacAddress([2; 6]),
            mtu: 1500,
            addresses: Vec::new(),
            owner: Owner::Polder,
            sources: super::super::SourceCheck::default(),
        };
        let told = (Nanos(0), true);
        for (port, host) in [(1, 8), (1, 9), (2, 10)] {
            let address = IpAddr::from([10, 0, 0, host]);
            neighbours.set(&mut router, &of(port), address, MacAddress([2; 6]), told);
        }
        assert!([8, 9, 10].iter().all(|&host| at(host) != NextHopId::NONE));
        let gateway = neighbours.next_hop(of(1).id, IpAddr::from([10, 0, 0, 9]));
        assert!(gateway.address().is_some());
        neighbours.leave(&mut router, of(1).id);
        assert_eq!((at(8), at(9)), (NextHopId::NONE, NextHopId::NONE));
        assert_eq!(gateway.address(), None, "routes by it wait again");
        assert!(at(10) != NextHopId::NONE, "the other interface keeps its own");
    }

    #[test]
    fn changes_are_counted_and_what_is_told_again_is_not() {
        let (mut router, mut neighbours) = (Router::new(), Neighbours::new());
        let lan = Interface {
            id: InterfaceId::untagged(PortId(1)),
            router: RouterId(0),
            mac: MacAddress([2; 6]),
            mtu: 1500,
            addresses: Vec::new(),
            owner: Owner::Polder,
            sources: super::super::SourceCheck::default(),
        };
        let (near, other) = (IpAddr::from([10, 0, 0, 9]), MacAddress([4; 6]));
        let mut last = 0;
        let mut is_changed =
            |router: &Router| core::mem::replace(&mut last, router.changes()) != router.changes();
        neighbours.set(&mut router, &lan, near, MacAddress([2; 6]), (Nanos(0), true));
        assert!(is_changed(&router), "a neighbour");
        neighbours.set(&mut router, &lan, near, MacAddress([2; 6]), (Nanos(1), true));
        assert!(!is_changed(&router), "told again");
        neighbours.set(&mut router, &lan, near, other, (Nanos(1), true));
        assert!(is_changed(&router), "another address");
        neighbours.set(&mut router, &Interface { mtu: 1400, ..lan.clone() }, near, other, (Nanos(1), true));
        assert!(is_changed(&router), "another MTU");
        let way = router.add_next_hop(NextHopEntry::Blackhole).expect("few");
        router.insert(prefix("10.0.0.0", 8), way);
        assert!(is_changed(&router), "a route");
        router.replace_next_hop(way, NextHopEntry::Unreachable);
        router.publish();
        assert!(is_changed(&router), "another way");
        router.publish();
        assert!(!is_changed(&router), "nothing to publish");
        neighbours.set_gateway(&mut router, (lan.id, [10, 0, 0, 7].into()), other);
        assert!(is_changed(&router), "a gateway");
        neighbours.forget(&mut router, lan.id, [10, 0, 0, 7].into());
        assert!(is_changed(&router), "a gateway that is gone");
        neighbours.forget(&mut router, lan.id, near);
        assert!(is_changed(&router), "a neighbour that is gone");
        router.remove(prefix("10.0.0.0", 8));
        assert!(is_changed(&router), "a route that is gone");
    }

    #[test]
    fn workers_see_ways_before_routes() {
        let mut router = Router::new();
        let access = router.access();
        let way = router.add_next_hop(NextHopEntry::Blackhole).expect("few");
        assert!(access.next_hops.latest().get(way).is_none());
        router.insert(prefix("::", 0), way);
        assert!(matches!(access.next_hops.latest().get(way), Some(NextHopEntry::Blackhole)));
    }
}
