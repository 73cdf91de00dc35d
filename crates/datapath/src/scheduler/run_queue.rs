//! Choice of the queue for the next turn, and the turn's number of packets.
//!
//! A cycle gives each queue of the run queue one turn, queues of the control class first. A queue that has used up its
//! budget goes to the tail; a drained one is polled again in the next cycle. A cycle ends when all had
//! a turn, or with its bound in time; then the next one begins with those that had none.

mod queues;

use super::admission::AdmissionLimit;
use super::budget::{BudgetController, MOST};
use super::quantum::Quantum;
use super::sojourn::SojournLimit;
use crate::port::Turn;
use crate::units::Nanos;
use std::collections::VecDeque;

/// The weight of an ordinary queue.
pub const WEIGHT: u16 = 100;
/// The largest weight of all.
pub const MOST_WEIGHT: u16 = 10_000;

/// A turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Index of the queue.
    pub index: usize,
    /// Packets.
    pub packets: u32,
    /// True if the device's ring is flushed first: its packets have waited for too long.
    pub discard: bool,
    /// True if the queue is bound to the number of wanted packets.
    pub bound: bool,
    /// True if it was, and has not been for long enough to be given its reserve of frames again.
    pub freed: bool,
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Packets moved.
    pub packets: u32,
    /// CPU time of the worker; `None` when unknown, which teaches nothing.
    pub took: Option<Nanos>,
    /// State of the queue after the turn.
    pub turn: Turn,
    /// True if those destinations that wait for this worker's time had more than they wanted after it.
    pub unwanted: bool,
    /// True if it brought packets for other destinations.
    pub elsewhere: bool,
    /// True if the device has more, though the queue may be drained.
    pub has_backlog: bool,
}

/// Time after which a queue whose packets are not wanted is polled all the same.
const LOOK: Nanos = Nanos::from_millis(1);
/// Packets of such a poll, to see whether there are some for other destinations.
const FEW: u32 = 8;
/// Time after which a queue that is no longer bound has its reserve of frames again: one that is overloaded
/// is bound again before that.
const FREE: Nanos = Nanos::from_millis(20);
/// The first budget: nobody knows yet what a packet costs.
const FIRST: u32 = 1;

#[derive(Clone, Copy, Debug)]
struct Entry {
    weight: u64,
    control: bool,
    budget: BudgetController,
    /// Quantum: time for its turns.
    part: Quantum,
    /// True if it stands in the line.
    waits: bool,
    closed: bool,
    /// Time at which a queue that is bound to the number of wanted packets is polled regardless; `None` if unbound.
    bound: Option<Nanos>,
    /// Time at which it ceased to be bound, if it was.
    freed: Option<Nanos>,
    /// Bound on the sojourn time of its packets.
    sojourn_limit: SojournLimit,
    /// Limit of the packets that may wait in the device.
    admission: AdmissionLimit,
}

/// Options of the run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `false`: a queue is drained before anything else runs, and nothing is left in a device.
    pub balance: bool,
    /// `false`: a queue takes everything that it is given time for, whether its destinations want it or not.
    pub back_pressure: bool,
    /// Packets of every turn of a queue of ordinary weight, of others in proportion; by the controller if `None`.
    pub budget: Option<u32>,
    /// The time in which every queue is to have had its turn.
    pub cycle: Nanos,
}

impl Default for Options {
    fn default() -> Self {
        Self { balance: true, back_pressure: true, budget: None, cycle: Nanos(200_000) }
    }
}

/// The queues of one worker, in the order in which they have their turns.
#[derive(Debug)]
pub struct RunQueue {
    options: Options,
    entries: Vec<Entry>,
    control: VecDeque<usize>,
    bulk: VecDeque<usize>,
    /// Sum of all weights.
    weights: u64,
    /// Time of the last division of the cycles.
    looked: Nanos,
    /// Time for which a cycle may last.
    longest: Nanos,
    /// Time at which the cycle began, and how many turns it has left, of each class: a queue that comes back waits for the next cycle.
    began: Nanos,
    left_control: usize,
    left_bulk: usize,
    /// True if a queue that is not of the control class had one of them.
    had_bulk: bool,
    /// Number of those turns that are of bound queues: they share the number of wanted packets.
    bound: u32,
}

impl RunQueue {
    /// The budget of a queue's turn.
    pub fn budget(&self, index: usize) -> u32 {
        if !self.options.balance {
            return u32::MAX;
        }
        self.fixed_budget(index).unwrap_or_else(|| self.entries[index].budget.packets())
    }

    /// The budget of a queue's turns, if it is not by the controller.
    pub fn fixed_budget(&self, index: usize) -> Option<u32> {
        let packets = u64::from(self.options.budget?) * self.entries[index].weight / u64::from(WEIGHT);
        Some(u32::try_from(packets).unwrap_or(MOST).clamp(1, MOST))
    }

    /// Number of packets of a queue that are worth that time, by the cost of its turns.
    pub fn worth(&self, index: usize, time: Nanos) -> u32 {
        self.entries[index].budget.worth(time, self.time(index))
    }

    /// Expected time of `packets` packets of a queue, by the cost of its turns.
    pub fn expected(&self, index: usize, packets: u32) -> Nanos {
        let entry = &self.entries[index];
        let by_law =
            entry.part.time().0.saturating_mul(u64::from(packets)) / u64::from(entry.budget.packets());
        Nanos(by_law).max(entry.part.cost(packets))
    }

    /// Number of packets that may wait in the device of a queue; `None` for as many as it has room for.
    pub fn waiting_limit(&self, index: usize) -> Option<u32> {
        self.entries[index].admission.packets()
    }

    /// Time for which a turn of a queue is to take.
    fn time(&self, index: usize) -> Nanos {
        self.entries[index].part.time()
    }

    /// Begins a cycle. `wanted`: how many packets those destinations want that wait for this worker's time.
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

    /// The next turn of this cycle.
    pub fn next(&mut self, now: Nanos, wanted: Option<u32>) -> Option<Grant> {
        let is_over = self.options.balance && now.since(self.began) >= self.longest;
        // Control is served in any case, bounded by its own budget; and one of the others however long that took.
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
            // What one does not take the next may have: none gets less than its part.
            (Some(_), Some(wanted)) => budget.min(wanted.div_ceil(self.bound.max(1))),
            _ => budget,
        };
        self.bound -= u32::from(entry.bound.is_some()).min(self.bound);
        // What comes from now on is served at once.
        let discard = entry.bound.is_some()
            && wanted.is_some_and(|wanted| wanted > 0)
            && entry.sojourn_limit.is_due(now);
        let freed = entry.freed.take_if(|since| now.since(*since) >= FREE).is_some();
        Some(Grant { index, packets, discard, bound: entry.bound.is_some(), freed })
    }

    /// True if the cycle ended before all had their turns.
    pub fn is_cut(&self) -> bool {
        self.left_control + self.left_bulk > 0
    }

    /// Takes note of how the turn that was given last ended, at `now`. Answers whether a queue that was thrown
    /// away from is to take everything again.
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
        // What keeps a bound queue from more is not its time.
        entry.part.used(packets, took, turn == Turn::OutOfBudget && entry.bound.is_none());
        let discarded = entry.sojourn_limit.discards();
        if entry.bound.is_some() {
            entry.sojourn_limit.turn(now, turn == Turn::Drained && !has_backlog);
        } else {
            entry.sojourn_limit = SojournLimit::default();
        }
        let stops_flushing = discarded && !entry.sojourn_limit.discards();
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
