//! Ports in memory: one makes numbered packets of a few flows, the other checks in which order they
//! come out, perhaps behind a queue that a slower link empties.

use anyhow::ensure;
use polder_buffers::{BATCH, Batch, Packet, Pool, Segment};
use polder_datapath::counters::QueueCounters;
use polder_datapath::port::{Armed, Budget, RxQueue, Turn, TxQueue};
use polder_datapath::queue::{CodelOptions, Discipline, EgressQueue, QueueOptions};
use polder_datapath::units::Nanos;
use polder_testbed::clock;
use polder_testbed::meters::sequence::SequenceMeter;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a packet, FCS excluded.
pub(in crate::scenarios) const BYTES: usize = 64;
/// Offset of a packet's flow and number.
const FLOW_AT: usize = 42;
const NUMBER_AT: usize = 46;
/// MAC addresses of sender and receiver.
pub(in crate::scenarios) const FROM: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(in crate::scenarios) const TO: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A frame of the flow with this UDP source port.
pub(in crate::scenarios) fn frame(flow: u32, port: u16) -> [u8; BYTES] {
    let mut frame = [0; BYTES];
    let (link, rest) = frame.split_at_mut(14);
    link.copy_from_slice(&[&TO[..], &FROM[..], &[8, 0]].concat());
    rest[..20].copy_from_slice(&[0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    rest[20..28].copy_from_slice([port, 5201, 30, 0].map(u16::to_be_bytes).as_flattened());
    frame[FLOW_AT..FLOW_AT + 4].copy_from_slice(&flow.to_be_bytes());
    frame
}

/// State shared by a source and its observers.
#[derive(Debug, Default)]
pub(in crate::scenarios) struct Tap {
    open: AtomicBool,
    sent: Vec<AtomicU64>,
}

impl Tap {
    /// Starts or stops the sending of packets.
    pub(in crate::scenarios) fn set_open(&self, open: bool) {
        // Relaxed: the flag orders nothing.
        self.open.store(open, Ordering::Relaxed);
    }

    /// Packets of each flow so far.
    pub(in crate::scenarios) fn sent(&self) -> Vec<u64> {
        self.sent.iter().map(|sent| sent.load(Ordering::Relaxed)).collect()
    }
}

/// A port that packets come from: a batch of one flow, a batch of the next.
pub(in crate::scenarios) struct Source {
    frames: Vec<Vec<u8>>,
    /// Bytes in front of packets.
    headroom: u16,
    numbers: Vec<u64>,
    turn: usize,
    /// Packets a second; none for as many as are wanted.
    pace: Option<u64>,
    start: u64,
    total: u64,
    tap: Arc<Tap>,
    counters: Arc<QueueCounters>,
}

impl Source {
    pub(in crate::scenarios) fn new(
        frames: Vec<Vec<u8>>,
        headroom: u16,
        pace: Option<u64>,
    ) -> (Self, Arc<Tap>) {
        let sent = frames.iter().map(|_| AtomicU64::new(0)).collect();
        let tap = Arc::new(Tap { open: AtomicBool::new(false), sent });
        let numbers = vec![0; frames.len()];
        let counters = Arc::default();
        let source = Self {
            frames,
            headroom,
            numbers,
            turn: 0,
            pace,
            start: 0,
            total: 0,
            tap: Arc::clone(&tap),
            counters,
        };
        (source, tap)
    }

    /// True if a batch is due.
    fn is_due(&mut self) -> bool {
        let Some(pace) = self.pace else { return true };
        let now = clock::nanos();
        if self.start == 0 {
            self.start = now;
        }
        let due = u128::from(now - self.start) * u128::from(pace) / 1_000_000_000;
        due >= u128::from(self.total) + BATCH as u128
    }
}

impl RxQueue for Source {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        if !self.tap.open.load(Ordering::Relaxed) || !self.is_due() {
            return Turn::Drained;
        }
        let (frame, number) = (&self.frames[self.turn], &mut self.numbers[self.turn]);
        let (before, limit) = (batch.len(), (budget.left() as usize).min(batch.room()));
        let length = u16::try_from(frame.len()).unwrap_or(0);
        for slot in core::iter::from_fn(|| pool.take()).take(limit) {
            let packet = Packet::from_segment(Segment { frame: slot, offset: self.headroom, length });
            // A device writes the bytes, and the processor learns nothing of it.
            packet.prefetch_to_write();
            let pushed = batch.push(packet);
            debug_assert!(pushed.is_ok(), "there is room");
        }
        for packet in batch.iter_mut().skip(before) {
            let bytes = packet.bytes_mut();
            bytes.copy_from_slice(frame);
            bytes[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&number.to_be_bytes());
            *number += 1;
        }
        let count = batch.len() - before;
        self.tap.sent[self.turn].store(*number, Ordering::Relaxed);
        self.turn = (self.turn + 1) % self.frames.len();
        self.total += count as u64;
        budget.spend(u32::try_from(count).unwrap_or(u32::MAX));
        self.counters.received.add(count as u64);
        self.counters.received_bytes.add((count * usize::from(length)) as u64);
        Turn::OutOfBudget
    }

    fn arm(&mut self) -> Armed {
        if self.tap.open.load(Ordering::Relaxed) { Armed::Raced } else { Armed::Waiting }
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

/// The link behind the sink: so many packets a second, with CoDel in front of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::scenarios) struct Link {
    pub(in crate::scenarios) packets_per_second: u64,
    pub(in crate::scenarios) codel: CodelOptions,
}

/// Packets of one flow that were forwarded.
#[derive(Clone, Debug, Default)]
pub(in crate::scenarios) struct Came {
    pub(in crate::scenarios) packets: u64,
    /// Number of these packets whose sequence number is below an earlier one.
    pub(in crate::scenarios) reordered: u64,
    next: u64,
    last_at: u64,
    /// The longest time without a packet, in nanoseconds.
    pub(in crate::scenarios) longest_gap: u64,
}

/// State that all sending queues of the port share.
#[derive(Default)]
pub(in crate::scenarios) struct Ledger {
    pub(in crate::scenarios) flows: Vec<Came>,
    /// Dropped by the queue, because packets waited too long, and because it was full.
    pub(in crate::scenarios) dropped: (u64, u64),
    /// Exact, for the first flow, when it is wanted.
    pub(in crate::scenarios) meter: Option<SequenceMeter>,
    /// Sequence numbers of the first flow in order of arrival, up to the capacity.
    pub(in crate::scenarios) arrivals: Vec<u64>,
    /// Swaps of neighbours that are to be made on purpose, by the number of the first.
    pub(in crate::scenarios) swaps: Vec<u64>,
    link: Option<(Link, EgressQueue)>,
    /// Bytes of outer headers in front of the frames.
    pub(in crate::scenarios) outer: usize,
    /// Time at which the link is free again.
    free_at: u64,
}

/// A port that packets go to.
pub(in crate::scenarios) struct Sink {
    ledger: Arc<Mutex<Ledger>>,
    /// True if this queue is the one that empties the link's queue when nothing comes.
    first: bool,
    counters: Arc<QueueCounters>,
    passed: Arc<AtomicU64>,
}

/// Maximum number of queued bytes at the link: 8192 packets at the minimum charge of a packet.
const QUEUE_BYTES: u64 = 8192 * QueueOptions::BYTES_A_PACKET;

impl Ledger {
    pub(in crate::scenarios) fn new(flows: usize, link: Option<Link>) -> Self {
        let queue = |link: Link| {
            let discipline = Discipline::Codel(link.codel);
            (link, EgressQueue::new(&QueueOptions::new(discipline, QUEUE_BYTES)))
        };
        Self { flows: vec![Came::default(); flows], link: link.map(queue), ..Self::default() }
    }

    /// Flow and number.
    fn read(&self, packet: &Packet) -> (usize, u64) {
        let bytes = packet.bytes().get(self.outer..).unwrap_or_default();
        let flow = bytes.get(FLOW_AT..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or([0xff; 4]);
        let number =
            bytes.get(NUMBER_AT..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default();
        (u32::from_be_bytes(flow) as usize, u64::from_be_bytes(number))
    }

    fn record(&mut self, packet: &Packet, now: u64) {
        let (flow, number) = self.read(packet);
        let Some(came) = self.flows.get_mut(flow) else { return };
        came.packets += 1;
        came.reordered += u64::from(number < came.next);
        came.next = came.next.max(number + 1);
        if came.last_at > 0 {
            came.longest_gap = came.longest_gap.max(now.saturating_sub(came.last_at));
        }
        came.last_at = now;
        if flow > 0 {
            return;
        }
        if let Some(meter) = &mut self.meter {
            meter.record(number);
        }
        if self.arrivals.len() < self.arrivals.capacity() {
            self.arrivals.push(number);
        }
    }

    /// Sends as many packets as the link has had time for.
    fn pump(&mut self, now: u64, pool: &mut Pool) -> u64 {
        let Some((link, mut queue)) = self.link.take() else { return 0 };
        let each = 1_000_000_000 / link.packets_per_second.max(1);
        let mut sent = 0;
        while self.free_at <= now && !queue.is_empty() {
            let dropped = &mut self.dropped.0;
            let at = Nanos(self.free_at);
            let packet = queue.take(at, |packet, _| {
                *dropped += 1;
                pool.release_packet(packet);
            });
            if let Some(packet) = packet {
                self.record(&packet, now);
                pool.release_packet(packet);
                self.free_at += each;
                sent += 1;
            }
        }
        self.link = Some((link, queue));
        sent
    }

    /// Adds the flows of another queue, which have to be other flows.
    pub(in crate::scenarios) fn add(&mut self, other: &Self) -> anyhow::Result<()> {
        for (flow, other) in self.flows.iter_mut().zip(&other.flows).filter(|(_, other)| other.packets > 0) {
            ensure!(flow.packets == 0, "one flow left by two queues");
            *flow = other.clone();
        }
        Ok(())
    }

    /// Number of packets that wait for the link.
    pub(in crate::scenarios) fn waiting(&self) -> usize {
        self.link.as_ref().map_or(0, |(_, queue)| queue.len())
    }

    /// Exchanges neighbours on purpose: a packet with the wanted number, or the first after it that is not the last
    /// of its batch, with the next.
    #[cold]
    fn swap(&mut self, batch: &mut Batch) {
        for place in 1..batch.len() {
            let (_, number) = self.read(&batch[place - 1]);
            if let Some(at) = self.swaps.iter().position(|&swap| swap <= number) {
                self.swaps.swap_remove(at);
                batch.swap(place - 1, place);
            }
        }
    }
}

impl Sink {
    /// Sending queues of one port, and the count of sent packets.
    pub(in crate::scenarios) fn new(
        ledgers: &[Arc<Mutex<Ledger>>],
        queues: usize,
    ) -> (Vec<Self>, Arc<AtomicU64>) {
        let passed = Arc::<AtomicU64>::default();
        let queue = |number: usize| Self {
            ledger: Arc::clone(&ledgers[number % ledgers.len()]),
            first: number < ledgers.len(),
            counters: Arc::default(),
            passed: Arc::clone(&passed),
        };
        ((0..queues).map(queue).collect(), passed)
    }
}

impl TxQueue for Sink {
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) {
        self.counters.transmitted.add(batch.len() as u64);
        let bytes = batch.iter().map(|packet| packet.bytes().len() as u64).sum();
        self.counters.transmitted_bytes.add(bytes);
        let now = clock::nanos();
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        if !ledger.swaps.is_empty() {
            ledger.swap(batch);
        }
        let Ledger { link, free_at, .. } = &mut *ledger;
        let passed = if let Some((_, queue)) = link {
            // A link without work waits for it; one with work goes on when nobody looks.
            *free_at = if queue.is_empty() { now.max(*free_at) } else { *free_at };
            let mut full = 0;
            queue.put(batch, Nanos(now), |packet, _| {
                full += 1;
                pool.release_packet(packet);
            });
            ledger.dropped.1 += full;
            ledger.pump(now, pool)
        } else {
            batch.iter().for_each(|packet| ledger.record(packet, now));
            let passed = batch.len() as u64;
            pool.release(batch);
            passed
        };
        drop(ledger);
        self.passed.fetch_add(passed, Ordering::Relaxed);
    }

    fn reclaim(&mut self, pool: &mut Pool) -> Turn {
        if self.first {
            let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            if ledger.waiting() > 0 {
                ledger.pump(clock::nanos(), pool);
            }
        }
        Turn::Drained
    }

    fn held(&self) -> u32 {
        if !self.first {
            return 0;
        }
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        u32::try_from(ledger.waiting()).unwrap_or(u32::MAX)
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}
