//! Run queue: selects the queue of the next turn and its budget.
//!
//! A cycle gives each queue one turn, queues of the control class first. A queue that has used up its budget
//! goes to the tail; a drained queue is polled again in the next cycle. A cycle ends when all queues had a
//! turn, or at its time limit; the next cycle begins with the queues that had none.

mod queues;

use super::admission::AdmissionLimit;
use super::budget::{BudgetController, MOST};
use super::quantum::Quantum;
use super::sojourn::SojournLimit;
use crate::port::Turn;
use crate::units::Nanos;
use std::collections::VecDeque;

/// Default weight of a queue.
pub const WEIGHT: u16 = 100;
/// Maximum weight of a queue.
pub const MAX_WEIGHT: u16 = 10_000;

/// A turn given to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Index of the queue.
    pub index: usize,
    /// Budget in packets.
    pub packets: u32,
    /// True if the device's ring is flushed first because its packets have exceeded the sojourn limit.
    pub flush: bool,
    /// True if the budget is limited by the number of packets that consumers accept.
    pub bound: bool,
    /// True if the queue has been unbound for 20 ms and gets its reserve of frames back.
    pub freed: bool,
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Packets moved.
    pub packets: u32,
    /// CPU time of the worker; `None` if unknown, then the budget is not adapted.
    pub took: Option<Nanos>,
    /// State of the queue after the turn.
    pub turn: Turn,
    /// True if a consumer on this core exceeded its backlog limit.
    pub unwanted: bool,
    /// True if the turn moved packets for destinations other than consumers.
    pub elsewhere: bool,
    /// True if the device has further packets although the queue may be drained.
    pub has_backlog: bool,
}

/// Time after which a queue is polled although no consumer accepts packets.
const LOOK: Nanos = Nanos::from_millis(1);
/// Budget of that poll in packets; it looks for packets with destinations other than consumers.
const FEW: u32 = 8;
/// Time after which an unbound queue gets its reserve of frames back: an overloaded queue is bound again
/// sooner.
const FREE: Nanos = Nanos::from_millis(20);
/// Initial budget, while the cost of a packet is unknown.
const FIRST: u32 = 1;

#[derive(Clone, Copy, Debug)]
struct Entry {
    weight: u64,
    control: bool,
    budget: BudgetController,
    /// Quantum of the queue.
    part: Quantum,
    /// True if the queue is in the run queue.
    waits: bool,
    closed: bool,
    /// Time at which a bound queue is polled although no consumer accepts packets; `None` if the queue is not
    /// bound.
    bound: Option<Nanos>,
    /// Time at which the queue ceased to be bound; `None` if it was not bound.
    freed: Option<Nanos>,
    /// Sojourn limit of the packets in the device.
    sojourn_limit: SojournLimit,
    /// Limit of the packets that may wait in the device.
    admission: AdmissionLimit,
}

/// Options of the run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// False: a queue is drained before the next queue runs, and no packet is left in a device.
    pub balance: bool,
    /// False: a queue's turns are not limited by consumers' backlogs.
    pub back_pressure: bool,
    /// Budget of a queue of default weight, scaled by weight for others; `None` for the budget controller.
    pub budget: Option<u32>,
    /// Intended length of a cycle.
    pub cycle: Nanos,
}

impl Default for Options {
    fn default() -> Self {
        Self { balance: true, back_pressure: true, budget: None, cycle: Nanos(200_000) }
    }
}

/// The queues of one worker in the order of their turns.
#[derive(Debug)]
pub struct RunQueue {
    options: Options,
    entries: Vec<Entry>,
    control: VecDeque<usize>,
    bulk: VecDeque<usize>,
    /// Sum of all weights.
    weights: u64,
    /// Time at which quanta were last computed.
    looked: Nanos,
    /// Maximum length of a cycle.
    longest: Nanos,
    /// Start of the cycle, and the turns left in each class: a queue that is enqueued again waits for the
    /// next cycle.
    began: Nanos,
    left_control: usize,
    left_bulk: usize,
    /// True if a queue of the bulk class had a turn in this cycle.
    had_bulk: bool,
    /// Number of bound queues that still have a turn: they share the packets that consumers accept.
    bound: u32,
}

impl RunQueue {
    /// Budget of a queue's next turn.
    pub fn budget(&self, index: usize) -> u32 {
        if !self.options.balance {
            return u32::MAX;
        }
        self.fixed_budget(index).unwrap_or_else(|| self.entries[index].budget.packets())
    }

    /// Fixed budget of a queue; `None` if the controller sets it.
    pub fn fixed_budget(&self, index: usize) -> Option<u32> {
        let packets = u64::from(self.options.budget?) * self.entries[index].weight / u64::from(WEIGHT);
        Some(u32::try_from(packets).unwrap_or(MOST).clamp(1, MOST))
    }

    /// Number of packets of a queue that fit into `time`, by the cost of its turns.
    pub fn packets_in(&self, index: usize, time: Nanos) -> u32 {
        self.entries[index].budget.packets_in(time, self.time(index))
    }

    /// Expected time of `packets` packets of a queue, by the cost of its turns.
    pub fn expected(&self, index: usize, packets: u32) -> Nanos {
        let entry = &self.entries[index];
        let by_law =
            entry.part.time().0.saturating_mul(u64::from(packets)) / u64::from(entry.budget.packets());
        Nanos(by_law).max(entry.part.cost(packets))
    }

    /// Maximum number of packets that may wait in the queue's device; `None` for no limit.
    pub fn waiting_limit(&self, index: usize) -> Option<u32> {
        self.entries[index].admission.packets()
    }

    /// Intended duration of a queue's turn.
    fn time(&self, index: usize) -> Nanos {
        self.entries[index].part.time()
    }

    /// Begins a cycle. `wanted`: number of packets that consumers on this core accept; `None` without
    /// consumers.
    pub fn begin(&mut self, now: Nanos, wanted: Option<u32>) {
        if now.since(self.looked) >= self.options.cycle {
            self.look(now);
        }
        let Self { entries, control, bulk, .. } = self;
        for (index, entry) in entries.iter_mut().enumerate() {
            let rests = entry.bound.is_some_and(|look| now < look && wanted == Some(0));
            if entry.waits || entry.closed || rests {
                continue;
            }
            entry.waits = true;
            if entry.control { control.push_back(index) } else { bulk.push_back(index) }
        }
        self.began = now;
        (self.left_control, self.left_bulk, self.had_bulk) = (self.control.len(), self.bulk.len(), false);
        let bound = self.entries.iter().filter(|entry| entry.waits && entry.bound.is_some()).count();
        self.bound = u32::try_from(bound).unwrap_or(u32::MAX);
    }

    /// Returns the next turn of this cycle; `None` at its end.
    pub fn next(&mut self, now: Nanos, wanted: Option<u32>) -> Option<Grant> {
        let is_over = self.options.balance && now.since(self.began) >= self.longest;
        // Control queues always have their turn, bounded by their own budget; so has one bulk queue, however
        // long that took.
        let index = if self.left_control > 0 {
            self.left_control -= 1;
            self.control.pop_front()?
        } else if self.left_bulk > 0 && !(is_over && self.had_bulk) {
            self.left_bulk -= 1;
            self.had_bulk = true;
            self.bulk.pop_front()?
        } else {
            return None;
        };
        let budget = self.budget(index);
        let entry = &mut self.entries[index];
        entry.waits = false;
        let packets = match (entry.bound, wanted) {
            (Some(_), Some(0)) => budget.min(FEW),
            // The next queue may use packets that this one leaves: no queue gets less than its part.
            (Some(_), Some(wanted)) => budget.min(wanted.div_ceil(self.bound.max(1))),
            _ => budget,
        };
        self.bound -= u32::from(entry.bound.is_some()).min(self.bound);
        // Packets that arrive after the flush are served at once.
        let flush = entry.bound.is_some()
            && wanted.is_some_and(|wanted| wanted > 0)
            && entry.sojourn_limit.is_due(now);
        let freed = entry.freed.take_if(|since| now.since(*since) >= FREE).is_some();
        Some(Grant { index, packets, flush, bound: entry.bound.is_some(), freed })
    }

    /// True if the cycle ended before all queues had a turn.
    pub fn is_cut(&self) -> bool {
        self.left_control + self.left_bulk > 0
    }

    /// Records the end of a turn at `now`. Returns true if the queue's ring flushes end.
    pub fn ended(&mut self, grant: Grant, outcome: Outcome, now: Nanos) -> bool {
        let Outcome { packets, took, turn, unwanted, elsewhere, has_backlog } = outcome;
        let (time, expected) = (self.time(grant.index), self.expected(grant.index, packets));
        let entry = &mut self.entries[grant.index];
        if let Some(took) = took {
            entry.budget.learn(packets.min(MOST), took, time);
        }
        let took = took.unwrap_or(expected);
        if self.options.balance && self.options.back_pressure {
            // A drained queue is not bound when a consumer is overloaded: other queues brought its backlog.
            let has_more = has_backlog || turn == Turn::OutOfBudget;
            let used_up = entry.bound.is_some() && (has_backlog || packets == grant.packets);
            let goes_on = used_up || (unwanted && has_more);
            let was_bound = entry.bound.is_some();
            entry.bound = (goes_on && !elsewhere).then(|| now + LOOK);
            entry.freed = if was_bound { Some(now) } else { entry.freed };
            entry.freed = entry.freed.filter(|_| entry.bound.is_none());
            entry.admission.turn(now, packets, turn == Turn::Drained, has_backlog);
        }
        // A bound queue is limited by consumers, not by its quantum.
        entry.part.used(packets, took, turn == Turn::OutOfBudget && entry.bound.is_none());
        let flushed = entry.sojourn_limit.flushes();
        if entry.bound.is_some() {
            entry.sojourn_limit.turn(now, turn == Turn::Drained && !has_backlog);
        } else {
            entry.sojourn_limit = SojournLimit::default();
        }
        let stops_flushing = flushed && !entry.sojourn_limit.flushes();
        match turn {
            Turn::Closed => entry.closed = true,
            Turn::OutOfBudget if entry.bound.is_none() => {
                entry.waits = true;
                if entry.control {
                    self.control.push_back(grant.index)
                } else {
                    self.bulk.push_back(grant.index)
                }
            }
            Turn::OutOfBudget | Turn::Drained => {}
        }
        stops_flushing
    }
}
