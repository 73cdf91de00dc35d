//! CPU-time token bucket: limits threads to a share of a core.

use crate::units::Nanos;

/// Longest run in nanoseconds after a pause, at the share's rate; and longest pause.
const RUN: u64 = 500_000;
const PAUSE: u64 = 5_000_000;
/// Additional capacity of the bucket in nanoseconds: a thread that is scheduled late, because others had the
/// core, loses no time.
const SAVED: u64 = 1_000_000;

/// Limits a group of threads to a share of a core.
///
/// Tokens are CPU time: they accrue at the share's rate and are spent by running. When the bucket is empty,
/// the threads pause until 0.5 ms of running has accrued, or for 5 ms. Tokens beyond the capacity are lost
/// while the threads are idle.
#[derive(Clone, Copy, Debug)]
pub struct CpuTokenBucket {
    permille: u64,
    /// Tokens in the bucket, in thousandths of a nanosecond.
    tokens: i64,
    /// Time of the last update, and the CPU time used by then.
    last: Option<(Nanos, Nanos)>,
}

impl CpuTokenBucket {
    /// Share of `permille` thousandths of a core.
    pub fn new(permille: u16) -> Self {
        Self { permille: u64::from(permille.clamp(1, 1000)), tokens: 0, last: None }
    }

    /// Tokens that accrue in a pause, in thousandths of a nanosecond.
    fn pause_earns(&self) -> u64 {
        (RUN * (1000 - self.permille)).min(PAUSE * self.permille)
    }

    /// Returns the time to stay off the core; `None` if tokens are left. `used` is the CPU time used so far.
    pub fn pause(&mut self, now: Nanos, used: Nanos) -> Option<Nanos> {
        let (then, before) = self.last.replace((now, used))?;
        let most = signed(self.pause_earns() + SAVED * self.permille);
        let earned = signed(now.since(then).0.saturating_mul(self.permille));
        let spent = signed(used.since(before).0.saturating_mul(1000));
        self.tokens = self.tokens.saturating_add(earned).min(most).saturating_sub(spent);
        if self.tokens > 0 {
            return None;
        }
        let missing = self.tokens.unsigned_abs() + self.pause_earns();
        Some(Nanos(missing / self.permille)).filter(|pause| pause.0 > 0)
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
