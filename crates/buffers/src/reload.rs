//! Reloaders: load memory ahead of use, and return unused memory.
//!
//! A [`Reloader`] serves reserves in the order of their requests. Control and data have one each, on threads
//! of different priority, so that a large reload of data memory does not delay control (C3). The gateway runs
//! the threads; this module has their work.

use crate::policy::Reloadable;
use crate::region::Region;
use crate::reserve::ReloadRequest;
use std::sync::Arc;
use std::time::Duration;

/// Pause after a failed reload.
const RETRY: Duration = Duration::from_millis(20);

/// Reloader of one class's reserves, or of all.
pub struct Reloader {
    request: Arc<ReloadRequest>,
    region: Region,
    buffers: Vec<Arc<dyn Reloadable>>,
    /// Time for which buffers must be unused before they are returned; `None` for never (C4 off).
    patience: Option<Duration>,
    /// Time of the last check for unused buffers, on the clock of [`Reloader::turn`].
    looked: Duration,
    /// Time of the next attempt after a failure.
    retry: Option<Duration>,
}

/// Wakes a [`Reloader`] from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<ReloadRequest>);

impl Waker {
    /// Ends the current wait, or the next one if the reloader is not waiting.
    pub fn wake(&self) {
        self.0.ring();
    }
}

impl Reloader {
    pub(crate) fn new(region: Region, buffers: Vec<Arc<dyn Reloadable>>, patience: Option<Duration>) -> Self {
        let request = Arc::new(ReloadRequest::default());
        buffers.iter().for_each(|buffers| buffers.reserve().connect(&request));
        Self { request, region, buffers, patience, looked: Duration::ZERO, retry: None }
    }

    /// Handle that wakes the reloader.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.request))
    }

    /// Waits until there is work; always called on the same thread. Costs nothing while no buffers may be
    /// returned.
    pub fn wait(&self) {
        self.request.answer_here();
        // All reserves are checked: each then wakes the reloader once it has a surplus.
        let has_surplus = |buffers: &Arc<dyn Reloadable>| buffers.reserve().has_surplus(|| buffers.level());
        let superfluous = self.buffers.iter().fold(false, |any, buffers| any | has_surplus(buffers));
        let patience = self.patience.filter(|_| superfluous);
        let retry = self.retry.map(|_| RETRY);
        self.request.wait(patience.into_iter().chain(retry).min());
    }

    /// Does the work that is due; `now` is the time of any monotonic clock.
    ///
    /// Cost: system calls that load memory, a few microseconds for 64 pages.
    pub fn turn(&mut self, now: Duration) {
        // Slots on the remote-free list need not be loaded.
        self.region.collect_remote_frees();
        if self.retry.is_some_and(|at| now >= at) {
            self.retry = None;
        }
        let (buffers, retry) = (&self.buffers, &mut self.retry);
        let mut serve = || serve(buffers, retry, now);
        serve();
        if let Some(patience) = self.patience
            && now.saturating_sub(self.looked) >= patience
        {
            self.looked = now;
            // Requests are served in between, so they do not wait for the return of memory.
            buffers.iter().for_each(|buffers| give_back(&**buffers, &mut serve));
        }
    }
}

/// Reloads the reserves with requests, in the order of the requests.
fn serve(buffers: &[Arc<dyn Reloadable>], retry: &mut Option<Duration>, now: Duration) {
    while retry.is_none()
        && let Some(buffers) = first(buffers)
    {
        if !reload(buffers) {
            *retry = Some(now + RETRY);
        }
    }
}

/// Reserve with the earliest request; `None` without requests.
fn first(buffers: &[Arc<dyn Reloadable>]) -> Option<&dyn Reloadable> {
    let asked = buffers.iter().filter_map(|buffers| Some((buffers.reserve().asked()?, buffers)));
    asked.min_by_key(|&(ticket, _)| ticket).map(|(_, buffers)| &**buffers)
}

/// Loads memory up to the target; false if the system had too little. A failed request stays pending.
fn reload(buffers: &dyn Reloadable) -> bool {
    let (reserve, target) = (buffers.reserve(), buffers.reserve().marks().target);
    let mut loaded = 0;
    let ended = loop {
        let level = buffers.level();
        if level >= target {
            break Ok(false);
        }
        match buffers.load(target - level) {
            Ok(0) => break Ok(true),
            Ok(count) => loaded += count,
            Err(error) => break Err(error),
        }
    };
    reserve.count_reload(loaded);
    match ended {
        Ok(is_dry) => reserve.answer(is_dry),
        Err(_) => reserve.count_failure(),
    }
    ended.is_ok()
}

/// Returns memory that was unused since the last check, calling `meanwhile` between steps.
fn give_back(buffers: &dyn Reloadable, meanwhile: &mut dyn FnMut()) {
    let marks = buffers.reserve().marks();
    let low_water = buffers.reserve().low_water(buffers.level());
    if low_water > marks.give_back_above {
        buffers.unload(low_water - marks.target, meanwhile);
    }
}

impl core::fmt::Debug for Reloader {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("Reloader")
            .field("buffers", &self.buffers.len())
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::region::RegionOptions;
    use crate::reserve::{Marks, Reserve};
    use rustix::io::Errno;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Buffers that record the calls on them; while they return memory, other buffers are used up.
    struct Told {
        reserve: Reserve,
        level: AtomicU32,
        used_up_meanwhile: Option<Arc<Self>>,
        done: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Told {
        fn tell(&self, what: &'static str) {
            self.done.lock().expect("nobody panics with it").push(what);
        }

        fn use_up(&self) {
            self.level.store(0, Ordering::Relaxed);
            self.reserve.look(0);
        }
    }

    impl Reloadable for Told {
        fn reserve(&self) -> &Reserve {
            &self.reserve
        }

        fn level(&self) -> u32 {
            self.level.load(Ordering::Relaxed)
        }

        fn load(&self, wanted: u32) -> Result<u32, Errno> {
            self.tell("loads");
            self.level.fetch_add(wanted, Ordering::Relaxed);
            Ok(wanted)
        }

        fn unload(&self, surplus: u32, meanwhile: &mut dyn FnMut()) -> u32 {
            for _ in 0..2 {
                self.tell("gives back");
                self.used_up_meanwhile.iter().for_each(|other| other.use_up());
                meanwhile();
            }
            self.level.fetch_sub(surplus, Ordering::Relaxed);
            surplus
        }
    }

    /// A reloader that is returning memory loads buffers between two system calls if a reserve needs them.
    #[test]
    fn who_needs_memory_does_not_wait_for_what_is_given_back() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let buffers = |level, used_up_meanwhile| Told {
            reserve: Reserve::new(Marks::for_target(30)),
            level: AtomicU32::new(level),
            used_up_meanwhile,
            done: Arc::clone(&done),
        };
        let needy = Arc::new(buffers(30, None));
        let rich = Arc::new(buffers(100, Some(Arc::clone(&needy))));
        let region = Region::new(RegionOptions { slots: 8, slot_bytes: 2048 }).expect("memory for a test");
        let buffers: Vec<Arc<dyn Reloadable>> = vec![rich, needy];
        let mut reloader = Reloader::new(region, buffers, Some(Duration::from_millis(1)));
        reloader.turn(Duration::from_secs(1));
        assert_eq!(
            *done.lock().expect("nobody panics with it"),
            ["gives back", "loads", "gives back", "loads"]
        );
    }
}
