//! Workers: how they come, and how their queues go from those that were to those that are to be.
//!
//! `docs/adr/0017-workers-by-reload.md` says why all of them stop for a moment.

use super::share::{Pieces, Share, meshes, with_queue};
use super::{Gateway, WorkerHandle};
use crate::config::model::Configuration;
use crate::runtime::memory::class;
use crate::runtime::sharing::{order, worker_group_for};
use crate::runtime::wake::Wakeup;
use crate::runtime::worker::{Attachment, Command, HandOver, Schedule, SendPath, Worker};
use crate::sandbox::{self, Role};
use crate::supervise::{Loss, Thread};
use anyhow::Result;
use polder_buffers::{PortId, Whereabouts};
use polder_datapath::engine::{Engine, EngineCounters};
use polder_datapath::scheduler::Options;
use polder_datapath::units::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Time limit for packets in flight: some hundred packets, a thousand times over.
const MOST: Nanos = Nanos::SECOND;
/// Time for which devices are given to send their queued packets: a flow that finds another queue must not
/// overtake itself.
const DRAIN: Nanos = Nanos::from_millis(20);
/// Interval at which this is polled.
const LOOK: Duration = Duration::from_micros(100);

/// Workers that have a thread and everything else but ports, and have not begun.
pub(super) struct NewWorkers {
    new_workers: Vec<NewWorker>,
}

struct NewWorker {
    worker: Worker,
    handle: WorkerHandle,
    engine_counters: EngineCounters,
    /// Channel from which the thread receives its worker.
    go: Sender<Worker>,
}

/// Workers that begin when [`begin`] says so, each with the channel by which its thread gets it.
pub(super) type Waiting = Vec<(Worker, Sender<Worker>)>;

impl Gateway {
    /// Finds the workers of a configuration. Whatever can fail about them fails here; those that there
    /// are notice nothing.
    pub(super) fn prepare_workers(&self, configuration: &Configuration) -> Result<NewWorkers> {
        let count = usize::from(configuration.gateway.workers);
        let wakeups = (0..count).map(|_| Wakeup::new().map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
        let mut group = worker_group_for(configuration).into_iter().flatten();
        let mut new_workers = Vec::new();
        for (number, mesh) in meshes(&wakeups).into_iter().enumerate() {
            let (commands, inbox) = channel();
            let (counters, bridging) = self.engine_counters.get(number).cloned().unwrap_or_default();
            let engine_counters = (Arc::clone(&counters), bridging);
            let engine = Engine::counting_in(self.tables.reader(), number, engine_counters.clone());
            let wakeup = Arc::clone(&wakeups[number]);
            let (pool, report) = (self.memory.pool(), self.report.clone());
            let mut worker = Worker::new(pool, engine, self.clock, mesh, Arc::clone(&wakeup), inbox, report)?;
            let share = group.next();
            let board = share.as_ref().map(|share| Arc::clone(share.board()));
            let hasher = share.as_ref().map(|share| share.hasher().clone());
            worker.schedule(schedule(configuration));
            let places = [Whereabouts::Posted, Whereabouts::Held];
            let [posted, held] = places.map(|place| self.memory.manager().gauge(place));
            worker.count_frames(posted, held);
            if let Some(share) = share {
                worker.join(share, &wakeups);
            }
            let cpu = configuration.gateway.cpus.get(number).copied();
            let (go, gate) = channel::<Worker>();
            let thread = self.threads.spawn(&format!("worker-{number}"), Loss::Ends, move || {
                // Nobody comes when the reload is not made after all.
                let mut worker = gate.recv().ok()?;
                pin(cpu);
                sandbox::enter(Role::Worker);
                worker.run();
                Some(worker)
            })?;
            let handle =
                WorkerHandle { commands, wakeup, counters, cpu, board, hasher, thread: Some(thread) };
            new_workers.push(NewWorker { worker, handle, engine_counters, go });
        }
        Ok(NewWorkers { new_workers })
    }

    /// Takes workers in place of those that there were. They begin when [`begin`] says so.
    pub(super) fn start_workers(&mut self, NewWorkers { new_workers }: NewWorkers) -> Waiting {
        self.workers.clear();
        let mut waiting = Vec::new();
        for (number, NewWorker { worker, handle, engine_counters, go }) in new_workers.into_iter().enumerate()
        {
            if number == self.engine_counters.len() {
                self.engine_counters.push(engine_counters);
            }
            self.workers.push(handle);
            waiting.push((worker, go));
        }
        waiting
    }

    /// Gives workers their shares of a port.
    pub(super) fn give_out(&self, id: PortId, shares: Vec<Share>) {
        let Some(port) = self.configuration.port(id) else { return };
        let (order, class, weight) = (order(port.order), class(port, &self.configuration), port.weight);
        let state = self.ports.iter().find(|state| state.configuration.id == id);
        let backlog = state.and_then(|state| state.backlog.as_ref());
        for (worker, (rx, tx)) in self.workers.iter().zip(shares) {
            worker.send(Command::Order(id, order));
            let backlog = backlog.cloned();
            worker.send(Command::Attach(Attachment { port: id, class, weight, rx, tx, backlog }));
        }
    }

    /// Lets other workers go on with the queues of those that there are. Packets that come meanwhile
    /// wait in their devices; those that are under way are finished first.
    pub(super) fn replace_workers(&mut self, new_workers: NewWorkers) {
        let start = self.clock.now();
        let (before, after) = (self.workers.len(), new_workers.new_workers.len());
        let ports = self.take_queues(after);
        self.go_on_with(new_workers, ports);
        let pause = self.clock.now().since(start);
        tracing::info!(before, after, pause_us = pause.0 / 1000, "other workers go on");
    }

    /// Has all workers stop, finishes the packets that they have, and takes their queues. What waits in front of a port
    /// stays with queues of workers below `after`.
    pub(super) fn take_queues(&mut self, after: usize) -> BTreeMap<PortId, Pieces> {
        let start = self.clock.now();
        let mut leaving = self.call_back();
        let finish =
            |workers: &mut [Worker]| workers.iter_mut().fold(false, |busy, worker| busy | worker.finish_up());
        while finish(&mut leaving) && self.clock.now().since(start) < MOST {}
        while !leaving.iter().all(Worker::is_quiet) && self.clock.now().since(start) < DRAIN {
            std::thread::sleep(LOOK);
            finish(&mut leaving);
        }
        let mut ports = BTreeMap::<PortId, Pieces>::new();
        for worker in leaving {
            let number = worker.number();
            let HandOver { rx, tx } = worker.hand_back(number < after);
            rx.into_iter()
                .for_each(|(port, number, rx)| ports.entry(port).or_default().rx.push((number, rx)));
            tx.into_iter().for_each(|(port, path)| ports.entry(port).or_default().tx.push((number, path)));
        }
        ports
    }

    /// Lets workers go on with queues that others had.
    pub(super) fn go_on_with(&mut self, new_workers: NewWorkers, ports: BTreeMap<PortId, Pieces>) {
        let waiting = self.start_workers(new_workers);
        for (port, pieces) in ports {
            self.give_back(port, pieces);
        }
        // Not before everybody has everything: a port without a way to send is one that is closed.
        begin(waiting);
    }

    /// Has all workers stop between two rounds. Gives what they are.
    fn call_back(&mut self) -> Vec<Worker> {
        self.workers.iter().for_each(|worker| worker.send(Command::Leave));
        let mut workers = Vec::new();
        for handle in &mut self.workers {
            match handle.thread.take().map(Thread::join) {
                Some(Some(worker)) => workers.extend(worker),
                Some(None) => tracing::error!("a worker was lost, and its packets and queues with it"),
                None => {}
            }
        }
        workers
    }

    /// Divides anew the queues of a port that workers had.
    fn give_back(&mut self, id: PortId, mut pieces: Pieces) {
        let workers = self.workers.len();
        let Some(state) = self.ports.iter_mut().find(|state| state.configuration.id == id) else { return };
        let spares = state.spares.drain(..).map(|(number, tx)| (number, SendPath::Own(tx)));
        pieces.tx.extend(spares);
        let (mut shares, spares) = pieces.divide(workers);
        state.spares = spares;
        if let Some(facts) = &state.facts {
            with_queue(&mut shares, &state.configuration, facts, &mut state.queues);
        }
        self.give_out(id, shares);
    }
}

/// Lets workers begin.
pub(super) fn begin(waiting: Waiting) {
    for (worker, go) in waiting {
        if go.send(worker).is_err() {
            tracing::error!("a worker's thread has ended before it began");
        }
    }
}

/// Schedule of a gateway's workers.
fn schedule(configuration: &Configuration) -> Schedule {
    let Configuration { gateway, lab, .. } = configuration;
    let options = Options {
        balance: lab.balance,
        back_pressure: lab.back_pressure,
        budget: gateway.budget.map(u32::from),
        ..Options::default()
    };
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
