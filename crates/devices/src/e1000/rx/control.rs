//! Receive mode, and closing of the receiver.

use super::E1000Rx;
use crate::e1000::regs::{IMC, RCTL};
use crate::pci::ALL_ONES;
use polder_buffers::Packet;
use polder_datapath::port::{Drive, Driven, RxControl};

impl RxControl for E1000Rx {
    /// Interrupts are enabled only while the worker sleeps, so a polled queue needs no setting.
    fn set_mode(&mut self, drive: Drive) -> Driven {
        match drive {
            Drive::Interrupts(least) => self.throttle.set_floor(least),
            Drive::Polled => {}
        }
        Driven::Yes
    }

    /// Without posted buffers the device drops frames.
    fn set_posted_limit(&mut self, frames: u32) {
        self.posting.set_consumers(frames);
    }

    fn set_waiting_limit(&mut self, packets: Option<u32>) {
        self.posting.set_workers(packets);
    }

    fn has_backlog(&mut self) -> bool {
        self.posting.take_run_out()
    }
}

impl Drop for E1000Rx {
    fn drop(&mut self) {
        if !self.core.is_closed() {
            self.core.access.write(IMC, ALL_ONES);
            self.core.access.write(RCTL, 0);
            self.read_statistics();
        }
        let unfinished = self.unfinished.take().into_iter().flat_map(Packet::into_segments);
        self.core.leave(unfinished.map(|segment| segment.frame));
        self.core.leave(self.frames.iter_mut().filter_map(Option::take));
    }
}
