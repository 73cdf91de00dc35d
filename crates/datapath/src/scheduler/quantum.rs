//! Quantum: a queue's share of a cycle, by weight among backlogged queues, plus time that other queues leave
//! unused.
//!
//! A turn has a fixed cost: a send call and a wake-up of the receiving thread. If packets are costly, few fit
//! into a quantum and the fixed cost dominates. Such a queue gets time that idle queues leave unused, until
//! its turns move [`ENOUGH`] packets.

use crate::units::Nanos;

/// Packets per turn at which the fixed cost is negligible.
const ENOUGH: u32 = 32;
/// Maximum cycle while a single queue is backlogged.
const LONG: Nanos = Nanos(500_000);
/// Maximum cycle of many backlogged queues: as long as one softirq of the kernel (`netdev_budget_usecs`).
const LONGEST: Nanos = Nanos(2_000_000);
/// Time in nanoseconds by which each backlogged queue may extend the cycle.
const LONGER: u64 = 16_000;
/// Divisor of the moving average's gain.
const GAIN: u64 = 4;

/// A queue's quantum, and the time used of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quantum {
    /// Intended duration of a turn.
    time: Nanos,
    /// CPU time that the queue uses per cycle.
    uses: Nanos,
    /// CPU time per packet.
    each: Nanos,
    /// CPU time and packets since the last call of `close`.
    took: Nanos,
    packets: u32,
    /// True if the queue was backlogged since the last call of `close`; `backlogged`: backlogged in the interval
    /// before it.
    more: bool,
    backlogged: bool,
}

/// Totals of all queues.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QuantumTotals {
    pub(super) cycle: Nanos,
    /// Sum of the weights of all queues.
    pub(super) weights: u64,
    /// Sum of the weights of the backlogged queues.
    pub(super) backlogged: u64,
    /// Number of backlogged queues.
    pub(super) count: u32,
    /// Time in which all backlogged queues could move [`ENOUGH`] packets each.
    pub(super) enough: Nanos,
    /// CPU time per cycle of all queues that are not backlogged.
    pub(super) uses: Nanos,
}

impl QuantumTotals {
    /// Maximum length of a cycle: longer if only one queue is backlogged, or if so many are that no turn
    /// could move [`ENOUGH`] packets.
    pub(super) fn longest(&self) -> Nanos {
        let most = Nanos(u64::from(self.count) * LONGER).min(LONGEST);
        if self.count > 1 { self.cycle.max(self.enough.min(most)) } else { self.cycle.max(LONG) }
    }
}

impl Quantum {
    /// Quantum of a queue of `weight` out of `all`, without measurements.
    pub(super) fn of(cycle: Nanos, weight: u64, all: u64) -> Self {
        Self { time: share(cycle, weight, all), ..Self::default() }
    }

    /// Intended duration of a turn.
    pub(super) fn time(&self) -> Nanos {
        self.time
    }

    /// Expected time of `packets` packets.
    pub(super) fn cost(&self, packets: u32) -> Nanos {
        Nanos(self.each.0.saturating_mul(u64::from(packets)))
    }

    /// Time of [`ENOUGH`] packets.
    fn enough(&self) -> Nanos {
        self.cost(ENOUGH)
    }

    /// Records a turn that moved `packets` packets in `took`; `more`: the queue is backlogged.
    pub(super) fn used(&mut self, packets: u32, took: Nanos, more: bool) {
        self.more |= more;
        self.took = self.took + took;
        self.packets = self.packets.saturating_add(packets);
    }

    /// Ends a measuring interval of length `passed` and adds the queue to the totals `whole`; `waits`: the
    /// queue is still waiting for a turn.
    pub(super) fn close(&mut self, weight: u64, passed: Nanos, waits: bool, whole: &mut QuantumTotals) {
        let uses = self.took.0.saturating_mul(whole.cycle.0) / passed.0.max(1);
        self.uses = towards(self.uses, Nanos(uses));
        if self.packets > 0 {
            let each = Nanos(self.took.0 / u64::from(self.packets));
            self.each = if self.each == Nanos(0) { each } else { towards(self.each, each) };
        }
        self.backlogged = self.more || waits;
        (self.took, self.packets, self.more) = (Nanos(0), 0, false);
        if self.backlogged {
            whole.backlogged += weight;
            whole.count += 1;
            whole.enough = whole.enough + self.enough();
        } else {
            whole.uses = whole.uses + self.uses.min(whole.cycle);
        }
    }

    /// Sets the quantum: the share by weight, plus unused time if the queue needs more.
    pub(super) fn take(&mut self, weight: u64, whole: QuantumTotals) {
        let (among, others) = if self.backlogged {
            (whole.backlogged, whole.uses)
        } else {
            (whole.backlogged + weight, whole.uses.since(self.uses.min(whole.cycle)))
        };
        let fair = share(whole.cycle, weight, whole.weights);
        let cycle = if self.backlogged || among == weight { whole.longest() } else { whole.cycle };
        let left = share(cycle.since(others), weight, among);
        // If all queues are backlogged, only weights count.
        let is_longer = self.backlogged && among > weight && cycle > whole.cycle;
        let goal = if is_longer { left } else { left.min(self.enough()) }.max(fair);
        self.time = towards(self.time, goal);
    }
}

fn share(time: Nanos, weight: u64, all: u64) -> Nanos {
    Nanos(time.0 * weight / all.max(1))
}

fn towards(old: Nanos, new: Nanos) -> Nanos {
    Nanos(if new >= old {
        old.0 + (new.0 - old.0).div_ceil(GAIN)
    } else {
        old.0 - (old.0 - new.0).div_ceil(GAIN)
    })
}
