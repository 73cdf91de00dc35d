//! Adding, removing and weighting the queues of a run queue.

use super::{Entry, FIRST, Options, RunQueue};
use crate::scheduler::admission::AdmissionLimit;
use crate::scheduler::budget::BudgetController;
use crate::scheduler::quantum::{Quantum, QuantumTotals};
use crate::scheduler::sojourn::SojournLimit;
use crate::units::Nanos;
use std::collections::VecDeque;

impl RunQueue {
    /// A run queue without queues.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            entries: Vec::new(),
            control: VecDeque::new(),
            bulk: VecDeque::new(),
            weights: 0,
            looked: Nanos(0),
            longest: options.cycle,
            began: Nanos(0),
            left_control: 0,
            left_bulk: 0,
            had_bulk: false,
            bound: 0,
        }
    }

    /// Adds a queue; its index is the number of queues before.
    ///
    /// While all queues are backlogged, each gets CPU time in proportion to its weight, but at least one
    /// packet per cycle. The default weight is [`WEIGHT`](crate::scheduler::WEIGHT).
    pub fn add(&mut self, weight: u16, control: bool) {
        let weight = u64::from(weight.max(1));
        self.weights += weight;
        let budget = BudgetController::new(FIRST);
        self.entries.push(Entry {
            weight,
            control,
            budget,
            part: Quantum::default(),
            waits: false,
            closed: false,
            bound: None,
            freed: None,
            sojourn_limit: SojournLimit::default(),
            admission: AdmissionLimit::default(),
        });
        let room = self.entries.len();
        self.control.reserve(room);
        self.bulk.reserve(room);
        self.divide();
    }

    /// Sets the weight of a queue.
    pub fn set_weight(&mut self, index: usize, weight: u16) {
        self.entries[index].weight = u64::from(weight.max(1));
        self.weights = self.entries.iter().map(|entry| entry.weight).sum();
    }

    /// Divides the cycle by weight, as if all queues were backlogged.
    fn divide(&mut self) {
        let (cycle, all) = (self.options.cycle, self.weights);
        self.entries.iter_mut().for_each(|entry| entry.part = Quantum::of(cycle, entry.weight, all));
    }

    /// Measures the use of the last cycles and computes the quanta again.
    pub(super) fn look(&mut self, now: Nanos) {
        let passed = now.since(self.looked);
        self.looked = now;
        let mut whole =
            QuantumTotals { cycle: self.options.cycle, weights: self.weights, ..QuantumTotals::default() };
        for entry in &mut self.entries {
            entry.part.close(entry.weight, passed, entry.waits, &mut whole);
        }
        self.entries.iter_mut().for_each(|entry| entry.part.take(entry.weight, whole));
        self.longest = whole.longest();
    }

    /// True if the queue is limited by the packets that consumers accept.
    pub fn is_bound(&self, index: usize) -> bool {
        self.entries[index].bound.is_some()
    }

    /// Removes the queues for which `keep` returns false; later indices move down. `keep` is called for each
    /// index in order.
    pub fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        let mut index = 0;
        self.entries.retain_mut(|entry| {
            entry.waits = false;
            index += 1;
            keep(index - 1)
        });
        self.control.clear();
        self.bulk.clear();
        (self.left_control, self.left_bulk) = (0, 0);
        self.weights = self.entries.iter().map(|entry| entry.weight).sum();
        self.divide();
    }

    /// Excludes a queue from all further cycles.
    pub fn close(&mut self, index: usize) {
        self.entries[index].closed = true;
    }

    /// Largest budget of all open queues.
    pub fn largest_budget(&self) -> u32 {
        let open = (0..self.entries.len()).filter(|&index| !self.entries[index].closed);
        open.map(|index| self.budget(index)).max().unwrap_or(0)
    }
}
