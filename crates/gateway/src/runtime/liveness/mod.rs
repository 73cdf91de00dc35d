//! BFD between the ends of tunnels, and keepalives: a thread of its own, on sockets of the kernel.
//!
//! Control packets are UDP between the tunnels' outer addresses, which the kernel keeps on every underlay. So they cost
//! the packet path nothing, pass by a worker that is overloaded, and wake none. Keepalives leave by sockets of the kernel,
//! too; their answers are packets of the tunnel, which workers take and note the time of.
//!
//! ```text
//! engine      sessions, sockets, one round of work; no clock
//! keys        keys of the sessions, in files
//! handed      a session for another process
//! wanted      sessions that tunnels ask for
//! socket      UDP sockets
//! sys         TTL of what arrives
//! keepalives  tunnels with keepalives, and their sockets
//! probe       octets of a keepalive
//! ```
//!
//! Tunnels between the same ends share a session. The thread is there while a tunnel has `bfd` or `keepalive`. It tells the control
//! thread of changes by a descriptor; who wants to know more looks at the sessions under their lock.

mod engine;
mod handed;
mod keepalives;
mod keys;
mod probe;
mod socket;
mod sys;
mod wanted;

pub use engine::SessionStatus;
pub use handed::{Counts, HandedSession};
pub use keepalives::KeepaliveStatus;
pub use keys::check_keys;
pub(in crate::runtime) use keys::look_at_keys;
pub use wanted::SessionKey;

use crate::clock::Clock;
use crate::config::model::{Configuration, Tunnel};
use crate::supervise::{Loss, Thread, Threads};
use engine::{Ending, Engine};
use keys::WantedKeys;
use polder_buffers::PortId;
use polder_datapath::tunnel::TunnelState;
use polder_datapath::units::Nanos;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{read, write};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wanted::{Accepts, Wanted};

/// The longest time for which the thread sleeps.
const LONGEST_PAUSE: Nanos = Nanos::SECOND;
/// Weight of the thread: a late control packet looks like a dead tunnel.
const NICE: i32 = -15;

/// Numbers of the kernel's interfaces of ports.
pub type Interfaces = HashMap<PortId, u32>;

/// All sessions, and the thread that keeps them.
pub struct Liveness {
    shared: Arc<Shared>,
    thread: Option<Thread<()>>,
}

struct Shared {
    engine: Mutex<Engine>,
    /// Wakes the thread.
    wakeup: OwnedFd,
    /// Is readable when a session has changed.
    news: Arc<OwnedFd>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Liveness {
    /// Without sessions.
    ///
    /// # Errors
    /// When the system has no file descriptor left.
    pub fn new(clock: Clock) -> io::Result<Self> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let shared = Shared {
            engine: Mutex::new(Engine::new(clock.now())),
            wakeup: event()?,
            news: Arc::new(event()?),
        };
        Ok(Self { shared: Arc::new(shared), thread: None })
    }

    /// Keeps the sessions and keepalives that the tunnels of `configuration` ask for, and no others; `states` are those
    /// tunnels' by name, `interfaces` those of their ports. Starts the thread with the first.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn watch(
        &mut self,
        configuration: &Configuration,
        states: &HashMap<String, Arc<TunnelState>>,
        interfaces: &Interfaces,
        clock: Clock,
        threads: &Threads,
    ) -> io::Result<()> {
        let mut wanted = HashMap::<_, Wanted>::new();
        for tunnel in &configuration.tunnels {
            let (Some(key), Some(bfd)) = (SessionKey::of(tunnel), &tunnel.bfd) else { continue };
            let accepts = Accepts { least_ttl: bfd.least_ttl(), interfaces: Vec::new() };
            let new = || Wanted { settings: bfd.settings(), accepts, keys: WantedKeys::of(tunnel) };
            let known = wanted.entry(key).or_insert_with(new);
            // A port that the kernel does not have, or that was never open, has none.
            let interface = interfaces.get(&tunnel.port).filter(|_| !bfd.is_multihop());
            known.accepts.interfaces.extend(interface);
        }
        let ends = configuration.tunnels.iter().map(|tunnel| (tunnel.local, tunnel.remote)).collect();
        let is_watched = configuration.tunnels.iter().any(Tunnel::is_watched);
        if !is_watched && self.thread.is_none() {
            return Ok(());
        }
        let mut engine = self.shared.lock();
        engine.set(&wanted, &ends, clock.now());
        engine.set_keepalives(configuration, states, clock.now());
        drop(engine);
        ring(&self.shared.wakeup);
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            self.thread = Some(threads.spawn("liveness", Loss::Ends, move || run(&shared, clock))?);
        }
        Ok(())
    }

    /// Descriptor that is readable when a session has changed; [`heard`](Self::heard) silences it.
    pub fn news(&self) -> Option<Arc<OwnedFd>> {
        self.thread.as_ref().map(|_| Arc::clone(&self.shared.news))
    }

    /// Takes note that the changes so far are known.
    pub fn heard(&self) {
        silence(&self.shared.news);
    }

    /// The session with these ends.
    pub fn status(&self, key: &SessionKey, now: Nanos) -> Option<SessionStatus> {
        self.thread.as_ref()?;
        self.shared.lock().status(key, now)
    }

    /// Keepalives of the tunnel with this number.
    pub fn keepalive(&self, tunnel: PortId) -> Option<KeepaliveStatus> {
        self.thread.as_ref()?;
        self.shared.lock().keepalive(tunnel)
    }

    /// All sessions, for another process.
    pub fn handed(&self) -> Vec<HandedSession> {
        self.shared.lock().handed()
    }

    /// Goes on with sessions of another process, from the next [`watch`](Self::watch) on.
    pub fn go_on_with(&self, sessions: &[HandedSession]) {
        self.shared.lock().go_on_with(sessions);
    }

    /// Closes the sockets, and tells nobody: another process goes on with the sessions.
    pub fn leave(&mut self) {
        self.end(Ending::Silent);
    }

    /// Ends all sessions: the other ends are told that this one is down.
    pub fn stop(&mut self) {
        self.end(Ending::Told);
    }

    fn end(&mut self, ending: Ending) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.lock().end(ending);
        ring(&self.shared.wakeup);
        if thread.join().is_none() {
            tracing::error!("the thread of BFD was lost");
        }
    }
}

fn ring(event: &OwnedFd) {
    // A full counter is a pending wake-up, so the one error that can occur changes nothing.
    let _: Result<usize, _> = write(event, &1_u64.to_ne_bytes());
}

fn silence(event: &OwnedFd) {
    let mut count = [0; 8];
    // Nothing to read means that it was not rung.
    let _: Result<usize, _> = read(event, &mut count);
}

/// The thread: a round of work, then a wait for packets, timers or other wishes.
fn run(shared: &Shared, clock: Clock) {
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), NICE) {
        tracing::debug!(%error, "the thread of BFD stays at the usual priority");
    }
    loop {
        let round = shared.lock().round(clock.now());
        if round.has_changed {
            ring(&shared.news);
        }
        if round.is_last {
            return;
        }
        let pause = round.next.map_or(LONGEST_PAUSE, |next| next.since(clock.now()).min(LONGEST_PAUSE));
        let receivers = round.receivers.iter().map(|receiver| PollFd::new(&receiver.socket, PollFlags::IN));
        let mut files = receivers.chain([PollFd::new(&shared.wakeup, PollFlags::IN)]).collect::<Vec<_>>();
        // An interrupted wait is one that ended early.
        let _: Result<usize, _> = poll(&mut files, Some(&timespec(pause)));
        silence(&shared.wakeup);
    }
}

fn timespec(pause: Nanos) -> Timespec {
    let (seconds, nanos) = (pause.0 / Nanos::SECOND.0, pause.0 % Nanos::SECOND.0);
    Timespec { tv_sec: i64::try_from(seconds).unwrap_or(1), tv_nsec: i64::try_from(nanos).unwrap_or(0) }
}
