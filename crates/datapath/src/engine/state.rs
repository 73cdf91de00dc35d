//! State of one worker's stages: how it begins, follows new tables, and ends.

use super::tables::Tables;
use super::timing::Timer;
use crate::capture::Captures;
use crate::counters::{RouteCounters, WorkerCounters};
use crate::drops::Context;
use crate::filter::FilterState;
use crate::forward::{BridgeCounters, BridgeState};
use crate::route::RouteState;
use crate::sequence::SequenceState;
use crate::transmit::Dispatch;
use crate::tunnel::{DecapsulateState, EncapsulateState, ReassemblyLimits};
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

/// Space for packets while their batch has grown.
#[derive(Debug)]
pub(super) struct Scratch {
    pub(super) flooded: Vec<Packet>,
    pub(super) fragments: Vec<Packet>,
    /// Packets of a batch some of which were cut by the router, or waited.
    pub(super) routed: Vec<Packet>,
    /// The part of `routed` that is on its way.
    pub(super) part: Batch,
    /// The part of `flooded` that is on its way.
    pub(super) chunk: Batch,
    /// The part of `fragments` that is on its way.
    pub(super) piece: Batch,
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

/// State of each stage, in the order of the journey, and space that stages share.
#[derive(Debug)]
pub(super) struct Stages {
    pub(super) bridge: BridgeState,
    pub(super) decapsulate: DecapsulateState,
    pub(super) filter: FilterState,
    pub(super) route: RouteState,
    pub(super) encapsulate: EncapsulateState,
    pub(super) sequence: SequenceState,
    pub(super) dispatch: Dispatch,
    pub(super) scratch: Scratch,
    pub(super) extra: Extra,
    pub(super) captures: Option<Box<Captures>>,
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
        let Tables { bridges, tunnels, routers, longest_frame, .. } = tables.get();
        let scratch = Scratch {
            routed: Vec::with_capacity(routers.longest_expansion(*longest_frame)),
            flooded: Vec::with_capacity(bridges.longest_expansion()),
            fragments: Vec::with_capacity(tunnels.longest_expansion()),
            part: Batch::new(),
            chunk: Batch::new(),
            piece: Batch::new(),
            cut: Batch::new(),
            cut_encapsulated: Batch::new(),
            replies: Batch::new(),
            work: Batch::new(),
            unsequenced: Batch::new(),
        };
        let stages = Stages {
            bridge: BridgeState::new(bridges, bridging),
            decapsulate: DecapsulateState::new(worker, ReassemblyLimits::default()),
            filter: FilterState::new(worker, Arc::clone(&counters.filter)),
            route: RouteState::new(routers, Arc::clone(&counters.route)),
            encapsulate: EncapsulateState::new(worker),
            sequence: SequenceState::new(),
            dispatch: Dispatch::new(worker),
            scratch,
            extra: Extra::default(),
            captures: None,
        };
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
        let Tables { bridges, tunnels, routers, longest_frame, .. } = self.tables.get();
        self.stages.bridge.adopt(bridges);
        self.stages.route.adopt(routers);
        self.stages.scratch.routed.reserve(routers.longest_expansion(*longest_frame));
        self.stages.scratch.flooded.reserve(bridges.longest_expansion());
        self.stages.scratch.fragments.reserve(tunnels.longest_expansion());
    }

    /// Does the work that is due by time alone.
    pub fn tick(&mut self, now: Nanos, pool: &mut Pool) {
        let Self { counters, stages, .. } = self;
        let mut context = Context { now, pool, drops: &counters.drops, ledger: &counters.ledger };
        stages.decapsulate.expire(&mut context);
    }

    /// Time of the next work of [`Engine::tick`] or [`Engine::look_after`], if no batch comes before.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let deadlines = [self.stages.decapsulate.next_deadline(), self.stages.route.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Drops held packets, for a worker that ends.
    pub fn close(&mut self, now: Nanos, pool: &mut Pool) {
        let Self { counters, stages, .. } = self;
        let mut context = Context { now, pool, drops: &counters.drops, ledger: &counters.ledger };
        stages.decapsulate.clear(&mut context);
        stages.route.clear(&mut context);
    }
}
