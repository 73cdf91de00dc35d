//! Beginning and end of captures in workers and programs.

use super::Gateway;
use super::fast_path::obstacle;
use crate::config::model::Role;
use crate::runtime::worker::Command;
use polder_buffers::PortId;
use polder_datapath::capture::{CapturePoints, Program, Tap};
use polder_devices::skb::Copies;

impl Gateway {
    /// Begins a capture on a port or tunnel. Returns a reader of copies that match `filter`, if the port's
    /// programs may continue to carry packets. Otherwise all packets go through the workers until
    /// [`untap`](Self::untap). A capture of drops alone changes nothing, because dropped packets are in user
    /// space.
    pub(in crate::runtime) fn begin_capture(
        &mut self,
        capture: u64,
        port: PortId,
        (filter, longest, places): (&Program, u32, CapturePoints),
    ) -> Option<Copies> {
        if !places.rx && !places.tx {
            return None;
        }
        let copies = self.copies(port, (filter, longest, places));
        if copies.is_none() {
            self.flows.captures.insert(capture, port);
            self.say_renewed();
        }
        copies
    }

    /// Copies of a port's packets. `None` unless it is a bridge port with a fast path and TCX hooks see all
    /// packets that programs send to it.
    fn copies(
        &self,
        port: PortId,
        (filter, longest, places): (&Program, u32, CapturePoints),
    ) -> Option<Copies> {
        let state = self.ports.iter().find(|state| state.configuration.id == port)?;
        let is_bypassed = self.flow_tables().any(|(_, table)| table.is_xdp());
        if state.configuration.role != Role::Bridge || obstacle(self, state).is_some() || is_bypassed {
            return None;
        }
        let copies = state.handle()?.copies(filter, longest, places)?;
        let name = &state.configuration.name;
        copies
            .inspect_err(|error| {
                tracing::warn!(
                    "the fast path of {name} is disabled during a capture: \
                        {error}"
                )
            })
            .ok()
    }

    /// Sends a tap to a worker.
    pub(in crate::runtime) fn tap(&self, worker: usize, tap: Tap) {
        if let Some(worker) = self.workers.get(worker) {
            worker.send(Command::Tap(Box::new(tap)));
        }
    }

    /// Removes the taps of a capture from all workers.
    pub(in crate::runtime) fn untap(&mut self, capture: u64) {
        self.workers.iter().for_each(|worker| worker.send(Command::Untap(capture)));
        if self.flows.captures.remove(&capture).is_some() {
            self.say_renewed();
        }
    }
}
