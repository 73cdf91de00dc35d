//! Packets that come in: those of the TAP, with the window moved along.
//!
//! Exits: those of [`TapRx`]; `rx-overrun` and `rx-overrun-control` for what the interface's program has dropped because more
//! waited than may, and `fence` for what it has dropped to make a gap in a flow that it is to carry itself.
//!
//! Cost: beyond a TAP's, six loads, a store and a few comparisons for each turn.

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
    /// Packets that may wait, by the worker's measure, and by a consumer's.
    limits: [Option<u32>; 2],
    /// True if the program has dropped packets that exceeded the limit since that was asked last.
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
    /// The window bounds packets that wait, whether frames are there for them or not.
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

/// Packets that may wait at least: those of one batch.
#[expect(clippy::cast_possible_truncation, reason = "64 fits")]
const FEWEST: u32 = BATCH as u32;
