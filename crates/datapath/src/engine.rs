//! Engine: the stages of one worker, applied to a batch in order.
//!
//! The engine owns one worker's stage states and counters; tables are shared and replaced whole. It uses
//! neither devices nor clocks: batches and the time are arguments, and [`Egress`] takes sent packets.

mod batches;
mod cut;
mod inbound;
mod routing;
mod shared;
mod stages;
mod state;
mod timing;
mod watch;

use crate::counters::Stage;
use crate::drops::{Context, is_dropped};
use crate::filter::{Direction, filter};
use crate::forward::bridge;
use crate::parse::parse;
use crate::sequence::{assign, divert};
use crate::steer::WorkBatch;
use crate::transmit::Egress;
use crate::tunnel::encapsulate;
use crate::units::Nanos;
use batches::{BatchSummary, alive, collect, in_chunks};
use polder_buffers::{Batch, ChecksumState, NO_PORT, Pool, PortId};
use stages::{Extra, Grown, Scratch, Stages, goes_on};
use timing::Meter;

pub use stages::{ExtraStage, Tables};
pub use state::{Engine, EngineCounters};

impl Engine {
    /// Begins a turn of one queue; returns true if this turn is timed, stage by stage.
    pub fn begin_turn(&mut self) -> bool {
        if self.tables.refresh() {
            self.adopt();
        }
        self.timer.fires()
    }

    /// Counts packets that a queue delivered, and their receive time if it was measured.
    pub fn received(&self, packets: usize, elapsed: Option<Nanos>) {
        let stage = self.counters.stage(Stage::Receive);
        stage.packets.add(packets as u64);
        stage.batches.add(1);
        if let Some(elapsed) = elapsed {
            stage.timed_packets.add(packets as u64);
            stage.timed_nanos.add(elapsed.0);
        }
    }

    /// Takes a received batch through all stages; it is empty afterwards.
    ///
    /// All its packets must have ingress `ingress`. `clock` is read only in a timed turn.
    pub fn process(
        &mut self,
        batch: &mut Batch,
        ingress: PortId,
        with: TurnContext<'_>,
        egress: &mut impl Egress,
        clock: &mut impl FnMut() -> Nanos,
    ) {
        let mut pipeline = self.pipeline(with, egress, clock);
        pipeline.arrive(batch, ingress);
        pipeline.answer();
    }

    fn pipeline<'a, E: Egress, C: FnMut() -> Nanos>(
        &'a mut self,
        with: TurnContext<'a>,
        egress: &'a mut E,
        clock: &'a mut C,
    ) -> Pipeline<'a, E, C> {
        let TurnContext { now, pool, timed } = with;
        let counters = &*self.counters;
        Pipeline {
            tables: self.tables.get(),
            stages: &mut self.stages,
            egress,
            collect: None,
            meter: Meter { counters, last: timed.then(&mut *clock), clock },
            context: Context { now, pool, drops: &counters.drops, ledger: &counters.ledger },
        }
    }
}

/// Context of a turn.
#[derive(Debug)]
pub struct TurnContext<'a> {
    /// Current time.
    pub now: Nanos,
    /// The worker's pool of free frames.
    pub pool: &'a mut Pool,
    /// True if the stages of this turn are timed.
    pub timed: bool,
}

/// Stages of one turn with their context.
struct Pipeline<'a, E, C> {
    tables: &'a Tables,
    stages: &'a mut Stages,
    egress: &'a mut E,
    /// Work batch that collects packets before reordering; `None` if they are sent directly.
    collect: Option<&'a mut WorkBatch>,
    meter: Meter<'a, C>,
    context: Context<'a>,
}

impl<E: Egress, C: FnMut() -> Nanos> Pipeline<'_, E, C> {
    /// Processes a received batch, from `parse` on.
    fn arrive(&mut self, batch: &mut Batch, ingress: PortId) {
        let count = batch.len();
        let left = parse(batch, self.tables.longest_frame, &self.context);
        self.meter.lap(Stage::Parse, count);
        self.egress.passed(Stage::Parse, batch);
        let left = self.come_in(batch, ingress, left);
        self.forward(batch, left);
    }

    /// Applies outbound rules. Not inlined, to keep the path without rules short.
    #[inline(never)]
    fn filter_outbound(&mut self, batch: &mut Batch) {
        let count = alive(batch);
        let Tables { filters, .. } = self.tables;
        filter(batch, Direction::Out, filters, &mut self.stages.filter, &mut self.context);
        self.meter.lap(Stage::Filter, count);
        self.egress.passed(Stage::Filter, batch);
    }

    /// Processes a batch from `route` or `bridge` on; `count` packets are not dropped.
    fn forward(&mut self, batch: &mut Batch, mut count: usize) {
        if let Extra(Some(stage)) = &mut self.stages.extra {
            stage(batch);
            count = alive(batch);
        }
        if self.tables.routers.is_empty() {
            self.bridge_stage(batch, count)
        } else {
            self.route_stage(batch, count)
        }
    }

    /// As `forward`, counting the packets that are not dropped.
    fn forward_all(&mut self, batch: &mut Batch) {
        self.forward(batch, alive(batch));
    }

    /// Processes a batch from `bridge` on.
    fn bridge_stage(&mut self, batch: &mut Batch, count: usize) {
        let Tables { bridges, fast_paths, .. } = self.tables;
        let flooded = &mut self.stages.scratch.flooded.packets;
        bridge(batch, (bridges, fast_paths), &mut self.stages.bridge, flooded, &mut self.context);
        self.meter.lap(Stage::Bridge, count);
        if !batch.is_empty() {
            self.egress.passed(Stage::Bridge, batch);
            return self.enter_tunnels(batch);
        }
        self.go_on_grown(Stage::Bridge, |scratch| &mut scratch.flooded, Self::enter_tunnels);
    }

    /// Continues after a stage that made more packets than a batch holds, a batch at a time.
    #[cold]
    fn go_on_grown(
        &mut self,
        stage: Stage,
        grown: impl Fn(&mut Scratch) -> &mut Grown,
        mut go_on: impl FnMut(&mut Self, &mut Batch),
    ) {
        let Grown { mut packets, mut part } = core::mem::take(grown(&mut self.stages.scratch));
        self.egress.passed(stage, &packets);
        in_chunks(&mut packets, &mut part, |part| go_on(self, part));
        *grown(&mut self.stages.scratch) = Grown { packets, part };
    }

    /// Processes a batch from the outbound rules on.
    fn enter_tunnels(&mut self, batch: &mut Batch) {
        if self.tables.filters.looks(Direction::Out) {
            self.filter_outbound(batch);
        }
        self.encapsulate_stage(batch);
    }

    /// Processes a batch from `encapsulate` on.
    fn encapsulate_stage(&mut self, batch: &mut Batch) {
        let summary = BatchSummary::of(batch);
        self.encapsulate_summarised(batch, summary);
    }

    /// Processes a summarised batch from `encapsulate` on.
    fn encapsulate_summarised(&mut self, batch: &mut Batch, summary: BatchSummary) {
        if !summary.has_partial && summary.is_below(self.tables.tunnels.lowest()) {
            return self.leave_summarised(batch, summary);
        }
        let (count, has_uncut) = match summary.only_port().filter(|_| !summary.has_partial) {
            Some(port) => (if self.tables.tunnels.get(port).is_some() { summary.alive } else { 0 }, false),
            None => self.prepare(batch),
        };
        if has_uncut {
            return self.cut(batch);
        }
        if count == 0 {
            return self.leave(batch);
        }
        self.watch_entering(batch, summary);
        let fragments = &mut self.stages.scratch.fragments.packets;
        encapsulate(batch, &self.tables.tunnels, &mut self.stages.encapsulate, fragments, &mut self.context);
        self.meter.lap(Stage::Encapsulate, count);
        if !batch.is_empty() {
            self.egress.passed(Stage::Encapsulate, batch);
            return self.leave_encapsulated(batch, summary.has_partial);
        }
        self.go_on_grown(
            Stage::Encapsulate,
            |scratch| &mut scratch.fragments,
            |pipeline, piece| pipeline.leave_encapsulated(piece, summary.has_partial),
        );
    }

    /// Returns the number of packets for tunnels, and true if some must be segmented first. Completes
    /// offloads that the egress device does not support.
    fn prepare(&mut self, batch: &mut Batch) -> (usize, bool) {
        let (mut count, mut last, mut has_uncut) = (0, (NO_PORT, None), false);
        for packet in batch.iter_mut() {
            if packet.egress != last.0 {
                last = (packet.egress, self.tables.tunnels.get(packet.egress));
            }
            count += usize::from(last.1.is_some());
            // Super-packets have a partial checksum too.
            if packet.checksum == ChecksumState::Partial && !is_dropped(packet) {
                has_uncut |= !goes_on(packet, last.1, self.tables, &mut self.context);
            }
        }
        (count, has_uncut)
    }

    /// Processes a batch from `reorder` on.
    fn leave(&mut self, batch: &mut Batch) {
        let summary = BatchSummary::of(batch);
        self.leave_summarised(batch, summary);
    }

    /// Processes a summarised batch from `reorder` on.
    fn leave_summarised(&mut self, batch: &mut Batch, summary: BatchSummary) {
        if let Some(work) = &mut self.collect {
            if let Some(captures) = &mut self.stages.captures {
                captures.dropped(batch, self.context.now);
            }
            return collect(batch, work, self.context.pool);
        }
        if summary.has_marked {
            divert(
                batch,
                |port| self.egress.assigns_sequence(port),
                &mut self.stages.sequence,
                &mut self.stages.scratch.unsequenced,
            );
            if !self.stages.scratch.unsequenced.is_empty() {
                self.hand_to_sequencer();
            }
            assign(batch, &self.tables.tunnels, &mut self.stages.sequence, &self.context);
        }
        self.meter.lap(Stage::Sequence, summary.alive);
        self.egress.passed(Stage::Sequence, batch);
        let told = if self.stages.captures.is_some() {
            self.dispatch_watched(batch, summary)
        } else {
            let lap = |stage, packets| self.meter.lap(stage, packets);
            self.stages.dispatch.dispatch(batch, &self.tables.outlets, self.egress, &mut self.context, lap)
        };
        self.meter.lap(Stage::Transmit, summary.alive.saturating_sub(told));
    }
}

impl Engine {
    /// Takes a batch through all stages, like [`Engine::process`]; `turn` is called before the gateway's own
    /// messages are sent.
    pub(crate) fn walk<E: Egress>(
        &mut self,
        batch: &mut Batch,
        ingress: PortId,
        with: TurnContext<'_>,
        egress: &mut E,
        turn: impl FnOnce(&mut E),
    ) {
        let mut clock = || Nanos(0);
        let mut pipeline = self.pipeline(with, egress, &mut clock);
        pipeline.arrive(batch, ingress);
        turn(pipeline.egress);
        pipeline.answer();
    }
}

impl<E: Egress, C: FnMut() -> Nanos> Pipeline<'_, E, C> {
    /// Sends the messages of stages to senders. Messages never cause further messages (RFC 1122, 3.2.2), so
    /// the loop ends.
    fn answer(&mut self) {
        // Messages of filter and router have their egress already.
        if !self.stages.filter.replies.is_empty() {
            self.send_replies(|stages| &mut stages.filter.replies, Self::encapsulate_stage);
        }
        if !self.stages.route.answers().is_empty() {
            self.send_replies(|stages| stages.route.answers(), Self::encapsulate_stage);
        }
        while !self.stages.encapsulate.replies.is_empty() {
            self.send_replies(|stages| &mut stages.encapsulate.replies, Self::forward_all);
        }
    }

    /// Sends one stage's messages.
    #[cold]
    fn send_replies(
        &mut self,
        replies_of: impl Fn(&mut Stages) -> &mut Batch,
        send: impl Fn(&mut Self, &mut Batch),
    ) {
        let mut replies = core::mem::take(&mut self.stages.scratch.replies);
        core::mem::swap(&mut replies, replies_of(self.stages));
        send(self, &mut replies);
        self.stages.scratch.replies = replies;
    }
}
