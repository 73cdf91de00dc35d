//! Reserve of buffers: requests for reloading, and surplus to be returned.
//!
//! An allocation compares the level with a threshold and requests a reload below it. It never waits, and
//! requests once per reload; a [`Reloader`](crate::Reloader) answers on another thread.

use crate::sync::{self, fence};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Thresholds of a reserve, in ready buffers. Source: C2, C4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Level up to which a reload loads buffers.
    pub target: u32,
    /// Level below which a reload is requested.
    pub reload_below: u32,
    /// Level above which, after the reloader's patience, buffers are returned down to the target.
    pub give_back_above: u32,
}

impl Marks {
    /// Thresholds for a target: reload below two thirds, return above four thirds.
    pub const fn for_target(target: u32) -> Self {
        let third = target / 3;
        Self { target, reload_below: target - third, give_back_above: target.saturating_add(third) }
    }
}

impl Marks {
    /// The same thresholds for buffers that are smaller by `factor`.
    pub(crate) fn times(self, factor: u32) -> Self {
        let Self { target, reload_below, give_back_above } = self;
        let times = |mark: u32| mark.saturating_mul(factor);
        Self {
            target: times(target),
            reload_below: times(reload_below),
            give_back_above: times(give_back_above),
        }
    }

    /// The same thresholds for buffers that are larger by `factor`.
    pub(crate) fn over(self, factor: u32) -> Self {
        let Self { target, reload_below, give_back_above } = self;
        let over = |mark: u32| mark.div_ceil(factor);
        Self {
            target: over(target),
            reload_below: over(reload_below),
            give_back_above: over(give_back_above),
        }
    }
}

/// Counters of a reserve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReserveCounts {
    /// Number of reloads.
    pub reloads: u64,
    /// Number of buffers loaded.
    pub loaded: u64,
    /// Number of reloads that failed for lack of memory.
    pub failures: u64,
    /// Number of buffers returned to the system.
    pub given_back: u64,
    /// Number of buffers loaded by the packet path itself: 0 with a reloader.
    pub on_demand: u64,
    /// Lowest level after an exchange.
    pub lowest: u32,
}

/// Value of `asked` while no buffers are left to load, until some were returned.
const DRY: u64 = u64::MAX;

/// State of one reserve.
#[derive(Debug)]
pub(crate) struct Reserve {
    marks: Marks,
    /// Wake-up of the reloader, if there is one.
    request: OnceLock<Arc<ReloadRequest>>,
    /// Ticket of the pending request; 0 for none, [`DRY`] if requests are useless.
    asked: AtomicU64,
    /// True if the reloader knows of a surplus.
    knows_surplus: sync::AtomicBool,
    /// Lowest level since the reloader's last check, and ever.
    low_water: AtomicU32,
    lowest: AtomicU32,
    reloads: AtomicU64,
    loaded: AtomicU64,
    failures: AtomicU64,
    given_back: AtomicU64,
    on_demand: AtomicU64,
}

impl Reserve {
    pub(crate) fn new(marks: Marks) -> Self {
        Self {
            marks,
            request: OnceLock::new(),
            asked: AtomicU64::new(0),
            knows_surplus: sync::AtomicBool::new(false),
            low_water: AtomicU32::new(u32::MAX),
            lowest: AtomicU32::new(u32::MAX),
            reloads: AtomicU64::new(0),
            loaded: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            given_back: AtomicU64::new(0),
            on_demand: AtomicU64::new(0),
        }
    }

    pub(crate) fn marks(&self) -> Marks {
        self.marks
    }

    /// Sets the wake-up of the reloader; only the first call has an effect.
    pub(crate) fn connect(&self, request: &Arc<ReloadRequest>) {
        let _ = self.request.set(Arc::clone(request));
    }

    /// Checks the level after an allocation; requests a reload below the threshold.
    pub(crate) fn look(&self, level: u32) {
        // Relaxed throughout: the numbers order nothing. A minimum lost to a race is slightly too high, once.
        if level < self.low_water.load(Ordering::Relaxed) {
            self.low_water.store(level, Ordering::Relaxed);
            if level < self.lowest.load(Ordering::Relaxed) {
                self.lowest.store(level, Ordering::Relaxed);
            }
        }
        if level < self.marks.reload_below
            && self.asked.load(Ordering::Relaxed) == 0
            && let Some(request) = self.request.get()
        {
            self.asked.store(request.ticket(), Ordering::Relaxed);
            request.ring();
        }
    }

    /// Checks the level after a release; wakes the reloader above the threshold, so that it checks again when
    /// the surplus has lasted.
    ///
    /// Cost: a comparison, unless there is a new surplus.
    #[inline]
    pub(crate) fn look_for_surplus(&self, level: impl Fn() -> u32) {
        if level() > self.marks.give_back_above {
            self.tell_surplus();
        }
    }

    #[cold]
    fn tell_surplus(&self) {
        let Some(request) = self.request.get() else { return };
        // With `has_surplus`: either this finds the flag clear, or the level is seen there.
        fence(Ordering::SeqCst);
        if !self.knows_surplus.load(Ordering::Relaxed) && !self.knows_surplus.swap(true, Ordering::Relaxed) {
            request.ring();
        }
    }

    /// True if there is a surplus. If not, the next release that causes one wakes the reloader.
    pub(crate) fn has_surplus(&self, level: impl Fn() -> u32) -> bool {
        if level() > self.marks.give_back_above {
            return true;
        }
        self.knows_surplus.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        level() > self.marks.give_back_above
    }

    /// Ticket of the pending request; `None` without one.
    pub(crate) fn asked(&self) -> Option<u64> {
        Some(self.asked.load(Ordering::Relaxed)).filter(|&ticket| ticket != 0 && ticket != DRY)
    }

    /// Ends a request; `is_dry`: all buffers are loaded, so requests are useless.
    pub(crate) fn answer(&self, is_dry: bool) {
        self.asked.store(if is_dry { DRY } else { 0 }, Ordering::Relaxed);
    }

    /// Lowest level since the last call; `level` if nothing was allocated.
    pub(crate) fn low_water(&self, level: u32) -> u32 {
        self.low_water.swap(u32::MAX, Ordering::Relaxed).min(level)
    }

    pub(crate) fn count_reload(&self, loaded: u32) {
        self.reloads.fetch_add(1, Ordering::Relaxed);
        self.loaded.fetch_add(u64::from(loaded), Ordering::Relaxed);
    }

    pub(crate) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_given_back(&self, buffers: u32) {
        self.given_back.fetch_add(u64::from(buffers), Ordering::Relaxed);
        // A request made in between stays: only `DRY` is replaced.
        let _ = self.asked.compare_exchange(DRY, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn count_on_demand(&self, buffers: u32) {
        self.on_demand.fetch_add(u64::from(buffers), Ordering::Relaxed);
    }

    /// Counters of the reserve; `level` is the number of ready buffers.
    pub(crate) fn counts(&self, level: u32) -> ReserveCounts {
        ReserveCounts {
            reloads: self.reloads.load(Ordering::Relaxed),
            loaded: self.loaded.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            given_back: self.given_back.load(Ordering::Relaxed),
            on_demand: self.on_demand.load(Ordering::Relaxed),
            lowest: self.lowest.load(Ordering::Relaxed).min(level),
        }
    }
}

/// Wake-up of a reloader: any thread requests, one thread answers.
#[derive(Debug, Default)]
pub(crate) struct ReloadRequest {
    tickets: AtomicU64,
    rung: sync::AtomicBool,
    answering: sync::Sleeper,
}

impl ReloadRequest {
    /// Next ticket, greater than all before, for the order of requests.
    fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Wakes the answering thread.
    ///
    /// Cost: an atomic operation; a system call for the first request since the last answer.
    pub(crate) fn ring(&self) {
        // Release pairs with the Acquire in `wait`: the thread that takes the request sees its cause. Acquire
        // pairs with the Release there: a thread that rings after the check knows the waiting thread.
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.answering.wake();
        }
    }

    /// Registers the calling thread as the answering one, if there is none.
    pub(crate) fn answer_here(&self) {
        self.answering.is_here();
    }

    /// Waits until a request comes or the time has passed; `None` waits for ever. Called only by the
    /// answering thread.
    pub(crate) fn wait(&self, patience: Option<Duration>) {
        // A ring after the check leaves the thread a token, so that the park returns at once.
        if !self.rung.swap(false, Ordering::AcqRel) {
            sync::park(patience);
            self.rung.swap(false, Ordering::AcqRel);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// A level that rises while the reloader goes to sleep wakes the reloader, or was seen before.
    #[test]
    fn no_surplus_is_slept_over() {
        loom::model(|| {
            let marks = Marks { target: 1, reload_below: 0, give_back_above: 1 };
            let reserve = Reserve::new(marks);
            let _ = reserve.request.set(std::sync::Arc::new(ReloadRequest::default()));
            // The reloader knows of an earlier surplus, which is over.
            reserve.knows_surplus.store(true, Ordering::Relaxed);
            let reserve = Arc::new(reserve);
            let level = Arc::new(sync::AtomicU32::new(1));
            let (other_reserve, other_level) = (Arc::clone(&reserve), Arc::clone(&level));
            let thread = loom::thread::spawn(move || {
                other_level.fetch_add(1, Ordering::Relaxed);
                other_reserve.look_for_surplus(|| other_level.load(Ordering::Relaxed));
            });
            let seen = reserve.has_surplus(|| level.load(Ordering::Relaxed));
            thread.join().expect("the other thread does not panic");
            let told = reserve.request.get().expect("it was set").rung.load(Ordering::Relaxed);
            assert!(seen || told, "nobody knows of the surplus");
        });
    }

    /// The waiting thread sees each request; after a lost request it would sleep for ever.
    #[test]
    fn no_ring_is_lost() {
        loom::model(|| {
            let request = Arc::new(ReloadRequest::default());
            let asked = Arc::new(sync::AtomicU64::new(0));
            let (other_bell, other_asked) = (Arc::clone(&request), Arc::clone(&asked));
            request.answer_here();
            loom::thread::spawn(move || {
                for ticket in 1..3 {
                    other_asked.store(ticket, Ordering::Relaxed);
                    other_bell.ring();
                }
            });
            // The thread is not joined: the model checker cannot wake a thread that joins another.
            while asked.load(Ordering::Relaxed) < 2 {
                request.wait(None);
            }
        });
    }
}
