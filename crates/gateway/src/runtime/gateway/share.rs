//! Division of device queues among workers, and the rings between workers.

use super::Gateway;
use super::port::{PortState, QueueState};
use crate::config::model::Port;
use crate::device::PortProperties;
use crate::runtime::sharing::seed;
use crate::runtime::wake::Wakeup;
use crate::runtime::worker::{Command, Mesh, NewQueue, Outlet, SendPath};
use polder_buffers::{PortId, ring};
use polder_datapath::counters::QueueCounters;
use polder_datapath::port::{RxQueue, TxQueue};
use polder_datapath::queue::{EgressQueue, QueueOptions};
use polder_devices::AnyQueue;
use std::sync::Arc;

/// Capacity of the ring between two workers, in packets.
const MESH_RING: usize = 512;
/// Worker that receives the packets of a port with one queue.
pub(super) const INLET_WORKER: usize = 0;
/// Length of an Ethernet header and one VLAN tag, in bytes.
const LINK_BYTES: u32 = 18;

/// Puts the configured egress queue in front of each sending queue of a port.
pub(super) fn with_queue(
    shares: &mut [Share],
    port: &Port,
    facts: &PortProperties,
    known: &mut Vec<QueueState>,
) {
    let Some(options) = queue_options(port, facts) else { return };
    for (worker, (_, path)) in shares.iter_mut().enumerate() {
        *path = match std::mem::replace(path, SendPath::Through(worker)) {
            SendPath::Own(tx) => {
                let new = new_queue(&options, state_of(worker, known));
                SendPath::Queued(Box::new(Outlet::with(tx, new)))
            }
            other @ (SendPath::Queued(_) | SendPath::Through(_)) => other,
        };
    }
}

/// Options of the configured egress queue of a port; `None` without one.
fn queue_options(port: &Port, facts: &PortProperties) -> Option<QueueOptions> {
    Some(port.way_out()?.options(facts.mtu.saturating_add(LINK_BYTES)))
}

/// Queue for the packets that a port receives, at worker `owner`; `None` if the port has no rate for them.
pub(super) fn new_inlet(state: &mut PortState, owner: usize) -> Option<Box<NewQueue>> {
    let mtu = state.facts.as_ref()?.mtu;
    let options = state.configuration.way_in()?.options(mtu.saturating_add(LINK_BYTES));
    state.inlets.iter_mut().for_each(|inlet| inlet.options = None);
    Some(Box::new(new_queue(&options, state_of(owner, &mut state.inlets))))
}

/// State of a worker's egress queue at a port.
fn state_of(worker: usize, known: &mut Vec<QueueState>) -> &mut QueueState {
    let index = known.iter().position(|state| state.worker == worker).unwrap_or_else(|| {
        known.push(QueueState { worker, counters: Arc::default(), options: None });
        known.len() - 1
    });
    &mut known[index]
}

/// Creates an empty queue whose hash of flows has a seed of its own.
fn new_queue(options: &QueueOptions, state: &mut QueueState) -> NewQueue {
    state.options = Some(*options);
    let options = QueueOptions { discipline: options.discipline.with_seed(seed()), ..*options };
    NewQueue { queue: EgressQueue::new(&options), counters: Arc::clone(&state.counters), options }
}

impl Gateway {
    /// Adjusts the queue of packets that a port receives, or replaces it if that is not possible.
    pub(super) fn exchange_inlet(&mut self, id: PortId) {
        let Some(state) = self.ports.iter_mut().find(|state| state.configuration.id == id) else { return };
        let Some(facts) = state.facts.as_ref().filter(|_| state.open) else { return };
        let options =
            state.configuration.way_in().map(|queue| queue.options(facts.mtu.saturating_add(LINK_BYTES)));
        // Where several workers receive, there is no inlet: the configuration was checked.
        let old = state.inlets.iter_mut().find(|inlet| inlet.worker == INLET_WORKER);
        let command = match (old.and_then(|inlet| inlet.options.as_mut()), options) {
            (Some(old), Some(new)) if old.is_adjustable_to(&new) => {
                *old = new;
                Command::AdjustInlet(id, Box::new(new))
            }
            (_, Some(_)) => Command::Inlet(id, new_inlet(state, INLET_WORKER)),
            (Some(_), None) => {
                state.inlets.iter_mut().for_each(|inlet| inlet.options = None);
                Command::Inlet(id, None)
            }
            (None, None) => return,
        };
        if let Some(worker) = self.workers.get(INLET_WORKER) {
            worker.send(command);
        }
    }

    /// Adjusts a port's egress queues to the configured options, or replaces them if that is not possible.
    pub(super) fn exchange_queue(&mut self, id: PortId) {
        let Some(state) = self.ports.iter_mut().find(|state| state.configuration.id == id) else { return };
        let Some(facts) = state.facts.as_ref().filter(|_| state.open) else { return };
        let options = queue_options(&state.configuration, facts);
        // Worker *w* sends on queue *w*, if there is one.
        for (number, worker) in self.workers.iter().enumerate().take(facts.queues) {
            let state = state_of(number, &mut state.queues);
            let command = match (state.options, options) {
                (Some(old), Some(new)) if old.is_adjustable_to(&new) => {
                    state.options = Some(new);
                    Command::AdjustQueue(id, Box::new(new))
                }
                (_, Some(new)) => Command::Queue(id, Some(Box::new(new_queue(&new, state)))),
                (_, None) => {
                    state.options = None;
                    Command::Queue(id, None)
                }
            };
            worker.send(command);
        }
    }
}

/// Queues of one worker at a port.
pub type Share = (Vec<Box<dyn RxQueue>>, SendPath);

/// Sending queues that no worker uses, by number: a worker sends on one queue only.
pub(super) type Spares = Vec<(usize, Box<dyn TxQueue>)>;

/// Divides queues among workers: queue *q* goes to worker *q* mod *workers*; a worker without a queue sends
/// through another worker.
pub fn share(queues: Vec<AnyQueue>, workers: usize, counters: &mut Vec<Arc<QueueCounters>>) -> Vec<Share> {
    divide(queues, workers, counters).0
}

/// As [`share`], and returns the unused sending queues.
pub(super) fn divide(
    queues: Vec<AnyQueue>,
    workers: usize,
    counters: &mut Vec<Arc<QueueCounters>>,
) -> (Vec<Share>, Spares) {
    let mut spares = Vec::new();
    let mut shares = nothing(workers, queues.len());
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
        } else {
            spares.push((number, queue.tx));
        }
    }
    (shares, spares)
}

/// Queues of a port, by number.
#[derive(Default)]
pub(super) struct Pieces {
    pub(super) rx: Vec<(u16, Box<dyn RxQueue>)>,
    pub(super) tx: Vec<(usize, SendPath)>,
}

impl Pieces {
    /// Divides the queues as [`divide`] does. Worker *w* sends on queue *w*.
    pub(super) fn divide(mut self, workers: usize) -> (Vec<Share>, Spares) {
        self.rx.sort_by_key(|(number, _)| *number);
        self.tx.sort_by_key(|(number, _)| *number);
        let mut spares = Vec::new();
        let mut shares = nothing(workers, self.tx.len());
        for (number, rx) in self.rx {
            shares[usize::from(number) % workers].0.push(rx);
        }
        for (number, path) in self.tx {
            match (shares.get_mut(number), path) {
                (Some(share), path) => share.1 = path,
                (None, SendPath::Own(tx)) => spares.push((number, tx)),
                // The workers were stopped with `after` workers in mind, so no other queue has an egress
                // queue.
                (None, SendPath::Queued(_) | SendPath::Through(_)) => {}
            }
        }
        (shares, spares)
    }
}

/// Shares without receive queues: each worker sends through a worker that owns one of `queues` queues.
fn nothing(workers: usize, queues: usize) -> Vec<Share> {
    let owners = queues.clamp(1, workers);
    (0..workers).map(|worker| (Vec::new(), SendPath::Through(worker % owners))).collect()
}

/// Creates the rings between workers.
pub fn meshes(wakeups: &[Arc<Wakeup>]) -> Vec<Mesh> {
    let count = wakeups.len();
    let mut meshes = (0..count).map(|_| Mesh::default()).collect::<Vec<_>>();
    for from in 0..count {
        for to in 0..count {
            if from == to {
                meshes[from].outgoing.push(None);
                continue;
            }
            let (producer, consumer) = ring::channel(MESH_RING);
            meshes[from].outgoing.push(Some((producer, Arc::clone(&wakeups[to]))));
            meshes[to].incoming.push(consumer);
        }
    }
    meshes
}
