//! Batches that other workers received or will send.

use super::{Engine, Pipeline, TurnContext};
use crate::counters::Stage;
use crate::drops::DropReason;
use crate::engine::batches::in_chunks;
use crate::steer::WorkBatch;
use crate::transmit::Egress;
use crate::units::Nanos;
use polder_buffers::{Batch, NO_PORT, Pool, PortId, wire_packets};

impl Engine {
    /// Takes packets of mixed ingress through all stages; the batch is empty afterwards.
    pub fn process_mixed(
        &mut self,
        batch: &mut Batch,
        with: TurnContext<'_>,
        egress: &mut impl Egress,
        clock: &mut impl FnMut() -> Nanos,
    ) {
        let mut pipeline = self.pipeline(with, egress, clock);
        pipeline.arrive_mixed(batch);
        pipeline.answer();
    }

    /// Takes a work batch's packets through the stages before reordering. The work batch then contains the
    /// packets that are not dropped, perhaps none; dropped packets are released.
    pub fn work(
        &mut self,
        work: &mut WorkBatch,
        with: TurnContext<'_>,
        egress: &mut impl Egress,
        clock: &mut impl FnMut() -> Nanos,
    ) {
        let mut batch = core::mem::take(&mut self.stages.scratch.work);
        core::mem::swap(&mut batch, &mut work.batch);
        let mut pipeline = self.pipeline(with, egress, clock);
        pipeline.collect = Some(work);
        pipeline.arrive_mixed(&mut batch);
        pipeline.collect = None;
        pipeline.answer();
        self.stages.scratch.work = batch;
    }

    /// Sends the packets of the work batch that is next in order; it is empty afterwards.
    pub fn release_batch(&mut self, work: &mut WorkBatch, with: TurnContext<'_>, egress: &mut impl Egress) {
        let stage = self.counters.stage(Stage::Reorder);
        stage.packets.add(work.len() as u64);
        stage.batches.add(1);
        let mut clock = || Nanos(0);
        let mut pipeline = self.pipeline(with, egress, &mut clock);
        let WorkBatch { batch, more, .. } = work;
        if !batch.is_empty() {
            pipeline.leave(batch);
        }
        if !more.is_empty() {
            in_chunks(more, batch, |batch| pipeline.leave(batch));
        }
    }

    /// Drops packets for the given reason; the batch is empty afterwards.
    #[cold]
    pub fn discard(&mut self, batch: &mut Batch, reason: DropReason, pool: &mut Pool) {
        self.counters.drops.count(reason, wire_packets(batch));
        pool.release(batch);
    }

    /// True if tunnels end at the port.
    pub fn is_underlay(&self, port: PortId) -> bool {
        self.tables.get().tunnels.underlay(port).is_some()
    }

    /// Sends packets that another worker has taken through the stages; the batch is empty afterwards.
    pub fn transmit(&mut self, batch: &mut Batch, with: TurnContext<'_>, egress: &mut impl Egress) {
        let mut clock = || Nanos(0);
        self.pipeline(with, egress, &mut clock).leave(batch);
    }
}

impl<E: Egress, C: FnMut() -> Nanos> Pipeline<'_, E, C> {
    /// Processes a batch of mixed ingress from `parse` on.
    fn arrive_mixed(&mut self, batch: &mut Batch) {
        let tunnels = &self.tables.tunnels;
        let mut ports = batch.iter().map(|packet| packet.ingress);
        let underlay = ports.find(|&port| tunnels.underlay(port).is_some());
        self.arrive(batch, underlay.unwrap_or(NO_PORT));
    }

    /// Hands packets over to the worker that sequences them; packets without room are dropped.
    pub(super) fn hand_to_sequencer(&mut self) {
        let unsequenced = &mut self.stages.scratch.unsequenced;
        self.egress.hand_to_sequencer(unsequenced);
        if !unsequenced.is_empty() {
            self.context.drops.count(DropReason::NoCore, wire_packets(unsequenced));
            self.context.pool.release(unsequenced);
        }
    }
}
