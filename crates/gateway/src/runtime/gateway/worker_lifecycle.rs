//! Creation of workers, and the move of queues from old to new workers.
//!
//! `docs/adr/0017-workers-by-reload.md` has the reason why all workers stop for a moment.

use super::share::{INLET_WORKER, Pieces, Share, meshes, new_inlet, with_queue};
use super::{Gateway, WorkerHandle};
use crate::config::model::Configuration;
use crate::runtime::memory::class;
use crate::runtime::sharing::{order, worker_group_for};
use crate::runtime::wake::Wakeup;
use crate::runtime::worker::{Attachment, Command, HandOver, Schedule, SendPath, Worker};
use crate::sandbox::{self, Role};
use crate::supervise::{Loss, Thread};
use anyhow::Result;
use polder_buffers::{BufferPlace, PortId};
use polder_datapath::engine::{Engine, EngineCounters};
use polder_datapath::scheduler::Options;
use polder_datapath::units::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Time limit for finishing packets in flight, far above the time that some hundred packets take.
const MOST: Nanos = Nanos::SECOND;
/// Time limit for devices to send queued packets, so that a flow that moves to another queue is not
/// reordered.
const DRAIN: Nanos = Nanos::from_millis(20);
/// Polling interval while workers finish.
const LOOK: Duration = Duration::from_micros(100);

/// Workers with a thread, without ports, that have not begun.
pub(super) struct NewWorkers {
    new_workers: Vec<NewWorker>,
}

struct NewWorker {
    worker: Worker,
    handle: WorkerHandle,
    engine_counters: EngineCounters,
    /// Channel on which the thread receives its worker.
    go: Sender<Worker>,
}

/// Workers that wait for [`begin`], each with the channel to its thread.
pub(super) type Waiting = Vec<(Worker, Sender<Worker>)>;

impl Gateway {
    /// Creates the workers of a configuration. All steps that can fail are here; the running workers are not
    /// affected.
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
            let places = [BufferPlace::Posted, BufferPlace::Held];
            let [posted, held] = places.map(|place| self.memory.manager().gauge(place));
            worker.count_frames(posted, held);
            if let Some(share) = share {
                worker.join(share, &wakeups);
            }
            let cpu = configuration.gateway.cpus.get(number).copied();
            let (go, gate) = channel::<Worker>();
            let thread = self.threads.spawn(&format!("worker-{number}"), Loss::Ends, move || {
                // The channel closes when the reload is abandoned.
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

    /// Replaces the workers. The new ones start with [`begin`].
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

    /// Sends workers their shares of a port.
    pub(super) fn give_out(&mut self, id: PortId, shares: Vec<Share>) {
        let Some(port) = self.configuration.port(id) else { return };
        let (order, class, weight) = (order(port.order), class(port, &self.configuration), port.weight);
        let mut state = self.ports.iter_mut().find(|state| state.configuration.id == id);
        let inlet = state.as_mut().and_then(|state| new_inlet(state, INLET_WORKER));
        let backlog = state.and_then(|state| state.backlog.clone());
        if let Some((worker, inlet)) = self.workers.get(INLET_WORKER).zip(inlet) {
            worker.send(Command::Inlet(id, Some(inlet)));
        }
        for (worker, (rx, tx)) in self.workers.iter().zip(shares) {
            worker.send(Command::Order(id, order));
            let backlog = backlog.clone();
            worker.send(Command::Attach(Attachment { port: id, class, weight, rx, tx, backlog }));
        }
    }

    /// Replaces the workers and moves the queues to the new ones. New packets wait in their devices; packets
    /// in flight are finished first.
    pub(super) fn replace_workers(&mut self, new_workers: NewWorkers) {
        let start = self.clock.now();
        let (before, after) = (self.workers.len(), new_workers.new_workers.len());
        let ports = self.take_queues(after);
        self.go_on_with(new_workers, ports);
        let pause = self.clock.now().since(start);
        tracing::info!(before, after, pause_us = pause.0 / 1000, "the other workers continue");
    }

    /// Stops all workers, finishes their packets, and takes their queues. Packets in an egress queue stay
    /// there if its worker's number is below `after`.
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

    /// Starts new workers with the old workers' queues.
    pub(super) fn go_on_with(&mut self, new_workers: NewWorkers, ports: BTreeMap<PortId, Pieces>) {
        let waiting = self.start_workers(new_workers);
        for (port, pieces) in ports {
            self.give_back(port, pieces);
        }
        // After all workers have all ports: a packet to a port without a send path would be dropped.
        begin(waiting);
    }

    /// Stops all workers between two rounds and returns them.
    fn call_back(&mut self) -> Vec<Worker> {
        self.workers.iter().for_each(|worker| worker.send(Command::Leave));
        let mut workers = Vec::new();
        for handle in &mut self.workers {
            match handle.thread.take().map(Thread::join) {
                Some(Some(worker)) => workers.extend(worker),
                Some(None) => tracing::error!("a worker has panicked, and its packets and queues are lost"),
                None => {}
            }
        }
        workers
    }

    /// Divides a port's queues among the new workers.
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

/// Starts workers.
pub(super) fn begin(waiting: Waiting) {
    for (worker, go) in waiting {
        if go.send(worker).is_err() {
            tracing::error!("a worker thread ended before it started to work");
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

/// Pins the calling thread to a CPU.
fn pin(cpu: Option<u16>) {
    let Some(cpu) = cpu else { return };
    let mut set = rustix::thread::CpuSet::new();
    set.set(usize::from(cpu));
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(cpu, %error, "cannot pin the worker; the kernel chooses its CPU");
    }
}
