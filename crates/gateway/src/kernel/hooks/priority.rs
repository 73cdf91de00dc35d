//! Priority of the threads that receive change notices, which must run before other threads.

use super::sys::set_real_time;

/// Priority that a thread has obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadPriority {
    /// Real-time: before all normal threads.
    RealTime,
    /// Nice value −20.
    Nice,
    /// Unchanged.
    Ordinary,
}

/// Raises the priority of the calling thread as far as the system permits.
pub fn run_first() -> ThreadPriority {
    if set_real_time().is_ok() {
        return ThreadPriority::RealTime;
    }
    let thread = rustix::thread::gettid();
    match rustix::process::setpriority_process(Some(thread), FIRST) {
        Ok(()) => ThreadPriority::Nice,
        Err(_) => ThreadPriority::Ordinary,
    }
}

/// Highest priority of normal threads.
const FIRST: i32 = -20;
