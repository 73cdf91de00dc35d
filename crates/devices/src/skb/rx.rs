//! Packets that come in: those of the TAP, with the window moved along.
//!
//! Exits: those of [`TapRx`]; `rx-overrun` for what the interface's program has dropped because the window was full, and
//! `fence` for what it has dropped to make a gap in a flow that it is to carry itself.
//!
//! Cost: beyond a TAP's, two loads and a store for each turn.

use super::window::Window;
use crate::tap::TapRx;
use polder_buffers::{Batch, Pool};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Armed, Budget, RxQueue, Turn};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The receiving end of one queue.
#[derive(Debug)]
pub(super) struct Receiver {
    tap: TapRx,
    window: Window,
}

impl Receiver {
    pub(super) fn new(tap: TapRx, window: Window) -> Self {
        Self { tap, window }
    }
}

impl RxQueue for Receiver {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        self.window.complete();
        let admitted = self.window.admitted();
        let counts = |tap: &TapRx| (tap.counters().received.get(), tap.counters().received_bytes.get());
        let before = counts(&self.tap);
        let turn = self.tap.receive(budget, batch, pool);
        let after = counts(&self.tap);
        if after.0 != before.0 {
            self.window.consume(after.0 - before.0, after.1 - before.1);
        }
        if turn == Turn::Drained {
            self.window.empty(admitted);
        }
        for (dropped, reason) in
            self.window.dropped().into_iter().zip([DropReason::RxOverrun, DropReason::Fence])
        {
            if dropped > 0 {
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

    fn posted(&self) -> u32 {
        self.tap.posted()
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        self.tap.counters()
    }
}
