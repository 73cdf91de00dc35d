//! Order restoration in front of flow queueing (E8): workers share flows, and the queue drops as it likes.

use super::link::{Frame, MILLIS, RATE, cake, fq_codel, identity};
use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::counters::WorkerCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::queue::{EgressQueue, Isolation, QueueOptions};
use polder_datapath::steer::{Hasher, Order, WorkBatch};
use polder_datapath::units::{BytesPerSecond, Nanos};
use polder_datapath::worker_group::{Stages, WorkerGroup, WorkerGroupOptions, worker_group};
use std::collections::BTreeMap;
use std::sync::Arc;

const WORKERS: usize = 3;
const FLOWS: u32 = 12;
const PATIENCE: Nanos = Nanos::from_millis(5);

/// Workers with one queue behind them.
struct World {
    groups: Vec<Option<WorkerGroup>>,
    queue: EgressQueue,
    pool: Pool,
    random: fastrand::Rng,
    now: Nanos,
    depth: u32,
    numbers: u32,
    /// True if workers pass their packets to the queue without the reorder buffer.
    unordered: bool,
    last_left: BTreeMap<u32, u32>,
    received: u64,
    left: u64,
    dropped: u64,
    /// Packets whose work batch was skipped, and packets that found no ticket.
    late: u64,
    refused: u64,
    reordered: u64,
}

struct Worker<'a>(&'a mut World);

impl World {
    fn new(options: &QueueOptions, unordered: bool) -> Self {
        let mut group_options = WorkerGroupOptions::new(Hasher::mixed(1, true), WORKERS);
        group_options.patience = [PATIENCE; 2];
        let mut groups = worker_group(WORKERS, &group_options);
        groups.iter_mut().for_each(|group| group.count_in(&Arc::new(WorkerCounters::default())));
        let region = Region::new(RegionOptions { slots: 16_384, slot_bytes: 2048 }).expect("memory");
        Self {
            groups: groups.into_iter().map(Some).collect(),
            queue: EgressQueue::new(options),
            pool: region.pool(),
            random: fastrand::Rng::with_seed(5),
            now: Nanos::SECOND,
            depth: 0,
            numbers: 0,
            unordered,
            last_left: BTreeMap::new(),
            received: 0,
            left: 0,
            dropped: 0,
            late: 0,
            refused: 0,
            reordered: 0,
        }
    }

    fn step(&mut self) {
        let worker = self.random.usize(..WORKERS);
        let Some(mut group) = self.groups[worker].take() else { return };
        self.now = self.now + Nanos(20_000);
        group.round(self.now, true);
        if worker == 0 && self.random.bool() {
            self.receive(&mut group);
        }
        group.collect(self.now, &mut Worker(self));
        group.help(self.now, &mut Worker(self));
        group.take_wakes();
        self.groups[worker] = Some(group);
        self.transmit();
    }

    fn receive(&mut self, group: &mut WorkerGroup) {
        let mut batch = Batch::new();
        for _ in 0..32 {
            // Half of the traffic is one flow.
            let flow = if self.random.bool() { 0 } else { self.random.u32(..FLOWS) };
            let frame = Frame { flow, length: 500, ..Frame::default() };
            batch.push(frame.packet(self.numbers, &mut self.pool)).expect("a batch");
            self.numbers += 1;
            self.received += 1;
        }
        group.define(&mut batch, (Order::Spread, false), true, self.now, &mut Worker(self));
        group.share(self.now, &mut Worker(self));
    }

    /// Other workers run while one stands still.
    fn stall(&mut self) {
        if self.depth >= 2 || self.random.u32(..10) > 0 {
            return;
        }
        self.depth += 1;
        for _ in 0..self.random.u32(1..80) {
            self.step();
        }
        if self.random.u32(..10) == 0 {
            self.now = self.now + PATIENCE + PATIENCE;
            (0..50).for_each(|_| self.step());
        }
        self.depth -= 1;
    }

    fn put(&mut self, batch: &mut Batch) {
        let mut dropped = Vec::new();
        self.queue.put(batch, self.now, |packet, _| dropped.push(packet));
        self.release(dropped);
    }

    fn release(&mut self, dropped: Vec<Packet>) {
        self.dropped += dropped.len() as u64;
        dropped.into_iter().for_each(|packet| self.pool.release_packet(packet));
    }

    fn transmit(&mut self) {
        let mut dropped = Vec::new();
        while let Some(packet) = self.queue.take(self.now, |packet, _| dropped.push(packet)) {
            let (flow, number) = identity(&packet);
            let last = self.last_left.entry(flow).or_insert(number);
            self.reordered += u64::from(number < *last);
            *last = number.max(*last);
            self.left += 1;
            self.pool.release_packet(packet);
        }
        self.release(dropped);
    }

    /// A run of `steps`, until nothing waits.
    fn run(mut self, steps: u32) -> Self {
        (0..steps).for_each(|_| self.step());
        for _ in 0..2000 {
            self.now = self.now + Nanos::from_millis(1);
            for worker in 0..WORKERS {
                let mut group = self.groups[worker].take().expect("no worker stands still");
                group.offer_all(self.now);
                group.collect(self.now, &mut Worker(&mut self));
                group.help(self.now, &mut Worker(&mut self));
                self.groups[worker] = Some(group);
            }
            self.transmit();
        }
        assert_eq!(self.queue.len(), 0);
        assert_eq!(self.received, self.left + self.dropped + self.late + self.refused, "conservation");
        self
    }
}

impl Stages for Worker<'_> {
    fn process(&mut self, batch: &mut Batch) {
        self.0.put(batch);
    }

    fn work(&mut self, work: &mut WorkBatch) {
        self.0.stall();
        if self.0.unordered {
            self.0.put(&mut work.batch);
        }
    }

    fn leave(&mut self, work: &mut WorkBatch) {
        self.0.put(&mut work.batch);
    }

    fn discard(&mut self, batch: &mut Batch, reason: DropReason) {
        let packets = batch.len() as u64;
        if reason == DropReason::LateAfterReorder {
            self.0.late += packets;
        } else {
            self.0.refused += packets;
        }
        self.0.pool.release(batch);
    }

    fn begin(&mut self) -> Option<Nanos> {
        Some(self.0.now)
    }

    fn since(&mut self, _: Nanos) -> Nanos {
        Nanos(6400)
    }
}

/// Queues that are overloaded and drop.
fn queues() -> impl Iterator<Item = QueueOptions> {
    let rate = Some(BytesPerSecond(RATE.0 * 2));
    [fq_codel(), cake(Isolation::Both)].into_iter().map(move |options| QueueOptions {
        rate,
        limit_bytes: 300_000,
        ..options
    })
}

#[test]
fn spread_flows_leave_in_order_while_workers_stall_and_the_queue_drops() {
    for options in queues() {
        let world = World::new(&options, false).run(15_000);
        assert_eq!(world.reordered, 0);
        assert!(world.dropped > 500 && world.left > 500, "{} dropped, {} left", world.dropped, world.left);
        assert!(world.late > 0, "some worker stood still for too long");
        assert!(world.now.since(Nanos::SECOND).0 > 250 * MILLIS);
    }
}

#[test]
fn without_restoration_the_same_flows_are_reordered() {
    for options in queues() {
        assert!(World::new(&options, true).run(15_000).reordered > 50);
    }
}
