//! Hand-over to a successor process and take-over from a predecessor: workers stop, state is exported or
//! imported, devices stay open.

use super::Gateway;
use super::share::Pieces;
use crate::device::{self, InterfaceLock, PartsKind};
use crate::events::EventKind;
use crate::runtime::upgrade::{
    BridgeTotals, MOST_DESCRIPTORS, PortTotals, State, TunnelTotals, WorkerTotals, add, totals,
};
use anyhow::{Context as _, Result};
use polder_buffers::PortId;
use polder_datapath::counters::QueueCounters;
use polder_datapath::forward::{FdbKey, FdbTime};
use polder_datapath::units::Nanos;
use polder_devices::skb::Carried;
use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// Queues of a gateway whose workers have stopped.
pub(in crate::runtime) struct Parked(BTreeMap<PortId, Pieces>);

impl Gateway {
    /// Copies of the descriptors that a successor process needs to continue with the open ports.
    pub(in crate::runtime) fn parts(&self) -> Vec<(String, (PartsKind, Vec<OwnedFd>))> {
        let parts = |state: &super::PortState| {
            let (kind, parts) = state.handle()?.parts()?;
            let copies =
                parts.into_iter().map(|part| part.try_clone_to_owned()).collect::<Result<_, _>>().ok()?;
            Some((state.configuration.name.clone(), (kind, copies)))
        };
        self.ports.iter().filter(|state| state.open).filter_map(parts).collect()
    }

    /// Stops the workers. New packets wait in their devices; packets in flight are finished first.
    pub(in crate::runtime) fn park(&mut self) -> Parked {
        Parked(self.take_queues(0))
    }

    /// Lets devices hold more packets for `time`: workers get less CPU time while a successor starts, and
    /// none while it takes over.
    pub(in crate::runtime) fn deepen(&mut self, time: Nanos) {
        self.deep_until = Some(self.clock.now() + time);
        self.set_depth(true);
    }

    /// Ends the deep mode when its time is over.
    pub(super) fn end_depth(&mut self, now: Nanos) {
        if self.deep_until.take_if(|until| now >= *until).is_some() {
            self.set_depth(false);
        }
    }

    fn set_depth(&self, is_deep: bool) {
        self.ports.iter().filter_map(|state| state.handle()).for_each(|handle| handle.deepen(is_deep));
    }

    /// Resumes after a failed hand-over.
    ///
    /// # Errors
    /// When no workers can be started.
    pub(in crate::runtime) fn go_on(&mut self, Parked(ports): Parked) -> Result<()> {
        for state in &self.ports {
            if let Some(handle) = &state.handle
                && let Err(error) = handle.take_back()
            {
                tracing::error!("port {}: {error:#}", state.configuration.name);
            }
        }
        // The successor may have raised the version that entries are checked against.
        let newest = self.flow_tables().map(|(_, table)| table.version()).max();
        if let Some(Err(error)) = newest.map(|version| self.go_by_tables(version)) {
            tracing::error!("eBPF programs cannot carry flows: {error:#}");
        }
        let workers = self.prepare_workers(&self.configuration);
        self.go_on_with(workers.context("cannot start workers after the failed upgrade")?, ports);
        Ok(())
    }

    /// Drops all ports after a successor has taken them over.
    pub(in crate::runtime) fn leave(&mut self, parked: Parked) {
        self.is_left = true;
        self.count_carried();
        self.liveness.leave();
        self.leave_devices();
        drop(parked);
        self.workers.clear();
        for state in std::mem::take(&mut self.ports) {
            state.lock.iter().for_each(InterfaceLock::leave);
            self.retired.extend(state.counters.iter().map(Arc::clone));
        }
    }

    /// Interface locks with their ports, as many as one message can carry.
    pub(in crate::runtime) fn locks(&self) -> Vec<(String, InterfaceLock)> {
        let locked = |state: &super::PortState| Some((state.configuration.name.clone(), state.lock.clone()?));
        self.ports.iter().filter_map(locked).take(MOST_DESCRIPTORS).collect()
    }

    /// Adopts the interface locks that a predecessor has passed.
    pub(in crate::runtime) fn take_locks(
        &mut self,
        locks: impl Iterator<Item = ((String, PathBuf), OwnedFd)>,
    ) {
        for ((port, path), descriptor) in locks {
            let lock = InterfaceLock::inherited(&path, descriptor, &self.configuration);
            if let Some(state) = self.ports.iter_mut().find(|state| state.configuration.name == port) {
                state.lock = lock;
            }
        }
    }

    /// Locks the interfaces of ports whose locks were not passed.
    pub(super) fn lock_interfaces(&mut self) {
        let Self { ports, configuration, .. } = self;
        for state in ports.iter_mut().filter(|state| state.open && state.lock.is_none()) {
            match device::lock(&state.configuration, configuration) {
                Ok(lock) => state.lock = lock,
                Err(error) => tracing::error!("port {}: {error:#}", state.configuration.name),
            }
        }
    }

    /// Makes all devices keep their state when they are closed.
    pub(in crate::runtime) fn leave_devices(&mut self) {
        self.ports.iter_mut().filter_map(|state| state.handle.as_mut()).for_each(|handle| handle.leave());
    }

    /// Exports the state of a gateway whose workers have stopped.
    pub(in crate::runtime) fn state(&mut self) -> State {
        self.count_carried();
        let mut state = State {
            tables: self.table_version(),
            filters: self.lasting.filters.totals(),
            reloads: (self.reloads.generation, self.reloads.applied, self.reloads.refused),
            draining: self.draining,
            sessions: self.liveness.handed(),
            events: Some(self.events.handed()),
            ..State::default()
        };
        (state.dead, state.alive) = (self.names(&self.lasting.dead), self.names(&self.lasting.alive));
        for (counters, bridging) in &self.engine_counters {
            let mut worker = WorkerTotals::default();
            totals(&**counters, &mut worker.counters);
            totals(&**bridging, &mut worker.bridging);
            state.workers.push(worker);
        }
        self.retired.iter().for_each(|counters| totals(&**counters, &mut state.retired));
        let ports = self.ports.iter().map(|port| (port.configuration.name.clone(), port_totals(port)));
        state.ports = ports.collect();
        for (name, tunnel) in &self.lasting.tunnels {
            let numbers = tunnel.numbers();
            let mut of_tunnel = TunnelTotals {
                sent: numbers.sent,
                identification: numbers.identification,
                received: numbers.received,
                next_hop: numbers.next_hop,
                ..TunnelTotals::default()
            };
            of_tunnel.workers = tunnel.counters.iter().map(read).collect();
            totals(&tunnel.carried, &mut of_tunnel.carried);
            state.tunnels.insert(name.clone(), of_tunnel);
        }
        for (name, outlet) in &self.lasting.outlets {
            state.outlets.insert(name.clone(), outlet.counters.iter().map(read).collect());
        }
        for (name, fdb) in &self.lasting.fdbs {
            let learnt = fdb.entries().filter(|entry| !entry.is_static);
            let learnt = learnt.map(|entry| (entry.address.0, entry.vlan, entry.port.0, entry.seen));
            state.bridges.insert(name.clone(), BridgeTotals(learnt.collect()));
        }
        state
    }

    /// Imports a predecessor's state, before workers begin.
    ///
    /// # Errors
    /// When tables cannot be built.
    pub(in crate::runtime) fn resume(&mut self, state: State) -> Result<()> {
        for (number, worker) in state.workers.iter().enumerate() {
            if number == self.engine_counters.len() {
                self.engine_counters.push(Default::default());
            }
            let (counters, bridging) = &self.engine_counters[number];
            add(&**counters, &worker.counters);
            add(&**bridging, &worker.bridging);
        }
        let retired = QueueCounters::default();
        add(&retired, &state.retired);
        self.retired.push(Arc::new(retired));
        self.reloads.generation = state.reloads.0.max(1);
        (self.reloads.applied, self.reloads.refused) = (state.reloads.1, state.reloads.2);
        self.draining = state.draining;
        if let Some(events) = &state.events {
            self.events.resume(events.clone());
            self.events.note_silently(EventKind::HandedOver { process: std::process::id() });
        }
        self.lasting.filters.resume(&state.filters);
        self.resume_tunnels(&state);
        self.resume_sessions(&state);
        for (name, totals) in &state.outlets {
            let Some(outlet) = self.lasting.outlets.get(name) else { continue };
            outlet.counters.iter().zip(totals).for_each(|(block, totals)| add(block, totals));
        }
        for (name, BridgeTotals(stations)) in &state.bridges {
            let Some(fdb) = self.lasting.fdbs.get(name) else { continue };
            for &(address, vlan, port, second) in stations {
                let time = FdbTime { second, ageing: u32::MAX };
                fdb.learn(FdbKey::new(polder_datapath::wire::MacAddress(address), vlan), PortId(port), time);
            }
        }
        for port in &mut self.ports {
            if let Some(totals) = state.ports.get(&port.configuration.name) {
                resume_port(port, totals);
            }
        }
        // The predecessor knows of the same changes, so both decide alike.
        self.take_route_news();
        self.go_by_tables(state.tables)
    }

    /// Activates this process's programs on inherited ports. Where the kernel refuses, the predecessor's
    /// program stays.
    pub(in crate::runtime) fn put_programs_to_work(&mut self) {
        for state in &mut self.ports {
            if let Some(Err(error)) = state.handle.as_mut().map(|handle| handle.begin()) {
                let port = &state.configuration.name;
                tracing::error!("port {port}: the previous program continues there: {error:#}");
            }
        }
    }

    /// Names of tunnels.
    fn names(&self, tunnels: &HashSet<PortId>) -> Vec<String> {
        let of_set = self.configuration.tunnels.iter().filter(|tunnel| tunnels.contains(&tunnel.id));
        of_set.map(|tunnel| tunnel.name.clone()).collect()
    }

    /// Restores BFD sessions and the set of tunnels that are down.
    fn resume_sessions(&mut self, state: &State) {
        for tunnel in &self.configuration.tunnels {
            if state.dead.contains(&tunnel.name) {
                self.lasting.dead.insert(tunnel.id);
                self.links.set(tunnel.id, false);
            }
            if state.alive.contains(&tunnel.name) {
                self.lasting.alive.insert(tunnel.id);
            }
        }
        if !self.lasting.dead.is_empty() && self.ear().is_some() {
            self.follow();
        }
        self.liveness.go_on_with(&state.sessions);
    }

    fn resume_tunnels(&self, state: &State) {
        for (name, totals) in &state.tunnels {
            let Some(tunnel) = self.lasting.tunnels.get(name) else { continue };
            tunnel.resume(totals.numbers());
            for (block, totals) in tunnel.counters.iter().zip(&totals.workers) {
                add(block, totals);
            }
            add(&tunnel.carried, &totals.carried);
        }
    }
}

fn read(block: &impl polder_datapath::counters::Totals) -> BTreeMap<String, u64> {
    let mut values = BTreeMap::new();
    totals(block, &mut values);
    values
}

fn port_totals(port: &super::PortState) -> PortTotals {
    let mut of_port = PortTotals { openings: port.openings, ..PortTotals::default() };
    let queues = port.counters.iter().filter(|counters| !Arc::ptr_eq(counters, &port.carried));
    queues.for_each(|counters| totals(&**counters, &mut of_port.queues));
    totals(&*port.carried, &mut of_port.carried);
    let way =
        |((from, to), carried): &((PortId, PortId), Carried)| (from.0, to.0, carried.packets, carried.bytes);
    of_port.ways = port.carried_before.iter().map(way).collect();
    let of_queues = |queues: &[super::QueueState]| {
        queues.iter().map(|queue| (queue.worker, read(&*queue.counters))).collect()
    };
    (of_port.egress, of_port.inlets) = (of_queues(&port.queues), of_queues(&port.inlets));
    of_port
}

fn resume_port(port: &mut super::PortState, totals: &PortTotals) {
    let queues = QueueCounters::default();
    add(&queues, &totals.queues);
    port.counters.push(Arc::new(queues));
    add(&*port.carried, &totals.carried);
    port.openings += totals.openings;
    for (queues, totals) in [(&port.queues, &totals.egress), (&port.inlets, &totals.inlets)] {
        for (worker, totals) in totals {
            if let Some(queue) = queues.iter().find(|queue| queue.worker == *worker) {
                add(&*queue.counters, totals);
            }
        }
    }
    let Some(flows) = port.handle.as_ref().and_then(|handle| handle.flows()) else { return };
    let ways = totals.ways.iter().map(|&(from, to, ..)| (PortId(from), PortId(to)));
    flows.set_ways(ways.clone());
    let counted = totals.ways.iter().map(|&(.., packets, bytes)| Carried { packets, bytes });
    port.carried_before = ways.zip(counted).collect();
}
