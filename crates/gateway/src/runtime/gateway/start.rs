//! Start of a gateway: memory, ports, tables, workers, in this order.

use super::fast_path::FlowUpkeep;
use super::punts::PuntWatch;
use super::share::{divide, with_queue};
use super::worker_lifecycle::{Waiting, begin};
use super::{AddedPorts, Gateway, Opener, PortState, Reloads};
use crate::clock::Clock;
use crate::config::model::{Configuration, Port};
use crate::device::OpenPort;
use crate::events::{EventKind, Events};
use crate::runtime::devices::{Devices, Opening};
use crate::runtime::events::EventWatch;
use crate::runtime::history::DropHistory;
use crate::runtime::hooks::Watch;
use crate::runtime::liveness::{Liveness, check_keys};
use crate::runtime::memory::Memory;
use crate::runtime::path::Paths;
use crate::runtime::routing::AttachedPort;
use crate::runtime::tables::{Lasting, tables};
use crate::runtime::tunnel_next_hops::NextHops;
use crate::runtime::tunnels::add_links;
use crate::runtime::upgrade::Predecessor;
use crate::supervise::Threads;
use anyhow::{Context as _, Result};
use polder_buffers::BufferManager;
use polder_buffers::snapshot::Snapshot;
use polder_datapath::engine::Tables;
use polder_datapath::forward::{FdbTime, Links};
use polder_datapath::units::Nanos;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::channel;

/// Link states of all possible ports and tunnels; a link carries nothing until it is set up.
fn all_links() -> Links {
    Links::new(usize::from(u16::MAX))
}

impl Gateway {
    /// Opens the ports, with `open` if given, and starts the workers on `threads`.
    ///
    /// # Errors
    /// When a port cannot be opened, memory allocated or a thread started; opened ports are closed again.
    pub fn start(configuration: Configuration, threads: &Threads, open: Option<Opener>) -> Result<Self> {
        let clock = Clock::start();
        check_keys(&configuration)?;
        let memory = Memory::new(&configuration, clock, threads)?;
        let devices = open.map_or_else(Devices::of_machine, Devices::opened_by);
        let (gateway, waiting) = Self::prepare(configuration, memory, (clock, threads.clone()), devices, 0)?;
        Ok(gateway.begin_work(waiting))
    }

    /// Takes over the gateway of another process. Returns the microseconds during which no worker ran, or
    /// `None` for a dry run.
    ///
    /// # Errors
    /// As [`Gateway::start`], and when the predecessor does not hand over; it continues then.
    pub(in crate::runtime) fn inherit(
        configuration: Configuration,
        threads: &Threads,
        inheritance: &Arc<Predecessor>,
    ) -> Result<Option<(Self, u64)>> {
        let clock = inheritance.clock();
        let memory = Memory::new(&configuration, clock, threads)?;
        check_keys(&configuration)?;
        let (devices, tables) = (Devices::inherited(inheritance), inheritance.tables());
        let (mut gateway, waiting) =
            Self::prepare(configuration, memory, (clock, threads.clone()), devices, tables)?;
        gateway.history.resume(inheritance.history());
        gateway.added = inheritance.added();
        let asked = clock.now();
        if !inheritance.take(&mut gateway)? {
            gateway.leave_devices();
            return Ok(None);
        }
        begin(waiting);
        let pause = clock.now().since(asked);
        // For a second, devices may hold more packets, until the workers have caught up.
        gateway.deepen(Nanos::SECOND);
        inheritance.await_end();
        gateway.lock_interfaces();
        gateway.watch_tunnels();
        let now = gateway.clock.now();
        gateway.ports.iter_mut().for_each(|state| state.retry_at = now);
        gateway.tick();
        Ok(Some((gateway, pause.0 / 1000)))
    }

    /// As [`Gateway::start`], with shared packet memory and ports that the caller opens, such as in-memory
    /// cables.
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub fn start_on(configuration: Configuration, memory: &Arc<BufferManager>, open: Opener) -> Result<Self> {
        let (memory, devices) = (Memory::of(Arc::clone(memory)), Devices::opened_by(open));
        let clock = (Clock::start(), Threads::default());
        let (gateway, waiting) = Self::prepare(configuration, memory, clock, devices, 0)?;
        Ok(gateway.begin_work(waiting))
    }

    /// Lets the workers begin.
    fn begin_work(mut self, waiting: Waiting) -> Self {
        begin(waiting);
        self.watch_tunnels();
        self.tick();
        self
    }

    /// Opens the ports and prepares the workers; the tables begin with `version`.
    fn prepare(
        configuration: Configuration,
        memory: Memory,
        (clock, threads): (Clock, Threads),
        devices: Devices,
        version: u64,
    ) -> Result<(Self, Waiting)> {
        let ((report, reports), links) = (channel(), Arc::new(all_links()));
        let mut lasting = Lasting::default();
        let _locks = devices.lock(&configuration.ports, &configuration)?;
        // Dropped before later threads start, so that they have normal priority.
        let stepped_back = devices.step_back();
        let open = |port| devices.open_or_wait(port, &configuration, memory.manager().region());
        let opened = configuration.ports.iter().map(open).collect::<Result<Vec<_>>>()?;
        drop(stepped_back);
        let facts = opened.iter().filter_map(Opening::facts).collect::<HashMap<_, _>>();
        let mut seen = facts
            .iter()
            .map(|(&id, facts)| (id, AttachedPort { facts: facts.clone(), up: true, punts: false }))
            .collect();
        add_links(&mut seen, &configuration, &lasting);
        lasting.routing.begin(&configuration, &seen, || clock.now())?;
        let tables = tables(&configuration, &facts, &mut lasting, &links)?;
        bind_static(&tables, clock.now());
        let mut gateway = Self {
            ports: configuration.ports.iter().map(PortState::closed).collect(),
            memory,
            devices,
            clock,
            threads,
            draining: false,
            turn_due: Nanos(0),
            deep_until: None,
            before: None,
            reloads: Reloads::default(),
            events: Events::default(),
            history: DropHistory::new(clock.now()),
            event_watch: EventWatch::default(),
            liveness: Liveness::new(clock).context("cannot create the file descriptors for BFD")?,
            workers: Vec::new(),
            lasting,
            hooks: Watch::default(),
            tables: Snapshot::new(tables),
            links,
            retired: Vec::new(),
            report,
            reports,
            engine_counters: Vec::new(),
            asked_at: HashMap::new(),
            paths: Paths::default(),
            next_hops: NextHops::default(),
            sweeps: HashMap::new(),
            looked_at: Nanos(0),
            seen: HashMap::new(),
            is_stale: false,
            is_left: false,
            flows: FlowUpkeep::from_version(version),
            punts: PuntWatch::default(),
            connections: super::Followed::default(),
            added: AddedPorts::new(),
            configuration,
        };
        let new_workers = gateway.prepare_workers(&gateway.configuration)?;
        let waiting = gateway.start_workers(new_workers);
        for port in opened {
            gateway.attach_or_wait(port);
        }
        gateway.renew_fast_paths().map(|()| (gateway, waiting))
    }

    /// Attaches an open port, or begins to wait for its device.
    pub(super) fn attach_or_wait(&mut self, opening: Opening) {
        let (id, trouble) = match opening {
            Opening::Open(opened) => return self.attach(opened),
            Opening::Waiting { id, trouble } => (id, trouble),
        };
        let Some(state) = self.ports.iter_mut().find(|state| state.configuration.id == id) else { return };
        let retry_at = self.clock.now() + retry_after(&state.configuration);
        tracing::warn!(
            port = state.configuration.name,
            "waits for its device: {trouble}; the other ports continue"
        );
        let port = state.configuration.name.clone();
        self.events.note_silently(EventKind::PortClosed { port, why: trouble.clone() });
        (state.trouble, state.waiting, state.retry_at) = (Some(trouble), true, retry_at);
        self.note_port_down(id);
    }

    /// Divides the queues of an open port among the workers.
    pub(super) fn attach(&mut self, opened: OpenPort) {
        let OpenPort { id, facts, queues, handle, backlog, lock } = opened;
        let Some(state) = self.ports.iter_mut().find(|state| state.configuration.id == id) else { return };
        let (mut shares, spares) = divide(queues, self.workers.len(), &mut state.counters);
        state.counters.extend(handle.as_ref().and_then(|handle| handle.lost()));
        state.carried_before.clear();
        if handle.as_ref().is_some_and(|handle| handle.flows().is_some())
            && !state.counters.iter().any(|counters| Arc::ptr_eq(counters, &state.carried))
        {
            state.counters.push(Arc::clone(&state.carried));
        }
        with_queue(&mut shares, &state.configuration, &facts, &mut state.queues);
        state.spares = spares;
        state.open = true;
        state.facts = Some(facts);
        (state.handle, state.backlog, state.lock) = (handle, backlog, lock);
        (state.trouble, state.waiting, state.link) = (None, false, None);
        state.refusals.clear();
        state.program_in_front = None;
        state.openings += 1;
        self.give_out(id, shares);
        self.set_link(id, true);
    }
}

/// Updates the static FDB entries of bridges from their configuration.
pub(super) fn bind_static(tables: &Tables, now: Nanos) {
    if let Err(error) = tables.bridges.bind_static(FdbTime::new(now, 0).second) {
        tracing::error!(%error, "not all static addresses of bridges were installed");
    }
}

/// Retry interval of a closed port.
pub(super) const RETRY_PORT: Nanos = Nanos::from_millis(250);
/// Retry interval of the punt path, which fails when the kernel lacks a feature.
const RETRY_PUNT: Nanos = Nanos::from_seconds(60);

/// Retry interval of a port.
pub(super) fn retry_after(port: &Port) -> Nanos {
    if port.device.is_punt_path() { RETRY_PUNT } else { RETRY_PORT }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use polder_buffers::PortId;
    use std::path::Path;

    /// A link that is not there is down: the bridge would drop what is for the tunnel.
    #[test]
    fn every_tunnel_of_a_large_file_has_a_link() {
        let mut text = "version = 1\n[port.lan]\ninterface = \"eth0\"\n[port.core]\ninterface = \"eth1\"\n\
                        role = \"underlay\"\n"
            .to_owned();
        let names = (0..5000).map(|number| format!("t{number}")).collect::<Vec<_>>();
        for (name, remote) in names.iter().zip(0x0a01_0000..) {
            let remote = std::net::Ipv4Addr::from_bits(remote);
            text.push_str(&format!(
                "[tunnel.{name}]\nkind = \"gretap\"\nlocal = \"192.0.2.1\"\nremote = \"{remote}\"\nport = \"core\"\n"
            ));
        }
        text.push_str(&format!("[bridge.br0]\nmembers = {names:?}\n").replace("[\"t0", "[\"lan\", \"t0"));
        let configuration = parse(&text, Path::new("a.toml")).expect("valid").configuration;
        let links = all_links();
        assert!(configuration.names().all(|(id, _)| links.is_up(id)));
        assert!(links.is_up(PortId(u16::MAX - 1)));
    }
}
