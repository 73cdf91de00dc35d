//! A worker's share of its core, by the time that its thread was on it.

use crate::units::Nanos;

/// The time in which a share is kept.
const PERIOD: Nanos = Nanos::from_millis(10);

/// Keeps a thread to a share of a core, in periods of ten milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    permille: u64,
    /// When the period began, and what the thread had used by then.
    began: Nanos,
    used: Nanos,
}

impl Allowance {
    /// So many thousandths of a core.
    pub fn new(permille: u16) -> Self {
        Self { permille: u64::from(permille.clamp(1, 1000)), began: Nanos(0), used: Nanos(0) }
    }

    /// How long to stay away from the core now: until the period ends, and longer when more than a share
    /// was used. `used` is the thread's time so far.
    pub fn pause(&mut self, now: Nanos, used: Nanos) -> Option<Nanos> {
        let (passed, spent) = (now.since(self.began), used.since(self.used));
        let earned = Nanos(passed.0.saturating_mul(self.permille) / 1000);
        if passed >= PERIOD && spent <= earned {
            // What was not used is not saved up.
            (self.began, self.used) = (now, used);
            return None;
        }
        let share = Nanos(PERIOD.0 * self.permille / 1000);
        if spent < share {
            return None;
        }
        let until = Nanos(spent.0.saturating_mul(1000) / self.permille);
        Some(until.since(passed)).filter(|pause| pause.0 > 0)
    }
}
