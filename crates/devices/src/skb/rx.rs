//! The receiver of a queue: packets of the TAP, counted for the window.
//!
//! Exits: those of [`TapRx`]; `rx-overrun` and `rx-overrun-control` for packets that the interface's program
//! has dropped because the window was full, and `fence` for packets that it has dropped to keep the order of
//! a flow that it is about to carry.
//!
//! Cost: beyond a TAP's, six loads, a store and a few comparisons per turn.

use crate::bpf::window::{DROPS, Window};
use crate::tap::TapRx;
use polder_buffers::{BATCH, Batch, Pool};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Armed, Budget, RxControl, RxQueue, Turn};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The receiving end of one queue.
#[derive(Debug)]
pub(super) struct Receiver {
    tap: TapRx,
    window: Window,
    /// Maximum number of waiting packets, as set by the worker and by a consumer.
    limits: [Option<u32>; 2],
    /// True if the program has dropped packets over the limit since the last query.
    has_dropped: bool,
}

impl Receiver {
    pub(super) fn new(tap: TapRx, window: Window) -> Self {
        Self { tap, window, limits: [None; 2], has_dropped: false }
    }

    fn limit(&mut self) {
        self.window.set_limit(self.limits.into_iter().flatten().min());
    }
}

impl RxQueue for Receiver {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        self.window.complete();
        let admitted = self.window.admitted();
        let counts = |tap: &TapRx| (tap.reads(), tap.counters().received_bytes.get());
        let before = counts(&self.tap);
        let turn = self.tap.receive(budget, batch, pool);
        let after = counts(&self.tap);
        if after.0 != before.0 {
            self.window.consume(after.0 - before.0, after.1 - before.1);
        }
        if turn == Turn::Drained {
            self.window.empty(admitted);
        }
        for (dropped, (_, reason)) in self.window.dropped().into_iter().zip(DROPS) {
            if dropped > 0 {
                self.has_dropped |= reason != DropReason::Fence;
                let counters = self.tap.counters();
                counters.received.add(dropped);
                counters.drops.count(reason, dropped);
            }
        }
        turn
    }

    fn arm(&mut self) -> Armed {
        self.window.complete();
        self.tap.arm()
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.tap.event()
    }

    fn control(&mut self) -> Option<&mut dyn RxControl> {
        Some(self)
    }

    fn posted(&self) -> u32 {
        self.tap.posted()
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        self.tap.counters()
    }
}

impl RxControl for Receiver {
    /// The window limits waiting packets, whether frames are posted for them or not.
    fn set_posted_limit(&mut self, frames: u32) {
        self.limits[1] = (frames != u32::MAX).then_some(frames.max(FEWEST));
        self.limit();
    }

    fn set_waiting_limit(&mut self, packets: Option<u32>) {
        self.limits[0] = packets;
        self.limit();
    }

    fn has_backlog(&mut self) -> bool {
        core::mem::take(&mut self.has_dropped)
    }

    fn hold_completed(&mut self, held: bool) {
        self.window.hold(held);
    }
}

/// Minimum of the limit: the packets of one batch.
#[expect(clippy::cast_possible_truncation, reason = "64 fits")]
const FEWEST: u32 = BATCH as u32;
