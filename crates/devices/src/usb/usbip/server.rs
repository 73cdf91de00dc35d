//! A USB/IP server for a model: one client at a time, in one thread with one wait for all events.

use super::answer::{DEVICE_ID, describe};
use super::message::{
    self, FLAG_ZERO_PACKET, HEADER_BYTES, Header, NAME_BYTES, REPLY_IMPORT, REPLY_LIST, REQUEST_IMPORT,
    REQUEST_LIST, SETUP_BYTES, SUBMIT, UNLINK,
};
use crate::usb::model::{Bench, Model};
use crate::usb::monotonic;
use crate::usb::{Setup, Urb, UrbBuffer};
use polder_datapath::port::Armed;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum bytes of one transfer; a client that requests more is refused.
const LONGEST_TRANSFER: usize = 1 << 20;
/// Maximum interval of an interrupt endpoint that Linux's `usb_submit_urb` accepts, in microframes.
const LONGEST_INTERVAL: u32 = 1 << 15;
/// Number of bytes that are read at a time.
const READ: usize = 256 * 1024;
/// Maximum sleep: other threads plan faults and unplug cables.
const NAP_NANOS: u64 = 5_000_000;

/// Reason why a server ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The system refused an operation.
    #[error("cannot {step} for USB/IP: {source}")]
    System {
        /// The operation that failed.
        step: &'static str,
        /// Error of the system.
        source: std::io::Error,
    },
}

fn failed<E: Into<std::io::Error>>(step: &'static str) -> impl FnOnce(E) -> ServerError {
    move |source| ServerError::System { step, source: source.into() }
}

/// Socket on which clients connect.
#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn accept(&self) -> std::io::Result<OwnedFd> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(stream.into())
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(stream.into())
            }
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// Exports one model to clients.
pub struct Server<M> {
    listener: Listener,
    bench: Arc<Mutex<Bench<M>>>,
    name: String,
    stop: Arc<OwnedFd>,
}

/// Ends a server from another thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<OwnedFd>);

impl Stopper {
    /// Makes [`Server::run`] return.
    pub fn stop(&self) {
        let written = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
        debug_assert!(written.is_ok(), "an event's counter takes far more than one stop");
    }
}

/// One client.
struct Session {
    stream: OwnedFd,
    /// Read buffer of one system call.
    incoming: Box<[u8]>,
    input: Vec<u8>,
    output: Vec<u8>,
    attached: bool,
    /// Sequence numbers of transfers, by the model's URB identifier.
    sequences: HashMap<u32, u32>,
    next_id: u32,
}

/// Progress of a session.
#[derive(PartialEq, Eq)]
enum Progress {
    GoesOn,
    Ended,
}

impl<M: Model> Server<M> {
    /// Creates a server on a TCP socket; the device's name is `name` (`1-1`).
    ///
    /// # Errors
    /// If the process may open no more files.
    pub fn tcp(
        listener: TcpListener,
        name: impl Into<String>,
        bench: Arc<Mutex<Bench<M>>>,
    ) -> Result<Self, ServerError> {
        listener.set_nonblocking(true).map_err(failed("prepare the socket"))?;
        Self::new(Listener::Tcp(listener), name.into(), bench)
    }

    /// Creates a server on a Unix socket; the device's name is `name` (`1-1`).
    ///
    /// # Errors
    /// If the process may open no more files.
    pub fn unix(
        listener: UnixListener,
        name: impl Into<String>,
        bench: Arc<Mutex<Bench<M>>>,
    ) -> Result<Self, ServerError> {
        listener.set_nonblocking(true).map_err(failed("prepare the socket"))?;
        Self::new(Listener::Unix(listener), name.into(), bench)
    }

    fn new(listener: Listener, name: String, bench: Arc<Mutex<Bench<M>>>) -> Result<Self, ServerError> {
        let stop = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(failed("create an event descriptor"))?;
        Ok(Self { listener, bench, name, stop: Arc::new(stop) })
    }

    /// Returns a handle that ends the server.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Serves one client after another until it is stopped. The device is plugged in anew for each client; if
    /// it is unplugged, the client's connection ends.
    ///
    /// # Errors
    /// If the system refuses to wait or to accept. Errors of clients are not reported.
    pub fn run(&self) -> Result<(), ServerError> {
        let mut session: Option<Session> = None;
        while !self.is_stopped() {
            let mut bench = self.lock();
            if let Some(active) = &mut session
                && active.exchange(&mut bench, &self.name) == Progress::Ended
            {
                session = None;
                bench.adapter.unplug();
                core::iter::from_fn(|| bench.adapter.complete()).for_each(drop);
            }
            let busy = bench.step(monotonic());
            let answers = session.as_mut().is_some_and(|active| active.answer(&mut bench.adapter));
            if busy || answers || bench.arm() == Armed::Raced {
                continue;
            }
            let timeout = bench.adapter.next_event().map(|due| due.since(monotonic()).0);
            self.wait(bench, session.as_ref(), timeout.unwrap_or(NAP_NANOS).min(NAP_NANOS))?;
            if session.is_none() {
                session = self.greet();
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Bench<M>> {
        self.bench.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a client, and plugs the device in for it.
    fn greet(&self) -> Option<Session> {
        let stream = self.listener.accept().ok()?;
        self.lock().adapter.plug();
        Some(Session::new(stream))
    }

    fn is_stopped(&self) -> bool {
        let mut look = [PollFd::new(&*self.stop, PollFlags::IN)];
        rustix::event::poll(&mut look, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
    }

    /// Sleeps until there is work, with the model unlocked.
    fn wait(
        &self,
        mut guard: MutexGuard<'_, Bench<M>>,
        session: Option<&Session>,
        timeout: u64,
    ) -> Result<(), ServerError> {
        let wire = guard.wire().and_then(|wire| wire.rx.event()?.try_clone_to_owned().ok());
        drop(guard);
        let mut look = vec![PollFd::new(&*self.stop, PollFlags::IN)];
        match session {
            Some(session) => {
                let output = if session.output.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                look.push(PollFd::new(&session.stream, PollFlags::IN | output));
            }
            None => look.push(PollFd::from_borrowed_fd(self.listener.descriptor(), PollFlags::IN)),
        }
        if let Some(wire) = &wire {
            look.push(PollFd::new(wire, PollFlags::IN));
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::try_from(timeout).unwrap_or(0) };
        match rustix::event::poll(&mut look, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(failed("wait")(error)),
        }
    }
}

impl Session {
    fn new(stream: OwnedFd) -> Self {
        Self {
            stream,
            incoming: vec![0; READ].into(),
            input: Vec::with_capacity(READ),
            output: Vec::new(),
            attached: false,
            sequences: HashMap::new(),
            next_id: 0,
        }
    }

    /// Reads received requests, and passes them to the model.
    fn exchange(&mut self, bench: &mut Bench<impl Model>, name: &str) -> Progress {
        if !bench.adapter.is_plugged() || self.read().is_err() {
            return Progress::Ended;
        }
        let mut used = 0;
        loop {
            let rest = &self.input[used..];
            let taken = if self.attached { transfer(rest) } else { Some(setup(rest)) };
            // The transfer is too long: the rest of the stream cannot be parsed.
            let Some(taken) = taken else { return Progress::Ended };
            let Some(length) = taken else { break };
            let message = self.input[used..used + length].to_vec();
            used += length;
            let goes_on = if self.attached {
                self.take_transfer(&message, &mut bench.adapter) == Progress::GoesOn
            } else {
                self.take_setup(&message, &bench.adapter, name)
            };
            if !goes_on {
                return Progress::Ended;
            }
        }
        self.input.drain(..used);
        Progress::GoesOn
    }

    fn read(&mut self) -> Result<(), Errno> {
        while self.input.len() <= READ + LONGEST_TRANSFER {
            match rustix::io::read(&self.stream, &mut self.incoming[..]) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(count) => self.input.extend_from_slice(&self.incoming[..count]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Handles a set-up message; returns `false` if the connection is to end.
    fn take_setup(&mut self, message: &[u8], adapter: &impl Model, name: &str) -> bool {
        let identity = adapter.identity();
        let device = describe(&identity, name);
        let code = u16::from_be_bytes([message[2], message[3]]);
        if code == REQUEST_LIST {
            self.output.extend(message::setup_head(REPLY_LIST, 0));
            self.output.extend(1_u32.to_be_bytes());
            self.output.extend(device);
            // Class, subclass and protocol, and a byte of padding.
            self.output.extend(
                identity
                    .interfaces
                    .iter()
                    .flat_map(|&[class, subclass, protocol]| [class, subclass, protocol, 0]),
            );
            return true;
        }
        let asked = &message[SETUP_BYTES..];
        let end = asked.iter().position(|&byte| byte == 0).unwrap_or(asked.len());
        let is_here = code == REQUEST_IMPORT && asked[..end] == *name.as_bytes();
        self.output.extend(message::setup_head(REPLY_IMPORT, u32::from(!is_here)));
        if is_here {
            self.output.extend(device);
            self.attached = true;
        }
        true
    }

    /// Passes a transfer to the model. A transfer that Linux's `usbip-host` refuses ends the session, as it
    /// does there.
    fn take_transfer(&mut self, message: &[u8], adapter: &mut impl Model) -> Progress {
        let Some(header) = message.first_chunk().map(Header::read) else { return Progress::Ended };
        if header.device != DEVICE_ID {
            return Progress::Ended;
        }
        if header.command == UNLINK {
            let id = self.sequences.iter().find(|&(_, &sequence)| sequence == header.words[0]);
            let cancelled = id.map(|(&id, _)| id).filter(|&id| adapter.cancel(id));
            if let Some(id) = cancelled {
                self.sequences.remove(&id);
            }
            self.output.extend(Header::unlinked(header.sequence, cancelled.is_some()).write());
            return Progress::GoesOn;
        }
        let [flags, _, _, _, interval] = header.words;
        let length = header.words[1] as usize;
        let is_in = header.direction == 1;
        let endpoint = u8::try_from(header.endpoint & 0xf).unwrap_or(0);
        let direction = if is_in && endpoint != 0 { Setup::IN } else { 0 };
        let is_interrupt = endpoint | direction == adapter.identity().interrupt;
        if is_interrupt && !(1..=LONGEST_INTERVAL).contains(&interval) {
            return Progress::Ended;
        }
        let mut buffer = UrbBuffer::heap(length);
        if !is_in {
            buffer.bytes_mut().copy_from_slice(&message[HEADER_BYTES..]);
        }
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        self.sequences.insert(id, header.sequence);
        let urb = Urb::new(id, endpoint | direction, Setup::read(header.setup), buffer, length);
        adapter.submit(Urb { interval, zero_packet: flags & FLAG_ZERO_PACKET != 0, ..urb });
        Progress::GoesOn
    }

    /// Sends completions; returns true if there were any.
    fn answer(&mut self, adapter: &mut impl Model) -> bool {
        let mut some = false;
        while let Some(done) = adapter.complete() {
            // Cancelled transfers have been answered already.
            let Some(sequence) = self.sequences.remove(&done.urb.id) else { continue };
            some = true;
            self.output.extend(Header::submitted(sequence, done.status, done.actual).write());
            if done.urb.is_in() && done.actual > 0 {
                // If the model reports more bytes than the buffer has, that many are sent all the same.
                self.output.extend_from_slice(done.received());
                let missing = done.actual - done.received().len();
                self.output.resize(self.output.len() + missing, 0);
            }
        }
        while !self.output.is_empty() {
            match rustix::net::send(&self.stream, &self.output, rustix::net::SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(Errno::INTR) => {}
                // Full, or gone: the next read finds out.
                Err(_) => break,
            }
        }
        some
    }
}

/// Returns the bytes of the complete set-up message at the start of `bytes`; `None` if it is incomplete.
fn setup(bytes: &[u8]) -> Option<usize> {
    let code = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    let length = SETUP_BYTES + if code == REQUEST_IMPORT { NAME_BYTES } else { 0 };
    (bytes.len() >= length).then_some(length)
}

/// Returns the bytes of the complete transfer at the start of `bytes`: `Some(None)` if it is incomplete,
/// `None` if it is unsupported.
fn transfer(bytes: &[u8]) -> Option<Option<usize>> {
    let Some(header) = bytes.first_chunk().map(Header::read) else { return Some(None) };
    if header.command == UNLINK {
        return Some(Some(HEADER_BYTES));
    }
    let length = header.words[1] as usize;
    if header.command != SUBMIT || length > LONGEST_TRANSFER {
        return None;
    }
    let data = if header.direction == 0 { length } else { 0 };
    let whole = HEADER_BYTES + data;
    Some((bytes.len() >= whole).then_some(whole))
}
