//! Flows that ports' programs carry: which ports have them, for how long, and what they have carried.

use super::{Gateway, PortState};
use crate::config::model::{Configuration, FastPathUse, Order, Port, Role};
use anyhow::Result;
use polder_buffers::PortId;
use polder_datapath::counters::QueueCounters;
use polder_datapath::engine::Tables;
use polder_datapath::fast_path::{FastPath as _, FastPathPort, FastPaths, StationPair, Validity};
use polder_datapath::forward::FdbTime;
use polder_datapath::units::Nanos;
use polder_devices::skb::{Carried, Entry, FlowTable};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Interval at which entries are looked at.
const INTERVAL: Nanos = Nanos::SECOND;
/// Looks after which an entry that carries nothing is removed.
const IDLE_LOOKS: u32 = 10;
/// Ethernet header.
const ETHERNET: u32 = 14;

/// State of the upkeep of flows.
#[derive(Debug, Default)]
pub(super) struct FlowUpkeep {
    /// Number of tables so far that workers have gone by.
    version: u64,
    /// Captures that run.
    pub(super) captures: BTreeSet<u64>,
    looked_at: Nanos,
    /// Decisions published at the last look.
    published: u64,
    /// Packets of each entry at the last look, and looks since it has carried any.
    known: HashMap<(PortId, StationPair), (u64, u32)>,
}

/// Reason why no flows of a port are carried in the kernel; `None` if they are.
pub(in crate::runtime) fn obstacle(gateway: &Gateway, state: &PortState) -> Option<&'static str> {
    let (port, configuration) = (&state.configuration, &gateway.configuration);
    let queues = state.facts.as_ref().map(|facts| facts.queues);
    if port.fast_path == FastPathUse::Off {
        Some("switched off")
    } else if state.handle().and_then(|handle| handle.flows()).is_none() {
        Some(if port.role == Role::Bridge { OTHER_MODE } else { OTHER_ROLE })
    } else if !gateway.flows.captures.is_empty() {
        Some("a capture runs")
    } else if port.order != Order::Queue || queues != Some(usize::from(configuration.gateway.workers)) {
        Some("its packets are handed from worker to worker")
    } else if port.queue.is_some() {
        Some("it has a queue")
    } else if port.mtu.is_some() {
        Some("it has an MTU of its own")
    } else {
        is_filtered(port, configuration).then_some("filters look at its packets")
    }
}

const OTHER_MODE: &str = "only ports with `mode = \"skb\"` have one, and none with `on_exit = \"drop\"`";
const OTHER_ROLE: &str = "only ports of bridges have one";

fn is_filtered(port: &Port, configuration: &Configuration) -> bool {
    let mut filters = configuration.filters.iter();
    filters.any(|filter| filter.ports.is_empty() || filter.ports.contains(&port.id))
}

impl Gateway {
    /// Fast paths for tables that are about to be used, of a version of their own.
    pub(super) fn fast_paths(&mut self) -> FastPaths {
        self.flows.version += 1;
        let most = self.ports.iter().map(|state| usize::from(state.configuration.id.0) + 1).max();
        let mut ports = vec![None; most.unwrap_or(0)];
        for state in &self.ports {
            ports[usize::from(state.configuration.id.0)] = self.fast_path(state);
        }
        FastPaths::new(self.flows.version, ports)
    }

    fn fast_path(&self, state: &PortState) -> Option<FastPathPort> {
        let (flows, facts) = (state.handle()?.flows()?, state.facts.as_ref()?);
        let table: Arc<FlowTable> = Arc::clone(flows);
        let (interface, longest) = (table.interface(), facts.mtu + ETHERNET);
        let port = FastPathPort { table, interface, longest };
        obstacle(self, state).is_none().then_some(port)
    }

    /// Uses the fast paths of the ports that are open, if there are any.
    pub(super) fn renew_fast_paths(&mut self) -> Result<()> {
        if self.flow_tables().next().is_some() { self.rebuild() } else { Ok(()) }
    }

    /// The same; an error is in the log.
    pub(super) fn say_renewed(&mut self) {
        if let Err(error) = self.renew_fast_paths() {
            tracing::error!("cannot change the fast paths: {error:#}");
        }
    }

    /// Ends all entries: tables without fast paths are in use.
    pub(super) fn end_all_flows(&mut self) {
        self.flows.version += 1;
        self.end_flows();
    }

    /// Ends all entries that were made by other tables than the present ones.
    pub(super) fn end_flows(&self) {
        let version = self.flows.version;
        self.flow_tables().for_each(|(_, table)| table.set_version(version));
    }

    /// Ends all entries, because stations may have moved.
    pub(super) fn count_moves(&self) {
        self.flow_tables().for_each(|(_, table)| table.count_move());
    }

    fn flow_tables(&self) -> impl Iterator<Item = (&PortState, &Arc<FlowTable>)> {
        self.ports.iter().filter_map(|state| Some((state, state.handle()?.flows()?)))
    }

    /// Valid entries of all ports, with the port that their packets come in by.
    pub(in crate::runtime) fn flows(&self) -> Vec<(PortId, Entry)> {
        let valid = |(state, table): (&PortState, &Arc<FlowTable>)| {
            let (id, validity) = (state.configuration.id, table.validity());
            valid_entries(table, validity).map(|entry| (id, entry)).collect::<Vec<_>>()
        };
        self.flow_tables().flat_map(valid).collect()
    }

    /// Counts packets that programs have carried since the last time, as received by the one port and transmitted by the
    /// other.
    pub(in crate::runtime) fn count_carried(&mut self) {
        let mut sums = Vec::new();
        for state in &mut self.ports {
            let Some(table) = state.handle.as_ref().and_then(|handle| handle.flows()) else { continue };
            let now = table.carried();
            for (egress, carried) in &now {
                let before = state.carried_before.iter().find(|(port, _)| port == egress);
                let Carried { packets, bytes } = before.map(|(_, before)| *before).unwrap_or_default();
                let (packets, bytes) = (carried.packets - packets, carried.bytes - bytes);
                state.carried.received.add(packets);
                state.carried.received_bytes.add(bytes);
                sums.push((*egress, packets, bytes, Arc::clone(&state.carried)));
            }
            state.carried_before = now;
        }
        for (egress, packets, bytes, ingress) in sums {
            let state = self.ports.iter().find(|state| state.configuration.id == egress);
            // A port that is gone has counters no more; the law holds without it.
            let counters: &QueueCounters = state.map_or(&ingress, |state| &state.carried);
            counters.transmitted.add(packets);
            counters.transmitted_bytes.add(bytes);
        }
    }

    /// Keeps the ages of stations whose packets are carried, and removes entries that carry nothing or whose stations
    /// are not where they were.
    pub(super) fn look_after_flows(&mut self, now: Nanos) {
        self.count_carried();
        if now.since(self.flows.looked_at) < INTERVAL {
            return;
        }
        self.flows.looked_at = now;
        let published = self.flow_tables().map(|(_, table)| table.published()).sum();
        if std::mem::replace(&mut self.flows.published, published) == published && self.flows.known.is_empty()
        {
            return;
        }
        let before = std::mem::take(&mut self.flows.known);
        let tables = self.tables.latest();
        let look = Look { tables: &tables, before: &before, second: FdbTime::new(now, 0).second };
        let known =
            self.flow_tables().flat_map(|(state, table)| look.at(state.configuration.id, table)).collect();
        self.flows.known = known;
    }
}

/// A look at entries, with the packets that they had carried at the last one, and the looks since they carried any.
struct Look<'a> {
    tables: &'a Tables,
    before: &'a HashMap<(PortId, StationPair), (u64, u32)>,
    second: u32,
}

impl Look<'_> {
    /// Looks at the entries of a port: removes those that are not to stay, and answers the others.
    fn at(&self, port: PortId, table: &FlowTable) -> Vec<((PortId, StationPair), (u64, u32))> {
        let validity = table.validity();
        let stays = |entry: Entry| {
            let key = (port, entry.pair);
            let (packets, looks) = self.before.get(&key).copied().unwrap_or_default();
            let was_used = entry.packets != packets;
            let looks = if was_used { 0 } else { looks + 1 };
            let (bridges, seen) = (&self.tables.bridges, (was_used, self.second));
            let stays = looks < IDLE_LOOKS
                && entry.validity == validity
                && bridges.confirm(port, &entry.pair, &entry.forwarding, seen);
            if !stays {
                table.remove(&entry.pair);
            }
            stays.then_some((key, (entry.packets, looks)))
        };
        table.entries().unwrap_or_default().into_iter().filter_map(stays).collect()
    }
}

/// Entries of a table that are carried out.
fn valid_entries(table: &FlowTable, validity: Validity) -> impl Iterator<Item = Entry> {
    let entries = table.entries().unwrap_or_default();
    entries.into_iter().filter(move |entry| entry.validity == validity)
}
