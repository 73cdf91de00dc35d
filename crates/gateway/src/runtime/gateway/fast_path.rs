//! Flows that ports' programs carry: which ports have a fast path, how long entries stay, and the packets
//! they carried.

use super::flow_grounds::Grounds;
use super::{Gateway, PortState};
use crate::config::model::{self as config, Configuration, FastPathUse, Order, Role};
use anyhow::Result;
use polder_buffers::PortId;
use polder_datapath::counters::QueueCounters;
use polder_datapath::engine::Tables;
use polder_datapath::fast_path::{FastPath as _, FastPathPort, FastPaths, FlowKey};
use polder_datapath::forward::FdbTime;
use polder_datapath::route::{PairDecisions, PairTables};
use polder_datapath::units::Nanos;
use polder_datapath::wire::MacAddress;
use polder_devices::af_xdp::{self, FailedRedirects, TraceError};
use polder_devices::skb::{Carried, Entry, FlowTable, Reached};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Interval of the checks of entries.
const INTERVAL: Nanos = Nanos::SECOND;
/// Number of checks after which an idle entry is removed.
const IDLE_LOOKS: u32 = 10;
/// Number of checks after which an idle gateway asks again which interfaces accept redirected frames.
const RARELY: u32 = 16;
/// Length of an Ethernet header, in bytes.
const ETHERNET: u32 = 14;

/// State of the maintenance of flows.
#[derive(Debug, Default)]
pub(super) struct FlowUpkeep {
    /// Version of the workers' tables, one more with each change.
    version: u64,
    /// Inputs of the latest tables; `None` before the first tables. A predecessor process has equal inputs.
    grounds: Option<Grounds>,
    /// Running captures, each with its port or tunnel.
    pub(super) captures: BTreeMap<u64, PortId>,
    looked_at: Nanos,
    looks: u32,
    /// Number of published entries at the last check.
    published: u64,
    /// Packet count of each entry at the last check, and the number of checks since it last changed.
    known: HashMap<(PortId, FlowKey), (u64, u32)>,
    /// Counters at the kernel's tracepoints, or the reason why there are none.
    failed: Option<Result<FailedRedirects, TraceError>>,
}

/// Source of the number of failed redirects to a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::runtime) enum FailureSource {
    /// Kernel tracepoints.
    Tracepoint,
    /// The interface's own counters, with the reason why tracepoints are not used.
    Interface(String),
}

impl FlowUpkeep {
    /// State whose first tables have this version.
    pub(super) fn from_version(version: u64) -> Self {
        Self { version: version.saturating_sub(1), ..Self::default() }
    }

    /// True if a capture must see all packets of a port or tunnel.
    fn is_captured(&self, port: PortId) -> bool {
        self.captures.values().any(|&captured| captured == port)
    }
}

/// Reason why a port's program carries no flows; `None` if it carries them.
pub(in crate::runtime) fn obstacle(gateway: &Gateway, state: &PortState) -> Option<&'static str> {
    obstacle_beside_stages(gateway, state).or_else(|| gateway.tables().obstacle(state.configuration.id))
}

/// As [`obstacle`], without the stages' own conditions.
fn obstacle_beside_stages(gateway: &Gateway, state: &PortState) -> Option<&'static str> {
    let (port, configuration) = (&state.configuration, &gateway.configuration);
    let queues = state.facts.as_ref().map(|facts| facts.queues);
    if port.fast_path == FastPathUse::Off {
        Some("switched off")
    } else if state.handle().and_then(|handle| handle.flows()).is_none() {
        Some(OTHER_MODE)
    } else if gateway.flows.is_captured(port.id) {
        Some(CAPTURED)
    } else if port.order != Order::Queue || queues != Some(usize::from(configuration.gateway.workers)) {
        Some("its packets are handed to other workers")
    } else if port.way_out().is_some() {
        Some("it has a queue")
    } else if port.way_in().is_some() {
        Some("its `shaper` limits what comes in")
    } else if port.mtu.is_some() {
        Some("its configured MTU differs from the interface's")
    } else {
        configuration.is_filtered(port.id).then_some(FILTERED)
    }
}

/// Reason why a tunnel has no fast path, from its configuration and its underlay; `None` if it may have one.
pub(in crate::runtime) fn tunnel_obstacle(
    gateway: &Gateway,
    filtered: &FilteredPorts,
    tunnel: &config::Tunnel,
) -> Option<&'static str> {
    let tables = gateway.tables();
    let underlay = gateway.ports.iter().find(|state| state.configuration.id == tunnel.port);
    if filtered.contains(tunnel.id) {
        Some(FILTERED)
    } else if gateway.flows.is_captured(tunnel.id) {
        Some(CAPTURED)
    } else if underlay.is_none_or(|underlay| obstacle(gateway, underlay).is_some()) {
        Some("its underlay port has none")
    } else if underlay.is_some_and(|underlay| underlay.configuration.role == Role::Router) {
        Some("its underlay port is a router's port")
    } else {
        tables.obstacle(tunnel.id)
    }
}

const OTHER_MODE: &str = "only interfaces in copy mode have one, and none with `on_exit = \"drop\"`";
const CAPTURED: &str = "a capture runs on it";
const FILTERED: &str = "filters examine its packets";

/// Ports and tunnels that filters apply to.
pub(in crate::runtime) struct FilteredPorts {
    /// True if a rule applies to all of them.
    all: bool,
    named: HashSet<PortId>,
}

impl FilteredPorts {
    /// Filtered ports and tunnels of a configuration.
    pub(in crate::runtime) fn of(configuration: &Configuration) -> Self {
        let all = configuration.filters.iter().any(|filter| filter.ports.is_empty());
        Self { all, named: configuration.filters.iter().flat_map(|filter| &filter.ports).copied().collect() }
    }

    pub(in crate::runtime) fn contains(&self, port: PortId) -> bool {
        self.all || self.named.contains(&port)
    }
}

impl Gateway {
    /// Fast paths for new tables, with a new version.
    pub(super) fn fast_paths(&mut self, tables: &Tables) -> FastPaths {
        self.flows.version += 1;
        self.find_reached();
        self.watch_redirects();
        let most = self.ports.iter().map(|state| usize::from(state.configuration.id.0) + 1).max();
        let mut ports = vec![None; most.unwrap_or(0)];
        for state in &self.ports {
            let port = state.configuration.id;
            ports[usize::from(port.0)] = self.fast_path(state).filter(|_| tables.obstacle(port).is_none());
        }
        let configuration = &self.configuration;
        let filtered = FilteredPorts::of(configuration);
        let is_routers = |port| configuration.port(port).is_some_and(|port| port.role == Role::Router);
        let is_open = |port| {
            let underlay = tables.tunnels.get(port).map(|tunnel| tunnel.underlay().port);
            let is_looked_at = filtered.contains(port) || self.lasting.stopped.contains(&port);
            let is_carried =
                !is_looked_at && !self.flows.is_captured(port) && tables.obstacle(port).is_none();
            is_carried && !underlay.is_some_and(is_routers)
        };
        let is_guarded =
            |port| configuration.port(port).is_some_and(|port: &config::Port| port.source_guard.is_some());
        FastPaths::new(self.flows.version, ports).with_tunnels(&tables.tunnels, is_open).guarding(is_guarded)
    }

    fn fast_path(&self, state: &PortState) -> Option<FastPathPort> {
        let (flows, facts) = (state.handle()?.flows()?, state.facts.as_ref()?);
        if self.lasting.stopped.contains(&state.configuration.id) {
            return None;
        }
        let table: Arc<FlowTable> = Arc::clone(flows);
        let (interface, longest) = (table.interface(), facts.mtu + ETHERNET);
        let port = FastPathPort { table, interface, longest };
        obstacle_beside_stages(self, state).is_none().then_some(port)
    }

    /// Counts failed redirects with these programs.
    pub(in crate::runtime) fn trace_redirects(&mut self, failed: Result<FailedRedirects, TraceError>) {
        if let Err(error) = &failed {
            tracing::debug!("failed redirects are counted by the interfaces that they go to: {error}");
        }
        self.flows.failed = Some(failed);
        self.watch_redirects();
    }

    /// Sets the ports whose failed redirects are traced: ports whose XDP program redirects.
    fn watch_redirects(&self) {
        let Some(Ok(failed)) = &self.flows.failed else { return };
        let traced = self.flow_tables().filter(|(_, table)| table.needs_drivers());
        if let Err(errno) = failed.watch(traced.map(|(_, table)| table.interface()).collect()) {
            tracing::warn!("failed redirects of a port are not counted: {errno}");
        }
    }

    /// By port, the number of redirected packets that the port's interface dropped, with the source of the
    /// number; ports without a fast path are left out.
    pub(in crate::runtime) fn failed_redirects(&self) -> HashMap<PortId, (u64, FailureSource)> {
        let traced = match &self.flows.failed {
            Some(Ok(failed)) => failed.counts().map_err(|errno| errno.to_string()),
            Some(Err(error)) => Err(error.to_string()),
            None => Err("none was asked for".to_owned()),
        };
        let count = |(state, table): (&PortState, &Arc<FlowTable>)| {
            let port = state.configuration.id;
            let reason = match &traced {
                Ok(_) if self.is_untraced(port) => "no tracepoint sees what TCX programs redirect".to_owned(),
                Ok(counts) => {
                    let count = counts.get(&table.interface()).copied().unwrap_or(0);
                    return Some((port, (count, FailureSource::Tracepoint)));
                }
                Err(reason) => reason.clone(),
            };
            Some((port, (state.handle()?.link_dropped()?, FailureSource::Interface(reason))))
        };
        self.flow_tables().filter_map(count).collect()
    }

    /// True if programs without a tracepoint may redirect to a port; its own program is included.
    fn is_untraced(&self, port: PortId) -> bool {
        let tables = self.tables.latest();
        let egress = |to| tables.tunnels.get(to).map_or(to, |tunnel| tunnel.underlay().port);
        let mut untraced = self.flow_tables().filter(|(_, table)| !table.needs_drivers());
        untraced.any(|(state, table)| {
            state.configuration.id == port || table.carried().iter().any(|((_, to), _)| egress(*to) == port)
        })
    }

    /// Finds the interfaces that accept frames redirected by XDP programs.
    fn find_reached(&self) {
        let needy = || self.flow_tables().filter(|(_, table)| table.needs_drivers());
        if needy().next().is_none() {
            return;
        }
        let interfaces = self.flow_tables().map(|(_, table)| table.interface());
        let reached = interfaces.filter_map(|interface| {
            Some(Reached { interface, takes_parts: af_xdp::takes_frames(interface)? })
        });
        let reached = reached.collect::<Vec<_>>();
        needy().for_each(|(_, table)| table.set_reached(reached.clone()));
    }

    /// Rebuilds the tables with the fast paths of the open ports, if there are any.
    pub(super) fn renew_fast_paths(&mut self) -> Result<()> {
        if self.flow_tables().next().is_some() { self.rebuild() } else { Ok(()) }
    }

    /// As [`Self::renew_fast_paths`]; logs an error.
    pub(super) fn say_renewed(&mut self) {
        if let Err(error) = self.renew_fast_paths() {
            tracing::error!("cannot change the fast paths: {error:#}");
        }
    }

    /// Ends the entries that `next` changes, after its tables were installed without fast paths.
    pub(super) fn end_changed_flows(&mut self, next: &Configuration) {
        self.flows.version += 1;
        let carried = self.flows.grounds.as_ref().map(Grounds::carried).unwrap_or_default();
        self.end_flows(next, carried);
    }

    /// Version of the tables that flows are carried by.
    pub(in crate::runtime) fn table_version(&self) -> u64 {
        self.flows.version
    }

    /// Adopts the version of a predecessor's tables, whose entries stay valid; rebuilds the tables if the
    /// version differs.
    pub(super) fn go_by_tables(&mut self, version: u64) -> Result<()> {
        if version == self.flows.version {
            return Ok(());
        }
        self.flows.version = self.flows.version.max(version);
        self.renew_fast_paths()
    }

    /// Ends the entries whose ports or tunnels the tables of `configuration` may treat differently than
    /// before. `carried` has the ports and tunnels whose flows are carried.
    pub(super) fn end_flows(&mut self, configuration: &Configuration, carried: HashSet<PortId>) {
        let facts = |(id, facts)| (id, (facts, self.links.is_up(id)));
        let facts = self.facts().into_iter().map(facts).collect();
        let grounds = Grounds::new(configuration, facts, self.lasting.dead.clone(), carried);
        let before = self.flows.grounds.take();
        let is_unchanged = before.as_ref().map(|before| grounds.unchanged(before));
        let is_changed = |(from, to)| is_unchanged.as_ref().is_some_and(|same| !same(from) || !same(to));
        let version = self.flows.version;
        self.flow_tables().for_each(|(_, table)| table.set_version(version, is_changed));
        drop(is_unchanged);
        let addresses = before.as_ref().map(|before| grounds.changed_addresses(before)).unwrap_or_default();
        self.flow_tables().for_each(|(_, table)| remove_stations(table, &addresses));
        self.flows.grounds = Some(grounds);
    }

    /// Ends all entries, because stations may have moved.
    pub(super) fn count_moves(&self) {
        self.flow_tables().for_each(|(_, table)| table.count_move());
    }

    /// Ends all entries of router ports, because routes or neighbours have changed.
    pub(super) fn count_route_changes(&self) {
        let routers = self.flow_tables().filter(|(state, _)| state.configuration.role == Role::Router);
        routers.for_each(|(_, table)| table.count_move());
    }

    pub(super) fn flow_tables(&self) -> impl Iterator<Item = (&PortState, &Arc<FlowTable>)> {
        self.ports.iter().filter_map(|state| Some((state, state.handle()?.flows()?)))
    }

    /// Valid entries of all ports.
    pub(in crate::runtime) fn flows(&self) -> Vec<Entry> {
        let tables = self.flow_tables();
        tables.flat_map(|(_, table)| valid_entries(table).collect::<Vec<_>>()).collect()
    }

    /// Adds packets that programs have carried since the last call to the counters of their ports and
    /// tunnels.
    pub(in crate::runtime) fn count_carried(&mut self) {
        let mut sums = Vec::new();
        for state in &mut self.ports {
            let Some(table) = state.handle.as_ref().and_then(|handle| handle.flows()) else { continue };
            let now = table.carried();
            for (way, carried) in &now {
                let before = state.carried_before.iter().find(|(known, _)| known == way);
                let before = before.map(|(_, before)| *before).unwrap_or_default();
                let (packets, bytes) = (carried.packets - before.packets, carried.bytes - before.bytes);
                sums.push((*way, Carried { packets, bytes }, Arc::clone(&state.carried)));
            }
            state.carried_before = now;
        }
        for ((from, to), carried, device) in sums.into_iter().filter(|(_, carried, _)| carried.packets > 0) {
            self.book((from, to), carried, &device);
        }
    }

    /// Counts packets that a program carried from the port or tunnel `from` to `to`; `device` has the
    /// receiving port's counters.
    fn book(&self, (from, to): (PortId, PortId), carried: Carried, device: &QueueCounters) {
        let Carried { packets, bytes } = carried;
        let tables = self.tables.latest();
        let mut received = bytes;
        if let Some(tunnel) = tables.tunnels.get(from) {
            received += packets * u64::from(tunnel.overhead());
            let counters = &tunnel.state().carried;
            counters.received.add(packets);
            counters.received_bytes.add(bytes);
            counters.last_received.set(self.clock.now().0);
        }
        device.received.add(packets);
        device.received_bytes.add(received);
        let (mut transmitted, mut egress) = (bytes, to);
        if let Some(tunnel) = tables.tunnels.get(to) {
            transmitted += packets * u64::from(tunnel.overhead());
            egress = tunnel.underlay().port;
            tunnel.state().carried.sent.add(packets);
            tunnel.state().carried.sent_bytes.add(bytes);
        }
        let state = self.ports.iter().find(|state| state.configuration.id == egress);
        // For a removed egress port, the receiving port's counters keep the conservation law.
        let counters = state.map_or(device, |state| &state.carried);
        counters.transmitted.add(packets);
        counters.transmitted_bytes.add(transmitted);
    }

    /// Refreshes the ages of stations whose packets are carried, and removes entries that are idle or whose
    /// decision has changed.
    pub(super) fn look_after_flows(&mut self, now: Nanos) {
        self.count_carried();
        if now.since(self.flows.looked_at) < INTERVAL {
            return;
        }
        self.flows.looked_at = now;
        self.flows.looks = self.flows.looks.wrapping_add(1);
        let published = self.flow_tables().map(|(_, table)| table.published()).sum();
        let is_idle = std::mem::replace(&mut self.flows.published, published) == published
            && self.flows.known.is_empty();
        if !is_idle || self.flows.looks.is_multiple_of(RARELY) {
            self.find_reached();
        }
        if is_idle {
            return;
        }
        let before = std::mem::take(&mut self.flows.known);
        let tables = self.tables.latest();
        let Tables { routers, tunnels, fast_paths, .. } = &*tables;
        let pairs = PairDecisions::new(PairTables { routers, tunnels, fast_paths });
        let mut look = Look { tables: &tables, before: &before, second: FdbTime::new(now, 0).second, pairs };
        let known = self.flow_tables().flat_map(|(_, table)| look.at(table)).collect();
        self.flows.known = known;
    }
}

/// A check of entries, with their packet counts and idle checks at the last one.
struct Look<'a> {
    tables: &'a Tables,
    before: &'a HashMap<(PortId, FlowKey), (u64, u32)>,
    second: u32,
    /// Current decisions of routers.
    pairs: PairDecisions<'a>,
}

impl Look<'_> {
    /// Checks the entries of a port: removes stale ones and, in a nearly full table, the longest idle ones.
    /// Returns the remaining entries.
    fn at(&mut self, table: &FlowTable) -> Vec<((PortId, FlowKey), (u64, u32))> {
        let stays = |entry: Entry| {
            let key = (entry.from, entry.flow);
            let (packets, looks) = self.before.get(&key).copied().unwrap_or_default();
            let was_used = entry.packets != packets;
            let looks = if was_used { 0 } else { looks + 1 };
            let stays = looks < IDLE_LOOKS && entry.is_valid && self.confirms(&entry, was_used);
            if !stays {
                table.remove(&entry.flow);
            }
            stays.then_some((key, (entry.packets, looks)))
        };
        let mut staying =
            table.entries().unwrap_or_default().into_iter().filter_map(stays).collect::<Vec<_>>();
        for (_, flow) in give_up(&mut staying, FlowTable::LEFT_BY_A_LOOK) {
            table.remove(&flow);
        }
        staying
    }

    /// True if the current tables would make the same decision for an entry's packets.
    fn confirms(&mut self, entry: &Entry, was_used: bool) -> bool {
        let Entry { from, to, tag, vlan, .. } = *entry;
        match &entry.flow {
            FlowKey::Stations(pair) => {
                self.tables.bridges.confirm((from, pair), to, (tag, vlan), (was_used, self.second))
            }
            FlowKey::Addresses(pair) => self.pairs.decide(from, pair).is_some_and(|now| {
                (now.port, now.tag, now.link) == (to, tag, entry.link) && now.longest >= entry.longest
            }),
        }
    }
}

/// Removes the longest idle entries until `most` are left; returns their keys.
fn give_up<K>(staying: &mut Vec<(K, (u64, u32))>, most: usize) -> Vec<K> {
    let surplus = staying.len().saturating_sub(most);
    if surplus == 0 {
        return Vec::new();
    }
    staying.sort_unstable_by_key(|&(_, (_, looks))| Reverse(looks));
    staying.drain(..surplus).map(|(key, _)| key).collect()
}

/// Removes the entries of stations with these addresses.
fn remove_stations(table: &FlowTable, addresses: &BTreeSet<MacAddress>) {
    if addresses.is_empty() {
        return;
    }
    let is_meant = |flow: &FlowKey| match flow {
        FlowKey::Stations(pair) => addresses.contains(&pair.source) || addresses.contains(&pair.destination),
        FlowKey::Addresses(pair) => addresses.contains(&pair.station),
    };
    let entries = table.entries().unwrap_or_default();
    entries.iter().filter(|entry| is_meant(&entry.flow)).for_each(|entry| table.remove(&entry.flow));
}

/// Entries of a table that are in use.
fn valid_entries(table: &FlowTable) -> impl Iterator<Item = Entry> {
    table.entries().unwrap_or_default().into_iter().filter(|entry| entry.is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_unused_longest_makes_room() {
        let entries = [('a', (5, 3)), ('b', (9, 0)), ('c', (1, 7)), ('d', (0, 1)), ('e', (2, 0))];
        let mut staying = entries.to_vec();
        assert_eq!(give_up(&mut staying, 5), []);
        assert_eq!((give_up(&mut staying, 3), staying.len()), (vec!['c', 'a'], 3));
        assert_eq!(give_up(&mut staying, 2), ['d']);
    }
}
