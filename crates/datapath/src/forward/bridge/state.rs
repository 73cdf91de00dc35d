//! Counters and state of the bridge stage.

use super::header::Header;
use crate::counters::{Counter, WorkerCounters, totals};
use crate::fast_path::SeenPairs;
use crate::forward::fdb::{BucketIndex, FdbKey, View};
use crate::forward::flood::FloodGates;
use crate::forward::hairpin::HairpinGate;
use crate::forward::table::Bridges;
use crate::forward::vlan::Tag;
use crate::stage::StageState;
use crate::wire::MacAddress;
use polder_buffers::{BATCH, PortId};
use std::sync::Arc;

/// Counters of one worker's bridge stage. Copies count in [`Ledger`](crate::drops::Ledger).
#[derive(Debug, Default)]
pub struct BridgeCounters {
    /// Addresses learned.
    pub learned: Counter,
    /// Addresses that moved from one port to another.
    pub moved: Counter,
    /// Frames whose source is bound to another port by configuration; consecutive frames with the same source
    /// count once.
    pub pinned: Counter,
    /// Frames whose source was not learned because their port was at its limit; counted like `pinned`.
    pub limited: Counter,
    /// Frames whose source found no free slot in the database; counted like `pinned`.
    pub learn_failures: Counter,
    /// Frames to groups or unknown stations.
    pub flooded: Counter,
    /// Frames whose source is another member's own address; counted like `pinned`.
    pub own_addresses: InvalidSources,
    /// Frames that returned on a hairpin member; counted like `pinned`.
    pub looped: InvalidSources,
}

/// Count of frames with an invalid source, and the last such frame.
#[derive(Debug, Default)]
pub struct InvalidSources {
    /// Number of frames.
    pub count: Counter,
    /// Source address; in the upper 16 bits the frame's ingress.
    last: Counter,
}

impl InvalidSources {
    /// Counts one frame. Called only by the owning worker.
    pub(super) fn note(&self, port: PortId, source: FdbKey) {
        self.last.set(source.packed() | u64::from(port.0) << 48);
        self.count.add(1);
    }

    /// Ingress and source of the last frame; `None` if there was none.
    pub fn last(&self) -> Option<(PortId, MacAddress)> {
        let [a, b, c, d, e, f, low, high] = self.last.get().to_le_bytes();
        let source = MacAddress([a, b, c, d, e, f]);
        source.is_station().then_some((PortId(u16::from_le_bytes([low, high])), source))
    }
}

totals! {
    BridgeCounters { learned, moved, pinned, limited, learn_failures, flooded } [own_addresses, looped];
    InvalidSources { count } [];
}

/// State of one worker between batches.
#[derive(Debug)]
pub struct BridgeState {
    /// Flood limits by port; members of a split-horizon group share the entry of the group's port.
    pub(super) gates: Vec<FloodGates>,
    pub(super) frames: Box<[Frame; BATCH]>,
    /// Hairpin limits by port; empty while no member reflects frames.
    pub(super) hairpins: Vec<HairpinGate>,
    /// Station pairs seen recently, for publishing.
    pub(super) seen: SeenPairs,
    pub(super) counters: Arc<BridgeCounters>,
}

/// Fields of a frame that are kept from loop to loop.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frame {
    /// Source address; like `destination`, [`FdbKey::NONE`] if the frame was dropped.
    pub(super) source: FdbKey,
    pub(super) destination: FdbKey,
    pub(super) source_place: BucketIndex,
    pub(super) destination_place: BucketIndex,
    pub(super) tag: Tag,
}

impl Frame {
    #[inline(always)]
    pub(super) fn new(header: Header, vlan: u16, view: &View<'_>) -> Self {
        let source = FdbKey::from_wire(header.source(), vlan);
        let destination = FdbKey::from_wire(header.destination(), vlan);
        let (source_place, destination_place) = (view.locate(source), view.locate(destination));
        Self { source, destination, source_place, destination_place, tag: header.tag() }
    }
}

impl BridgeState {
    /// State for `bridges`.
    pub fn new(bridges: &Bridges, counters: Arc<BridgeCounters>) -> Self {
        let frames = Box::new([Frame::default(); BATCH]);
        let (gates, hairpins, seen) = (Vec::new(), Vec::new(), SeenPairs::new());
        let mut state = Self { gates, frames, hairpins, seen, counters };
        state.adopt(bridges);
        state
    }

    /// Switches to other counters.
    pub(crate) fn count_in(&mut self, counters: Arc<BridgeCounters>) {
        self.counters = counters;
    }

    /// Counters of the stage.
    pub fn counters(&self) -> &Arc<BridgeCounters> {
        &self.counters
    }
}

impl StageState for BridgeState {
    type Table = Bridges;

    fn begin(_: usize, bridges: &Bridges, _: &WorkerCounters) -> Self {
        Self::new(bridges, Arc::default())
    }

    /// Makes room for the ports of a new table; used-up limits stay so.
    fn adopt(&mut self, bridges: &Bridges) {
        let ports = bridges.members().iter().map(|member| usize::from(member.split_horizon.0) + 1).max();
        self.gates.resize(self.gates.len().max(ports.unwrap_or(0)), FloodGates::new());
        let reflecting = bridges.members().iter().filter(|member| member.hairpin.is_some());
        let ports = reflecting.map(|member| usize::from(member.port.0) + 1).max();
        self.hairpins.resize(self.hairpins.len().max(ports.unwrap_or(0)), HairpinGate::new());
    }
}
