//! Supervision of threads: a supervisor thread detects threads that end before their work is done.
//!
//! [`Threads::spawn`] starts a thread and registers it. The supervisor sleeps until the kernel reports the
//! end of a thread, by a panic or by an `exit` that unwinds and drops nothing. It takes no lock of the
//! gateway, so it also detects a thread that ended while it held one. Before Linux 6.9 the kernel does not
//! report ends of threads, and the supervisor polls every 50 ms.
//!
//! The loss of a worker, of control, reload or the gateway's own thread ends the gateway ([`Loss::Ends`]);
//! the loss of a capture or of a search for an adapter is repaired by its owner ([`Loss::Repaired`]).
//! `docs/adr/0031-lost-threads.md` has the reasons.

mod exit;

use exit::Exit;
use polder_datapath::units::Nanos;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Polling interval for threads whose end the kernel does not report.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Time limit for a new thread to begin.
const BEGIN: Duration = Duration::from_secs(5);
/// Polling interval of a join for the loss of its thread.
const JOIN: Duration = Duration::from_millis(10);

/// Consequence of a lost thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The gateway ends: the thread's packets, frames and locks are lost.
    Ends,
    /// The thread's owner repairs the loss, and the gateway continues.
    Repaired,
}

/// Starts threads, and registers them with the supervisor, if there is one.
#[derive(Clone, Debug)]
pub struct Threads {
    registry: Option<Arc<Registry>>,
}

#[derive(Debug)]
struct Registry {
    /// Channel of new threads to the supervisor.
    new: Mutex<Sender<Watched>>,
    /// Event that wakes the supervisor.
    wakeup: OwnedFd,
    stop: AtomicBool,
    /// One line for each lost thread.
    losses: Mutex<Vec<String>>,
}

/// State of a thread, shared by its owner and the supervisor.
#[derive(Debug, Default)]
pub struct Status(AtomicU8);

const RUNS: u8 = 0;
const DONE: u8 = 1;
const PANICKED: u8 = 2;
const LOST: u8 = 3;

/// A running thread and its result.
#[derive(Debug)]
pub struct Thread<T> {
    result: Receiver<T>,
    status: Arc<Status>,
}

/// A thread under supervision.
#[derive(Debug)]
struct Watched {
    name: String,
    loss: Loss,
    status: Arc<Status>,
    exit: Exit,
}

/// A thread that has ended before its work was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the thread {name} ended unexpectedly: {}", if *.panicked { "it panicked" } else { "it was killed from outside" })]
pub struct LostThread {
    /// Name of the thread.
    pub name: String,
    /// True after a panic; false if it ended without unwinding.
    pub panicked: bool,
}

impl Status {
    // Relaxed everywhere: the state orders nothing, because results come through channels.
    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, state: u8) {
        self.0.store(state, Ordering::Relaxed);
    }

    /// True if the thread has ended before its work was done.
    pub fn is_lost(&self) -> bool {
        matches!(self.get(), PANICKED | LOST)
    }
}

impl Default for Threads {
    /// Starts threads without supervision.
    fn default() -> Self {
        Self { registry: None }
    }
}

impl Threads {
    /// Starts a thread.
    ///
    /// # Errors
    /// When the system has no thread or no file descriptor left.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        loss: Loss,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Thread<T>> {
        let status = Arc::new(Status::default());
        let (begun, exit) = channel();
        let (done, result) = channel();
        let own = Ending(Arc::clone(&status));
        let supervised = self.registry.is_some();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            if supervised {
                // Opened in the thread itself, because a thread that ends at once could not be found from
                // outside. The receiver has a time limit.
                let _ = begun.send(Exit::own());
            }
            let ending = own;
            let outcome = body();
            // The owner may have dropped the receiver.
            let _ = done.send(outcome);
            ending.0.set(DONE);
        })?;
        if let Some(registry) = &self.registry {
            let exit = exit.recv_timeout(BEGIN).map_err(|_| late(name))??;
            registry.register(Watched { name: name.to_owned(), loss, status: Arc::clone(&status), exit });
        }
        Ok(Thread { result, status })
    }

    /// One line for each thread lost since the start.
    pub fn losses(&self) -> Vec<String> {
        let Some(registry) = &self.registry else { return Vec::new() };
        registry.losses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn late(name: &str) -> io::Error {
    io::Error::other(format!("the thread {name} did not start within {BEGIN:?}"))
}

impl Registry {
    fn register(&self, watched: Watched) {
        // The supervisor may have stopped.
        let _ = self.new.lock().unwrap_or_else(PoisonError::into_inner).send(watched);
        self.ring();
    }

    fn ring(&self) {
        // A full counter is a pending wake-up.
        let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
    }
}

/// Records a panic when the thread unwinds.
struct Ending(Arc<Status>);

impl Drop for Ending {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set(PANICKED);
        }
    }
}

impl<T> Thread<T> {
    /// State of the thread, for an owner that does not wait.
    pub fn status(&self) -> &Arc<Status> {
        &self.status
    }

    /// Waits for the thread's result; `None` if the thread was lost.
    pub fn join(self) -> Option<T> {
        loop {
            match self.join_within(JOIN) {
                Err(RecvTimeoutError::Timeout) if !self.status.is_lost() => {}
                Err(_) => return None,
                Ok(result) => return Some(result),
            }
        }
    }

    /// Waits at most `limit` for the thread's result.
    ///
    /// # Errors
    /// When the thread was lost, or has not finished.
    pub fn join_within(&self, limit: Duration) -> Result<T, RecvTimeoutError> {
        self.result.recv_timeout(limit)
    }

    /// True if the thread has finished or was lost.
    pub fn is_over(&self) -> bool {
        self.status.get() != RUNS
    }
}

/// The supervisor's thread. Dropping it ends supervision.
pub(crate) struct Supervisor {
    threads: Threads,
    /// Handle of the supervisor's own thread, for the first thread of the process.
    exit: Exit,
}

impl Supervisor {
    /// Starts the supervisor thread, which calls `end` when a vital thread is lost.
    ///
    /// # Errors
    /// When the system has no thread or no file descriptor left.
    pub(crate) fn start(end: impl Fn(&LostThread) + Send + 'static) -> io::Result<Self> {
        let (new, arriving) = channel();
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (stop, losses) = (AtomicBool::new(false), Mutex::default());
        let registry = Arc::new(Registry { new: Mutex::new(new), wakeup, stop, losses });
        let (begun, exit) = channel();
        let own = Arc::clone(&registry);
        std::thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
            let _ = begun.send(Exit::own());
            supervise(&own, &arriving, &end);
        })?;
        let exit = exit.recv_timeout(BEGIN).map_err(|_| late("supervisor"))??;
        let threads = Threads { registry: Some(registry) };
        Ok(Self { threads, exit })
    }

    /// Starter of supervised threads.
    pub(crate) fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Descriptor that is readable when the supervisor's own thread ends; `None` if [`check`](Self::check)
    /// must be polled.
    pub(crate) fn event(&self) -> Option<&OwnedFd> {
        self.exit.event()
    }

    /// Maximum interval between two calls of [`check`](Self::check).
    pub(crate) fn pause(&self) -> Nanos {
        if self.event().is_some() { Nanos(u64::MAX) } else { Nanos::from_millis(50) }
    }

    /// Checks that the supervisor's own thread runs.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn check(&self) -> Result<(), LostThread> {
        if self.exit.has_come() {
            return Err(LostThread { name: "supervisor".to_owned(), panicked: false });
        }
        Ok(())
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(registry) = &self.threads.registry {
            registry.stop.store(true, Ordering::Relaxed);
            registry.ring();
        }
    }
}

/// Supervises threads until it is stopped.
fn supervise(registry: &Registry, new: &Receiver<Watched>, end: &impl Fn(&LostThread)) {
    let mut watched = Vec::<Watched>::new();
    while !registry.stop.load(Ordering::Relaxed) {
        watched.extend(new.try_iter());
        for thread in watched.extract_if(.., |thread| thread.exit.has_come()) {
            let Some(lost) = thread.lost() else { continue };
            registry.note(&thread, &lost);
            if thread.loss == Loss::Ends {
                end(&lost);
            }
        }
        wait(registry, &watched);
    }
}

/// Sleeps until a thread ends or a new one is registered.
fn wait(registry: &Registry, watched: &[Watched]) {
    let mut files = vec![PollFd::new(&registry.wakeup, PollFlags::IN)];
    files.extend(
        watched
            .iter()
            .filter_map(|thread| thread.exit.event())
            .map(|event| PollFd::new(event, PollFlags::IN)),
    );
    let limit = (files.len() <= watched.len()).then_some(&LOOK);
    // EINTR ends the wait early.
    let _ = poll(&mut files, limit);
    let _ = rustix::io::read(&registry.wakeup, &mut [0_u8; 8]);
}

impl Watched {
    /// The loss, if the thread has not finished its work.
    fn lost(&self) -> Option<LostThread> {
        let panicked = match self.status.get() {
            DONE => return None,
            state => state == PANICKED,
        };
        self.status.set(if panicked { PANICKED } else { LOST });
        Some(LostThread { name: self.name.clone(), panicked })
    }
}

impl Registry {
    fn note(&self, thread: &Watched, lost: &LostThread) {
        let what = match thread.loss {
            Loss::Ends => "the gateway stops",
            Loss::Repaired => "everything else continues",
        };
        tracing::error!("{lost}; {what}");
        if let Ok(mut losses) = self.losses.try_lock() {
            losses.push(lost.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use std::sync::mpsc::sync_channel;

    /// A supervisor, and its reports.
    fn supervised() -> (Supervisor, Receiver<LostThread>) {
        let (send, lost) = sync_channel(8);
        let supervisor = Supervisor::start(move |thread| send.send(thread.clone()).unwrap()).unwrap();
        (supervisor, lost)
    }

    #[test]
    fn a_thread_that_panics_is_lost_and_one_that_finishes_is_not() {
        let (supervisor, lost) = supervised();
        let threads = supervisor.threads();
        assert_eq!(threads.spawn("pd-done", Loss::Ends, || 17).unwrap().join(), Some(17));
        let thread = threads.spawn("pd-panics", Loss::Ends, || panic!("injected")).unwrap();
        assert_eq!(thread.join(), None::<()>);
        let found = lost.recv_timeout(Duration::from_secs(5)).unwrap();
        assert_eq!(found, LostThread { name: "pd-panics".to_owned(), panicked: true });
        assert!(lost.recv_timeout(Duration::from_millis(100)).is_err(), "one loss is one report");
        assert_eq!(threads.losses(), ["the thread pd-panics ended unexpectedly: it panicked"]);
    }

    #[test]
    fn a_thread_that_ends_at_once_is_found_to_have_ended() {
        let (supervisor, lost) = supervised();
        for _ in 0..100 {
            drop(supervisor.threads().spawn("pd-panics", Loss::Ends, || panic!("injected")).unwrap());
            drop(supervisor.threads().spawn("pd-done", Loss::Ends, || ()).unwrap());
            assert_eq!(lost.recv_timeout(Duration::from_secs(5)).unwrap().name, "pd-panics");
        }
        assert!(lost.try_recv().is_err(), "a thread that is done is not lost");
    }

    #[test]
    fn a_loss_that_is_repaired_does_not_end_the_gateway() {
        let (supervisor, lost) = supervised();
        let thread = supervisor.threads().spawn("pd-spare", Loss::Repaired, || panic!("injected")).unwrap();
        let status = Arc::clone(thread.status());
        assert_eq!(thread.join(), None::<()>);
        assert!(status.is_lost());
        assert!(lost.recv_timeout(Duration::from_millis(100)).is_err());
    }

    #[test]
    fn threads_without_a_supervisor_end_as_they_like() {
        let threads = Threads::default();
        assert_eq!(threads.spawn("pd-alone", Loss::Ends, || 3).unwrap().join(), Some(3));
        assert_eq!(threads.spawn("pd-alone", Loss::Ends, || panic!("injected")).unwrap().join(), None::<()>);
        assert!(threads.losses().is_empty());
    }

    #[test]
    fn a_supervisor_notices_at_once() {
        let (supervisor, lost) = supervised();
        let clock = Clock::start();
        drop(supervisor.threads().spawn("pd-panics", Loss::Ends, || panic!("injected")).unwrap());
        lost.recv_timeout(Duration::from_secs(5)).unwrap();
        assert!(clock.elapsed() < Nanos::SECOND, "{:?}", clock.elapsed());
    }
}
