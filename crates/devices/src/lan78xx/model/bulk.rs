//! FIFOs, bulk URBs, and the time that the bus takes.
//!
//! Received frames wait in a FIFO of 12 KiB until the bus has moved them into a URB; without a URB the FIFO
//! fills, and frames without room are lost. A URB ends if the next frame would exceed the burst cap or the
//! URB, or if no more frames arrive. Frames to send move from URBs into a FIFO of the same size, as the wire
//! makes room.

use super::mac::SHORTEST;
use super::offload::prepare;
use super::{Adapter, Fault};
use crate::lan78xx::frame::{TX_COMMAND_BYTES, TxCursor};
use crate::lan78xx::regs::{BULK_IN_DLY, BURST_CAP, FCT_TX_CTL, HW_CFG, USB_CFG0, fct, hw_cfg, usb_cfg0};
use crate::lan78xx::statistics::Statistic;
use crate::usb::{Speed, Status, Urb};
use polder_datapath::units::Nanos;
use std::collections::VecDeque;

/// Bytes of each FIFO.
pub(super) const FIFO_BYTES: usize = 12 * 1024;
/// Unit of [`BULK_IN_DLY`]: a cycle of 60 MHz, in picoseconds.
const DELAY_UNIT_PICOS: u64 = 16_667;
/// Number of frame buffers that are kept for reuse.
const SPARES: usize = 64;

/// Speed of the bus, and pacing of the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Bytes per second of the bus in each direction; 0 for no limit.
    pub bus_bytes_per_second: u64,
    /// Time of each transfer besides its bytes.
    pub transfer: Nanos,
    /// True if frames take their transmission time on the wire. Short packets then also wait for the time in
    /// [`BULK_IN_DLY`].
    pub paced: bool,
}

impl Timing {
    /// Returns the timing of a bus as measured with real hosts, and of a wire at the speed of the link.
    pub const fn real(speed: Speed) -> Self {
        // Coding and protocol leave about 400 MB/s of 5 Gbit/s, and about 40 MB/s of 480 Mbit/s.
        let bus_bytes_per_second = match speed {
            Speed::High => 40_000_000,
            Speed::Super => 400_000_000,
        };
        Self { bus_bytes_per_second, transfer: Nanos(2_000), paced: true }
    }

    fn bus_time(self, bytes: usize) -> Nanos {
        if self.bus_bytes_per_second == 0 {
            return Nanos(0);
        }
        Nanos(bytes as u64 * 1_000_000_000 / self.bus_bytes_per_second)
    }
}

/// A frame in a FIFO.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) bytes: Vec<u8>,
    pub(super) arrived: Nanos,
}

#[derive(Debug, Default)]
pub(super) struct Bulk {
    /// Bulk-in URBs; the first is being filled.
    pub(super) receiving: VecDeque<Urb>,
    /// Bulk-out URBs; the first is being emptied.
    pub(super) sending: VecDeque<Urb>,
    receive: VecDeque<Entry>,
    pub(super) receive_used: usize,
    pub(super) transmit: VecDeque<Entry>,
    transmit_used: usize,
    /// Bytes in the URB that is being filled.
    filled: usize,
    /// Time at which its first frame was added.
    filling_since: Nanos,
    /// Position in the URB that is being emptied.
    emptied: TxCursor,
    /// Bytes after which a fault ends that URB, and its status.
    ends_early: Option<(usize, Status)>,
    in_free_at: Nanos,
    out_free_at: Nanos,
    /// Frames of a transfer whose end the adapter has not seen: it ended with a full packet and was not
    /// terminated.
    unended: Vec<Vec<u8>>,
    /// Endpoints that answer STALL until they are cleared.
    pub(super) halted_in: bool,
    pub(super) halted_out: bool,
    spares: Vec<Vec<u8>>,
}

impl Bulk {
    /// Adds a bulk-in URB. The bus starts at the earliest now.
    pub(super) fn offer(&mut self, urb: Urb, now: Nanos) {
        if self.receiving.is_empty() {
            self.in_free_at = self.in_free_at.max(now);
        }
        self.receiving.push_back(urb);
    }

    /// Adds a bulk-out URB.
    pub(super) fn bring(&mut self, urb: Urb, now: Nanos) {
        if self.sending.is_empty() {
            self.out_free_at = self.out_free_at.max(now);
        }
        self.sending.push_back(urb);
    }

    pub(super) fn push_received(&mut self, entry: Entry) {
        self.receive_used += entry.bytes.len().next_multiple_of(4);
        self.receive.push_back(entry);
    }

    fn pop_received(&mut self) -> Option<Entry> {
        let entry = self.receive.pop_front()?;
        self.receive_used -= entry.bytes.len().next_multiple_of(4);
        Some(entry)
    }

    pub(super) fn pop_transmit(&mut self) -> Option<Vec<u8>> {
        let entry = self.transmit.pop_front()?;
        self.transmit_used -= TX_COMMAND_BYTES + entry.bytes.len().next_multiple_of(4);
        Some(entry.bytes)
    }

    pub(super) fn received_bytes(&self) -> u32 {
        u32::try_from(self.receive_used).unwrap_or(fct::USED) & fct::USED
    }

    pub(super) fn sent_bytes(&self) -> u32 {
        u32::try_from(self.transmit_used).unwrap_or(fct::USED) & fct::USED
    }

    pub(super) fn reset_receive(&mut self) {
        self.receive.clear();
        self.receive_used = 0;
        self.filled = 0;
    }

    pub(super) fn reset_transmit(&mut self) {
        self.unended.clear();
        self.transmit.clear();
        self.transmit_used = 0;
    }

    /// Handles the removal of the URB at index `at` of its queue.
    pub(super) fn forget(&mut self, endpoint: u8, at: usize) {
        if at == 0 && endpoint & 0x80 != 0 {
            self.filled = 0;
        } else if at == 0 {
            (self.emptied, self.ends_early) = (TxCursor::default(), None);
        }
    }

    /// Returns the bytes moved so far of the URB at index `at`; only the first has any.
    pub(super) fn moved(&self, endpoint: u8, at: usize) -> usize {
        if at == 0 && endpoint & 0x80 == 0 { self.emptied.position() } else { 0 }
    }

    /// Returns an empty buffer for a frame.
    pub(super) fn spare(&mut self) -> Vec<u8> {
        self.spares.pop().unwrap_or_default()
    }

    fn keep(&mut self, mut bytes: Vec<u8>) {
        if self.spares.len() < SPARES {
            bytes.clear();
            self.spares.push(bytes);
        }
    }
}

impl Adapter {
    /// Moves received frames into URBs, as far as the bus gets by now.
    pub(super) fn run_bulk_in(&mut self) {
        while !self.bulk.receiving.is_empty()
            && (self.bulk.halted_in || self.take_fault(|f| matches!(f, Fault::StallIn)).is_some())
        {
            let Some(urb) = self.bulk.receiving.pop_front() else { break };
            self.bulk.halted_in = true;
            self.bulk.filled = 0;
            self.finish(urb, Status::Stall, 0);
        }
        while !self.bulk.halted_in && self.fill_one() {}
        self.watch_level();
    }

    /// Moves one frame, or ends a URB; returns `false` if neither is possible.
    fn fill_one(&mut self) -> bool {
        let Some(urb) = self.bulk.receiving.front() else { return false };
        let limit = self.transfer_limit().min(urb.length);
        let filled = self.bulk.filled;
        let Some(entry) = self.bulk.receive.front() else {
            let due = filled > 0 && self.bulk.filling_since + self.short_delay() <= self.now;
            if due {
                self.end_transfer();
            }
            return due;
        };
        let at = if self.options.faulty.no_receive_padding { filled } else { filled.next_multiple_of(4) };
        let end = at + entry.bytes.len();
        if end > limit && filled > 0 {
            self.end_transfer();
            return true;
        }
        if end > limit {
            // A frame that fits no transfer would block the FIFO for ever.
            if let Some(entry) = self.bulk.pop_received() {
                self.bulk.keep(entry.bytes);
            }
            self.statistics.add(Statistic::RxDropped, 1);
            return true;
        }
        let begin = self.bulk.in_free_at.max(entry.arrived);
        let moved = begin + self.options.timing.bus_time(end - filled);
        if moved > self.now {
            return false;
        }
        self.bulk.in_free_at = moved;
        if filled == 0 {
            self.bulk.filling_since = moved;
        }
        self.copy_frame(at, end);
        if self.registers.get(HW_CFG) & hw_cfg::MULTIPLE_FRAMES == 0 {
            self.end_transfer();
        }
        true
    }

    fn copy_frame(&mut self, at: usize, end: usize) {
        let Some(entry) = self.bulk.pop_received() else { return };
        if let Some(urb) = self.bulk.receiving.front_mut() {
            let bytes = urb.buffer.bytes_mut();
            bytes[self.bulk.filled..at].fill(0);
            bytes[at..end].copy_from_slice(&entry.bytes);
        }
        self.bulk.filled = end;
        self.bulk.keep(entry.bytes);
    }

    /// Returns the maximum bytes of a transfer.
    fn transfer_limit(&self) -> usize {
        if self.registers.get(USB_CFG0) & usb_cfg0::BURST_CAP_ON == 0 {
            return usize::MAX;
        }
        (self.registers.get(BURST_CAP) & 0xff) as usize * self.options.speed.bulk_packet()
    }

    fn short_delay(&self) -> Nanos {
        if !self.options.timing.paced {
            return Nanos(0);
        }
        Nanos(u64::from(self.registers.get(BULK_IN_DLY) & 0xffff) * DELAY_UNIT_PICOS / 1000)
    }

    /// Ends the URB that is being filled, normally or by a fault.
    fn end_transfer(&mut self) {
        let actual = core::mem::take(&mut self.bulk.filled);
        let Some(mut urb) = self.bulk.receiving.pop_front() else { return };
        self.bulk.in_free_at = self.bulk.in_free_at + self.options.timing.transfer;
        let is_here = |fault: &Fault| {
            use Fault::{Babble, BusError, Corrupt, Cut, Empty, Misalign, Oversized};
            matches!(fault, Cut(_) | Corrupt { .. } | Misalign(_) | Oversized | Babble | BusError | Empty)
        };
        let (status, actual) = match self.take_fault(is_here) {
            Some(Fault::Cut(length)) => (Status::Done, actual.min(length)),
            Some(Fault::Corrupt { at, bits }) => {
                urb.buffer.bytes_mut()[at % actual.max(1)] ^= bits;
                (Status::Done, actual)
            }
            Some(Fault::Misalign(by)) => {
                let by = by.min(urb.length - actual);
                urb.buffer.bytes_mut().copy_within(..actual, by);
                (Status::Done, actual + by)
            }
            Some(Fault::Oversized) => (Status::Done, urb.length + 4096),
            Some(Fault::Babble) => (Status::Babble, urb.length),
            Some(Fault::BusError) => (Status::Error, 0),
            Some(Fault::Empty) => (Status::Done, 0),
            _ => (Status::Done, actual),
        };
        self.finish(urb, status, actual);
    }

    /// Moves frames from URBs into the FIFO, as far as there is room and the bus gets by now.
    pub(super) fn run_bulk_out(&mut self) {
        while !self.bulk.sending.is_empty()
            && (self.bulk.halted_out || self.take_fault(|f| matches!(f, Fault::StallOut)).is_some())
        {
            let Some(urb) = self.bulk.sending.pop_front() else { break };
            let moved = self.bulk.moved(urb.endpoint, 0);
            self.bulk.halted_out = true;
            self.bulk.forget(urb.endpoint, 0);
            self.finish(urb, Status::Stall, moved);
        }
        while !self.bulk.halted_out && self.empty_one() {}
    }

    /// Moves one frame, or ends a URB; returns `false` if neither is possible.
    fn empty_one(&mut self) -> bool {
        if self.bulk.sending.is_empty() {
            return false;
        }
        let ends_early = self.ends_early();
        let Some(urb) = self.bulk.sending.front() else { return false };
        let (length, status) = ends_early.unwrap_or((urb.length, Status::Done));
        let length = length.min(urb.length);
        let transfer = &urb.buffer.bytes()[..length.min(urb.buffer.bytes().len())];
        let mut cursor = self.bulk.emptied;
        let alignment = if self.options.faulty.no_transmit_padding { 1 } else { 4 };
        let frames = match cursor.next(transfer, alignment) {
            Some(Ok(frame)) => prepare(frame),
            Some(Err(_)) => {
                self.statistics.add(Statistic::TxBadBytes, 1);
                Vec::new()
            }
            None => {
                (self.bulk.emptied, self.bulk.ends_early) = (TxCursor::default(), None);
                if let Some(urb) = self.bulk.sending.pop_front() {
                    self.bulk.out_free_at = self.bulk.out_free_at + self.options.timing.transfer;
                    self.finish(urb, status, length);
                }
                return true;
            }
        };
        self.accept(frames, cursor)
    }

    /// Returns the bytes after which a fault ends the URB that is being emptied.
    fn ends_early(&mut self) -> Option<(usize, Status)> {
        if self.bulk.emptied == TxCursor::default() && self.bulk.ends_early.is_none() {
            let is_here = |fault: &Fault| matches!(fault, Fault::ShortOut(_) | Fault::ErrorOut(_));
            self.bulk.ends_early = match self.take_fault(is_here) {
                Some(Fault::ShortOut(bytes)) => Some((bytes, Status::Done)),
                Some(Fault::ErrorOut(bytes)) => Some((bytes, Status::Error)),
                _ => None,
            };
        }
        self.bulk.ends_early
    }

    fn accept(&mut self, frames: Vec<Vec<u8>>, cursor: TxCursor) -> bool {
        let room = |frame: &Vec<u8>| TX_COMMAND_BYTES + frame.len().next_multiple_of(4);
        let needed = frames.iter().map(room).sum::<usize>();
        // Segments of one frame may need more room than the FIFO has; they flow through.
        if self.bulk.transmit_used + needed.min(FIFO_BYTES) > FIFO_BYTES {
            return false;
        }
        let moved = self.bulk.out_free_at + self.options.timing.bus_time(needed);
        if moved > self.now {
            return false;
        }
        self.bulk.out_free_at = moved;
        self.bulk.emptied = cursor;
        let is_ended = self.bulk.sending.front().is_none_or(|urb| {
            let whole = urb.length.is_multiple_of(self.options.speed.bulk_packet());
            urb.zero_packet || !whole || cursor.position() < urb.length
        });
        if !is_ended {
            self.bulk.unended = frames;
            return true;
        }
        let mut frames = frames;
        frames.splice(..0, self.bulk.unended.drain(..));
        if self.registers.get(FCT_TX_CTL) & fct::ENABLE == 0 {
            return true;
        }
        for mut frame in frames {
            frame.resize(frame.len().max(SHORTEST), 0);
            self.bulk.transmit_used += room(&frame);
            self.bulk.transmit.push_back(Entry { bytes: frame, arrived: moved });
        }
        true
    }

    /// Returns the time of the next event of the bus.
    pub(super) fn bulk_event(&self) -> Option<Nanos> {
        let urb = self.bulk.receiving.front();
        let receive = urb.and_then(|_| {
            self.bulk.receive.front().map_or_else(
                || (self.bulk.filled > 0).then(|| self.bulk.filling_since + self.short_delay()),
                |entry| {
                    let begin = self.bulk.in_free_at.max(entry.arrived);
                    Some(begin + self.options.timing.bus_time(entry.bytes.len()))
                },
            )
        });
        let send = self.bulk.sending.front().map(|_| self.bulk.out_free_at);
        [receive, send].into_iter().flatten().min()
    }
}
