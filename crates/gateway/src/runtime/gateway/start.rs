//! How a gateway comes up: memory, ports, tables, workers, in this order.

use super::share::with_queue;
use super::upkeep::note_link;
use super::{Gateway, Opener, PortState, WorkerHandle, meshes, share};
use crate::config::model::Configuration;
use crate::runtime::clock::Clock;
use crate::runtime::memory::{Memory, class};
use crate::runtime::path::Paths;
use crate::runtime::ports::{self, OpenPort};
use crate::runtime::sharing::{crew_for, order};
use crate::runtime::tables::{Lasting, tables};
use crate::runtime::wake::Bell;
use crate::runtime::worker::{Attachment, Command, Report, Schedule, Worker};
use anyhow::Result;
use polder_buffers::snapshot::Snapshot;
use polder_buffers::{BufferManager, Whereabouts};
use polder_datapath::engine::{Engine, Tables};
use polder_datapath::forward::{FdbTime, Links};
use polder_datapath::receive::Options;
use polder_datapath::units::Nanos;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// Ports and tunnels that one gateway can have.
pub const MOST_PORTS: usize = 1024;

impl Gateway {
    /// Opens the ports and starts the workers.
    ///
    /// # Errors
    /// When a port cannot be opened, memory cannot be had or a thread cannot be started; what had been
    /// opened is closed again.
    pub fn start(configuration: Configuration) -> Result<Self> {
        let clock = Clock::start();
        let memory = Memory::new(&configuration, clock)?;
        Self::start_with(configuration, memory, clock, Box::new(ports::open))
    }

    /// The same with packet memory that others use too, and with ports that somebody else opens, such
    /// as the ends of in-memory cables.
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub fn start_on(configuration: Configuration, memory: &Arc<BufferManager>, open: Opener) -> Result<Self> {
        Self::start_with(configuration, Memory::of(Arc::clone(memory)), Clock::start(), open)
    }

    fn start_with(configuration: Configuration, memory: Memory, clock: Clock, open: Opener) -> Result<Self> {
        let (report, reports) = channel();
        let links = Arc::new(Links::new(MOST_PORTS));
        let mut lasting = Lasting::default();
        let mut opened = Vec::new();
        for port in &configuration.ports {
            opened.push(open(port, &configuration, memory.manager().region())?);
        }
        let facts = opened.iter().map(|port| (port.id, port.facts.clone())).collect::<HashMap<_, _>>();
        let tables = tables(&configuration, &facts, &mut lasting, &links)?;
        bind_static(&tables, clock.now());
        let mut gateway = Self {
            ports: configuration.ports.iter().map(PortState::closed).collect(),
            memory,
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
                self.memory.pool(),
                engine,
                self.clock,
                mesh,
                Arc::clone(&bell),
                inbox,
                report.clone(),
            )?;
            let share = crew.next();
            let board = share.as_ref().map(|share| Arc::clone(share.board()));
            worker.schedule(schedule(&self.configuration));
            let [posted, held] =
                [Whereabouts::Posted, Whereabouts::Held].map(|place| self.memory.manager().gauge(place));
            worker.count_frames(posted, held);
            if let Some(share) = share {
                worker.join(share, &bells);
            }
            let cpu = self.configuration.gateway.cpus.get(number).copied();
            let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
                pin(cpu);
                worker.run();
            })?;
            let thread = Some(thread);
            self.workers.push(WorkerHandle { commands, bell, counters, bridging, cpu, board, thread });
        }
        Ok(())
    }

    /// Divides the queues of an open port among the workers.
    pub(super) fn attach(&mut self, opened: OpenPort) {
        let OpenPort { id, facts, queues, attachment } = opened;
        let Some(state) = self.ports.iter_mut().find(|state| state.configuration.id == id) else { return };
        let mut shares = share(queues, self.workers.len(), &mut state.counters);
        with_queue(&mut shares, &state.configuration, &facts, &mut state.queues);
        state.open = true;
        state.facts = Some(facts);
        state.attachment = attachment;
        state.trouble = None;
        state.openings += 1;
        let order = order(state.configuration.order);
        let class = class(&state.configuration, &self.configuration);
        for (worker, (rx, tx)) in self.workers.iter().zip(shares) {
            worker.send(Command::Order(id, order));
            worker.send(Command::Attach(Attachment { port: id, class, rx, tx }));
        }
        note_link(&self.links, &self.lasting, id, true);
    }
}

/// Brings the static addresses of bridges in line with their configuration.
pub(super) fn bind_static(tables: &Tables, now: Nanos) {
    if let Err(error) = tables.bridges.bind_static(FdbTime::new(now, 0).second) {
        tracing::error!(%error, "not all static addresses of bridges are bound");
    }
}

/// How the workers of a gateway divide their time.
fn schedule(configuration: &Configuration) -> Schedule {
    let gateway = &configuration.gateway;
    let options =
        Options { balance: gateway.balance, budget: gateway.budget.map(u32::from), ..Options::default() };
    Schedule::new(options, Some(gateway.cpu_share))
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
