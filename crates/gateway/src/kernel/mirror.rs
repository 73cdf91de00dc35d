//! Known state of the kernel's tables.

use super::message::{Address, HopSpec, Item, Link, Neighbour, Object, RouteKey, Rule, Target};
use super::request::Kind;
use polder_datapath::route::Prefix;
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The name of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// An interface, by its number.
    Link(u32),
    /// An address.
    Address(Address),
    /// A next hop object, by its number.
    Object(u32),
    /// A rule.
    Rule(Rule),
    /// A route.
    Route(RouteKey),
    /// A neighbour on an interface.
    Neighbour(u32, IpAddr),
}

impl Key {
    /// The name of a thing.
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

/// Routes of one table to one prefix, in the order in which the kernel tries them.
type Routes = Vec<Route>;

/// A route to a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Sources that it covers; `None` for all.
    pub source: Option<Prefix>,
    /// Of several routes for a source, that with the lowest is taken.
    pub metric: u32,
    /// Origin: `RTPROT_*` of linux/rtnetlink.h.
    pub protocol: u8,
    /// Effect on packets.
    pub target: Arc<Target>,
}

impl Route {
    /// Place among the routes to its prefix: the longest source prefix first, then the lowest metric.
    fn place(&self) -> Place {
        place(self.source, self.metric)
    }
}

/// Value by which routes to one prefix are ordered.
type Place = (Reverse<u8>, Option<Prefix>, u32);

fn place(source: Option<Prefix>, metric: u32) -> Place {
    (Reverse(source.map_or(0, |source| source.bits())), source, metric)
}

/// All that the kernel has.
#[derive(Clone, Debug, Default)]
pub struct Mirror {
    links: BTreeMap<u32, Link>,
    addresses: BTreeSet<Address>,
    objects: HashMap<u32, Object>,
    rules: BTreeSet<Rule>,
    routes: HashMap<(u32, Prefix), Routes>,
    /// Prefixes that each table has routes to.
    sizes: HashMap<u32, usize>,
    /// Routes of each protocol.
    protocols: HashMap<u8, usize>,
    neighbours: HashMap<(u32, IpAddr), Neighbour>,
    /// Many routes lead to the same place.
    targets: HashSet<Arc<Target>>,
    changes: Changes,
}

/// Changes since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Interfaces have.
    pub links: bool,
    /// Addresses have.
    pub addresses: bool,
    /// Next hop objects have.
    pub objects: bool,
    /// Rules have.
    pub rules: bool,
    /// Settings of `net.ipv4.conf` have.
    pub settings: bool,
    /// Tables and prefixes whose routes have.
    pub routes: HashSet<(u32, Prefix)>,
    /// Neighbours that have.
    pub neighbours: HashSet<(u32, IpAddr)>,
}

impl Changes {
    /// True if nothing has.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Equal when they say the same; what has changed of late does not count.
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
    /// Interfaces by number.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// The interface of that number.
    pub fn link(&self, index: u32) -> Option<&Link> {
        self.links.get(&index)
    }

    /// The interface of that name.
    pub fn link_named(&self, name: &str) -> Option<&Link> {
        self.links.values().find(|link| link.name == name)
    }

    /// Addresses of this machine, by interface.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.addresses.iter()
    }

    /// The next hop object of that number.
    pub fn object(&self, id: u32) -> Option<&Object> {
        self.objects.get(&id)
    }

    /// Next hop objects by number.
    pub fn objects(&self) -> impl Iterator<Item = (u32, &Object)> {
        self.objects.iter().map(|(&id, object)| (id, object))
    }

    /// Rules, the one that is asked first first.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// Neighbours.
    pub fn neighbours(&self) -> impl Iterator<Item = (u32, IpAddr, Neighbour)> + '_ {
        self.neighbours.iter().map(|(&(index, address), &neighbour)| (index, address, neighbour))
    }

    /// A neighbour.
    pub fn neighbour(&self, index: u32, address: IpAddr) -> Option<Neighbour> {
        self.neighbours.get(&(index, address)).copied()
    }

    /// All routes to a prefix in a table, in the order in which the kernel tries them: the first whose source
    /// prefix contains a packet's source counts for the packet.
    pub fn routes_to(&self, table: u32, prefix: Prefix) -> impl Iterator<Item = &Route> {
        self.routes.get(&(table, prefix)).into_iter().flatten()
    }

    /// Prefixes that tables have routes to, once for each table.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.routes.keys().map(|(_, prefix)| *prefix)
    }

    /// Prefixes that a table has routes to.
    pub fn size(&self, table: u32) -> usize {
        self.sizes.get(&table).copied().unwrap_or(0)
    }

    /// All that routes of any source lead to: tables, prefixes, metrics of those that count.
    pub fn routes(&self) -> impl Iterator<Item = (u32, Prefix, u32, &Arc<Target>)> {
        self.routes.iter().filter_map(|(&(table, prefix), routes)| {
            let route = routes.iter().find(|route| route.source.is_none())?;
            Some((table, prefix, route.metric, &route.target))
        })
    }

    /// Changes since the last call.
    pub fn take_changes(&mut self) -> Changes {
        core::mem::take(&mut self.changes)
    }

    /// Takes note that a setting is another one; the files of /proc/sys say which.
    pub fn note_settings(&mut self) {
        self.changes.settings = true;
    }

    /// True if there are changes.
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Adds or replaces an item.
    pub fn put(&mut self, item: Item) {
        match item {
            Item::Link(link) => {
                let index = link.index;
                let old = self.links.insert(index, link);
                self.changes.links |= old.as_ref() != self.links.get(&index);
            }
            Item::Address(address) => self.changes.addresses |= self.addresses.insert(address),
            Item::Object(id, object) => {
                let old = self.objects.insert(id, object);
                self.changes.objects |= old.as_ref() != self.objects.get(&id);
            }
            Item::Rule(rule) => self.changes.rules |= self.rules.insert(rule),
            Item::Route(key, protocol, target) => self.put_route(key, protocol, target),
            Item::Neighbour(index, address, neighbour) => {
                if self.neighbours.insert((index, address), neighbour) != Some(neighbour) {
                    self.changes.neighbours.insert((index, address));
                }
            }
        }
    }

    fn put_route(&mut self, key: RouteKey, protocol: u8, target: Target) {
        let target = match self.targets.get(&target) {
            Some(known) => Arc::clone(known),
            None => {
                let target = Arc::new(target);
                self.targets.insert(Arc::clone(&target));
                target
            }
        };
        let routes = self.routes.entry((key.table, key.prefix)).or_default();
        if routes.is_empty() {
            *self.sizes.entry(key.table).or_default() += 1;
        }
        *self.protocols.entry(protocol).or_default() += 1;
        match routes.binary_search_by_key(&place(key.source, key.metric), Route::place) {
            Ok(at) => {
                let known = &mut routes[at];
                let before = core::mem::replace(&mut known.protocol, protocol);
                *self.protocols.entry(before).or_insert(1) -= 1;
                if known.target == target {
                    return;
                }
                let old = core::mem::replace(&mut known.target, target);
                forget(&mut self.targets, &old);
            }
            Err(at) => {
                let RouteKey { source, metric, .. } = key;
                routes.insert(at, Route { source, metric, protocol, target });
            }
        }
        self.changes.routes.insert((key.table, key.prefix));
    }

    /// Target of a key, if it is a route.
    pub fn target(&self, key: RouteKey) -> Option<&Target> {
        self.route(key).map(|route| &*route.target)
    }

    /// Origin of a route: `RTPROT_*` of linux/rtnetlink.h.
    pub fn protocol(&self, key: RouteKey) -> Option<u8> {
        self.route(key).map(|route| route.protocol)
    }

    /// Number of routes of a protocol.
    pub fn routes_of(&self, protocol: u8) -> usize {
        self.protocols.get(&protocol).copied().unwrap_or(0)
    }

    /// True if one of the links that a route leads to carries, or it leads to none.
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

    fn route(&self, key: RouteKey) -> Option<&Route> {
        let routes = self.routes.get(&(key.table, key.prefix))?;
        let at = routes.binary_search_by_key(&place(key.source, key.metric), Route::place).ok()?;
        routes.get(at)
    }

    /// Removes an item.
    pub fn remove(&mut self, key: Key) {
        match key {
            Key::Link(index) => self.changes.links |= self.links.remove(&index).is_some(),
            Key::Address(address) => self.changes.addresses |= self.addresses.remove(&address),
            Key::Object(id) => self.changes.objects |= self.objects.remove(&id).is_some(),
            Key::Rule(rule) => self.changes.rules |= self.rules.remove(&rule),
            Key::Route(key) => self.remove_route(key),
            Key::Neighbour(index, address) => {
                if self.neighbours.remove(&(index, address)).is_some() {
                    self.changes.neighbours.insert((index, address));
                }
            }
        }
    }

    fn remove_route(&mut self, key: RouteKey) {
        let Entry::Occupied(mut routes) = self.routes.entry((key.table, key.prefix)) else { return };
        let place = place(key.source, key.metric);
        let Ok(at) = routes.get().binary_search_by_key(&place, Route::place) else { return };
        let Route { protocol, target, .. } = routes.get_mut().remove(at);
        *self.protocols.entry(protocol).or_insert(1) -= 1;
        if routes.get().is_empty() {
            routes.remove();
            *self.sizes.entry(key.table).or_insert(1) -= 1;
        }
        forget(&mut self.targets, &target);
        self.changes.routes.insert((key.table, key.prefix));
    }

    /// The names of all that a dump of that kind would bring.
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
                    routes.iter().map(key).map(Key::Route).collect::<Vec<_>>()
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
    /// Item of a key.
    pub(super) fn item(&self, key: Key) -> Option<Item> {
        Some(match key {
            Key::Link(index) => Item::Link(self.links.get(&index)?.clone()),
            Key::Address(address) => Item::Address(*self.addresses.get(&address)?),
            Key::Object(id) => Item::Object(id, self.objects.get(&id)?.clone()),
            Key::Rule(rule) => Item::Rule(*self.rules.get(&rule)?),
            Key::Route(key) => Item::Route(key, self.protocol(key)?, self.target(key)?.clone()),
            Key::Neighbour(index, address) => {
                Item::Neighbour(index, address, self.neighbour(index, address)?)
            }
        })
    }
}

/// Forgets a target that no route leads to any more.
fn forget(targets: &mut HashSet<Arc<Target>>, target: &Arc<Target>) {
    // The set has one, and the caller the other.
    if Arc::strong_count(target) == 2 {
        targets.remove(target);
    }
}
