//! One packet through the stages, for a trace.

use super::{Engine, TurnContext};
use crate::transmit::Egress;
use crate::units::Nanos;
use polder_buffers::{Batch, PortId};

impl Engine {
    /// Takes a batch through all stages, as [`Engine::process`] does; `turn` is called before messages of the
    /// gateway's own leave.
    pub(crate) fn walk<E: Egress>(
        &mut self,
        batch: &mut Batch,
        ingress: PortId,
        with: TurnContext<'_>,
        egress: &mut E,
        turn: impl FnOnce(&mut E),
    ) {
        let mut clock = || Nanos(0);
        let mut journey = self.journey(with, egress, &mut clock);
        journey.arrive(batch, ingress);
        turn(journey.egress);
        journey.answer();
    }
}
