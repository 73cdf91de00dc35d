//! The control thread's side: ports, workers and tables, and what changes them.

use super::accounts::Accounts;
use super::clock::Clock;
use super::neighbour;
use super::numbers::{ensure_reloadable, keep_numbers};
use super::path::Paths;
use super::ports::{self, OpenPort};
use super::sharing::{crew_for, order};
use super::tables::{Lasting, tables};
use super::wake::Bell;
use super::worker::{Attachment, Command, Mesh, Report, SendPath, Worker};
use crate::config::model::{Configuration, Port, Role};
use anyhow::{Context as _, Result};
use polder_buffers::ring;
use polder_buffers::snapshot::Snapshot;
use polder_buffers::{PortId, Region, RegionOptions};
use polder_datapath::counters::{QueueCounters, WorkerCounters};
use polder_datapath::engine::{Engine, Tables};
use polder_datapath::forward::{BridgeCounters, FdbTime, Links, SweepCursor};
use polder_datapath::port::RxQueue;
use polder_datapath::units::Nanos;
use polder_datapath::wire::MacAddress;
use polder_devices::{AnyQueue, af_xdp};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Packets between two workers at most.
const MESH_RING: usize = 512;
/// Ports and tunnels that one gateway can have.
pub const MOST_PORTS: usize = 1024;
/// A next hop that is known is asked for again after so long.
const REFRESH_NEIGHBOUR: Nanos = Nanos::from_seconds(30);
/// A closed port is tried again after so long.
const RETRY_PORT: Nanos = Nanos::from_millis(250);
/// Buckets of a forwarding database that one tick looks at.
const SWEEP_BUCKETS: usize = 4096;

/// One worker, from outside.
pub struct WorkerHandle {
    commands: Sender<Command>,
    bell: Arc<Bell>,
    /// Its counters.
    pub counters: Arc<WorkerCounters>,
    /// What its bridge stage has learned and flooded.
    pub bridging: Arc<BridgeCounters>,
    /// The CPU that it was pinned to.
    pub cpu: Option<u16>,
    thread: Option<JoinHandle<()>>,
}

/// A device port, open or waiting to be opened again.
pub struct PortState {
    /// As configured.
    pub configuration: Port,
    /// Whether it is open.
    pub open: bool,
    /// What was found when it was last opened.
    pub facts: Option<ports::Facts>,
    /// Why it is closed.
    pub trouble: Option<String>,
    /// Counters of all queues that it has ever had.
    pub counters: Vec<Arc<QueueCounters>>,
    /// Times that it was opened.
    pub openings: u64,
    /// What keeps an interface attached.
    pub attachment: Option<af_xdp::Port>,
    retry_at: Nanos,
    detaching: usize,
}

/// What opens the device of a port.
pub type Opener = Box<dyn Fn(&Port, &Configuration, &Region) -> Result<OpenPort> + Send>;

/// A running gateway.
pub struct Gateway {
    /// What it runs.
    pub configuration: Configuration,
    /// Packet memory of all ports.
    pub region: Region,
    /// The clock of all workers.
    pub clock: Clock,
    /// Its workers.
    pub workers: Vec<WorkerHandle>,
    /// Its device ports.
    pub ports: Vec<PortState>,
    /// What outlives configurations.
    pub lasting: Lasting,
    open: Opener,
    tables: Snapshot<Tables>,
    links: Arc<Links>,
    retired: Vec<Arc<QueueCounters>>,
    reports: Receiver<Report>,
    asked_at: HashMap<String, Nanos>,
    paths: Paths,
    sweeps: HashMap<String, SweepCursor>,
}

impl Gateway {
    /// Opens the ports and starts the workers.
    ///
    /// # Errors
    /// When a port cannot be opened, memory cannot be had or a thread cannot be started; what had been
    /// opened is closed again.
    pub fn start(configuration: Configuration) -> Result<Self> {
        let region = region(&configuration)?;
        Self::start_on(configuration, region, Box::new(ports::open))
    }

    /// The same with packet memory that others use too, and with ports that somebody else opens, such
    /// as the ends of in-memory cables.
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub fn start_on(configuration: Configuration, region: Region, open: Opener) -> Result<Self> {
        let clock = Clock::start();
        let (report, reports) = channel();
        let links = Arc::new(Links::new(MOST_PORTS));
        let mut lasting = Lasting::default();
        let mut opened = Vec::new();
        for port in &configuration.ports {
            opened.push(open(port, &configuration, &region)?);
        }
        let facts = opened.iter().map(|port| (port.id, port.facts.clone())).collect::<HashMap<_, _>>();
        let tables = tables(&configuration, &facts, &mut lasting, &links)?;
        let mut gateway = Self {
            ports: configuration.ports.iter().map(PortState::closed).collect(),
            region,
            open,
            clock,
            workers: Vec::new(),
            lasting,
            tables: Snapshot::new(tables),
            links,
            retired: Vec::new(),
            reports,
            asked_at: HashMap::new(),
            paths: Paths::default(),
            sweeps: HashMap::new(),
            configuration,
        };
        gateway.start_workers(&report)?;
        for port in opened {
            gateway.attach(port);
        }
        gateway.tick();
        Ok(gateway)
    }

    fn start_workers(&mut self, report: &Sender<Report>) -> Result<()> {
        let count = usize::from(self.configuration.gateway.workers);
        let bells = (0..count).map(|_| Bell::new().map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
        let mut crew = crew_for(&self.configuration).into_iter().flatten();
        for (number, mesh) in meshes(&bells).into_iter().enumerate() {
            let (commands, inbox) = channel();
            let engine = Engine::new(self.tables.reader(), number);
            let counters = Arc::clone(engine.counters());
            let bridging = Arc::clone(engine.bridge_counters());
            let bell = Arc::clone(&bells[number]);
            let mut worker = Worker::new(
                &self.region,
                engine,
                self.clock,
                mesh,
                Arc::clone(&bell),
                inbox,
                report.clone(),
            )?;
            if let Some(share) = crew.next() {
                worker.join(share, &bells);
            }
            let cpu = self.configuration.gateway.cpus.get(number).copied();
            let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
                pin(cpu);
                worker.run();
            })?;
            self.workers.push(WorkerHandle { commands, bell, counters, bridging, cpu, thread: Some(thread) });
        }
        Ok(())
    }

    /// Divides the queues of an open port among the workers.
    fn attach(&mut self, opened: OpenPort) {
        let OpenPort { id, facts, queues, attachment } = opened;
        let Some(state) = self.ports.iter_mut().find(|state| state.configuration.id == id) else { return };
        let shares = share(queues, self.workers.len(), &mut state.counters);
        state.open = true;
        state.facts = Some(facts);
        state.attachment = attachment;
        state.trouble = None;
        state.openings += 1;
        let order = order(state.configuration.order);
        for (worker, (rx, tx)) in self.workers.iter().zip(shares) {
            worker.send(Command::Order(id, order));
            worker.send(Command::Attach(Attachment { port: id, rx, tx }));
        }
        note_link(&self.links, &self.lasting, id, true);
    }

    /// Looks after everything that is slow: ports, next hops, ageing. To be called a few times a second.
    /// Says how long it may be until the next time.
    pub fn tick(&mut self) -> Nanos {
        let now = self.clock.now();
        while let Ok(report) = self.reports.try_recv() {
            self.hear(report);
        }
        self.look_at_links();
        self.reopen(now);
        let missing = self.refresh_neighbours(now);
        self.refresh_paths();
        self.sweep(now);
        let waiting = missing || self.ports.iter().any(|port| !port.open);
        if waiting { RETRY_PORT } else { Nanos::SECOND }
    }

    fn hear(&mut self, report: Report) {
        match report {
            Report::Closed(id) => self.close(id, "the interface has disappeared or was shut"),
            Report::Detached(id) => {
                if let Some(state) = self.ports.iter_mut().find(|state| state.configuration.id == id) {
                    state.detaching = state.detaching.saturating_sub(1);
                }
            }
        }
    }

    /// Takes over what has changed about the interfaces: address, MTU, carrier.
    fn look_at_links(&mut self) {
        let (mut gone, mut changed) = (Vec::new(), false);
        for state in &mut self.ports {
            let (Some(attachment), Some(facts)) = (&state.attachment, &mut state.facts) else { continue };
            let id = state.configuration.id;
            let Ok(link) = attachment.refresh() else {
                gone.push(id);
                continue;
            };
            note_link(&self.links, &self.lasting, id, link.up && link.carrier);
            let mtu = link.mtu.min(state.configuration.mtu.map_or(u32::MAX, u32::from));
            let mac = MacAddress(link.mac);
            changed |= (facts.mtu, facts.mac) != (mtu, mac);
            (facts.mtu, facts.mac) = (mtu, mac);
        }
        for id in gone {
            self.close(id, "the interface has disappeared");
        }
        if changed && let Err(error) = self.rebuild() {
            tracing::error!("cannot take over the interfaces' new addresses or MTU: {error:#}");
        }
    }

    /// Takes a port from all workers; it is tried again later.
    fn close(&mut self, id: PortId, why: &str) {
        let retry_at = self.clock.now() + RETRY_PORT;
        let Some(state) = self.ports.iter_mut().find(|state| state.configuration.id == id) else { return };
        if !std::mem::take(&mut state.open) {
            return;
        }
        state.attachment = None;
        tracing::warn!(port = state.configuration.name, "closed: {why}; the other ports go on");
        state.trouble = Some(why.to_owned());
        state.retry_at = retry_at;
        state.detaching = self.workers.len();
        note_link(&self.links, &self.lasting, id, false);
        for worker in &self.workers {
            worker.send(Command::Detach(id));
        }
    }

    /// Tries closed ports again.
    fn reopen(&mut self, now: Nanos) {
        for index in 0..self.ports.len() {
            let state = &self.ports[index];
            if state.open || state.detaching > 0 || state.retry_at > now {
                continue;
            }
            match (self.open)(&state.configuration, &self.configuration, &self.region) {
                Ok(opened) => self.welcome_back(opened),
                Err(error) => {
                    let state = &mut self.ports[index];
                    state.trouble = Some(format!("{error:#}"));
                    state.retry_at = now + RETRY_PORT;
                }
            }
        }
    }

    fn welcome_back(&mut self, opened: OpenPort) {
        let id = opened.id;
        self.attach(opened);
        // Address and MTU of the interface may be others.
        if let Err(error) = self.rebuild() {
            self.close(id, &format!("{error:#}"));
            return;
        }
        tracing::info!(port = self.configuration.name_of(id).unwrap_or_default(), "open again");
    }

    /// Builds the tables anew, from the configuration and the open ports, and replaces them.
    fn rebuild(&mut self) -> Result<()> {
        let facts = self.facts();
        let tables = tables(&self.configuration, &facts, &mut self.lasting, &self.links)?;
        self.tables.replace(tables);
        for worker in &self.workers {
            worker.bell.ring();
        }
        Ok(())
    }

    /// What is known of ports; of one that is closed, what was known of it last.
    fn facts(&self) -> HashMap<PortId, ports::Facts> {
        let known = |state: &PortState| Some((state.configuration.id, state.facts.clone()?));
        self.ports.iter().filter_map(known).collect()
    }

    /// Brings the next hops of tunnels up to date. Says whether one is missing.
    fn refresh_neighbours(&mut self, now: Nanos) -> bool {
        let mut missing = false;
        for tunnel in &self.configuration.tunnels {
            let Some(state) = self.lasting.tunnels.get(&tunnel.name) else { continue };
            if tunnel.next_hop_mac.is_some() {
                continue;
            }
            let facts = self.ports.iter().find(|port| port.configuration.id == tunnel.port);
            let Some(facts) = facts.filter(|port| port.open).and_then(|port| port.facts.as_ref()) else {
                continue;
            };
            let found = neighbour::table(&facts.interface)
                .ok()
                .and_then(|table| table.get(&tunnel.next_hop).copied());
            if found.is_some() || state.next_hop.address().is_none() {
                state.next_hop.set_address(found);
            }
            missing |= state.next_hop.address().is_none();
            let asked = self.asked_at.get(&tunnel.name).copied().unwrap_or_default();
            let patience = if found.is_some() { REFRESH_NEIGHBOUR } else { Nanos::SECOND };
            if asked == Nanos(0) || now.since(asked) >= patience {
                neighbour::resolve(tunnel.next_hop);
                self.asked_at.insert(tunnel.name.clone(), now);
            }
        }
        missing
    }

    /// Brings the path MTU of tunnels up to date.
    fn refresh_paths(&mut self) {
        let tunnels = self.configuration.tunnels.iter().filter_map(|tunnel| {
            let state = self.lasting.tunnels.get(&tunnel.name)?;
            let port = self.ports.iter().find(|port| port.configuration.id == tunnel.port)?;
            let interface = port.facts.as_ref()?.interface.as_str();
            Some(((tunnel.local, tunnel.remote), interface, &**state))
        });
        self.paths.refresh(tunnels);
    }

    /// Forgets addresses that were not seen for long, some buckets at a time.
    fn sweep(&mut self, now: Nanos) {
        for bridge in &self.configuration.bridges {
            let Some(fdb) = self.lasting.fdbs.get(&bridge.name) else { continue };
            let cursor = self.sweeps.entry(bridge.name.clone()).or_default();
            fdb.sweep(cursor, SWEEP_BUCKETS, FdbTime::new(now, bridge.ageing_seconds));
        }
    }

    /// Applies another configuration as one difference: whatever can fail comes first, then tables are
    /// replaced whole, ports that came are attached and ports that went are let go.
    ///
    /// # Errors
    /// When a new port cannot be opened, or something has changed that needs a restart; then nothing
    /// has changed.
    pub fn reload(&mut self, mut next: Configuration) -> Result<()> {
        keep_numbers(&self.configuration, &mut next);
        ensure_reloadable(&self.configuration, &next)?;
        let is_kept = |port: &&Port| self.ports.iter().any(|state| state.configuration.id == port.id);
        let mut opened = Vec::new();
        for port in next.ports.iter().filter(|port| !is_kept(port)) {
            opened.push((self.open)(port, &next, &self.region)?);
        }
        let mut facts = self.facts();
        facts.retain(|id, _| next.port(*id).is_some());
        facts.extend(opened.iter().map(|port| (port.id, port.facts.clone())));
        let tables = tables(&next, &facts, &mut self.lasting, &self.links)?;
        if let Err(error) = self.claim(&next) {
            self.claim(&self.configuration)?;
            return Err(error);
        }
        self.adopt(next, tables, opened);
        self.tick();
        Ok(())
    }

    /// Takes the packets of the tunnels of `configuration`, and leaves those of others to the kernel.
    fn claim(&self, configuration: &Configuration) -> Result<()> {
        for state in &self.ports {
            let Some(attachment) = &state.attachment else { continue };
            let port = &state.configuration;
            if port.role == Role::Underlay {
                let claims = ports::claims(port.id, configuration);
                let told = || format!("cannot take the tunnels' packets on port {}", port.name);
                attachment.set_claims(&claims).with_context(told)?;
            }
        }
        Ok(())
    }

    /// The part of a reload that cannot fail.
    fn adopt(&mut self, next: Configuration, tables: Tables, opened: Vec<OpenPort>) {
        let (kept, gone) = std::mem::take(&mut self.ports)
            .into_iter()
            .partition::<Vec<_>, _>(|state| next.port(state.configuration.id).is_some());
        self.ports = kept;
        self.ports.extend(opened.iter().filter_map(|port| next.port(port.id)).map(PortState::closed));
        self.tables.replace(tables);
        for port in opened {
            self.attach(port);
        }
        for state in gone {
            note_link(&self.links, &self.lasting, state.configuration.id, false);
            for worker in &self.workers {
                worker.send(Command::Detach(state.configuration.id));
            }
            self.retired.extend(state.counters);
        }
        self.lasting.retain(&next);
        self.configuration = next;
    }

    /// Counters of all workers.
    pub fn worker_counters(&self) -> Vec<Arc<WorkerCounters>> {
        self.workers.iter().map(|worker| Arc::clone(&worker.counters)).collect()
    }

    /// Counters of all queues that there have ever been.
    pub fn queue_counters(&self) -> Vec<Arc<QueueCounters>> {
        let live = self.ports.iter().flat_map(|port| &port.counters);
        live.chain(&self.retired).map(Arc::clone).collect()
    }

    /// Both sides of the conservation law.
    pub fn accounts(&self) -> Accounts {
        Accounts::of(&self.worker_counters(), &self.queue_counters())
    }

    /// Stops the workers: they send what they have, wait for their frames and let go of their queues.
    pub fn stop(&mut self) {
        for worker in &self.workers {
            worker.send(Command::Stop);
        }
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take()
                && thread.join().is_err()
            {
                tracing::error!("a worker has panicked; its packets are lost");
            }
        }
    }
}

/// Takes note of a link's state. Stations behind a port that went down may be found elsewhere, so what was
/// learned there is forgotten.
fn note_link(links: &Links, lasting: &Lasting, port: PortId, up: bool) {
    if links.set(port, up) && !up {
        for fdb in lasting.fdbs.values() {
            fdb.flush_port(port);
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop();
    }
}

impl WorkerHandle {
    fn send(&self, command: Command) {
        // A worker that is gone has panicked, which `stop` reports.
        let _ = self.commands.send(command);
        self.bell.ring();
    }
}

impl PortState {
    fn closed(configuration: &Port) -> Self {
        Self {
            configuration: configuration.clone(),
            open: false,
            facts: None,
            attachment: None,
            trouble: None,
            counters: Vec::new(),
            openings: 0,
            retry_at: Nanos::default(),
            detaching: 0,
        }
    }
}

/// The packet memory that the configuration asks for.
fn region(configuration: &Configuration) -> Result<Region> {
    let slot_bytes = configuration.gateway.slot_bytes;
    let options = RegionOptions { slots: ports::frames(configuration), slot_bytes };
    Region::new(options).context("no packet memory")
}

/// What one worker gets of a port.
pub type Share = (Vec<Box<dyn RxQueue>>, SendPath);

/// Queue *q* goes to worker *q* mod *workers*; a worker without one sends through a worker that has.
pub fn share(queues: Vec<AnyQueue>, workers: usize, counters: &mut Vec<Arc<QueueCounters>>) -> Vec<Share> {
    let owners = queues.len().clamp(1, workers);
    let mut shares =
        (0..workers).map(|worker| (Vec::new(), SendPath::Through(worker % owners))).collect::<Vec<Share>>();
    for (number, queue) in queues.into_iter().enumerate() {
        for known in [queue.rx.counters(), queue.tx.counters()] {
            if !counters.iter().any(|counter| Arc::ptr_eq(counter, known)) {
                counters.push(Arc::clone(known));
            }
        }
        let (receivers, sender) = &mut shares[number % workers];
        receivers.push(queue.rx);
        if matches!(sender, SendPath::Through(_)) {
            *sender = SendPath::Own(queue.tx);
        }
    }
    shares
}

/// The rings between workers.
pub fn meshes(bells: &[Arc<Bell>]) -> Vec<Mesh> {
    let count = bells.len();
    let mut meshes = (0..count).map(|_| Mesh::default()).collect::<Vec<_>>();
    for from in 0..count {
        for to in 0..count {
            if from == to {
                meshes[from].outgoing.push(None);
                continue;
            }
            let (producer, consumer) = ring::channel(MESH_RING);
            meshes[from].outgoing.push(Some((producer, Arc::clone(&bells[to]))));
            meshes[to].incoming.push(consumer);
        }
    }
    meshes
}

/// Pins the calling thread.
fn pin(cpu: Option<u16>) {
    let Some(cpu) = cpu else { return };
    let mut set = rustix::thread::CpuSet::new();
    set.set(usize::from(cpu));
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(cpu, %error, "cannot pin the worker; it runs where the scheduler puts it");
    }
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
