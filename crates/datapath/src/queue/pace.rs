//! Rate limit of a queue, so that packets wait in the queue, neither in the device nor after it.
//!
//! Each packet occupies the link for its time at that rate; the next packet may leave after that. While packets
//! wait, a late sender catches up by at most [`Pace::LAG`], so that preemption does not lower the rate; a pause
//! without packets gives a credit of at most [`Pace::BURST`].

use crate::units::{BytesPerSecond, Nanos};

/// Pacing of packets at a rate.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    rate: BytesPerSecond,
    /// Time at which the next packet may leave.
    free_at: Nanos,
}

impl Pace {
    /// Maximum credit of a queue that was empty.
    pub const BURST: Nanos = Nanos::from_millis(1);
    /// Maximum lag that is caught up while packets wait, for a worker that oversleeps or is preempted.
    pub const LAG: Nanos = Nanos::from_millis(10);

    /// Pace of `rate` bytes a second.
    pub const fn new(rate: BytesPerSecond) -> Self {
        Self { rate, free_at: Nanos(0) }
    }

    /// Changes the rate; packets that have left stay charged at the former one.
    pub fn set_rate(&mut self, rate: BytesPerSecond) {
        self.rate = rate;
    }

    /// Charges the packets that another pace has let leave.
    pub fn go_on_from(&mut self, before: &Self) {
        self.free_at = before.free_at;
    }

    /// A packet enters an empty queue.
    #[inline]
    pub fn begin(&mut self, now: Nanos) {
        self.free_at = self.free_at.max(now.since(Self::BURST));
    }

    /// True if a packet may leave.
    #[inline]
    pub fn is_free(&self, now: Nanos) -> bool {
        now >= self.free_at
    }

    /// Time at which the next packet may leave.
    pub fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// Charges a packet of `bytes` bytes.
    #[inline]
    pub fn spend(&mut self, bytes: u64, now: Nanos) {
        let begins = self.free_at.max(now.since(Self::LAG));
        self.free_at = begins + self.rate.time_of(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 1000 bytes that go in a second at 1 MB/s, looked at every `step`.
    fn in_a_second(step: u64) -> u64 {
        let mut pace = Pace::new(BytesPerSecond(1_000_000));
        let (mut sent, start) = (0, Nanos::SECOND);
        pace.begin(start);
        for later in (0..=Nanos::SECOND.0).step_by(usize::try_from(step).expect("small")) {
            let now = start + Nanos(later);
            while pace.is_free(now) {
                pace.spend(1000, now);
                sent += 1;
            }
        }
        sent
    }

    #[test]
    fn the_rate_is_kept_by_whoever_looks_often_enough() {
        for step in [1_000, 10_000, 999_999, 4_000_000, 9_900_000] {
            assert!((990..=1002).contains(&in_a_second(step)), "{step}: {}", in_a_second(step));
        }
        // A look each 40 ms catches up 10 ms, and the packet that was due.
        assert!((250..=290).contains(&in_a_second(40_000_000)), "{}", in_a_second(40_000_000));
    }

    #[test]
    fn a_pause_is_not_saved_up() {
        let mut pace = Pace::new(BytesPerSecond(1_000_000));
        pace.spend(1000, Nanos::SECOND);
        let later = Nanos::from_seconds(60);
        pace.begin(later);
        let burst = (0..).take_while(|_| {
            let free = pace.is_free(later);
            pace.spend(1000, later);
            free
        });
        assert_eq!(burst.count(), 2, "one for the millisecond, and the one that was due");
    }
}
