//! The lab's clocks: the kernel's monotonic one, the same in every namespace and process.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::Duration;

/// Time since boot.
pub fn now() -> Duration {
    duration(clock_gettime(ClockId::Monotonic))
}

/// Time since boot in nanoseconds, as packets carry it.
pub fn nanos() -> u64 {
    u64::try_from(now().as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time that the calling thread has used.
pub fn thread_cpu() -> Duration {
    duration(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time of this process, all threads together.
pub fn process_cpu() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

fn duration(time: Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Seconds since 1970, for the date of a report.
pub fn seconds_since_1970() -> u64 {
    since_1970().as_secs()
}

/// Time since 1970, for comparison with other programs' output.
pub fn since_1970() -> Duration {
    duration(clock_gettime(ClockId::Realtime))
}
