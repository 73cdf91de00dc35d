//! State of one worker's stages: creation, change of tables, end.

use super::stages::{Extra, ExtraStage, Stages, Tables};
use super::timing::Timer;
use crate::counters::{RouteCounters, WorkerCounters};
use crate::drops::Context;
use crate::forward::BridgeCounters;
use crate::units::Nanos;
use polder_buffers::Pool;
use polder_buffers::snapshot::Reader;
use std::sync::Arc;

/// Counters of one worker, and of its bridge stage.
pub type EngineCounters = (Arc<WorkerCounters>, Arc<BridgeCounters>);

/// Stages of one worker.
#[derive(Debug)]
pub struct Engine {
    pub(super) tables: Reader<Tables>,
    pub(super) counters: Arc<WorkerCounters>,
    pub(super) stages: Stages,
    pub(super) timer: Timer,
}

impl Engine {
    /// Stages of worker number `worker`.
    pub fn new(tables: Reader<Tables>, worker: usize) -> Self {
        Self::counting_in(tables, worker, (Arc::default(), Arc::default()))
    }

    /// Stages that continue with the counters of an earlier worker of this number.
    pub fn counting_in(tables: Reader<Tables>, worker: usize, (counters, bridging): EngineCounters) -> Self {
        let mut stages = Stages::begin(worker, tables.get(), &counters);
        stages.bridge.count_in(bridging);
        Self { tables, counters, stages, timer: Timer::default() }
    }

    /// Adds a stage before the bridge.
    pub fn set_extra(&mut self, stage: ExtraStage) {
        self.stages.extra = Extra(Some(stage));
    }

    /// Counters of the worker.
    pub fn counters(&self) -> &Arc<WorkerCounters> {
        &self.counters
    }

    /// Counters of the routing stage.
    pub fn route_counters(&self) -> &Arc<RouteCounters> {
        self.stages.route.counters()
    }

    /// Counters of the bridge stage.
    pub fn bridge_counters(&self) -> &Arc<BridgeCounters> {
        self.stages.bridge.counters()
    }

    /// Makes room for ports 0 to `ports` − 1.
    pub fn grow_to(&mut self, ports: usize) {
        self.stages.dispatch.grow_to(ports);
    }

    /// Adapts the stages to new tables.
    #[cold]
    pub(super) fn adopt(&mut self) {
        self.stages.adopt(self.tables.get());
    }

    /// Does the work that is due at this time.
    pub fn tick(&mut self, now: Nanos, pool: &mut Pool) {
        let Self { counters, stages, .. } = self;
        let mut context = Context { now, pool, drops: &counters.drops, ledger: &counters.ledger };
        stages.expire(&mut context);
    }

    /// Time of the next call of [`Engine::tick`] or [`Engine::look_after`] if no batch comes before; `None`
    /// if none is needed.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.stages.next_deadline()
    }

    /// Drops the packets that stages hold, for a worker that ends.
    pub fn close(&mut self, now: Nanos, pool: &mut Pool) {
        let Self { counters, stages, .. } = self;
        let mut context = Context { now, pool, drops: &counters.drops, ledger: &counters.ledger };
        stages.clear(&mut context);
    }
}
