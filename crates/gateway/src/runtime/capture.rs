//! Captures of a running gateway: a tap in each worker, and one thread for each capture that writes the file.

use super::copies::CopyReader;
use super::gateway::Gateway;
use super::shared::{SharedGateway, lock};
use crate::capture::pcapng::{self, Direction, PacketBlock, Totals};
use crate::capture::{CaptureRequest, from_digits};
use crate::clock::Clock;
use crate::control::{Answer, Capturing, Fault, Refusal, Response};
use crate::sandbox::{self, Role};
use crate::supervise::{Loss, Thread};
use polder_datapath::capture::{
    CHUNK_BYTES, CapturePoint, CapturePoints, CapturedPacket, Program, TapOptions, TapReader, tap,
};
use polder_datapath::units::Nanos;
use polder_devices::skb::Copy;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Maximum number of concurrent captures.
const MOST: usize = 8;
/// Size of the buffer between one worker and the capture's thread, in bytes.
const MEMORY: usize = 4 << 20;
/// Maximum number of captured bytes of a packet: 65,535 with an Ethernet header and a tag.
const LONGEST: u32 = 65_535 + 18;
/// Time for which the writer sleeps when the taps are empty.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// Time for which the writer of a capture without taps sleeps; copies wake it earlier.
const LONG_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Time limit for workers to install or remove a tap, which they do between two batches.
const PATIENCE: Nanos = Nanos::from_seconds(2);
/// Time after which a blocked write checks whether the capture is ending.
const WRITE_PATIENCE: Duration = Duration::from_millis(250);
/// Interval at which the workers' taps are polled for begin and end.
const LOOK: Duration = Duration::from_millis(1);

/// All running captures.
#[derive(Default)]
pub(super) struct Captures {
    running: Mutex<Vec<Running>>,
    next: AtomicU64,
}

struct Running {
    capture: u64,
    stream: UnixStream,
    is_ending: Arc<AtomicBool>,
    thread: Thread<()>,
}

/// Stream to a client that may stop reading for any time until the gateway ends.
struct Patient {
    stream: UnixStream,
    is_ending: Arc<AtomicBool>,
}

impl Patient {
    fn new(stream: UnixStream, is_ending: Arc<AtomicBool>) -> io::Result<Self> {
        stream.set_write_timeout(Some(WRITE_PATIENCE))?;
        Ok(Self { stream, is_ending })
    }
}

impl io::Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.stream.write(bytes) {
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock
                        && !self.is_ending.load(Ordering::Relaxed) => {}
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Writer of one capture, with its client.
struct Writer {
    gateway: SharedGateway,
    capture: u64,
    readers: Vec<TapReader>,
    /// Copies of the packets of a port whose packets the kernel forwards.
    copies: Option<CopyReader>,
    /// True if the workers have taps for this capture.
    has_taps: bool,
    file: BufWriter<Patient>,
    /// Difference between the gateway's clock and Unix time, in nanoseconds.
    offset: u64,
    /// Maximum number of captured bytes of a packet.
    longest: u32,
    left: u64,
}

impl Captures {
    /// Starts a capture, or sends the reason for refusing it to `stream`.
    pub(super) fn begin(&self, gateway: &SharedGateway, request: &CaptureRequest, mut stream: UnixStream) {
        if let Err(refusal) = self.try_begin(gateway, request, &stream) {
            // The client may have closed the stream.
            let _: io::Result<()> = say(&mut stream, Answer::Error(refusal));
        }
    }

    /// Ends captures whose thread was lost: removes their taps and closes the client's stream.
    pub(super) fn look(&self, gateway: &SharedGateway) {
        // A capture is being started; the next call does this.
        let Ok(mut running) = self.running.try_lock() else { return };
        for Running { capture, stream, .. } in running.extract_if(.., |it| it.thread.status().is_lost()) {
            lock(gateway).untap(capture);
            // The client may have closed the stream already.
            let _: io::Result<()> = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    fn try_begin(
        &self,
        gateway: &SharedGateway,
        request: &CaptureRequest,
        stream: &UnixStream,
    ) -> Result<(), Refusal> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|capture| !capture.thread.is_over());
        if running.len() >= MOST {
            return Err(refusal(Fault::Runtime, format!("{MOST} captures are running: stop one of them")));
        }
        let instructions = from_digits(&request.program).ok_or_else(|| {
            refusal(Fault::Request, "the format of the filter program is unknown to this gateway".to_owned())
        })?;
        let program =
            Program::load(&instructions).map_err(|error| refusal(Fault::Request, error.to_string()))?;
        let system = |error: io::Error| refusal(Fault::Runtime, format!("cannot begin a capture: {error}"));
        stream.set_nonblocking(false).map_err(system)?;
        let (mut own, other) = (stream.try_clone().map_err(system)?, stream.try_clone().map_err(system)?);
        let capture = self.next.fetch_add(1, Ordering::Relaxed);
        let mut locked = lock(gateway);
        let port =
            locked.configuration.id_of(&request.port).ok_or_else(|| no_port(&locked, &request.port))?;
        say(&mut own, Answer::Capturing(Capturing {})).map_err(system)?;
        let is_ending = Arc::new(AtomicBool::new(false));
        let own = Patient::new(own, Arc::clone(&is_ending)).map_err(system)?;
        let offset = since_1970().saturating_sub(locked.clock.now().0);
        let program = Arc::new(program);
        let longest = request.longest.min(LONGEST);
        let mut places = CapturePoints { rx: request.rx, tx: request.tx, drops: request.drops };
        let copies = locked.begin_capture(capture, port, (&program, longest, places));
        let copies = copies.map(CopyReader::new);
        if copies.is_some() {
            (places.rx, places.tx) = (false, false);
        }
        let options =
            TapOptions { capture, port, places, program, longest, chunks: MEMORY / CHUNK_BYTES, worker: 0 };
        let readers = begin_taps(&locked, &options);
        let threads = locked.threads.clone();
        drop(locked);
        let writer = Writer {
            gateway: Arc::clone(gateway),
            capture,
            readers,
            copies,
            has_taps: places.rx || places.tx || places.drops,
            file: BufWriter::with_capacity(1 << 16, own),
            offset,
            longest,
            left: request.count.unwrap_or(u64::MAX),
        };
        let name = request.port.clone();
        let thread = threads.spawn("capture", Loss::Repaired, move || {
            sandbox::enter(Role::Capture);
            let mut writer = writer;
            if let Err(error) = writer.run(&name) {
                tracing::debug!(%error, "the capture has ended");
            }
            writer.close();
        });
        let thread = thread.map_err(|error| {
            lock(gateway).untap(capture);
            system(error)
        })?;
        running.push(Running { capture, stream: other, is_ending, thread });
        Ok(())
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner);
        for Running { stream, is_ending, thread, .. } in running.drain(..) {
            is_ending.store(true, Ordering::Relaxed);
            // The thread sees an end of file, as if the client had ended the capture.
            let _: io::Result<()> = stream.shutdown(std::net::Shutdown::Read);
            if thread.join().is_none() {
                tracing::error!("a capture thread has panicked");
            }
        }
    }
}

fn refusal(kind: Fault, message: String) -> Refusal {
    Refusal { kind, message, brief: None }
}

fn no_port(gateway: &Gateway, name: &str) -> Refusal {
    let names = gateway.configuration.names().map(|(_, name)| name).collect::<Vec<_>>().join(", ");
    refusal(Fault::Request, format!("there is no port or tunnel {name}; there are {names}"))
}

fn say(stream: &mut UnixStream, answer: Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Response::new(answer)).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Puts a tap into every worker and returns the readers.
fn begin_taps(gateway: &Gateway, options: &TapOptions) -> Vec<TapReader> {
    let begin = |worker: usize| {
        let worker_number = u16::try_from(worker).unwrap_or(u16::MAX);
        let (tap, reader) = tap(TapOptions { worker: worker_number, ..options.clone() });
        gateway.tap(worker, tap);
        reader
    };
    (0..gateway.workers.len()).map(begin).collect()
}

impl Writer {
    /// Writes packets until the requested number is reached or the client closes its side.
    fn run(&mut self, interface: &str) -> io::Result<()> {
        // A client that has read the file's header may rely on every worker capturing.
        self.wait_for_workers(TapReader::has_begun);
        pcapng::begin(&mut self.file, interface, self.longest)?;
        self.file.flush()?;
        while self.left > 0 {
            if self.drain()? > 0 {
                continue;
            }
            // Flushed at once, so that a live viewer sees packets without delay.
            self.file.flush()?;
            let is_over = self.copies.as_ref().is_some_and(CopyReader::has_ended);
            if is_over || self.has_ended()? || self.readers.iter().all(TapReader::has_ended) {
                break;
            }
        }
        if let Some(copies) = &mut self.copies {
            copies.stop();
        }
        self.untap();
        self.wait_for_workers(TapReader::has_ended);
        while self.drain()? > 0 {}
        let totals = self.totals();
        pcapng::end(&mut self.file, since_1970(), totals)?;
        self.file.flush()
    }

    /// Waits until `holds` is true for all workers, at most [`PATIENCE`].
    fn wait_for_workers(&self, holds: impl Fn(&TapReader) -> bool) {
        let clock = Clock::start();
        while !self.readers.iter().all(&holds) && clock.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
        }
    }

    fn totals(&self) -> Totals {
        let mut totals = self.copies.as_ref().map(CopyReader::totals).unwrap_or_default();
        for counters in self.readers.iter().map(TapReader::counters) {
            totals.asked += counters.asked.get();
            totals.matched += counters.matched.get();
            totals.lost += counters.lost.get();
        }
        totals
    }

    /// Writes queued packets. Returns their number.
    fn drain(&mut self) -> io::Result<usize> {
        let Self { readers, copies, file, offset, left, .. } = self;
        let mut is_enough = || {
            let is_enough = *left == 0;
            *left = left.saturating_sub(1);
            is_enough
        };
        let mut count = 0;
        for reader in readers {
            count += reader.read(|seen, bytes| match is_enough() {
                true => Ok(()),
                false => write(file, seen, bytes, *offset),
            })?;
        }
        if let Some(copies) = copies {
            count += copies.read(|copy| match is_enough() {
                true => Ok(()),
                false => write_copy(file, copy),
            })?;
        }
        Ok(count)
    }

    /// Waits briefly; returns true if the client has shut down its side.
    fn has_ended(&self) -> io::Result<bool> {
        let mut stream = &self.file.get_ref().stream;
        let mut files = vec![PollFd::new(&stream, PollFlags::IN)];
        files.extend(self.copies.as_ref().map(|copies| PollFd::new(copies, PollFlags::IN)));
        poll(&mut files, Some(if self.has_taps { &PAUSE } else { &LONG_PAUSE }))?;
        if files[0].revents().is_empty() {
            return Ok(false);
        }
        // The client sends nothing: readable means end of file.
        Ok(stream.read(&mut [0; 16])? == 0)
    }

    fn untap(&self) {
        lock(&self.gateway).untap(self.capture);
    }

    fn close(self) {
        self.untap();
        let _: io::Result<()> = self.file.get_ref().stream.shutdown(std::net::Shutdown::Both);
    }
}

fn write(file: &mut impl io::Write, seen: &CapturedPacket, bytes: &[u8], offset: u64) -> io::Result<()> {
    let way = match seen.place {
        CapturePoint::Rx => Some(Direction::In),
        CapturePoint::Tx => Some(Direction::Out),
        CapturePoint::Dropped(_) => None,
    };
    let comment = comment(seen);
    let at = seen.at.0.saturating_add(offset);
    pcapng::packet(file, &PacketBlock { at, length: seen.length, bytes, way, comment: &comment })
}

fn write_copy(file: &mut impl io::Write, copy: &Copy<'_>) -> io::Result<()> {
    let (way, comment) = if copy.sent { (Direction::Out, "tx") } else { (Direction::In, "rx") };
    let Copy { at, length, bytes, .. } = *copy;
    pcapng::packet(file, &PacketBlock { at, length, bytes, way: Some(way), comment })
}

/// Comment on a packet: capture point, drop reason, worker and queue.
fn comment(seen: &CapturedPacket) -> String {
    let mut comment = match seen.place {
        CapturePoint::Rx => "rx".to_owned(),
        CapturePoint::Tx => "tx".to_owned(),
        CapturePoint::Dropped(reason) => format!("dropped in {}: {}", reason.stage(), reason.name()),
    };
    comment.push_str(&format!(", worker {}", seen.worker));
    if let Some(queue) = seen.queue {
        comment.push_str(&format!(", queue {queue}"));
    }
    if seen.ticket != 0 {
        comment.push_str(&format!(", ticket {}", seen.ticket));
    }
    comment
}

/// Unix time in nanoseconds.
fn since_1970() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * Nanos::SECOND.0 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_datapath::drops::DropReason;

    /// A reader that pauses, such as a pager, would hold up the gateway's end for ever.
    #[test]
    fn a_reader_that_does_not_read_holds_nobody_up() {
        let (own, _other) = UnixStream::pair().expect("a pair of sockets");
        let is_ending = Arc::new(AtomicBool::new(false));
        let mut way = Patient::new(own, Arc::clone(&is_ending)).expect("a socket takes a timeout");
        let writer = std::thread::spawn(move || way.write_all(&vec![0; 16 << 20]));
        std::thread::sleep(2 * WRITE_PATIENCE);
        assert!(!writer.is_finished(), "it waits for the reader");
        is_ending.store(true, Ordering::Relaxed);
        let error = writer.join().expect("it does not panic").expect_err("nobody has read");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_comment_says_all_that_is_known() {
        let seen = CapturedPacket {
            at: Nanos(1),
            place: CapturePoint::Rx,
            worker: 1,
            queue: Some(3),
            ticket: 17,
            length: 64,
        };
        assert_eq!(comment(&seen), "rx, worker 1, queue 3, ticket 17");
        let dropped = CapturedPacket {
            place: CapturePoint::Dropped(DropReason::Filtered),
            queue: None,
            ticket: 0,
            ..seen
        };
        assert_eq!(comment(&dropped), "dropped in filter: filtered, worker 1");
    }
}
