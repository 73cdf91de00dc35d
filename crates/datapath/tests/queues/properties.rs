//! Any history: nothing is lost unaccounted for, flows stay in order, memory is bounded.

use super::link::{Frame, identity};
use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::queue::{
    Aqm, CakeOptions, Discipline, EgressCounters, EgressQueue, FqCodelOptions, Isolation, QueueOptions,
};
use polder_datapath::units::{BytesPerSecond, Nanos};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const SLOTS: u32 = 4096;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Packets of a flow arrive.
    Put { flow: u32, packets: u32, length: usize, traffic_class: u8 },
    /// So many packets may leave.
    Take(u32),
    /// Time passes, or jumps back.
    Wait(i64),
    /// The queue gets other options.
    Replace { limit_bytes: u64, flows: u32, rate: Option<u64> },
}

fn step() -> impl Strategy<Value = Step> {
    let put = (0..40_u32, 1..40_u32, 50..1514_usize, 0..=255_u8).prop_map(
        |(flow, packets, length, traffic_class)| Step::Put { flow, packets, length, traffic_class },
    );
    let wait = prop_oneof![8 => 0..30_000_000_i64, 1 => Just(3_600_000_000_000), 1 => -50_000_000..0_i64];
    let rate = proptest::option::of(1..10_000_000_u64);
    // As at the start, the queue is adjusted; with another size it is replaced.
    let limit_bytes = prop_oneof![2 => Just(100_000), 1 => 1..300_000_u64];
    let flows = prop_oneof![2 => Just(64), 1 => 1..2000_u32];
    let replace = (limit_bytes, flows, rate).prop_map(|(limit_bytes, flows, rate)| Step::Replace {
        limit_bytes,
        flows,
        rate,
    });
    prop_oneof![6 => put, 6 => (1..60_u32).prop_map(Step::Take), 4 => wait.prop_map(Step::Wait), 1 => replace]
}

/// Disciplines that flow-queue.
fn disciplines(flows: u32) -> impl Iterator<Item = Discipline> {
    let aqm = Aqm { ce_threshold: Some(Nanos::from_millis(20)), ..Aqm::default() };
    let fq_codel = FqCodelOptions { aqm, flows, seed: 3, ..FqCodelOptions::default() };
    let cake = CakeOptions { aqm, flows, seed: 3, ..CakeOptions::default() };
    let isolations = [Isolation::Source, Isolation::Destination, Isolation::Both];
    let cakes = isolations.map(|isolation| Discipline::Cake(CakeOptions { isolation, ..cake }));
    [Discipline::FqCodel(fq_codel)].into_iter().chain(cakes)
}

/// A queue, and the packets that entered it by their end.
struct History {
    which: usize,
    limits: QueueOptions,
    queue: EgressQueue,
    pool: Pool,
    now: Nanos,
    entered: BTreeSet<(u32, u32)>,
    /// Packets that left, by flow and DSCP.
    left: BTreeMap<(u32, u8), Vec<u32>>,
    dropped: BTreeSet<(u32, u32)>,
    /// Packets with a mark: those that came with it and were not dropped, those that the queue says that it
    /// marked, and those that left.
    marked_before: u64,
    marked_left: u64,
    counters: EgressCounters,
}

fn options(which: usize, limit_bytes: u64, flows: u32, rate: Option<u64>) -> QueueOptions {
    let discipline = disciplines(flows).nth(which).expect("a discipline");
    QueueOptions { rate: rate.map(BytesPerSecond), ..QueueOptions::new(discipline, limit_bytes) }
}

/// Hosts of a flow: a few that share flows.
fn hosts(flow: u32) -> [u16; 2] {
    [5, 3].map(|hosts| u16::try_from(flow % hosts).expect("few"))
}

fn has_mark(packet: &Packet) -> u64 {
    u64::from(packet.bytes()[15] & 3 == 3)
}

impl History {
    fn new(which: usize, pool: Pool) -> Self {
        let limits = options(which, 100_000, 64, None);
        Self {
            which,
            limits,
            queue: EgressQueue::new(&limits),
            pool,
            now: Nanos::SECOND,
            entered: BTreeSet::new(),
            left: BTreeMap::new(),
            dropped: BTreeSet::new(),
            marked_before: 0,
            marked_left: 0,
            counters: EgressCounters::default(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Put { packets, flow, length, traffic_class } => {
                self.put(packets, Frame { flow, hosts: hosts(flow), length, traffic_class });
            }
            Step::Take(packets) => {
                let _ = (0..packets).take_while(|_| self.take()).count();
            }
            Step::Wait(nanos) => self.now = Nanos(self.now.0.saturating_add_signed(nanos).max(1)),
            Step::Replace { limit_bytes, flows, rate } => {
                let old = std::mem::replace(&mut self.limits, options(self.which, limit_bytes, flows, rate));
                match old.is_adjustable_to(&self.limits) {
                    true => self.queue.adjust(&self.limits),
                    false => self.replace(),
                }
            }
        }
        let (packets, bytes) = (self.queue.len(), self.queue.bytes());
        assert!(packets <= self.limits.limit_packets(), "{packets} packets wait");
        assert!(bytes <= self.limits.limit_bytes || packets == 1, "{bytes} bytes wait");
        let tins = self.queue.tins().iter().map(|tin| [tin.waiting, tin.waiting_bytes]);
        let in_tins = tins.reduce(|sum, tin| [sum[0] + tin[0], sum[1] + tin[1]]);
        assert!(in_tins.is_none_or(|sum| sum == [packets as u64, bytes]), "{in_tins:?} in tins");
    }

    fn put(&mut self, packets: u32, frame: Frame) {
        let mut batch = Batch::new();
        for _ in 0..packets {
            let number = u32::try_from(self.entered.len()).expect("few");
            let packet = frame.packet(number, &mut self.pool);
            self.marked_before += has_mark(&packet);
            batch.push(packet).expect("a batch");
            self.entered.insert((frame.flow, number));
        }
        let mut dropped = Vec::new();
        self.queue.put(&mut batch, self.now, |packet, _| dropped.push(packet));
        self.drop(dropped);
    }

    fn take(&mut self) -> bool {
        let mut dropped = Vec::new();
        let taken = self.queue.take(self.now, |packet, _| dropped.push(packet));
        self.drop(dropped);
        taken.map(|packet| self.leave(packet)).is_some()
    }

    fn replace(&mut self) {
        self.counters.publish(&mut self.queue);
        let old = std::mem::replace(&mut self.queue, EgressQueue::new(&self.limits));
        let mut dropped = Vec::new();
        self.queue.take_over(old, |packet, _| dropped.push(packet));
        self.drop(dropped);
    }

    fn leave(&mut self, packet: Packet) {
        let (flow, number) = identity(&packet);
        self.marked_left += has_mark(&packet);
        self.left.entry((flow, packet.bytes()[15] >> 2)).or_default().push(number);
        self.pool.release_packet(packet);
    }

    fn drop(&mut self, packets: Vec<Packet>) {
        for packet in packets {
            assert!(self.dropped.insert(identity(&packet)), "dropped twice");
            self.marked_before -= has_mark(&packet);
            self.pool.release_packet(packet);
        }
    }

    /// Empties the queue and checks the ends of all packets.
    fn end(mut self) {
        self.counters.publish(&mut self.queue);
        let rest = self.queue.clear().collect::<Vec<_>>();
        rest.into_iter().for_each(|packet| self.leave(packet));
        assert_eq!((self.queue.len(), self.queue.bytes()), (0, 0));
        self.counters.publish(&mut self.queue);
        let EgressCounters { marked, flows_new, flows_old, .. } = &self.counters;
        assert_eq!(self.marked_before + marked.get(), self.marked_left, "marks");
        assert_eq!((flows_new.get(), flows_old.get()), (0, 0), "flows of an empty queue");
        let in_tins = self.counters.tins.iter().map(|tin| tin.marked.get()).sum::<u64>();
        assert!(in_tins == marked.get() || self.queue.tins().is_empty(), "{in_tins} marks in tins");
        for ((flow, _), numbers) in &self.left {
            assert!(numbers.is_sorted(), "flow {flow}: {numbers:?}");
        }
        let left = self.left.iter().flat_map(|((flow, _), numbers)| numbers.iter().map(|&one| (*flow, one)));
        let all = left.chain(self.dropped.iter().copied()).collect::<Vec<_>>();
        assert_eq!(all.len(), self.entered.len(), "each packet ends once");
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), self.entered, "no packet is lost or made");
    }
}

fn run(which: usize, steps: &[Step]) {
    let region = Region::new(RegionOptions { slots: SLOTS, slot_bytes: 2048 }).expect("memory");
    let mut history = History::new(which, region.pool());
    steps.iter().for_each(|&step| history.step(step));
    history.end();
    assert_eq!((region.free_slots(), region.late_frees()), (SLOTS, 0), "every slot is home");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn packets_are_conserved_and_flows_stay_in_order(steps in proptest::collection::vec(step(), 1..120)) {
        (0..disciplines(1).count()).for_each(|which| run(which, &steps));
    }
}
