//! The sending half of a worker: its queues of devices, and its rings to workers that have others.

use super::{NewQueue, Outlet, SendPath};
use crate::runtime::wake::Wakeup;
use polder_buffers::ring::Producer;
use polder_buffers::{Batch, Packet, Pool, PortId};
use polder_datapath::counters::{Stage, WorkerCounters};
use polder_datapath::drops::DropReason;
use polder_datapath::port::Turn;
use polder_datapath::scheduler::Backlog;
use polder_datapath::transmit::Egress;
use polder_datapath::units::Nanos;
use std::sync::Arc;

/// A way to another worker: its ring and its wakeup.
pub(super) type Way = Option<(Producer<Packet>, Arc<Wakeup>)>;

/// The sending half, apart from the rest of the worker so that it can be borrowed beside it.
pub(super) struct Senders {
    /// The time of the round.
    pub(super) now: Nanos,
    ports: Vec<Option<SendPath>>,
    outgoing: Vec<Way>,
    counters: Arc<WorkerCounters>,
    /// Consumers behind ports, which work on this worker's time.
    consumers: Vec<Consumer>,
    /// Packets offered to those in this turn, and whether the backlog of one exceeds its limit.
    offered: u32,
    sated: bool,
    /// True if packets that a device has taken wait in front of it.
    has_unsent: bool,
}

/// A consumer behind a port.
struct Consumer {
    port: PortId,
    backlog: Arc<Backlog>,
    /// True if it is given packets as they come: no queue stands in front of it.
    is_direct: bool,
}

/// Divisor of the backlog limit below which consumers are not loaded.
const EASE: u32 = 4;

/// The worker that writes sequence numbers: it has the first queue of every port.
const SEQUENCER: usize = 0;

impl Senders {
    /// Next hops to other workers, and no port.
    pub(super) fn new(outgoing: Vec<Way>, counters: Arc<WorkerCounters>) -> Self {
        Self {
            now: Nanos::default(),
            ports: Vec::new(),
            outgoing,
            counters,
            consumers: Vec::new(),
            offered: 0,
            sated: false,
            has_unsent: false,
        }
    }

    /// Sends on a port that way, behind which a consumer may work on this worker's time.
    pub(super) fn attach(&mut self, port: PortId, path: SendPath, backlog: Option<Arc<Backlog>>) {
        let consumer = |backlog| Consumer { port, backlog, is_direct: false };
        self.consumers.extend(backlog.map(consumer));
        self.put(port, path);
    }

    fn put(&mut self, port: PortId, path: SendPath) {
        let index = usize::from(port.0);
        if self.ports.len() <= index {
            self.ports.resize_with(index + 1, || None);
        }
        for consumer in self.consumers.iter_mut().filter(|consumer| consumer.port == port) {
            consumer.is_direct = matches!(path, SendPath::Own(_));
        }
        self.ports[index] = Some(path);
        self.count_waiting();
    }

    /// Number of packets that consumers on this worker's time want; `None` without such consumers.
    pub(super) fn wanted(&self) -> Option<u32> {
        self.backlogs().map(Backlog::wanted).reduce(u32::saturating_add)
    }

    /// Backlog of the consumer behind a port; `None` for a port without one.
    pub(super) fn backlog(&self, port: PortId) -> Option<&Backlog> {
        backlog_of(&self.consumers, port)
    }

    /// True if the backlog of consumers is far below its limit.
    pub(super) fn is_at_ease(&self) -> bool {
        self.wanted().is_some_and(|wanted| wanted > self.backlog_limit() / EASE * (EASE - 1))
    }

    /// Number of packets that may wait for consumers.
    pub(super) fn backlog_limit(&self) -> u32 {
        self.backlogs().map(Backlog::limit).fold(0, u32::saturating_add)
    }

    fn backlogs(&self) -> impl Iterator<Item = &Backlog> {
        self.consumers.iter().filter(|consumer| consumer.is_direct).map(|consumer| &*consumer.backlog)
    }

    /// Begins to count the packets that consumers are offered.
    pub(super) fn begin_turn(&mut self) {
        (self.offered, self.sated) = (0, false);
    }

    /// Packets that consumers were offered in this turn.
    pub(super) fn offered_to_consumers(&self) -> u32 {
        self.offered
    }

    /// True if the backlog of a consumer that was offered packets in this turn exceeds its limit.
    pub(super) fn has_sated(&self) -> bool {
        self.sated
    }

    /// Puts another queue in front of a port's device, or none. Packets that wait are kept in order, as far as there
    /// is room for them; the rest is dropped as `queue-full`.
    pub(super) fn set_queue(&mut self, port: PortId, queue: Option<Box<NewQueue>>, pool: &mut Pool) {
        let Some(path) = self.ports.get_mut(usize::from(port.0)).and_then(Option::take) else { return };
        let path = match (path, queue) {
            (SendPath::Own(tx), Some(new)) => SendPath::Queued(Box::new(Outlet::with(tx, *new))),
            (SendPath::Queued(mut outlet), Some(new)) => {
                outlet.exchange(new.queue, pool, &self.counters);
                SendPath::Queued(outlet)
            }
            (SendPath::Queued(outlet), None) => SendPath::Own(outlet.remove(pool, &self.counters)),
            (other @ (SendPath::Own(_) | SendPath::Through(_)), _) => other,
        };
        self.put(port, path);
    }

    /// Lets go of a port. What waits for it is dropped.
    pub(super) fn detach(&mut self, port: PortId, pool: &mut Pool) {
        self.consumers.retain(|consumer| consumer.port != port);
        let path = self.ports.get_mut(usize::from(port.0)).and_then(Option::take);
        if let Some(SendPath::Queued(mut outlet)) = path {
            outlet.clear(pool, &self.counters);
        }
        self.count_waiting();
    }

    /// Takes all send paths, by port, for another worker.
    pub(super) fn take_all(&mut self) -> Vec<(PortId, SendPath)> {
        let paths = (0..).map(PortId).zip(self.ports.drain(..));
        let paths = paths.filter_map(|(port, path)| Some((port, path?))).collect();
        self.counters.queued.set(0);
        paths
    }

    /// Lets go of all ports.
    pub(super) fn clear(&mut self, pool: &mut Pool) {
        (0..).map(PortId).take(self.ports.len()).for_each(|port| self.detach(port, pool));
    }

    /// Reclaims sent packets from devices, and gives them packets that have waited for that. Returns
    /// true if there is reason to do so again at once.
    pub(super) fn round(&mut self, pool: &mut Pool) -> bool {
        let (mut busy, mut has_queues) = (false, false);
        self.has_unsent = false;
        for sender in self.ports.iter_mut().flatten() {
            match sender {
                SendPath::Own(queue) => {
                    busy |= queue.reclaim(pool) == Turn::OutOfBudget;
                    self.has_unsent |= queue.has_unsent();
                }
                SendPath::Queued(outlet) => {
                    has_queues = true;
                    busy |= outlet.pump(self.now, pool, &self.counters);
                }
                SendPath::Through(_) => {}
            }
        }
        if has_queues {
            self.count_waiting();
        }
        busy
    }

    fn count_waiting(&self) {
        let waiting = self.outlets().map(Outlet::len).sum::<usize>();
        self.counters.queued.set(waiting as u64);
    }

    fn outlets(&self) -> impl Iterator<Item = &Outlet> {
        self.ports.iter().flatten().filter_map(|sender| match sender {
            SendPath::Queued(outlet) => Some(&**outlet),
            SendPath::Own(_) | SendPath::Through(_) => None,
        })
    }

    /// Time of the next work of [`round`](Self::round), without other events.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.outlets().filter_map(|outlet| outlet.next_deadline(self.now)).min()
    }

    /// Packets that devices have and have not sent.
    pub(super) fn in_flight(&self) -> u32 {
        let held = |sender: &SendPath| match sender {
            SendPath::Own(queue) => queue.held(),
            SendPath::Queued(outlet) => outlet.in_flight(),
            SendPath::Through(_) => 0,
        };
        self.ports.iter().flatten().map(held).sum()
    }

    /// Frames that devices have.
    pub(super) fn posted(&self) -> u64 {
        let posted = |sender: &SendPath| match sender {
            SendPath::Own(queue) => queue.posted(),
            SendPath::Queued(outlet) => outlet.posted(),
            SendPath::Through(_) => 0,
        };
        self.ports.iter().flatten().map(|sender| u64::from(posted(sender))).sum()
    }

    /// Slots of packets that wait in queues.
    pub(super) fn waiting_slots(&self) -> u64 {
        self.outlets().map(Outlet::slots).sum()
    }

    /// True if packets that a device has taken wait in front of it, as far as was seen since the last round.
    pub(super) fn has_unsent(&self) -> bool {
        self.has_unsent
    }

    /// True if everything has been sent.
    pub(super) fn is_quiet(&self) -> bool {
        self.in_flight() == 0 && self.outlets().all(|outlet| outlet.is_empty())
    }

    /// Hands packets over to worker `owner`; what its ring has no room for is dropped here, before
    /// any more work is spent on it.
    fn hand_over(&mut self, owner: usize, batch: &mut Batch, pool: &mut Pool) {
        self.push_to(owner, batch);
        if !batch.is_empty() {
            self.counters.drops.count(DropReason::NoCore, batch.len() as u64);
            pool.release(batch);
        }
    }

    /// Hands packets over to worker `owner` while its ring has room.
    fn push_to(&mut self, owner: usize, batch: &mut Batch) {
        let Some(Some((ring, wakeup))) = self.outgoing.get_mut(owner) else { return };
        let room = ring.room(batch.len());
        let handed = ring.push_all(room, batch.drain_front(room));
        if handed > 0 {
            self.counters.handed_over.add(handed as u64);
            wakeup.wake();
        }
    }
}

fn backlog_of(consumers: &[Consumer], port: PortId) -> Option<&Backlog> {
    let consumer = consumers.iter().find(|consumer| consumer.port == port && consumer.is_direct);
    consumer.map(|consumer| &*consumer.backlog)
}

impl Egress for Senders {
    fn send(&mut self, port: PortId, batch: &mut Batch, pool: &mut Pool) -> bool {
        let Some(Some(sender)) = self.ports.get_mut(usize::from(port.0)) else { return false };
        match sender {
            SendPath::Own(queue) => {
                if let Some(backlog) = backlog_of(&self.consumers, port) {
                    self.offered += u32::try_from(batch.len()).unwrap_or(0);
                    queue.transmit(batch, pool);
                    self.sated |= backlog.is_exceeded();
                    return true;
                }
                queue.transmit(batch, pool);
                if !batch.is_empty() && queue.reclaim(pool) != Turn::Closed {
                    queue.transmit(batch, pool);
                }
                self.has_unsent |= queue.has_unsent();
            }
            SendPath::Queued(outlet) => {
                let stage = self.counters.stage(Stage::Queue);
                stage.packets.add(batch.len() as u64);
                stage.batches.add(1);
                outlet.put(batch, self.now, pool, &self.counters);
            }
            SendPath::Through(owner) => {
                let owner = *owner;
                self.hand_over(owner, batch, pool);
            }
        }
        true
    }

    fn assigns_sequence(&self, _: PortId) -> bool {
        // There is no ring from a worker to itself.
        self.outgoing.get(SEQUENCER).is_none_or(Option::is_none)
    }

    fn hand_to_sequencer(&mut self, batch: &mut Batch) {
        self.push_to(SEQUENCER, batch);
    }
}
