//! The transmitter: one descriptor per frame, and one write to the device per batch.
//!
//! The last descriptor of a batch requests a report; its completion means that all before it are done.
//! Meanwhile a frame stays in the driver's table, by its index in the ring, so no address that the device
//! writes is used. Super-packets follow a context descriptor, which is written only if it differs from the
//! last one.
//!
//! Exits: `tx-too-long`; `tx-error` for a packet that is no Ethernet frame, that lies in other memory while
//! no slot is free for a copy, or that the device had not taken when the port was closed; `cannot-segment`
//! for a super-packet that does not match its metadata; `port-down` without a link.
//!
//! Cost: one write to the device per batch, none for reclaiming frames.

use super::desc::{Context, LONGEST_BUFFER, TX_DATA, TX_DONE, tx_command};
use super::offload::{Treatment, prepare};
use super::options::{Options, longest};
use super::port::Core;
use super::regs::TDT;
use super::ring::Ring;
use polder_buffers::{Batch, Frame, HEADROOM, Packet, Pool, Segment, wire_packets};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Turn, TxQueue};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of descriptors that one call reclaims.
const RECLAIM: usize = 256;
/// Number of checks without a report after which the device is checked.
const LOOK: u32 = 4096;
/// Descriptors of a packet besides those of its data: a context.
const CONTEXT: usize = 1;

/// Packets that were passed to the device together.
#[derive(Clone, Copy, Debug)]
struct Report {
    /// Index of the descriptor that requests the report.
    last: usize,
    packets: u32,
    wire_packets: u64,
    bytes: u64,
}

/// The transmitting end of a port.
pub struct E1000Tx {
    ring: Ring,
    /// Frames that the device owns, by descriptor.
    frames: Box<[Option<Frame>]>,
    /// First descriptor that has not been reclaimed.
    clean: usize,
    /// First descriptor that the device does not own.
    tail: usize,
    /// Number of descriptors from `clean` to `tail`, and number of their frames.
    used: usize,
    posted: u32,
    reports: VecDeque<Report>,
    /// Number of packets whose frames are in flight.
    held: u32,
    /// The context last set in the device.
    context: Option<Context>,
    /// Maximum frame length in bytes, a tag included, FCS excluded.
    longest: usize,
    /// Number of checks without a report.
    fruitless: u32,
    counters: Arc<QueueCounters>,
    core: Arc<Core>,
}

impl core::fmt::Debug for E1000Tx {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("E1000Tx").field("used", &self.used).finish_non_exhaustive()
    }
}

impl E1000Tx {
    pub(super) fn new(core: Arc<Core>, ring: Ring, options: &Options) -> Self {
        Self {
            frames: (0..ring.len()).map(|_| None).collect(),
            clean: 0,
            tail: 0,
            used: 0,
            posted: 0,
            reports: VecDeque::with_capacity(ring.len()),
            held: 0,
            context: None,
            longest: longest(options.mtu),
            fruitless: 0,
            counters: Arc::default(),
            ring,
            core,
        }
    }

    /// Returns the number of free descriptors.
    fn room(&self) -> usize {
        self.ring.len() - 1 - self.used
    }

    /// Returns the number of packets at the front of `batch` that find room.
    #[inline]
    fn plan(&self, batch: &Batch, room: usize) -> usize {
        let mut left = room;
        for (index, packet) in batch.iter().enumerate() {
            let needed = self.descriptors(packet);
            // A packet that can never fit is taken, and dropped.
            if needed > left && needed < self.ring.len() {
                return index;
            }
            left = left.saturating_sub(needed);
        }
        batch.len()
    }

    /// Returns the maximum number of descriptors of a packet.
    #[inline]
    fn descriptors(&self, packet: &Packet) -> usize {
        let is_known = packet.lies_in(self.core.region.id());
        if is_known && packet.is_contiguous() && packet.head_len() <= usize::from(LONGEST_BUFFER) {
            return CONTEXT + 1;
        }
        if is_known {
            let pieces = |part: &[u8]| part.len().div_ceil(usize::from(LONGEST_BUFFER)).max(1);
            return CONTEXT + packet.segments().map(pieces).sum::<usize>();
        }
        let slot = (self.core.region.slot_bytes() as usize).min(usize::from(LONGEST_BUFFER));
        CONTEXT + 1 + (packet.len() + usize::from(HEADROOM)).div_ceil(slot) * 2
    }

    /// Passes a packet to the device, or drops it.
    #[inline]
    fn send(&mut self, mut packet: Packet, pool: &mut Pool) -> Option<u64> {
        if !packet.lies_in(self.core.region.id()) {
            packet = self.copy(packet, pool)?;
        }
        match prepare(&mut packet, self.longest, pool) {
            Ok(treatment) => self.post(packet, treatment, pool),
            Err(reason) => self.refuse(packet, reason, pool),
        }
    }

    /// Copies a packet that lies in memory unknown to the device.
    #[cold]
    fn copy(&self, packet: Packet, pool: &mut Pool) -> Option<Packet> {
        let copy = packet.duplicate(pool);
        match copy {
            Some(copy) if copy.lies_in(self.core.region.id()) => {
                pool.release_packet(packet);
                self.core.status.copied.add(1);
                Some(copy)
            }
            copy => {
                copy.into_iter().for_each(|copy| pool.release_packet(copy));
                self.refuse(packet, DropReason::TxError, pool);
                None
            }
        }
    }

    fn refuse(&self, packet: Packet, reason: DropReason, pool: &mut Pool) -> Option<u64> {
        self.counters.drops.count(reason, packet.wire_packets.into());
        pool.release_packet(packet);
        None
    }

    /// Writes the descriptors of a packet; returns its bytes.
    #[inline]
    fn post(&mut self, packet: Packet, treatment: Option<Treatment>, pool: &mut Pool) -> Option<u64> {
        if self.descriptors(&packet) > self.room() {
            return self.refuse(packet, DropReason::TxTooLong, pool);
        }
        let bytes = packet.len() as u64;
        let command = tx_command::INSERT_FCS
            | match treatment {
                None => 0,
                Some(Treatment { context, bits }) => {
                    self.post_context(context);
                    self.core.status.segmented.add(u64::from(context.segment > 0));
                    tx_command::EXTENDED | TX_DATA | bits
                }
            };
        let last = match packet.into_single() {
            Ok(segment) => self.post_segment(segment, command),
            Err(packet) => self.post_chain(packet, command, pool),
        };
        self.ring.put_second(self.ring.before(self.tail), last | tx_command::END);
        Some(bytes)
    }

    /// Writes the descriptors of a chain; returns the second word of the last one.
    #[cold]
    fn post_chain(&mut self, packet: Packet, command: u64, pool: &mut Pool) -> u64 {
        let mut last = 0;
        for segment in packet.into_segments() {
            // A buffer of no bytes would be a null descriptor (3.3.3), which uses a place without effect.
            if segment.length == 0 {
                pool.release_frame(segment.frame);
            } else {
                last = self.post_segment(segment, command);
            }
        }
        last
    }

    /// Writes a context, unless the device has it already; a segmentation context is for one packet.
    #[cold]
    fn post_context(&mut self, context: Context) {
        if self.context == Some(context) && context.segment == 0 {
            return;
        }
        self.context = Some(context);
        self.core.status.contexts.add(1);
        self.put(context.words(), None);
    }

    /// Writes the descriptors of one frame; returns the second word of the last one.
    #[inline(always)]
    fn post_segment(&mut self, segment: Segment, command: u64) -> u64 {
        let Segment { frame, offset, mut length } = segment;
        let mut address = self.core.base + frame.offset_in_region() + u64::from(offset);
        while length > LONGEST_BUFFER {
            self.put([address, command | u64::from(LONGEST_BUFFER)], None);
            address += u64::from(LONGEST_BUFFER);
            length -= LONGEST_BUFFER;
        }
        let second = command | u64::from(length);
        self.put([address, second], Some(frame));
        self.posted += 1;
        second
    }

    #[inline(always)]
    fn put(&mut self, words: [u64; 2], frame: Option<Frame>) {
        self.ring.put(self.tail, words);
        self.frames[self.tail] = frame;
        self.tail = self.ring.after(self.tail);
        self.used += 1;
    }

    /// Passes the written descriptors to the device: the last one requests a report, and one write updates
    /// the tail.
    #[inline]
    fn ring_bell(&mut self, packets: u32, wire_packets: u64, bytes: u64) {
        let last = self.ring.before(self.tail);
        self.ring.put_second(last, self.ring.second(last) | tx_command::REPORT);
        self.reports.push_back(Report { last, packets, wire_packets, bytes });
        self.held += packets;
        self.core.access.write(TDT, u32::try_from(self.tail).unwrap_or(0));
        self.core.status.tx_doorbells.add(1);
        self.counters.transmitted.add(wire_packets);
        self.counters.transmitted_bytes.add(bytes);
    }

    /// Reclaims frames of reported packets, a limited number at a time; returns `true` if more may follow.
    #[inline]
    fn collect(&mut self, pool: &mut Pool) -> bool {
        let mut count = 0;
        while let Some(&Report { last, packets, .. }) = self.reports.front() {
            if self.ring.second(last) & TX_DONE == 0 {
                self.fruitless += 1;
                return false;
            }
            if count >= RECLAIM {
                return true;
            }
            self.fruitless = 0;
            self.reports.pop_front();
            self.held -= packets;
            count += self.take_back(last, pool);
        }
        self.fruitless = 0;
        false
    }

    /// Reclaims the frames of all descriptors up to `last`; returns the number of descriptors.
    #[inline]
    fn take_back(&mut self, last: usize, pool: &mut Pool) -> usize {
        let (before, end) = (self.used, self.ring.after(last));
        while self.clean != end {
            if let Some(frame) = self.frames[self.clean].take() {
                self.posted -= 1;
                pool.release_frame(frame);
            }
            self.clean = self.ring.after(self.clean);
            self.used -= 1;
        }
        before - self.used
    }

    /// Counts packets that were never reported as drops, and keeps their frames until the device is stopped.
    #[cold]
    fn give_up(&mut self) {
        for Report { wire_packets, bytes, .. } in core::mem::take(&mut self.reports) {
            let QueueCounters { transmitted, transmitted_bytes, drops, .. } = &*self.counters;
            transmitted.set(transmitted.get().saturating_sub(wire_packets));
            transmitted_bytes.set(transmitted_bytes.get().saturating_sub(bytes));
            drops.count(DropReason::TxError, wire_packets);
        }
        (self.held, self.used, self.posted) = (0, 0, 0);
        self.counters.in_flight.set(0);
        self.core.leave(self.frames.iter_mut().filter_map(Option::take));
    }
}

impl TxQueue for E1000Tx {
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) {
        if self.core.is_closed() || batch.is_empty() {
            return;
        }
        if !self.core.status.is_link_up() {
            self.counters.drops.count(DropReason::PortDown, wire_packets(batch));
            return pool.release(batch);
        }
        if self.room() < batch.len() * (CONTEXT + 1) {
            self.collect(pool);
        }
        let count = self.plan(batch, self.room());
        let (mut packets, mut on_wire, mut bytes) = (0, 0, 0);
        for packet in batch.drain_front(count) {
            let count = u64::from(packet.wire_packets);
            if let Some(sent) = self.send(packet, pool) {
                packets += 1;
                on_wire += count;
                bytes += sent;
            }
        }
        if packets > 0 {
            self.ring_bell(packets, on_wire, bytes);
        }
        self.core.status.tx_used.set(self.used as u64);
        self.counters.in_flight.set(u64::from(self.held));
    }

    fn reclaim(&mut self, pool: &mut Pool) -> Turn {
        if self.core.is_closed() {
            self.give_up();
            return Turn::Closed;
        }
        let more = self.collect(pool);
        if self.fruitless >= LOOK {
            self.fruitless = 0;
            self.core.look_for_end();
        }
        self.core.status.tx_used.set(self.used as u64);
        self.counters.in_flight.set(u64::from(self.held));
        if more { Turn::OutOfBudget } else { Turn::Drained }
    }

    fn held(&self) -> u32 {
        self.held
    }

    fn posted(&self) -> u32 {
        self.posted
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

impl Drop for E1000Tx {
    fn drop(&mut self) {
        // Reports since the last turn are of sent packets.
        let region = self.core.region.clone();
        let mut pool = region.pool();
        if !self.core.is_closed() {
            while self.collect(&mut pool) {}
            self.core.access.write(super::regs::TCTL, 0);
        }
        self.give_up();
    }
}
