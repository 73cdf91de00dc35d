//! Control of the kernel's half of receiving, and the kernel's counters of lost packets.

use super::Receiver;
use crate::af_xdp::numbered::KernelHalf;
use polder_datapath::drops::DropReason;
use polder_datapath::port::{Drive, Driven, RxControl};
use polder_datapath::scheduler::{self, Ageing};
use polder_datapath::units::Nanos;

impl<const COPIES: bool> RxControl for Receiver<COPIES> {
    fn set_mode(&mut self, drive: Drive) -> Driven {
        let Some(socket) = self.core.socket() else { return Driven::No };
        let driven = self.driver.drive(socket, drive);
        if let Some(refused) = self.driver.refusal() {
            self.core.note(refused);
        }
        driven
    }

    fn claim_thread(&mut self) {
        if let Some(socket) = self.core.socket() {
            self.driver.share(socket);
            if let Some(refused) = self.driver.refusal() {
                self.core.note(refused);
            }
        }
    }

    fn pause_thread(&mut self, paused: bool) {
        self.driver.pause(paused);
    }

    fn thread_time(&mut self) -> Option<Nanos> {
        self.driver.shared_time()
    }

    #[cold]
    fn flush(&mut self) -> bool {
        self.is_reduced |= !self.closed;
        // If the worker polls, flushing needs no pause of the worker.
        self.flush_due = !self.closed && (!self.driver.is_held() || self.ageing.is_old());
        !self.closed
    }

    fn favour_thread(&mut self) {
        self.driver.boost(true);
    }

    fn end_flush(&mut self) {
        (self.is_reduced, self.flush_due, self.ageing) = (false, false, Ageing::default());
    }

    fn set_posted_limit(&mut self, frames: u32) {
        self.reduced_target = scheduler::frames(frames);
    }

    fn has_backlog(&mut self) -> bool {
        self.flush_due || (self.driver.is_held() && !self.device_empty)
    }
}

impl<const COPIES: bool> Receiver<COPIES> {
    /// Counts, and returns, the packets that the kernel has lost since the last call. Each lost packet is in
    /// exactly one of the kernel's two counters; a part of the first was lost because the fill ring was
    /// empty.
    #[cold]
    pub(super) fn settle(&mut self) -> u64 {
        self.turns = 0;
        self.counters.system_calls.add(1);
        let (now, before) = (self.core.statistics(), self.seen);
        self.seen = now;
        let dropped = now.dropped.saturating_sub(before.dropped);
        let starved = now.fill_ring_empty.saturating_sub(before.fill_ring_empty);
        // With multi-buffer no packet is too long, and the kernel does not count an empty fill ring.
        let starved = if self.wants.multi_buffer { dropped } else { starved.min(dropped) };
        let full = now.receive_ring_full.saturating_sub(before.receive_ring_full);
        if dropped + full > 0 {
            self.counters.received.add(dropped + full);
            self.counters.drops.count(DropReason::RxOverrun, starved + full);
            self.counters.drops.count(DropReason::FrameTooLong, dropped - starved);
        }
        self.lost += dropped + full;
        self.arrived += dropped + full;
        self.ageing.came(dropped + full);
        dropped + full
    }
}

impl<const COPIES: bool> KernelHalf for Receiver<COPIES> {
    fn lost(&self) -> u64 {
        self.lost
    }

    fn is_governed(&self) -> bool {
        self.driver.is_governed()
    }
}
