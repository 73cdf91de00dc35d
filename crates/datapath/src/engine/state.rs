//! State of one worker's stages: how it begins, follows new tables, and ends.

use super::stages::{Stages, Tables};
use super::timing::Timer;
use crate::counters::{RouteCounters, WorkerCounters};
use crate::drops::Context;
use crate::forward::BridgeCounters;
use crate::units::Nanos;
use polder_buffers::snapshot::Reader;
use polder_buffers::{Batch, Packet, Pool};
use std::sync::Arc;

/// Stage from outside: it works on the batch in place, before the bridge.
pub type ExtraStage = Box<dyn FnMut(&mut Batch) + Send>;

/// An extra stage, if there is one.
#[derive(Default)]
pub(super) struct Extra(pub(super) Option<ExtraStage>);

impl core::fmt::Debug for Extra {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_tuple("Extra").field(&self.0.is_some()).finish()
    }
}

/// Counters of one worker: of all stages, and of the bridge.
pub type EngineCounters = (Arc<WorkerCounters>, Arc<BridgeCounters>);

/// Packets of a batch that has grown, and the part of them that is on its way.
#[derive(Debug, Default)]
pub(super) struct Grown {
    pub(super) packets: Vec<Packet>,
    pub(super) part: Batch,
}

impl Grown {
    fn new() -> Self {
        Self { packets: Vec::new(), part: Batch::new() }
    }
}

/// Space for packets while their batch has grown.
#[derive(Debug)]
pub(super) struct Scratch {
    pub(super) flooded: Grown,
    pub(super) fragments: Grown,
    /// Packets of a batch some of which were cut by the router, or waited.
    pub(super) routed: Grown,
    /// Segments of packets that go neither by their port nor into their tunnel whole.
    pub(super) cut: Batch,
    /// Segments of packets that their tunnel's underlay does not take whole.
    pub(super) cut_encapsulated: Batch,
    pub(super) replies: Batch,
    /// A work batch's packets while stages work on them.
    pub(super) work: Batch,
    /// Packets that another worker sequences.
    pub(super) unsequenced: Batch,
}

impl Scratch {
    pub(super) fn new(tables: &Tables) -> Self {
        let mut scratch = Self {
            flooded: Grown::new(),
            fragments: Grown::new(),
            routed: Grown::new(),
            cut: Batch::new(),
            cut_encapsulated: Batch::new(),
            replies: Batch::new(),
            work: Batch::new(),
            unsequenced: Batch::new(),
        };
        scratch.reserve(tables);
        scratch
    }

    /// Makes room for what stages with these tables may make of a batch.
    pub(super) fn reserve(&mut self, tables: &Tables) {
        let Tables { bridges, tunnels, routers, longest_frame, .. } = tables;
        self.routed.packets.reserve(routers.longest_expansion(*longest_frame));
        self.flooded.packets.reserve(bridges.longest_expansion());
        self.fragments.packets.reserve(tunnels.longest_expansion());
    }
}

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
