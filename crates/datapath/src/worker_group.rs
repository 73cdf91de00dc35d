//! Worker group: workers that share flows, and the rings between them.
//!
//! In: received batches of steered ports, and packets from other workers. Out: batches to [`Stages`]. Exits:
//! `NoCore`, `LateAfterReorder`. Source: E2, E8; `docs/adr/0007-order.md`.
//!
//! A worker calls [`define`](WorkerGroup::define) for received packets, [`collect`](WorkerGroup::collect)
//! once a round, and [`help`](WorkerGroup::help) when it is idle. Then it wakes the workers named by
//! [`take_wakes`](WorkerGroup::take_wakes). Nothing here blocks; only the home of a bucket waits for other
//! workers' tickets.

mod rings;

use crate::counters::{OrderCounters, WorkerCounters};
use crate::drops::DropReason;
use crate::reorder::Reorderer;
use crate::steer::{
    Board, Dispatcher, Hasher, LANES, LoadMeter, Loads, Order, ReorderCursors, Thresholds, WORK_BATCHES,
    WorkBatch, WorkerLoad,
};
use crate::units::Nanos;
use polder_buffers::reorder::ReorderCursor;
use polder_buffers::{BATCH, Batch};
use rings::{Peer, Rings};
use std::sync::Arc;

/// Packet processing that the worker provides.
pub trait Stages {
    /// Runs all stages; the batch is empty afterwards.
    fn process(&mut self, batch: &mut Batch);
    /// Runs the stages before reordering; the work batch then contains the packets that are not dropped.
    fn work(&mut self, work: &mut WorkBatch);
    /// Runs the stages after reordering; the work batch is empty afterwards.
    fn leave(&mut self, work: &mut WorkBatch);
    /// Drops all packets for the given reason.
    fn discard(&mut self, batch: &mut Batch, reason: DropReason);
    /// Begins work that may be timed; returns the time if it is.
    fn begin(&mut self) -> Option<Nanos>;
    /// Time elapsed since `start`.
    fn since(&mut self, start: Nanos) -> Nanos;
}

/// Options of a worker group.
#[derive(Clone, Debug)]
pub struct WorkerGroupOptions {
    /// Hash function of flows.
    pub hasher: Hasher,
    /// Thresholds for spreading buckets.
    pub thresholds: Thresholds,
    /// Time for which a ticket may be missing while others wait: if many work batches wait, and if few do.
    pub patience: [Nanos; 2],
    /// Capacity in packets of the ring from one worker to another.
    pub ring: usize,
    /// True if order is restored. If false, the worker that processed packets sends them at once.
    pub reordering: bool,
}

impl WorkerGroupOptions {
    /// Default options: thresholds of [`Thresholds`]; timeouts of 5 ms if many work batches wait, and 20 ms
    /// otherwise, since the kernel may preempt a worker for some; rings of 2048 packets between two workers,
    /// fewer with more workers, at least 512.
    pub fn new(hasher: Hasher, workers: usize) -> Self {
        let patience = [5, 20].map(Nanos::from_millis);
        let ring = (4096 / workers.max(1)).clamp(512, 2048);
        Self { hasher, thresholds: Thresholds::default(), patience, ring, reordering: true }
    }
}

/// One worker's part of the group.
#[derive(Debug)]
pub struct WorkerGroup {
    me: usize,
    hasher: Hasher,
    interval: Nanos,
    reordering: bool,
    dispatcher: Dispatcher,
    reorderer: Reorderer,
    /// Rings by worker; the rings to the worker itself stay empty.
    peers: Vec<Peer>,
    loads: Loads,
    board: Arc<Board>,
    meter: LoadMeter,
    inbox: Batch,
    /// True if the last received batch left packets in its queue.
    has_more: bool,
    wakes: Wakes,
    counters: Arc<WorkerCounters>,
}

/// Workers to be woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wakes {
    /// Bit set of workers to which packets were handed over.
    pub brought: u64,
    /// Number of further sleeping workers to wake for waiting work batches.
    pub helpers: usize,
}

/// Creates the parts of `workers` workers, by worker number.
///
/// # Panics
/// If `workers` is 0 or more than [`MOST_WORKERS`](crate::steer::MOST_WORKERS).
pub fn worker_group(workers: usize, options: &WorkerGroupOptions) -> Vec<WorkerGroup> {
    let cursors = (0..workers).map(|_| (0..LANES).map(|_| Arc::new(ReorderCursor::new())).collect());
    let cursors = cursors.collect::<Vec<ReorderCursors>>();
    let loads = (0..workers).map(|_| WorkerLoad::default()).collect::<Loads>();
    let (mut rings, producers) = Rings::new(workers, options.ring);
    let share = |(me, producer)| {
        let board = Arc::new(Board::new(Arc::clone(&loads)));
        WorkerGroup {
            me,
            hasher: options.hasher.clone(),
            interval: options.thresholds.interval,
            reordering: options.reordering,
            dispatcher: Dispatcher::new(
                (me, workers),
                options.thresholds,
                producer,
                &cursors[me],
                Arc::clone(&board),
            ),
            reorderer: Reorderer::new(&cursors, options.patience),
            peers: (0..workers).map(|other| rings.peer(me, other)).collect(),
            loads: Arc::clone(&loads),
            meter: LoadMeter::default(),
            board,
            inbox: Batch::new(),
            has_more: false,
            wakes: Wakes::default(),
            counters: Arc::default(),
        }
    };
    producers.into_iter().enumerate().map(share).collect()
}

impl WorkerGroup {
    /// Switches to a worker's counters.
    pub fn count_in(&mut self, counters: &Arc<WorkerCounters>) {
        self.counters = Arc::clone(counters);
    }

    /// Loads of all workers.
    pub fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Hash function of flows.
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// Published steering state of this worker.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Order definition point.
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    /// Records a round that begins at `now`; `was_busy`: the previous round had work.
    #[inline]
    pub fn round(&mut self, now: Nanos, was_busy: bool) {
        let load = &self.loads[self.me];
        if self.meter.round(now, was_busy, self.interval, load) {
            let changed = self.dispatcher.evaluate(now, &self.loads);
            self.counters.order.changes.add(u64::from(changed));
        }
    }

    /// Records that the worker sleeps until its next round.
    pub fn sleeps(&mut self, now: Nanos) {
        self.meter.sleeps(now, &self.loads[self.me]);
    }

    /// Distributes received packets: hashed packets to their workers, work batches to idle workers. The
    /// caller wakes these and then calls [`share`](Self::share).
    ///
    /// `has_more`: the queue has further packets. The size of the batch does not show this, since costly
    /// queues have small budgets.
    pub fn define(
        &mut self,
        batch: &mut Batch,
        (order, is_underlay): (Order, bool),
        has_more: bool,
        now: Nanos,
        stages: &mut impl Stages,
    ) {
        self.has_more = has_more;
        self.meter.turn(has_more);
        self.dispatcher.define(batch, (order, is_underlay), &self.hasher);
        self.dispatcher.offer(now, &self.counters.order);
        self.wakes.helpers = self.theirs().min(self.dispatcher.waiting());
        if !self.dispatcher.refused.is_empty() {
            stages.discard(&mut self.dispatcher.refused, DropReason::NoCore);
        }
        for other in 0..self.peers.len() {
            if !self.dispatcher.outgoing[other].is_empty() {
                self.hand_over(other, stages);
            }
        }
        if !self.dispatcher.local.is_empty() {
            let mut local = core::mem::take(&mut self.dispatcher.local);
            self.process(&mut local, stages);
            self.dispatcher.local = local;
        }
    }

    /// Hands hashed packets over to their home; packets without room in its ring are dropped before further
    /// work is done on them.
    fn hand_over(&mut self, other: usize, stages: &mut impl Stages) {
        let (batch, ring) = (&mut self.dispatcher.outgoing[other], &mut self.peers[other].steered_to);
        let room = ring.room(batch.len()).min(batch.len());
        let handed = ring.push_all(room, batch.drain_front(room)) as u64;
        if handed > 0 {
            self.dispatcher.handed[other] += handed;
            self.counters.order.steered.add(handed);
            self.wakes.brought |= 1 << other;
        }
        if !batch.is_empty() {
            stages.discard(batch, DropReason::NoCore);
        }
    }

    /// Processes this worker's share of its work batches.
    ///
    /// If the last batch drained its queue, the worker has time and keeps all work batches. Otherwise it
    /// processes the work batches that other workers will not take, and receives nothing until then, so that
    /// excess packets stay in the device, where they cost nothing (B3).
    pub fn share(&mut self, now: Nanos, stages: &mut impl Stages) {
        for _ in self.theirs()..self.dispatcher.waiting() {
            if !self.pull(self.me, now, stages) {
                break;
            }
            self.take_redeemed(now, stages);
        }
    }

    /// Number of work batches left to other workers: two for each, one in processing and one waiting.
    fn theirs(&self) -> usize {
        if self.has_more { 2 * (self.peers.len() - 1) } else { 0 }
    }

    /// Processes packets from other workers. Returns true if there were any.
    pub fn collect(&mut self, now: Nanos, stages: &mut impl Stages) -> bool {
        let mut busy = false;
        self.dispatcher.offer_open(now, false);
        for other in 0..self.peers.len() {
            if other == self.me {
                continue;
            }
            let dispatcher = &mut self.dispatcher;
            self.peers[other].returned_from.pop_all(WORK_BATCHES, |work| dispatcher.take_back(work));
            busy |= self.take_steered(other, now, stages);
        }
        busy |= self.take_redeemed(now, stages);
        let mut output =
            WorkerStages::new(self.me, &mut self.peers, &mut self.dispatcher, &self.counters, stages);
        let expired = self.reorderer.expire(now, |work| output.release_batch(work));
        self.counters.order.expired.add(u64::from(expired));
        busy
    }

    /// Processes one work batch of any worker. Returns false if there is none.
    pub fn help(&mut self, now: Nanos, stages: &mut impl Stages) -> bool {
        let workers = self.peers.len();
        (self.me..self.me + workers).any(|other| self.pull(other % workers, now, stages))
    }

    /// Returns the workers to be woken since the last call, if they sleep.
    #[inline]
    pub fn take_wakes(&mut self) -> Wakes {
        core::mem::take(&mut self.wakes)
    }

    /// True if there is work; must be checked before sleeping.
    pub fn has_work(&mut self) -> bool {
        self.peers.iter_mut().any(|peer| {
            peer.steered_from.available() > 0 || peer.redeemed_from.available() > 0 || !peer.offers.is_empty()
        })
    }

    /// Time of the next call of [`collect`](Self::collect) if nothing happens before; `None` if none is
    /// needed.
    pub fn next_deadline(&self) -> Option<Nanos> {
        [self.reorderer.next_deadline(), self.dispatcher.next_deadline()].into_iter().flatten().min()
    }

    /// Offers all open work batches; for a worker that receives no more.
    pub fn offer_all(&mut self, now: Nanos) {
        self.dispatcher.offer_open(now, true);
    }

    /// Sends the waiting work batches in order, without missing ones; for a worker that ends.
    pub fn close(&mut self, stages: &mut impl Stages) {
        let mut output =
            WorkerStages::new(self.me, &mut self.peers, &mut self.dispatcher, &self.counters, stages);
        self.reorderer.clear(|work| output.release_batch(work));
    }

    fn process(&mut self, batch: &mut Batch, stages: &mut impl Stages) {
        let start = stages.begin();
        let packets = batch.len();
        self.meter.worked(packets);
        if start.is_some() {
            self.dispatcher.sample(batch);
        }
        stages.process(batch);
        if let Some(start) = start {
            let time = stages.since(start);
            self.meter.timed(packets, time);
            self.dispatcher.weigh(time);
        }
    }

    /// Processes packets that another worker handed over; false if there were none.
    fn take_steered(&mut self, other: usize, now: Nanos, stages: &mut impl Stages) -> bool {
        let inbox = &mut self.inbox;
        let taken = self.peers[other].steered_from.pop_all(BATCH, |packet| {
            let pushed = inbox.push(packet);
            debug_assert!(pushed.is_ok(), "a batch has room for a batch");
        });
        if taken == 0 {
            return false;
        }
        self.meter.turn(taken == BATCH);
        self.counters.order.steered_here.add(taken as u64);
        let mut inbox = core::mem::take(&mut self.inbox);
        self.process(&mut inbox, stages);
        self.inbox = inbox;
        let mut output =
            WorkerStages::new(self.me, &mut self.peers, &mut self.dispatcher, &self.counters, stages);
        self.reorderer.sent(other, taken as u64, now, |work| output.release_batch(work));
        true
    }

    /// Processes a work batch of `other`, which may be this worker; false if there is none.
    fn pull(&mut self, other: usize, now: Nanos, stages: &mut impl Stages) -> bool {
        let Some(mut work) = self.peers[other].offers.take() else { return false };
        let packets = work.len();
        self.meter.worked(packets);
        let counters = &self.counters.order;
        counters.pulled.add(packets as u64);
        counters.helped.add(u64::from(other != self.me));
        if other != self.me {
            work.batch.fetch();
        }
        let start = stages.begin();
        if start.is_some() {
            self.dispatcher.sample(&work.batch);
        }
        stages.work(&mut work);
        if let Some(start) = start {
            let time = stages.since(start);
            self.meter.timed(packets, time);
            self.dispatcher.weigh(time);
        }
        if self.reordering {
            counters.redeemed.add(work.len() as u64);
        } else {
            // The lane continues without reordering.
            stages.leave(&mut work);
        }
        let home = usize::from(work.home);
        if home == self.me {
            self.line_up(work, now, stages);
        } else {
            let pushed = self.peers[home].redeemed_to.push(work);
            debug_assert!(pushed.is_ok(), "the ring holds every work that there is");
            self.wakes.brought |= 1 << home;
        }
        true
    }

    fn take_redeemed(&mut self, now: Nanos, stages: &mut impl Stages) -> bool {
        let mut busy = false;
        for other in 0..self.peers.len() {
            while let Some(work) = self.peers[other].redeemed_from.pop() {
                work.batch.fetch();
                self.line_up(work, now, stages);
                busy = true;
            }
        }
        busy
    }

    /// Redeems a work batch whose home is this worker.
    #[inline]
    fn line_up(&mut self, work: Box<WorkBatch>, now: Nanos, stages: &mut impl Stages) {
        let mut output =
            WorkerStages::new(self.me, &mut self.peers, &mut self.dispatcher, &self.counters, stages);
        let redeemed = self.reorderer.redeem(work, now, |work| output.release_batch(work));
        if let Err(late) = redeemed {
            output.refuse(late);
        }
    }
}

/// Handles work batches that are next in order, and late work batches.
struct WorkerStages<'a, S> {
    me: usize,
    peers: &'a mut [Peer],
    dispatcher: &'a mut Dispatcher,
    counters: &'a OrderCounters,
    stages: &'a mut S,
}

impl<'a, S: Stages> WorkerStages<'a, S> {
    #[inline]
    fn new(
        me: usize,
        peers: &'a mut [Peer],
        dispatcher: &'a mut Dispatcher,
        counters: &'a WorkerCounters,
        stages: &'a mut S,
    ) -> Self {
        Self { me, peers, dispatcher, counters: &counters.order, stages }
    }

    /// Sends the packets of the work batch that is next in order, and returns it to its owner.
    #[inline]
    fn release_batch(&mut self, mut work: Box<WorkBatch>) {
        self.counters.restored.add(work.len() as u64);
        self.stages.leave(&mut work);
        self.send_back(work);
    }

    /// Drops the packets of a late work batch, and returns it to its owner.
    #[cold]
    fn refuse(&mut self, mut work: Box<WorkBatch>) {
        self.counters.restored.add(work.len() as u64);
        self.stages.discard(&mut work.batch, DropReason::LateAfterReorder);
        let WorkBatch { batch, more, .. } = &mut *work;
        let mut rest = more.drain(..);
        while rest.len() > 0 {
            rest.by_ref().take(BATCH).for_each(|packet| {
                let pushed = batch.push(packet);
                debug_assert!(pushed.is_ok(), "the batch was emptied");
            });
            self.stages.discard(batch, DropReason::LateAfterReorder);
        }
        drop(rest);
        self.send_back(work);
    }

    #[inline]
    fn send_back(&mut self, work: Box<WorkBatch>) {
        let from = usize::from(work.from);
        if from == self.me {
            self.dispatcher.take_back(work);
        } else {
            let pushed = self.peers[from].returned_to.push(work);
            debug_assert!(pushed.is_ok(), "the ring holds all work_batches of that worker");
        }
    }
}
