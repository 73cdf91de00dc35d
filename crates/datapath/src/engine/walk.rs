//! One packet through the stages, for a trace.

use super::{Engine, TurnContext};
use crate::trace::Recorder;
use crate::units::Nanos;
use polder_buffers::{Batch, PortId};

impl Engine {
    /// Takes a batch through all stages, as [`Engine::process`] does, and tells the recorder where messages
    /// of the gateway's own begin.
    pub(crate) fn walk(
        &mut self,
        batch: &mut Batch,
        ingress: PortId,
        with: TurnContext<'_>,
        recorder: &mut Recorder,
    ) {
        let mut clock = || Nanos(0);
        let mut journey = self.journey(with, recorder, &mut clock);
        journey.arrive(batch, ingress);
        journey.egress.turn_to_answers();
        journey.answer();
    }
}
