//! Counters of the bridge stage, and what a worker keeps for it.

use super::{BridgeState, Frame};
use crate::counters::{Counter, totals};
use crate::fast_path::SeenPairs;
use crate::forward::flood::FloodGates;
use crate::forward::table::Bridges;
use polder_buffers::BATCH;
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
}

totals! {
    BridgeCounters { learned, moved, pinned, limited, learn_failures, flooded } [];
}

impl BridgeState {
    /// The state for `bridges`.
    pub fn new(bridges: &Bridges, counters: Arc<BridgeCounters>) -> Self {
        let frames = Box::new([Frame::default(); BATCH]);
        let mut state = Self { gates: Vec::new(), frames, seen: SeenPairs::new(), counters };
        state.adopt(bridges);
        state
    }

    /// Makes room for the ports of another table; limits that are used up stay so.
    pub fn adopt(&mut self, bridges: &Bridges) {
        let ports = bridges.members().iter().map(|member| usize::from(member.split_horizon.0) + 1).max();
        self.gates.resize(self.gates.len().max(ports.unwrap_or(0)), FloodGates::new());
    }

    /// The counters.
    pub fn counters(&self) -> &Arc<BridgeCounters> {
        &self.counters
    }
}
