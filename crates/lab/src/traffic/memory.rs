//! Ports without a device: packets are copied out of thin air, and copied into it.
//!
//! As DPDK's `net_null` does with `copy=1`, a receiving port takes a frame from the pool and copies a
//! packet into it, a sending port copies the packet out of its frame and gives the frame back. What is
//! between them is measured with the price of memory in it, and nothing else.

use super::pace::Pace;
use super::packet::{Talk, Template, copy};
use super::probe::Probe;
use crate::clock;
use crate::meters::allocations;
use crate::meters::stream::StreamMeter;
use polder_buffers::{Batch, Frame, HEADROOM, Packet, Pool, Segment};
use polder_datapath::counters::QueueCounters;
use polder_datapath::port::{Armed, Budget, RxQueue, Turn, TxQueue};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The longest packet that is copied.
const LONGEST: usize = 2048;

/// What a source and those who watch it share.
#[derive(Debug, Default)]
pub struct Tap {
    open: AtomicBool,
    allocations: AtomicU64,
}

/// Where a source puts its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes in front of them.
    pub headroom: u16,
    /// Whether they take no more than they need, where the pool has pieces.
    pub exact: bool,
}

impl Default for Room {
    fn default() -> Self {
        Self { headroom: HEADROOM, exact: false }
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
    /// Where probes are and who meters them.
    meter: Option<(usize, Arc<Mutex<StreamMeter>>)>,
    /// Where packets are put that the device could not read, and how many those were.
    bounce: Option<(Box<[u8; LONGEST]>, Arc<AtomicU64>)>,
    counters: Arc<QueueCounters>,
}

impl Tap {
    /// Lets packets out, or stops them.
    pub fn set_open(&self, open: bool) {
        // Relaxed: the flag orders nothing.
        self.open.store(open, Ordering::Relaxed);
    }

    /// Whether packets come.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Takes note of how often the thread that polls the source has allocated.
    pub fn note_allocations(&self, count: u64) {
        self.allocations.store(count, Ordering::Relaxed);
    }

    /// How often the thread that polls the source had allocated when it last did so.
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

    /// How many packets may come now.
    fn due(&self) -> u64 {
        self.pace.as_ref().map_or(u64::MAX, |pace| pace.due_by(clock::nanos()).saturating_sub(self.number))
    }
}

impl RxQueue for Source {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        self.tap.allocations.store(allocations::on_this_thread(), Ordering::Relaxed);
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
            template.write(self.flow, self.station, packet.bytes_mut());
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

/// Whether a packet's bytes are on both sides of a boundary of 4 KiB.
#[inline]
fn crosses(packet: &Packet) -> bool {
    let first = packet.head().offset_in_region() + u64::from(packet.headroom());
    first / 4096 != (first + packet.bytes().len().max(1) as u64 - 1) / 4096
}

/// The number that follows in a circle of `count`.
#[inline]
fn after(number: u32, count: u32) -> u32 {
    if number + 1 < count { number + 1 } else { 0 }
}

impl Drain {
    /// A port that swallows everything.
    pub fn new() -> Self {
        Self { scratch: Box::new([0; LONGEST]), meter: None, bounce: None, counters: Arc::default() }
    }

    /// The same for a device that must not be given what crosses a boundary of 4 KiB: such packets are copied to
    /// where they do not, and counted.
    pub fn with_erratum(copied: &Arc<AtomicU64>) -> Self {
        Self { bounce: Some((Box::new([0; LONGEST]), Arc::clone(copied))), ..Self::new() }
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
        let mut bytes = 0;
        for packet in batch.iter() {
            if let Some((place, copied)) = &mut self.bounce
                && crosses(packet)
            {
                copy(packet.bytes(), &mut **place);
                copied.fetch_add(1, Ordering::Relaxed);
                copy(&place[..packet.len().min(LONGEST)], &mut *self.scratch);
            } else {
                copy(packet.bytes(), &mut *self.scratch);
            }
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

    fn reclaim(&mut self, _pool: &mut Pool) -> Turn {
        Turn::Drained
    }

    fn held(&self) -> u32 {
        0
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meters::frames;
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
        assert_eq!((frames::away(&region), region.strays()), (0, 0));
    }
}
