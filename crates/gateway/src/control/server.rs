//! Server thread of the control socket.
//!
//! One thread polls all connections without blocking, so a slow or incomplete client does not delay others.
//! Everything is limited: connections, the length of a request, the time of unread answers, the idle time. If
//! there is no room for a new connection, the longest idle one is closed, first one without a request. If the
//! system has no descriptor left, accepting pauses.

use super::socket::Claimed;
use super::{Ask, Fault, MAX_REQUEST, Request, Response, parse};
use crate::clock::Clock;
use crate::supervise::{Loss, Thread, Threads};
use polder_datapath::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;

/// Maximum number of connections; a further one replaces an idle one.
const MOST_CLIENTS: usize = 16;
/// Time limit for an idle connection, or one that does not read its answer.
const PATIENCE: Nanos = Nanos::from_seconds(60);
/// Time limit for the first request of a connection.
const FIRST_PATIENCE: Nanos = Nanos::from_seconds(5);
/// Pause in accepting after the system had no descriptor.
const BACK_OFF: Nanos = Nanos::from_millis(250);
/// Interval of the checks of time limits.
const LOOK: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// The server. Dropping it ends the thread and removes the socket.
#[derive(Debug)]
pub struct Server {
    stop: UnixStream,
    thread: Option<Thread<()>>,
}

impl Server {
    /// Serves connections to `claimed`: `answer` answers requests, and `take` gets connections whose answer
    /// is followed by a stream.
    ///
    /// # Errors
    /// When the system has no thread or descriptor left.
    pub fn start(
        (claimed, clock): (Claimed, Clock),
        threads: &Threads,
        answer: impl FnMut(Request) -> Response + Send + 'static,
        take: impl FnMut(Ask, UnixStream) + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        claimed.listener.set_nonblocking(true)?;
        let clients = Vec::with_capacity(MOST_CLIENTS);
        let refused_at = None;
        let mut service = Service { claimed, stopped, clock, answer, take, clients, refused_at };
        let thread = threads.spawn("control", Loss::Ends, move || service.run())?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The thread sees the end of file.
        let _: io::Result<()> = self.stop.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take()
            && thread.join().is_none()
        {
            tracing::error!("the control socket's thread has panicked");
        }
    }
}

struct Service<A, C> {
    claimed: Claimed,
    stopped: UnixStream,
    clock: Clock,
    answer: A,
    take: C,
    clients: Vec<Client>,
    /// Time at which the system had no descriptor for a connection.
    refused_at: Option<Nanos>,
}

/// A connection.
struct Client {
    stream: UnixStream,
    /// Received part of a request.
    request: Vec<u8>,
    /// Unsent part of an answer.
    answer: Vec<u8>,
    sent: usize,
    /// A request whose answer is followed by a stream; `take` gets the connection.
    taken: Option<Ask>,
    heard_at: Nanos,
    /// True if it has received an answer.
    has_asked: bool,
    /// True if it is closed once its answer is sent.
    ending: bool,
}

/// Fate of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    GoesOn,
    Ends,
}

impl<A: FnMut(Request) -> Response, C: FnMut(Ask, UnixStream)> Service<A, C> {
    fn run(&mut self) {
        while let Some((accept, ready)) = self.wait() {
            let now = self.clock.now();
            let Self { clients, answer, .. } = self;
            let mut ready = ready.into_iter();
            clients.retain_mut(|client| {
                let ready = ready.next().unwrap_or(false);
                client.turn(ready, now, answer) == Fate::GoesOn
            });
            self.give_away();
            if accept {
                self.accept(now);
            }
        }
    }

    /// Passes connections whose answer is followed by a stream to `take`.
    fn give_away(&mut self) {
        for client in self.clients.extract_if(.., |client| client.taken.is_some()) {
            if let Some(ask) = client.taken {
                (self.take)(ask, client.stream);
            }
        }
    }

    /// Waits for events. Returns true if a connection can be accepted, and which clients are ready; `None` at
    /// the end.
    fn wait(&self) -> Option<(bool, Vec<bool>)> {
        let mut files = vec![PollFd::new(&self.stopped, PollFlags::IN)];
        files.extend(self.clients.iter().map(|client| PollFd::new(&client.stream, client.interest())));
        let pause = self.back_off();
        if pause == Nanos(0) {
            files.push(PollFd::new(&self.claimed.listener, PollFlags::IN));
        }
        let back_off = Timespec { tv_sec: 0, tv_nsec: i64::try_from(pause.0).unwrap_or(0) };
        let limit = if pause == Nanos(0) { LOOK } else { back_off };
        if let Err(errno) = poll(&mut files, Some(&limit))
            && errno != rustix::io::Errno::INTR
        {
            tracing::error!(%errno, "cannot poll the control socket; it is closed");
            return None;
        }
        let mut ready = files.iter().map(|file| !file.revents().is_empty()).collect::<Vec<_>>();
        let accept = pause == Nanos(0) && ready.pop().unwrap_or(false);
        let stopped = ready.remove(0);
        (!stopped).then_some((accept, ready))
    }

    fn accept(&mut self, now: Nanos) {
        // One connection each turn.
        let stream = match self.claimed.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => return self.refused(&error, now),
        };
        self.refused_at = None;
        self.make_room();
        if stream.set_nonblocking(true).is_ok() {
            let (request, answer) = (Vec::new(), Vec::new());
            self.clients.push(Client {
                stream,
                request,
                answer,
                sent: 0,
                taken: None,
                heard_at: now,
                has_asked: false,
                ending: false,
            });
        }
    }
}

impl<A, C> Service<A, C> {
    /// Remaining pause in accepting.
    fn back_off(&self) -> Nanos {
        let since = self.refused_at.map(|at| self.clock.now().since(at));
        since.map_or(Nanos(0), |since| BACK_OFF.since(since))
    }

    /// Handles an error of accept(2). Without descriptors or memory, the connection stays queued, so
    /// accepting pauses.
    fn refused(&mut self, error: &io::Error, now: Nanos) {
        use rustix::io::Errno;
        let short = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
        if !Errno::from_io_error(error).is_some_and(|errno| short.contains(&errno)) {
            return;
        }
        if self.refused_at.is_none() {
            tracing::warn!(%error, "the control socket cannot accept a connection; the gateway tries again");
        }
        self.refused_at = Some(now);
    }

    /// Closes the longest idle connection if there is no room for another one.
    fn make_room(&mut self) {
        if self.clients.len() < MOST_CLIENTS {
            return;
        }
        let silent = self.clients.iter().enumerate();
        let silent = silent.min_by_key(|(_, client)| (client.has_asked, client.heard_at)).map(|(at, _)| at);
        silent.map(|at| self.clients.remove(at));
    }
}

impl Client {
    fn interest(&self) -> PollFlags {
        // A request that is complete already is answered once the previous answer is sent.
        if self.answer.is_empty() && !self.has_request() { PollFlags::IN } else { PollFlags::OUT }
    }

    fn has_request(&self) -> bool {
        self.request.contains(&b'\n')
    }

    fn turn(&mut self, ready: bool, now: Nanos, answer: &mut impl FnMut(Request) -> Response) -> Fate {
        if !ready {
            let patience = if self.has_asked { PATIENCE } else { FIRST_PATIENCE };
            let patient = now.since(self.heard_at) < patience;
            return if patient { Fate::GoesOn } else { Fate::Ends };
        }
        self.heard_at = now;
        let step = match (self.answer.is_empty(), self.has_request()) {
            (false, _) => self.write(),
            (true, true) => self.respond(answer),
            (true, false) => self.read(answer),
        };
        match step {
            Ok(fate) => fate,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Fate::GoesOn
            }
            Err(_) => Fate::Ends,
        }
    }

    fn read(&mut self, answer: &mut impl FnMut(Request) -> Response) -> io::Result<Fate> {
        let mut bytes = [0; 4096];
        let count = self.stream.read(&mut bytes)?;
        if count == 0 {
            return Ok(Fate::Ends);
        }
        self.request.extend_from_slice(&bytes[..count]);
        self.respond(answer)
    }

    /// Answers the first complete request, if there is one.
    fn respond(&mut self, answer: &mut impl FnMut(Request) -> Response) -> io::Result<Fate> {
        let Some(end) = self.request.iter().position(|&byte| byte == b'\n') else {
            if self.request.len() < MAX_REQUEST {
                return Ok(Fate::GoesOn);
            }
            self.ending = true;
            let message = format!("a request must have at most {MAX_REQUEST} bytes and end with a newline");
            return self.send(&Response::refuse(Fault::Request, message));
        };
        let line = self.request.drain(..=end).collect::<Vec<_>>();
        match parse(&line) {
            Ok(Request { ask: ask @ (Ask::Capture(_) | Ask::HandOver(_)), .. }) => {
                self.taken = Some(ask);
                Ok(Fate::GoesOn)
            }
            Ok(request) => self.send(&answer(request)),
            Err(refusal) => self.send(&refusal),
        }
    }

    fn send(&mut self, response: &Response) -> io::Result<Fate> {
        self.answer = serde_json::to_vec(response).map_err(io::Error::other)?;
        self.answer.push(b'\n');
        self.write()
    }

    fn write(&mut self) -> io::Result<Fate> {
        while self.sent < self.answer.len() {
            match self.stream.write(&self.answer[self.sent..])? {
                0 => return Ok(Fate::Ends),
                count => self.sent += count,
            }
        }
        self.answer = Vec::new();
        self.sent = 0;
        self.has_asked = true;
        Ok(if self.ending { Fate::Ends } else { Fate::GoesOn })
    }
}

#[cfg(test)]
mod tests {
    use super::super::socket::claim;
    use super::super::{Answer, Refusal, Reloaded};
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::path::PathBuf;
    use std::time::Duration;

    struct Bench {
        server: Option<Server>,
        path: PathBuf,
    }

    /// A server whose answers to reloads are `size` bytes long, and more.
    fn bench(name: &str, size: usize) -> Bench {
        let name = format!("polder-server-{name}-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let answer = move |_: Request| {
            let changes = vec!["x".repeat(size)];
            let (warnings, confirm) = (String::new(), None);
            Response::new(Answer::Reloaded(Reloaded { applied: true, changes, warnings, confirm }))
        };
        let server =
            Server::start((claim(&path).unwrap(), Clock::start()), &Threads::default(), answer, |_, _| {})
                .unwrap();
        Bench { server: Some(server), path }
    }

    impl Bench {
        fn connect(&self) -> BufReader<UnixStream> {
            let stream = UnixStream::connect(&self.path).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            BufReader::new(stream)
        }
    }

    const RELOAD: &[u8] = b"{\"polder\":1,\"ask\":\"reload\"}\n";

    fn answer(client: &mut BufReader<UnixStream>) -> Response {
        let mut line = String::new();
        client.read_line(&mut line).unwrap();
        serde_json::from_str(&line).expect(&line)
    }

    fn is_reloaded(response: &Response) -> bool {
        matches!(response.answer, Answer::Reloaded(_))
    }

    #[test]
    fn requests_of_one_connection_are_answered_in_order() {
        let bench = bench("order", 1);
        let mut client = bench.connect();
        let requests = [RELOAD, b"nonsense\n", RELOAD].concat();
        // In pieces that are no lines.
        for piece in requests.chunks(7) {
            client.get_mut().write_all(piece).unwrap();
        }
        assert!(is_reloaded(&answer(&mut client)));
        assert!(matches!(answer(&mut client).answer, Answer::Error(Refusal { kind: Fault::Request, .. })));
        assert!(is_reloaded(&answer(&mut client)));
    }

    #[test]
    fn a_client_that_does_not_read_disturbs_nobody() {
        let bench = bench("lazy", 4 << 20);
        let mut lazy = bench.connect();
        lazy.get_mut().write_all(RELOAD).unwrap();
        for _ in 0..3 {
            let mut client = bench.connect();
            client.get_mut().write_all(RELOAD).unwrap();
            assert!(is_reloaded(&answer(&mut client)));
        }
        assert!(is_reloaded(&answer(&mut lazy)));
    }

    #[test]
    fn a_line_without_end_is_refused_and_the_connection_ends() {
        let bench = bench("endless", 1);
        let mut client = bench.connect();
        // The server may close before all of it is written.
        let _: io::Result<()> = client.get_mut().write_all(&[b'a'; MAX_REQUEST]);
        assert!(matches!(answer(&mut client).answer, Answer::Error(_)));
        assert_eq!(client.read_line(&mut String::new()).unwrap_or(0), 0);
    }

    #[test]
    fn silent_clients_make_room_for_one_that_asks() {
        let bench = bench("many", 1);
        let mut asked = bench.connect();
        asked.get_mut().write_all(RELOAD).unwrap();
        assert!(is_reloaded(&answer(&mut asked)));
        let silent = (0..2 * MOST_CLIENTS).map(|_| bench.connect()).collect::<Vec<_>>();
        let mut late = bench.connect();
        late.get_mut().write_all(RELOAD).unwrap();
        assert!(is_reloaded(&answer(&mut late)));
        // One that has asked stays for longer than those that have not.
        asked.get_mut().write_all(RELOAD).unwrap();
        assert!(is_reloaded(&answer(&mut asked)));
        drop(silent);
    }

    #[test]
    fn the_end_of_the_server_is_prompt_and_takes_the_socket_away() {
        let mut bench = bench("end", 1);
        let _client = bench.connect();
        drop(bench.server.take());
        assert!(!bench.path.exists());
    }
}
