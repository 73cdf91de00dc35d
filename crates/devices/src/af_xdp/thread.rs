//! The kernel's NAPI thread of a queue, governed by the worker if the worker cannot poll the queue itself.
//!
//! While the worker is awake and has enough to do, the thread has the least weight. Before the worker sleeps,
//! the thread gets its own weight back, receives as many packets as there are frames, and wakes the worker,
//! which has a shorter slice and so runs first. The excess stays in the device. The earlier settings are
//! restored at the end.
//!
//! If a worker is limited to a share of its core, the thread's time counts as the worker's, the thread has
//! the worker's weight, and both pause together.
//!
//! A killed process restores nothing. Its settings are recognised by the nice value of a held thread and by
//! the slice of a released one: [`Thread::of`] does not take them for the original settings, and
//! [`set_right`] restores such threads when an interface is opened.

use super::napi::{Napi, describe, napis, set_threaded};
use super::netdev::Netdev;
use super::socket::Refused;
use super::sys::{self, Scheduling};
use core::num::NonZeroU64;
use polder_datapath::units::Nanos;
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use std::sync::{Mutex, PoisonError};

/// A NAPI thread, and the earlier settings of it and of the worker.
#[derive(Debug)]
pub(super) struct Thread {
    id: i32,
    before: Scheduling,
    worker: Scheduling,
    /// Its current scheduling attributes.
    now: Scheduling,
    /// The context, if the thread was made for it.
    made: Option<Made>,
    held: bool,
    /// True if the worker sleeps while it holds the thread.
    receives: bool,
    /// True if the thread then runs before all other ordinary threads, because it did not get the core the
    /// last time.
    is_boosted: bool,
    /// True if its time counts towards the worker's share of the core; and true while both pause.
    shares: bool,
    is_paused: bool,
}

/// Contexts that have a thread because this process made one.
static MADE: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A context with a thread of its own, until this value is dropped.
#[derive(Debug)]
struct Made {
    netdev: Netdev,
    napi: u32,
}

impl Made {
    fn new(napi: u32) -> Result<Self, Errno> {
        let mut netdev = Netdev::open()?;
        set_threaded(&mut netdev, napi, true)?;
        MADE.lock().unwrap_or_else(PoisonError::into_inner).push(napi);
        Ok(Self { netdev, napi })
    }

    /// Returns the number of the thread.
    fn number(mut self) -> Result<(u32, Self), Errno> {
        let number = describe(&mut self.netdev, self.napi)?.thread.ok_or(Errno::OPNOTSUPP)?;
        Ok((number, self))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        unmake(&mut self.netdev, self.napi);
    }
}

/// Name of the step that gives a context a thread.
const THREADED: &str = "give the NAPI context a thread of its own (needs Linux 6.17)";
/// `SCHED_IDLE`.
const IDLE: u32 = 5;
/// `SCHED_OTHER`: the policies that have a slice.
const ORDINARY: u32 = 0;
/// The worker's slice in nanoseconds while it governs: the shortest possible.
const SLICE: u64 = 100_000;
/// The thread's slice in nanoseconds while it receives: shorter than that of others, and longer than the
/// worker's, so that the worker runs as soon as it is woken.
const THREAD_SLICE: u64 = 200_000;
/// The nice value of a thread that was to receive and did not get the core: the scheduler counts it as having
/// used more than its part, which happens under [`IDLE`] while others are owed time. If the core's other
/// threads are in a group (autogroup, cgroup), Linux 6.18 charges it again each time that the group's weight
/// changes, unless its own weight is far above theirs.
const FIRST: i32 = -20;
/// The nice value of a held thread: without effect there, but a mark of Polder.
const MARK: i32 = 19;
/// Timer slack of the worker's sleeps, in nanoseconds.
const TIMER_SLACK: u64 = 1000;

impl Thread {
    /// Returns the thread of a context; makes one, on the calling thread's cores, if there is none.
    ///
    /// # Errors
    /// If none can be made, or if it cannot be governed; then a context without a thread has none again.
    pub(super) fn of(napi: &Napi) -> Result<Self, Refused> {
        let at = |step| move |errno| Refused { step, errno };
        let (number, made) = match napi.thread {
            Some(number) => (number, None),
            None => {
                let made = Made::new(napi.id).map_err(at(THREADED))?;
                let (number, made) = made.number().map_err(at(THREADED))?;
                (number, Some(made))
            }
        };
        let id = i32::try_from(number).map_err(|_| Errno::OVERFLOW).map_err(at(THREADED))?;
        if made.is_some() {
            let moved =
                sched_getaffinity(None).and_then(|cores| sched_setaffinity(Pid::from_raw(id), &cores));
            moved.map_err(at("pin the NAPI thread to the worker's CPUs"))?;
        }
        let found = sys::scheduling(id).and_then(|found| Ok((found, sys::scheduling(0)?)));
        let (found, worker) = found.map_err(at("read the weight of the NAPI thread"))?;
        let before = left_behind(found).unwrap_or(found);
        Ok(Self {
            id,
            before,
            worker,
            now: found,
            made,
            held: false,
            receives: false,
            is_boosted: false,
            shares: false,
            is_paused: false,
        })
    }

    /// True if the worker governs the thread.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    /// Starts to govern the thread.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(super) fn hold(&mut self) -> Result<(), Errno> {
        self.hurry()?;
        self.held = true;
        self.throttle()
    }

    /// Restores the thread's own settings.
    pub(super) fn release(&mut self) {
        if core::mem::take(&mut self.held) {
            self.update();
            if !self.shares {
                self.restore();
            }
        }
    }

    /// Gives the thread the least weight: the worker has enough to do.
    ///
    /// # Errors
    /// If the thread is gone.
    pub(super) fn throttle(&mut self) -> Result<(), Errno> {
        self.receives = false;
        self.apply()
    }

    /// Sets if the thread runs before others at the worker's next sleep.
    pub(super) fn boost_next(&mut self, is_boosted: bool) {
        self.is_boosted = is_boosted;
    }

    /// Lets the thread receive; to be called before the worker sleeps.
    pub(super) fn yield_cpu(&mut self) {
        self.receives = true;
        self.update();
    }

    /// Counts the thread's time towards the worker's share of the core. Nothing changes if the thread never
    /// runs on a core of the calling thread.
    ///
    /// # Errors
    /// If its weight cannot be set; its time is counted all the same.
    pub(super) fn share(&mut self) -> Result<(), Errno> {
        let (own, of_it) = (sched_getaffinity(None)?, sched_getaffinity(Pid::from_raw(self.id))?);
        if !(0..CpuSet::MAX_CPU).any(|core| own.is_set(core) && of_it.is_set(core)) {
            return Ok(());
        }
        let _ = self.hurry();
        self.shares = true;
        self.apply()
    }

    /// True if its time counts as the worker's.
    pub(super) fn shares(&self) -> bool {
        self.shares
    }

    /// True if the context had no thread before.
    pub(super) fn is_made(&self) -> bool {
        self.made.is_some()
    }

    /// Pauses the thread together with the worker, or resumes it.
    pub(super) fn pause(&mut self, is_paused: bool) {
        if self.shares {
            self.is_paused = is_paused;
            self.update();
        }
    }

    /// Returns its CPU time so far.
    pub(super) fn time(&self) -> Option<Nanos> {
        sys::cpu_time(self.id)
    }

    /// Returns its CPU time so far, if it counts towards the worker's share.
    pub(super) fn shared_time(&self) -> Option<Nanos> {
        if self.shares { self.time() } else { None }
    }

    /// Lets the worker run soon after it is woken.
    fn hurry(&self) -> Result<(), Errno> {
        if self.worker.policy == ORDINARY {
            sys::set_scheduling(0, self.worker.with_slice(SLICE))?;
        }
        set_current_timer_slack(NonZeroU64::new(TIMER_SLACK))
    }

    fn restore(&self) {
        // If this fails, so did the earlier setting.
        let _ = (sys::set_scheduling(0, self.worker), set_current_timer_slack(None));
    }

    /// Returns the scheduling attributes for the current state.
    fn wanted(&self) -> Scheduling {
        if self.is_paused || (self.held && !self.receives) {
            return Scheduling::of_policy(IDLE).with_nice(MARK);
        }
        if self.before.policy != ORDINARY || !(self.held || self.shares) {
            return self.before;
        }
        // With a short slice it runs before threads with longer slices.
        let nice = match (self.is_boosted && self.held, self.shares) {
            (true, _) => FIRST,
            (false, true) => self.worker.nice().min(self.before.nice()),
            (false, false) => self.before.nice(),
        };
        self.before.with_nice(nice).with_slice(THREAD_SLICE)
    }

    fn apply(&mut self) -> Result<(), Errno> {
        let wanted = self.wanted();
        if wanted == self.now {
            return Ok(());
        }
        sys::set_scheduling(self.id, wanted)?;
        self.now = wanted;
        Ok(())
    }

    /// Applies the attributes; ignores a thread that is gone.
    fn update(&mut self) {
        let _ = self.apply();
    }
}

/// Returns the attributes to restore for a thread that a killed process left changed; `None` for any other
/// thread.
fn left_behind(found: Scheduling) -> Option<Scheduling> {
    let ours = match found.policy {
        IDLE => found.nice() == MARK,
        ORDINARY => found.slice() == THREAD_SLICE,
        _ => false,
    };
    ours.then(|| Scheduling::of_policy(ORDINARY))
}

/// Returns the number of these contexts' threads that a running or killed gateway holds.
pub(super) fn count_left(napis: &[Napi]) -> usize {
    threads(napis).filter(|&id| sys::scheduling(id).is_ok_and(|found| left_behind(found).is_some())).count()
}

/// Restores an interface's threads that a killed process left changed, and adds a note.
pub(super) fn set_right(interface: u32, notes: &mut Vec<String>) {
    // A kernel that does not tell of threads has none that were governed.
    let found = napis(interface).unwrap_or_default();
    let set_right = threads(&found).filter(|&id| {
        let ordinary = sys::scheduling(id).ok().and_then(left_behind);
        ordinary.is_some_and(|ordinary| sys::set_scheduling(id, ordinary).is_ok())
    });
    let count = set_right.count();
    if count > 0 {
        notes.push(format!("reset the priority of {count} NAPI threads that a killed gateway had changed"));
    }
}

/// Removes a context's thread, if this process made it.
pub(super) fn unmake(netdev: &mut Netdev, napi: u32) {
    // A crashed thread may hold the lock: then the context keeps its thread, with ordinary settings.
    let Ok(mut made) = MADE.try_lock() else { return };
    let before = made.len();
    made.retain(|&other| other != napi);
    if made.len() < before {
        // A context that is gone needs no restoring.
        let _ = set_threaded(netdev, napi, false);
    }
}

fn threads(napis: &[Napi]) -> impl Iterator<Item = i32> + '_ {
    napis.iter().filter_map(|napi| i32::try_from(napi.thread?).ok())
}

impl Drop for Thread {
    fn drop(&mut self) {
        let told = self.held || self.shares;
        (self.held, self.shares, self.is_paused) = (false, false, false);
        self.update();
        if told {
            self.restore();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_did_not_get_the_core_comes_first_while_the_worker_sleeps() {
        let ordinary = Scheduling::of_policy(ORDINARY);
        let mut thread = Thread {
            id: 0,
            before: ordinary,
            worker: ordinary,
            now: ordinary,
            made: None,
            held: true,
            receives: true,
            is_boosted: false,
            shares: false,
            is_paused: false,
        };
        assert_eq!((thread.wanted().policy, thread.wanted().nice()), (ORDINARY, 0));
        thread.boost_next(true);
        assert_eq!((thread.wanted().policy, thread.wanted().nice()), (ORDINARY, FIRST));
        thread.receives = false;
        assert_eq!(thread.wanted().policy, IDLE, "the worker is awake");
        (thread.receives, thread.is_paused) = (true, true);
        assert_eq!(thread.wanted().policy, IDLE, "the share is used up");
        (thread.held, thread.is_paused) = (false, false);
        assert_eq!(thread.wanted(), ordinary, "nobody holds it");
    }

    #[test]
    fn what_a_killed_process_leaves_behind_is_told_from_what_others_set() {
        let ordinary = Scheduling::of_policy(ORDINARY);
        for ours in
            [Scheduling::of_policy(IDLE).with_nice(MARK), ordinary.with_nice(-7).with_slice(THREAD_SLICE)]
        {
            assert_eq!(left_behind(ours), Some(ordinary), "{ours:?}");
        }
        for other in [ordinary, ordinary.with_slice(2_800_000).with_nice(5), Scheduling::of_policy(IDLE)] {
            assert_eq!(left_behind(other), None, "{other:?}");
        }
    }
}
