//! Ports without a device: packets are copied out of thin air, and copied into it.
//!
//! As DPDK's `net_null` does with `copy=1`, a receiving port takes a frame from the pool and copies a
//! packet into it, a sending port copies the packet out of its frame and gives the frame back. What is
//! between them is measured with the price of memory in it, and nothing else.
//!
//! With `Room::direct`, ports do as devices with direct memory access: the processor writes no more of a
//! packet than its head, and reads nothing when it is sent; the payload is as cold as that of a frame in
//! which a device has written.

use super::pace::Pace;
use super::packet::{Talk, Template, copy};
use super::probe::Probe;
use crate::clock;
use crate::meters::allocations;
use crate::meters::stream::StreamMeter;
use polder_buffers::{Batch, Frame, HEADROOM, Packet, Pool, Segment};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Armed, Budget, RxQueue, Turn, TxQueue};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The longest packet that is copied.
const LONGEST: usize = 2048;
/// Packets that a device has at a time that reads them by itself: as an adapter's ring has room for.
const IN_FLIGHT: usize = 1024;

/// State shared by a source and its observers.
#[derive(Debug, Default)]
pub struct Tap {
    open: AtomicBool,
    allocations: AtomicU64,
    /// True if an observer waits for the next two.
    asked: AtomicBool,
    cpu_nanos: AtomicU64,
    received: AtomicU64,
}

/// Room for a source's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes in front of them.
    pub headroom: u16,
    /// True if they take no more than they need, where the pool has pieces.
    pub exact: bool,
    /// True if the processor writes their heads alone.
    pub direct: bool,
}

impl Default for Room {
    fn default() -> Self {
        Self { headroom: HEADROOM, exact: false, direct: false }
    }
}

impl Room {
    #[inline]
    fn take(self, length: u16, pool: &mut Pool) -> Option<Frame> {
        if self.exact { pool.take_for(u32::from(self.headroom) + u32::from(length)) } else { pool.take() }
    }
}

/// A port that packets come from.
#[derive(Debug)]
pub struct Source {
    /// None for a port that only sends.
    template: Option<Template>,
    /// None for as many as are wanted.
    pace: Option<Pace>,
    number: u64,
    flow: u32,
    station: u32,
    room: Room,
    tap: Arc<Tap>,
    counters: Arc<QueueCounters>,
}

/// A port that packets go to.
pub struct Drain {
    scratch: Box<[u8; LONGEST]>,
    /// Offset of probes, and their meter.
    meter: Option<(usize, Arc<Mutex<StreamMeter>>)>,
    /// Packets that the device reads by itself, and has not read yet; and how many it could not read.
    direct: Option<(VecDeque<Packet>, Arc<AtomicU64>)>,
    /// True if it was given packets since its last report of sent ones.
    busy: bool,
    counters: Arc<QueueCounters>,
}

impl Tap {
    /// Lets packets out, or stops them.
    pub fn set_open(&self, open: bool) {
        // Relaxed: the flag orders nothing.
        self.open.store(open, Ordering::Relaxed);
    }

    /// True if packets come.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Takes note of how often the thread that polls the source has allocated.
    pub fn note_allocations(&self, count: u64) {
        self.allocations.store(count, Ordering::Relaxed);
    }

    /// Requests the counters of the thread that polls the source. From outside, the scheduler's account of a
    /// thread that runs is as old as its last tick, which is milliseconds.
    pub fn ask(&self) {
        // Relaxed: the question orders nothing.
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Answers a waiting observer with the calling thread's CPU time and the number of packets that
    /// have come.
    #[inline]
    pub fn answer(&self, received: u64) {
        if self.asked.load(Ordering::Relaxed) {
            let nanos = u64::try_from(clock::thread_cpu().as_nanos()).unwrap_or(u64::MAX);
            self.cpu_nanos.store(nanos, Ordering::Relaxed);
            self.received.store(received, Ordering::Relaxed);
            // Release: pairs with the load in `answered`, which then sees both.
            self.asked.store(false, Ordering::Release);
        }
    }

    /// CPU time and packets, if they have been told since [`ask`](Self::ask).
    pub fn answered(&self) -> Option<(Duration, u64)> {
        // Acquire: pairs with the store in `answer`.
        let is_told = !self.asked.load(Ordering::Acquire);
        let told = || {
            let nanos = self.cpu_nanos.load(Ordering::Relaxed);
            (Duration::from_nanos(nanos), self.received.load(Ordering::Relaxed))
        };
        is_told.then(told)
    }

    /// Allocations of the polling thread up to its last poll.
    pub fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }
}

impl Source {
    /// A source of packets, `frame_bytes` long with an FCS that is not there, and its tap, which is
    /// closed.
    pub fn new(talk: Talk, frame_bytes: usize) -> (Self, Arc<Tap>) {
        Self::with(Some(Template::new(talk, frame_bytes)), None)
    }

    /// The same at a pace.
    pub fn paced(talk: Talk, frame_bytes: usize, pace: Pace) -> (Self, Arc<Tap>) {
        Self::with(Some(Template::new(talk, frame_bytes)), Some(pace))
    }

    /// A source that is dry.
    pub fn dry() -> (Self, Arc<Tap>) {
        Self::with(None, None)
    }

    fn with(template: Option<Template>, pace: Option<Pace>) -> (Self, Arc<Tap>) {
        let tap = Arc::<Tap>::default();
        let counters = Arc::default();
        let room = Room::default();
        (Self { template, pace, number: 0, flow: 0, station: 0, room, tap: Arc::clone(&tap), counters }, tap)
    }

    /// The same with other room for packets.
    #[must_use]
    pub fn in_room(self, room: Room) -> Self {
        Self { room, ..self }
    }

    /// Number of packets that may come now.
    fn due(&self) -> u64 {
        self.pace.as_ref().map_or(u64::MAX, |pace| pace.due_by(clock::nanos()).saturating_sub(self.number))
    }
}

impl RxQueue for Source {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        self.tap.allocations.store(allocations::on_this_thread(), Ordering::Relaxed);
        self.tap.answer(self.counters.received.get());
        if !self.tap.is_open() {
            return Turn::Drained;
        }
        let limit = u64::from(budget.left()).min(batch.room() as u64).min(self.due());
        let Some(template) = &self.template else { return Turn::Drained };
        let length = u16::try_from(template.len()).unwrap_or(u16::MAX);
        let mut count = 0;
        while count < limit
            && let Some(frame) = self.room.take(length, pool)
        {
            let offset = self.room.headroom;
            if batch.push(Packet::from_segment(Segment { frame, offset, length })).is_err() {
                break;
            }
            // A packet that is written to before it is pushed is made on the stack, and waits to be moved
            // until all its parts have arrived there: some five nanoseconds.
            let Some(packet) = batch.last_mut() else { break };
            if self.room.direct {
                template.write_headers(self.flow, self.station, packet.bytes_mut());
            } else {
                template.write(self.flow, self.station, packet.bytes_mut());
            }
            if let Some(pace) = &self.pace {
                let probe = Probe { stream: 0, number: self.number, due: pace.due(self.number) };
                probe.write(&mut packet.bytes_mut()[template.probe_at()..]);
            }
            self.number += 1;
            self.flow = after(self.flow, template.talk().flows);
            self.station = if self.flow == 0 { 0 } else { after(self.station, template.talk().macs) };
            count += 1;
        }
        budget.spend(u32::try_from(count).unwrap_or(u32::MAX));
        self.counters.received.add(count);
        self.counters.received_bytes.add(count * u64::from(length));
        if limit == 0 { Turn::Drained } else { Turn::OutOfBudget }
    }

    fn arm(&mut self) -> Armed {
        if self.tap.is_open() && self.template.is_some() { Armed::Raced } else { Armed::Waiting }
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

/// True if a packet's bytes are on both sides of a boundary of 4 KiB.
#[inline]
fn crosses(packet: &Packet) -> bool {
    let first = packet.head().offset_in_region() + u64::from(packet.headroom());
    first / 4096 != (first + packet.bytes().len().max(1) as u64 - 1) / 4096
}

/// Gives packets to a device that reads them by itself; earlier packets have been sent.
fn send_direct(
    batch: &mut Batch,
    pool: &mut Pool,
    (flight, copied): (&mut VecDeque<Packet>, &AtomicU64),
    counters: &QueueCounters,
) {
    let (mut packets, mut bytes) = (0, 0);
    for packet in batch.drain_front(batch.len()) {
        let length = packet.len() as u64;
        let packet = if crosses(&packet) {
            copied.fetch_add(1, Ordering::Relaxed);
            bounce(packet, pool)
        } else {
            Some(packet)
        };
        let Some(packet) = packet else {
            counters.drops.count(DropReason::TxError, 1);
            continue;
        };
        (packets, bytes) = (packets + 1, bytes + length);
        flight.push_back(packet);
    }
    counters.transmitted.add(packets);
    counters.transmitted_bytes.add(bytes);
    let sent = flight.len().saturating_sub(IN_FLIGHT);
    flight.drain(..sent).for_each(|packet| pool.release_packet(packet));
}

/// A copy of the packet in a slot of its own, which no boundary divides; `None` when there is no slot.
fn bounce(packet: Packet, pool: &mut Pool) -> Option<Packet> {
    let length = u16::try_from(packet.len()).ok()?;
    let copy = pool.take().map(|mut frame| {
        let start = usize::from(HEADROOM);
        frame.slot_mut()[start..start + usize::from(length)].copy_from_slice(packet.bytes());
        Packet::from_segment(Segment { frame, offset: HEADROOM, length })
    });
    pool.release_packet(packet);
    copy
}

/// The number that follows in a circle of `count`.
#[inline]
fn after(number: u32, count: u32) -> u32 {
    if number + 1 < count { number + 1 } else { 0 }
}

impl Drain {
    /// A port that swallows everything.
    pub fn new() -> Self {
        Self {
            scratch: Box::new([0; LONGEST]),
            meter: None,
            direct: None,
            busy: false,
            counters: Arc::default(),
        }
    }

    /// A device that reads packets by itself, 1024 packets later, and must not be given packets that
    /// cross a boundary of 4 KiB: such packets are copied into a slot, which never does, and counted.
    pub fn with_erratum(copied: &Arc<AtomicU64>) -> Self {
        Self { direct: Some((VecDeque::new(), Arc::clone(copied))), ..Self::new() }
    }

    /// The same with a meter that reads the probe `probe_at` bytes into each packet.
    pub fn metered(probe_at: usize, meter: Arc<Mutex<StreamMeter>>) -> Self {
        Self { meter: Some((probe_at, meter)), ..Self::new() }
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

impl TxQueue for Drain {
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) {
        if let Some((flight, copied)) = &mut self.direct {
            self.busy |= !batch.is_empty();
            return send_direct(batch, pool, (flight, copied), &self.counters);
        }
        let mut bytes = 0;
        for packet in batch.iter() {
            copy(packet.bytes(), &mut *self.scratch);
            bytes += packet.len();
        }
        self.counters.transmitted.add(batch.len() as u64);
        self.counters.transmitted_bytes.add(bytes as u64);
        if let Some((probe_at, meter)) = &self.meter {
            let now = clock::nanos();
            let mut meter = meter.lock().unwrap_or_else(PoisonError::into_inner);
            let probes = batch.iter().filter_map(|packet| Probe::read(packet.bytes().get(*probe_at..)?));
            probes.for_each(|probe| meter.record(probe.number, now.saturating_sub(probe.due)));
        }
        std::hint::black_box(&self.scratch);
        pool.release(batch);
    }

    fn reclaim(&mut self, pool: &mut Pool) -> Turn {
        if let Some((flight, _)) = &mut self.direct {
            // Asked when nothing more comes, it has sent everything.
            let sent = if core::mem::take(&mut self.busy) { 0 } else { flight.len() };
            flight.drain(..sent).for_each(|packet| pool.release_packet(packet));
        }
        Turn::Drained
    }

    fn held(&self) -> u32 {
        self.direct.as_ref().map_or(0, |(flight, _)| u32::try_from(flight.len()).unwrap_or(u32::MAX))
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meters::frames;
    use polder_buffers::{BufferManager, BufferOptions, Class, FragmentOptions};
    use polder_buffers::{Region, RegionOptions};
    use std::net::Ipv4Addr;

    fn talk() -> Talk {
        let end = |last| ([2, 0, 0, 0, last, 0xfe], Ipv4Addr::new(10, 0, last, 254));
        Talk { flows: 100, macs: 7, ..Talk::simple(end(1), end(2)) }
    }

    #[test]
    fn frames_are_those_of_the_template_and_come_home() {
        let region = Region::new(RegionOptions { slots: 512, slot_bytes: 2048 }).unwrap();
        let (mut pool, mut batch) = (region.pool(), Batch::new());
        let (mut source, tap) = Source::new(talk(), 68);
        let mut drain = Drain::new();
        let receive = |source: &mut Source, batch: &mut Batch, pool: &mut Pool| {
            source.receive(&mut Budget::new(64), batch, pool)
        };
        assert_eq!((receive(&mut source, &mut batch, &mut pool), batch.len()), (Turn::Drained, 0));
        tap.set_open(true);
        let template = Template::new(talk(), 68);
        let mut expected = vec![0; 64];
        for number in 0..640 {
            if batch.is_empty() {
                assert_eq!(receive(&mut source, &mut batch, &mut pool), Turn::OutOfBudget);
            }
            let packet = batch.drain_front(1).next().unwrap();
            template.write(number % 100, number % 100 % 7, &mut expected);
            assert_eq!(packet.bytes(), expected, "packet {number}");
            let mut single = Batch::new();
            single.push(packet).unwrap();
            drain.transmit(&mut single, &mut pool);
        }
        assert_eq!((drain.counters().transmitted.get(), source.counters().received.get()), (640, 640));
        assert!((1..=allocations::on_this_thread()).contains(&tap.allocations()));
        drop(pool);
        assert_eq!((frames::away(&region), region.late_frees()), (0, 0));
    }

    /// Buffers that a boundary divides are copied, all others go as they are, and all come home.
    #[test]
    fn a_device_that_reads_by_itself_is_given_nothing_that_crosses() {
        for (never_cross, copies) in [(4096, false), (32_768, true)] {
            let mut options = BufferOptions::fixed(4096, 256, 2048);
            let fragments = FragmentOptions { blocks: 128, never_cross, ..FragmentOptions::default() };
            options.data.fragments = Some(fragments);
            let manager = BufferManager::new(options).unwrap();
            let (mut pool, mut batch) = (manager.pool(Class::Data), Batch::new());
            let copied = Arc::<AtomicU64>::default();
            let (source, tap) = Source::new(talk(), 1518);
            let mut source = source.in_room(Room { exact: true, direct: true, ..Room::default() });
            let mut drain = Drain::with_erratum(&copied);
            tap.set_open(true);
            for _ in 0..40 {
                let turn = source.receive(&mut Budget::new(64), &mut batch, &mut pool);
                assert_eq!((turn, batch.len()), (Turn::OutOfBudget, 64));
                drain.transmit(&mut batch, &mut pool);
                assert_eq!(drain.reclaim(&mut pool), Turn::Drained);
            }
            assert_eq!((drain.counters().transmitted.get(), drain.held()), (40 * 64, 1024));
            let flight = drain.direct.as_ref().map(|(flight, _)| flight).unwrap();
            assert!(!flight.iter().any(crosses), "within {never_cross}");
            assert_eq!(copied.load(Ordering::Relaxed) > 0, copies, "within {never_cross}");
            assert_eq!((drain.reclaim(&mut pool), drain.held()), (Turn::Drained, 0));
            drop(pool);
            assert_eq!(frames::away(manager.region()), 0);
        }
    }
}
