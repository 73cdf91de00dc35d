//! State of the routing stage, one per worker.

use super::local::OutputContext;
use super::lookups::{Lookups, Work};
use super::waiting::{Waiting, Wanted};
use super::{FibReader, NextHopTable, Notices, RouterAccess, Routers};
use crate::counters::{RouteCounters, WorkerCounters};
use crate::drops::Context;
use crate::fast_path::SeenPairs;
use crate::stage::StageState;
use crate::units::Nanos;
use polder_buffers::snapshot::Reader;
use polder_buffers::{BATCH, Batch, Packet};
use std::sync::Arc;

/// State of one worker between batches.
#[derive(Debug)]
pub struct RouteState {
    pub(super) lanes: Vec<Lane>,
    pub(super) work: Box<Work>,
    pub(super) moves: Moves,
    pub(super) waiting: Waiting,
    /// Packets whose neighbour was resolved, to be routed again.
    pub(super) released: Vec<Packet>,
    pub(super) output: OutputContext,
    /// Address pairs that were seen recently, for publishing.
    pub(super) seen: SeenPairs,
}

/// One worker's readers of one router.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) v4: FibReader,
    pub(super) v6: FibReader,
    pub(super) next_hops: Reader<NextHopTable>,
    pub(super) notices: Arc<Notices>,
    /// Value of [`Notices::news`] at the last check of waiting packets.
    pub(super) news: u64,
}

impl Lane {
    pub(super) fn new(access: &RouterAccess) -> Self {
        let RouterAccess { v4, v6, next_hops, notices } = access;
        let news = notices.news();
        Self {
            v4: v4.reader(),
            v6: v6.reader(),
            next_hops: next_hops.reader(),
            notices: Arc::clone(notices),
            news,
        }
    }
}

impl RouteState {
    /// Counters of the stage.
    pub fn counters(&self) -> &Arc<RouteCounters> {
        &self.output.counters
    }

    /// Messages to neighbours and senders, ready to be sent.
    pub(crate) fn answers(&mut self) -> &mut Batch {
        &mut self.output.answers
    }

    /// True if waiting packets are due for maintenance.
    #[inline]
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        self.waiting.next_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Takes back the vector of released packets, for its capacity.
    pub(crate) fn give_back(&mut self, released: Vec<Packet>) {
        self.released = released;
    }

    /// Removes neighbours without waiting packets.
    pub(crate) fn tidy(&mut self) {
        self.waiting.tidy();
    }
}

impl StageState for RouteState {
    type Table = Routers;

    fn begin(_: usize, routers: &Routers, counters: &WorkerCounters) -> Self {
        let mut state = Self {
            lanes: Vec::new(),
            work: Box::new(Work { v4: Lookups::new(), v6: Lookups::new(), origins: Lookups::new() }),
            moves: Moves::new(),
            waiting: Waiting::new(),
            released: Vec::new(),
            output: OutputContext::new(Arc::clone(&counters.route)),
            seen: SeenPairs::new(),
        };
        state.adopt(routers);
        state
    }

    /// Creates readers for new routers; existing routers keep theirs.
    fn adopt(&mut self, routers: &Routers) {
        let mut old = core::mem::take(&mut self.lanes);
        for access in routers.routers() {
            let known = old.iter().position(|lane| access.v4.is_of(&lane.v4));
            self.lanes.push(known.map_or_else(|| Lane::new(access), |place| old.swap_remove(place)));
        }
    }

    /// Time of the next `Engine::look_after`, which maintains waiting packets, since `expire` cannot send.
    fn next_deadline(&self) -> Option<Nanos> {
        self.waiting.next_deadline()
    }

    fn clear(&mut self, context: &mut Context<'_>) {
        self.waiting.clear(context);
    }
}

/// Packets that leave the batch.
#[derive(Debug)]
pub(super) struct Moves {
    pub(super) any: bool,
    by_position: [Option<Move>; BATCH],
}

/// Reason for which a packet leaves the batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    /// It is fragmented to this MTU.
    Cut(u16),
    /// It waits for a neighbour.
    Wait(Wanted),
}

impl Moves {
    pub(super) const fn new() -> Self {
        Self { any: false, by_position: [None; BATCH] }
    }

    pub(super) fn put(&mut self, position: usize, moved: Move) {
        self.any = true;
        self.by_position[position % BATCH] = Some(moved);
    }
    /// Takes the move of one packet.
    pub(super) fn take(&mut self, position: usize) -> Option<Move> {
        self.by_position.get_mut(position).and_then(Option::take)
    }
}
