//! Captures begin and end in workers.

use super::Gateway;
use crate::runtime::worker::Command;
use polder_datapath::capture::Tap;

impl Gateway {
    /// Brings all packets of a port to the workers, so that a capture sees them: none are carried in the kernel until
    /// [`untap`](Self::untap).
    pub(in crate::runtime) fn begin_capture(&mut self, capture: u64) {
        self.flows.captures.insert(capture);
        self.say_renewed();
    }

    /// Gives a worker a tap.
    pub(in crate::runtime) fn tap(&self, worker: usize, tap: Tap) {
        if let Some(worker) = self.workers.get(worker) {
            worker.send(Command::Tap(Box::new(tap)));
        }
    }

    /// Has all workers let go of the taps of a capture.
    pub(in crate::runtime) fn untap(&mut self, capture: u64) {
        self.workers.iter().for_each(|worker| worker.send(Command::Untap(capture)));
        if self.flows.captures.remove(&capture) {
            self.say_renewed();
        }
    }
}
