//! Filters: rules that accept, drop or reject packets by header fields.
//!
//! In: packets that a port received, before the bridge learns from them; packets that the bridge forwarded to
//! a port, before encapsulation. Out: accepted packets. Exits: `SourceGuard`, `Filtered`, `FilterRejected`,
//! `FilterUnreadable`, `KernelHook`. Source: E5.
//!
//! The first matching rule decides; a packet that matches no rule is accepted. Packets of a stopped port are
//! dropped before all rules, and so are packets that a port's [`SourceGuard`] refuses. Without rules, stopped
//! ports and guards the stage is skipped, at one test per batch. Rules are stateless. Connection tracking
//! needs packets in order, so its place is after reordering, in [`sequence`](crate::sequence).
//!
//! Cost: about 10 ns per packet for parsing headers, unless another stage has parsed them, and one hash for
//! each table that may match. `docs/adr/0010-filter.md` describes the data structure, its memory and its
//! bounds.

mod classifier;
mod counts;
mod key;
mod reject;
mod rule;
mod source_guard;

pub use classifier::{MOST_BOXES, Size};
pub use counts::RuleCounts;
pub use rule::{Action, Direction, FlagTest, Prefix, Rule};
pub use source_guard::SourceGuard;

use crate::counters::{FilterCounters, WorkerCounters};
use crate::drops::{Context, DropReason, is_dropped};
use crate::reply::TokenBucket;
use crate::stage::{Inbound, StageState};
use classifier::Classifier;
use key::Key;
use polder_buffers::{BATCH, Batch, Packet, PortId};
use std::sync::Arc;

/// All rules of a configuration; immutable, replaced whole.
#[derive(Debug, Default)]
pub struct Filters {
    rules: Arc<[Compiled]>,
    inbound: Arc<Classifier>,
    outbound: Arc<Classifier>,
    /// By port: VLAN of untagged frames.
    untagged: Vec<u16>,
    counts: RuleCounts,
    /// Stopped ports and tunnels.
    stopped: Arc<[PortId]>,
    /// Source guards by port; empty if there are none.
    guards: Arc<source_guard::Guards>,
}

/// Action and counter slot of a rule.
#[derive(Clone, Copy, Debug)]
struct Compiled {
    action: Action,
    slot: u32,
}

/// The rules need more boxes than [`MOST_BOXES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the filters have {boxes} combinations of list elements; at most {MOST_BOXES} are possible")]
pub struct TooManyBoxes {
    /// Number of boxes needed.
    pub boxes: usize,
}

impl Filters {
    /// Filters without rules.
    pub fn none() -> Self {
        Self::default()
    }

    /// Filters with `rules` in their order, each with its counter slot; `untagged` is, by port, the VLAN of
    /// untagged frames.
    ///
    /// # Errors
    /// [`TooManyBoxes`].
    pub fn new(rules: &[(Rule, u32)], untagged: Vec<u16>, counts: RuleCounts) -> Result<Self, TooManyBoxes> {
        let boxes = rules.iter().map(|(rule, _)| rule.boxes()).fold(0, usize::saturating_add);
        if boxes > MOST_BOXES {
            return Err(TooManyBoxes { boxes });
        }
        let of = |direction| {
            let numbered = (0_u32..).zip(rules).filter(|(_, (rule, _))| rule.direction == direction);
            Arc::new(Classifier::new(&numbered.map(|(number, (rule, _))| (number, rule)).collect::<Vec<_>>()))
        };
        Ok(Self {
            rules: rules.iter().map(|(rule, slot)| Compiled { action: rule.action, slot: *slot }).collect(),
            inbound: of(Direction::In),
            outbound: of(Direction::Out),
            untagged,
            counts,
            stopped: Arc::default(),
            guards: Arc::default(),
        })
    }

    /// The same filters with stopped ports and tunnels, which drop all packets in both directions.
    #[must_use]
    pub fn stopping(self, stopped: &[PortId]) -> Self {
        Self { stopped: stopped.into(), ..self }
    }

    /// The same filters with source guards by port.
    #[must_use]
    pub fn guarding(self, guards: Vec<Option<SourceGuard>>) -> Self {
        let has_any = guards.iter().any(Option::is_some);
        Self { guards: if has_any { guards.into() } else { Arc::default() }, ..self }
    }

    /// True if the stage has work in this direction: a rule, a stopped port, or a source guard.
    #[inline]
    pub fn looks(&self, direction: Direction) -> bool {
        self.has_rules(direction) || direction == Direction::In && !self.guards.is_empty()
    }

    #[inline]
    fn has_rules(&self, direction: Direction) -> bool {
        !self.classifier(direction).is_empty() || !self.stopped.is_empty()
    }

    #[inline]
    fn classifier(&self, direction: Direction) -> &Classifier {
        match direction {
            Direction::In => &self.inbound,
            Direction::Out => &self.outbound,
        }
    }

    /// A copy with separate counters; the slot of a rule is its number, from 0.
    pub(crate) fn image(&self) -> Self {
        let mut counts = RuleCounts::new(1);
        counts.grow_to(self.rules.len());
        let renumbered = |(slot, rule): (u32, &Compiled)| Compiled { slot, ..*rule };
        Self {
            rules: (0..).zip(&*self.rules).map(renumbered).collect(),
            inbound: Arc::clone(&self.inbound),
            outbound: Arc::clone(&self.outbound),
            untagged: self.untagged.clone(),
            counts,
            stopped: Arc::clone(&self.stopped),
            guards: Arc::clone(&self.guards),
        }
    }

    /// Number of matches of each rule of an image, by rule number from 0.
    pub(crate) fn matched(&self) -> Vec<u64> {
        (0..).zip(&*self.rules).map(|(number, _)| self.counts.get(number).0).collect()
    }

    /// Size of the compiled rules.
    pub fn size(&self) -> Size {
        let mut size = Size { rules: self.rules.len(), ..Size::default() };
        self.inbound.measure(&mut size);
        self.outbound.measure(&mut size);
        size
    }
}

/// State of one worker between batches.
#[derive(Debug)]
pub struct FilterState {
    worker: usize,
    keys: Box<[Key; BATCH]>,
    bucket: TokenBucket,
    /// Replies to rejected packets; the caller sends each by its egress, bypassing the bridge.
    pub replies: Batch,
    counters: Arc<FilterCounters>,
}

impl FilterState {
    /// State of worker `worker`, which counts replies in `counters`.
    pub fn new(worker: usize, counters: Arc<FilterCounters>) -> Self {
        Self {
            worker,
            keys: Box::new([Key::default(); BATCH]),
            bucket: TokenBucket::default(),
            replies: Batch::new(),
            counters,
        }
    }

    /// The counters.
    pub fn counters(&self) -> &Arc<FilterCounters> {
        &self.counters
    }
}

impl StageState for FilterState {
    type Table = Filters;

    fn begin(worker: usize, _: &Filters, counters: &WorkerCounters) -> Self {
        Self::new(worker, Arc::clone(&counters.filter))
    }
}

impl Inbound for FilterState {
    #[inline]
    fn is_met(filters: &Filters, _: PortId) -> bool {
        filters.looks(Direction::In)
    }

    #[inline(never)]
    fn receive(&mut self, batch: &mut Batch, filters: &Filters, context: &mut Context<'_>) {
        filter(batch, Direction::In, filters, self, context);
    }
}

/// Verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterVerdict {
    GoesOn,
    Ends(DropReason),
}

/// Drops packets that guards or rules refuse. Must not be called if [`Filters::looks`] returns false.
pub fn filter(
    batch: &mut Batch,
    direction: Direction,
    filters: &Filters,
    state: &mut FilterState,
    context: &mut Context<'_>,
) {
    if direction == Direction::In && !filters.guards.is_empty() {
        source_guard::guard(batch, &filters.guards, context);
    }
    if filters.has_rules(direction) {
        apply_rules(batch, direction, filters, state, context);
    }
}

fn apply_rules(
    batch: &mut Batch,
    direction: Direction,
    filters: &Filters,
    state: &mut FilterState,
    context: &mut Context<'_>,
) {
    // Two loops: headers of the next packets are prefetched while one packet is parsed.
    let mut unreadable = 0_u64;
    for (position, packet) in batch.iter_mut().enumerate() {
        if is_dropped(packet) {
            continue;
        }
        let port = match direction {
            Direction::In => packet.ingress,
            Direction::Out => packet.egress,
        };
        if !filters.stopped.is_empty() && filters.stopped.contains(&port) {
            context.discard(packet, DropReason::KernelHook);
            continue;
        }
        let untagged = filters.untagged.get(usize::from(port.0)).copied().unwrap_or(0);
        match Key::read(packet, port, untagged) {
            Ok(key) => state.keys[position % BATCH] = key,
            Err(_) => unreadable |= 1 << position,
        }
    }
    for position in 0..batch.len() {
        let packet = &mut batch[position];
        if is_dropped(packet) {
            continue;
        }
        let verdict = if unreadable >> position & 1 == 1 {
            FilterVerdict::Ends(DropReason::FilterUnreadable)
        } else {
            filters.decide(direction, &state.keys[position % BATCH], packet, state.worker)
        };
        match verdict {
            FilterVerdict::GoesOn => {}
            FilterVerdict::Ends(reason) => end(packet, reason, state, context),
        }
    }
}

impl Filters {
    #[inline]
    fn decide(&self, direction: Direction, key: &Key, packet: &Packet, worker: usize) -> FilterVerdict {
        let Some(number) = self.classifier(direction).find(key) else { return FilterVerdict::GoesOn };
        let Some(rule) = self.rules.get(number as usize) else { return FilterVerdict::GoesOn };
        self.counts.count(worker, rule.slot, packet);
        match rule.action {
            Action::Accept => FilterVerdict::GoesOn,
            Action::Drop => FilterVerdict::Ends(DropReason::Filtered),
            Action::Reject => FilterVerdict::Ends(DropReason::FilterRejected),
        }
    }
}

#[cold]
fn end(packet: &mut Packet, reason: DropReason, state: &mut FilterState, context: &mut Context<'_>) {
    if reason == DropReason::FilterRejected {
        tell(packet, state, context);
    }
    context.discard(packet, reason);
}

/// Sends a reply for a rejected packet if the protocol and the rate limit allow.
fn tell(packet: &Packet, state: &mut FilterState, context: &mut Context<'_>) {
    let silenced = state.replies.is_full() || !state.bucket.take(context.now);
    let reply = if silenced { None } else { reject::answer(packet, context.pool) };
    let Some(mut reply) = reply else {
        state.counters.silenced.add(1);
        return;
    };
    (reply.ingress, reply.egress) = (packet.ingress, packet.ingress);
    reply.received_at = context.now.0;
    match state.replies.push(reply) {
        Ok(()) => {
            state.counters.answered.add(1);
            context.ledger.generated.add(1);
        }
        Err(reply) => context.pool.release_packet(reply),
    }
}
