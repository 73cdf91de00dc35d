//! The transmitter of a queue: frames move to the table of posted frames, and return by the completion ring.
//!
//! Exits: `tx-too-long` for a packet longer than the link's or with more parts than the device accepts;
//! `tx-error` for one that is no Ethernet frame, that the driver refused (the peer is gone or full), that
//! lies in other memory while no slot is free for a copy, or that the kernel had not taken when the port was
//! closed.
//!
//! Cost: one system call per batch if the kernel asks for it (always in copy mode); none per packet.

mod chain;
mod open;

use super::posted::Posted;
use super::ring::{Consumer, Descriptor, Producer};
use super::socket::Core;
use core::sync::atomic::{AtomicU32, Ordering};
use polder_buffers::{Batch, Packet, Pool, Segment};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Turn, TxQueue};
use rustix::io::Errno;
use std::sync::Arc;

/// Limits of the link.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// The link's MTU, which may change while the port is open.
    pub(super) mtu: Arc<AtomicU32>,
    /// Maximum number of parts of a packet.
    pub(super) segments: u32,
    /// Maximum number of frames in flight, so that neither ring overflows.
    pub(super) capacity: u32,
    /// True if the kernel copies packets during the call.
    pub(super) copies: bool,
}

/// The transmitting end of one queue of an interface.
#[derive(Debug)]
pub(super) struct Transmitter {
    transmit: Producer<Descriptor>,
    completion: Consumer<u64>,
    posted: Posted,
    limits: Limits,
    /// Number of packets whose frames are in flight.
    held: u32,
    /// Marks frames that are not the last of their packet, one bit per slot.
    inner: Box<[u64]>,
    /// True if the kernel has left a part of the ring for later.
    behind: bool,
    closed: bool,
    counters: Arc<QueueCounters>,
    /// Last, so that the rings are unmapped before the socket is closed.
    core: Arc<Core>,
}

impl Transmitter {
    /// Returns the number of packets at the front of `batch` that find room, and true if all of them have one
    /// slot and fit the link.
    #[inline]
    fn plan(&self, batch: &Batch, room: u32) -> (usize, bool) {
        let (longest, mut left) = (self.longest(), room);
        let mut simple = true;
        for (index, packet) in batch.iter().enumerate() {
            let is_one = packet.is_contiguous() && self.posted.knows(packet);
            simple &= is_one && fits(packet, longest);
            let frames = if is_one { 1 } else { self.frames(packet) };
            if frames > left {
                return (index, simple);
            }
            left -= frames;
        }
        (batch.len(), simple)
    }

    /// Returns the length of the link's longest frame without a VLAN tag.
    #[inline(always)]
    fn longest(&self) -> usize {
        // Relaxed: the number orders nothing.
        self.limits.mtu.load(Ordering::Relaxed) as usize + ETHERNET
    }

    /// Posts one frame; returns `false` if it is not of the socket's region.
    #[inline(always)]
    fn post(&mut self, segment: Segment, continues: bool, pool: &mut Pool) -> bool {
        let Segment { frame, offset, length } = segment;
        match self.posted.put(frame) {
            Ok(slot) => {
                let address = slot + u64::from(offset);
                self.transmit.put(Descriptor { address, length: u32::from(length), continues });
                true
            }
            Err(frame) => {
                self.counters.drops.count(DropReason::TxError, 1);
                pool.release_frame(frame);
                false
            }
        }
    }

    /// Posts `count` packets of one frame each, which fit the link.
    #[inline]
    fn post_simple(&mut self, batch: &mut Batch, count: usize, pool: &mut Pool) {
        let (mut packets, mut bytes) = (0, 0);
        for packet in batch.drain_front(count) {
            let Ok(segment) = packet.into_single() else { continue };
            let length = segment.length;
            if self.post(segment, false, pool) {
                packets += 1;
                bytes += u64::from(length);
            }
        }
        self.held += packets;
        self.counters.transmitted.add(u64::from(packets));
        self.counters.transmitted_bytes.add(bytes);
    }

    /// True if the frame was the last of its packet; clears the mark.
    #[inline(always)]
    fn was_last(&mut self, slot: u32) -> bool {
        let (word, bit) = (&mut self.inner[slot as usize / 64], 1 << (slot % 64));
        let last = *word & bit == 0;
        *word &= !bit;
        last
    }

    /// Makes the kernel send the packets in the ring.
    fn wake_kernel(&mut self) {
        self.behind = true;
        let mut refused = 0;
        let mut waiting = self.transmit.waiting();
        for _ in 0..KICKS {
            self.counters.system_calls.add(1);
            match self.core.wake_kernel(true) {
                // The link is down: the packets in the ring wait for it.
                Ok(()) | Err(Errno::NETDOWN) => self.behind = false,
                Err(Errno::NXIO) => self.closed = true,
                // Copy mode: the driver refused one packet, which counts as completed.
                Err(Errno::BUSY) if self.limits.copies => {
                    refused += 1;
                    continue;
                }
                // Older kernels send 32 packets per call; repeat while that makes progress.
                Err(Errno::AGAIN) if self.transmit.waiting() < waiting => {
                    waiting = self.transmit.waiting();
                    continue;
                }
                // The device or the socket is full.
                Err(_) => {}
            }
            break;
        }
        if refused > 0 {
            self.take_back(refused, 0);
        }
    }

    /// True if packets wait in the ring for a call: the link was down, or the kernel went to sleep while they
    /// were put there.
    #[inline]
    fn is_forgotten(&self) -> bool {
        self.held > 0 && self.transmit.waiting() > 0 && self.transmit.needs_wakeup()
    }

    /// Takes at most `limit` completed frames back; returns their number.
    #[inline]
    fn collect(&mut self, limit: u32, pool: &mut Pool) -> u32 {
        let mut count = 0;
        while count < limit {
            let Some(address) = self.completion.take() else { break };
            let Some((frame, _)) = self.posted.take(address) else {
                // No packet is lost, but the queue is closed.
                self.closed = true;
                break;
            };
            self.held -= u32::from(self.was_last(frame.index()));
            pool.release_frame(frame);
            count += 1;
        }
        self.completion.release();
        count
    }
}

impl TxQueue for Transmitter {
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) {
        if self.closed || batch.is_empty() {
            return;
        }
        let mut room = self.limits.capacity - self.posted.count();
        if (room as usize) < batch.len() {
            self.collect(RECLAIM, pool);
            room = self.limits.capacity - self.posted.count();
        }
        let (count, simple) = self.plan(batch, room);
        if count == 0 {
            // Only completions make room, and they may wait for a link that was down.
            if self.transmit.waiting() > 0 && self.transmit.needs_wakeup() {
                self.wake_kernel();
            }
            return;
        }
        if simple {
            self.post_simple(batch, count, pool);
        } else {
            batch.drain_front(count).for_each(|packet| self.post_with_care(packet, pool));
        }
        self.transmit.publish();
        if self.transmit.needs_wakeup() {
            self.wake_kernel();
        }
        self.counters.in_flight.set(u64::from(self.held));
    }

    fn reclaim(&mut self, pool: &mut Pool) -> Turn {
        if self.closed {
            return Turn::Closed;
        }
        if self.behind || self.is_forgotten() {
            self.wake_kernel();
        }
        let count = self.collect(RECLAIM, pool);
        self.counters.in_flight.set(u64::from(self.held));
        if self.closed {
            Turn::Closed
        } else if count == RECLAIM || self.behind {
            Turn::OutOfBudget
        } else {
            Turn::Drained
        }
    }

    fn held(&self) -> u32 {
        self.held
    }

    fn posted(&self) -> u32 {
        self.posted.count()
    }

    fn has_unsent(&self) -> bool {
        self.behind
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

/// True if the link carries the packet; a VLAN tag does not count against its MTU.
#[inline(always)]
fn fits(packet: &Packet, longest: usize) -> bool {
    let length = packet.len();
    (ETHERNET..=longest).contains(&length)
        || (length > longest
            && length <= longest + TAG
            && matches!(packet.bytes().get(12..14), Some([0x81, 0x00] | [0x88, 0xa8])))
}

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Bytes of an 802.1Q tag.
const TAG: usize = 4;
/// Maximum number of calls to have the ring sent; on old kernels each moves 32 packets, or loses one.
const KICKS: u32 = 64;
/// Maximum number of frames that one call takes back.
const RECLAIM: u32 = 256;

/// The transmitting end of a queue that only receives.
#[derive(Debug, Default)]
pub(super) struct Mute {
    counters: Arc<QueueCounters>,
}

impl TxQueue for Mute {
    fn transmit(&mut self, _batch: &mut Batch, _pool: &mut Pool) {}

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
