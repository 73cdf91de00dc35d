//! BFD and keepalives of tunnels, on a thread of their own that uses kernel sockets.
//!
//! BFD control packets are UDP between the tunnels' outer addresses, which the kernel keeps on every underlay. So they do
//! not load the workers, and are not delayed by an overloaded worker. Keepalives are sent by kernel sockets too; their
//! answers are packets of the tunnel, and a worker records their time of arrival.
//!
//! ```text
//! engine      sessions, sockets, one round of work; no clock
//! keys        keys of the sessions, in files
//! handed      a session for a successor process
//! wanted      sessions that tunnels ask for
//! socket      UDP sockets
//! sys         TTL of received datagrams
//! keepalives  tunnels with keepalives, and their sockets
//! probe       bytes of a keepalive
//! ```
//!
//! Tunnels between the same addresses share a session. The thread runs while a tunnel has `bfd` or `keepalive`. It reports
//! changes to the control thread by an event descriptor; the state of the sessions is read under their lock.

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

/// Maximum sleep of the thread.
const LONGEST_PAUSE: Nanos = Nanos::SECOND;
/// Nice value of the thread: late control packets look like a dead tunnel.
const NICE: i32 = -15;

/// Kernel interface indexes of ports.
pub type Interfaces = HashMap<PortId, u32>;

/// All sessions and keepalives, with their thread.
pub struct Liveness {
    shared: Arc<Shared>,
    thread: Option<Thread<()>>,
}

struct Shared {
    engine: Mutex<Engine>,
    /// Event that wakes the thread.
    wakeup: OwnedFd,
    /// Event that is readable when a session has changed.
    news: Arc<OwnedFd>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Liveness {
    /// Creates the state without sessions.
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

    /// Replaces the sessions and keepalives by those of `configuration`; `states` has the tunnels' states by
    /// name, `interfaces` their ports' interfaces. Starts the thread with the first session.
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
            // A port without a kernel interface, or that was never open, has no index.
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

    /// Descriptor that is readable when a session has changed; [`heard`](Self::heard) clears it.
    pub fn news(&self) -> Option<Arc<OwnedFd>> {
        self.thread.as_ref().map(|_| Arc::clone(&self.shared.news))
    }

    /// Acknowledges the changes so far.
    pub fn heard(&self) {
        host_traffic(&self.shared.news);
    }

    /// Status of a session.
    pub fn status(&self, key: &SessionKey, now: Nanos) -> Option<SessionStatus> {
        self.thread.as_ref()?;
        self.shared.lock().status(key, now)
    }

    /// Keepalive status of a tunnel.
    pub fn keepalive(&self, tunnel: PortId) -> Option<KeepaliveStatus> {
        self.thread.as_ref()?;
        self.shared.lock().keepalive(tunnel)
    }

    /// All sessions, for a successor process.
    pub fn handed(&self) -> Vec<HandedSession> {
        self.shared.lock().handed()
    }

    /// Resumes a predecessor's sessions at the next [`watch`](Self::watch).
    pub fn go_on_with(&self, sessions: &[HandedSession]) {
        self.shared.lock().go_on_with(sessions);
    }

    /// Closes the sockets without telling the remote ends, because a successor process resumes the sessions.
    pub fn leave(&mut self) {
        self.end(Ending::Silent);
    }

    /// Ends all sessions and tells the remote ends.
    pub fn stop(&mut self) {
        self.end(Ending::Told);
    }

    fn end(&mut self, ending: Ending) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.lock().end(ending);
        ring(&self.shared.wakeup);
        if thread.join().is_none() {
            tracing::error!("the BFD thread has panicked");
        }
    }
}

fn ring(event: &OwnedFd) {
    // The only possible error is a full counter, which means a pending wake-up.
    let _: Result<usize, _> = write(event, &1_u64.to_ne_bytes());
}

fn host_traffic(event: &OwnedFd) {
    let mut count = [0; 8];
    // An empty read means that no event was pending.
    let _: Result<usize, _> = read(event, &mut count);
}

/// The thread's loop: a round of work, then a wait for packets, timers or commands.
fn run(shared: &Shared, clock: Clock) {
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), NICE) {
        tracing::debug!(%error, "the BFD thread keeps normal priority");
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
        // EINTR ends the wait early.
        let _: Result<usize, _> = poll(&mut files, Some(&timespec(pause)));
        host_traffic(&shared.wakeup);
    }
}

fn timespec(pause: Nanos) -> Timespec {
    let (seconds, nanos) = (pause.0 / Nanos::SECOND.0, pause.0 % Nanos::SECOND.0);
    Timespec { tv_sec: i64::try_from(seconds).unwrap_or(1), tv_nsec: i64::try_from(nanos).unwrap_or(0) }
}
