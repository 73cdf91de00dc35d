//! The receiver: received transfers become packets, within the budget.
//!
//! Each frame is a unit of the budget (A5). If the budget ends within a transfer, the remaining frames go to
//! the overflow queue, which the next turn drains first, and the emptied URB is resubmitted at once. Frames
//! are copied out of the URB, so that no frame delays the reuse of a URB of 32 KiB. Small frames are copied
//! to fragments, several per page.

use super::function::{Filled, Function, Malformed, Reader};
use super::port::{Core, LINK_PERIOD};
use super::tx::SharedCore;
use crate::Receiving;
use polder_buffers::{Batch, Packet, Pool};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Armed, Budget, RxQueue, Turn};
use polder_datapath::units::Nanos;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Maximum number of frames in a transfer of 32 KiB, plus one.
const OVERFLOW: usize = 32 * 1024 / 28 + 1;

/// Result of reading a frame.
enum Read {
    Packet(Packet),
    /// The frame was refused, and counted.
    Refused,
    /// There is no memory; the frame is still in its transfer.
    NoMemory,
    /// The transfer has no more frames.
    End,
}

/// The receiving end of a port.
pub(crate) struct UsbRx<F: Function> {
    core: SharedCore<F>,
    reader: F::Reader,
    event: Option<OwnedFd>,
    overflow: VecDeque<Packet>,
    receiving: Receiving,
    counters: Arc<QueueCounters>,
}

impl<F: Function> core::fmt::Debug for UsbRx<F> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("UsbRx").finish_non_exhaustive()
    }
}

impl<F: Function> UsbRx<F> {
    pub(super) fn new(
        core: SharedCore<F>,
        reader: F::Reader,
        event: Option<OwnedFd>,
        receiving: Receiving,
    ) -> Self {
        let overflow = VecDeque::with_capacity(OVERFLOW);
        let counters = Arc::clone(&core.lock().receive_counters);
        Self { core, reader, event, overflow, receiving, counters }
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
    fn read(&self, core: &Core<F>, filled: &mut Filled<F::Reader>, pool: &mut Pool) -> Read {
        let limit = filled.done.urb.length;
        if filled.done.actual > limit {
            // The device reports more bytes than the buffer has: the transfer is discarded.
            filled.done.actual = 0;
            core.lose_frames(limit, 1);
        }
        let before = filled.cursor;
        match self.reader.next(&mut filled.cursor, filled.done.received()) {
            None => Read::End,
            Some(Err(Malformed { bytes })) => {
                core.lose_frames(bytes, 1);
                Read::Refused
            }
            Some(Ok(frame)) => {
                if let Err(reason) = self.reader.accept(&frame) {
                    self.refuse(reason);
                    return Read::Refused;
                }
                let Some(packet) = self.reader.copy(&frame, &self.receiving, pool) else {
                    filled.cursor = before;
                    return Read::NoMemory;
                };
                Read::Packet(packet)
            }
        }
    }

    /// Reads frames of the oldest transfer until the transfer, the budget, the batch or the memory ends.
    /// Returns true if the next transfer is to follow.
    fn read_transfer(
        &mut self,
        core: &mut Core<F>,
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

impl<F: Function> RxQueue for UsbRx<F> {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        let shared = self.core.clone();
        let mut core = shared.lock();
        core.service(pool);
        let core = &mut *core;
        let techniques = core.techniques;
        // With A1 off no budget applies, and only the batch limits the packets passed on.
        let budgeted = if techniques.poll_cycle { budget.left() as usize } else { usize::MAX };
        let limit = batch.room().min(budgeted);
        let mut left = limit;
        self.drain_overflow(&mut left, batch);
        // With A1 off all received frames are read; frames without room in the batch overflow (A5).
        let all = !techniques.poll_cycle && techniques.frame_is_unit;
        while (all || left > 0 && self.overflow.is_empty())
            && self.read_transfer(core, &mut left, batch, pool)
        {}
        core.fill_receive_urbs();
        core.transport.flush();
        if left < limit {
            // Frames that waited in the device's FIFO for the URBs of this turn may have arrived.
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

    /// The device is asked for its link regularly, also to detect that it is dead.
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
