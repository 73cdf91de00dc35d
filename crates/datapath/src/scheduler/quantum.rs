//! A queue's part of a cycle: by weight among those that have more to do, of what the others leave.
//!
//! A turn costs something whatever it moves: what it brings is sent, and the receiving thread is woken. Where a
//! packet takes a large part of a queue's time, so few are moved in a turn that this is most of what could be
//! saved. Such a queue gets what idle ones leave of the cycle, until its turns move enough.

use crate::units::Nanos;

/// Packets a turn that are enough: what one call sends of them costs each next to nothing.
const ENOUGH: u32 = 32;
/// The longest cycle while one queue alone has more to do than there is time for.
const LONG: Nanos = Nanos(500_000);
/// The longest cycle of many such queues: as long as the kernel polls in one softirq (`netdev_budget_usecs`).
const LONGEST: Nanos = Nanos(2_000_000);
/// Time by which each of them may make it longer.
const LONGER: u64 = 16_000;
/// Divisor of the moving average's gain.
const GAIN: u64 = 4;

/// A queue's part of a cycle, and its use of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quantum {
    /// Time for which a turn is to take.
    time: Nanos,
    /// CPU time that it uses in a cycle.
    uses: Nanos,
    /// Time of one packet.
    each: Nanos,
    /// Since that was looked at: time, and packets.
    took: Nanos,
    packets: u32,
    /// True if there was more to do than there was time for, since then, and before.
    more: bool,
    hungry: bool,
}

/// Totals of all queues.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QuantumTotals {
    pub(super) cycle: Nanos,
    /// Weights of all queues, and of those that have more to do than there is time for.
    pub(super) weights: u64,
    pub(super) hungry: u64,
    /// Number of the latter queues.
    pub(super) count: u32,
    /// Time in which each of these could move enough packets in a turn.
    pub(super) enough: Nanos,
    /// CPU time that all other queues use in a cycle.
    pub(super) uses: Nanos,
}

impl QuantumTotals {
    /// Time for which a cycle may last: longer while one alone has use for it, or while so many have that none could move
    /// enough packets in a turn.
    pub(super) fn longest(&self) -> Nanos {
        let most = Nanos(u64::from(self.count) * LONGER).min(LONGEST);
        if self.count > 1 { self.cycle.max(self.enough.min(most)) } else { self.cycle.max(LONG) }
    }
}

impl Quantum {
    /// Quantum of a queue of `weight` in `all`, of which nothing is measured yet.
    pub(super) fn of(cycle: Nanos, weight: u64, all: u64) -> Self {
        Self { time: share(cycle, weight, all), ..Self::default() }
    }

    /// Time for which a turn is to take.
    pub(super) fn time(&self) -> Nanos {
        self.time
    }

    /// Time of `packets` packets.
    pub(super) fn cost(&self, packets: u32) -> Nanos {
        Nanos(self.each.0.saturating_mul(u64::from(packets)))
    }

    /// Time in which a turn moves enough packets.
    fn enough(&self) -> Nanos {
        self.cost(ENOUGH)
    }

    /// Notes a turn that has moved `packets` packets, and true in `more` if there were more.
    pub(super) fn used(&mut self, packets: u32, took: Nanos, more: bool) {
        self.more |= more;
        self.took = self.took + took;
        self.packets = self.packets.saturating_add(packets);
    }

    /// So much time has passed; `waits`: since its last turn it has waited for one. Adds itself to the whole.
    pub(super) fn close(&mut self, weight: u64, passed: Nanos, waits: bool, whole: &mut QuantumTotals) {
        let uses = self.took.0.saturating_mul(whole.cycle.0) / passed.0.max(1);
        self.uses = towards(self.uses, Nanos(uses));
        if self.packets > 0 {
            let each = Nanos(self.took.0 / u64::from(self.packets));
            self.each = if self.each == Nanos(0) { each } else { towards(self.each, each) };
        }
        self.hungry = self.more || waits;
        (self.took, self.packets, self.more) = (Nanos(0), 0, false);
        if self.hungry {
            whole.hungry += weight;
            whole.count += 1;
            whole.enough = whole.enough + self.enough();
        } else {
            whole.uses = whole.uses + self.uses.min(whole.cycle);
        }
    }

    /// Takes its part of the remaining time, as far as it needs more than its part by weight.
    pub(super) fn take(&mut self, weight: u64, whole: QuantumTotals) {
        let (among, others) = if self.hungry {
            (whole.hungry, whole.uses)
        } else {
            (whole.hungry + weight, whole.uses.since(self.uses.min(whole.cycle)))
        };
        let fair = share(whole.cycle, weight, whole.weights);
        let cycle = if self.hungry || among == weight { whole.longest() } else { whole.cycle };
        let left = share(cycle.since(others), weight, among);
        // Where all have more to do, weights alone count.
        let is_longer = self.hungry && among > weight && cycle > whole.cycle;
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
