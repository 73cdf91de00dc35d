//! Ends a system call of another thread.

use super::sys;
use crate::meters::cpu::thread_time;
use anyhow::Context as _;
use rustix::thread::gettid;
use signal_hook::consts::SIGUSR1;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Sends a harmless signal: the call that it interrupts ends with `EINTR`.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    thread: AtomicI32,
}

/// The handler of the signal, which does next to nothing; without one the process would end.
static CAUGHT: OnceLock<()> = OnceLock::new();

impl Breaker {
    /// A breaker that watches no thread yet.
    ///
    /// # Errors
    /// When the kernel refuses the handler.
    pub(super) fn new() -> anyhow::Result<Self> {
        if CAUGHT.get().is_none() {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(SIGUSR1, flag).context("cannot catch a signal")?;
            // Two threads may come here at once: a second handler does no harm.
            let _ = CAUGHT.set(());
        }
        Ok(Self::default())
    }

    /// The calling thread is the one to be interrupted.
    pub(super) fn watch_this_thread(&self) {
        // Relaxed: the number alone is needed.
        self.thread.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    }

    /// CPU time that the thread has used so far.
    ///
    /// # Errors
    /// When there is no thread yet, or it has ended.
    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        thread_time(self.thread.load(Ordering::Relaxed)).context("the injector's thread does not run")
    }

    /// Interrupts the thread's system call, if it is in one; to be repeated until the thread has ended.
    pub(super) fn interrupt(&self) {
        let thread = self.thread.load(Ordering::Relaxed);
        if thread != 0 {
            sys::signal_thread(thread, SIGUSR1);
        }
    }
}
