//! Packets that come in: descriptors become frames, frames become packets, free frames go back in.
//!
//! Exits: `sctp-no-checksum` for SCTP of a local sender that has left its CRC to the device. `device-error` for a descriptor that cannot be right, which also closes the queue, because
//! a ring that lies once cannot be believed again. `frame-too-long` for a packet of more frames than
//! any link has, or longer than a slot where the kernel cannot cut. `rx-overrun` for what the kernel
//! lost because no frame was posted; it is asked for that number now and then. A packet that the driver may have
//! cut, or hands over in parts that were not asked for, is dropped with all that is left of it ([`guard`]).
//!
//! Cost: one system call in 64 turns while packets come; two before sleeping.

mod discard;
pub(super) mod guard;

use super::drive::{BUDGET, Driver, QueueIdentity};
use super::numbered::KernelHalf;
use super::port::Statistics;
use super::posted::Posted;
use super::ring::{Consumer, Descriptor, Producer};
use super::socket::Core;
use super::transfer::single_frame;
use crate::Receiving;
use guard::{Guard, Judged};
use polder_buffers::{Batch, Packet, Pool, Segment};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::offload::{Recognised, recognise};
use polder_datapath::port::{Armed, Budget, Drive, Driven, RxControl, RxQueue, Turn};
use polder_datapath::scheduler::{self, Ageing, WIRE};
use polder_datapath::units::Nanos;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The receiving end of one queue of an interface; with `COPIES`, small packets move into fragments.
#[derive(Debug)]
pub(super) struct Receiver<const COPIES: bool> {
    received: Consumer<Descriptor>,
    fill: Producer<u64>,
    posted: Posted,
    wants: Wants,
    /// Check of the driver's descriptors.
    guard: Guard,
    /// Counters of the kernel at the last reading.
    seen: Statistics,
    /// Packets that the kernel had lost then.
    lost: u64,
    /// Turns with packets since then.
    turns: u32,
    /// A packet of which not all descriptors have come.
    unfinished: Option<Packet>,
    /// True if the worker may have slept since the last turn.
    armed: bool,
    closed: bool,
    /// True if few frames are kept posted, because most packets are flushed; and the number of
    /// these frames.
    scant: bool,
    few: u32,
    /// True if the device's ring is to be flushed as soon as none of it has been received.
    due: bool,
    /// True if the kernel's thread left nothing behind in the device when it ran, as far as is known.
    emptied: bool,
    /// True if the RX ring was flushed since the NAPI thread last ran; such a run does not show
    /// that the device is empty.
    fresh: bool,
    recent: bool,
    /// Packets that came or were lost since the worker last slept.
    came: u64,
    /// Age of the packets in the device at which it is flushed.
    ageing: Ageing,
    driver: Driver,
    counters: Arc<QueueCounters>,
    /// Last, so that the rings are unmapped before the socket is closed.
    core: Arc<Core>,
}

/// Parameters of receiving from a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wants {
    /// Identity of the queue.
    pub(super) place: QueueIdentity,
    /// Frames to keep posted.
    pub(super) target: u32,
    /// True if the socket drives the device when it is asked and nothing is there.
    pub(super) busy_poll: bool,
    /// True if the worker may drive the kernel's half by the arrivals.
    pub(super) adapts: bool,
    /// True if the kernel receives where senders are, and the program drops what the worker has no use for.
    pub(super) stays_in_softirq: bool,
    /// True if a packet longer than a slot comes in parts.
    pub(super) multi_buffer: bool,
    /// True if senders may be on this machine, and leave checksums to a device that cannot say so.
    pub(super) local_senders: bool,
    /// True if the program gives packets numbers, so that each that the kernel has lost is to be known before sleeping.
    pub(super) numbered: bool,
    /// The link's longest packet, where the device itself writes into the slots.
    pub(super) longest: Option<u32>,
    /// Refill threshold of the ring, and treatment of small packets.
    pub(super) receiving: Receiving,
}

impl<const COPIES: bool> Receiver<COPIES> {
    pub(super) fn new(
        received: Consumer<Descriptor>,
        fill: Producer<u64>,
        wants: Wants,
        (core, posted): (Arc<Core>, Posted),
    ) -> Self {
        Self {
            received,
            fill,
            posted,
            driver: Driver::new(wants.place, wants.adapts, wants.stays_in_softirq),
            guard: Guard::new(wants.multi_buffer, wants.longest, single_frame(core.slot_bytes())),
            wants,
            seen: Statistics::default(),
            lost: 0,
            turns: 0,
            unfinished: None,
            armed: false,
            closed: false,
            scant: false,
            few: WIRE,
            due: false,
            emptied: true,
            fresh: false,
            recent: false,
            came: 0,
            ageing: Ageing::default(),
            counters: Arc::default(),
            core,
        }
    }

    /// The next complete packet, `None` when there is none.
    #[inline(always)]
    fn next(&mut self, pool: &mut Pool) -> Option<Packet> {
        while let Some(descriptor) = self.received.take() {
            let Some(segment) = self.segment(descriptor, pool) else {
                self.lie();
                return None;
            };
            let is_plain = !descriptor.continues && self.unfinished.is_none();
            if is_plain && self.guard.passes(descriptor.length) {
                return Some(self.whole(segment, pool));
            }
            if let Some(packet) = self.assemble(segment, descriptor, pool) {
                return Some(packet);
            }
        }
        None
    }

    /// Turns a descriptor back into the frame that was posted, if it is one.
    #[inline(always)]
    fn segment(&mut self, descriptor: Descriptor, pool: &mut Pool) -> Option<Segment> {
        let (frame, offset) = self.posted.take(descriptor.address)?;
        let length = u16::try_from(descriptor.length).ok();
        let fits = |&length: &u16| u32::from(offset) + u32::from(length) <= frame.slot_bytes();
        let Some(length) = length.filter(fits) else {
            pool.release_frame(frame);
            return None;
        };
        Some(Segment { frame, offset, length })
    }

    /// A packet of one frame. A small one moves into a fragment, and its frame goes back to the ring at once.
    #[inline(always)]
    fn whole(&mut self, segment: Segment, pool: &mut Pool) -> Packet {
        if !COPIES {
            return Packet::from_segment(segment);
        }
        let start = usize::from(segment.offset);
        let bytes = &segment.frame.slot()[start..start + usize::from(segment.length)];
        let Some(packet) = self.wants.receiving.copy(bytes, pool) else {
            return Packet::from_segment(segment);
        };
        match self.posted.put(segment.frame) {
            Ok(address) => self.fill.put(address),
            Err(frame) => pool.release_frame(frame),
        }
        packet
    }

    /// Adds a part to the packet that is being received; returns it when that was the last part, and believed.
    #[cold]
    fn assemble(&mut self, segment: Segment, descriptor: Descriptor, pool: &mut Pool) -> Option<Packet> {
        let continues = descriptor.continues;
        let reason = match self.guard.judge(descriptor.length, continues) {
            Judged::Right => None,
            Judged::TooLong => Some((1, DropReason::FrameTooLong)),
            Judged::Unasked => Some((1, DropReason::DeviceError)),
            Judged::Rest => Some((0, DropReason::DeviceError)),
        };
        if let Some((packets, reason)) = reason {
            self.counters.received.add(packets);
            self.counters.drops.count(reason, packets);
            pool.release_frame(segment.frame);
            return None;
        }
        let packet = match self.unfinished.take() {
            None => Packet::from_segment(segment),
            Some(mut packet) => {
                packet.push_segment(segment);
                packet
            }
        };
        if !continues {
            return Some(packet);
        }
        if packet.len() > LONGEST {
            self.counters.received.add(1);
            self.counters.drops.count(DropReason::FrameTooLong, 1);
            pool.release_packet(packet);
        } else {
            self.unfinished = Some(packet);
        }
        None
    }

    /// Does what a sender on this machine may have left to the device. `false` for what cannot be mended.
    fn finish(&mut self, packet: &mut Packet) -> bool {
        match recognise(packet) {
            Recognised::Complete => {}
            Recognised::Partial => self.counters.partial_checksums.add(1),
            Recognised::MissingCrc => {
                self.counters.drops.count(DropReason::SctpNoChecksum, 1);
                return false;
            }
        }
        true
    }

    /// The kernel named memory that it does not have: nothing more is believed.
    #[cold]
    fn lie(&mut self) {
        self.counters.received.add(1);
        self.counters.drops.count(DropReason::DeviceError, 1);
        self.closed = true;
    }

    /// Posts free frames until the target is met, when the mark is passed (C5). `false` when too few are
    /// left in the pool for the queue to live on.
    #[inline]
    fn refill(&mut self, pool: &mut Pool) -> bool {
        let target = if self.scant || self.driver.is_held() {
            self.few.min(self.wants.target)
        } else {
            self.wants.target
        };
        // With few frames posted, less than half of them is waited for: a long packet takes several.
        let fewest = REFILL.min(target / 2);
        if self.posted.count() >= self.wants.receiving.low_mark(target) {
            if COPIES {
                self.fill.publish();
            }
            return true;
        }
        for _ in 0..target.saturating_sub(self.posted.count()) {
            let Some(frame) = pool.take() else { break };
            match self.posted.put(frame) {
                Ok(address) => self.fill.put(address),
                Err(frame) => {
                    pool.release_frame(frame);
                    break;
                }
            }
        }
        self.fill.publish();
        if self.fill.needs_wakeup() {
            self.look();
        }
        self.posted.count() >= fewest
    }

    /// Lets the kernel look at the rings, and finds out whether the interface is still there.
    #[cold]
    fn look(&mut self) {
        self.counters.system_calls.add(1);
        if !self.driver.poll() {
            self.closed |= self.core.nudge(false) == Err(Errno::NXIO);
        }
    }
}

impl<const COPIES: bool> Receiver<COPIES> {
    /// Lets the kernel bring in no more than there is use for, where the worker drives it.
    #[inline]
    fn bound(&mut self, limit: usize) {
        if self.driver.is_polled()
            && let Some(socket) = self.core.socket()
        {
            self.driver.bound(socket, u32::try_from(limit).unwrap_or(u32::MAX));
        }
    }

    /// Counts, and returns, the packets that the kernel has lost since the last time. Each lost packet is in
    /// exactly one of the kernel's two numbers; a fill ring that it found empty is the reason for some of the
    /// first.
    #[cold]
    fn settle(&mut self) -> u64 {
        self.turns = 0;
        self.counters.system_calls.add(1);
        let (now, before) = (self.core.statistics(), self.seen);
        self.seen = now;
        let dropped = now.dropped.saturating_sub(before.dropped);
        let starved = now.fill_ring_empty.saturating_sub(before.fill_ring_empty);
        // Where packets come in parts, none is too long, and the kernel does not count empty rings.
        let starved = if self.wants.multi_buffer { dropped } else { starved.min(dropped) };
        let full = now.receive_ring_full.saturating_sub(before.receive_ring_full);
        if dropped + full > 0 {
            self.counters.received.add(dropped + full);
            self.counters.drops.count(DropReason::RxOverrun, starved + full);
            self.counters.drops.count(DropReason::FrameTooLong, dropped - starved);
        }
        self.lost += dropped + full;
        self.came += dropped + full;
        self.ageing.came(dropped + full);
        dropped + full
    }
}

impl<const COPIES: bool> KernelHalf for Receiver<COPIES> {
    fn lost(&self) -> u64 {
        self.lost
    }

    fn is_governed(&self) -> bool {
        self.driver.is_governed()
    }
}

impl<const COPIES: bool> RxQueue for Receiver<COPIES> {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        if self.closed {
            return Turn::Closed;
        }
        // Woken for nothing: perhaps the interface is gone.
        let woken = core::mem::take(&mut self.armed);
        if woken {
            self.driver.wakes();
            if self.received.ready() {
                self.driver.insist(false);
            }
            self.recent = core::mem::take(&mut self.fresh);
            // With frames left over it had no more.
            self.emptied = (self.emptied || self.fill.waiting() > 0) && !self.recent;
        }
        if self.due {
            self.throw_stale_away(pool);
        }
        if self.due && (self.posted.count() == 0 || !self.driver.is_held()) && !self.received.ready() {
            self.throw_all_away(pool);
        }
        let limit = batch.room().min(budget.left() as usize);
        if (woken || self.wants.busy_poll || self.driver.is_polled()) && !self.received.ready() {
            self.bound(limit);
            self.look();
        }
        let (mut packets, mut bytes, mut refused) = (0, 0, 0);
        while packets + refused < limit {
            let Some(mut packet) = self.next(pool) else { break };
            packet.prefetch();
            if self.wants.local_senders && !self.finish(&mut packet) {
                pool.release_packet(packet);
                refused += 1;
                continue;
            }
            bytes += packet.len() as u64;
            packets += 1;
            batch.push(packet).expect("the room of the batch was counted");
        }
        self.received.release();
        let packets = packets + refused;
        budget.spend(u32::try_from(packets).unwrap_or(u32::MAX));
        self.counters.received.add(packets as u64);
        self.counters.received_bytes.add(bytes);
        self.turns += u32::from(packets > 0);
        self.came += packets as u64;
        self.ageing.came(packets as u64);
        if self.turns >= SETTLE {
            self.settle();
        }
        // A thread that is held has no use for frames until the worker sleeps, and would only fill them with what is
        // to be thrown away.
        let later = self.scant && packets > 0 && self.driver.is_held();
        let enough = later || self.refill(pool);
        if self.closed {
            Turn::Closed
        } else if packets < limit && enough {
            Turn::Drained
        } else {
            Turn::OutOfBudget
        }
    }

    /// The event is readable as long as a packet waits or the interface is gone, so there is nothing
    /// to ask for but the kernel's attention.
    ///
    /// Cost: two system calls; one when nothing came since the last time.
    fn arm(&mut self) -> Armed {
        if self.turns > 0 || self.wants.numbered {
            self.settle();
        }
        // One that was not asked for all that it may do at once had no more than that.
        self.emptied = core::mem::take(&mut self.came) < u64::from(BUDGET) && !self.recent;
        self.look();
        self.armed = true;
        if self.closed || self.received.ready() {
            return Armed::Raced;
        }
        self.driver.sleeps();
        Armed::Waiting
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.core.event()
    }

    fn control(&mut self) -> Option<&mut dyn RxControl> {
        Some(self)
    }

    fn posted(&self) -> u32 {
        self.posted.count()
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

impl<const COPIES: bool> RxControl for Receiver<COPIES> {
    fn set_mode(&mut self, drive: Drive) -> Driven {
        let Some(socket) = self.core.socket() else { return Driven::No };
        let driven = self.driver.drive(socket, drive);
        if let Some(refused) = self.driver.refusal() {
            self.core.note(refused);
        }
        driven
    }

    fn claim_thread(&mut self) {
        if let Some(socket) = self.core.socket() {
            self.driver.share(socket);
            if let Some(refused) = self.driver.refusal() {
                self.core.note(refused);
            }
        }
    }

    fn pause_thread(&mut self, paused: bool) {
        self.driver.stand_back(paused);
    }

    fn thread_time(&mut self) -> Option<Nanos> {
        self.driver.shared_time()
    }

    #[cold]
    fn flush(&mut self) -> bool {
        self.scant |= !self.closed;
        // Where the worker polls, flushing costs it no nap.
        self.due = !self.closed && (!self.driver.is_held() || self.ageing.is_old());
        !self.closed
    }

    fn favour_thread(&mut self) {
        self.driver.insist(true);
    }

    fn end_flush(&mut self) {
        (self.scant, self.due, self.ageing) = (false, false, Ageing::default());
    }

    fn set_posted_limit(&mut self, frames: u32) {
        self.few = scheduler::frames(frames);
    }

    fn has_backlog(&mut self) -> bool {
        self.due || (self.driver.is_held() && !self.emptied)
    }
}

impl<const COPIES: bool> Drop for Receiver<COPIES> {
    fn drop(&mut self) {
        self.settle();
        let unfinished = self.unfinished.take().into_iter().flat_map(Packet::into_segments);
        self.core.leave(unfinished.map(|segment| segment.frame));
        self.core.leave(self.posted.take_all());
    }
}

/// Turns with packets after which the kernel's loss counters are read.
const SETTLE: u32 = 64;
/// The fewest frames that a queue lives on.
const REFILL: u32 = 64;
/// The longest packet of any link: 64 KiB and its headers.
const LONGEST: usize = 65_535 + 18;
