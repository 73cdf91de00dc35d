//! Next hops of the workers, from the kernel's routes.
//!
//! Routes with the same target share a next-hop entry, and entries with the same gateway share a hop. When a
//! link, an interface or a nexthop object changes, only next-hop entries are rewritten, no routes.

use super::attached::Attached;
use super::wanted::{SourceRoute, Wanted};
use crate::kernel::Mirror;
use crate::kernel::message::{HopSpec, Link, Object, Target};
use polder_datapath::route::{
    Hop, Interface, InterfaceId, KernelRoute, Neighbours, NextHopEntry, NextHopGroup, NextHopId, Owner,
    Prefix, Router,
};
use polder_datapath::units::Nanos;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Time after which a freed next-hop number is reused: batches in flight have ended by then.
const REUSE_AFTER: Nanos = Nanos::from_seconds(2);
/// Maximum nesting of nexthop objects: a group contains objects, but no groups.
const DEPTH: usize = 2;

/// Address of the only neighbour on a point-to-point link, and of this host behind a TAP; it is never
/// resolved.
pub(super) const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// A gateway on an interface.
pub(super) type HopKey = (InterfaceId, IpAddr);

/// Result of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    /// Gateways, of which at least one is usable.
    Hops(Vec<Member>),
    /// On-link, with the route's MTU or 0.
    Link(InterfaceId, u16),
    /// This host, behind a TAP.
    Machine(Member),
    /// An address of Polder itself, or of this host where no port leads to it.
    Local,
    Broadcast,
    Blackhole,
    Unreachable,
    Prohibit,
    /// Left to the kernel, because it uses an interface or a flow distribution that the router does not have.
    Kernel(KernelRoute),
    /// Interfaces that are down or gone.
    Nowhere,
}

/// One gateway of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) key: HopKey,
    /// The route's MTU in bytes; 0 without one.
    pub(super) mtu: u16,
    pub(super) weight: u16,
    /// True if packets can be sent to it.
    pub(super) carries: bool,
}

/// State that results of routes are derived from.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) attached: &'a [Attached],
    pub(super) mirror: Option<&'a Mirror>,
}

impl View<'_> {
    /// Result of a target.
    pub(super) fn lead(&self, target: &Target) -> Lead {
        match target {
            Target::Hops(hops) => self.hops(hops),
            Target::Object(id, mtu) => match self.object(*id, DEPTH) {
                Some(mut hops) => {
                    hops.iter_mut().for_each(|hop| hop.mtu = *mtu);
                    self.hops(&hops)
                }
                None => Lead::Blackhole,
            },
            Target::Local(index) => self.local(*index),
            Target::Broadcast => Lead::Broadcast,
            Target::Blackhole => Lead::Blackhole,
            Target::Unreachable => Lead::Unreachable,
            Target::Prohibit => Lead::Prohibit,
            Target::Throw => Lead::Nowhere,
        }
    }

    /// Result for a local address on an interface: Polder's own where only Polder has the interface,
    /// otherwise this host's, through any TAP where it is up.
    fn local(&self, index: u32) -> Lead {
        let is_own =
            |attached: &Attached| attached.index == index && attached.interface.owner == Owner::Polder;
        if self.attached.iter().any(is_own) {
            return Lead::Local;
        }
        let machines = self.attached.iter().filter_map(|attached| {
            let machine = attached.machine.as_ref().filter(|machine| machine.listens)?;
            Some((machine.index == index, attached))
        });
        let Some((_, found)) = machines.reduce(|first, next| if next.0 { next } else { first }) else {
            return Lead::Local;
        };
        Lead::Machine(Member { key: (found.interface.id, NOBODY), mtu: 0, weight: 1, carries: found.carries })
    }

    /// Hops of a nexthop object; `None` for a blackhole.
    fn object(&self, id: u32, depth: usize) -> Option<Vec<HopSpec>> {
        let object = self.mirror.and_then(|mirror| mirror.object(id)).filter(|_| depth > 0);
        match object {
            None => Some(Vec::new()),
            Some(Object::Blackhole) => None,
            Some(Object::Hop(hop)) => Some(vec![*hop]),
            Some(Object::Group(members)) => {
                let mut hops = Vec::new();
                for (member, weight) in members {
                    let found = self.object(*member, depth - 1)?.into_iter();
                    hops.extend(found.map(|hop| HopSpec { weight: *weight, ..hop }));
                }
                Some(hops)
            }
        }
    }

    fn hops(&self, hops: &[HopSpec]) -> Lead {
        let (mut members, mut is_kernels) = (Vec::new(), false);
        for hop in hops {
            let found = self.attached.iter().find(|attached| attached.index == hop.index && !hop.wrapped);
            let Some(Attached { interface, carries, far, .. }) = found else {
                is_kernels |= self.is_kernels(hop.index);
                continue;
            };
            // A point-to-point link has the same next hop for all destinations.
            match hop.gateway.or_else(|| far.is_some().then_some(NOBODY)) {
                Some(gateway) => {
                    let key = (interface.id, gateway);
                    members.push(Member { key, mtu: hop.mtu, weight: hop.weight, carries: *carries });
                }
                None if hops.len() == 1 && *carries => return Lead::Link(interface.id, hop.mtu),
                // The router cannot distribute flows to an on-link route.
                None => is_kernels |= hops.len() > 1 && *carries,
            }
        }
        if is_kernels {
            let is_filtered = |member: &Member| {
                let mut attached = self.attached.iter();
                attached.any(|attached| attached.interface.id == member.key.0 && attached.is_filtered)
            };
            return Lead::Kernel(KernelRoute {
                is_filtered: members.iter().any(is_filtered),
                interfaces: members.iter().map(|member| member.key.0).collect(),
            });
        }
        if members.is_empty() { Lead::Nowhere } else { Lead::Hops(members) }
    }

    /// True if the kernel can send by an interface, unless that is a TAP of the router.
    fn is_kernels(&self, index: u32) -> bool {
        let leads_back = self.attached.iter().filter_map(|attached| attached.machine.as_ref());
        self.mirror.and_then(|mirror| mirror.link(index)).is_some_and(Link::carries)
            && !leads_back.into_iter().any(|machine| machine.index == index)
    }
}

impl Lead {
    /// Hops that packets are sent to.
    pub(super) fn members(&self) -> &[Member] {
        match self {
            Self::Hops(members) => members,
            Self::Machine(member) => core::slice::from_ref(member),
            Self::Link(..)
            | Self::Local
            | Self::Broadcast
            | Self::Blackhole
            | Self::Unreachable
            | Self::Prohibit
            | Self::Kernel(_)
            | Self::Nowhere => &[],
        }
    }
}

/// Next hops in use.
#[derive(Debug, Default)]
pub(super) struct NextHopRegistry {
    targets: HashMap<Arc<Target>, Entry>,
    /// Hops by gateway, one for each MTU.
    hops: HashMap<HopKey, Vec<HopEntry>>,
    free: VecDeque<(Nanos, NextHopId)>,
}

#[derive(Debug)]
struct Entry {
    id: NextHopId,
    routes: usize,
    lead: Lead,
    /// Division of flows with all hops usable; a hop that returns gets the same flows.
    group: Option<NextHopGroup>,
}

#[derive(Debug)]
struct HopEntry {
    id: NextHopId,
    mtu: u16,
    leads: usize,
}

/// State that the registry updates.
pub(super) struct NextHopContext<'a> {
    pub(super) router: &'a mut Router,
    pub(super) neighbours: &'a mut Neighbours,
    pub(super) view: View<'a>,
    pub(super) now: Nanos,
}

impl NextHopRegistry {
    /// Gateways of all routes.
    pub(super) fn gateways(&self) -> impl Iterator<Item = HopKey> + '_ {
        self.hops.keys().copied()
    }

    /// True if a route leads to a gateway.
    pub(super) fn has_gateway(&self, key: HopKey) -> bool {
        self.hops.contains_key(&key)
    }

    /// True if the kernel forwards packets for a target from any source.
    pub(super) fn is_kernels(&self, target: &Arc<Target>) -> bool {
        self.targets
            .get(target)
            .is_some_and(|entry| matches!(&entry.lead, Lead::Kernel(route) if !route.is_filtered))
    }

    /// Next-hop number for another route to a target. `before` is the route's previous target: flows keep
    /// their hop where possible.
    fn take(
        &mut self,
        target: &Arc<Target>,
        before: Option<&Arc<Target>>,
        context: &mut NextHopContext<'_>,
    ) -> Option<NextHopId> {
        if let Some(entry) = self.targets.get_mut(target) {
            entry.routes += 1;
            return Some(entry.id);
        }
        let lead = context.view.lead(target);
        let like = before.and_then(|before| self.targets.get(before)?.group.clone());
        self.hold(&lead, context);
        let (way, group) = self.way(&lead, like.as_ref(), context);
        let id = self.place(way, context)?;
        self.targets.insert(Arc::clone(target), Entry { id, routes: 1, lead, group });
        Some(id)
    }

    /// Next-hop number for the routes to another prefix; `before` as for [`take`](Self::take).
    pub(super) fn take_all(
        &mut self,
        wanted: &Wanted,
        before: Option<&Arc<Target>>,
        context: &mut NextHopContext<'_>,
    ) -> Option<NextHopId> {
        if let Some((_, target)) = wanted.only() {
            return self.take(target, before, context);
        }
        let mut networks = Vec::new();
        for SourceRoute { source, target, .. } in &wanted.by_source {
            networks.extend(self.take(target, None, context).map(|way| (*source, way)));
        }
        let any = wanted.any.as_ref().and_then(|(_, target)| self.take(target, None, context));
        networks.extend(Prefix::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0).ok().zip(any));
        self.place(NextHopEntry::BySource(networks.into()), context)
    }

    /// Releases the routes to a prefix, whose next-hop number was `id`.
    pub(super) fn give_all_back(
        &mut self,
        wanted: &Wanted,
        id: Option<NextHopId>,
        context: &mut NextHopContext<'_>,
    ) {
        wanted.targets().for_each(|target| self.give_back(target, context));
        if wanted.only().is_none() {
            self.free.extend(id.map(|id| (context.now, id)));
        }
    }

    /// Releases a route's target.
    fn give_back(&mut self, target: &Arc<Target>, context: &mut NextHopContext<'_>) {
        let Some(entry) = self.targets.get_mut(target) else { return };
        entry.routes -= 1;
        if entry.routes > 0 {
            return;
        }
        if let Some(entry) = self.targets.remove(target) {
            self.free.push_back((context.now, entry.id));
            self.drop_hops(&entry.lead, context);
        }
    }

    /// Recomputes all next hops. With `all`, hops are rewritten as well, because interfaces have changed.
    pub(super) fn refresh(&mut self, all: bool, context: &mut NextHopContext<'_>) {
        let gateways = self.hops.iter().filter(|_| all);
        for (key, entry) in gateways.flat_map(|(key, entries)| entries.iter().map(|entry| (*key, entry))) {
            if let Some(way) = hop(key, entry.mtu, context) {
                context.router.replace_next_hop(entry.id, way);
            }
        }
        let targets = self.targets.keys().map(Arc::clone).collect::<Vec<_>>();
        for target in targets {
            let lead = context.view.lead(&target);
            let Some(known) = self.targets.get(&target).filter(|entry| all || entry.lead != lead) else {
                continue;
            };
            let (id, like) = (known.id, known.group.clone());
            self.hold(&lead, context);
            let (way, group) = self.way(&lead, like.as_ref(), context);
            context.router.replace_next_hop(id, way);
            let Some(entry) = self.targets.get_mut(&target) else { continue };
            let old = core::mem::replace(&mut entry.lead, lead);
            entry.group = group;
            self.drop_hops(&old, context);
        }
    }

    /// Adds a reference to the hops of a result.
    fn hold(&mut self, lead: &Lead, context: &mut NextHopContext<'_>) {
        for &Member { key, mtu, .. } in lead.members() {
            let known = self.hops.get_mut(&key).into_iter().flatten().find(|entry| entry.mtu == mtu);
            if let Some(entry) = known {
                entry.leads += 1;
            } else if let Some(way) = hop(key, mtu, context)
                && let Some(id) = self.place(way, context)
            {
                self.hops.entry(key).or_default().push(HopEntry { id, mtu, leads: 1 });
            }
        }
    }

    fn drop_hops(&mut self, lead: &Lead, context: &mut NextHopContext<'_>) {
        for Member { key, mtu, .. } in lead.members() {
            let Some(entries) = self.hops.get_mut(key) else { continue };
            let Some(place) = entries.iter().position(|entry| entry.mtu == *mtu) else { continue };
            entries[place].leads -= 1;
            if entries[place].leads == 0 {
                self.free.push_back((context.now, entries.swap_remove(place).id));
            }
            if entries.is_empty() {
                self.hops.remove(key);
            }
        }
    }

    /// Next-hop entry of a result whose hops are referenced.
    fn way(
        &self,
        lead: &Lead,
        like: Option<&NextHopGroup>,
        context: &mut NextHopContext<'_>,
    ) -> (NextHopEntry, Option<NextHopGroup>) {
        let way = match lead {
            Lead::Hops(_) | Lead::Machine(_) => return self.hops_way(lead.members(), like, context),
            Lead::Link(interface, _) => NextHopEntry::Connected(*interface),
            Lead::Local => NextHopEntry::Local,
            Lead::Broadcast => NextHopEntry::Broadcast,
            Lead::Blackhole => NextHopEntry::Blackhole,
            Lead::Unreachable => NextHopEntry::Unreachable,
            Lead::Kernel(route) => NextHopEntry::Kernel(route.clone()),
            Lead::Nowhere => NextHopEntry::Elsewhere,
            Lead::Prohibit => NextHopEntry::Prohibit,
        };
        (way, None)
    }

    fn hops_way(
        &self,
        hops: &[Member],
        like: Option<&NextHopGroup>,
        context: &mut NextHopContext<'_>,
    ) -> (NextHopEntry, Option<NextHopGroup>) {
        let of = |member: &Member| {
            let mut entries = self.hops.get(&member.key)?.iter();
            Some((entries.find(|entry| entry.mtu == member.mtu)?.id, member.weight))
        };
        if let ([Member { key, mtu, carries, .. }], None) = (hops, like) {
            let way = hop(*key, *mtu, context).filter(|_| *carries);
            return (way.unwrap_or(NextHopEntry::Elsewhere), None);
        }
        let all = hops.iter().filter_map(of).collect::<Vec<_>>();
        let group = match like {
            Some(like) => like.with_members(&all),
            None => NextHopGroup::new(&all),
        };
        let group = match group {
            Ok(group) => group,
            Err(error) => {
                tracing::warn!(%error, "cannot share flows among gateways");
                return (NextHopEntry::Elsewhere, None);
            }
        };
        let carry = hops.iter().filter(|member| member.carries).filter_map(of).collect::<Vec<_>>();
        let way = match group.with_members(&carry) {
            Ok(now) => NextHopEntry::Group(now),
            // No hop is usable.
            Err(_) => NextHopEntry::Elsewhere,
        };
        (way, Some(group))
    }

    /// Stores an entry under a free number: a reused or a new one.
    fn place(&mut self, way: NextHopEntry, context: &mut NextHopContext<'_>) -> Option<NextHopId> {
        match self.free.front() {
            Some(&(since, id)) if context.now.since(since) >= REUSE_AFTER => {
                self.free.pop_front();
                context.router.replace_next_hop(id, way);
                Some(id)
            }
            Some(_) | None => context.router.add_next_hop(way),
        }
    }
}

/// Hop entry of a gateway, with the smaller MTU of the interface and the route.
fn hop((interface, gateway): HopKey, mtu: u16, context: &mut NextHopContext<'_>) -> Option<NextHopEntry> {
    let found = context.view.attached.iter().find(|attached| attached.interface.id == interface)?;
    let (neighbour, cuts) = match (&found.far, &found.machine) {
        (Some(far), _) => (Arc::clone(&far.neighbour), far.cuts),
        (None, Some(machine)) if gateway == NOBODY => (Arc::clone(&machine.neighbour), false),
        (None, _) => {
            let hop = context.neighbours.hop(&found.interface, gateway);
            return Some(NextHopEntry::Hop(Hop { mtu: found.interface.mtu_by(mtu), ..hop }));
        }
    };
    let (Interface { id, mac, .. }, mtu) = (&found.interface, found.interface.mtu_by(mtu));
    let (id, mac) = (*id, *mac);
    Some(NextHopEntry::Hop(Hop { interface: id, source: mac, mtu, cuts, address: gateway, neighbour }))
}
