//! Selection of timed turns, and counters of every turn.

use crate::counters::{Stage, WorkerCounters};
use crate::units::Nanos;

/// Mean distance of timed turns.
const TIMED_TURNS: u32 = 16;

/// Selects the turns that are timed.
#[derive(Debug, Default)]
pub(super) struct Timer {
    turns_left: u32,
    random: u32,
}

impl Timer {
    /// True if this turn is timed.
    ///
    /// The distance is random: queues have turns in a fixed order, so a constant distance would time only
    /// some of them.
    pub(super) fn fires(&mut self) -> bool {
        let Some(left) = self.turns_left.checked_sub(1) else {
            // Full-period linear congruential generator (constants of Numerical Recipes), of which the high
            // bits are used.
            self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            self.turns_left = TIMED_TURNS / 2 + (self.random >> 16) % TIMED_TURNS;
            return true;
        };
        self.turns_left = left;
        false
    }
}

/// Counts the packets of each stage and, in a timed turn, measures the stage's time.
pub(super) struct Meter<'a, C> {
    pub(super) counters: &'a WorkerCounters,
    /// End of the last stage, in a timed turn.
    pub(super) last: Option<Nanos>,
    pub(super) clock: &'a mut C,
}

impl<C: FnMut() -> Nanos> Meter<'_, C> {
    /// Records the end of a stage that processed `packets` packets.
    #[inline]
    pub(super) fn lap(&mut self, stage: Stage, packets: usize) {
        if packets == 0 {
            return;
        }
        let counters = self.counters.stage(stage);
        counters.packets.add(packets as u64);
        counters.batches.add(1);
        if let Some(last) = self.last {
            let now = (self.clock)();
            counters.timed_packets.add(packets as u64);
            counters.timed_nanos.add(now.since(last).0);
            self.last = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_queues_take_turns_each_is_timed_as_often() {
        for queues in 1..=64_usize {
            let mut timer = Timer::default();
            let mut timed = vec![0_u32; queues];
            for turn in 0..queues * 16_000 {
                timed[turn % queues] += u32::from(timer.fires());
            }
            assert!(timed.iter().all(|&count| (850..1150).contains(&count)), "{queues}: {timed:?}");
        }
    }
}
