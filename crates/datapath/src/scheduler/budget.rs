//! Budget of a turn, from the cost of turns.

use crate::units::Nanos;

/// Most packets of one turn.
pub const MOST: u32 = 4096;
/// Fractional bits of a budget.
const BITS: u32 = 8;
/// A quarter of the way to where the last turn points is gone at once.
const GAIN: u64 = 4;

/// A budget that approaches as many packets as a turn has time for.
///
/// A turn of *b* packets costs *a* + *m*·*b*. What the controller aims at, *b*·T/(*a* + *m*·*b*), grows with *b*
/// and ever more slowly, so its fixed point (T − *a*)/*m* is approached from either side without being
/// overshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetController {
    /// In 256ths of a packet.
    budget: u64,
}

impl BudgetController {
    /// Controller that begins with `packets` packets.
    pub fn new(packets: u32) -> Self {
        Self { budget: u64::from(packets.clamp(1, MOST)) << BITS }
    }

    /// Packets of the next turn, at least one.
    pub fn packets(self) -> u32 {
        u32::try_from(self.budget >> BITS).unwrap_or(MOST).max(1)
    }

    /// Packets of a time, if the budget is of another.
    pub fn worth(self, time: Nanos, of: Nanos) -> u32 {
        u32::try_from((self.budget.saturating_mul(time.0) / of.0.max(1)) >> BITS).unwrap_or(u32::MAX)
    }

    /// Learns from a turn that moved `packets` in `took`, and was to take `time`.
    ///
    /// One that ended early and in time says nothing: its fixed cost weighs too much.
    pub fn learn(&mut self, packets: u32, took: Nanos, time: Nanos) {
        if packets == 0 || (packets < self.packets() && took <= time) {
            return;
        }
        let aim = (u128::from(packets) << BITS) * u128::from(time.0) / u128::from(took.0.max(1));
        let most = u64::from(MOST) << BITS;
        let aim = u64::try_from(aim).unwrap_or(most).clamp(1 << BITS, most);
        // Rounded away from the budget, so that it arrives.
        self.budget = if aim >= self.budget {
            self.budget + (aim - self.budget).div_ceil(GAIN)
        } else {
            self.budget - (self.budget - aim).div_ceil(GAIN)
        };
    }
}
