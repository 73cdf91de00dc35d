//! CPU-time token bucket: a share of a core, by the CPU time of the threads that have the share.

use crate::units::Nanos;

/// The longest that it is run at a time, at the share's rate, and the longest pause.
const RUN: u64 = 500_000;
const PAUSE: u64 = 5_000_000;
/// Further savings beside a pause's earnings: a thread that comes back late, because others had the core,
/// loses nothing by it.
const SAVED: u64 = 1_000_000;

/// Keeps threads to a share of a core.
///
/// Time on the core is earned at the rate of the share, and is spent by being there. Who has spent all of it
/// stays away until half a millisecond of running has been earned, or for five milliseconds. What is earned
/// while there is nothing to do is lost, but for a millisecond's worth.
#[derive(Clone, Copy, Debug)]
pub struct CpuTokenBucket {
    permille: u64,
    /// Time that was earned and not spent, in thousandths of nanoseconds.
    saved: i64,
    /// Time of the last balance, and the CPU time used by then.
    last: Option<(Nanos, Nanos)>,
}

impl CpuTokenBucket {
    /// Share of `permille` thousandths of a core.
    pub fn new(permille: u16) -> Self {
        Self { permille: u64::from(permille.clamp(1, 1000)), saved: 0, last: None }
    }

    /// Time that is earned in a pause, in thousandths of nanoseconds.
    fn pause_earns(&self) -> u64 {
        (RUN * (1000 - self.permille)).min(PAUSE * self.permille)
    }

    /// Time for which to stay away from the core now. `used` is the time on it so far.
    pub fn pause(&mut self, now: Nanos, used: Nanos) -> Option<Nanos> {
        let (then, before) = self.last.replace((now, used))?;
        let most = signed(self.pause_earns() + SAVED * self.permille);
        let earned = signed(now.since(then).0.saturating_mul(self.permille));
        let spent = signed(used.since(before).0.saturating_mul(1000));
        self.saved = self.saved.saturating_add(earned).min(most).saturating_sub(spent);
        if self.saved > 0 {
            return None;
        }
        let missing = self.saved.unsigned_abs() + self.pause_earns();
        Some(Nanos(missing / self.permille)).filter(|pause| pause.0 > 0)
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
