//! Rate of allocations between two readings of the accounts.

use crate::manager::{BufferStats, Kind};
use crate::region::Class;
use std::time::Duration;

/// Allocations at the last reading.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    at: Duration,
    taken: Vec<(Class, Kind, u64)>,
}

impl Rates {
    /// Buffers allocated per second since the last call, in the order of `accounts`; `None` for accounts seen
    /// for the first time. `now` is the time of any monotonic clock.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no 52 bits")]
    pub fn look(&mut self, now: Duration, accounts: &[BufferStats]) -> Vec<Option<f64>> {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        let rate = |account: &BufferStats| {
            let known =
                self.taken.iter().find(|(class, kind, _)| (*class, *kind) == (account.class, account.kind));
            let (_, _, before) = known.filter(|_| passed > 0.0)?;
            Some(account.taken.saturating_sub(*before) as f64 / passed)
        };
        let rates = accounts.iter().map(rate).collect();
        self.at = now;
        self.taken = accounts.iter().map(|account| (account.class, account.kind, account.taken)).collect();
        rates
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BufferManager, BufferOptions};

    #[test]
    fn a_rate_is_what_was_taken_between_two_looks() {
        let manager = BufferManager::new(BufferOptions::fixed(2048, 8, 256)).expect("memory for a test");
        let (mut rates, mut pool) = (Rates::default(), manager.pool(Class::Data));
        let mut look = |at, taken: usize| {
            for _ in 0..taken {
                let frame = pool.take().expect("256 slots");
                pool.release_frame(frame);
            }
            pool.publish();
            rates.look(Duration::from_millis(at), &manager.accounts())
        };
        assert_eq!(look(1000, 5), [None, None]);
        assert_eq!(look(1500, 40), [Some(0.0), Some(80.0)]);
        assert_eq!(look(1500, 3), [None, None], "no time has passed");
        assert_eq!(look(3500, 10), [Some(0.0), Some(5.0)]);
    }
}
