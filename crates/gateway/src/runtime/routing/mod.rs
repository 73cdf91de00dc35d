//! The router's control: builds the workers' tables from the kernel's tables and the file.
//!
//! ```text
//!  kernel ─▶ mirror ──┐             ┌─▶ wanted ── one route a prefix ──▶ FIB, updated in place
//!  file ──────────────┼─▶ sources ──┤
//!  ports ─▶ attached ─┘             └─▶ registry ──── next hops, hops, groups ──▶ replaced whole
//!                 └──▶ ingresses of the XDP programs, `Routers` of the tables
//!  notices of workers ─▶ the kernel resolves ─▶ neighbours ──▶ one atomic word each
//! ```
//!
//! Everything runs on the control thread. A call handles all changes since the last one, so a burst of changes updates the
//! tables once.

mod attached;
mod local_prefixes;
mod neighbours;
mod next_hops;
pub(super) mod rows;
mod settings;
mod wanted;

pub(super) use attached::{AttachedPort, Ports};

use crate::config::model::{Configuration, Role};
use crate::config::router::RoutesFrom;
use crate::kernel::hold::HoldNews;
use crate::kernel::socket::{BUFFER_BYTES, Follow};
use crate::kernel::{Changes, Mirror};
use anyhow::{Context as _, Result};
use attached::{Attached, attached};
use local_prefixes::{LocalPrefixes, Stays};
use neighbours::Known;
use next_hops::{NextHopContext, NextHopRegistry, View};
use polder_buffers::PortId;
use polder_datapath::route::{InterfaceId, Neighbours, Notice, Prefix, Router, Routers, Special};
use polder_datapath::units::Nanos;
use polder_devices::af_xdp::Ingress;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use settings::Settings;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use wanted::{Back, LOCAL_TABLE, Origin, Sources, Wanted};

/// Time limit at the start for reading the kernel's tables.
const PATIENCE: Nanos = Nanos::from_seconds(10);

/// The router's control state. It survives reloads.
#[derive(Debug, Default)]
pub struct Routing {
    kernel: Option<Follow>,
    host_interfaces: Option<HostInterfaces>,
    router: Router,
    neighbours: Neighbours,
    known: Known,
    attached: Vec<Attached>,
    sources: Sources,
    installed: HashMap<Prefix, Wanted>,
    registry: NextHopRegistry,
    /// Prefixes that stay with the kernel.
    local: LocalPrefixes,
    /// Changes that other parts of the gateway must handle.
    news: News,
    /// The router's change count at the last notification.
    changes: u64,
    left_out: usize,
    settings: Settings,
    /// IPv4 addresses of this host outside of the router's interfaces, and broadcasts: invalid as source
    /// addresses.
    specials: Vec<(Ipv4Addr, Special)>,
}

/// Changes that other parts of the gateway must handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Interfaces changed: rebuild the workers' tables.
    pub(super) interfaces: bool,
    /// Ingresses or local prefixes changed: update the programs.
    pub(super) ingresses: bool,
    /// Routes, next hops or neighbours changed: end the fast path's entries.
    pub(super) routes: bool,
    /// More work is pending: call again at once.
    pub(super) more: bool,
}

/// Descriptors that wake the control thread.
#[derive(Debug)]
struct HostInterfaces {
    /// Epoll descriptor, readable when there is work.
    all: Arc<OwnedFd>,
    /// Event that workers raise for notices.
    notices: Arc<OwnedFd>,
}

impl Routing {
    /// Starts following the routes of `configuration`, unless started already, and reads the properties of
    /// the ports.
    ///
    /// # Errors
    /// When the kernel cannot be followed.
    pub(super) fn begin(
        &mut self,
        configuration: &Configuration,
        ports: &Ports,
        now: impl Fn() -> Nanos,
    ) -> Result<()> {
        // After the last router port is removed, its state still has to be cleared.
        if !configuration.has_router_ports() && self.host_interfaces.is_none() {
            return Ok(());
        }
        if self.host_interfaces.is_none() {
            self.host_interfaces =
                Some(listen(&self.router).context("cannot create an epoll descriptor for the router")?);
        }
        let is_followed = configuration.router.routes == RoutesFrom::Kernel
            || configuration.ports.iter().any(|port| {
                port.role == Role::Router && port.device.interface().is_some() || port.device.tun().is_some()
            });
        if is_followed && self.kernel.is_none() {
            let mut follow =
                Follow::start(BUFFER_BYTES).context("cannot follow the kernel's routing tables")?;
            let settled =
                follow.settle(&now, PATIENCE).context("cannot follow the kernel's routing tables")?;
            if !settled {
                tracing::warn!("the kernel's tables are not completely read yet; the rest follows");
            }
            self.hear(&follow)?;
            self.kernel = Some(follow);
        }
        self.attend(configuration, ports, now(), true)
    }

    fn hear(&self, follow: &Follow) -> Result<()> {
        let Some(host_interfaces) = &self.host_interfaces else { return Ok(()) };
        epoll::add(&host_interfaces.all, follow.as_fd(), epoll::EventData::new_u64(1), epoll::EventFlags::IN)
            .context("cannot wait for changes of the kernel's routing tables")
    }

    /// Descriptor that is readable when there is work; `None` if no routes are followed.
    pub fn ear(&self) -> Option<Arc<OwnedFd>> {
        self.host_interfaces.as_ref().map(|host_interfaces| Arc::clone(&host_interfaces.all))
    }

    /// Router tables for the workers.
    ///
    /// # Errors
    /// When interfaces conflict.
    pub(super) fn routers(&self) -> Result<Routers> {
        if self.attached.is_empty() {
            return Ok(Routers::none());
        }
        let interfaces = self.attached.iter().map(|attached| attached.interface.clone());
        let routers = Routers::new([self.router.access()], interfaces)?;
        Ok(routers.with_specials(self.specials.iter().copied()))
    }

    /// Takes the changes since the last call.
    pub(super) fn take_news(&mut self) -> News {
        let changes = self.router.changes();
        self.news.routes = core::mem::replace(&mut self.changes, changes) != changes;
        core::mem::take(&mut self.news)
    }

    /// MAC address and VLAN of each router interface on a port.
    pub(super) fn ingresses(&self, port: PortId) -> Vec<Ingress> {
        let of_port = self.attached.iter().filter(|attached| attached.interface.id.port == port);
        let ingress = |attached: &Attached| Ingress {
            mac: attached.interface.mac.0,
            vlan: attached.interface.id.vlan.get(),
        };
        of_port.map(ingress).collect()
    }

    /// Kernel indexes of the router's interfaces.
    pub(super) fn interfaces(&self) -> Vec<u32> {
        self.attached.iter().map(|attached| attached.index).collect()
    }

    fn mirror(&self) -> Option<&Mirror> {
        self.kernel.as_ref().map(Follow::mirror)
    }

    /// Handles all changes since the last call. `changed` is true if the configuration or the ports have
    /// changed.
    ///
    /// # Errors
    /// When the kernel cannot be followed any more.
    pub(super) fn attend(
        &mut self,
        configuration: &Configuration,
        ports: &Ports,
        now: Nanos,
        changed: bool,
    ) -> Result<()> {
        let mut changes = Changes::default();
        if let Some(kernel) = &mut self.kernel {
            kernel.set_hold(Nanos::from_seconds(configuration.router.hold_seconds.unwrap_or(0).into()));
            let before = kernel.restarts();
            self.news.more = kernel.attend(now).context("cannot follow the kernel's routing tables")?;
            if kernel.restarts() != before {
                tracing::warn!(
                    "netlink messages were lost because they arrived too fast; reading all \
                                tables again"
                );
                self.rehear()?;
            }
            if let Some(kernel) = self.kernel.as_mut().filter(|kernel| kernel.is_settled()) {
                changes = kernel.mirror_mut().take_changes();
            }
        }
        let is_local = |(table, prefix): &(u32, Prefix)| *table == LOCAL_TABLE && !prefix.is_v6();
        let local = changed || changes.addresses || changes.rules || changes.routes.iter().any(is_local);
        let settings = self.look_at_settings(
            (configuration, ports),
            (changed || changes.links || changes.settings, local),
            now,
        );
        let links = changed || changes.links || changes.addresses || settings;
        let mut dirty = self.dirty(&changes);
        if links {
            self.look_at_links(configuration, ports, &mut dirty);
        }
        if links || changes.objects {
            self.look_back(&mut dirty);
        }
        if changed || changes.rules {
            self.look_at_rules(configuration, &mut dirty);
        }
        let moved = !dirty.is_empty() || links || changes.objects;
        self.install(dirty, (links, changes.objects), now);
        self.look_at_neighbours((!moved).then_some(&changes.neighbours), now);
        self.hear_notices(now);
        self.router.publish();
        Ok(())
    }

    /// Takes the notices about held routes since the last call.
    pub(super) fn take_hold_news(&mut self) -> Vec<HoldNews> {
        self.kernel.as_mut().map(|kernel| kernel.hold_mut().take_news()).unwrap_or_default()
    }

    /// Time of the next timed work; `None` if there is none.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.kernel.as_ref().and_then(Follow::next_deadline)
    }

    /// Adds the kernel's socket to the epoll set again, after it was replaced.
    fn rehear(&self) -> Result<()> {
        self.kernel.as_ref().map_or(Ok(()), |kernel| self.hear(kernel))
    }

    /// Prefixes whose route may have changed.
    fn dirty(&mut self, changes: &Changes) -> HashSet<Prefix> {
        let mut dirty = HashSet::new();
        let Some(mirror) = self.kernel.as_ref().map(Follow::mirror) else { return dirty };
        if changes
            .routes
            .iter()
            .any(|&(table, prefix)| table == LOCAL_TABLE && local_prefixes::is_net(prefix))
        {
            self.sources.local = local_prefixes::of_table(mirror);
        }
        for &(table, prefix) in &changes.routes {
            if !self.sources.tables[usize::from(prefix.is_v6())].contains(&table) {
                continue;
            }
            self.news.ingresses |= table == LOCAL_TABLE;
            dirty.insert(prefix);
            let hides = if table == LOCAL_TABLE {
                local_prefixes::is_net(prefix)
            } else {
                self.sources.hides(table, prefix.is_v6(), mirror)
            };
            if hides {
                dirty.extend(mirror.prefixes().filter(|covered| is_below(*covered, prefix)));
            }
        }
        self.add_prefixes_by_source(&mut dirty);
        dirty
    }

    /// Adds prefixes with source-specific routes below a changed prefix, because packets may fall back to the
    /// shorter one.
    fn add_prefixes_by_source(&self, dirty: &mut HashSet<Prefix>) {
        let Some(mirror) = self.mirror().filter(|_| dirty.iter().any(Prefix::is_v6)) else { return };
        let is_by_source = |routes: &Wanted| !routes.by_source.is_empty();
        if !mirror.has_routes_by_source() && !self.installed.values().any(is_by_source) {
            return;
        }
        let changed = dirty.iter().filter(|prefix| prefix.is_v6()).copied().collect();
        let parts = mirror.prefixes().filter(|prefix| local_prefixes::has_part(&changed, *prefix));
        dirty.extend(parts);
    }

    fn look_at_links(&mut self, configuration: &Configuration, ports: &Ports, dirty: &mut HashSet<Prefix>) {
        self.news.ingresses = true;
        let now = attached(configuration, ports, self.mirror(), &self.settings, &self.attached);
        if now != self.attached {
            self.news.interfaces = true;
            let before = core::mem::replace(&mut self.attached, now);
            self.leave(&before);
        }
        let own = wanted::own(configuration, &self.attached);
        let old = core::mem::replace(&mut self.sources.own, own);
        let own = &self.sources.own;
        let differs = |prefix: &&Prefix| own.get(prefix) != old.get(prefix);
        dirty.extend(old.keys().chain(own.keys()).filter(differs));
    }

    /// Updates the next hops that lead back to the router.
    fn look_back(&mut self, dirty: &mut HashSet<Prefix>) {
        let back = Back::of(&self.attached, self.mirror());
        if back != self.sources.back {
            self.sources.back = back;
            self.all_anew(dirty);
        }
    }

    /// Adds all prefixes.
    fn all_anew(&self, dirty: &mut HashSet<Prefix>) {
        dirty.extend(self.installed.keys());
        dirty.extend(self.kernel.iter().flat_map(|kernel| kernel.mirror().prefixes()));
    }

    fn look_at_rules(&mut self, configuration: &Configuration, dirty: &mut HashSet<Prefix>) {
        let (tables, left_out) = wanted::tables(configuration, self.mirror());
        if left_out > self.left_out {
            tracing::warn!(
                "{left_out} rules of the kernel (`ip rule`) apply only to some packets and are not followed"
            );
        }
        self.left_out = left_out;
        let local = self.mirror().map(local_prefixes::of_table).unwrap_or_default();
        if tables != self.sources.tables || local != self.sources.local {
            (self.sources.tables, self.sources.local) = (tables, local);
            self.all_anew(dirty);
        }
    }

    /// Updates the workers' tables.
    fn install(&mut self, dirty: HashSet<Prefix>, (links, objects): (bool, bool), now: Nanos) {
        let Self { router, neighbours, attached, kernel, registry, installed, sources, local, news, .. } =
            self;
        let mirror = kernel.as_ref().map(Follow::mirror);
        let mut context = NextHopContext { router, neighbours, view: View { attached, mirror }, now };
        if links || objects {
            registry.refresh(links, &mut context);
            let forwarded =
                installed.iter().filter(|(_, routes)| stays(routes, registry) == Some(Stays::Forwarded));
            news.ingresses |= local.set_forwarded(forwarded.map(|(prefix, _)| *prefix).collect());
        }
        let mut dirty = dirty.into_iter().collect::<Vec<_>>();
        // Shorter prefixes first, because longer ones inherit from them.
        dirty.sort_unstable_by_key(|prefix| (prefix.bits(), *prefix));
        for prefix in dirty {
            let wanted = sources.routes(prefix, mirror);
            let old = installed.get(&prefix).cloned();
            if old == wanted {
                continue;
            }
            let before = old.as_ref().and_then(|routes| stays(routes, registry));
            let like = old.as_ref().and_then(Wanted::only).map(|(_, target)| target);
            let way = wanted.as_ref().and_then(|wanted| registry.take_all(wanted, like, &mut context));
            let now = wanted.as_ref().and_then(|routes| stays(routes, registry));
            news.ingresses |= local.changes(prefix, before, now);
            let was = match way {
                Some(way) => context.router.insert(prefix, way),
                None => context.router.remove(prefix),
            };
            match wanted {
                Some(wanted) => installed.insert(prefix, wanted),
                None => installed.remove(&prefix),
            };
            if let Some(old) = old {
                registry.give_all_back(&old, was, &mut context);
            }
        }
    }

    fn hear_notices(&mut self, now: Nanos) {
        let Some(host_interfaces) = &self.host_interfaces else { return };
        // Cleared first, so that a later notice is seen next time.
        let _: Result<usize, Errno> = rustix::io::read(&host_interfaces.notices, &mut [0_u8; 8]);
        for notice in self.router.notices().take() {
            let (Notice::Wanted { interface, address }
            | Notice::Heard { interface, address, .. }
            | Notice::Silent { interface, address }) = notice;
            let Some(found) = self.attached.iter().find(|attached| attached.interface.id == interface) else {
                continue;
            };
            match (&mut self.kernel, found.interface.owner) {
                (Some(kernel), polder_datapath::route::Owner::Kernel { .. }) => {
                    kernel.resolve(found.index, address)
                }
                _ => self.neighbours.handle(&mut self.router, &found.interface, notice, now),
            }
        }
    }

    /// The router's interface with a kernel index.
    fn by_index(&self, index: u32) -> Option<&Attached> {
        self.attached.iter().find(|attached| attached.index == index)
    }

    /// Interface and MTU of the route to an address, if it is on-link.
    fn link_of(&self, address: IpAddr) -> Option<(InterfaceId, u16)> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let covering = (0..=bits).rev().filter_map(|bits| Prefix::new(address, bits).ok());
        let (_, target) = covering.into_iter().find_map(|prefix| self.installed.get(&prefix))?.only()?;
        match (View { attached: &self.attached, mirror: self.mirror() }).lead(target) {
            next_hops::Lead::Link(interface, mtu) => Some((interface, mtu)),
            next_hops::Lead::Hops(_)
            | next_hops::Lead::Machine(_)
            | next_hops::Lead::Local
            | next_hops::Lead::Broadcast
            | next_hops::Lead::Blackhole
            | next_hops::Lead::Unreachable
            | next_hops::Lead::Prohibit
            | next_hops::Lead::Kernel(_)
            | next_hops::Lead::Nowhere => None,
        }
    }
}

/// Reason why all packets to a prefix stay with the kernel; `None` if some are routed.
fn stays(routes: &Wanted, registry: &NextHopRegistry) -> Option<Stays> {
    if let Some((Origin::Kernel(..), target)) = routes.only()
        && local_prefixes::is_local(target)
    {
        return Some(Stays::Local);
    }
    routes.targets().all(|target| registry.is_kernels(target)).then_some(Stays::Forwarded)
}

/// True if `prefix` is more specific than `other` and inside it.
fn is_below(prefix: Prefix, other: Prefix) -> bool {
    prefix.bits() > other.bits() && other.contains(prefix.address())
}

/// Creates the descriptors that wake the control thread.
fn listen(router: &Router) -> Result<HostInterfaces, Errno> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let notices = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    epoll::add(&all, &notices, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    let wakeup = Arc::clone(&notices);
    router.notices().set_waker(move || {
        // The only possible error is a full counter, which means a pending wake-up.
        let _: Result<usize, Errno> = rustix::io::write(&wakeup, &1_u64.to_ne_bytes());
    });
    Ok(HostInterfaces { all: Arc::new(all), notices })
}
