//! The receiver: the device fills posted frames in order, and marks their descriptors.
//!
//! Exits: `device-error` for a frame that was damaged, is empty or ends in the middle of a buffer; a length
//! beyond the buffer closes the port, because the device wrote outside its buffers. `frame-too-long` for a
//! frame above the link's maximum. `rx-overrun` for frames that the device dropped because no buffer was
//! posted (B3), which costs nothing.
//!
//! The descriptor's address is never read back: a frame is identified by its index in the ring.
//!
//! Cost: one write to the device per turn that posts frames; four accesses before sleeping, four after.

mod control;

use super::desc::{RxWord, rx_error, rx_status};
use super::layout::Layout;
use super::link::LinkWatch;
use super::options::{Options, longest};
use super::port::Core;
use super::posting::Posting;
use super::regs::{ICR, IMC, IMS, ITR, RDT, icr};
use super::ring::Ring;
use super::statistics::{Statistic, Totals};
use super::status::End;
use super::throttle::Throttle;
use crate::Receiving;
use crate::pci::ALL_ONES;
use polder_buffers::{Batch, ChecksumState, Frame, Packet, Pool, Segment};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Armed, Budget, RxControl, RxQueue, Turn};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Causes that wake the worker.
const CAUSES: u32 = icr::RX_TIMER | icr::RX_LOW | icr::RX_OVERRUN | icr::RX_SEQUENCE | icr::LINK;
/// Number of turns with packets between readings of the device's losses.
const SETTLE: u32 = 64;
/// Number of turns without packets after which a worker that never sleeps checks for a dead device.
const LOOK: u32 = 4096;
/// Minimum number of frames of a queue.
const REFILL: u32 = 64;
/// Bytes of an Ethernet header; of a tag; of the two addresses before it.
const ETHERNET: usize = 14;
const TAG: u16 = 4;
const ADDRESSES: usize = 12;

/// Result of reading a descriptor.
enum Next {
    Packet(Packet),
    /// A frame was refused, and counted.
    Refused,
    /// No further frame has arrived.
    Empty,
}

/// The receiving end of a port.
pub struct E1000Rx {
    ring: Ring,
    /// Frames that the device owns, by descriptor.
    frames: Box<[Option<Frame>]>,
    /// Descriptor that the device writes back next.
    next: usize,
    /// First descriptor that the device does not own.
    tail: usize,
    posted: u32,
    posting: Posting,
    layout: Layout,
    /// Maximum length of an accepted frame in bytes, tags included, FCS excluded.
    longest: usize,
    /// A frame whose buffers have not all arrived.
    unfinished: Option<Packet>,
    /// Reason why the rest of a frame is dropped.
    refused: Option<DropReason>,
    receiving: Receiving,
    takes_tags_off: bool,
    /// True if the worker may have slept since the last turn.
    armed: bool,
    /// Number of turns with packets since the last reading of losses, and number of turns without since the
    /// last check for a dead device.
    turns: u32,
    idle_turns: u32,
    /// Number of packets since the queue was armed.
    came: u64,
    throttle: Throttle,
    link: LinkWatch,
    totals: Totals,
    counters: Arc<QueueCounters>,
    /// Last, because the device is stopped when it is dropped.
    core: Arc<Core>,
}

impl core::fmt::Debug for E1000Rx {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("E1000Rx").field("posted", &self.posted).finish_non_exhaustive()
    }
}

impl E1000Rx {
    pub(super) fn new(core: Arc<Core>, ring: Ring, layout: Layout, options: &Options) -> Self {
        let totals = Totals::begin(&core.access);
        let (longest, descriptors) = (longest(options.mtu), ring.len());
        Self {
            frames: (0..descriptors).map(|_| None).collect(),
            ring,
            next: 0,
            tail: 0,
            posted: 0,
            posting: Posting::new(descriptors, longest.div_ceil(usize::from(layout.size))),
            layout,
            longest,
            unfinished: None,
            refused: None,
            receiving: options.receiving,
            takes_tags_off: options.vlan_offload,
            armed: false,
            turns: 0,
            idle_turns: 0,
            came: 0,
            throttle: Throttle::default(),
            link: LinkWatch::new(options.flow_control),
            totals,
            counters: Arc::default(),
            core,
        }
    }

    /// Checks the link until its state is known, during opening.
    pub(super) fn look_at_link(&mut self, pause: impl Fn()) {
        while self.link.is_busy() {
            self.follow_link();
            pause();
        }
    }

    #[cold]
    fn follow_link(&mut self) {
        if let Some(link) = self.link.step(&self.core.access) {
            self.core.status.set_link(link);
        }
    }

    /// Returns the next frame that the device has written back.
    #[inline]
    fn next(&mut self, pool: &mut Pool) -> Next {
        while self.posted > 0 {
            // One load: all fields are consistent, and no field is read twice.
            let word = RxWord(self.ring.second(self.next));
            if !word.is_done() {
                return Next::Empty;
            }
            let Some(frame) = self.frames[self.next].take() else { break };
            self.next = self.ring.after(self.next);
            self.posted -= 1;
            if word.length() > self.layout.room {
                self.lie(pool, frame);
                break;
            }
            let is_plain = word.is_end() && self.unfinished.is_none() && self.refused.is_none();
            let done = if is_plain && self.is_good(word) {
                Some(Ok(self.whole(frame, word, pool)))
            } else {
                self.assemble(frame, word, pool)
            };
            match done {
                Some(Ok(packet)) => return Next::Packet(packet),
                Some(Err(reason)) => {
                    self.counters.drops.count(reason, 1);
                    return Next::Refused;
                }
                None => {}
            }
        }
        Next::Empty
    }

    /// True if a frame in one buffer is undamaged and within the link's maximum length.
    #[inline(always)]
    fn is_good(&self, word: RxWord) -> bool {
        let length = usize::from(word.length());
        word.errors() & rx_error::DAMAGED == 0 && length >= ETHERNET && length <= self.longest
    }

    /// Makes a packet of one frame.
    #[inline(always)]
    fn whole(&self, frame: Frame, word: RxWord, pool: &mut Pool) -> Packet {
        let segment = Segment { frame, offset: self.layout.offset, length: word.length() };
        let mut packet = Packet::from_segment(segment);
        if self.receiving.copy_break > 0
            && let Some(copy) = self.receiving.copy(packet.bytes(), pool)
        {
            pool.release_packet(packet);
            packet = copy;
        }
        self.describe(&mut packet, word);
        packet
    }

    /// Adds a buffer to a frame of several, or drops it with the rest of a refused frame.
    #[cold]
    fn assemble(
        &mut self,
        frame: Frame,
        word: RxWord,
        pool: &mut Pool,
    ) -> Option<Result<Packet, DropReason>> {
        let length = word.length();
        let is_cut = !word.is_end() && length != self.layout.size;
        if word.errors() & rx_error::DAMAGED != 0 || is_cut {
            self.refused.get_or_insert(DropReason::DeviceError);
        }
        // The last buffer of a frame may have contained only the FCS, which was removed.
        if length == 0 || self.refused.is_some() {
            pool.release_frame(frame);
        } else {
            let segment = Segment { frame, offset: self.layout.offset, length };
            match &mut self.unfinished {
                None => self.unfinished = Some(Packet::from_segment(segment)),
                Some(packet) => packet.push_segment(segment),
            }
        }
        if self.unfinished.as_ref().is_some_and(|packet| packet.len() > self.longest) {
            self.refused.get_or_insert(DropReason::FrameTooLong);
        }
        if self.refused.is_some()
            && let Some(packet) = self.unfinished.take()
        {
            pool.release_packet(packet);
        }
        if !word.is_end() {
            return None;
        }
        match (self.refused.take(), self.unfinished.take()) {
            (Some(reason), _) => Some(Err(reason)),
            (None, Some(mut packet)) if packet.len() >= ETHERNET => {
                self.describe(&mut packet, word);
                Some(Ok(packet))
            }
            (None, packet) => {
                packet.into_iter().for_each(|packet| pool.release_packet(packet));
                Some(Err(DropReason::DeviceError))
            }
        }
    }

    /// Sets the metadata that the device reports.
    #[inline(always)]
    fn describe(&self, packet: &mut Packet, word: RxWord) {
        let (status, errors) = (word.status(), word.errors());
        if status & (rx_status::NO_CHECKSUM | rx_status::TRANSPORT) == rx_status::TRANSPORT
            && errors & (rx_error::TRANSPORT | rx_error::IP) == 0
        {
            packet.checksum = ChecksumState::Verified;
        } else if errors & (rx_error::TRANSPORT | rx_error::IP) != 0 {
            // The receiving stack refuses a wrong packet: a bridge forwards packets unchanged.
            self.core.status.checksum_errors.add(1);
        }
        if self.takes_tags_off && status & rx_status::VLAN != 0 {
            put_tag(packet, word.tag());
        }
    }

    /// Handles a length beyond the buffer: the port is closed.
    #[cold]
    fn lie(&mut self, pool: &mut Pool, frame: Frame) {
        self.counters.received.add(1);
        self.counters.drops.count(DropReason::DeviceError, 1);
        pool.release_frame(frame);
        self.core.close(End::Lied);
    }

    /// Posts free frames up to the target if fewer than the threshold are posted (C5). Returns `false` if the
    /// pool has too few left for the queue.
    #[inline]
    fn refill(&mut self, pool: &mut Pool) -> bool {
        let target = self.posting.target();
        if self.posted >= self.posting.low_mark(&self.receiving) {
            return true;
        }
        let before = self.tail;
        while self.posted < target {
            let Some(frame) = pool.take() else { break };
            if frame.region() != self.core.region.id() {
                pool.release_frame(frame);
                break;
            }
            let address = self.core.base + frame.offset_in_region() + u64::from(self.layout.offset);
            self.ring.put(self.tail, [address, 0]);
            self.frames[self.tail] = Some(frame);
            self.tail = self.ring.after(self.tail);
            self.posted += 1;
        }
        if self.tail != before {
            self.core.access.write(RDT, u32::try_from(self.tail).unwrap_or(0));
            self.core.status.rx_doorbells.add(1);
        }
        self.core.status.rx_posted.set(u64::from(self.posted));
        self.posted >= REFILL.min(target / 2)
    }

    /// True if the device has used every buffer: it drops further frames.
    #[inline]
    fn has_run_out(&self) -> bool {
        self.posted == 0 || RxWord(self.ring.second(self.ring.before(self.tail))).is_done()
    }

    /// Handles a possible wake-up: masks the interrupt, and records its cause (B1).
    #[cold]
    fn wake(&mut self) {
        let access = &self.core.access;
        access.write(IMC, ALL_ONES);
        let has_come = self.core.interrupt.acknowledge();
        let cause = access.read(ICR);
        self.counters.system_calls.add(1);
        let is_ours = self.note(cause);
        let status = &self.core.status;
        status.interrupts.add(u64::from(has_come && is_ours));
        status.spurious.add(u64::from(has_come && !is_ours));
    }

    /// Records the causes of an interrupt; returns `false` if this device has none.
    fn note(&mut self, cause: u32) -> bool {
        if cause == ALL_ONES {
            self.core.look_for_end();
            return false;
        }
        let status = &self.core.status;
        for (bits, counter) in [
            (icr::RX_TIMER, &status.received_causes),
            (icr::RX_LOW, &status.low_causes),
            (icr::RX_OVERRUN, &status.overrun_causes),
            (icr::LINK | icr::RX_SEQUENCE, &status.link_causes),
        ] {
            counter.add(u64::from(cause & bits != 0));
        }
        if cause & (icr::LINK | icr::RX_SEQUENCE) != 0 {
            self.link.notice();
        }
        cause & CAUSES != 0
    }

    /// Counts packets that the device has lost since the last call.
    #[cold]
    fn settle(&mut self) {
        self.turns = 0;
        for (statistic, reason) in
            Statistic::LOSSES.into_iter().zip([DropReason::RxOverrun, DropReason::FrameTooLong])
        {
            let lost = self.totals.update_one(&self.core.access, statistic);
            self.counters.received.add(lost);
            self.counters.drops.count(reason, lost);
            self.came += lost;
        }
    }

    /// Reads all of the device's counters.
    #[cold]
    fn read_statistics(&mut self) {
        self.settle();
        self.totals.update(&self.core.access);
        self.core.status.set_statistics(&self.totals);
    }

    /// Does a turn's occasional work: the link, and requested statistics.
    #[cold]
    fn look_around(&mut self) {
        if self.link.is_busy() {
            self.follow_link();
        }
        if self.core.status.wants_statistics() {
            self.read_statistics();
        }
        if self.core.status.is_refused() {
            self.core.close(End::Refused);
        }
    }

    /// Records how a turn ended, and does occasional checks.
    #[inline]
    fn end_turn(&mut self, came: bool) {
        self.turns += u32::from(came);
        self.idle_turns = if came { 0 } else { self.idle_turns + 1 };
        if self.turns >= SETTLE {
            self.settle();
        }
        if self.idle_turns >= LOOK {
            self.idle_turns = 0;
            self.core.look_for_end();
        }
    }
}

/// Inserts a tag after the addresses. Without headroom the packet would stay untagged, which no layout
/// allows.
fn put_tag(packet: &mut Packet, tag: u16) {
    let Ok(_) = packet.prepend(TAG) else { return };
    let bytes = packet.bytes_mut();
    let tag_bytes = usize::from(TAG);
    bytes.copy_within(tag_bytes..tag_bytes + ADDRESSES, 0);
    bytes[ADDRESSES..ADDRESSES + 2].copy_from_slice(&[0x81, 0x00]);
    bytes[ADDRESSES + 2..ADDRESSES + tag_bytes].copy_from_slice(&tag.to_be_bytes());
}

impl RxQueue for E1000Rx {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        if core::mem::take(&mut self.armed) {
            self.wake();
        }
        if self.core.is_closed() {
            return Turn::Closed;
        }
        if self.link.is_busy() || self.core.status.wants_statistics() {
            self.look_around();
            if self.core.is_closed() {
                return Turn::Closed;
            }
        }
        let limit = batch.room().min(budget.left() as usize);
        let (mut packets, mut refused, mut bytes) = (0, 0, 0);
        while packets + refused < limit {
            match self.next(pool) {
                Next::Packet(packet) => {
                    packet.prefetch();
                    bytes += packet.len() as u64;
                    packets += 1;
                    batch.push(packet).expect("the room of the batch was counted");
                }
                Next::Refused => refused += 1,
                Next::Empty => break,
            }
        }
        let done = packets + refused;
        budget.spend(u32::try_from(done).unwrap_or(u32::MAX));
        self.counters.received.add(done as u64);
        self.counters.received_bytes.add(bytes);
        self.came += done as u64;
        if self.core.is_closed() {
            return Turn::Closed;
        }
        self.end_turn(done > 0);
        // Frames that the device holds for want of buffers arrive as soon as it has some.
        let has_run_out = done > 0 && self.has_run_out();
        self.posting.note(has_run_out);
        let enough = self.refill(pool);
        if self.core.is_closed() {
            Turn::Closed
        } else if done < limit && enough && !has_run_out {
            Turn::Drained
        } else {
            Turn::OutOfBudget
        }
    }

    /// Tunes the throttle, unmasks causes, then checks once more. A cause before this check has its
    /// descriptor in memory already; a later one interrupts.
    fn arm(&mut self) -> Armed {
        if self.core.is_closed() {
            return Armed::Raced;
        }
        if self.turns > 0 {
            self.settle();
        }
        self.throttle.tune(core::mem::take(&mut self.came));
        if let Some(value) = self.throttle.change() {
            self.core.access.write(ITR, value);
            self.core.status.throttle_nanos.set(self.throttle.time().0);
        }
        let cause = self.core.access.read(ICR);
        self.note(cause);
        self.core.access.write(IMS, CAUSES);
        self.core.interrupt.unmask();
        self.counters.system_calls.add(1);
        self.armed = true;
        let has_frame = self.posted > 0 && RxWord(self.ring.second(self.next)).is_done();
        if has_frame || self.link.is_busy() || self.core.is_closed() {
            return Armed::Raced;
        }
        Armed::Waiting
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.core.interrupt.event())
    }

    fn control(&mut self) -> Option<&mut dyn RxControl> {
        Some(self)
    }

    fn posted(&self) -> u32 {
        self.posted
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}
