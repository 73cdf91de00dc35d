//! The kernel's thread that receives for a queue, governed by the worker where the worker cannot receive itself.
//!
//! While the worker is awake and has enough to do, the thread has next to no weight; before the worker
//! sleeps it gets its own back, receives what there is room for, and wakes the worker, which asks for a
//! short slice and so comes first. What there is no room for stays in the device. What was set before is
//! set again at the end.

use super::napi::{Napi, describe, set_threaded};
use super::netdev::Netdev;
use super::sys::{self, Scheduling};
use core::num::NonZeroU64;
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{sched_getaffinity, sched_setaffinity, set_current_timer_slack};

/// A thread, and how it and the worker were treated before.
#[derive(Debug)]
pub(super) struct Thread {
    id: i32,
    before: Scheduling,
    worker: Scheduling,
    /// The context, when the thread was made for us.
    made: Option<(Netdev, u32)>,
    held: bool,
}

/// `SCHED_IDLE`.
const IDLE: u32 = 5;
/// `SCHED_OTHER`: the policies that have a slice.
const ORDINARY: u32 = 0;
/// The worker's slice while it governs: the shortest that there is.
const SLICE: u64 = 100_000;
/// How late its naps may end then, in nanoseconds.
const TIMER_SLACK: u64 = 1000;

impl Thread {
    /// The thread of a context; one is made if there is none, on the cores of the calling thread.
    ///
    /// # Errors
    /// When there is none and none can be made, or when it cannot be governed.
    pub(super) fn of(napi: &Napi) -> Result<Self, Errno> {
        let (number, made) = match napi.thread {
            Some(number) => (number, None),
            None => {
                let mut netdev = Netdev::open()?;
                set_threaded(&mut netdev, napi.id, true)?;
                let number = describe(&mut netdev, napi.id)?.thread.ok_or(Errno::OPNOTSUPP)?;
                (number, Some((netdev, napi.id)))
            }
        };
        let id = i32::try_from(number).map_err(|_| Errno::OVERFLOW)?;
        if made.is_some() {
            sched_setaffinity(Pid::from_raw(id), &sched_getaffinity(None)?)?;
        }
        let (before, worker) = (sys::scheduling(id)?, sys::scheduling(0)?);
        Ok(Self { id, before, worker, made, held: false })
    }

    /// Whether the worker governs it.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    /// Begins to govern it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn hold(&mut self) -> Result<(), Errno> {
        if self.worker.policy == ORDINARY {
            sys::set_scheduling(0, self.worker.with_slice(SLICE))?;
        }
        set_current_timer_slack(NonZeroU64::new(TIMER_SLACK))?;
        self.held = true;
        self.rein_in()
    }

    /// Lets it do as it did before.
    pub(super) fn let_go(&mut self) {
        if core::mem::take(&mut self.held) {
            // A thread that is gone needs nothing back.
            let _ = sys::set_scheduling(self.id, self.before);
            let _ = (sys::set_scheduling(0, self.worker), set_current_timer_slack(None));
        }
    }

    /// The worker has enough to do.
    ///
    /// # Errors
    /// When the thread is gone.
    pub(super) fn rein_in(&mut self) -> Result<(), Errno> {
        sys::set_scheduling(self.id, Scheduling::of_policy(IDLE))
    }

    /// The worker is about to sleep.
    pub(super) fn give_way(&mut self) {
        // With a short slice it comes before others that have the core for longer.
        let ordinary = self.before.policy == ORDINARY;
        let scheduling = if ordinary { self.before.with_slice(SLICE) } else { self.before };
        // A thread that is gone needs nothing.
        let _ = sys::set_scheduling(self.id, scheduling);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.let_go();
        if let Some((netdev, napi)) = &mut self.made {
            // A context that is gone needs nothing back.
            let _ = set_threaded(netdev, *napi, false);
        }
    }
}
