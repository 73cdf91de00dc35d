//! Choice of the route to each prefix: the router's own routes first, then the kernel's tables in order.

use super::attached::{Attached, on_link};
use super::is_below;
use crate::config::filters::Network;
use crate::config::model::Configuration;
use crate::config::router::{RouteKind, RoutesFrom, StaticRoute};
use crate::kernel::Mirror;
use crate::kernel::message::{HopSpec, Object, Target};
use crate::kernel::mirror::Route;
use polder_datapath::route::{OwnAddress, Owner, Prefix};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The kernel's table `local`.
pub(super) const LOCAL_TABLE: u32 = 255;

/// Origin of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The configuration file.
    File,
    /// An address of a port.
    Address,
    /// A kernel table, with the metric.
    Kernel(u32, u32),
}

/// The routes in use to a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Route for sources that no entry of `by_source` contains.
    pub(super) any: Option<(Origin, Arc<Target>)>,
    /// Source-specific routes; the first that contains the source is used.
    pub(super) by_source: Box<[SourceRoute]>,
}

/// A source-specific route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceRoute {
    pub(super) source: Prefix,
    pub(super) origin: Origin,
    pub(super) target: Arc<Target>,
}

impl Wanted {
    fn any((origin, target): (Origin, Arc<Target>)) -> Self {
        Self { any: Some((origin, target)), by_source: Box::default() }
    }

    /// Targets of all routes.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        let by_source = self.by_source.iter().map(|route| &route.target);
        by_source.chain(self.any.iter().map(|(_, target)| target))
    }

    /// The only route, if it applies to all sources.
    pub(super) fn only(&self) -> Option<(Origin, &Arc<Target>)> {
        let (origin, target) = self.any.as_ref().filter(|_| self.by_source.is_empty())?;
        Some((*origin, target))
    }
}

/// Routes that the kernel does not have.
pub(super) type Own = HashMap<Prefix, (Origin, Arc<Target>)>;

/// Tables in which routes are looked up.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The router's own routes.
    pub(super) own: Own,
    /// Kernel tables for IPv4 and IPv6, in look-up order.
    pub(super) tables: [Vec<u32>; 2],
    /// Networks in the table `local` that hide prefixes in later tables.
    pub(super) local: BTreeSet<Prefix>,
    /// The host's next hops that lead back to the router.
    pub(super) back: Back,
}

/// Links and nexthop objects of the host that lead through a TAP to Polder, which Polder cannot use itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Back {
    links: BTreeSet<u32>,
    objects: BTreeSet<u32>,
}

impl Back {
    pub(super) fn of(attached: &[Attached], mirror: Option<&Mirror>) -> Self {
        let links = attached.iter().filter_map(|attached| Some(attached.machine.as_ref()?.index));
        let links = links.collect::<BTreeSet<_>>();
        let Some(mirror) = mirror.filter(|_| !links.is_empty()) else {
            return Self { links, objects: BTreeSet::new() };
        };
        let is_back =
            |object: Option<&Object>| matches!(object, Some(Object::Hop(hop)) if links.contains(&hop.index));
        let leads = |object: &Object| match object {
            Object::Group(members) => {
                !members.is_empty() && members.iter().all(|(id, _)| is_back(mirror.object(*id)))
            }
            Object::Hop(_) | Object::Blackhole => is_back(Some(object)),
        };
        let objects = mirror.objects().filter(|(_, object)| leads(object)).map(|(id, _)| id).collect();
        Self { links, objects }
    }

    /// True if a target only leads back to the router.
    fn takes(&self, target: &Target) -> bool {
        match target {
            Target::Hops(hops) => !hops.is_empty() && hops.iter().all(|hop| self.links.contains(&hop.index)),
            Target::Object(id, _) => self.objects.contains(id),
            Target::Local(_)
            | Target::Broadcast
            | Target::Blackhole
            | Target::Unreachable
            | Target::Prohibit
            | Target::Throw => false,
        }
    }
}

impl Sources {
    /// The routes in use to a prefix.
    pub(super) fn routes(&self, prefix: Prefix, mirror: Option<&Mirror>) -> Option<Wanted> {
        let by_source = mirror.filter(|_| !self.own.contains_key(&prefix));
        let by_source = by_source.and_then(|mirror| self.by_source(prefix, mirror));
        by_source.or_else(|| self.route(prefix, mirror).map(Wanted::any))
    }

    /// The routes to a prefix, if some are source-specific, in the kernel's order: shorter prefixes follow
    /// until a route applies to all sources (`fib6_node_lookup`).
    fn by_source(&self, prefix: Prefix, mirror: &Mirror) -> Option<Wanted> {
        let has_own = |table: &u32| mirror.routes_to(*table, prefix).next().is_some();
        if !prefix.is_v6() || !mirror.has_routes_by_source() || !self.tables[1].iter().any(has_own) {
            return None;
        }
        let mut by_source = Vec::<SourceRoute>::new();
        let routes = self.tables[1].iter().flat_map(|&table| self.tried(table, prefix, mirror));
        let mut any = None;
        for (table, route) in routes {
            let (origin, target) = (Origin::Kernel(table, route.metric), Arc::clone(&route.target));
            let Some(source) = route.source else {
                any = Some((origin, target));
                break;
            };
            if by_source.iter().all(|earlier| earlier.source != source) {
                by_source.push(SourceRoute { source, origin, target });
            }
        }
        (!by_source.is_empty()).then(|| Wanted { any, by_source: by_source.into() })
    }

    /// Routes of a table that the kernel tries for a prefix, until a route passes on to the next table.
    fn tried<'a>(
        &'a self,
        table: u32,
        prefix: Prefix,
        mirror: &'a Mirror,
    ) -> impl Iterator<Item = (u32, &'a Route)> {
        let shorter =
            (0..=prefix.bits()).rev().filter_map(move |bits| Prefix::new(prefix.address(), bits).ok());
        let routes = shorter.flat_map(move |shorter| mirror.routes_to(table, shorter));
        // Groups have their routes in the local table too.
        let counts = move |route: &&Route| table != LOCAL_TABLE || !route.target.has_next_hop();
        let routes = routes.take_while(|route| *route.target != Target::Throw).filter(counts);
        routes.filter(|route| !self.back.takes(&route.target)).map(move |route| (table, route))
    }

    /// The route to a prefix that applies to all sources.
    fn route(&self, prefix: Prefix, mirror: Option<&Mirror>) -> Option<(Origin, Arc<Target>)> {
        if let Some((origin, target)) = self.own.get(&prefix) {
            return Some((*origin, Arc::clone(target)));
        }
        let (mirror, tables) = (mirror?, &self.tables[usize::from(prefix.is_v6())]);
        for (place, &table) in tables.iter().enumerate() {
            let Some((metric, target)) = self.first(mirror, table, prefix) else { continue };
            // Groups have their routes in the local table too.
            let counts = table != LOCAL_TABLE || !target.has_next_hop();
            if counts && **target != Target::Throw {
                let earlier = tables[..place].iter().filter(|&&table| table != LOCAL_TABLE);
                let hidden = earlier.into_iter().any(|&table| self.covers(mirror, table, prefix))
                    || table != LOCAL_TABLE && self.local.iter().any(|local| is_below(prefix, *local));
                return (!hidden).then(|| (Origin::Kernel(table, metric), Arc::clone(target)));
            }
        }
        None
    }

    /// The first usable route to a prefix in a table.
    fn first<'a>(&self, mirror: &'a Mirror, table: u32, prefix: Prefix) -> Option<(u32, &'a Arc<Target>)> {
        let mut routes = mirror.routes_to(table, prefix).filter(|route| route.source.is_none());
        let route = routes.find(|route| !self.back.takes(&route.target))?;
        Some((route.metric, &route.target))
    }

    /// True if a table has a route that contains a prefix.
    fn covers(&self, mirror: &Mirror, table: u32, prefix: Prefix) -> bool {
        if mirror.size(table) == 0 {
            return false;
        }
        let shorter = (0..=prefix.bits()).filter_map(|bits| Prefix::new(prefix.address(), bits).ok());
        let mut routes = shorter.filter_map(|shorter| self.first(mirror, table, shorter));
        routes.any(|(_, target)| **target != Target::Throw)
    }

    /// True if later tables have routes, which this table may hide.
    pub(super) fn hides(&self, table: u32, is_v6: bool, mirror: &Mirror) -> bool {
        let tables = self.tables[usize::from(is_v6)].iter();
        tables.skip_while(|&&known| known != table).skip(1).any(|&later| mirror.size(later) > 0)
    }
}

/// Kernel tables in use for IPv4 and IPv6, and the number of rules that are ignored because they select
/// packets.
pub(super) fn tables(configuration: &Configuration, mirror: Option<&Mirror>) -> ([Vec<u32>; 2], usize) {
    let router = &configuration.router;
    if router.routes == RoutesFrom::Static {
        return (Default::default(), 0);
    }
    let named = |is_v6: bool| {
        if !router.tables.is_empty() {
            return router.tables.clone();
        }
        let rules = mirror.into_iter().flat_map(Mirror::rules);
        let rules = rules.filter(|rule| rule.is_v6 == is_v6 && !rule.selects);
        let mut tables = rules.filter_map(|rule| rule.table).collect::<Vec<_>>();
        tables.retain(|&table| table != 0 && table != LOCAL_TABLE);
        tables
    };
    let with_local = |is_v6: bool| {
        let mut all = vec![LOCAL_TABLE];
        for table in named(is_v6) {
            if !all.contains(&table) {
                all.push(table);
            }
        }
        all
    };
    let left_out = mirror.into_iter().flat_map(Mirror::rules).filter(|rule| rule.selects).count();
    ([with_local(false), with_local(true)], left_out)
}

/// The router's own routes: for its addresses, where the kernel has none, and from the file.
pub(super) fn own(configuration: &Configuration, attached: &[Attached]) -> Own {
    let mut own = Own::new();
    let is_static = configuration.router.routes == RoutesFrom::Static;
    let alone = attached.iter().filter(|attached| is_static || attached.interface.owner == Owner::Polder);
    for attached in alone {
        for address in &attached.interface.addresses {
            connect(*address, attached.index, &mut own);
        }
    }
    for route in &configuration.router.route {
        let Network(address, bits) = route.to;
        let Ok(prefix) = Prefix::new(address, bits) else { continue };
        own.insert(prefix, (Origin::File, Arc::new(target(route, attached))));
    }
    own
}

fn to_link(index: u32) -> HopSpec {
    HopSpec { index, gateway: None, weight: 1, mtu: 0, wrapped: false }
}

/// Adds routes for an address, its network, and the network's broadcast addresses.
fn connect(own: OwnAddress, index: u32, routes: &mut Own) {
    let mut add = |prefix: Prefix, target: Arc<Target>| {
        routes.insert(prefix, (Origin::Address, target));
    };
    let of_link = matches!(own.address, IpAddr::V6(address) if address.is_unicast_link_local());
    let Ok(network) = Prefix::new(own.address, own.bits) else { return };
    // Every link has the same link-local network.
    if !of_link && !network.is_host() {
        add(network, Arc::new(Target::Hops(vec![to_link(index)])));
    }
    if let IpAddr::V4(first) = network.address()
        && network.bits() < 31
    {
        let last = first.to_bits() | u32::MAX.checked_shr(u32::from(network.bits())).unwrap_or(0);
        for end in [first, Ipv4Addr::from_bits(last)] {
            add(Prefix::host(end.into()), Arc::new(Target::Broadcast));
        }
    }
    add(Prefix::host(own.address), Arc::new(Target::Local(index)));
}

fn target(route: &StaticRoute, attached: &[Attached]) -> Target {
    match route.kind {
        RouteKind::Blackhole => return Target::Blackhole,
        RouteKind::Unreachable => return Target::Unreachable,
        RouteKind::Prohibit => return Target::Prohibit,
        RouteKind::Unicast => {}
    }
    let by_port = route.port.and_then(|port| {
        let untagged = |attached: &&Attached| {
            attached.interface.id == polder_datapath::route::InterfaceId::untagged(port)
        };
        attached.iter().find(untagged)
    });
    if route.via.is_empty() {
        return Target::Hops(by_port.map(|attached| to_link(attached.index)).into_iter().collect());
    }
    let hop = |&gateway: &IpAddr| {
        let by = match route.port {
            Some(_) => by_port,
            None => on_link(attached, gateway),
        };
        Some(HopSpec { gateway: Some(gateway), ..to_link(by?.index) })
    };
    Target::Hops(route.via.iter().filter_map(hop).collect())
}
