//! The receiver of a queue: descriptors become frames, frames become packets, free frames are posted again.
//!
//! Exits: `sctp-no-checksum` for SCTP of a local sender that has left its CRC to the device; `device-error`
//! for an invalid descriptor, which also closes the queue; `frame-too-long` for a packet of more frames than
//! any link has, or longer than a slot if the kernel cannot split; `rx-overrun` for packets that the kernel
//! lost because no frame was posted. A packet that the driver may have cut is dropped with its rest
//! ([`guard`]).
//!
//! Cost: one system call in 64 turns while packets arrive; two before sleeping.

mod control;
mod discard;
pub(super) mod guard;
mod open;
mod parts;

use super::drive::{BUDGET, Driver, QueueIdentity, SoftirqPause};
use super::posted::Posted;
use super::ring::{Consumer, Descriptor, Producer};
use super::socket::Core;
use super::socket::Statistics;
use crate::Receiving;
use guard::Guard;
use polder_buffers::{Batch, Packet, Pool, Segment};
use polder_datapath::counters::QueueCounters;
use polder_datapath::port::{Armed, Budget, RxControl, RxQueue, Turn};
use polder_datapath::scheduler::Ageing;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Parameters of receiving from a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveOptions {
    /// Identity of the queue.
    pub(super) place: QueueIdentity,
    /// Number of frames to keep posted.
    pub(super) target: u32,
    /// True if a call on an empty socket makes the kernel poll the device.
    pub(super) busy_poll: bool,
    /// True if the worker may drive the kernel's half by the arrivals.
    pub(super) adapts: bool,
    /// Pause between two polls in softirq, if the kernel receives on the senders' cores and the program drops
    /// the excess.
    pub(super) softirq: Option<SoftirqPause>,
    /// True if a packet longer than a slot arrives in parts.
    pub(super) multi_buffer: bool,
    /// True if senders may be on this host, and leave checksums to the device without a mark.
    pub(super) local_senders: bool,
    /// True if the program counts packets, so that every loss in the kernel has to be known before sleeping.
    pub(super) numbered: bool,
    /// The link's longest packet in bytes, if the device itself writes into the slots.
    pub(super) longest: Option<u32>,
    /// Refill threshold of the ring, and treatment of small packets.
    pub(super) receiving: Receiving,
}

/// The receiving end of one queue of an interface; with `COPIES`, small packets are copied to fragments.
#[derive(Debug)]
pub(super) struct Receiver<const COPIES: bool> {
    received: Consumer<Descriptor>,
    fill: Producer<u64>,
    posted: Posted,
    wants: ReceiveOptions,
    /// Check of the driver's descriptors.
    guard: Guard,
    /// The kernel's counters at the last reading.
    seen: Statistics,
    /// Number of packets that the kernel had lost by then.
    lost: u64,
    /// Number of turns with packets since then.
    turns: u32,
    /// A packet whose descriptors have not all arrived.
    unfinished: Option<Packet>,
    /// True if the worker may have slept since the last turn.
    armed: bool,
    closed: bool,
    /// True if few frames are kept posted, because most packets are flushed; and the number of these frames.
    is_reduced: bool,
    reduced_target: u32,
    /// True if the device's ring is to be flushed once the RX ring is empty.
    flush_due: bool,
    /// True if the NAPI thread's last run left the device empty, as far as known.
    device_empty: bool,
    /// True if the RX ring was flushed since the NAPI thread last ran; such a run does not show that the
    /// device is empty.
    flushed_since_napi: bool,
    previously_flushed: bool,
    /// Number of packets received or lost since the worker last slept.
    arrived: u64,
    /// Age of the device's packets at which the ring is flushed.
    ageing: Ageing,
    driver: Driver,
    counters: Arc<QueueCounters>,
    /// Last, so that the rings are unmapped before the socket is closed.
    core: Arc<Core>,
}

impl<const COPIES: bool> Receiver<COPIES> {
    /// Returns the next complete packet; `None` if there is none.
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

    /// Turns a descriptor back into the posted frame; `None` if it names none.
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

    /// Makes a packet of one frame. A small packet is copied to a fragment, and its frame is posted again at
    /// once.
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

    /// Posts free frames up to the target if fewer than the threshold are posted (C5). Returns `false` if the
    /// pool has too few left for the queue.
    #[inline]
    fn refill(&mut self, pool: &mut Pool) -> bool {
        let target = if self.is_reduced || self.driver.is_held() {
            self.reduced_target.min(self.wants.target)
        } else {
            self.wants.target
        };
        // With few frames posted the threshold is half of them: a long packet takes several.
        let fewest = REFILL.min(target / 2);
        if self.posted.count() >= self.wants.receiving.low_mark(target).max(fewest) {
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

    /// Limits the kernel's poll to `limit` packets, if the worker drives it.
    #[inline]
    fn bound(&mut self, limit: usize) {
        if self.driver.is_polled()
            && let Some(socket) = self.core.socket()
        {
            self.driver.bound(socket, u32::try_from(limit).unwrap_or(u32::MAX));
        }
    }

    /// Lets the kernel look at the rings, and finds out if the interface still exists.
    #[cold]
    fn look(&mut self) {
        self.counters.system_calls.add(1);
        if !self.driver.poll() {
            self.closed |= self.core.wake_kernel(false) == Err(Errno::NXIO);
        }
    }
}

impl<const COPIES: bool> RxQueue for Receiver<COPIES> {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        if self.closed {
            return Turn::Closed;
        }
        // Woken without a packet: the interface may be gone.
        let woken = core::mem::take(&mut self.armed);
        if woken {
            self.driver.wakes();
            if self.received.ready() {
                self.driver.boost(false);
            }
            self.previously_flushed = core::mem::take(&mut self.flushed_since_napi);
            // If frames were left over, the device had no more packets.
            self.device_empty = (self.device_empty || self.fill.waiting() > 0) && !self.previously_flushed;
        }
        if self.flush_due {
            self.drop_stale(pool);
        }
        if self.flush_due && (self.posted.count() == 0 || !self.driver.is_held()) && !self.received.ready() {
            self.flush_ring(pool);
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
        self.arrived += packets as u64;
        self.ageing.came(packets as u64);
        if self.turns >= SETTLE {
            self.settle();
        }
        // A held thread needs no frames until the worker sleeps; it would fill them with packets to be
        // flushed.
        let later = self.is_reduced && packets > 0 && self.driver.is_held();
        let enough = later || self.refill(pool);
        if self.closed {
            Turn::Closed
        } else if packets < limit && enough {
            Turn::Drained
        } else {
            Turn::OutOfBudget
        }
    }

    /// Arms the event, which is readable while a packet waits or the interface is gone; so only the kernel
    /// has to be called.
    ///
    /// Cost: two system calls; one if no packet arrived since the last call.
    fn arm(&mut self) -> Armed {
        if self.turns > 0 || self.wants.numbered {
            self.settle();
        }
        // If the budget was not used up, the device had no more packets.
        self.device_empty =
            core::mem::take(&mut self.arrived) < u64::from(BUDGET) && !self.previously_flushed;
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

/// Number of turns with packets between two readings of the kernel's loss counters.
const SETTLE: u32 = 64;
/// Minimum number of frames of a queue.
const REFILL: u32 = 64;
