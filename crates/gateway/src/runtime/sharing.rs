//! A worker's part in the worker group: packets steered to workers by flow, and flows that are spread over
//! all workers.

use super::wake::Wakeup;
use crate::clock::Clock;
use crate::config::model::{Configuration, FlowHash, Order as Configured};
use polder_buffers::{Batch, Pool, PortId};
use polder_datapath::drops::DropReason;
use polder_datapath::engine::{Engine, TurnContext};
use polder_datapath::steer::{Hasher, Order, WorkBatch};
use polder_datapath::transmit::Egress;
use polder_datapath::units::Nanos;
use polder_datapath::worker_group::{Stages, WorkerGroup, WorkerGroupOptions, worker_group};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

/// State that a worker shares with the others.
pub struct Sharing {
    /// The worker's member of the worker group.
    pub group: WorkerGroup,
    /// Order in which the packets of each port are steered to workers.
    orders: Vec<Order>,
    /// The wakeups of all workers.
    wakeups: Vec<Arc<Wakeup>>,
    /// True if the last round had work.
    pub was_busy: bool,
    /// Time at which another worker last brought packets, or was helped.
    pub shared_at: Nanos,
}

/// Time for which a worker stays awake for more packets from others: the cost of a sleep and a wake-up for
/// both.
const AWAKE: Nanos = Nanos(50_000);

impl Sharing {
    /// Creates the state of a worker whose group has these wake-ups.
    pub fn new(group: WorkerGroup, wakeups: &[Arc<Wakeup>]) -> Self {
        Self {
            group,
            orders: Vec::new(),
            wakeups: wakeups.to_vec(),
            was_busy: false,
            shared_at: Nanos::default(),
        }
    }

    /// Order in which the packets of a port are steered to workers.
    #[inline]
    pub fn order(&self, port: PortId) -> Order {
        self.orders.get(usize::from(port.0)).copied().unwrap_or_default()
    }

    /// Sets how the packets of a port are steered to workers.
    pub fn set_order(&mut self, port: PortId, order: Order) {
        let index = usize::from(port.0);
        if self.orders.len() <= index {
            self.orders.resize(index + 1, Order::Queue);
        }
        self.orders[index] = order;
    }

    /// True if other workers brought packets, or were helped, in the last 50 µs.
    pub fn must_poll(&self, now: Nanos) -> bool {
        now.since(self.shared_at) < AWAKE
    }

    /// Wakes workers that were brought packets, and idle workers while work batches wait.
    pub fn wake(&mut self) {
        let wakes = self.group.take_wakes();
        let mut brought = wakes.brought;
        while brought != 0 {
            let worker = brought.trailing_zeros() as usize;
            brought &= brought - 1;
            self.wakeups[worker].wake();
        }
        if wakes.helpers > 0 {
            let sleepers = self.wakeups.iter().filter(|wakeup| wakeup.is_sleeping());
            sleepers.take(wakes.helpers).for_each(|wakeup| wakeup.wake());
        }
    }
}

/// A worker's stages, with their context.
pub struct WorkerStages<'a, E> {
    /// The stages.
    pub engine: &'a mut Engine,
    /// The worker's free frames.
    pub pool: &'a mut Pool,
    /// Egress of packets.
    pub egress: &'a mut E,
    /// The clock.
    pub clock: Clock,
    /// Time of the round.
    pub now: Nanos,
    /// True if the current turn's CPU time is measured.
    pub timed: bool,
}

impl<E: Egress> WorkerStages<'_, E> {
    fn split(&mut self) -> (&mut Engine, TurnContext<'_>, &mut E) {
        let TurnContext { now, pool, timed } =
            TurnContext { now: self.now, pool: self.pool, timed: self.timed };
        (self.engine, TurnContext { now, pool, timed }, self.egress)
    }
}

impl<E: Egress> Stages for WorkerStages<'_, E> {
    fn process(&mut self, batch: &mut Batch) {
        let clock = self.clock;
        let (engine, with, egress) = self.split();
        engine.process_mixed(batch, with, egress, &mut || clock.now());
    }

    fn work(&mut self, work: &mut WorkBatch) {
        let clock = self.clock;
        let (engine, with, egress) = self.split();
        engine.work(work, with, egress, &mut || clock.now());
    }

    fn leave(&mut self, work: &mut WorkBatch) {
        let (engine, with, egress) = self.split();
        engine.release_batch(work, with, egress);
    }

    fn discard(&mut self, batch: &mut Batch, reason: DropReason) {
        self.engine.discard(batch, reason, self.pool);
    }

    fn begin(&mut self) -> Option<Nanos> {
        self.timed = self.engine.begin_turn();
        self.timed.then(|| self.clock.now())
    }

    fn since(&mut self, start: Nanos) -> Nanos {
        self.timed = false;
        self.clock.now().since(start)
    }
}

/// The worker group of a configuration; `None` when every packet stays on the worker that polls its queue, or
/// with one worker.
pub fn worker_group_for(configuration: &Configuration) -> Option<Vec<WorkerGroup>> {
    let workers = usize::from(configuration.gateway.workers);
    if workers < 2 || configuration.ports.iter().all(|port| port.order == Configured::Queue) {
        return None;
    }
    let hasher = match configuration.gateway.flow_hash {
        FlowHash::Directed => Hasher::mixed(seed(), false),
        FlowHash::Symmetric => Hasher::mixed(seed(), true),
        FlowHash::Toeplitz => Hasher::toeplitz(false),
        FlowHash::SymmetricToeplitz => Hasher::toeplitz(true),
    };
    let options = WorkerGroupOptions::new(hasher, workers);
    Some(worker_group(
        workers,
        &WorkerGroupOptions { reordering: configuration.lab.restore_order, ..options },
    ))
}

/// Converts a port's configured order to the datapath's type.
pub fn order(configured: Configured) -> Order {
    match configured {
        Configured::Queue => Order::Queue,
        Configured::Hash => Order::Hash,
        Configured::Spread => Order::Spread,
        Configured::Auto => Order::Auto,
    }
}

/// Random seed of a hash, so that senders cannot choose a worker or the flow of a queue.
pub(super) fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
