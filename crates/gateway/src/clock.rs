//! The one place that reads the clock.

use polder_datapath::units::Nanos;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The gateway's monotonic clock; all workers share its origin.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts at a second past zero, so that zero is always the past.
    #[expect(clippy::disallowed_methods, reason = "the gateway's clock starts here")]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// The time.
    ///
    /// Cost: about 25 ns through the vDSO.
    #[expect(clippy::disallowed_methods, reason = "the worker's reading of the clock")]
    pub fn now(&self) -> Nanos {
        let elapsed = Instant::now().duration_since(self.origin);
        Nanos::SECOND + Nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Time for which the calling thread has had a core, since it began.
    ///
    /// Cost: a system call that looks into the scheduler, about half a microsecond.
    pub fn cpu(&self) -> Nanos {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = u64::try_from(used.tv_sec).unwrap_or(0);
        Nanos(seconds * Nanos::SECOND.0 + u64::try_from(used.tv_nsec).unwrap_or(0))
    }

    /// Time since it was started.
    pub fn elapsed(&self) -> Nanos {
        self.now().since(Nanos::SECOND)
    }
}

/// Time of day, in nanoseconds since 1970-01-01 00:00 UTC.
#[expect(clippy::disallowed_methods, reason = "events bear the time of day")]
pub fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
