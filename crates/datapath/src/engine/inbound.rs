//! Inbound stages, between parser and router, generated from the list of stages.

use super::Pipeline;
use super::batches::alive;
use crate::counters::{Stage, with_stages};
use crate::stage::Inbound;
use crate::transmit::Egress;
use crate::units::Nanos;
use polder_buffers::{Batch, PortId};

macro_rules! define {
    ($($variant:ident, $state:ident: $module:ident::$State:ident
        $(, reads $table:ident: $Table:ident $content:literal $(, $inbound:ident)?)?;)+) => {
        impl<E: Egress, C: FnMut() -> Nanos> Pipeline<'_, E, C> {
            /// Applies the inbound stages to a batch with `left` packets that are not dropped; returns the
            /// number of packets left.
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

impl<E: Egress, C: FnMut() -> Nanos> Pipeline<'_, E, C> {
    /// Bookkeeping after an inbound stage, which processed `count` packets; returns the number of packets
    /// left. Not inlined, to keep the path without such stages short.
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
