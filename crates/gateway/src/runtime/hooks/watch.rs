//! Thread that detects hooks which appear or go while the gateway runs, and decides which ports yield.

use super::announce;
use super::answers::{Answers, answer, appeared, concerns, event, obstacles};
use super::hold::Hold;
use super::listener::{cpus, start};
use super::yields::{Words, YieldingPort, Yields};
use crate::clock::Clock;
use crate::events::EventKind;
use crate::kernel::hooks::{self, Answer, Bypassed, EachPacket, Inspection, Noticed, Port};
use crate::supervise::{Loss, Thread, Threads};
use polder_datapath::units::Nanos;
use polder_devices::af_xdp::YieldCause;
use polder_devices::skb::connections::ConnectionTable;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Interval at which hooks without notices are read again.
const EVERY: Nanos = Nanos::from_seconds(5);
/// Reading takes at most one part in this many of the thread's time.
const SHARE: u64 = 20;
/// Time for which a route notice counts as unread, until it has reached the control thread's socket, too.
const SETTLE: Nanos = Nanos::from_millis(5);
/// Time limit for taking the lock, which a lost thread may hold, tried every [`STEP`].
const LOCK: Duration = Duration::from_millis(50);
const STEP: Duration = Duration::from_millis(1);
/// Minimum interval between restarts after a lost thread, whose cause may recur.
const AGAIN: Nanos = Nanos::from_seconds(60);

/// Watch for hooks that a gateway bypasses.
#[derive(Debug, Default)]
pub struct Watch {
    running: Option<Running>,
    yields: Arc<Yields>,
    /// Generation up to which route notices are being read, and the time at which the reading started.
    reading: (u64, Nanos),
}

#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    threads: Threads,
    thread: Option<Thread<()>>,
    listeners: Vec<Thread<()>>,
    ports: Vec<Port>,
    /// Earliest time of the next restart after a lost thread.
    not_before: Nanos,
}

/// State shared by the watch's threads.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) yields: Arc<Yields>,
    clock: Clock,
    wake: OwnedFd,
    /// Event of each listening thread, readable when the ports have changed.
    pub(super) renewed: Vec<OwnedFd>,
    /// Readable once the watch ends.
    pub(super) end: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    ports: Vec<Port>,
    known: Inspection,
    /// Bypassed hooks that have appeared since the start or the last change of the configuration.
    appeared: Vec<Bypassed>,
    /// Number of hooks that have appeared since the start.
    times: u64,
    /// Yield state of each port that has yielded.
    holds: HashMap<String, Hold>,
    /// Hooks because of which ports yield, by port.
    because: HashMap<String, Vec<String>>,
    /// Events since the last call of `take_events`.
    events: Vec<EventKind>,
}

/// Yields of a port, for `show` and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::runtime) struct Yielding {
    /// Length of the current yield; `None` without one.
    pub(in crate::runtime) since: Option<Nanos>,
    /// Hooks because of which the port yields, each with its effect.
    pub(in crate::runtime) hooks: Vec<String>,
    /// Number of yields.
    pub(in crate::runtime) times: u64,
    /// Total time of all yields.
    pub(in crate::runtime) total: Nanos,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state; `None` if a lost thread holds the lock.
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

    pub(super) fn wake(&self) {
        raise(&self.wake);
    }
}

fn raise(event: &OwnedFd) {
    // Fails only when the counter is full, and then the event is pending.
    let _: Result<usize, rustix::io::Errno> = rustix::io::write(event, &1_u64.to_ne_bytes());
}

impl Watch {
    /// Logs the hooks found at the start, and begins to watch.
    pub(in crate::runtime) fn start(
        threads: &Threads,
        clock: Clock,
        ports: Vec<Port>,
        found: Inspection,
    ) -> std::io::Result<Self> {
        let mut watch = Self::default();
        watch.run(threads, clock, ports, found)?;
        Ok(watch)
    }

    fn run(
        &mut self,
        threads: &Threads,
        clock: Clock,
        ports: Vec<Port>,
        found: Inspection,
    ) -> std::io::Result<()> {
        if ports.is_empty() {
            return Ok(());
        }
        announce(&found);
        // The first check reports the obstacles.
        let known = Inspection { obstacles: Vec::new(), each_packet: Vec::new(), ..found };
        let state = State { ports: ports.clone(), known, ..State::default() };
        self.running = Some(Running::start(threads, (clock, &self.yields), ports, state)?);
        Ok(())
    }

    /// Replaces the ports after a reload; `found` has the findings about new ports.
    pub(in crate::runtime) fn follow(
        &mut self,
        threads: &Threads,
        clock: Clock,
        ports: Vec<Port>,
        found: Inspection,
    ) {
        let Some(running) = &mut self.running else {
            if let Err(error) = self.run(threads, clock, ports, found) {
                tracing::error!(%error, "cannot start the threads that monitor the kernel's packet hooks");
            }
            return;
        };
        announce(&found);
        running.replace(ports, found.bypassed);
    }

    /// Updates the ports after one was opened again, maybe in another mode.
    pub(in crate::runtime) fn renew(&mut self, ports: impl FnOnce() -> Vec<Port>) {
        let Some(running) = &mut self.running else { return };
        let ports = ports();
        if running.ports != ports {
            running.replace(ports, Vec::new());
        }
    }

    /// Replaces the ports that can yield, and the interfaces whose routes the router uses.
    pub(in crate::runtime) fn set_yielding(
        &mut self,
        ports: Vec<YieldingPort>,
        interfaces: Vec<u32>,
        connections: Option<Arc<ConnectionTable>>,
    ) {
        let Some(running) = &self.running else { return };
        for port in &ports {
            let of = running.ports.iter().find(|of| of.name == port.name);
            if let Some(of) = of.filter(|of| of.answer == Answer::Yield) {
                port.set_families(hooks::forwarded(&of.interface));
            }
        }
        let held = running.shared.state_soon().map(|state| {
            let held = state.holds.iter().filter(|(_, hold)| hold.since.is_some());
            held.map(|(name, _)| name.clone()).collect::<Vec<_>>()
        });
        let held = held.unwrap_or_default();
        self.yields
            .replace(Words { ports, interfaces, connections }, |name| held.iter().any(|held| held == name));
        running.shared.renewed.iter().for_each(raise);
        running.shared.wake();
    }

    /// Generation of the last notice; read it before reading routes.
    pub(in crate::runtime) fn generation(&self) -> u64 {
        self.yields.generation()
    }

    /// Reports that all routes up to `generation` are known. Returns the time until the next call; `None` if
    /// none is needed.
    pub(in crate::runtime) fn routes_handled(&mut self, generation: u64, now: Nanos) -> Option<Nanos> {
        let words = self.yields.words();
        let waits = |port: &&YieldingPort| port.word.has(YieldCause::Route);
        words.ports.iter().find(waits)?;
        if self.reading.0 != generation {
            self.reading = (generation, now);
        }
        let end = self.reading.1 + SETTLE;
        if now < end {
            return Some(end.since(now));
        }
        let mut ends =
            words.ports.iter().filter(waits).map(|port| port.word.end(YieldCause::Route, generation));
        ends.any(|has_ended| !has_ended).then_some(SETTLE)
    }

    /// Restarts the watch after one of its threads was lost. Until then, ports yield where the kernel can
    /// forward their packets.
    pub(in crate::runtime) fn repair(&mut self, now: Nanos) {
        let is_due = |running: &mut Running| running.is_lost() && running.not_before <= now;
        let Some(lost) = self.running.take_if(is_due) else { return };
        let state = lost.shared.state_soon().map(|mut state| std::mem::take(&mut *state));
        let state = State { ports: lost.ports.clone(), ..state.unwrap_or_default() };
        let of = (lost.shared.clock, &self.yields);
        match Running::start(&lost.threads, of, lost.ports.clone(), state) {
            Ok(mut running) => {
                running.not_before = now + AGAIN;
                self.running = Some(running);
                let unknown = Noticed { any: true, hook: true, route: true, evidence: true };
                self.yields.notice(unknown, &mut self.yields.words());
            }
            Err(error) => {
                tracing::error!(%error, "hooks of the kernel are no longer monitored: cannot start a thread");
            }
        }
    }

    /// Hooks that `port` bypasses, and whether each has appeared while the gateway runs.
    pub fn of(&self, port: &str) -> Vec<(Bypassed, bool)> {
        let Some(state) = self.state() else { return Vec::new() };
        if state.is_held(port) {
            return Vec::new();
        }
        let of_port = state.known.bypassed.iter().filter(|bypassed| bypassed.port == port);
        of_port.map(|bypassed| (bypassed.clone(), state.appeared.contains(bypassed))).collect()
    }

    /// Reasons why no connection is carried.
    pub(in crate::runtime) fn obstacles(&self) -> Vec<String> {
        self.state().map(|state| state.known.obstacles.clone()).unwrap_or_default()
    }

    /// Rules that inspect each packet between two ports.
    pub(in crate::runtime) fn each_packet(&self) -> Vec<EachPacket> {
        self.state().map(|state| state.known.each_packet.clone()).unwrap_or_default()
    }

    /// Yields of `port`.
    pub(in crate::runtime) fn yielding(&self, port: &str, now: Nanos) -> Yielding {
        let Some(state) = self.state() else { return Yielding::default() };
        let Some(hold) = state.holds.get(port) else { return Yielding::default() };
        Yielding {
            since: hold.since.map(|since| now.since(since)),
            hooks: state.because.get(port).cloned().unwrap_or_default(),
            times: hold.times,
            total: hold.total(now),
        }
    }

    /// Reasons why the gateway is not ready: hooks that have appeared at ports that cannot yield.
    pub(in crate::runtime) fn not_ready(&self) -> Vec<String> {
        let Some(state) = self.state() else { return Vec::new() };
        let at = |port: &Port| state.passed_by(port).map(|bypassed| bypassed.text()).collect::<Vec<_>>();
        let found = state.ports.iter().map(|port| (port, at(port))).filter(|(_, hooks)| !hooks.is_empty());
        found.map(|(port, hooks)| format!("port {}: bypasses {}", port.name, hooks.join("; "))).collect()
    }

    /// Number of hooks that have appeared; 0 if the state cannot be locked.
    pub(in crate::runtime) fn appeared(&self) -> u64 {
        self.state().map_or(0, |state| state.times)
    }

    /// Ports whose packets must be dropped because a hook has appeared; `None` if the state cannot be locked.
    pub(in crate::runtime) fn stopped(&self) -> Option<Vec<String>> {
        let state = self.state()?;
        let is_stopped =
            |port: &&Port| matches!(port.answer, Answer::Stop(_)) && state.passed_by(port).next().is_some();
        Some(state.ports.iter().filter(is_stopped).map(|port| port.name.clone()).collect())
    }

    /// Takes the events since the last call.
    pub(in crate::runtime) fn take_events(&self) -> Vec<EventKind> {
        self.state().map(|mut state| std::mem::take(&mut state.events)).unwrap_or_default()
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        self.running.as_ref()?.shared.state_soon()
    }
}

impl State {
    fn is_held(&self, port: &str) -> bool {
        self.holds.get(port).is_some_and(|hold| hold.since.is_some())
    }

    /// Hooks that have appeared and that the port bypasses without acknowledgement in the file.
    fn passed_by<'a>(&'a self, port: &'a Port) -> impl Iterator<Item = &'a Bypassed> {
        let passes = port.answer != Answer::Bypass && !self.is_held(&port.name);
        self.appeared.iter().filter(move |bypassed| passes && bypassed.port == port.name)
    }
}

impl Running {
    fn start(
        threads: &Threads,
        (clock, yields): (Clock, &Arc<Yields>),
        ports: Vec<Port>,
        state: State,
    ) -> std::io::Result<Self> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let cpus = cpus();
        let renewed = (0..=cpus.len()).map(|_| event()).collect::<Result<_, _>>()?;
        let (wake, end) = (event()?, event()?);
        let state = Mutex::new(state);
        let shared = Arc::new(Shared { state, yields: Arc::clone(yields), clock, wake, renewed, end });
        // Started before the first check, so that no change in between is missed.
        let listeners = match start(threads, &shared, &cpus) {
            Ok(listeners) => listeners,
            Err(error) => {
                tracing::warn!("the kernel does not report changes, so they are polled every 5 s: {error}");
                Vec::new()
            }
        };
        let watched = Arc::clone(&shared);
        let thread = threads.spawn("kernel-hooks", Loss::Repaired, move || watch(&watched))?;
        let threads = threads.clone();
        Ok(Self { shared, threads, thread: Some(thread), listeners, ports, not_before: Nanos(0) })
    }

    /// Replaces the ports, adds hooks that are known to be bypassed, and starts a new check.
    fn replace(&mut self, ports: Vec<Port>, bypassed: Vec<Bypassed>) {
        self.ports.clone_from(&ports);
        // If a lost thread holds the lock, its successor starts with these ports.
        let Some(mut state) = self.shared.state_soon() else { return };
        state.ports = ports;
        let known = &mut state.known.bypassed;
        let new = bypassed.into_iter().filter(|one| !known.contains(one)).collect::<Vec<_>>();
        known.extend(new);
        drop(state);
        self.shared.wake();
    }

    fn is_lost(&self) -> bool {
        let threads = self.thread.iter();
        threads.chain(&self.listeners).any(|thread| thread.status().is_lost())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        raise(&self.shared.end);
        // A lost thread is in the log.
        let threads = self.thread.take().into_iter();
        for thread in threads.chain(self.listeners.drain(..)) {
            let _: Option<()> = thread.join();
        }
    }
}

fn watch(shared: &Shared) {
    let mut pause = Nanos(0);
    while wait(&[&shared.end, &shared.wake], pause) != Some(0) {
        // Cleared first, so that a later notice is seen next time.
        let _: Result<usize, rustix::io::Errno> = rustix::io::read(&shared.wake, &mut [0; 8]);
        let begun = shared.clock.now();
        let due = look(shared);
        let least = Nanos(shared.clock.now().since(begun).0.saturating_mul(SHARE));
        if wait(&[&shared.end], least).is_some() {
            return;
        }
        pause = due.unwrap_or(EVERY.max(least));
    }
}

/// Waits until an event is readable, and returns its index, or `None` after `pause`.
fn wait(events: &[&OwnedFd], pause: Nanos) -> Option<usize> {
    let mut files = events.iter().map(|event| PollFd::new(event, PollFlags::IN)).collect::<Vec<_>>();
    let timeout = Timespec {
        tv_sec: i64::try_from(pause.0 / Nanos::SECOND.0).unwrap_or(1),
        tv_nsec: i64::try_from(pause.0 % Nanos::SECOND.0).unwrap_or(0),
    };
    // EINTR ends the wait early.
    let _: Result<usize, rustix::io::Errno> = poll(&mut files, Some(&timeout));
    files.iter().position(|file| !file.revents().is_empty())
}

/// Reads all hooks, logs changes, and updates which ports yield. Returns the time until the next check, if
/// one is needed without a notice.
fn look(shared: &Shared) -> Option<Nanos> {
    let ports = shared.state().ports.clone();
    // Read before the hooks, so that a later notice has a later generation.
    let (generation, hooks_heard) = (shared.yields.generation(), shared.yields.hooks());
    let found = hooks::inspect(&ports);
    let now = shared.clock.now();
    let mut state = shared.state();
    if state.ports != ports {
        return Some(Nanos(0));
    }
    if found.is_interrupted {
        return Some(Nanos(0));
    }
    if let Some(connections) = &shared.yields.words().connections {
        let pairs = found.each_packet.iter().map(|rule| rule.interfaces).collect::<Vec<_>>();
        connections.set_looked_at(&pairs);
    }
    shared.yields.set_clear(hooks_heard, found.obstacles.is_empty());
    let mut unread = found.unread.iter().filter(|text| !state.known.unread.contains(text));
    unread.by_ref().for_each(|text| tracing::warn!("{text}: bypassed rules there are unknown"));
    let answers = ports.iter().map(|port| (port, answer(port))).collect::<Vec<_>>();
    state.note(found, &answers);
    decide(&mut state, &shared.yields, (&answers, generation), now)
}

/// Updates which ports yield.
fn decide(
    state: &mut State,
    yields: &Yields,
    (answers, generation): (&Answers<'_>, u64),
    now: Nanos,
) -> Option<Nanos> {
    let words = yields.words();
    let (mut due, mut is_late) = (None::<Nanos>, false);
    for &(port, (answer, families)) in answers {
        let Some(of) = words.ports.iter().find(|of| of.name == port.name) else { continue };
        of.set_families(families);
        let hooks = state.known.bypassed.iter().filter(|bypassed| concerns(bypassed, &port.name, answers));
        let texts = hooks.map(Bypassed::text).collect::<Vec<_>>();
        let hold = state.holds.entry(port.name.clone()).or_default();
        let turn = match answer {
            Answer::Yield => hold.look(!texts.is_empty(), now),
            Answer::Decided | Answer::Bypass | Answer::GoOn(_) | Answer::Stop(_) => hold.give_up(now),
        };
        due = due.into_iter().chain(hold.due(now)).min();
        if !texts.is_empty() {
            // A hook that has gone is listed until the yield ends.
            state.because.insert(port.name.clone(), texts.clone());
        }
        if hold.since.is_some() {
            of.leave(YieldCause::Hook, generation);
        } else {
            is_late |= !of.take_back(turn, generation);
        }
        // A port with `decide = "kernel"` does not take packets back.
        let is_told = answer != Answer::Decided;
        state.events.extend(is_told.then(|| event(&port.name, turn, texts)).flatten());
    }
    if is_late { Some(Nanos(0)) } else { due }
}

impl State {
    /// Stores the findings, and logs changes.
    fn note(&mut self, found: Inspection, answers: &Answers<'_>) {
        let has = |list: &[Bypassed], one: &Bypassed| list.contains(one);
        let new = found.bypassed.iter().filter(|one| !has(&self.known.bypassed, one));
        let new = new.cloned().collect::<Vec<_>>();
        let gone = self.known.bypassed.iter().filter(|one| !has(&found.bypassed, one));
        let gone = gone.cloned().collect::<Vec<_>>();
        for bypassed in &new {
            let answer = answers.iter().find(|(port, _)| port.name == bypassed.port);
            self.events.extend(appeared(bypassed, answer.map(|(_, (answer, _))| *answer)));
        }
        self.events.extend(obstacles(&self.known.kept(), &found.kept()));
        let is_decided = |port: &str| {
            answers.iter().any(|(of, (answer, _))| of.name == port && *answer == Answer::Decided)
        };
        for bypassed in gone.into_iter().filter(|bypassed| !is_decided(&bypassed.port)) {
            let (port, hook) = (bypassed.port.clone(), bypassed.text());
            let was = if self.is_held(&port) { "" } else { " that was bypassed" };
            tracing::info!("port {port}: kernel hook{was} removed: {} {}", bypassed.by, bypassed.name);
            self.events.push(EventKind::HookGone { port, hook });
        }
        self.times += new.len() as u64;
        self.appeared.retain(|one| has(&found.bypassed, one));
        self.appeared.extend(new);
        self.known = found;
    }
}
