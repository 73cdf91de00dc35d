//! Metrics threads: the server accepts connections and answers, the collector reads the gateway.
//!
//! The server thread polls all connections without blocking. Everything is limited: connections, request
//! length, time of a connection. A further connection replaces the oldest one, first one without a complete
//! request. Requests that arrive during a collection get its result, so a thousand scrapes cost one
//! collection.

use super::Rows;
use super::http::{self, Code, Method, OPENMETRICS, Page, Parsed};
use super::listen::Bound;
use crate::clock::Clock;
use crate::sandbox::{self, Role};
use crate::supervise::{Loss, Thread, Threads};
use polder_datapath::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Maximum number of connections.
const MOST_CLIENTS: usize = 16;
/// Maximum time of a connection.
const PATIENCE: Nanos = Nanos::from_seconds(10);
/// Time limit for the collector's answer.
const SILENCE: Nanos = Nanos::from_seconds(5);
/// Time for which a collection is reused.
const FRESH: Nanos = Nanos::from_millis(100);
/// Pause in accepting after the system had no descriptor.
const BACK_OFF: Nanos = Nanos::from_millis(250);
/// Interval of the checks of time limits.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// State of a gateway at one time.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// Rows of the metrics.
    pub rows: Rows,
    /// Reasons why the gateway is unhealthy, a sentence each.
    pub unhealthy: Vec<String>,
}

/// Texts that answers are built from.
#[derive(Debug)]
struct Texts {
    exposition: Arc<[u8]>,
    unhealthy: Vec<String>,
    not_ready: Vec<String>,
    at: Nanos,
}

/// The metrics server. Dropping it ends its threads and removes the socket.
#[derive(Debug)]
pub struct Server {
    stop: UnixStream,
    threads: Vec<Thread<()>>,
    /// Dropped after the threads have ended, because the confined server thread may not remove a path.
    _bound: Arc<Bound>,
}

impl Server {
    /// Serves connections to `bound`, with rows from `collect`.
    ///
    /// # Errors
    /// When the system has no thread or descriptor left.
    pub fn start(
        (bound, clock): (Bound, Clock),
        threads: &Threads,
        collect: impl FnMut() -> Collected + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let bound = Arc::new(bound);
        let (bell, rung) = UnixStream::pair()?;
        rung.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        let (ask, asked) = channel();
        let (tell, told) = channel();
        let mut collector = Collector { asked, tell, bell, clock, collect };
        let collector = threads.spawn("metrics-rows", Loss::Repaired, move || collector.run())?;
        let collector_client =
            CollectorClient { ask, told, rung, is_asked: false, asked_at: Nanos(0), latest: None };
        let mut service = Service {
            bound: Arc::clone(&bound),
            stopped,
            clock,
            collector: collector_client,
            clients: Vec::with_capacity(MOST_CLIENTS),
            refused_at: None,
        };
        let server = threads.spawn("metrics", Loss::Repaired, move || {
            sandbox::enter(Role::Metrics);
            service.run();
        })?;
        Ok(Self { stop, threads: vec![server, collector], _bound: bound })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server thread sees the end of file, and the collector the closed channel.
        let _: io::Result<()> = self.stop.shutdown(std::net::Shutdown::Both);
        for thread in self.threads.drain(..) {
            if thread.join().is_none() {
                tracing::error!("a metrics thread has panicked");
            }
        }
    }
}

/// The thread that reads the gateway.
struct Collector<C> {
    asked: Receiver<()>,
    tell: Sender<Texts>,
    bell: UnixStream,
    clock: Clock,
    collect: C,
}

impl<C: FnMut() -> Collected> Collector<C> {
    fn run(&mut self) {
        while self.asked.recv().is_ok() {
            let Collected { rows, unhealthy } = (self.collect)();
            let not_ready = rows.state.not_ready.clone();
            let exposition = rows.expose().into_bytes().into();
            let texts = Texts { exposition, unhealthy, not_ready, at: self.clock.now() };
            if self.tell.send(texts).is_err() {
                return;
            }
            // A full socket is readable already.
            let _ = rustix::io::write(&self.bell, &[1]);
        }
    }
}

/// The server thread's connection to the collector.
struct CollectorClient {
    ask: Sender<()>,
    told: Receiver<Texts>,
    rung: UnixStream,
    is_asked: bool,
    asked_at: Nanos,
    latest: Option<Texts>,
}

impl CollectorClient {
    /// Reads the collector's answers.
    fn hear(&mut self) {
        let _ = rustix::io::read(&self.rung, &mut [0; 16]);
        while let Ok(texts) = self.told.try_recv() {
            (self.latest, self.is_asked) = (Some(texts), false);
        }
    }

    /// Texts of the gateway's state if they are fresh; otherwise asks the collector.
    fn state(&mut self, now: Nanos) -> Option<&Texts> {
        let is_fresh = self.latest.as_ref().is_some_and(|texts| now.since(texts.at) < FRESH);
        if !is_fresh && !self.is_asked {
            // If the collector is lost, clients get an error after the time limit.
            let _ = self.ask.send(());
            (self.is_asked, self.asked_at) = (true, now);
        }
        self.latest.as_ref().filter(|_| is_fresh)
    }

    /// True if the collector has not answered in time.
    fn is_silent(&self, now: Nanos) -> bool {
        self.is_asked && now.since(self.asked_at) >= SILENCE
    }
}

struct Service {
    bound: Arc<Bound>,
    stopped: UnixStream,
    clock: Clock,
    collector: CollectorClient,
    clients: Vec<Client>,
    /// Time at which the system had no descriptor for a connection.
    refused_at: Option<Nanos>,
}

/// A connection.
struct Client {
    socket: OwnedFd,
    opened_at: Nanos,
    step: Step,
}

/// Progress of a connection.
enum Step {
    /// Reads the request; has the bytes so far.
    Reads(Vec<u8>),
    /// Waits for the collector.
    Waits(Page, Method),
    /// Sends the answer; `sent` bytes are sent.
    Writes { head: Vec<u8>, body: Arc<[u8]>, sent: usize },
    /// The answer is sent; further bytes of the client are discarded, so that no reset overtakes the answer.
    Drains,
}

/// Fate of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    GoesOn,
    Ends,
}

impl Service {
    fn run(&mut self) {
        while let Some((accepts, ready)) = self.wait() {
            let now = self.clock.now();
            self.collector.hear();
            let Self { clients, collector, .. } = self;
            let mut ready = ready.into_iter();
            clients.retain_mut(|client| {
                let ready = ready.next().unwrap_or(false);
                client.turn(ready, now, collector) == Fate::GoesOn
            });
            if accepts {
                self.accept(now);
            }
        }
    }

    /// Waits for a connection, a ready client or the collector. `None` at the end.
    fn wait(&self) -> Option<(bool, Vec<bool>)> {
        let mut files =
            vec![PollFd::new(&self.stopped, PollFlags::IN), PollFd::new(&self.collector.rung, PollFlags::IN)];
        files.extend(self.clients.iter().map(|client| PollFd::new(&client.socket, client.interest())));
        let accepts = self.refused_at.is_none_or(|at| self.clock.now().since(at) >= BACK_OFF);
        if accepts {
            files.push(PollFd::new(&*self.bound, PollFlags::IN));
        }
        // No time limit is needed without clients.
        let limit = (!self.clients.is_empty() || !accepts).then_some(LOOK);
        if let Err(errno) = poll(&mut files, limit.as_ref())
            && errno != Errno::INTR
        {
            tracing::error!(%errno, "cannot poll the metrics sockets; they are closed");
            return None;
        }
        let mut ready = files.iter().map(|file| !file.revents().is_empty()).collect::<Vec<_>>();
        let accepts = accepts && ready.pop().unwrap_or(false);
        let is_stopped = ready.first().copied().unwrap_or(true);
        (!is_stopped).then(|| (accepts, ready.split_off(2)))
    }

    /// Accepts one connection each turn.
    fn accept(&mut self, now: Nanos) {
        let socket = match self.bound.accept() {
            Ok(socket) => socket,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                self.refused_at = Some(now);
                return;
            }
            Err(_) => return,
        };
        self.refused_at = None;
        if self.clients.len() >= MOST_CLIENTS {
            let has_asked = |client: &Client| !matches!(client.step, Step::Reads(_));
            let oldest = self.clients.iter().enumerate();
            let oldest = oldest.min_by_key(|(_, client)| (has_asked(client), client.opened_at));
            oldest.map(|(at, _)| at).map(|at| self.clients.remove(at));
        }
        self.clients.push(Client { socket, opened_at: now, step: Step::Reads(Vec::new()) });
    }
}

impl Client {
    fn interest(&self) -> PollFlags {
        match self.step {
            Step::Reads(_) | Step::Drains => PollFlags::IN,
            // poll(2) reports a closed connection without being asked.
            Step::Waits(..) => PollFlags::empty(),
            Step::Writes { .. } => PollFlags::OUT,
        }
    }

    fn turn(&mut self, ready: bool, now: Nanos, collector: &mut CollectorClient) -> Fate {
        if now.since(self.opened_at) >= PATIENCE {
            return Fate::Ends;
        }
        let outcome = match &self.step {
            Step::Waits(page, method) if !ready => {
                self.answer(*page, *method, now, collector);
                Ok(Fate::GoesOn)
            }
            // A waiting client only becomes ready when it closes.
            Step::Waits(..) => Ok(Fate::Ends),
            Step::Reads(_) | Step::Writes { .. } | Step::Drains if !ready => Ok(Fate::GoesOn),
            Step::Reads(_) => self.read(now, collector),
            Step::Writes { .. } => self.write(),
            Step::Drains => self.drain(),
        };
        match outcome {
            Ok(fate) => fate,
            Err(Errno::AGAIN | Errno::INTR) => Fate::GoesOn,
            Err(_) => Fate::Ends,
        }
    }

    fn read(&mut self, now: Nanos, collector: &mut CollectorClient) -> rustix::io::Result<Fate> {
        let Step::Reads(request) = &mut self.step else { return Ok(Fate::GoesOn) };
        let mut bytes = [0; 2048];
        let room = (http::MAX_REQUEST - request.len()).min(bytes.len());
        let (count, _) = recv(&self.socket, &mut bytes[..room], RecvFlags::empty())?;
        if count == 0 {
            return Ok(Fate::Ends);
        }
        request.extend_from_slice(&bytes[..count]);
        match http::parse(request) {
            Parsed::Partial => {}
            Parsed::Refused(code) => self.say(http::refusal(code)),
            Parsed::Asks(Page::Index, method) => self.say(http::text(Code::Ok, method, http::INDEX)),
            Parsed::Asks(page, method) => self.answer(page, method, now, collector),
        }
        Ok(Fate::GoesOn)
    }

    /// Answers from the gateway's state, or waits for the collector.
    fn answer(&mut self, page: Page, method: Method, now: Nanos, collector: &mut CollectorClient) {
        if collector.is_silent(now) {
            let body = format!("the gateway has not answered for {} s\n", SILENCE.0 / Nanos::SECOND.0);
            return self.say(http::text(Code::Unavailable, method, &body));
        }
        let Some(texts) = collector.state(now) else {
            self.step = Step::Waits(page, method);
            return;
        };
        match page {
            Page::Metrics => {
                let head = http::head(Code::Ok, OPENMETRICS, texts.exposition.len()).into_bytes();
                let body = if method == Method::Get { Arc::clone(&texts.exposition) } else { Arc::new([]) };
                self.step = Step::Writes { head, body, sent: 0 };
            }
            Page::Health => self.say(verdict(&texts.unhealthy, method)),
            Page::Ready => {
                let reasons = [&texts.unhealthy[..], &texts.not_ready].concat();
                self.say(verdict(&reasons, method));
            }
            Page::Index => self.say(http::text(Code::Ok, method, http::INDEX)),
        }
    }

    fn say(&mut self, head: Vec<u8>) {
        self.step = Step::Writes { head, body: Arc::new([]), sent: 0 };
    }

    fn write(&mut self) -> rustix::io::Result<Fate> {
        let Step::Writes { head, body, sent } = &mut self.step else { return Ok(Fate::GoesOn) };
        loop {
            let rest = if *sent < head.len() { &head[*sent..] } else { &body[*sent - head.len()..] };
            if rest.is_empty() {
                shutdown(&self.socket, Shutdown::Write)?;
                self.step = Step::Drains;
                return Ok(Fate::GoesOn);
            }
            *sent += send(&self.socket, rest, SendFlags::NOSIGNAL)?;
        }
    }
}

impl Client {
    fn drain(&self) -> rustix::io::Result<Fate> {
        let (count, _) = recv(&self.socket, &mut [0; 2048], RecvFlags::empty())?;
        Ok(if count == 0 { Fate::Ends } else { Fate::GoesOn })
    }
}

fn verdict(reasons: &[String], method: Method) -> Vec<u8> {
    if reasons.is_empty() {
        return http::text(Code::Ok, method, "ok\n");
    }
    http::text(Code::Unavailable, method, &format!("{}\n", reasons.join("\n")))
}
