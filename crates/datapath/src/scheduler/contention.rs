//! CPU time of a worker in a turn, when other threads compete for its core.
//!
//! The wall clock says when a turn began and ended, and includes time of other threads on the core. The
//! thread's CPU clock excludes that time, but reading it is a system call, and most workers have a core of
//! their own. So it is read only while there is contention, which is detected by a turn that took far longer
//! than its packets usually do. The time of that one turn is unknown and is not used.

use crate::units::Nanos;

/// Time per turn that is tolerated as noise: an interrupt, a cold cache.
const SLACK: Nanos = Nanos(20_000);
/// Factor: a turn of more than twice its packets' usual time may have been preempted.
const FAR: u64 = 2;
/// Time for which turns are measured by the CPU clock after the last preempted turn.
const WATCH: Nanos = Nanos::from_millis(100);

/// Measured duration of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    /// Duration by the wall clock.
    pub wall: Nanos,
    /// Duration by the thread's CPU clock; `None` if the clock was not read at both ends.
    pub cpu: Option<Nanos>,
}

/// Detects that other threads compete for the worker's core.
#[derive(Clone, Copy, Debug, Default)]
pub struct Contention {
    until: Nanos,
    /// Time and value of the last reading of the thread's CPU clock.
    last: (Nanos, Nanos),
}

impl Contention {
    /// True if a turn that begins at `now` must be measured by the thread's CPU clock.
    #[inline]
    pub fn is_watched(&self, now: Nanos) -> bool {
        now < self.until
    }

    /// Stores the reading of the thread's CPU clock at `now`.
    #[inline]
    pub fn record(&mut self, now: Nanos, cpu: Nanos) {
        self.last = (now, cpu);
    }

    /// Returns the stored reading of the CPU clock if its time is `now`: consecutive turns share a reading.
    #[inline]
    pub fn reading_at(&self, now: Nanos) -> Option<Nanos> {
        (self.last.0 == now).then_some(self.last.1)
    }

    /// Returns the worker's CPU time in a turn that ended at `now`; `None` if it is unknown. `expected` is
    /// the usual time of the turn's packets.
    #[inline]
    pub fn own(&mut self, elapsed: Elapsed, expected: Nanos, now: Nanos) -> Option<Nanos> {
        let Elapsed { wall, cpu } = elapsed;
        let odd = match cpu {
            Some(cpu) => wall.since(cpu) > SLACK,
            None => wall.0 > SLACK.0 + FAR * expected.0,
        };
        if odd {
            self.until = now + WATCH;
        }
        match cpu {
            Some(cpu) => Some(cpu.min(wall)),
            None => (!odd).then_some(wall),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: Nanos = Nanos(50_000);

    fn by_clock(wall: u64) -> Elapsed {
        Elapsed { wall: Nanos(wall), cpu: None }
    }

    #[test]
    fn who_has_the_core_is_measured_by_the_clock() {
        let mut contention = Contention::default();
        for wall in [0, 50_000, 119_000] {
            assert_eq!(contention.own(by_clock(wall), EXPECTED, Nanos::SECOND), Some(Nanos(wall)));
            assert!(!contention.is_watched(Nanos::SECOND));
        }
    }

    #[test]
    fn a_turn_that_took_far_too_long_teaches_nothing_and_the_next_ones_are_watched() {
        let mut contention = Contention::default();
        let mut now = Nanos::SECOND;
        assert_eq!(contention.own(by_clock(4_000_000), EXPECTED, now), None);
        assert!(contention.is_watched(now));
        now = now + Nanos::from_millis(90);
        let preempted = Elapsed { wall: Nanos(3_000_000), cpu: Some(Nanos(51_000)) };
        assert_eq!(contention.own(preempted, EXPECTED, now), Some(Nanos(51_000)));
        now = now + Nanos::from_millis(90);
        assert!(contention.is_watched(now), "somebody wanted the core a moment ago");
        let dear = Elapsed { wall: Nanos(4_010_000), cpu: Some(Nanos(4_000_000)) };
        assert_eq!(contention.own(dear, EXPECTED, now), Some(Nanos(4_000_000)), "packets that are as dear");
        assert!(!contention.is_watched(now + Nanos::from_millis(20)), "nobody wants it any more");
    }

    #[test]
    fn a_turn_begins_with_the_reading_at_the_end_of_the_one_before() {
        let mut contention = Contention::default();
        contention.record(Nanos(70), Nanos(50));
        assert_eq!([70, 71].map(|now| contention.reading_at(Nanos(now))), [Some(Nanos(50)), None]);
    }

    #[test]
    fn a_turn_has_no_more_than_passed() {
        let mut contention = Contention::default();
        let elapsed = Elapsed { wall: Nanos(1_000), cpu: Some(Nanos(1_300)) };
        assert_eq!(contention.own(elapsed, EXPECTED, Nanos::SECOND), Some(Nanos(1_000)));
    }
}
