//! State of one worker's stages: how it begins, follows new tables, and ends.

use super::stages::{Extra, ExtraStage, Stages, Tables};
use super::timing::Timer;
use crate::counters::{RouteCounters, WorkerCounters};
use crate::drops::Context;
use crate::forward::BridgeCounters;
use crate::units::Nanos;
use polder_buffers::Pool;
use polder_buffers::snapshot::Reader;
use std::sync::Arc;

/// Counters of one worker: of all stages, and of the bridge.
pub type EngineCounters = (Arc<WorkerCounters>, Arc<BridgeCounters>);

/// One worker's stages.
#[derive(Debug)]
pub struct Engine {
    pub(super) tables: Reader<Tables>,
    pub(super) counters: Arc<WorkerCounters>,
    pub(super) stages: Stages,
    pub(super) timer: Timer,
}

impl Engine {
    /// The stages of worker `worker`.
    pub fn new(tables: Reader<Tables>, worker: usize) -> Self {
        Self::counting_in(tables, worker, (Arc::default(), Arc::default()))
    }

    /// The same with counters that another worker of this number has left.
    pub fn counting_in(tables: Reader<Tables>, worker: usize, (counters, bridging): EngineCounters) -> Self {
        let mut stages = Stages::begin(worker, tables.get(), &counters);
        stages.bridge.count_in(bridging);
        Self { tables, counters, stages, timer: Timer::default() }
    }

    /// Puts a stage before the bridge. Without one a batch costs a test of whether there is one.
    pub fn set_extra(&mut self, stage: ExtraStage) {
        self.stages.extra = Extra(Some(stage));
    }

    /// The worker's counters.
    pub fn counters(&self) -> &Arc<WorkerCounters> {
        &self.counters
    }

    /// The routing stage's counters.
    pub fn route_counters(&self) -> &Arc<RouteCounters> {
        self.stages.route.counters()
    }

    /// The bridge stage's counters.
    pub fn bridge_counters(&self) -> &Arc<BridgeCounters> {
        self.stages.bridge.counters()
    }

    /// Makes room for ports 0 to `ports` − 1.
    pub fn grow_to(&mut self, ports: usize) {
        self.stages.dispatch.grow_to(ports);
    }

    /// The tables have been replaced.
    #[cold]
    pub(super) fn adopt(&mut self) {
        self.stages.adopt(self.tables.get());
    }

    /// Does the work that is due by time alone.
    pub fn tick(&mut self, now: Nanos, pool: &mut Pool) {
        let Self { counters, stages, .. } = self;
        let mut context = Context { now, pool, drops: &counters.drops, ledger: &counters.ledger };
        stages.expire(&mut context);
    }

    /// Time of the next work of [`Engine::tick`] or [`Engine::look_after`], if no batch comes before.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.stages.next_deadline()
    }

    /// Drops held packets, for a worker that ends.
    pub fn close(&mut self, now: Nanos, pool: &mut Pool) {
        let Self { counters, stages, .. } = self;
        let mut context = Context { now, pool, drops: &counters.drops, ledger: &counters.ledger };
        stages.clear(&mut context);
    }
}
