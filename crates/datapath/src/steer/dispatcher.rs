//! The order definition point: assigns the packets of a receiving worker to workers and draws tickets.

use super::board::Board;
use super::bucket_policy::{BucketMode, BucketPolicy};
use super::flow_name::FlowName;
use super::sketch::Heaviest;
use super::{
    BUCKETS, Hasher, LANES, Order, Thresholds, WINDOW, WORK_BATCHES, WorkBatch, WorkerLoad, buckets,
};
use crate::counters::OrderCounters;
use crate::parse::HeaderSummary;
use crate::units::Nanos;
use polder_buffers::reorder::{ReorderCursor, Ticket, TicketCounter};
use polder_buffers::work_queue::WorkProducer;
use polder_buffers::{BATCH, Batch, Packet};
use std::sync::Arc;

/// Reorder cursors of one receiving worker's lanes, shared with all homes.
pub type ReorderCursors = Arc<[Arc<ReorderCursor>]>;

/// Mode of a hashed bucket; other modes are the lane number of a spread bucket.
const HASHED: u8 = u8::MAX;
/// Interval at which the heaviest flows are published; their weights are then halved.
const POST_FLOWS: Nanos = Nanos::SECOND;
/// Outstanding tickets from which small work batches are held back: a quarter of the window, and three per
/// worker (one in work, two waiting).
const SCARCE: usize = WINDOW as usize / 4;
const SCARCE_EACH: usize = 3;
/// Maximum number of packets in a small work batch.
const SMALL_BATCH: usize = BATCH / 2;
/// Maximum time for which a work batch stays open for more packets, while earlier tickets of its lane are
/// outstanding.
const FILL: Nanos = Nanos(500_000);
/// Lanes for buckets that are spread only under load; the first half is permanently assigned to ports of
/// order `spread`.
const DYNAMIC: core::ops::Range<usize> = LANES / 2..LANES;

/// A lane: the tickets of one spread bucket.
#[derive(Debug)]
struct Lane {
    line: TicketCounter,
    bucket: Option<usize>,
    /// Number of packets that the home must have sent before the first ticket may pass.
    after: u64,
    /// Work batch that is being filled.
    work: Option<Box<WorkBatch>>,
    /// Number of its packets that have been counted, and the time since which it is held open.
    counted: usize,
    opened: Option<Nanos>,
    /// True if no ticket was available for this batch.
    refused: bool,
}

/// Steering state of one worker for the packets that it receives.
#[derive(Debug)]
pub struct Dispatcher {
    me: u16,
    homes: Box<[u16; BUCKETS]>,
    modes: Box<[u8; BUCKETS]>,
    lanes: Box<[Lane]>,
    /// Bit set of lanes with a work batch that is being filled, or without a ticket.
    touched: u32,
    /// Bit set of lanes whose work batch is held open beyond its received batch.
    open: u32,
    /// Packets of this batch that were sent with held-open work batches and are not counted yet.
    early: u64,
    /// Number of outstanding tickets from which tickets are scarce.
    scarce: u32,
    policy: BucketPolicy,
    evaluated_at: Nanos,
    heaviest: Heaviest,
    /// Flows of the batch whose time is being measured, with names for flows that `heaviest` lacks.
    sampled: Vec<(u32, Option<FlowName>)>,
    sampled_nanos: u64,
    board: Arc<Board>,
    posted_at: Nanos,
    producer: WorkProducer<WorkBatch>,
    #[expect(clippy::vec_box, reason = "work_batches travel in their boxes")]
    free: Vec<Box<WorkBatch>>,
    made: usize,
    /// Packets for this worker, to be processed next.
    pub(crate) local: Batch,
    /// Packets for each worker.
    pub(crate) outgoing: Box<[Batch]>,
    /// Total number of packets put into the ring to each worker.
    pub(crate) handed: Box<[u64]>,
    /// Packets without a ticket, to be dropped.
    pub(crate) refused: Batch,
}

impl Dispatcher {
    /// Definition point of worker `me` of `workers`.
    ///
    /// # Panics
    /// If `workers` is 0 or more than [`MOST_WORKERS`](super::MOST_WORKERS).
    pub fn new(
        (me, workers): (usize, usize),
        thresholds: Thresholds,
        producer: WorkProducer<WorkBatch>,
        cursors: &ReorderCursors,
        board: Arc<Board>,
    ) -> Self {
        assert!((1..=super::MOST_WORKERS).contains(&workers), "as many workers as cores");
        let number = |worker: usize| u16::try_from(worker).expect("at most 64 workers");
        let lane = |gate: &Arc<ReorderCursor>| Lane {
            line: TicketCounter::new(WINDOW, Arc::clone(gate)),
            bucket: None,
            after: 0,
            work: None,
            counted: 0,
            opened: None,
            refused: false,
        };
        let mut dispatcher = Self {
            me: number(me),
            homes: Box::new(core::array::from_fn(|bucket| number(bucket % workers))),
            modes: Box::new([HASHED; BUCKETS]),
            lanes: cursors.iter().map(lane).collect(),
            touched: 0,
            open: 0,
            early: 0,
            scarce: u32::try_from(SCARCE + SCARCE_EACH * workers).unwrap_or(WINDOW),
            policy: BucketPolicy::new(thresholds),
            evaluated_at: Nanos::default(),
            heaviest: Heaviest::default(),
            sampled: Vec::with_capacity(BATCH),
            sampled_nanos: 0,
            board,
            posted_at: Nanos::default(),
            producer,
            free: Vec::with_capacity(WORK_BATCHES),
            made: 0,
            local: Batch::new(),
            outgoing: (0..workers).map(|_| Batch::new()).collect(),
            handed: vec![0; workers].into_boxed_slice(),
            refused: Batch::new(),
        };
        for (lane, bucket) in buckets::SPREAD.enumerate() {
            dispatcher.open(bucket, lane);
        }
        dispatcher
    }

    /// Distributes a received batch to `local`, `outgoing`, `refused` and work batches; `batch` is empty
    /// afterwards.
    pub fn define(&mut self, batch: &mut Batch, (order, is_underlay): (Order, bool), hasher: &Hasher) {
        let mut places = [0_u16; BATCH];
        for (packet, place) in batch.iter_mut().zip(&mut places) {
            // The device's own hash is used, except on an underlay, where tunnels must be recognised.
            let flow = match packet.flow_hash {
                hash if hash != 0 && !is_underlay => super::Flow { hash, pinned: false },
                _ => {
                    // The worker that processes the packet need not parse the headers again.
                    HeaderSummary::of(packet);
                    hasher.flow(packet, is_underlay)
                }
            };
            packet.flow_hash = flow.hash;
            *place = place_of(buckets::of(flow.hash, flow.pinned, order));
        }
        let places = &places[..batch.len()];
        match places.first() {
            Some(&first) if places.iter().all(|&place| place == first) => {
                self.route_all(usize::from(first), batch);
            }
            Some(_) => {
                for (packet, &place) in batch.drain().zip(places) {
                    self.route(usize::from(place), packet);
                }
            }
            None => {}
        }
    }

    /// Offers the filled work batches to idle workers, one for each bucket. While tickets are scarce, small
    /// work batches stay open for further packets.
    pub fn offer(&mut self, now: Nanos, counters: &OrderCounters) {
        counters.given.add(core::mem::take(&mut self.early));
        let mut touched = core::mem::take(&mut self.touched);
        while touched != 0 {
            let number = touched.trailing_zeros() as usize;
            touched &= touched - 1;
            let lane = &mut self.lanes[number];
            lane.refused = false;
            lane.count(counters);
            if lane.is_crumb() && lane.line.outstanding() > self.scarce {
                lane.opened.get_or_insert(now);
                self.open |= 1 << number;
            } else {
                self.send(number);
            }
        }
    }

    /// Offers open work batches if tickets are no longer scarce or 500 µs have passed; offers all if
    /// `is_end`.
    #[inline]
    pub fn offer_open(&mut self, now: Nanos, is_end: bool) {
        let mut open = self.open;
        while open != 0 {
            let number = open.trailing_zeros() as usize;
            open &= open - 1;
            let lane = &mut self.lanes[number];
            let is_due = lane.opened.is_none_or(|opened| now.since(opened) >= FILL);
            if is_end || is_due || lane.line.outstanding() <= self.scarce {
                self.send(number);
            }
        }
    }

    /// Time of the next call of [`offer_open`](Self::offer_open); `None` if no work batch is open.
    pub fn next_deadline(&self) -> Option<Nanos> {
        if self.open == 0 {
            return None;
        }
        self.lanes.iter().filter_map(|lane| lane.opened).min().map(|opened| opened + FILL)
    }

    /// Offers the work batch of a lane, if any.
    fn send(&mut self, number: usize) {
        let lane = &mut self.lanes[number];
        self.open &= !(1 << number);
        (lane.counted, lane.opened) = (0, None);
        if let Some(work) = lane.work.take() {
            let given = self.producer.give(work);
            debug_assert!(given.is_ok(), "the queue holds every work that there is");
        }
    }

    /// Offers the open work batch of a lane that lacks room for `packets` more packets.
    #[inline]
    fn make_room(&mut self, number: usize, packets: usize) {
        if self.open & 1 << number != 0
            && self.lanes[number].work.as_ref().is_some_and(|work| work.batch.room() < packets)
        {
            self.early += self.lanes[number].uncounted() as u64;
            self.send(number);
        }
    }

    /// Number of work batches that no worker has taken yet.
    pub fn waiting(&self) -> usize {
        self.producer.waiting()
    }

    /// Accepts an empty work batch for reuse.
    #[inline]
    pub fn take_back(&mut self, work: Box<WorkBatch>) {
        debug_assert_eq!(work.len(), 0, "a work comes back empty");
        self.free.push(work);
    }

    /// Routes a batch whose packets all belong to one bucket.
    #[inline]
    fn route_all(&mut self, bucket: usize, batch: &mut Batch) {
        self.policy.charge(bucket, u32::try_from(batch.len()).unwrap_or(0));
        let room = match self.modes[bucket] {
            HASHED => self.hashed(bucket),
            lane => match self.work(usize::from(lane), batch.len()) {
                Some(work) => {
                    let number = work.ticket.number;
                    batch.iter_mut().for_each(|packet| packet.ticket = number.wrapping_add(1));
                    &mut work.batch
                }
                None => &mut self.refused,
            },
        };
        if room.is_empty() {
            core::mem::swap(room, batch);
        } else {
            // An open work batch with room for all of them.
            room.append(batch);
        }
        batch.fetch_to_fill();
    }

    #[inline]
    fn route(&mut self, bucket: usize, mut packet: Packet) {
        self.policy.charge(bucket, 1);
        let room = match self.modes[bucket] {
            HASHED => self.hashed(bucket),
            lane => match self.work(usize::from(lane), 1) {
                Some(work) => {
                    packet.ticket = work.ticket.number.wrapping_add(1);
                    &mut work.batch
                }
                None => &mut self.refused,
            },
        };
        let pushed = room.push(packet);
        debug_assert!(pushed.is_ok(), "a batch has room for the packets of one");
    }

    #[inline]
    fn hashed(&mut self, bucket: usize) -> &mut Batch {
        let home = self.homes[bucket];
        if home == self.me { &mut self.local } else { &mut self.outgoing[usize::from(home)] }
    }

    /// Work batch of a lane with room for `packets` packets; the first packet draws the ticket. `None` if no
    /// ticket or no work batch is available.
    #[inline]
    fn work(&mut self, number: usize, packets: usize) -> Option<&mut WorkBatch> {
        self.make_room(number, packets);
        self.touched |= 1 << number;
        let lane = &mut self.lanes[number];
        if lane.work.is_none() && !lane.refused {
            if self.free.is_empty() && self.made < WORK_BATCHES {
                // Allocated on demand: as many as were ever outstanding at once.
                self.free.push(make());
                self.made += 1;
            }
            let ticket = if self.free.is_empty() { None } else { lane.line.draw() };
            match ticket.and_then(|ticket| Some((ticket, self.free.pop()?))) {
                Some((ticket, mut work)) => {
                    lane.label(&mut work, ticket, (number, self.me), &self.homes);
                    lane.work = Some(work);
                }
                None => lane.refused = true,
            }
        }
        lane.work.as_deref_mut()
    }

    /// Weighs the buckets once per interval, and spreads or gathers some. Must be called between batches.
    /// Returns the number of changed buckets.
    pub fn evaluate(&mut self, now: Nanos, loads: &[WorkerLoad]) -> u32 {
        let passed = now.since(self.evaluated_at);
        if passed < self.policy.thresholds().interval {
            return 0;
        }
        self.evaluated_at = now;
        let (homes, modes) = (&self.homes, &self.modes);
        // At most one bucket is spread per interval; buckets to be gathered have a lane each.
        let (mut spread, mut gather) = (None, 0_u32);
        let home = |bucket: usize| usize::from(homes[bucket]);
        let is_spread = |bucket: usize| modes[bucket] != HASHED;
        self.policy.evaluate((now, passed), loads, home, is_spread, |verdict| match verdict {
            BucketMode::Spread(bucket) => spread = Some(bucket),
            BucketMode::Hash(bucket) => gather |= 1 << modes[bucket],
        });
        let mut changed = 0;
        while gather != 0 {
            let lane = gather.trailing_zeros() as usize;
            gather &= gather - 1;
            changed += u32::from(self.close(lane));
        }
        if let Some(bucket) = spread
            && let Some(lane) = DYNAMIC.into_iter().find(|&lane| self.lanes[lane].bucket.is_none())
        {
            self.open(bucket, lane);
            changed += 1;
        }
        self.post(now);
        changed
    }

    /// Publishes the worker's steering state.
    fn post(&mut self, now: Nanos) {
        for bucket in 0..BUCKETS {
            if let Some((packets, weight)) = self.policy.news(bucket) {
                let mode = (self.homes[bucket], self.modes[bucket] != HASHED);
                self.board.post(bucket, packets, weight, mode);
            }
        }
        if now.since(self.posted_at) < POST_FLOWS {
            return;
        }
        self.posted_at = now;
        let (heaviest, nanos) = (&self.heaviest, self.sampled_nanos);
        self.board.post_flows(|flows| {
            heaviest.write(&mut flows.heaviest);
            flows.nanos = nanos;
        });
        self.heaviest.fade();
        self.sampled_nanos /= 2;
    }

    /// Spreads a bucket; tickets wait until its home has sent the packets that it already has.
    fn open(&mut self, bucket: usize, number: usize) {
        let home = self.homes[bucket];
        let lane = &mut self.lanes[number];
        lane.line.open();
        lane.bucket = Some(bucket);
        lane.after = if home == self.me { 0 } else { self.handed[usize::from(home)] };
        self.modes[bucket] = u8::try_from(number).expect("few lanes");
    }

    /// Gathers the bucket of a lane. Returns false if tickets of the lane are outstanding.
    fn close(&mut self, number: usize) -> bool {
        let lane = &mut self.lanes[number];
        let Some(bucket) = lane.bucket.filter(|_| lane.line.is_drained()) else { return false };
        lane.bucket = None;
        self.modes[bucket] = HASHED;
        self.board.post(bucket, 0, 0, (self.homes[bucket], false));
        true
    }

    /// Records the flows of a batch whose time is about to be measured.
    #[cold]
    pub fn sample(&mut self, batch: &Batch) {
        self.sampled.clear();
        for packet in batch.iter() {
            let hash = packet.flow_hash;
            let name = if self.heaviest.knows(hash) { None } else { super::flow::name(packet) };
            self.sampled.push((hash, name));
        }
    }

    /// Adds the measured time to the flows of the last call of [`sample`](Self::sample).
    #[cold]
    pub fn weigh(&mut self, time: Nanos) {
        let Some(each) = time.0.checked_div(self.sampled.len() as u64) else { return };
        self.sampled_nanos += time.0;
        for (hash, name) in self.sampled.drain(..) {
            self.heaviest.add(hash, each.max(1), name);
        }
    }

    /// Returns a bucket's share of its home's time in the last interval in thousandths, its home, and true if
    /// it is spread.
    pub fn bucket(&self, bucket: usize) -> (u32, u16, bool) {
        (self.policy.weight(bucket), self.homes[bucket], self.modes[bucket] != HASHED)
    }
}

impl Lane {
    /// Counts packets that were added to the work batch since the last call.
    #[inline]
    fn count(&mut self, counters: &OrderCounters) {
        let packets = self.uncounted();
        if packets > 0 {
            counters.tickets.add(u64::from(self.counted == 0));
            counters.given.add(packets as u64);
        }
        self.counted += packets;
    }

    /// Number of packets in the work batch that are not counted yet.
    #[inline]
    fn uncounted(&self) -> usize {
        self.work.as_ref().map_or(0, |work| work.batch.len() - self.counted)
    }

    /// True if the work batch is small, or is held open and not full.
    #[inline]
    fn is_crumb(&self) -> bool {
        let most = if self.opened.is_some() { BATCH - 1 } else { SMALL_BATCH };
        self.work.as_ref().is_some_and(|work| work.batch.len() <= most)
    }

    fn label(
        &self,
        work: &mut WorkBatch,
        ticket: Ticket,
        (lane, from): (usize, u16),
        homes: &[u16; BUCKETS],
    ) {
        work.ticket = ticket;
        work.lane = place_of(lane);
        work.from = from;
        work.home = self.bucket.map_or(from, |bucket| homes[bucket]);
        work.after = self.after;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "below the number of buckets")]
fn place_of(bucket: usize) -> u16 {
    bucket as u16
}

#[cold]
fn make() -> Box<WorkBatch> {
    Box::new(WorkBatch::new())
}
