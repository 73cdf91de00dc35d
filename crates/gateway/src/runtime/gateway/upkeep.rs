//! Periodic work of the control thread, some times a second: ports, next hops, path MTUs, ageing.

use super::start::{RETRY_PORT, bind_static, retry_after};
use super::{Gateway, PortState};
use crate::config::model::Decide;
use crate::device::{GONE, Link, OpenPort, PointToPoint, PortProperties};
use crate::events::EventKind;
use crate::runtime::announce::announce_port;
use crate::runtime::connections::{Marks, SharedKnown};
use crate::runtime::hooks::YieldingPort;
use crate::runtime::neighbour::{self, Neighbours};
use crate::runtime::show::all_drops;
use crate::runtime::tables::{Lasting, tables};
use crate::runtime::worker::{Command, Report};
use anyhow::Result;
use polder_buffers::PortId;
use polder_datapath::forward::{FdbTime, Links};
use polder_datapath::units::Nanos;
use polder_datapath::wire::MacAddress;
use polder_devices::skb::connections::ConnectionTable;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Interval at which a known next hop is resolved again.
const REFRESH_NEIGHBOUR: Nanos = Nanos::from_seconds(30);
/// Interval of the checks for idle memory, and for connections that could not be followed.
const LOOK_AT_MEMORY: Nanos = Nanos::SECOND;
/// Number of FDB buckets that one tick ages.
const SWEEP_BUCKETS: usize = 4096;

impl Gateway {
    /// Does the slow periodic work: ports, next hops, ageing. Call it some times a second. Returns the
    /// maximum time until the next call.
    pub fn tick(&mut self) -> Nanos {
        if self.is_left {
            return Nanos::SECOND;
        }
        let now = self.clock.now();
        while let Ok(report) = self.reports.try_recv() {
            self.hear(report);
        }
        if now.since(self.looked_at) >= LOOK_AT_MEMORY {
            self.looked_at = now;
            self.memory.look();
            self.follow_connections();
        }
        self.end_depth(now);
        self.hooks.repair(now);
        self.hooks.take_events().into_iter().for_each(|event| self.events.note_silently(event));
        self.stop_ports();
        self.look_at_links();
        self.reopen(now);
        if self.is_stale {
            self.follow_interfaces();
        }
        self.look_at_tunnels();
        self.look_at_punts(now);
        self.refresh_next_hops();
        let missing = self.refresh_neighbours(now);
        // A tunnel's path MTU is its interface's MTU for routes.
        self.refresh_paths();
        let pause = self.keep_routing(now);
        self.sweep(now);
        self.look_after_flows(now);
        let mut watch = std::mem::take(&mut self.event_watch);
        if watch.is_due(now) {
            // Programs carry packets of tunnels, too.
            self.count_carried();
            watch.look(self, now);
        }
        self.event_watch = watch;
        if self.history.is_due(now) {
            let drops = all_drops(self);
            self.history.note(now, &drops);
        }
        let is_soon = |port: &PortState| !port.open && port.retry_at < now + Nanos::SECOND;
        let waiting = missing || self.ports.iter().any(is_soon);
        if waiting { pause.min(RETRY_PORT) } else { pause }
    }

    fn hear(&mut self, report: Report) {
        match report {
            Report::Closed(id) => self.close(id, self.why_closed(id)),
            Report::Detached(id) => {
                if let Some(state) = self.ports.iter_mut().find(|state| state.configuration.id == id) {
                    state.detaching = state.detaching.saturating_sub(1);
                }
            }
        }
    }

    /// Reads changes of the devices: address, MTU, carrier.
    fn look_at_links(&mut self) {
        let (mut gone, mut changed, mut links, mut renamed) = (Vec::new(), Vec::new(), Vec::new(), false);
        let events = &self.events;
        for state in self.ports.iter_mut().filter(|state| state.open) {
            let id = state.configuration.id;
            let before = state.facts.as_ref().map(of_link);
            match state.look(events) {
                Ok(is_renamed) => renamed |= is_renamed,
                Err(_) => {
                    gone.push(id);
                    continue;
                }
            }
            if let Some(link) = state.link {
                // A TAP that is down refuses packets, and accepts them as soon as it is up.
                links.push((id, link == Link::Up || state.carries()));
            }
            if state.facts.as_ref().map(of_link) != before {
                changed.push(id);
            }
            state.note_refusals();
            state.note_program_in_front(events);
        }
        if renamed {
            self.renew_hooks();
        }
        // All links first, because entries may lead to another link that goes down too.
        let down = links.into_iter().filter(|&(id, up)| self.set_link(id, up) && !up).count();
        if down > 0 {
            self.end_flows_of_links();
        }
        for id in gone {
            self.close(id, self.why_closed(id));
        }
        if changed.is_empty() {
            return;
        }
        self.follow_interfaces();
        // CoDel depends on the maximum packet length.
        for id in changed {
            self.exchange_queue(id);
            self.exchange_inlet(id);
        }
    }

    /// Rebuilds the tables after a change of interfaces; retries later if that fails.
    pub(super) fn follow_interfaces(&mut self) {
        let was_stale = self.is_stale;
        let rebuilt = self.rebuild();
        self.is_stale = rebuilt.is_err();
        if let Some(error) = rebuilt.err().filter(|_| !was_stale) {
            tracing::error!("cannot apply changes of interfaces: {error:#}; the gateway tries again");
        }
    }

    /// Reason why a queue of the port has closed.
    fn why_closed(&self, id: PortId) -> &'static str {
        let state = self.ports.iter().find(|state| state.configuration.id == id);
        state.and_then(PortState::handle).map_or(GONE, |handle| handle.why_closed())
    }

    /// Detaches a port from all workers; it is opened again later.
    fn close(&mut self, id: PortId, why: &str) {
        // A reopened port counts from zero.
        self.count_carried();
        let Some(state) = self.ports.iter_mut().find(|state| state.configuration.id == id) else { return };
        let retry_at = self.clock.now() + retry_after(&state.configuration);
        if !std::mem::take(&mut state.open) {
            return;
        }
        (state.handle, state.link) = (None, None);
        state.lock = None;
        state.spares.clear();
        let port = state.configuration.name.clone();
        self.events.note(EventKind::PortClosed { port, why: why.to_owned() });
        state.trouble = Some(why.to_owned());
        state.retry_at = retry_at;
        state.detaching = self.workers.len();
        self.note_port_down(id);
        for worker in &self.workers {
            worker.send(Command::Detach(id));
        }
    }

    /// Tries to open closed ports.
    fn reopen(&mut self, now: Nanos) {
        for index in 0..self.ports.len() {
            let state = &self.ports[index];
            if state.open || state.detaching > 0 || state.retry_at > now {
                continue;
            }
            let Some(opened) = self.open_again(index) else { continue };
            match opened {
                Ok(opened) => self.reattach(opened),
                Err(error) => {
                    let state = &mut self.ports[index];
                    state.wait(&error, now + retry_after(&state.configuration));
                }
            }
        }
    }

    fn reattach(&mut self, opened: OpenPort) {
        let id = opened.id;
        self.attach(opened);
        // Address and MTU of the interface may have changed.
        if let Err(error) = self.rebuild() {
            self.close(id, &format!("{error:#}"));
            return;
        }
        if let Some(state) = self.ports.iter().find(|state| state.configuration.id == id) {
            announce_port(state, &self.events);
        }
        self.renew_hooks();
        self.tell_hooks();
        // Its interface may have another index.
        self.watch_tunnels();
    }

    /// Tells the hook watch which ports can yield, and which interfaces' routes the router uses.
    pub(in crate::runtime) fn tell_hooks(&mut self) {
        self.follow_connections();
        let port = |state: &PortState| {
            let (name, handle) = (state.configuration.name.clone(), state.handle()?);
            Some(YieldingPort::new(name, Arc::clone(handle.yield_word()?), handle.flows().cloned()))
        };
        let ports = self.ports.iter().filter_map(port).collect();
        self.hooks.set_yielding(ports, self.lasting.routing.interfaces(), self.devices.connections());
    }

    /// Starts following the kernel's connections once a port may carry some.
    fn follow_connections(&mut self) {
        if let Some(table) = self.devices.connections() {
            let router = &self.configuration.router;
            let marks = Marks { kernel: router.kernel_mark, carried: router.carried_mark };
            let generation = self.hooks.generation();
            self.connections.follow(&self.threads, self.clock, (table, marks), generation);
        }
    }

    /// Table of the connections that ports carry, with the known connections; `None` if no port has `decide =
    /// "kernel"`.
    pub(in crate::runtime) fn connections(&self) -> Option<(Arc<ConnectionTable>, Arc<SharedKnown>)> {
        let known = self.connections.known().map(Arc::clone);
        Some((self.devices.connections()?, known.unwrap_or_default()))
    }

    /// Reason why ports carry no connection.
    pub(in crate::runtime) fn connection_obstacle(&self) -> Option<String> {
        let is_asked = self.configuration.ports.iter().any(|port| port.decide == Decide::Kernel);
        if !is_asked || self.devices.connections().is_none() {
            return Some("the kernel decides for no port (`decide`)".to_owned());
        }
        let is_followed = self.connections.known().is_some_and(|known| !known.lock().totals().has_failed);
        if !is_followed {
            return Some("cannot follow the kernel's connections; see the log for the reason".to_owned());
        }
        let mut obstacles = self.hooks.obstacles();
        obstacles.extend(self.looked_at());
        (!obstacles.is_empty()).then(|| obstacles.join("; "))
    }

    /// Rules that inspect each packet, if there is one from each port to each other port; empty otherwise.
    fn looked_at(&self) -> Vec<String> {
        let deciding = self.configuration.ports.iter().filter(|port| port.decide == Decide::Kernel).count();
        let mut rules = self.hooks.each_packet();
        rules.retain(|rule| rule.ports[0] != rule.ports[1]);
        let consents = self.configuration.router.carried_mark.is_some();
        if consents || rules.len() < deciding * deciding.saturating_sub(1) {
            return Vec::new();
        }
        rules.sort_by(|one, other| one.rule.cmp(&other.rule));
        rules.dedup_by(|one, other| one.rule == other.rule);
        rules.into_iter().map(|rule| rule.rule).collect()
    }

    /// Stops ports and their tunnels while a packet hook exists, if the file asks for that.
    fn stop_ports(&mut self) {
        // A stopped port stays stopped while the hooks are unknown.
        let Some(names) = self.hooks.stopped() else { return };
        let ports = self.configuration.ports.iter().filter(|port| names.contains(&port.name));
        let ports = ports.map(|port| port.id).collect::<BTreeSet<_>>();
        let tunnels = self.configuration.tunnels.iter().filter(|tunnel| ports.contains(&tunnel.port));
        let stopped = ports.iter().copied().chain(tunnels.map(|tunnel| tunnel.id)).collect();
        if self.lasting.stopped == stopped {
            return;
        }
        self.lasting.stopped = stopped;
        if let Err(error) = self.rebuild() {
            tracing::error!("cannot stop or resume ports: {error:#}");
        }
    }

    /// Updates the interface names in the hook watch.
    fn renew_hooks(&mut self) {
        let ports = self.hook_ports(&self.configuration);
        self.hooks.renew(|| ports);
    }

    /// Rebuilds the tables from the configuration and the open ports, and replaces them.
    pub(super) fn rebuild(&mut self) -> Result<()> {
        let facts = self.facts();
        let mut tables = tables(&self.configuration, &facts, &mut self.lasting, &self.links)?;
        tables.fast_paths = self.fast_paths(&tables);
        let carried = tables.fast_paths.ports().collect();
        self.tables.replace(tables);
        // Addresses of members may have changed.
        bind_static(&self.tables.latest(), self.clock.now());
        let configuration = self.configuration.clone();
        self.end_flows(&configuration, carried);
        self.wake_workers();
        Ok(())
    }

    /// Properties of ports; a closed port's are from its last opening.
    pub(super) fn facts(&self) -> HashMap<PortId, PortProperties> {
        let known = |state: &PortState| Some((state.configuration.id, state.facts.clone()?));
        self.ports.iter().filter_map(known).collect()
    }

    /// Updates the next hops of tunnels that follow the kernel's routes.
    fn refresh_next_hops(&mut self) {
        let followed = self.configuration.tunnels.iter().filter_map(|tunnel| {
            let port = self.ports.iter().find(|port| port.configuration.id == tunnel.port && port.open)?;
            let is_asked = tunnel.next_hop.is_none() && tunnel.next_hop_mac.is_none();
            Some((tunnel, port.facts.as_ref()?.interface.as_str())).filter(|_| is_asked)
        });
        let changed = self.next_hops.refresh(&followed.collect::<Vec<_>>());
        for (tunnel, next_hop) in &changed {
            let Some(state) = self.lasting.tunnels.get(&tunnel.name) else { continue };
            // The old neighbour is another host.
            state.next_hop.set_address(None);
            let (tunnel, up) = (tunnel.name.clone(), !self.lasting.dead.contains(&tunnel.id));
            let state = format!("next hop {next_hop}, by the kernel's route");
            self.events.note(EventKind::Tunnel { tunnel, state, up });
        }
        if !changed.is_empty() {
            self.count_moves();
        }
    }

    /// Updates the next hops' link-layer addresses. Returns true if one is missing.
    fn refresh_neighbours(&mut self, now: Nanos) -> bool {
        let mut missing = false;
        let (mut neighbours, mut asked) = (Neighbours::default(), HashSet::new());
        for tunnel in &self.configuration.tunnels {
            let Some(state) = self.lasting.tunnels.get(&tunnel.name) else { continue };
            if tunnel.next_hop_mac.is_some() {
                continue;
            }
            let port = self.ports.iter().find(|port| port.configuration.id == tunnel.port && port.open);
            let Some((port, facts)) = port.and_then(|port| Some((port, port.facts.as_ref()?))) else {
                continue;
            };
            let next_hop = self.next_hops.of(tunnel);
            let far = facts.link_addresses.as_ref().map(|link| link.neighbour);
            let found = match port.configuration.device.interface() {
                _ if far.is_some() => far,
                Some(_) => neighbours.find(&facts.interface, next_hop),
                None => self.lasting.routing.own_neighbour(tunnel.port, next_hop),
            };
            if found.is_some() && state.next_hop.address() != found {
                state.next_hop.set_address(found);
                // Entries' outer headers contain the address.
                self.count_moves();
            }
            missing |= state.next_hop.address().is_none();
            if far.is_some() {
                // The other end of a point-to-point link is not asked for.
                continue;
            }
            let key = (tunnel.port, next_hop);
            let asked_at = self.asked_at.get(&key).copied().unwrap_or_default();
            let patience = if found.is_some() { REFRESH_NEIGHBOUR } else { Nanos::SECOND };
            if asked_at == Nanos(0) || now.since(asked_at) >= patience {
                asked.insert(key);
            }
        }
        for (port, next_hop) in asked {
            let facts = self.ports.iter().find(|state| state.configuration.id == port);
            let Some(facts) = facts.and_then(|state| state.facts.as_ref()) else { continue };
            neighbour::resolve(&facts.interface, next_hop);
            self.asked_at.insert((port, next_hop), now);
        }
        missing
    }

    /// Updates the path MTUs of tunnels.
    fn refresh_paths(&mut self) {
        let tunnels = self.configuration.tunnels.iter().filter_map(|tunnel| {
            let state = self.lasting.tunnels.get(&tunnel.name)?;
            let port = self.ports.iter().find(|port| port.configuration.id == tunnel.port)?;
            let interface = port.facts.as_ref()?.interface.as_str();
            Some(((tunnel.local, tunnel.remote, tunnel.carrier().protocol().0), interface, &**state))
        });
        if self.paths.refresh(&tunnels.collect::<Vec<_>>()) {
            // Programs check packet lengths against it.
            self.count_moves();
        }
    }

    /// Ages out FDB entries, some buckets at a time.
    fn sweep(&mut self, now: Nanos) {
        for bridge in &self.configuration.bridges {
            let Some(fdb) = self.lasting.fdbs.get(&bridge.name) else { continue };
            let cursor = self.sweeps.entry(bridge.name.clone()).or_default();
            fdb.sweep(cursor, SWEEP_BUCKETS, FdbTime::new(now, bridge.ageing_seconds));
        }
    }
}

impl Gateway {
    /// Records a tunnel's link state. When a tunnel goes down, all flows end, because any may take another
    /// path; when it comes up, none uses it yet.
    pub(super) fn note_tunnel(&self, tunnel: PortId, up: bool) {
        if self.set_link(tunnel, up) && !up {
            self.count_moves();
        }
    }

    /// Records that a port's link is down, and ends the flows that use it.
    pub(super) fn note_port_down(&mut self, port: PortId) {
        if self.set_link(port, false) {
            self.end_flows_of_links();
        }
    }

    /// Ends the entries of links that went down; ends all entries if the tables cannot be rebuilt.
    fn end_flows_of_links(&mut self) {
        self.follow_interfaces();
        if self.is_stale {
            self.count_moves();
        }
    }

    /// Records a link's state; returns true if it changed.
    pub(super) fn set_link(&self, port: PortId, up: bool) -> bool {
        note_link(&self.links, &self.lasting, port, up)
    }
}

/// Properties of a port that the tables depend on.
fn of_link(facts: &PortProperties) -> (u32, MacAddress, Option<PointToPoint>) {
    (facts.mtu, facts.mac, facts.link_addresses.clone())
}

/// Records a link's state; returns true if it changed. When a port goes down, its learned addresses are
/// removed, because the stations may be behind another port.
fn note_link(links: &Links, lasting: &Lasting, port: PortId, up: bool) -> bool {
    let is_news = links.set(port, up);
    if is_news && !up {
        for fdb in lasting.fdbs.values() {
            fdb.flush_port(port);
        }
    }
    is_news
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_datapath::forward::{Fdb, FdbKey, FdbOptions};

    #[test]
    fn what_was_learned_behind_a_link_that_went_down_is_forgotten() {
        let (links, mut lasting) = (Links::new(2), Lasting::default());
        let fdb = Arc::new(Fdb::new(FdbOptions { capacity: 64, seed: 1 }));
        lasting.fdbs.insert("br0".to_owned(), Arc::clone(&fdb));
        let (time, key) = (FdbTime { second: 1, ageing: 300 }, |last| MacAddress([2, 0, 0, 0, 0, last]));
        for port in 0..2 {
            fdb.learn(FdbKey::new(key(port), 0), PortId(u16::from(port)), time);
        }
        note_link(&links, &lasting, PortId(0), true);
        assert_eq!(fdb.occupied(), 2);
        note_link(&links, &lasting, PortId(0), false);
        assert_eq!(fdb.entries().map(|entry| entry.port).collect::<Vec<_>>(), [PortId(1)]);
    }
}
