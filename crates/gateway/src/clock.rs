//! The one place that reads the clock.

use polder_datapath::units::Nanos;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Monotonic clock of the gateway; all workers share its origin.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Starts a clock at one second, so that time 0 is always in the past.
    #[expect(clippy::disallowed_methods, reason = "the gateway's clock starts here")]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Origin of the clock, in nanoseconds of `CLOCK_MONOTONIC`, for a successor process.
    pub fn origin(&self) -> u64 {
        monotonic().saturating_sub(self.elapsed().0)
    }

    /// Continues the clock of another process with this [`origin`](Self::origin).
    #[expect(clippy::disallowed_methods, reason = "the gateway's clock goes on here")]
    pub fn since(origin: u64) -> Self {
        let passed = Duration::from_nanos(monotonic().saturating_sub(origin));
        let now = Instant::now();
        Self { origin: now.checked_sub(passed).unwrap_or(now) }
    }

    /// Current time.
    ///
    /// Cost: about 25 ns through the vDSO.
    #[expect(clippy::disallowed_methods, reason = "the worker's reading of the clock")]
    pub fn now(&self) -> Nanos {
        let elapsed = Instant::now().duration_since(self.origin);
        Nanos::SECOND + Nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// CPU time of the calling thread since it began.
    ///
    /// Cost: a system call that asks the scheduler, about half a microsecond.
    pub fn cpu(&self) -> Nanos {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = u64::try_from(used.tv_sec).unwrap_or(0);
        Nanos(seconds * Nanos::SECOND.0 + u64::try_from(used.tv_nsec).unwrap_or(0))
    }

    /// Time since the clock was started.
    pub fn elapsed(&self) -> Nanos {
        self.now().since(Nanos::SECOND)
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds, the same for all processes.
pub fn monotonic() -> u64 {
    let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Unix time in nanoseconds.
#[expect(clippy::disallowed_methods, reason = "events bear the time of day")]
pub fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_goes_on_in_another_process() {
        let clock = Clock::start();
        std::thread::sleep(Duration::from_millis(20));
        let (next, now) = (Clock::since(clock.origin()), clock.now());
        let apart = next.now().since(now).0.max(now.since(next.now()).0);
        assert!(now.0 > Nanos::from_millis(1020).0 && apart < Nanos::from_millis(500).0, "{apart} ns");
    }
}
