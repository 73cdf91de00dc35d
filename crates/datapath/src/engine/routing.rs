//! Routing in the engine.

use super::batches::in_chunks;
use super::{BatchSummary, Engine, Pipeline, Tables, TurnContext};
use crate::counters::Stage;
use crate::filter::Direction;
use crate::route::{PairTables, Sent, route};
use crate::transmit::Egress;
use crate::units::Nanos;
use polder_buffers::{Batch, NO_PORT, Packet};

impl Engine {
    /// Maintains packets that wait for a neighbour, if due: repeats requests, gives up, and sends packets
    /// whose neighbour was resolved. One test if there are none.
    #[inline]
    pub fn look_after(&mut self, with: TurnContext<'_>, egress: &mut impl Egress) {
        if self.stages.route.is_due(with.now) {
            let mut clock = || Nanos(0);
            self.pipeline(with, egress, &mut clock).look_after();
        }
    }
}

impl<E: Egress, C: FnMut() -> Nanos> Pipeline<'_, E, C> {
    /// Processes a batch from `route` on. Not inlined, to keep the path without router short.
    #[inline(never)]
    pub(super) fn route_stage(&mut self, batch: &mut Batch, count: usize) {
        let Tables { routers, tunnels, fast_paths, .. } = self.tables;
        if !fast_paths.is_empty() {
            self.stages.route.publish(batch, PairTables { routers, tunnels, fast_paths }, self.context.now);
        }
        let routed = &mut self.stages.scratch.routed.packets;
        let sent = route(batch, routers, &mut self.stages.route, routed, &mut self.context);
        self.meter.lap(Stage::Route, count);
        if batch.is_empty() {
            self.go_on_grown(
                Stage::Route,
                |scratch| &mut scratch.routed,
                |pipeline, part| pipeline.bridge_rest(part, None),
            );
        } else {
            self.egress.passed(Stage::Route, batch);
            self.bridge_rest(batch, sent);
        }
    }

    /// Bridges the packets that the router has neither forwarded nor dropped.
    fn bridge_rest(&mut self, batch: &mut Batch, sent: Option<Sent>) {
        let summary = sent.map_or_else(|| BatchSummary::of(batch), |sent| BatchSummary::of_sent(batch, sent));
        if summary.may_lack_ports() && !batch.iter().all(has_egress) {
            return self.bridge_stage(batch, summary.alive);
        }
        if self.tables.filters.looks(Direction::Out) {
            return self.enter_tunnels(batch);
        }
        self.encapsulate_summarised(batch, summary);
    }

    #[cold]
    fn look_after(&mut self) {
        let released = self.stages.route.look_after(&self.tables.routers, &mut self.context);
        let mut released = core::mem::take(released);
        let mut chunk = core::mem::take(&mut self.stages.scratch.work);
        in_chunks(&mut released, &mut chunk, |chunk| self.forward_all(chunk));
        self.stages.scratch.work = chunk;
        self.stages.route.give_back(released);
        self.stages.route.tidy();
        self.answer();
    }
}

fn has_egress(packet: &Packet) -> bool {
    packet.egress != NO_PORT
}
