//! Packets that go out: a descriptor a frame, and one write to the device a batch.
//!
//! The last descriptor of a batch asks for a report; when that comes, all before it are done. A frame stays in the
//! driver's table meanwhile, by its place in the ring, so that nothing that the device writes names memory.
//! Super-packets leave whole behind a context descriptor, which is written only where it differs from the last one.
//!
//! Exits: `tx-too-long`; `tx-error` for one that is no Ethernet frame, or lies in other memory while there is no slot
//! for a copy, or that the device had not taken when the port was closed; `cannot-segment` for a super-packet that is
//! not what its metadata say; `port-down` without a link.
//!
//! Cost: one write to the device a batch, none for taking frames back.

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

/// Descriptors that one call takes back at most.
const RECLAIM: usize = 256;
/// Fruitless looks for a report after which the device is looked at.
const LOOK: u32 = 4096;
/// Descriptors of a packet beside those of its data: a context.
const CONTEXT: usize = 1;

/// Packets that were given to the device together.
#[derive(Clone, Copy, Debug)]
struct Report {
    /// Place of the descriptor that asks for the report.
    last: usize,
    packets: u32,
    wire_packets: u64,
    bytes: u64,
}

/// The sending end of a port.
pub struct E1000Tx {
    ring: Ring,
    /// Frames that the device has, by descriptor.
    frames: Box<[Option<Frame>]>,
    /// First descriptor that has not been taken back.
    clean: usize,
    /// First descriptor that is not the device's.
    tail: usize,
    /// Descriptors from `clean` to `tail`, and the frames of those.
    used: usize,
    posted: u32,
    reports: VecDeque<Report>,
    /// Packets whose frames are out.
    held: u32,
    /// The context that the device has.
    context: Option<Context>,
    /// The longest frame, in bytes, a tag included, FCS excluded.
    longest: usize,
    /// Looks for a report that found none.
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

    /// Descriptors that are free.
    fn room(&self) -> usize {
        self.ring.len() - 1 - self.used
    }

    /// Number of packets at the front of `batch` that find room.
    #[inline]
    fn plan(&self, batch: &Batch, room: usize) -> usize {
        let mut left = room;
        for (index, packet) in batch.iter().enumerate() {
            let needed = self.descriptors(packet);
            // One that never finds room is taken to be dropped.
            if needed > left && needed < self.ring.len() {
                return index;
            }
            left = left.saturating_sub(needed);
        }
        batch.len()
    }

    /// Descriptors that a packet needs at most.
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

    /// Gives a packet to the device, or drops it.
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

    /// A copy of a packet that lies in memory that the device does not know.
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
            // A buffer of no bytes is a null descriptor (3.3.3), which costs a place and says nothing.
            if segment.length == 0 {
                pool.release_frame(segment.frame);
            } else {
                last = self.post_segment(segment, command);
            }
        }
        last
    }

    /// Writes a context, unless the device has it already; one of segments is for one packet.
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

    /// Gives what was written to the device: the last descriptor asks for a report, and one write rings the bell.
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

    /// Takes frames back whose packets were reported, some at a time; `true` when more may be there.
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

    /// Takes the frames of all descriptors up to `last` back; returns the number of descriptors.
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

    /// Counts packets that were never reported as drops, and leaves their frames until the device is at rest.
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
        // Reports that came since the last turn are of packets that left.
        let region = self.core.region.clone();
        let mut pool = region.pool();
        if !self.core.is_closed() {
            while self.collect(&mut pool) {}
            self.core.access.write(super::regs::TCTL, 0);
        }
        self.give_up();
    }
}
