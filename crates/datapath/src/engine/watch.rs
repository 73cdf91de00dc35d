//! Captures in the engine.

use super::{BatchSummary, Engine, Pipeline};
use crate::capture::{Captures, Tap, Watched};
use crate::transmit::Egress;
use crate::units::Nanos;
use polder_buffers::Batch;

impl Engine {
    /// Starts a capture.
    #[cold]
    pub fn add_tap(&mut self, tap: Tap) {
        self.stages.captures.get_or_insert_default().add(tap);
    }

    /// Ends a capture.
    #[cold]
    pub fn remove_tap(&mut self, capture: u64) {
        if self.stages.captures.as_mut().is_some_and(|captures| !captures.remove(capture)) {
            self.stages.captures = None;
        }
    }

    /// Captures for packets as devices deliver them; `None` without captures.
    #[inline]
    pub fn captures(&mut self) -> Option<&mut Captures> {
        self.stages.captures.as_deref_mut()
    }
}

impl<E: Egress, C: FnMut() -> Nanos> Pipeline<'_, E, C> {
    /// Captures packets before encapsulation.
    #[inline]
    pub(super) fn watch_entering(&mut self, batch: &Batch, summary: BatchSummary) {
        if let Some(captures) = &mut self.stages.captures {
            // Packets with partial checksums may have been dropped since.
            let is_known = !summary.has_partial;
            let leaves = |port| if is_known { summary.leaves_by(port) } else { None };
            captures.leaving(batch, self.context.now, leaves);
        }
    }

    /// Sends a batch, and captures sent packets, dropped packets, and packets that no port takes.
    #[inline(never)]
    pub(super) fn dispatch_watched(&mut self, batch: &mut Batch, summary: BatchSummary) -> usize {
        let (Some(captures), now) = (self.stages.captures.as_deref_mut(), self.context.now) else { return 0 };
        captures.dropped(batch, now);
        // Packets that need a sequence number may be with another worker, or dropped.
        let is_known = !summary.has_marked;
        captures.leaving(batch, now, |port| if is_known { summary.leaves_by(port) } else { None });
        let mut watched = Watched { egress: self.egress, captures, now };
        let lap = |stage, packets| self.meter.lap(stage, packets);
        self.stages.dispatch.dispatch(batch, &self.tables.outlets, &mut watched, &mut self.context, lap)
    }
}
