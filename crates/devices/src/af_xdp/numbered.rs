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

/// A receiver whose packets have numbers.
#[derive(Debug)]
pub(super) struct Numbered<R> {
    inner: R,
    window: Window,
    /// Packets that the queue's counters know already, those included that the program has dropped.
    seen: u64,
}

impl<R: RxQueue> Numbered<R> {
    pub(super) fn new(inner: R, window: Window) -> Self {
        Self { seen: inner.counters().received.get(), inner, window }
    }

    /// Counts packets that were received or lost since the last time as read.
    fn read(&mut self) {
        let received = self.inner.counters().received.get();
        if received != self.seen {
            self.window.consume(received.wrapping_sub(self.seen), 0);
            self.seen = received;
        }
    }

    /// Counts packets that the program has dropped.
    fn count_dropped(&mut self) {
        for (dropped, (_, reason)) in self.window.dropped().into_iter().zip(DROPS) {
            if dropped > 0 {
                let counters = self.inner.counters();
                counters.received.add(dropped);
                counters.drops.count(reason, dropped);
                self.seen = self.seen.wrapping_add(dropped);
            }
        }
    }
}

impl<R: RxQueue + RxControl> RxQueue for Numbered<R> {
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
        if armed == Armed::Waiting {
            // What the kernel has lost was counted just now: what is missing went nowhere.
            self.window.empty(admitted);
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
