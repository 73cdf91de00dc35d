//! The receiving end of a queue whose program counts packets to the socket: it tells the program how many
//! packets may wait there, and how many the worker has processed.
//!
//! Exits: those of the inner receiver; `rx-overrun` and `rx-overrun-control` for packets that the program
//! dropped because the window was full; `fence` for packets that it dropped to keep a flow in order, and
//! `rx-overrun` for those that it could not change.
//!
//! Cost: eight loads, at most five stores and a few comparisons per turn.

use crate::bpf::window::{DROPS, Window};
use polder_buffers::{BATCH, Batch, Pool};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Armed, Budget, Drive, Driven, RxControl, RxQueue, Turn};
use polder_datapath::units::Nanos;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A receiver of a NAPI context's packets.
pub(super) trait KernelHalf {
    /// Number of counted packets that the kernel has lost so far, as of the last reading.
    fn lost(&self) -> u64;

    /// True if the kernel receives only when the worker lets it, so that the excess stays in the device.
    fn is_governed(&self) -> bool;
}

/// A receiver whose packets are counted by the program.
///
/// Losses count as processed only if no packet is on its way: packets with lower numbers may still arrive.
#[derive(Debug)]
pub(super) struct Numbered<R> {
    inner: R,
    window: Window,
    /// Number of packets that came out of the socket.
    delivered: u64,
    /// Number of lost packets that count as processed, and the same for their charges.
    lost: u64,
    lost_charges: u64,
    /// Number of packets that the program has dropped.
    dropped: u64,
    /// Maximum number of waiting packets, as set by the worker and by a consumer.
    limits: [Option<u32>; 2],
    /// True if the program has dropped packets over the limit since the last query.
    has_dropped: bool,
}

impl<R: RxQueue + KernelHalf> Numbered<R> {
    pub(super) fn new(inner: R, window: Window) -> Self {
        let (delivered, lost, lost_charges, dropped) = (0, 0, 0, 0);
        let (limits, has_dropped) = ([None; 2], false);
        Self { inner, window, delivered, lost, lost_charges, dropped, limits, has_dropped }
    }

    /// Counts packets as processed that came out of the socket since the last call, or were lost before it.
    fn read(&mut self) {
        let lost = self.inner.lost();
        let others = lost.wrapping_add(self.dropped);
        let delivered = self.inner.counters().received.get().wrapping_sub(others);
        if delivered != self.delivered {
            self.window.consume(delivered.wrapping_sub(self.delivered), 0);
            self.delivered = delivered;
        }
        if lost != self.lost_charges {
            self.window.lose(lost.wrapping_sub(self.lost_charges));
            self.lost_charges = lost;
        }
    }

    fn limit(&mut self) {
        self.window.set_limit(self.limits.into_iter().flatten().min());
    }

    /// Counts packets that the program has dropped.
    fn count_dropped(&mut self) {
        for (dropped, (_, reason)) in self.window.dropped().into_iter().zip(DROPS) {
            if dropped > 0 {
                self.has_dropped |= reason != DropReason::Fence;
                let counters = self.inner.counters();
                counters.received.add(dropped);
                counters.drops.count(reason, dropped);
                self.dropped = self.dropped.wrapping_add(dropped);
            }
        }
    }
}

impl<R: RxQueue + RxControl + KernelHalf> RxQueue for Numbered<R> {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        self.window.complete();
        let admitted = self.window.admitted();
        let turn = self.inner.receive(budget, batch, pool);
        self.read();
        if turn == Turn::Drained {
            self.window.drained(admitted);
        }
        self.count_dropped();
        turn
    }

    fn arm(&mut self) -> Armed {
        self.window.complete();
        let admitted = self.window.admitted();
        let armed = self.inner.arm();
        self.read();
        let lost = self.inner.lost();
        if armed == Armed::Waiting && self.window.empty_but(admitted, lost.wrapping_sub(self.lost)) {
            self.lost = lost;
        }
        armed
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.inner.event()
    }

    fn control(&mut self) -> Option<&mut dyn RxControl> {
        Some(self)
    }

    fn posted(&self) -> u32 {
        self.inner.posted()
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        self.inner.counters()
    }
}

impl<R: RxQueue + RxControl + KernelHalf> RxControl for Numbered<R> {
    fn set_mode(&mut self, drive: Drive) -> Driven {
        self.inner.set_mode(drive)
    }

    fn claim_thread(&mut self) {
        self.inner.claim_thread();
    }

    fn pause_thread(&mut self, paused: bool) {
        self.inner.pause_thread(paused);
    }

    fn favour_thread(&mut self) {
        self.inner.favour_thread();
    }

    fn thread_time(&mut self) -> Option<Nanos> {
        self.inner.thread_time()
    }

    /// The window limits the waiting packets, unless the device does.
    fn flush(&mut self) -> bool {
        self.inner.is_governed() && self.inner.flush()
    }

    fn end_flush(&mut self) {
        self.inner.end_flush();
    }

    fn set_posted_limit(&mut self, frames: u32) {
        self.inner.set_posted_limit(frames);
        let is_bound = frames != u32::MAX && !self.inner.is_governed();
        self.limits[1] = is_bound.then_some(frames.max(FEWEST));
        self.limit();
    }

    fn set_waiting_limit(&mut self, packets: Option<u32>) {
        self.limits[0] = packets;
        self.limit();
    }

    fn has_backlog(&mut self) -> bool {
        core::mem::take(&mut self.has_dropped) | self.inner.has_backlog()
    }

    fn hold_completed(&mut self, held: bool) {
        self.window.hold(held);
    }
}

/// Minimum of the limit: the packets of one batch.
#[expect(clippy::cast_possible_truncation, reason = "64 fits")]
const FEWEST: u32 = BATCH as u32;
