//! The control thread's work for the router: following the kernel's tables and telling workers and programs.

use super::{FilteredPorts, Gateway};
use crate::config::model::{Decide, Role, Tunnel};
use crate::device::TunnelLink;
use crate::events::EventKind;
use crate::kernel::hold::{HoldNews, protocol_name};
use crate::runtime::routing::{AttachedPort, Ports};
use crate::runtime::tunnels::add_links;
use polder_datapath::units::Nanos;
use polder_devices::af_xdp::{Families, YieldCause};
use std::collections::{HashMap, HashSet};
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Minimum pause between two calls.
const A_MOMENT: Nanos = Nanos::from_millis(1);
/// Interval of neighbour requests for a gateway without a known link-layer address.
const RETRY_GATEWAY: Nanos = Nanos::from_millis(250);

impl Gateway {
    /// Descriptor that is readable when [`Gateway::follow`] has work; `None` if no routes are followed.
    pub fn ear(&self) -> Option<Arc<OwnedFd>> {
        self.lasting.routing.ear()
    }

    /// Handles netlink messages and workers' notices about routes and neighbours. Call it when
    /// [`Gateway::ear`] is readable. Returns the time until the next call.
    pub fn follow(&mut self) -> Nanos {
        let (now, ports) = (self.clock.now(), self.seen());
        // Read before the kernel's messages, so that a later notice has a later generation.
        let generation = self.hooks.generation();
        let changed = std::mem::replace(&mut self.seen, ports) != self.seen;
        self.set_tunnel_devices();
        if let Err(error) = self.lasting.routing.attend(&self.configuration, &self.seen, now, changed) {
            tracing::error!("{error:#}; routes are unchanged");
        }
        if self.pass_on() {
            return Nanos(0);
        }
        let is_settled = self.lasting.routing.is_settled();
        let unread = is_settled.then(|| self.hooks.routes_handled(generation, now)).flatten();
        let deadline = self.lasting.routing.next_deadline();
        // At least a millisecond: the clock may still be slightly before the deadline.
        let pause = deadline.map_or(Nanos::SECOND, |deadline| deadline.since(self.clock.now()));
        pause.min(unread.unwrap_or(pause)).max(A_MOMENT)
    }

    /// Restarts the router for a changed configuration.
    pub(super) fn route_anew(&mut self) {
        self.seen = self.seen();
        self.set_tunnel_devices();
        let clock = self.clock;
        let begun = self.lasting.routing.begin(&self.configuration, &self.seen, || clock.now());
        if let Err(error) = begun {
            tracing::error!("{error:#}; routes are unchanged");
        }
        self.pass_on();
    }

    /// Gives the devices of tunnels the MTU and the state of their tunnels.
    fn set_tunnel_devices(&self) {
        let device = |state: &'_ super::PortState| state.configuration.device.tun().map(ToOwned::to_owned);
        let devices = self.ports.iter().filter_map(|state| Some((device(state)?, state.handle()?)));
        let devices = devices.collect::<HashMap<_, _>>();
        if devices.is_empty() {
            return;
        }
        let underlays = self.ports.iter().filter(|state| state.carries());
        let underlays = underlays.map(|state| state.configuration.id).collect::<HashSet<_>>();
        for tunnel in &self.configuration.tunnels {
            let Some(handle) = tunnel.device.as_ref().and_then(|device| devices.get(device)) else {
                continue;
            };
            let seen = self.seen.get(&tunnel.id);
            handle.set_tunnel_link(&TunnelLink {
                mtu: seen.map(|seen| device_mtu(tunnel, seen.facts.mtu)),
                carrier: seen.is_some_and(|seen| seen.up) && underlays.contains(&tunnel.port),
                addresses: tunnel.addresses.clone(),
            });
        }
    }

    /// Does the due work of the router. Returns the time until the next call.
    pub(super) fn keep_routing(&mut self, now: Nanos) -> Nanos {
        if self.lasting.routing.ear().is_none() {
            return Nanos::SECOND;
        }
        let pause = self.follow();
        if self.lasting.routing.ask_neighbours(now) { pause.min(RETRY_GATEWAY) } else { pause }
    }

    /// Applies route changes that were found during a take-over. Flows stay, because the predecessor process
    /// knows of the same changes.
    pub(super) fn take_route_news(&mut self) {
        if self.lasting.routing.ear().is_some() {
            self.lasting.routing.take_news();
            self.open_doors();
        }
    }

    /// Tells the workers and programs about changes of routes and interfaces. Returns true if interfaces
    /// changed.
    fn pass_on(&mut self) -> bool {
        for news in self.lasting.routing.take_hold_news() {
            self.events.note(hold_event(news));
        }
        let news = self.lasting.routing.take_news();
        if news.routes {
            self.count_route_changes();
        }
        if news.interfaces {
            self.follow_interfaces();
            self.tell_hooks();
        }
        if news.ingresses {
            self.open_doors();
        }
        news.more
    }

    /// Sets the ingresses and local prefixes in the programs of router ports.
    pub(super) fn open_doors(&self) {
        self.set_punt_ports();
        // Filters see every packet of their ports; where the kernel decides, also packets for translated
        // addresses.
        let filtered = FilteredPorts::of(&self.configuration);
        let lands = [true, false].map(|forwarded| self.lasting.routing.lands(forwarded));
        for state in self.ports.iter().filter(|state| state.configuration.role == Role::Router) {
            let Some(handle) = state.handle() else { continue };
            let ingresses = self.lasting.routing.ingresses(state.configuration.id);
            let is_filtered = filtered.contains(state.configuration.id);
            let decides = state.configuration.decide == Decide::Kernel;
            let lands = if decides && is_filtered { &[][..] } else { &lands[usize::from(is_filtered)] };
            if let Err(error) = handle.set_router(&ingresses, lands) {
                tracing::error!(port = state.configuration.name, %error, "cannot update the addresses to be \
                    routed");
            }
            match handle.yield_word().filter(|_| decides) {
                Some(word) if is_filtered && word.has(YieldCause::Decision) => {
                    word.end(YieldCause::Decision, u64::MAX);
                    // Earlier packets of connections have passed no filter.
                    self.devices.connections().iter().for_each(|connections| connections.raise_generation());
                }
                Some(word) if !is_filtered => {
                    word.leave(YieldCause::Decision, Families { v4: true, v6: true }, 0);
                }
                Some(_) | None => {}
            }
        }
    }

    /// Ports as the router sees them.
    fn seen(&self) -> Ports {
        let seen = |state: &super::PortState| {
            let up = state.open && state.handle().is_none_or(|handle| handle.carries());
            let punts = self.punts(state);
            Some((state.configuration.id, AttachedPort { facts: state.facts.clone()?, up, punts }))
        };
        let mut ports = self.ports.iter().filter_map(seen).collect();
        add_links(&mut ports, &self.configuration, &self.lasting);
        ports
    }
}

/// MTU of the device of a tunnel with an MTU of `mtu` bytes: not below IPv6's minimum where the tunnel carries IPv6 and
/// sends packets of this size in fragments, because the kernel has no IPv6 on an interface with less.
fn device_mtu(tunnel: &Tunnel, mtu: u32) -> u32 {
    let has_v6 = tunnel.kind.carries(Ipv6Addr::UNSPECIFIED.into());
    if has_v6 && !tunnel.dont_fragment { mtu.max(LEAST_MTU_V6) } else { mtu }
}

/// Minimum MTU of an IPv6 link in bytes (RFC 8200, 5).
const LEAST_MTU_V6: u32 = 1280;

fn hold_event(news: HoldNews) -> EventKind {
    let (protocol, held, routes) = match news {
        HoldNews::Began { protocol, routes } => (protocol, true, routes),
        HoldNews::Ended { protocol, expired } => (protocol, false, expired),
    };
    EventKind::RoutesHeld { protocol: protocol_name(protocol), held, routes: routes as u64 }
}
