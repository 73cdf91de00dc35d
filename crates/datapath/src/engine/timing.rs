//! Selection of timed turns, and the counters of every turn.

use crate::counters::{Stage, WorkerCounters};
use crate::units::Nanos;

/// Mean period of timed turns, which are timed stage by stage.
const TIMED_TURNS: u32 = 16;

/// Says which turns are timed.
#[derive(Debug, Default)]
pub(super) struct Timer {
    turns_left: u32,
    random: u32,
}

impl Timer {
    /// True if this turn is timed.
    ///
    /// Queues take turns in a fixed order, so a fixed distance would time some of them alone.
    pub(super) fn fires(&mut self) -> bool {
        let Some(left) = self.turns_left.checked_sub(1) else {
            // The constants of a full-period generator (Numerical Recipes); its high bits are used.
            self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            self.turns_left = TIMED_TURNS / 2 + (self.random >> 16) % TIMED_TURNS;
            return true;
        };
        self.turns_left = left;
        false
    }
}

/// Counts the packets that enter the stages and, in a timed turn, measures the stages' time.
pub(super) struct Meter<'a, C> {
    pub(super) counters: &'a WorkerCounters,
    /// The end of the last stage, in a timed turn.
    pub(super) last: Option<Nanos>,
    pub(super) clock: &'a mut C,
}

impl<C: FnMut() -> Nanos> Meter<'_, C> {
    /// A stage has ended that `packets` packets had entered.
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
