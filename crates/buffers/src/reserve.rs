//! Reloading a reserve of buffers, and giving memory back.
//!
//! A taker compares the remaining level with a mark, and below it asks for a reload. It never waits, and
//! asks once a reload: the request is answered by a [`Reloader`](crate::Reloader), elsewhere.

use crate::sync::{self, fence};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Levels of ready buffers at which a reload or a give-back begins. Source: C2, C4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Number of ready buffers up to which a reload brings buffers in.
    pub target: u32,
    /// Fewer ask for a reload.
    pub reload_below: u32,
    /// More, for as long as the reloader's patience, go back to the system down to the target.
    pub give_back_above: u32,
}

impl Marks {
    /// A reserve of `target` that is reloaded below two thirds, and gives back above four thirds.
    pub const fn for_target(target: u32) -> Self {
        let third = target / 3;
        Self { target, reload_below: target - third, give_back_above: target.saturating_add(third) }
    }
}

impl Marks {
    /// The same for buffers that are smaller by `factor`.
    pub(crate) fn times(self, factor: u32) -> Self {
        let Self { target, reload_below, give_back_above } = self;
        let times = |mark: u32| mark.saturating_mul(factor);
        Self {
            target: times(target),
            reload_below: times(reload_below),
            give_back_above: times(give_back_above),
        }
    }

    /// The same for buffers that are larger by `factor`.
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
    /// Reloads that were done.
    pub reloads: u64,
    /// Buffers that they brought in.
    pub loaded: u64,
    /// Reloads that the system had no memory for.
    pub failures: u64,
    /// Buffers whose memory went back to the system.
    pub given_back: u64,
    /// Buffers that were taken from the system by the packet path itself: 0 with reloads.
    pub on_demand: u64,
    /// The fewest that were ready at the end of an exchange.
    pub lowest: u32,
}

/// Value while no buffers are left to bring in, until some were given back.
const DRY: u64 = u64::MAX;

/// The state of one reserve.
#[derive(Debug)]
pub(crate) struct Reserve {
    marks: Marks,
    /// Request to send, when a reloader answers it.
    request: OnceLock<Arc<ReloadRequest>>,
    /// The ticket of a reload that is asked for; 0 for none, [`DRY`] when asking is of no use.
    asked: AtomicU64,
    /// True if the reloader knows that more are ready than are to be kept.
    knows_surplus: sync::AtomicBool,
    /// The fewest ready since the reloader looked last, and ever.
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

    /// Sets the reloader that answers; only the first one does.
    pub(crate) fn connect(&self, request: &Arc<ReloadRequest>) {
        let _ = self.request.set(Arc::clone(request));
    }

    /// Checks the level after buffers were taken; asks for a reload below the mark.
    pub(crate) fn look(&self, level: u32) {
        // Relaxed throughout: numbers for decisions that nothing else hangs on. A minimum that is
        // lost to another thread's is a little too high, once.
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

    /// Checks the level after buffers were put in; wakes the reloader above the mark, so that it checks
    /// again when the surplus has lasted.
    ///
    /// Cost: a comparison, unless there is a surplus that the reloader does not know of.
    #[inline]
    pub(crate) fn look_for_surplus(&self, level: impl Fn() -> u32) {
        if level() > self.marks.give_back_above {
            self.tell_surplus();
        }
    }

    #[cold]
    fn tell_surplus(&self) {
        let Some(request) = self.request.get() else { return };
        // With `has_surplus`: either this finds the flag down, or the level that led here is seen there.
        fence(Ordering::SeqCst);
        if !self.knows_surplus.load(Ordering::Relaxed) && !self.knows_surplus.swap(true, Ordering::Relaxed) {
            request.ring();
        }
    }

    /// True if more are ready than are to be kept. While there are not, the next one who finds that rings.
    pub(crate) fn has_surplus(&self, level: impl Fn() -> u32) -> bool {
        if level() > self.marks.give_back_above {
            return true;
        }
        self.knows_surplus.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        level() > self.marks.give_back_above
    }

    /// The ticket of the reload that is asked for.
    pub(crate) fn asked(&self) -> Option<u64> {
        Some(self.asked.load(Ordering::Relaxed)).filter(|&ticket| ticket != 0 && ticket != DRY)
    }

    /// The reload is done; `is_dry` when everything there is has been brought in, so that nobody needs
    /// to ask.
    pub(crate) fn answer(&self, is_dry: bool) {
        self.asked.store(if is_dry { DRY } else { 0 }, Ordering::Relaxed);
    }

    /// The fewest that were ready since this was called last; `level` when nothing was taken.
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
        // A request that comes in between stays: only "dry" is taken back.
        let _ = self.asked.compare_exchange(DRY, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn count_on_demand(&self, buffers: u32) {
        self.on_demand.fetch_add(u64::from(buffers), Ordering::Relaxed);
    }

    /// Counters; `level` is the number of ready buffers.
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

/// Wake-up of a reloader. Any thread requests, one thread answers.
#[derive(Debug, Default)]
pub(crate) struct ReloadRequest {
    tickets: AtomicU64,
    rung: sync::AtomicBool,
    answering: sync::Sleeper,
}

impl ReloadRequest {
    /// Number greater than all before, for the order of requests.
    fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Wakes the answering thread.
    ///
    /// Cost: an atomic operation; a system call when nobody has rung since the last answer.
    pub(crate) fn ring(&self) {
        // Release pairs with the Acquire in `wait`: whoever takes the request sees what was asked. Acquire
        // pairs with the Release there: who rings after a look that heard nothing knows the thread.
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.answering.wake();
        }
    }

    /// Makes the calling thread the one that answers, if none is.
    pub(crate) fn answer_here(&self) {
        self.answering.is_here();
    }

    /// Waits until a request comes or the time is over; no time is for ever. By the one thread that
    /// answers.
    pub(crate) fn wait(&self, patience: Option<Duration>) {
        // A ring that comes after the look leaves the thread a token, so that the park ends at once.
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

    /// A level that rises while the reloader goes to sleep wakes it, or was seen before.
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

    /// The waiting thread sees each request; after a lost one it would sleep for ever.
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
