//! Copy of the kernel's tables.

use super::message::{Address, HopSpec, Item, Link, Neighbour, Object, Preference, RouteKey, Rule, Target};
use super::request::Kind;
use polder_datapath::route::Prefix;
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

/// Key of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// An interface index.
    Link(u32),
    /// An address.
    Address(Address),
    /// Id of a nexthop object.
    Object(u32),
    /// A rule.
    Rule(Rule),
    /// The routes with a key.
    Route(RouteKey),
    /// A neighbour, by interface index and address.
    Neighbour(u32, IpAddr),
}

impl Key {
    /// Key of an item.
    pub fn of(item: &Item) -> Self {
        match item {
            Item::Link(link) => Self::Link(link.index),
            Item::Address(address) => Self::Address(*address),
            Item::Object(id, _) => Self::Object(*id),
            Item::Rule(rule) => Self::Rule(*rule),
            Item::Route(key, ..) => Self::Route(*key),
            Item::Neighbour(index, address, _) => Self::Neighbour(*index, *address),
        }
    }
}

/// Routes of a table to a prefix, in the kernel's look-up order.
type Routes = Vec<Route>;

/// A route to a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Sources that it applies to; `None` for all.
    pub source: Option<Prefix>,
    /// Metric: the route with the lowest is used.
    pub metric: u32,
    /// Origin: `RTPROT_*` of linux/rtnetlink.h.
    pub protocol: u8,
    /// Preference: of routes with equal metrics, the one with the highest is used.
    pub preference: Preference,
    /// Effect on packets.
    pub target: Arc<Target>,
    /// Position in the kernel's list of routes with this key.
    pub(super) rank: u32,
}

impl Route {
    /// Creates a route.
    pub(super) fn new(key: RouteKey, protocol: u8, preference: Preference, target: Target) -> Self {
        let RouteKey { source, metric, .. } = key;
        Self { source, metric, protocol, preference, target: Arc::new(target), rank: 0 }
    }

    /// A copy with another target.
    pub(super) fn with_target(&self, target: Target) -> Self {
        Self { target: Arc::new(target), ..self.clone() }
    }

    /// True if both routes are equal except for their position.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let parts = |route: &Self| (route.source, route.metric, route.protocol, route.preference);
        parts(self) == parts(other) && self.target == other.target
    }

    /// Sort key among the routes to a prefix: longest source prefix first, then lowest metric, then highest
    /// preference, then the kernel's order.
    fn place(&self) -> (Place, Reverse<Preference>, u32) {
        (place(self.source, self.metric), Reverse(self.preference), self.rank)
    }
}

/// Sort key of route keys with the same prefix.
type Place = (Reverse<u8>, Option<Prefix>, u32);

fn place(source: Option<Prefix>, metric: u32) -> Place {
    (Reverse(source.map_or(0, |source| source.bits())), source, metric)
}

/// Range of the routes with a key in a prefix's sorted routes.
fn range(routes: &[Route], key: RouteKey) -> Range<usize> {
    let wanted = place(key.source, key.metric);
    let start = routes.partition_point(|route| place(route.source, route.metric) < wanted);
    let length = routes[start..].partition_point(|route| place(route.source, route.metric) == wanted);
    start..start + length
}

/// Copy of the kernel's tables.
#[derive(Clone, Debug, Default)]
pub struct Mirror {
    links: BTreeMap<u32, Link>,
    addresses: BTreeSet<Address>,
    objects: HashMap<u32, Object>,
    rules: BTreeSet<Rule>,
    routes: HashMap<(u32, Prefix), Routes>,
    /// Number of prefixes in each table.
    sizes: HashMap<u32, usize>,
    /// Number of source-specific routes.
    by_source: usize,
    /// Number of routes of each protocol.
    protocols: HashMap<u8, usize>,
    neighbours: HashMap<(u32, IpAddr), Neighbour>,
    /// Targets, shared because many routes have the same target.
    targets: HashSet<Arc<Target>>,
    changes: Changes,
}

/// Changes since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// True if interfaces changed.
    pub links: bool,
    /// True if addresses changed.
    pub addresses: bool,
    /// True if nexthop objects changed.
    pub objects: bool,
    /// True if rules changed.
    pub rules: bool,
    /// True if settings of `net.ipv4.conf` changed.
    pub settings: bool,
    /// Tables and prefixes whose routes changed.
    pub routes: HashSet<(u32, Prefix)>,
    /// Neighbours that changed.
    pub neighbours: HashSet<(u32, IpAddr)>,
}

/// Compares the tables, without the recorded changes.
impl PartialEq for Mirror {
    fn eq(&self, other: &Self) -> bool {
        self.links == other.links
            && self.addresses == other.addresses
            && self.objects == other.objects
            && self.rules == other.rules
            && self.routes == other.routes
            && self.neighbours == other.neighbours
    }
}

impl Mirror {
    /// Interfaces in the order of their indexes.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// The interface with an index.
    pub fn link(&self, index: u32) -> Option<&Link> {
        self.links.get(&index)
    }

    /// Addresses of this host, by interface.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.addresses.iter()
    }

    /// The nexthop object with an id.
    pub fn object(&self, id: u32) -> Option<&Object> {
        self.objects.get(&id)
    }

    /// Nexthop objects with their ids.
    pub fn objects(&self) -> impl Iterator<Item = (u32, &Object)> {
        self.objects.iter().map(|(&id, object)| (id, object))
    }

    /// Rules in look-up order.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// All neighbours, each with interface index and address.
    pub fn neighbours(&self) -> impl Iterator<Item = (u32, IpAddr, Neighbour)> + '_ {
        self.neighbours.iter().map(|(&(index, address), &neighbour)| (index, address, neighbour))
    }

    /// The neighbour entry of an address on an interface.
    pub fn neighbour(&self, index: u32, address: IpAddr) -> Option<Neighbour> {
        self.neighbours.get(&(index, address)).copied()
    }

    /// All routes to a prefix in a table, in look-up order: the first route whose source prefix contains the
    /// packet's source is used.
    pub fn routes_to(&self, table: u32, prefix: Prefix) -> impl Iterator<Item = &Route> {
        self.routes.get(&(table, prefix)).into_iter().flatten()
    }

    /// Prefixes of all routes, once for each table.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.routes.keys().map(|(_, prefix)| *prefix)
    }

    /// Number of prefixes in a table.
    pub fn size(&self, table: u32) -> usize {
        self.sizes.get(&table).copied().unwrap_or(0)
    }

    /// True if there are source-specific routes.
    pub fn has_routes_by_source(&self) -> bool {
        self.by_source > 0
    }

    /// Routes in use that apply to all sources: table, prefix, metric and target.
    pub fn routes(&self) -> impl Iterator<Item = (u32, Prefix, u32, &Arc<Target>)> {
        self.routes.iter().filter_map(|(&(table, prefix), routes)| {
            let route = routes.iter().find(|route| route.source.is_none())?;
            Some((table, prefix, route.metric, &route.target))
        })
    }

    /// Takes the changes since the last call.
    pub fn take_changes(&mut self) -> Changes {
        core::mem::take(&mut self.changes)
    }

    /// Records that a setting in /proc/sys has changed.
    pub fn note_settings(&mut self) {
        self.changes.settings = true;
    }

    /// Adds or replaces an item; a route replaces all routes with its key.
    pub fn put(&mut self, item: Item) {
        match item {
            Item::Link(link) => {
                let index = link.index;
                let old = self.links.insert(index, link);
                self.changes.links |= old.as_ref() != self.links.get(&index);
            }
            Item::Address(address) => {
                // An address that becomes primary is reported as new.
                self.addresses.remove(&Address { secondary: !address.secondary, ..address });
                self.changes.addresses |= self.addresses.insert(address);
            }
            Item::Object(id, object) => {
                let old = self.objects.insert(id, object);
                self.changes.objects |= old.as_ref() != self.objects.get(&id);
            }
            Item::Rule(rule) => self.changes.rules |= self.rules.insert(rule),
            Item::Route(key, protocol, preference, target) => {
                self.put_routes(key, vec![Route::new(key, protocol, preference, target)]);
            }
            Item::Neighbour(index, address, neighbour) => {
                if self.neighbours.insert((index, address), neighbour) != Some(neighbour) {
                    self.changes.neighbours.insert((index, address));
                }
            }
        }
    }

    /// Replaces the routes with a key; `list` is in the kernel's order.
    pub(super) fn put_routes(&mut self, key: RouteKey, mut list: Vec<Route>) {
        for (rank, route) in (0..).zip(&mut list) {
            route.rank = rank;
        }
        list.sort_by_key(Route::place);
        let mut entry = match self.routes.entry((key.table, key.prefix)) {
            Entry::Vacant(_) if list.is_empty() => return,
            Entry::Vacant(vacant) => vacant.insert_entry(Vec::with_capacity(1)),
            Entry::Occupied(entry) => entry,
        };
        let routes = entry.get_mut();
        let range = range(routes, key);
        if routes[range.clone()] == list[..] {
            return;
        }
        for route in &mut list {
            *self.protocols.entry(route.protocol).or_default() += 1;
            self.by_source += usize::from(route.source.is_some());
            match self.targets.get(&route.target) {
                Some(known) => route.target = Arc::clone(known),
                None => {
                    self.targets.insert(Arc::clone(&route.target));
                }
            }
        }
        let size = self.sizes.entry(key.table).or_default();
        *size += usize::from(routes.is_empty());
        for old in routes.splice(range, list) {
            *self.protocols.entry(old.protocol).or_insert(1) -= 1;
            self.by_source -= usize::from(old.source.is_some());
            forget(&mut self.targets, &old.target);
        }
        if routes.is_empty() {
            *size -= 1;
            entry.remove();
        }
        self.changes.routes.insert((key.table, key.prefix));
    }

    /// The routes with a key, in the kernel's order.
    pub(super) fn list(&self, key: RouteKey) -> Vec<Route> {
        let mut list = self.routes_with(key).to_vec();
        list.sort_by_key(|route| route.rank);
        list
    }

    /// The routes with a key; the first is the one in use.
    pub(super) fn routes_with(&self, key: RouteKey) -> &[Route] {
        let routes = self.routes.get(&(key.table, key.prefix)).map_or(&[][..], Vec::as_slice);
        &routes[range(routes, key)]
    }

    /// Target of the route in use with a key.
    pub fn target(&self, key: RouteKey) -> Option<&Target> {
        self.routes_with(key).first().map(|route| &*route.target)
    }

    /// Origin of the route in use with a key: `RTPROT_*` of linux/rtnetlink.h.
    pub fn protocol(&self, key: RouteKey) -> Option<u8> {
        self.routes_with(key).first().map(|route| route.protocol)
    }

    /// Number of routes of a protocol.
    pub fn routes_of(&self, protocol: u8) -> usize {
        self.protocols.get(&protocol).copied().unwrap_or(0)
    }

    /// True if a route leads to an interface whose link is up, or to no interface.
    pub fn carries(&self, key: RouteKey) -> bool {
        let by = |hop: &HopSpec| self.link(hop.index).is_some_and(Link::carries);
        let object = |id: u32| match self.object(id) {
            Some(Object::Hop(hop)) => by(hop),
            Some(Object::Group(_) | Object::Blackhole) => true,
            None => false,
        };
        self.target(key).is_some_and(|target| match target {
            Target::Hops(hops) => hops.iter().any(by),
            Target::Object(id, _) => match self.object(*id) {
                Some(Object::Group(members)) => members.iter().any(|(id, _)| object(*id)),
                Some(Object::Hop(_) | Object::Blackhole) | None => object(*id),
            },
            Target::Local(_)
            | Target::Broadcast
            | Target::Blackhole
            | Target::Unreachable
            | Target::Prohibit
            | Target::Throw => true,
        })
    }

    /// Removes an item; a route's key removes all routes with that key.
    pub fn remove(&mut self, key: Key) {
        match key {
            Key::Link(index) => self.changes.links |= self.links.remove(&index).is_some(),
            Key::Address(address) => self.changes.addresses |= self.addresses.remove(&address),
            Key::Object(id) => self.changes.objects |= self.objects.remove(&id).is_some(),
            Key::Rule(rule) => self.changes.rules |= self.rules.remove(&rule),
            Key::Route(key) => self.put_routes(key, Vec::new()),
            Key::Neighbour(index, address) => {
                if self.neighbours.remove(&(index, address)).is_some() {
                    self.changes.neighbours.insert((index, address));
                }
            }
        }
    }

    /// Keys of all items that a dump of a kind covers.
    pub fn keys(&self, kind: Kind) -> Vec<Key> {
        match kind {
            Kind::Links => self.links.keys().copied().map(Key::Link).collect(),
            Kind::Addresses => self.addresses.iter().copied().map(Key::Address).collect(),
            Kind::Objects => self.objects.keys().copied().map(Key::Object).collect(),
            Kind::Rules4 | Kind::Rules6 => {
                let of_kind = |rule: &&Rule| rule.is_v6 == (kind == Kind::Rules6);
                self.rules.iter().filter(of_kind).copied().map(Key::Rule).collect()
            }
            Kind::Routes4 | Kind::Routes6 => {
                let is_v6 = kind == Kind::Routes6;
                let of_kind =
                    self.routes.iter().filter(|((_, prefix), _)| prefix.address().is_ipv6() == is_v6);
                let key = |(&(table, prefix), routes): (&(u32, Prefix), &Routes)| {
                    let key =
                        |&Route { source, metric, .. }: &Route| RouteKey { table, prefix, source, metric };
                    let mut keys = routes.iter().map(key).map(Key::Route).collect::<Vec<_>>();
                    keys.dedup();
                    keys
                };
                of_kind.flat_map(key).collect()
            }
            Kind::Neighbours4 | Kind::Neighbours6 => {
                let is_v6 = kind == Kind::Neighbours6;
                let of_kind = self.neighbours.keys().filter(|(_, address)| address.is_ipv6() == is_v6);
                of_kind.map(|&(index, address)| Key::Neighbour(index, address)).collect()
            }
        }
    }
}

#[cfg(test)]
impl Mirror {
    /// Items with a key, as a dump returns them.
    pub(super) fn items(&self, key: Key) -> Vec<Item> {
        let item = match key {
            Key::Link(index) => self.links.get(&index).cloned().map(Item::Link),
            Key::Address(address) => self.addresses.get(&address).copied().map(Item::Address),
            Key::Object(id) => self.objects.get(&id).cloned().map(|object| Item::Object(id, object)),
            Key::Rule(rule) => self.rules.get(&rule).copied().map(Item::Rule),
            Key::Route(key) => return self.list(key).into_iter().map(|route| route.item(key)).collect(),
            Key::Neighbour(index, address) => {
                self.neighbour(index, address).map(|known| Item::Neighbour(index, address, known))
            }
        };
        item.into_iter().collect()
    }
}

#[cfg(test)]
impl Route {
    /// The route as an item with a key.
    pub(super) fn item(self, key: RouteKey) -> Item {
        Item::Route(key, self.protocol, self.preference, (*self.target).clone())
    }
}

/// Removes a target that no route uses.
fn forget(targets: &mut HashSet<Arc<Target>>, target: &Arc<Target>) {
    // Two references are left: the set's and the caller's.
    if Arc::strong_count(target) == 2 {
        targets.remove(target);
    }
}
