//! Rate limit of a queue, so that packets wait in the queue, neither in the device nor after it.
//!
//! Each packet occupies the link for its time at that rate; the next packet may leave after that. A late
//! sender may catch up by at most [`Pace::BURST`].

use crate::units::{BytesPerSecond, Nanos};

/// Pacing of packets at a rate.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    rate: BytesPerSecond,
    /// Time at which the next packet may leave.
    free_at: Nanos,
}

impl Pace {
    /// Maximum lag that may be caught up, for a worker that oversleeps.
    pub const BURST: Nanos = Nanos::from_millis(1);

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
        let begins = self.free_at.max(now.since(Self::BURST));
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
        for step in [1_000, 10_000, 999_999] {
            assert!((1000..=1002).contains(&in_a_second(step)), "{step}: {}", in_a_second(step));
        }
        // A look each 4 ms catches up 1 ms, and the packet that was due.
        assert!((250..=520).contains(&in_a_second(4_000_000)), "{}", in_a_second(4_000_000));
    }

    #[test]
    fn a_pause_is_not_saved_up() {
        let mut pace = Pace::new(BytesPerSecond(1_000_000));
        pace.spend(1000, Nanos::SECOND);
        let later = Nanos::from_seconds(60);
        let burst = (0..).take_while(|_| {
            let free = pace.is_free(later);
            pace.spend(1000, later);
            free
        });
        assert_eq!(burst.count(), 2, "one for the millisecond, and the one that was due");
    }
}
