//! A thread that notices hooks which appear or go while the gateway runs. It never stops anything.

use super::announce;
use crate::clock::Clock;
use crate::kernel::hooks::{self, Bypassed, Inspection, Port, Subscription};
use crate::supervise::{Loss, Thread, Threads};
use polder_datapath::units::Nanos;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Time after which hooks that give no notice are read again.
const EVERY: Nanos = Nanos::from_seconds(5);
/// Pause after a notice, in which the rest of a change can come.
const CALM: Nanos = Nanos::from_millis(200);
/// Divisor of the thread's time for the maximum share of reading.
const SHARE: u64 = 20;
/// Time for which a lost thread may hold the lock on the findings, and the steps in which others try.
const LOCK: Duration = Duration::from_millis(50);
const STEP: Duration = Duration::from_millis(1);
/// Time between two threads that are started because one was lost: what ends one may end each of them.
const AGAIN: Nanos = Nanos::from_seconds(60);

/// The watch over hooks that a gateway goes round.
#[derive(Debug, Default)]
pub struct Watch(Option<Running>);

#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    threads: Threads,
    thread: Option<Thread<()>>,
    ports: Vec<Port>,
    /// Time at which a lost thread may be replaced.
    not_before: Nanos,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    ports: Vec<Port>,
    known: Inspection,
    /// Bypassed hooks that were not there when the gateway started or its configuration changed.
    appeared: Vec<Bypassed>,
    is_over: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for other threads: it is held for moments only, unless its holder was lost.
    fn state_soon(&self) -> Option<MutexGuard<'_, State>> {
        for _ in 0..LOCK.as_millis() {
            match self.state.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(state)) => return Some(state.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::sleep(STEP),
            }
        }
        None
    }
}

impl Watch {
    /// Logs the hooks found at the start, and watches from then on.
    pub(in crate::runtime) fn start(
        threads: &Threads,
        ports: Vec<Port>,
        found: Inspection,
    ) -> std::io::Result<Self> {
        if ports.is_empty() {
            return Ok(Self::default());
        }
        announce(&found);
        Running::start(threads, ports, found).map(|running| Self(Some(running)))
    }

    /// The configuration has changed: these are the ports, and this was found about those that are new.
    pub(in crate::runtime) fn follow(&mut self, threads: &Threads, ports: Vec<Port>, found: Inspection) {
        let Some(running) = &mut self.0 else {
            match Self::start(threads, ports, found) {
                Ok(watch) => *self = watch,
                Err(error) => {
                    tracing::error!(%error, "cannot start the thread that watches the kernel's hooks")
                }
            }
            return;
        };
        announce(&found);
        running.replace(ports, found.bypassed);
    }

    /// A port was opened again, maybe in another mode: these are the ports.
    pub(in crate::runtime) fn renew(&mut self, ports: impl FnOnce() -> Vec<Port>) {
        let Some(running) = &mut self.0 else { return };
        let ports = ports();
        if running.ports != ports {
            running.replace(ports, Vec::new());
        }
    }

    /// Starts another thread in place of one that was lost; it reads everything again.
    pub(in crate::runtime) fn repair(&mut self, now: Nanos) {
        let is_due = |running: &mut Running| running.is_lost() && running.not_before <= now;
        let Some(lost) = self.0.take_if(is_due) else { return };
        let known = lost.shared.state_soon().map(|state| state.known.clone());
        match Running::start(&lost.threads, lost.ports.clone(), known.unwrap_or_default()) {
            Ok(mut running) => {
                running.not_before = now + AGAIN;
                self.0 = Some(running);
            }
            Err(error) => {
                tracing::error!(%error, "hooks of the kernel are not watched any more: no thread can be started");
            }
        }
    }

    /// Hooks that `port` goes round, and whether each has appeared while the gateway runs.
    pub fn of(&self, port: &str) -> Vec<(Bypassed, bool)> {
        let Some(running) = &self.0 else { return Vec::new() };
        let Some(state) = running.shared.state_soon() else { return Vec::new() };
        let of_port = state.known.bypassed.iter().filter(|bypassed| bypassed.port == port);
        of_port.map(|bypassed| (bypassed.clone(), state.appeared.contains(bypassed))).collect()
    }
}

impl Running {
    fn start(threads: &Threads, ports: Vec<Port>, found: Inspection) -> std::io::Result<Self> {
        let state = State { ports: ports.clone(), known: found, ..State::default() };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { state: Mutex::new(state), wake });
        let watched = Arc::clone(&shared);
        let thread = threads.spawn("kernel-hooks", Loss::Repaired, move || watch(&watched))?;
        let threads = threads.clone();
        Ok(Self { shared, threads, thread: Some(thread), ports, not_before: Nanos(0) })
    }

    /// Replaces the ports, adds hooks that are known to be bypassed, and has everything read again.
    fn replace(&mut self, ports: Vec<Port>, bypassed: Vec<Bypassed>) {
        self.ports.clone_from(&ports);
        // The successor of a thread that was lost with the lock gets the ports above.
        let Some(mut state) = self.shared.state_soon() else { return };
        state.ports = ports;
        let known = &mut state.known.bypassed;
        let new = bypassed.into_iter().filter(|one| !known.contains(one)).collect::<Vec<_>>();
        known.extend(new);
        drop(state);
        self.wake();
    }

    fn is_lost(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.status().is_lost())
    }

    fn wake(&self) {
        // A counter that is full wakes as well.
        let _: Result<usize, rustix::io::Errno> = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut state) = self.shared.state_soon() {
            state.is_over = true;
        }
        self.wake();
        // A thread that was lost is in the log.
        let _: Option<()> = self.thread.take().and_then(Thread::join);
    }
}

fn watch(shared: &Shared) {
    let clock = Clock::start();
    // Without notices it is looked at from time to time, as hooks are that give none.
    let mut subscription = Subscription::open().ok();
    let mut pause = EVERY;
    // Any of the waits may have taken the notice of the end.
    while !shared.state().is_over {
        let is_noticed = wait(shared, subscription.as_ref(), pause);
        if shared.state().is_over {
            return;
        }
        if is_noticed {
            wait(shared, None, CALM);
            subscription.iter_mut().for_each(Subscription::drain);
        }
        let begun = clock.now();
        look(shared);
        let least = Nanos(clock.now().since(begun).0.saturating_mul(SHARE));
        wait(shared, None, least);
        pause = EVERY.max(least);
    }
}

/// Waits until a hook has changed or `pause` is over; true if a hook has changed.
fn wait(shared: &Shared, subscription: Option<&Subscription>, pause: Nanos) -> bool {
    let mut files = vec![PollFd::new(&shared.wake, PollFlags::IN)];
    files.extend(subscription.map(|subscription| PollFd::new(subscription, PollFlags::IN)));
    let timeout = Timespec {
        tv_sec: i64::try_from(pause.0 / Nanos::SECOND.0).unwrap_or(1),
        tv_nsec: i64::try_from(pause.0 % Nanos::SECOND.0).unwrap_or(0),
    };
    let is_noticed = poll(&mut files, Some(&timeout)).is_ok_and(|ready| ready > 0);
    let mut count = [0; 8];
    // Nothing to read is no news.
    let _: Result<usize, rustix::io::Errno> = rustix::io::read(&shared.wake, &mut count);
    is_noticed
}

/// Reads all hooks again, and logs changes.
fn look(shared: &Shared) {
    let ports = shared.state().ports.clone();
    let found = hooks::inspect(&ports);
    let mut state = shared.state();
    if state.ports != ports {
        return;
    }
    let has = |list: &[Bypassed], one: &Bypassed| list.contains(one);
    for bypassed in found.bypassed.iter().filter(|one| !has(&state.known.bypassed, one)) {
        let (port, text) = (&bypassed.port, bypassed.text());
        tracing::warn!(
            "port {port}: a kernel hook has appeared and is bypassed: {text}; everything goes on, and `polder check` says \
             what to do"
        );
    }
    for bypassed in state.known.bypassed.iter().filter(|one| !has(&found.bypassed, one)) {
        tracing::info!(
            "port {}: a kernel hook that was bypassed has gone: {} {}",
            bypassed.port,
            bypassed.by,
            bypassed.name
        );
    }
    for text in found.unread.iter().filter(|text| !state.known.unread.contains(text)) {
        tracing::warn!("{text}: what is bypassed there is not known");
    }
    let new =
        found.bypassed.iter().filter(|one| !has(&state.known.bypassed, one)).cloned().collect::<Vec<_>>();
    state.appeared.retain(|one| has(&found.bypassed, one));
    state.appeared.extend(new);
    state.known = found;
}
