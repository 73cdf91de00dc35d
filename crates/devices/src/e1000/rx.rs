//! Packets that come in: the device fills posted frames in order, and says so in their descriptors.
//!
//! Exits: `device-error` for a frame that was damaged, is empty or ends in the middle of a buffer; a length that no
//! buffer has closes the port, because a device that writes beyond its buffers cannot be believed.
//! `frame-too-long` for a frame above the link's longest. `rx-overrun` for frames that died in the device because
//! nothing was posted (B3), where they cost nothing.
//!
//! The descriptor's address is never read back: the frame is known by its place in the ring.
//!
//! Cost: one write to the device a turn that posts frames; four accesses before sleeping, four after.

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
/// Turns with packets after which the device's losses are read.
const SETTLE: u32 = 64;
/// Turns without packets after which a worker that never sleeps sees whether the device is still there.
const LOOK: u32 = 4096;
/// The fewest frames that a queue lives on.
const REFILL: u32 = 64;
/// Bytes of an Ethernet header; of a tag, and of the two addresses in front of it.
const ETHERNET: usize = 14;
const TAG: u16 = 4;
const ADDRESSES: usize = 12;

/// Result of looking at a descriptor.
enum Next {
    Packet(Packet),
    /// A frame was refused, and counted.
    Refused,
    /// Nothing more has come.
    Empty,
}

/// The receiving end of a port.
pub struct E1000Rx {
    ring: Ring,
    /// Frames that the device has, by descriptor.
    frames: Box<[Option<Frame>]>,
    /// Descriptor that the device writes back next.
    next: usize,
    /// First descriptor that is not the device's.
    tail: usize,
    posted: u32,
    posting: Posting,
    layout: Layout,
    /// The longest frame that is accepted, in bytes, tags included, FCS excluded.
    longest: usize,
    /// A frame of which not all buffers have come.
    unfinished: Option<Packet>,
    /// Reason why the rest of a frame is thrown away.
    refused: Option<DropReason>,
    receiving: Receiving,
    takes_tags_off: bool,
    /// True if the worker may have slept since the last turn.
    armed: bool,
    /// Turns with packets since the device's losses were read, and turns without since it was seen.
    turns: u32,
    idle_turns: u32,
    /// Packets since the queue was armed.
    came: u64,
    throttle: Throttle,
    link: LinkWatch,
    totals: Totals,
    counters: Arc<QueueCounters>,
    /// Last, because the device stops with it.
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

    /// Looks at the link until that is known, as opening does.
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

    /// The next frame that the device has written back.
    #[inline]
    fn next(&mut self, pool: &mut Pool) -> Next {
        while self.posted > 0 {
            // One load: all fields are of one moment, and nothing is read again.
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

    /// True if a frame in one buffer is undamaged and no longer than the link's longest.
    #[inline(always)]
    fn is_good(&self, word: RxWord) -> bool {
        let length = usize::from(word.length());
        word.errors() & rx_error::DAMAGED == 0 && length >= ETHERNET && length <= self.longest
    }

    /// A packet of one frame.
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

    /// Adds a buffer to a frame of several, or throws it away with the rest of one that is refused.
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
        // The last buffer of a frame may hold nothing but the FCS, which was taken off.
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

    /// Sets the metadata that the device has found out.
    #[inline(always)]
    fn describe(&self, packet: &mut Packet, word: RxWord) {
        let (status, errors) = (word.status(), word.errors());
        if status & (rx_status::NO_CHECKSUM | rx_status::TRANSPORT) == rx_status::TRANSPORT
            && errors & (rx_error::TRANSPORT | rx_error::IP) == 0
        {
            packet.checksum = ChecksumState::Verified;
        } else if errors & (rx_error::TRANSPORT | rx_error::IP) != 0 {
            // A packet that is wrong is for the receiving stack to refuse: a bridge passes on what it got.
            self.core.status.checksum_errors.add(1);
        }
        if self.takes_tags_off && status & rx_status::VLAN != 0 {
            put_tag(packet, word.tag());
        }
    }

    /// The device wrote beyond a buffer, or says so: nothing more is believed.
    #[cold]
    fn lie(&mut self, pool: &mut Pool, frame: Frame) {
        self.counters.received.add(1);
        self.counters.drops.count(DropReason::DeviceError, 1);
        pool.release_frame(frame);
        self.core.close(End::Lied);
    }

    /// Posts free frames until there are enough, when the mark is passed (C5). `false` when too few are left in
    /// the pool for the queue to live on.
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

    /// True if the device has used every buffer that it was given: what comes now dies there.
    #[inline]
    fn has_run_out(&self) -> bool {
        self.posted == 0 || RxWord(self.ring.second(self.ring.before(self.tail))).is_done()
    }

    /// The worker may have slept: ends the interrupt, and notes its cause (B1).
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

    /// Notes the causes of an interrupt; `false` when there is none of this device's.
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

    /// Counts packets that the device has lost since the last time.
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

    /// Does the seldom work of a turn: the link, and statistics that were asked for.
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

    /// Says how a turn ended, and sees now and then to what seldom changes.
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

/// Puts a tag where the wire has it, behind the addresses. Without room in front the packet stays untagged, which
/// no layout allows.
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
        // What the device keeps for want of buffers comes as soon as it has some.
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

    /// Tunes the throttle, lets causes interrupt, then looks once more. A cause that came before the look at the
    /// causes has its descriptor in memory already; one that comes after it interrupts.
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
