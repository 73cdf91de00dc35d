//! Open-loop pacing: when packet n is due does not depend on how packet n − 1 fared.

use crate::clock;
use std::time::Duration;

/// Waits shorter than this are spun: the kernel's timers are not finer.
const SPIN: Duration = Duration::from_micros(60);

/// A timetable of equally spaced packets, or of equally spaced bursts of them.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    start: u64,
    interval_nanos: f64,
    burst: u64,
}

impl Pace {
    /// Pace of `packets_per_second` from `start` (nanoseconds) on; an infinite rate makes all due
    /// at once.
    pub fn new(start: u64, packets_per_second: f64) -> Self {
        Self { start, interval_nanos: 1e9 / packets_per_second, burst: 1 }
    }

    /// The same mean rate in bursts: so many packets are due at once.
    #[must_use]
    pub fn in_bursts_of(self, packets: u32) -> Self {
        Self { burst: u64::from(packets.max(1)), ..self }
    }

    /// Time at which packet `number` is due.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "runs are shorter than 52 bits of nanoseconds, and rates are positive"
    )]
    #[inline]
    pub fn due(&self, number: u64) -> u64 {
        let first_of_burst = number - number % self.burst;
        self.start + (first_of_burst as f64 * self.interval_nanos) as u64
    }

    /// Number of packets that are due by `now`; none before the start.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "runs are shorter than 52 bits of nanoseconds, and rates are positive"
    )]
    #[inline]
    pub fn due_by(&self, now: u64) -> u64 {
        let Some(elapsed) = now.checked_sub(self.start) else { return 0 };
        if self.interval_nanos == 0.0 {
            return u64::MAX;
        }
        let bursts = (elapsed as f64 / (self.interval_nanos * self.burst as f64)) as u64 + 1;
        bursts * self.burst
    }

    /// Waits until packet `number` is due and returns when that was; gives the core away when the
    /// wait is long enough for that.
    pub fn wait_for(&self, number: u64) -> u64 {
        let due = self.due(number);
        loop {
            let now = clock::nanos();
            if now >= due {
                return due;
            }
            let left = Duration::from_nanos(due - now);
            if left > SPIN {
                std::thread::sleep(left - SPIN / 2);
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_due_at_their_rate() {
        let pace = Pace::new(5_000, 1_000_000.0);
        assert_eq!((pace.due(0), pace.due(1_000_000)), (5_000, 1_000_005_000));
        assert_eq!((pace.due_by(5_000), pace.due_by(1_005_000)), (1, 1_001));
        assert_eq!(pace.due_by(4_999), 0);
        let flat_out = Pace::new(5_000, f64::INFINITY);
        assert_eq!((flat_out.due(1 << 40), flat_out.due_by(5_000)), (5_000, u64::MAX));
    }

    #[test]
    fn bursts_keep_the_mean_rate() {
        let pace = Pace::new(0, 1_000_000.0).in_bursts_of(32);
        assert_eq!((pace.due(31), pace.due(32), pace.due(64)), (0, 32_000, 64_000));
        assert_eq!((pace.due_by(0), pace.due_by(31_999), pace.due_by(32_001)), (32, 32, 64));
    }

    #[test]
    fn a_wait_is_not_short() {
        let pace = Pace::new(clock::nanos(), 1_000.0);
        let due = pace.wait_for(3);
        assert!(clock::nanos() >= due);
    }
}
