//! Bulk-in transfers: submission, completion, and losses of failed transfers.

use super::function::{Filled, Function};
use super::port::Core;
use super::transport::{Completion, Setup, Status, Urb, UrbBuffer};
use super::urbs::UrbKind;
use polder_datapath::drops::DropReason;

/// Maximum number of received transfers that wait for a turn above which completed URBs are not resubmitted
/// at once (A4 off).
const MOST_FILLED: usize = 512;

impl<F: Function> Core<F> {
    pub(super) fn receive_ended(&mut self, done: Completion) {
        self.receiving -= 1;
        self.status.receiving.set(self.receiving as u64);
        let status = done.status;
        if status == Status::Done {
            self.failures = 0;
            return self.received(done);
        }
        // A failed transfer had data: the device answers NAK while it has none.
        let at_least = usize::from(matches!(status, Status::Babble | Status::Error));
        self.lose_frames(done.actual.min(done.urb.length), at_least);
        self.receive_buffers.give(done.urb.buffer);
        match status {
            Status::Done | Status::Cancelled => {}
            Status::Stall => self.halt(|endpoints| endpoints.bulk_in),
            Status::Babble | Status::Error => {
                self.status.count_bad_transfer();
                self.failed();
                if !self.techniques.resubmit_in_cycle {
                    self.fill_receive_urbs();
                }
            }
            Status::Gone => self.close(),
        }
    }

    /// Counts the frames that `bytes` bytes of a bulk-in transfer can have contained as dropped.
    pub(super) fn lose_frames(&self, bytes: usize, at_least: usize) {
        let frames = F::most_frames(bytes).max(at_least) as u64;
        self.receive_counters.received.add(frames);
        self.receive_counters.drops.count(DropReason::DeviceError, frames);
        self.status.lost_bytes.add(bytes as u64);
    }

    /// Queues a transfer with frames (A4), or submits the next one first, unless so many wait that their
    /// memory has to be limited.
    fn received(&mut self, done: Completion) {
        self.status.count_received_transfer(done.actual);
        self.filled.push_back(Filled::new(done));
        if !self.techniques.resubmit_in_cycle && self.filled.len() < MOST_FILLED {
            self.fill_receive_urbs();
        }
        self.status.set_filled(self.filled.len());
    }

    /// Submits bulk-in URBs up to the wanted number, if too few are in flight.
    pub(super) fn fill_receive_urbs(&mut self) {
        let Some(transfers) = self.transfers.filter(|_| !self.closed && self.halted.is_empty()) else {
            return;
        };
        if self.receiving >= self.receive_mark {
            return;
        }
        while self.receiving < self.receive_urbs {
            let wanted = self.receive_buffers.bytes();
            let Some(buffer) = self.receive_buffers.take(wanted) else { break };
            self.submit_receive(transfers.endpoints.bulk_in, buffer);
        }
        self.status.set_receiving(self.receiving, &self.receive_buffers);
    }

    fn submit_receive(&mut self, endpoint: u8, buffer: UrbBuffer) {
        self.receiving += 1;
        let length = self.receive_buffers.bytes();
        self.transport.submit(Urb::new(UrbKind::Receive.id(), endpoint, Setup::default(), buffer, length));
    }

    /// Takes back the memory of a transfer whose frames have been handled, and submits the next one.
    pub(super) fn emptied(&mut self, buffer: UrbBuffer) {
        self.deferred.iter_mut().for_each(|(before, _)| *before = before.saturating_sub(1));
        let again = self.receiving < self.receive_mark && self.halted.is_empty() && !self.closed;
        let again = again && self.techniques.resubmit_in_cycle && self.receive_buffers.reuses();
        match self.transfers.filter(|_| again) {
            Some(transfers) => self.submit_receive(transfers.endpoints.bulk_in, buffer),
            None => {
                self.receive_buffers.give(buffer);
                self.fill_receive_urbs();
            }
        }
        self.status.set_receiving(self.receiving, &self.receive_buffers);
    }
}
