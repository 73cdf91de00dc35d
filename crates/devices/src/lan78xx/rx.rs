//! Received transfers become packets, under the budget.
//!
//! Each frame is a unit of the budget (A5). When the budget ends inside a transfer, the frames that are
//! left go to the overflow queue, which is drained first in the next turn, and the emptied URB goes
//! back to the bus at once. Frames are copied out of the URB: a URB of 32 KiB holds more frames than
//! any of them ought to keep waiting. Small ones are copied into fragments, several to a page.

use super::Options;
use super::checksum::{Verdict, verify};
use super::frame::{RxCursor, RxFrame};
use super::port::Core;
use super::status::PortStatus;
use super::tasks::LINK_PERIOD;
use super::tx::SharedCore;
use super::usb::{Completion, UrbBuffer};
use crate::Receiving;
use polder_buffers::{Batch, ChecksumState, Packet, Pool};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Armed, Budget, RxQueue, Turn};
use polder_datapath::units::Nanos;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Frames that a transfer of 32 KiB can hold, and one more.
const OVERFLOW: usize = 32 * 1024 / 28 + 1;
/// Bytes of a tag.
const TAG_BYTES: usize = 4;
/// Bytes of the two addresses, which stand before a tag.
const ADDRESSES: usize = 12;

/// A received transfer and how far it has been read.
#[derive(Debug)]
pub(super) struct Filled {
    done: Completion,
    cursor: RxCursor,
}

impl Filled {
    pub(super) fn new(done: Completion) -> Self {
        Self { done, cursor: RxCursor::default() }
    }

    pub(super) fn into_buffer(self) -> UrbBuffer {
        self.done.urb.buffer
    }
}

/// Result of reading a frame.
enum Read {
    Packet(Packet),
    /// The frame was refused, and counted.
    Refused,
    /// There is no memory; the frame is still in its transfer.
    NoMemory,
    /// The transfer has no more.
    End,
}

/// The receiving end of a port.
pub struct Lan78xxRx {
    core: SharedCore,
    event: Option<OwnedFd>,
    overflow: VecDeque<Packet>,
    /// The longest frame that is accepted, in bytes, FCS excluded.
    longest: usize,
    /// True if tags come in the command words.
    stripped: bool,
    receiving: Receiving,
    status: Arc<PortStatus>,
    counters: Arc<QueueCounters>,
}

impl core::fmt::Debug for Lan78xxRx {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Lan78xxRx").finish_non_exhaustive()
    }
}

impl Lan78xxRx {
    pub(super) fn new(core: SharedCore, event: Option<OwnedFd>, longest: usize, options: &Options) -> Self {
        let overflow = VecDeque::with_capacity(OVERFLOW);
        let (stripped, receiving) = (options.vlan_offload, options.receiving);
        let (status, counters) = {
            let core = core.lock();
            (Arc::clone(&core.status), Arc::clone(&core.receive_counters))
        };
        Self { core, event, overflow, longest, stripped, receiving, status, counters }
    }

    fn deliver(&self, packet: Packet, batch: &mut Batch) {
        self.counters.received.add(1);
        self.counters.received_bytes.add(packet.len() as u64);
        batch.push(packet).expect("the room of the batch was counted");
    }

    fn refuse(&self, reason: DropReason) {
        self.counters.received.add(1);
        self.counters.drops.count(reason, 1);
    }

    /// Reads the next frame of a transfer.
    fn read(&self, core: &Core, filled: &mut Filled, pool: &mut Pool) -> Read {
        let limit = filled.done.urb.length;
        if filled.done.actual > limit {
            // The device claims more than there was room for: nothing in it is to be believed.
            filled.done.actual = 0;
            core.lose_frames(limit, 1);
        }
        let before = filled.cursor;
        match filled.cursor.next(filled.done.received()) {
            None => Read::End,
            Some(Err(_)) => {
                core.lose_frames(before.left(filled.done.received()), 1);
                Read::Refused
            }
            Some(Ok(frame)) => {
                if let Err(reason) = self.accept(&frame) {
                    self.refuse(reason);
                    return Read::Refused;
                }
                let Some(packet) = self.copy(&frame, pool) else {
                    filled.cursor = before;
                    return Read::NoMemory;
                };
                Read::Packet(packet)
            }
        }
    }

    fn accept(&self, frame: &RxFrame<'_>) -> Result<(), DropReason> {
        if frame.status.is_damaged() {
            return Err(DropReason::DeviceError);
        }
        if frame.bytes.len() > self.longest {
            return Err(DropReason::FrameTooLong);
        }
        Ok(())
    }

    fn copy(&self, frame: &RxFrame<'_>, pool: &mut Pool) -> Option<Packet> {
        let tag = frame.status.vlan().filter(|_| self.stripped);
        let mut packet = match tag {
            None => match self.receiving.copy(frame.bytes, pool) {
                Some(packet) => packet,
                None => Packet::copy_from(frame.bytes, pool)?,
            },
            Some(tag) => {
                // The datapath has tags where the wire has them.
                let (addresses, rest) = frame.bytes.split_at(ADDRESSES);
                let mut head = [0; ADDRESSES + TAG_BYTES];
                head[..ADDRESSES].copy_from_slice(addresses);
                head[ADDRESSES..ADDRESSES + 2].copy_from_slice(&[0x81, 0]);
                head[ADDRESSES + 2..].copy_from_slice(&tag.to_be_bytes());
                let mut packet = Packet::copy_from(&head, pool)?;
                if packet.extend_from(rest, pool).is_err() {
                    pool.release_packet(packet);
                    return None;
                }
                packet
            }
        };
        packet.checksum = self.checksum_of(frame);
        Some(packet)
    }

    /// Transport checksum state of a frame. One that is wrong is for the receiving stack to refuse: a bridge
    /// passes on what it got.
    fn checksum_of(&self, frame: &RxFrame<'_>) -> ChecksumState {
        if frame.status.has_wrong_checksum() {
            self.status.checksum_errors.add(1);
            return ChecksumState::Unknown;
        }
        match frame.status.checksum().map_or(Verdict::None, |sum| verify(frame.bytes, sum)) {
            Verdict::Verified => ChecksumState::Verified,
            Verdict::None => ChecksumState::Unknown,
            Verdict::Mismatch => {
                self.status.checksum_mismatches.add(1);
                ChecksumState::Unknown
            }
        }
    }

    /// Reads frames of the oldest transfer until it ends, the budget or the batch does, or the memory.
    /// Returns whether to go on with the next one.
    fn read_transfer(
        &mut self,
        core: &mut Core,
        left: &mut usize,
        batch: &mut Batch,
        pool: &mut Pool,
    ) -> bool {
        let Some(mut filled) = core.filled.pop_front() else { return false };
        let by_frame = core.techniques.frame_is_unit;
        loop {
            let within = *left > 0 || !by_frame && !batch.is_full();
            match self.read(core, &mut filled, pool) {
                Read::Packet(packet) if within && !batch.is_full() => {
                    *left = left.saturating_sub(1);
                    self.deliver(packet, batch);
                }
                Read::Packet(packet) => self.overflow.push_back(packet),
                Read::Refused => *left = left.saturating_sub(1),
                Read::NoMemory => {
                    core.filled.push_front(filled);
                    return false;
                }
                Read::End => break,
            }
        }
        core.emptied(filled.done.urb.buffer);
        true
    }

    fn drain_overflow(&mut self, left: &mut usize, batch: &mut Batch) {
        while *left > 0
            && let Some(packet) = self.overflow.pop_front()
        {
            *left -= 1;
            self.deliver(packet, batch);
        }
    }
}

impl RxQueue for Lan78xxRx {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        let shared = self.core.clone();
        let mut core = shared.lock();
        core.service(pool);
        let core = &mut *core;
        let techniques = core.techniques;
        // With A1 off no budget applies, and the batch is all that bounds what is passed on.
        let budgeted = if techniques.poll_cycle { budget.left() as usize } else { usize::MAX };
        let limit = batch.room().min(budgeted);
        let mut left = limit;
        self.drain_overflow(&mut left, batch);
        // With A1 off everything that has come is read; frames that find no room in the batch overflow (A5).
        let all = !techniques.poll_cycle && techniques.frame_is_unit;
        while (all || left > 0 && self.overflow.is_empty())
            && self.read_transfer(core, &mut left, batch, pool)
        {}
        core.fill_receive_urbs();
        core.transport.flush();
        if left < limit {
            // What waited in the adapter's FIFO for the URBs of this turn may be there already.
            core.fetch(Some(pool));
        }
        if techniques.poll_cycle {
            budget.spend(u32::try_from(limit - left).unwrap_or(u32::MAX));
        }
        core.status.set_receiving(core.receiving, &core.receive_buffers);
        core.status.set_filled(core.filled.len());
        core.status.set_overflow(self.overflow.len());
        self.counters.system_calls.set(core.transport.system_calls());
        match self.overflow.is_empty() && core.filled.is_empty() {
            false => Turn::OutOfBudget,
            true if core.closed => Turn::Closed,
            true => Turn::Drained,
        }
    }

    fn arm(&mut self) -> Armed {
        let mut core = self.core.lock();
        if core.closed || core.is_pausing() || !self.overflow.is_empty() || !core.filled.is_empty() {
            return Armed::Raced;
        }
        core.transport.arm()
    }

    /// The adapter is asked for its link now and then, also to find out that it is dead.
    fn longest_sleep(&self) -> Option<Nanos> {
        Some(LINK_PERIOD)
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(AsFd::as_fd)
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}
