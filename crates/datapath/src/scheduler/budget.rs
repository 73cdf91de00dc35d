//! Budget of a turn, derived from the cost of earlier turns.

use crate::units::Nanos;

/// Maximum number of packets per turn.
pub const MOST: u32 = 4096;
/// Fractional bits of a budget.
const BITS: u32 = 8;
/// Divisor of the controller's gain: each turn moves the budget by a quarter of the difference to its target.
const GAIN: u64 = 4;

/// Budget controller: approaches the number of packets that fit into a turn's time.
///
/// A turn of *b* packets costs *a* + *m*·*b*. The target *b*·T/(*a* + *m*·*b*) grows with *b* at a decreasing
/// rate, so its fixed point (T − *a*)/*m* is approached from either side without overshoot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetController {
    /// Budget in 256ths of a packet.
    budget: u64,
}

impl BudgetController {
    /// Controller whose first budget is `packets` packets.
    pub fn new(packets: u32) -> Self {
        Self { budget: u64::from(packets.clamp(1, MOST)) << BITS }
    }

    /// Number of packets of the next turn, at least 1.
    pub fn packets(self) -> u32 {
        u32::try_from(self.budget >> BITS).unwrap_or(MOST).max(1)
    }

    /// Number of packets that fit into `time`, if the budget is for the time `of`.
    pub fn packets_in(self, time: Nanos, of: Nanos) -> u32 {
        u32::try_from((self.budget.saturating_mul(time.0) / of.0.max(1)) >> BITS).unwrap_or(u32::MAX)
    }

    /// Adapts the budget to a turn that moved `packets` in `took`, where `time` was intended.
    ///
    /// A turn that ran out of packets in time is ignored: its fixed cost weighs too much.
    pub fn learn(&mut self, packets: u32, took: Nanos, time: Nanos) {
        if packets == 0 || (packets < self.packets() && took <= time) {
            return;
        }
        let aim = (u128::from(packets) << BITS) * u128::from(time.0) / u128::from(took.0.max(1));
        let most = u64::from(MOST) << BITS;
        let aim = u64::try_from(aim).unwrap_or(most).clamp(1 << BITS, most);
        // Rounded away from the budget, so that the budget reaches the target.
        self.budget = if aim >= self.budget {
            self.budget + (aim - self.budget).div_ceil(GAIN)
        } else {
            self.budget - (self.budget - aim).div_ceil(GAIN)
        };
    }
}
