//! Precedence of the thread that hears of changes: what it does must not wait for a core.

use super::sys::set_real_time;

/// Precedence that a thread has obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precedence {
    /// Before all ordinary threads.
    RealTime,
    /// The largest weight of ordinary threads.
    Nice,
    /// None.
    Ordinary,
}

/// Has the calling thread run before others, as far as the system permits.
pub fn run_first() -> Precedence {
    if set_real_time().is_ok() {
        return Precedence::RealTime;
    }
    let thread = rustix::thread::gettid();
    match rustix::process::setpriority_process(Some(thread), FIRST) {
        Ok(()) => Precedence::Nice,
        Err(_) => Precedence::Ordinary,
    }
}

/// The nice value of the largest weight.
const FIRST: i32 = -20;
