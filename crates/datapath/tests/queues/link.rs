//! A link in virtual time with a queue in front of it, and its senders.

use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::queue::{
    Aqm, CakeOptions, Discipline, EgressQueue, FqCodelOptions, Isolation, QueueOptions, Refusal,
};
use polder_datapath::units::{BytesPerSecond, Nanos};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// 100 Mbit/s.
pub(crate) const RATE: BytesPerSecond = BytesPerSecond(12_500_000);
pub(crate) const MILLIS: u64 = 1_000_000;
/// Offset of the flow's number in a frame, after the UDP header; the packet's number follows.
const NUMBERS: usize = 42;

/// FQ-CoDel with so many flows that those of a test do not share one.
pub(crate) fn fq_codel() -> QueueOptions {
    let options = FqCodelOptions { flows: 65_536, seed: 7, ..FqCodelOptions::default() };
    QueueOptions::new(Discipline::FqCodel(options), 4_000_000)
}

/// As [`fq_codel`], with other AQM parameters.
pub(crate) fn with_aqm(aqm: Aqm) -> QueueOptions {
    let options = FqCodelOptions { aqm, flows: 65_536, seed: 7, ..FqCodelOptions::default() };
    QueueOptions { discipline: Discipline::FqCodel(options), ..fq_codel() }
}

/// Fairness between hosts, with so many flows that those of a test do not share one.
pub(crate) fn cake(isolation: Isolation) -> QueueOptions {
    let options = CakeOptions { isolation, flows: 65_536, seed: 7, ..CakeOptions::default() };
    QueueOptions { discipline: Discipline::Cake(options), ..fq_codel() }
}

/// Identity of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Frame {
    pub(crate) flow: u32,
    /// Hosts: last two bytes of source and destination address.
    pub(crate) hosts: [u16; 2],
    pub(crate) length: usize,
    pub(crate) traffic_class: u8,
}

impl Frame {
    /// A UDP packet over IPv4 whose ports and payload tell the flow.
    pub(crate) fn packet(self, number: u32, pool: &mut Pool) -> Packet {
        let length = self.length.max(NUMBERS + 8);
        let mut bytes = vec![0; length];
        bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        let total = u16::try_from(length - 14).expect("a short packet");
        bytes[14..16].copy_from_slice(&[0x45, self.traffic_class]);
        bytes[16..18].copy_from_slice(&total.to_be_bytes());
        bytes[22..24].copy_from_slice(&[64, 17]);
        let [source, destination] = self.hosts.map(u16::to_be_bytes);
        bytes[26..30].copy_from_slice(&[10, 1, source[0], source[1]]);
        bytes[30..34].copy_from_slice(&[10, 2, destination[0], destination[1]]);
        bytes[34..38].copy_from_slice(&self.flow.to_be_bytes());
        bytes[NUMBERS..NUMBERS + 4].copy_from_slice(&self.flow.to_be_bytes());
        bytes[NUMBERS + 4..NUMBERS + 8].copy_from_slice(&number.to_be_bytes());
        Packet::copy_from(&bytes, pool).expect("enough slots")
    }
}

/// Flow and number of a packet.
pub(crate) fn identity(packet: &Packet) -> (u32, u32) {
    let word = |at: usize| u32::from_be_bytes(packet.bytes()[at..at + 4].try_into().expect("four bytes"));
    (word(NUMBERS), word(NUMBERS + 4))
}

/// True if the packet signals congestion.
pub(crate) fn is_marked(packet: &Packet) -> bool {
    packet.bytes()[15] & 3 == 3
}

/// Sender of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sender {
    /// A packet each so many nanoseconds.
    Constant(u64),
    /// So many packets at a time, each so many nanoseconds.
    Bursts(u32, u64),
    /// A window that grows by a packet a round trip (in nanoseconds), and halves for a loss or a mark.
    Responsive(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Send(u32),
    Feedback(u32, bool),
    LinkFree,
}

/// A flow, and its results.
#[derive(Debug)]
pub(crate) struct FlowState {
    sender: Sender,
    frame: Frame,
    sent: u32,
    window: f64,
    in_flight: u32,
    halved_at: u64,
    last_left: Option<u32>,
    /// Bytes that left since the last call of [`Network::forget`].
    pub(crate) bytes: u64,
    /// Longest time in the queue since then.
    pub(crate) longest_wait: Nanos,
    pub(crate) dropped: u64,
    pub(crate) marked: u64,
}

/// Totals of a run.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) entered: u64,
    pub(crate) left: u64,
    pub(crate) full: u64,
    pub(crate) delay: u64,
    pub(crate) most_bytes: u64,
}

pub(crate) struct Network {
    pub(crate) queue: EgressQueue,
    pub(crate) now: u64,
    pub(crate) rate: BytesPerSecond,
    pub(crate) flows: BTreeMap<u32, FlowState>,
    pub(crate) totals: Totals,
    pool: Pool,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    busy: bool,
    batch: Batch,
}

impl Network {
    pub(crate) fn new(options: &QueueOptions) -> Self {
        let region = Region::new(RegionOptions { slots: 32_768, slot_bytes: 2048 }).expect("memory");
        Self {
            queue: EgressQueue::new(options),
            now: 1000 * MILLIS,
            rate: RATE,
            flows: BTreeMap::new(),
            totals: Totals::default(),
            pool: region.pool(),
            events: BinaryHeap::new(),
            count: 0,
            busy: false,
            batch: Batch::new(),
        }
    }

    /// Adds a flow that starts at once.
    pub(crate) fn add(&mut self, sender: Sender, frame: Frame) {
        let flow = FlowState {
            sender,
            frame,
            sent: 0,
            window: 10.0,
            in_flight: 0,
            halved_at: 0,
            last_left: None,
            bytes: 0,
            longest_wait: Nanos::default(),
            dropped: 0,
            marked: 0,
        };
        assert!(self.flows.insert(frame.flow, flow).is_none(), "a new flow");
        self.schedule(self.now, Event::Send(frame.flow));
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at, self.count, event)));
    }

    /// Starts to count anew, for results without the start.
    pub(crate) fn forget(&mut self) {
        for flow in self.flows.values_mut() {
            (flow.bytes, flow.longest_wait) = (0, Nanos::default());
        }
    }

    /// Lets `nanos` nanoseconds pass, and checks the totals.
    pub(crate) fn run(&mut self, nanos: u64) {
        let end = self.now + nanos;
        while let Some(&Reverse((at, _, event))) = self.events.peek()
            && at <= end
        {
            self.events.pop();
            self.now = at;
            match event {
                Event::Send(flow) => self.send(flow),
                Event::Feedback(flow, is_congested) => self.hear(flow, is_congested),
                Event::LinkFree => self.busy = false,
            }
            self.transmit();
        }
        self.now = end;
        self.check();
    }

    /// Packets that entered have left, were dropped, or wait.
    pub(crate) fn check(&self) {
        let Totals { entered, left, full, delay, .. } = self.totals;
        assert_eq!(entered, left + full + delay + self.queue.len() as u64, "{:?}", self.totals);
    }

    fn send(&mut self, id: u32) {
        let flow = self.flows.get_mut(&id).expect("a flow");
        let (packets, again) = match flow.sender {
            Sender::Constant(interval) => (1, Some(interval)),
            Sender::Bursts(packets, interval) => (packets, Some(interval)),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a window is short")]
            Sender::Responsive(_) => ((flow.window as u32).saturating_sub(flow.in_flight), None),
        };
        flow.in_flight += packets;
        for _ in 0..packets {
            self.put(id);
        }
        if let Some(interval) = again {
            self.schedule(self.now + interval, Event::Send(id));
        }
    }

    /// Lets a flow send one packet.
    pub(crate) fn put(&mut self, id: u32) {
        let flow = self.flows.get_mut(&id).expect("a flow");
        let packet = flow.frame.packet(flow.sent, &mut self.pool);
        flow.sent += 1;
        self.totals.entered += 1;
        self.batch.push(packet).expect("an empty batch");
        let mut dropped = Vec::new();
        self.queue.put(&mut self.batch, Nanos(self.now), |packet, why| dropped.push((packet, why)));
        self.totals.most_bytes = self.totals.most_bytes.max(self.queue.bytes());
        self.lose(dropped);
    }

    fn lose(&mut self, dropped: Vec<(Packet, Refusal)>) {
        for (packet, why) in dropped {
            match why {
                Refusal::Full => self.totals.full += 1,
                Refusal::Delay => self.totals.delay += 1,
            }
            let (id, _) = identity(&packet);
            self.pool.release_packet(packet);
            self.flows.get_mut(&id).expect("a flow").dropped += 1;
            self.answer(id, true);
        }
    }

    /// The sender hears of a packet a round trip later.
    fn answer(&mut self, id: u32, is_congested: bool) {
        if let Sender::Responsive(round_trip) = self.flows[&id].sender {
            self.schedule(self.now + round_trip, Event::Feedback(id, is_congested));
        }
    }

    fn hear(&mut self, id: u32, is_congested: bool) {
        let now = self.now;
        let flow = self.flows.get_mut(&id).expect("a flow");
        let Sender::Responsive(round_trip) = flow.sender else { return };
        flow.in_flight -= 1;
        if !is_congested {
            flow.window += 1.0 / flow.window;
        } else if now - flow.halved_at > round_trip {
            flow.window = (flow.window / 2.0).max(2.0);
            flow.halved_at = now;
        }
        self.send(id);
    }

    /// Passes the next packet to the link if it is free.
    pub(crate) fn transmit(&mut self) {
        if self.busy {
            return;
        }
        let mut dropped = Vec::new();
        let packet = self.queue.take(Nanos(self.now), |packet, why| dropped.push((packet, why)));
        self.lose(dropped);
        let Some(packet) = packet else { return };
        let (id, number) = identity(&packet);
        let flow = self.flows.get_mut(&id).expect("a flow");
        assert!(flow.last_left.is_none_or(|last| last < number), "{number} of flow {id} overtook");
        flow.last_left = Some(number);
        flow.bytes += packet.len() as u64;
        flow.longest_wait = flow.longest_wait.max(self.queue.wait());
        let marked = is_marked(&packet);
        flow.marked += u64::from(marked);
        self.totals.left += 1;
        self.busy = true;
        let free_at = self.now + self.rate.time_of(packet.len() as u64).0;
        self.pool.release_packet(packet);
        self.schedule(free_at, Event::LinkFree);
        self.answer(id, marked);
    }

    /// Bytes of the flows in `ids` since the start of counting.
    pub(crate) fn shares(&self, ids: impl IntoIterator<Item = u32>) -> Vec<u64> {
        ids.into_iter().map(|id| self.flows[&id].bytes).collect()
    }
}

/// Jain's index of fairness: 1 if all shares are equal, 1/n if one takes all.
pub(crate) fn jain(shares: &[u64]) -> f64 {
    let sum = shares.iter().map(|&share| share as f64).sum::<f64>();
    let squares = shares.iter().map(|&share| (share as f64).powi(2)).sum::<f64>();
    sum * sum / (shares.len() as f64 * squares)
}

/// Interventions of tests.
impl Network {
    /// Packets that a flow has sent.
    pub(crate) fn sent(&self, id: u32) -> u32 {
        self.flows[&id].sent
    }

    /// Moves the clock forward; senders and link notice nothing.
    pub(crate) fn leap(&mut self, nanos: u64) {
        self.now += nanos;
        let events = std::mem::take(&mut self.events);
        let later = |Reverse((at, count, event))| Reverse((at + nanos, count, event));
        self.events = events.into_iter().map(later).collect();
    }

    /// Moves the clock back.
    pub(crate) fn queue_clock_back(&mut self, nanos: u64) {
        self.now -= nanos;
        let events = std::mem::take(&mut self.events);
        let earlier = |Reverse((at, count, event))| Reverse((at - nanos, count, event));
        self.events = events.into_iter().map(earlier).collect();
        for flow in self.flows.values_mut() {
            flow.halved_at = 0;
        }
    }

    /// Replaces the queue.
    pub(crate) fn exchange(&mut self, queue: EgressQueue) {
        let old = std::mem::replace(&mut self.queue, queue);
        let mut dropped = Vec::new();
        self.queue.take_over(old, |packet, why| dropped.push((packet, why)));
        self.lose(dropped);
        self.check();
    }

    /// The packet on the link is sent at once.
    pub(crate) fn unblock(&mut self) {
        self.schedule(self.now, Event::LinkFree);
    }
}
