//! Stages between parser and router, as the list of stages has them.

use super::Journey;
use super::batches::alive;
use crate::counters::{Stage, with_stages};
use crate::stage::Inbound;
use crate::transmit::Egress;
use crate::units::Nanos;
use polder_buffers::{Batch, PortId};

macro_rules! define {
    ($($variant:ident, $state:ident: $module:ident::$State:ident
        $(, reads $table:ident: $Table:ident $content:literal $(, $inbound:ident)?)?;)+) => {
        impl<E: Egress, C: FnMut() -> Nanos> Journey<'_, E, C> {
            /// From decapsulation to the router, with `left` packets that are still on their way; returns how many of
            /// them are left.
            #[inline]
            pub(super) fn come_in(&mut self, batch: &mut Batch, ingress: PortId, mut left: usize) -> usize {
                $($($(if <crate::$module::$State as Inbound>::is_met(&self.tables.$table, ingress) {
                    self.stages.$state.receive(batch, &self.tables.$table, &mut self.context);
                    left = self.$inbound(Stage::$variant, batch, left);
                })?)?)+
                left
            }
        }
    };
}

with_stages!(define);

impl<E: Egress, C: FnMut() -> Nanos> Journey<'_, E, C> {
    /// An inbound stage has worked on a batch that had `count` packets on their way; returns how many are left. Not in
    /// line, so that the path without such stages is as short as if there were none.
    #[inline(never)]
    fn inbound(&mut self, stage: Stage, batch: &Batch, count: usize) -> usize {
        self.meter.lap(stage, count);
        self.egress.passed(stage, batch);
        if stage == Stage::Decapsulate
            && let Some(captures) = &mut self.stages.captures
        {
            captures.decapsulated(batch, self.context.now);
        }
        alive(batch)
    }
}
