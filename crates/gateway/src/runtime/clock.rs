//! The one place that reads the clock.

use polder_datapath::units::Nanos;
use std::time::Instant;

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

    /// Time since it was started.
    pub fn elapsed(&self) -> Nanos {
        self.now().since(Nanos::SECOND)
    }
}
