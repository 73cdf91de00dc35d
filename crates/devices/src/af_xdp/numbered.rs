//! The receiving end of a queue whose program carries flows: it tells the program up to which packet the worker is through
//! with all that went to the socket.
//!
//! Exits: those of the receiver inside; `fence` for packets that the program has dropped to make a gap in a flow, and
//! `rx-overrun` for those that it could not change.
//!
//! Cost: four loads, at most three stores and a few comparisons for each turn.

use crate::bpf::window::{DROPS, Window};
use polder_buffers::{Batch, Pool};
use polder_datapath::counters::QueueCounters;
use polder_datapath::port::{Armed, Budget, Drive, Driven, RxControl, RxQueue, Turn};
use polder_datapath::units::Nanos;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A receiver that tells what was lost before it.
pub(super) trait CountsLost {
    /// Packets so far that were given a number and that the kernel has lost, as far as it was asked.
    fn lost(&self) -> u64;
}

/// A receiver whose packets have numbers.
///
/// Packets that were lost are read only when nothing else is missing: others with lower numbers may be on their way.
#[derive(Debug)]
pub(super) struct Numbered<R> {
    inner: R,
    window: Window,
    /// Packets that came out of the socket.
    delivered: u64,
    /// Lost packets that count as read.
    lost: u64,
    /// Packets that the program has dropped.
    dropped: u64,
}

impl<R: RxQueue + CountsLost> Numbered<R> {
    pub(super) fn new(inner: R, window: Window) -> Self {
        Self { inner, window, delivered: 0, lost: 0, dropped: 0 }
    }

    /// Counts packets that came out of the socket since the last time as read.
    fn read(&mut self) {
        let others = self.inner.lost().wrapping_add(self.dropped);
        let delivered = self.inner.counters().received.get().wrapping_sub(others);
        if delivered != self.delivered {
            self.window.consume(delivered.wrapping_sub(self.delivered), 0);
            self.delivered = delivered;
        }
    }

    /// Counts packets that the program has dropped.
    fn count_dropped(&mut self) {
        for (dropped, (_, reason)) in self.window.dropped().into_iter().zip(DROPS) {
            if dropped > 0 {
                let counters = self.inner.counters();
                counters.received.add(dropped);
                counters.drops.count(reason, dropped);
                self.dropped = self.dropped.wrapping_add(dropped);
            }
        }
    }
}

impl<R: RxQueue + RxControl + CountsLost> RxQueue for Numbered<R> {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        self.window.complete();
        let turn = self.inner.receive(budget, batch, pool);
        self.read();
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

impl<R: RxControl> RxControl for Numbered<R> {
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

    fn flush(&mut self) -> bool {
        self.inner.flush()
    }

    fn end_flush(&mut self) {
        self.inner.end_flush();
    }

    fn set_posted_limit(&mut self, frames: u32) {
        self.inner.set_posted_limit(frames);
    }

    fn set_waiting_limit(&mut self, packets: Option<u32>) {
        self.inner.set_waiting_limit(packets);
    }

    fn has_backlog(&mut self) -> bool {
        self.inner.has_backlog()
    }

    fn hold_completed(&mut self, held: bool) {
        self.window.hold(held);
    }
}
