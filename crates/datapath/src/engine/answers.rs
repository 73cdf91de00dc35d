//! Messages of the stages to senders.

use super::Journey;
use crate::engine::batches::alive;
use crate::transmit::Egress;
use crate::units::Nanos;

impl<E: Egress, C: FnMut() -> Nanos> Journey<'_, E, C> {
    /// Sends the stages' messages to senders. Such messages never cause others (RFC 1122, 3.2.2),
    /// so this ends.
    pub(super) fn answer(&mut self) {
        if !self.filter_state.replies.is_empty() {
            self.answer_rejected();
        }
        if !self.route_state.answers().is_empty() {
            self.answer_routed();
        }
        while !self.encapsulate_state.replies.is_empty() {
            let mut replies = core::mem::take(&mut self.scratch.replies);
            core::mem::swap(&mut replies, &mut self.encapsulate_state.replies);
            let count = alive(&replies);
            self.forward(&mut replies, count);
            self.scratch.replies = replies;
        }
    }

    /// Sends answers to packets that rules rejected, by the ports where those came in.
    #[cold]
    fn answer_rejected(&mut self) {
        let mut replies = core::mem::take(&mut self.scratch.replies);
        core::mem::swap(&mut replies, &mut self.filter_state.replies);
        self.encapsulate_stage(&mut replies);
        self.scratch.replies = replies;
    }
}
