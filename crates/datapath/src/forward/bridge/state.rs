//! Counters of the bridge stage, and what a worker keeps for it.

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

/// Counters of one worker's bridge stage. Copies are in [`Ledger`](crate::drops::Ledger).
#[derive(Debug, Default)]
pub struct BridgeCounters {
    /// Addresses learned.
    pub learned: Counter,
    /// Addresses that moved from one port to another.
    pub moved: Counter,
    /// Frames whose source is bound to another port by configuration; those that follow each other
    /// with one source count once.
    pub pinned: Counter,
    /// Frames whose source was not learned because their port was at its limit; counted like `pinned`.
    pub limited: Counter,
    /// Frames whose source found no place in the database; counted like `pinned`.
    pub learn_failures: Counter,
    /// Frames for a group or an unknown station.
    pub flooded: Counter,
    /// Frames whose source is the address of another member; counted like `pinned`.
    pub own_addresses: Offences,
    /// Frames that came back by a hairpin member; counted like `pinned`.
    pub looped: Offences,
}

/// Frames with a source that cannot be right, and the last of them.
#[derive(Debug, Default)]
pub struct Offences {
    /// Their number.
    pub count: Counter,
    /// Source, and above it the member that the frame came in by.
    last: Counter,
}

impl Offences {
    /// Counts one frame. To be called by the owning worker alone.
    pub(super) fn note(&self, port: PortId, source: FdbKey) {
        self.last.set(source.packed() | u64::from(port.0) << 48);
        self.count.add(1);
    }

    /// Member and source of the last frame; `None` while there was none.
    pub fn last(&self) -> Option<(PortId, MacAddress)> {
        let [a, b, c, d, e, f, low, high] = self.last.get().to_le_bytes();
        let source = MacAddress([a, b, c, d, e, f]);
        source.is_station().then_some((PortId(u16::from_le_bytes([low, high])), source))
    }
}

totals! {
    BridgeCounters { learned, moved, pinned, limited, learn_failures, flooded } [own_addresses, looped];
    Offences { count } [];
}

/// State that one worker keeps between batches.
#[derive(Debug)]
pub struct BridgeState {
    /// By port; members of a split-horizon group share one.
    pub(super) gates: Vec<FloodGates>,
    pub(super) frames: Box<[Frame; BATCH]>,
    /// By port; empty while no member reflects frames.
    pub(super) hairpins: Vec<HairpinGate>,
    /// Pairs of stations that may be published.
    pub(super) seen: SeenPairs,
    pub(super) counters: Arc<BridgeCounters>,
}

/// Data of a frame that are kept from loop to loop.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frame {
    /// `None` when its journey has ended, as is the destination.
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
    /// The state for `bridges`.
    pub fn new(bridges: &Bridges, counters: Arc<BridgeCounters>) -> Self {
        let frames = Box::new([Frame::default(); BATCH]);
        let (gates, hairpins, seen) = (Vec::new(), Vec::new(), SeenPairs::new());
        let mut state = Self { gates, frames, hairpins, seen, counters };
        state.adopt(bridges);
        state
    }

    /// Goes on with these counters.
    pub(crate) fn count_in(&mut self, counters: Arc<BridgeCounters>) {
        self.counters = counters;
    }

    /// The counters.
    pub fn counters(&self) -> &Arc<BridgeCounters> {
        &self.counters
    }
}

impl StageState for BridgeState {
    type Table = Bridges;

    fn begin(_: usize, bridges: &Bridges, _: &WorkerCounters) -> Self {
        Self::new(bridges, Arc::default())
    }

    /// Makes room for the ports of another table; limits that are used up stay so.
    fn adopt(&mut self, bridges: &Bridges) {
        let ports = bridges.members().iter().map(|member| usize::from(member.split_horizon.0) + 1).max();
        self.gates.resize(self.gates.len().max(ports.unwrap_or(0)), FloodGates::new());
        let reflecting = bridges.members().iter().filter(|member| member.hairpin.is_some());
        let ports = reflecting.map(|member| usize::from(member.port.0) + 1).max();
        self.hairpins.resize(self.hairpins.len().max(ports.unwrap_or(0)), HairpinGate::new());
    }
}
