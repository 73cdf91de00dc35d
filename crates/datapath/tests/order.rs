//! A worker group against a model that works on one packet after the other: over random flows, drops, splits,
//! mergers, stalled workers and changes of mode, in virtual time and on one thread.
//!
//! A worker that stalls does so where it hurts: between pulling a work batch and redeeming it. The others
//! run meanwhile, so interleavings nest like calls.

use polder_buffers::{BATCH, Batch, Packet, Pool, PortId, Region, RegionOptions};
use polder_datapath::counters::WorkerCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::steer::{Hasher, Order, Thresholds, WorkBatch};
use polder_datapath::units::Nanos;
use polder_datapath::worker_group::{Stages, WorkerGroup, WorkerGroupOptions, worker_group};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const PATIENCE: Nanos = Nanos::from_millis(5);
const FLOWS: u64 = 24;

/// Identity of a packet that leaves: flow, place, part.
type Leaf = (u32, u32, u32);

/// A pseudo-random number (SplitMix64).
fn scatter(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Number of packets that the stages make of a packet, 0 for a drop. Depends on the packet alone.
fn becomes(flow: u32, place: u32) -> u32 {
    match scatter(u64::from(flow) << 32 | u64::from(place)) % 256 {
        0..=23 => 0,
        24..=39 => 2,
        40 => 70,
        _ => 1,
    }
}

#[derive(Clone, Copy, Debug)]
struct Weather {
    workers: usize,
    order: Order,
    /// In hundredths: how often a worker stalls within a work batch, and how often beyond the patience.
    stalls: u64,
    long_stalls: u64,
    /// True if buckets change their mode all the time.
    restless: bool,
    steps: u32,
}

struct World {
    weather: Weather,
    groups: Vec<Option<WorkerGroup>>,
    counters: Vec<Arc<WorkerCounters>>,
    pool: Pool,
    now: Nanos,
    random: u64,
    depth: u32,
    /// Nothing comes in any more.
    closing: bool,
    /// Places given to each flow, by receiving worker and flow.
    places: HashMap<(usize, u32), u32>,
    left: BTreeMap<u32, Vec<Leaf>>,
    refused: Vec<Leaf>,
    late: Vec<Leaf>,
    received: u64,
}

/// The world as one worker's stages see it.
struct WorkerStages<'a>(&'a mut World);

impl World {
    fn new(weather: Weather, seed: u64) -> Self {
        let mut options = WorkerGroupOptions::new(Hasher::mixed(1, true), weather.workers);
        options.patience = [PATIENCE; 2];
        options.ring = 128;
        if weather.restless {
            options.thresholds = Thresholds {
                interval: Nanos(10_000),
                over: 0,
                pressed: 0,
                under: 1001,
                big: 0,
                small: 1001,
                spread_after: 1,
                hash_after: 1,
            };
        }
        let mut groups = worker_group(weather.workers, &options);
        let counters = groups.iter().map(|_| Arc::new(WorkerCounters::default())).collect::<Vec<_>>();
        for (group, counters) in groups.iter_mut().zip(&counters) {
            group.count_in(counters);
        }
        let region = Region::new(RegionOptions { slots: 16_384, slot_bytes: 2048 }).expect("memory");
        Self {
            weather,
            groups: groups.into_iter().map(Some).collect(),
            counters,
            pool: region.pool(),
            now: Nanos::SECOND,
            random: seed,
            depth: 0,
            closing: false,
            places: HashMap::new(),
            left: BTreeMap::new(),
            refused: Vec::new(),
            late: Vec::new(),
            received: 0,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = scatter(self.random);
        self.random % below
    }

    /// Step of a worker that is not in the middle of another step.
    fn step(&mut self) {
        let worker = usize::try_from(self.random(self.weather.workers as u64)).expect("few");
        let Some(mut group) = self.groups[worker].take() else { return };
        self.now = self.now + Nanos(1000);
        let now = self.now;
        group.round(now, true);
        match self.random(8) {
            0..=2 => self.receive(worker, &mut group),
            3..=5 => {
                group.collect(now, &mut WorkerStages(self));
            }
            _ => {
                group.help(now, &mut WorkerStages(self));
            }
        }
        group.take_wakes();
        self.groups[worker] = Some(group);
    }

    fn receive(&mut self, worker: usize, group: &mut WorkerGroup) {
        if self.closing || self.pool.region().free_slots() < 8192 {
            return;
        }
        let size = if self.random(3) == 0 { BATCH as u64 } else { 1 + self.random(BATCH as u64) };
        let elephant = self.random(2) == 0;
        let has_more = self.random(2) == 0;
        self.bring((worker, group), size, elephant, has_more);
    }

    /// Brings packets to a worker.
    fn bring(
        &mut self,
        (worker, group): (usize, &mut WorkerGroup),
        size: u64,
        elephant: bool,
        has_more: bool,
    ) {
        let mut batch = Batch::new();
        for _ in 0..size {
            // A flow comes in by one worker; half of the traffic is one flow.
            let flow = if elephant { 0 } else { self.random(FLOWS) } * 16 + worker as u64;
            let flow = u32::try_from(flow).expect("few flows");
            let place = self.places.entry((worker, flow)).or_default();
            let packet = leaf((flow, *place, 0), &mut self.pool);
            *place += 1;
            self.received += 1;
            batch.push(packet).expect("a batch at most");
        }
        group.define(&mut batch, (self.weather.order, false), has_more, self.now, &mut WorkerStages(self));
        group.share(self.now, &mut WorkerStages(self));
        assert!(batch.is_empty());
    }

    /// Others run, as if this worker's core had been taken away.
    fn stall(&mut self) {
        if self.depth >= 3 || self.random(100) >= self.weather.stalls {
            return;
        }
        self.depth += 1;
        let steps = 1 + self.random(60);
        let long = self.random(100) < self.weather.long_stalls;
        for step in 0..steps {
            if long && step == steps / 2 {
                self.now = self.now + PATIENCE + PATIENCE;
            }
            self.step();
        }
        self.depth -= 1;
    }

    /// Everybody works until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..1000 {
            self.now = self.now + Nanos(1000);
            let mut busy = false;
            for worker in 0..self.groups.len() {
                let mut group = self.groups[worker].take().expect("nobody is in the middle of anything");
                let now = self.now;
                group.offer_all(now);
                busy |= group.collect(now, &mut WorkerStages(self));
                busy |= group.help(now, &mut WorkerStages(self));
                self.groups[worker] = Some(group);
            }
            if !busy {
                return;
            }
        }
        unreachable!("there is no end to it");
    }

    fn held(&self) -> i64 {
        self.counters.iter().map(|counters| counters.order.held()).sum()
    }

    fn leave(&mut self, packets: &[Packet]) {
        for packet in packets {
            let leaf = read(packet);
            self.left.entry(leaf.0).or_default().push(leaf);
        }
    }
}

impl Stages for WorkerStages<'_> {
    fn process(&mut self, batch: &mut Batch) {
        let mut work = WorkBatch::new();
        core::mem::swap(&mut work.batch, batch);
        self.multiply(&mut work);
        self.leave(&mut work);
    }

    fn work(&mut self, work: &mut WorkBatch) {
        self.multiply(work);
        self.0.stall();
    }

    fn leave(&mut self, work: &mut WorkBatch) {
        let world = &mut *self.0;
        world.leave(&work.batch);
        world.leave(&work.more);
        world.pool.release(&mut work.batch);
        work.more.drain(..).for_each(|packet| world.pool.release_packet(packet));
    }

    fn discard(&mut self, batch: &mut Batch, reason: DropReason) {
        let leaves = batch.iter().map(read);
        if reason == DropReason::LateAfterReorder {
            self.0.late.extend(leaves);
        } else {
            assert_eq!(reason, DropReason::NoCore);
            self.0.refused.extend(leaves);
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

impl WorkerStages<'_> {
    fn multiply(&mut self, work: &mut WorkBatch) {
        let mut batch = Batch::new();
        core::mem::swap(&mut work.batch, &mut batch);
        for packet in batch.drain() {
            let (flow, place, _) = read(&packet);
            let ticket = packet.ticket;
            self.0.pool.release_packet(packet);
            for part in 0..becomes(flow, place) {
                let mut packet = leaf((flow, place, part), &mut self.0.pool);
                packet.ticket = ticket;
                work.push(packet);
            }
        }
    }
}

/// Packet with its identity as content.
fn leaf((flow, place, part): Leaf, pool: &mut Pool) -> Packet {
    let bytes = [flow, place, part].map(u32::to_be_bytes).concat();
    let mut packet = Packet::copy_from(&bytes, pool).expect("memory for all that is on its way");
    // As from a device that hashes.
    packet.flow_hash = u32::try_from(scatter(u64::from(flow)) >> 32).expect("half") | 1;
    packet.ingress = PortId(0);
    packet
}

fn read(packet: &Packet) -> Leaf {
    let word = |at: usize| u32::from_be_bytes(packet.bytes()[at..at + 4].try_into().expect("four bytes"));
    (word(0), word(4), word(8))
}

/// Packets of each flow that one worker would have sent, without the refused packets.
fn model(world: &World) -> BTreeMap<u32, Vec<Leaf>> {
    let refused = world.refused.iter().map(|&(flow, place, _)| (flow, place));
    let refused = refused.collect::<std::collections::HashSet<_>>();
    let mut expected = BTreeMap::<u32, Vec<Leaf>>::new();
    for (&(_, flow), &places) in &world.places {
        let accepted = (0..places).filter(|&place| !refused.contains(&(flow, place)));
        let leaves =
            accepted.flat_map(|place| (0..becomes(flow, place)).map(move |part| (flow, place, part)));
        expected.entry(flow).or_default().extend(leaves);
    }
    expected.retain(|_, leaves| !leaves.is_empty());
    expected
}

fn run(weather: Weather, seed: u64) -> World {
    let mut world = World::new(weather, seed);
    (0..weather.steps).for_each(|_| world.step());
    world.closing = true;
    world.settle();
    // What waits behind a gap goes when the patience is over.
    world.now = world.now + PATIENCE + PATIENCE;
    world.settle();
    world
}

fn check(mut world: World) -> Result<World, TestCaseError> {
    prop_assert_eq!(world.held(), 0, "everything has come out");
    let late = world.late.iter().copied().collect::<std::collections::HashSet<_>>();
    prop_assert_eq!(late.len(), world.late.len(), "late once");
    let mut expected = model(&world);
    for leaves in expected.values_mut() {
        leaves.retain(|leaf| !late.contains(leaf));
    }
    expected.retain(|_, leaves| !leaves.is_empty());
    prop_assert_eq!(&world.left, &expected);
    let expired = world.counters.iter().map(|counters| counters.order.expired.get()).sum::<u64>();
    prop_assert!(expired > 0 || late.is_empty(), "nothing is late that was not given up");
    let out = world.counters.iter().map(|counters| counters.order.tickets.get()).sum::<u64>();
    let back = world.groups.iter().flatten().map(WorkerGroup::dispatcher).count();
    prop_assert!(
        back == world.weather.workers
            && (out > 0 || world.weather.order == Order::Hash || !world.weather.restless)
    );
    // A worker that ends has nothing left.
    for worker in 0..world.groups.len() {
        let mut group = world.groups[worker].take().expect("nobody is in the middle of anything");
        let left = world.left.values().map(Vec::len).sum::<usize>();
        group.close(&mut WorkerStages(&mut world));
        prop_assert_eq!(left, world.left.values().map(Vec::len).sum::<usize>());
    }
    Ok(world)
}

fn orders() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Auto), Just(Order::Spread), Just(Order::Hash)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packets_leave_as_one_worker_would_send_them(
        seed in any::<u64>(), workers in 1..5_usize, order in orders(), restless: bool,
    ) {
        // Stalls, but none that lasts: nothing may be given up, nothing may be late.
        let weather = Weather { workers, order, stalls: 30, long_stalls: 0, restless, steps: 200 };
        let world = check(run(weather, seed))?;
        prop_assert!(world.late.is_empty(), "{} late", world.late.len());
    }

    #[test]
    fn a_stalled_worker_costs_its_parcel_and_no_order(
        seed in any::<u64>(), workers in 2..5_usize, order in orders(), restless: bool,
    ) {
        let weather = Weather { workers, order, stalls: 30, long_stalls: 40, restless, steps: 200 };
        check(run(weather, seed))?;
    }
}

/// Of 100 batches of 20 packets that a small budget ended, or that were all there was, those that another
/// worker does which has time for one after each.
fn helped(has_more: bool) -> u64 {
    let weather =
        Weather { workers: 2, order: Order::Spread, stalls: 0, long_stalls: 0, restless: false, steps: 0 };
    let mut world = World::new(weather, 9);
    for _ in 0..100 {
        let [mut receiver, mut other] =
            [0, 1].map(|worker| world.groups[worker].take().expect("nobody is in the middle of anything"));
        world.now = world.now + Nanos(1000);
        let now = world.now;
        world.bring((0, &mut receiver), 20, true, has_more);
        other.collect(now, &mut WorkerStages(&mut world));
        other.help(now, &mut WorkerStages(&mut world));
        receiver.collect(now, &mut WorkerStages(&mut world));
        world.groups = vec![Some(receiver), Some(other)];
    }
    world.settle();
    let helped = world.counters[1].order.helped.get();
    check(world).expect("in order");
    helped
}

#[test]
fn dear_packets_are_shared_though_their_batches_are_small() {
    assert!(helped(true) >= 90, "{} of 100", helped(true));
    assert_eq!(helped(false), 0, "who has time does it himself");
}

/// A home that stands still for 8 ms costs nothing while packets come four at a time, one every 4 µs: tickets are
/// not spent on so few.
#[test]
fn crumbs_wait_for_each_other_while_their_line_stands_still() {
    let weather =
        Weather { workers: 2, order: Order::Spread, stalls: 0, long_stalls: 0, restless: false, steps: 0 };
    let mut world = World::new(weather, 3);
    let mut receiver = world.groups[0].take().expect("nobody is in the middle of anything");
    for _ in 0..500 {
        world.now = world.now + Nanos(16_000);
        let now = world.now;
        receiver.collect(now, &mut WorkerStages(&mut world));
        world.bring((0, &mut receiver), 4, true, false);
    }
    assert!(receiver.next_deadline().is_some(), "one is open");
    world.groups[0] = Some(receiver);
    world.settle();
    assert_eq!((world.refused.len(), world.late.len()), (0, 0));
    let tickets = world.counters[0].order.tickets.get();
    assert!((40..64).contains(&tickets), "{tickets} tickets");
    check(world).expect("in order");
}

/// The tests above would say nothing if the weather were always fine.
#[test]
fn the_weather_is_what_it_is_meant_to_be() {
    let weather =
        Weather { workers: 3, order: Order::Auto, stalls: 30, long_stalls: 40, restless: true, steps: 1500 };
    let world = check(run(weather, 4)).expect("in order");
    let sum =
        |read: fn(&WorkerCounters) -> u64| world.counters.iter().map(|counters| read(counters)).sum::<u64>();
    assert!(world.late.len() > 20, "{} late", world.late.len());
    assert!(sum(|counters| counters.order.expired.get()) > 5);
    assert!(sum(|counters| counters.order.changes.get()) > 50);
    assert!(sum(|counters| counters.order.steered.get()) > 500, "hashed packets cross");
    assert!(sum(|counters| counters.order.helped.get()) > 50, "others help");
    assert!(world.received > 10_000);
}
