//! A device behind a socket, as a transport.
//!
//! Data go straight between the socket and the memory of the URBs. What the server says is checked:
//! one that answers what nobody asked, or more than was asked for, loses the connection; then every
//! URB comes back as gone.

use super::message::{
    DEVICE_BYTES, Described, HEADER_BYTES, Header, NAME_BYTES, REPLY_IMPORT, REQUEST_IMPORT, SETUP_BYTES,
    SUBMIT, SUBMITTED, UNLINK, UNLINKED, VERSION, setup_head,
};
use crate::lan78xx::monotonic;
use crate::lan78xx::usb::{Completion, Speed, Status, Transport, Urb};
use core::time::Duration;
use polder_datapath::port::Armed;
use polder_datapath::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Transfers in flight at most; a sequence number has its place in the lower bits.
const PLACES: usize = 1024;
const PLACE_BITS: u32 = PLACES.trailing_zeros();
/// Pieces that one system call sends.
const PIECES: usize = 64;
/// How long connecting may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a USB/IP server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// A host and a port (`192.0.2.1:3240`).
    Tcp(String),
    /// A local socket.
    Unix(PathBuf),
}

impl core::fmt::Display for ServerAddress {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Tcp(address) => formatter.write_str(address),
            Self::Unix(path) => path.display().fmt(formatter),
        }
    }
}

/// Why a device could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server cannot be reached.
    #[error("cannot reach the USB/IP server {0}: {1}; is usbipd running, and the port open?")]
    Reach(ServerAddress, std::io::Error),
    /// Something else answers there.
    #[error("{0} is not a USB/IP server of version 1.1.1")]
    Protocol(ServerAddress),
    /// It does not export the device.
    #[error(
        "the USB/IP server {0} has no device {1}, or another client has it: `usbip list -r` and `usbip bind -b {1}` there"
    )]
    NoDevice(ServerAddress, String),
    /// A name that no device has.
    #[error("`{0}` is no bus id: it has 1 to 31 bytes, as `1-1.4`")]
    Name(String),
    /// The device is on a bus that is too slow.
    #[error("the device {0} is on a USB 1 bus; it needs USB 2 or 3")]
    Slow(String),
}

/// A transfer that has been asked for.
#[derive(Debug)]
struct Pending {
    sequence: u32,
    header: [u8; HEADER_BYTES],
    urb: Urb,
}

/// What the next bytes from the server are.
#[derive(Debug)]
enum Reading {
    /// A header, of which so many bytes are there.
    Header(usize),
    /// Data for the transfer in that place, of which so many bytes are there, then the header.
    Data { place: usize, status: Status, actual: usize, done: usize },
}

/// A device of a USB/IP server.
#[derive(Debug)]
pub struct Client {
    stream: OwnedFd,
    device: u32,
    speed: Speed,
    place: String,
    pending: Vec<Option<Pending>>,
    free: Vec<usize>,
    generation: u32,
    /// Messages to be sent: places of transfers, or short messages of their own.
    outgoing: VecDeque<Outgoing>,
    /// Bytes of the first of them that have been sent.
    sent: usize,
    /// Requests to end transfers early: their sequence number and that of the transfer.
    unlinks: Vec<(u32, u32)>,
    reading: Reading,
    header: [u8; HEADER_BYTES],
    done: VecDeque<Completion>,
    gone: bool,
    calls: u64,
}

#[derive(Debug)]
enum Outgoing {
    Transfer(usize),
    Message([u8; HEADER_BYTES]),
}

impl Client {
    /// Attaches the device `name` of a server.
    ///
    /// # Errors
    /// [`ClientError`] says what to do next.
    pub fn attach(server: &ServerAddress, name: &str) -> Result<Self, ClientError> {
        if name.is_empty() || name.len() >= NAME_BYTES {
            return Err(ClientError::Name(name.to_owned()));
        }
        let reach = |error| ClientError::Reach(server.clone(), error);
        let (stream, described) = match server {
            ServerAddress::Tcp(address) => {
                let mut stream = connect(address, PATIENCE).map_err(reach)?;
                let described = import(&mut stream, server, name)?;
                stream.set_nonblocking(true).map_err(reach)?;
                (OwnedFd::from(stream), described)
            }
            ServerAddress::Unix(path) => {
                let mut stream = connect_local(path, PATIENCE).map_err(reach)?;
                let described = import(&mut stream, server, name)?;
                stream.set_nonblocking(true).map_err(reach)?;
                (OwnedFd::from(stream), described)
            }
        };
        let speed = described.speed.ok_or_else(|| ClientError::Slow(name.to_owned()))?;
        Ok(Self {
            stream,
            device: described.device,
            speed,
            place: format!("{name} of {server}"),
            pending: (0..PLACES).map(|_| None).collect(),
            free: (0..PLACES).rev().collect(),
            generation: 1,
            outgoing: VecDeque::with_capacity(PLACES),
            sent: 0,
            unlinks: Vec::new(),
            reading: Reading::Header(0),
            header: [0; HEADER_BYTES],
            done: VecDeque::with_capacity(PLACES),
            gone: false,
            calls: 0,
        })
    }

    fn sequence(&mut self, place: usize) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation << PLACE_BITS | u32::try_from(place).unwrap_or(0)
    }

    /// Sends as much as the socket takes.
    fn send(&mut self) {
        while !self.outgoing.is_empty() && !self.gone {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = gather(&self.outgoing, &self.pending, self.sent, &mut pieces);
            self.calls += 1;
            match rustix::io::writev(&self.stream, &pieces[..count]) {
                Ok(bytes) => self.take_off(bytes),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.lose(),
            }
        }
    }

    fn take_off(&mut self, bytes: usize) {
        self.sent += bytes;
        while let Some(first) = self.outgoing.front() {
            let length = message_bytes(first, &self.pending);
            if self.sent < length {
                return;
            }
            self.sent -= length;
            self.outgoing.pop_front();
        }
    }

    /// Reads what has come, straight to where it belongs.
    fn receive(&mut self) {
        while !self.gone {
            self.calls += 1;
            match self.read() {
                Ok(0) => self.lose(),
                Ok(bytes) => self.digest(bytes),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.lose(),
            }
        }
    }

    fn read(&mut self) -> rustix::io::Result<usize> {
        match self.reading {
            Reading::Header(have) => rustix::io::read(&self.stream, &mut self.header[have..]),
            Reading::Data { place, actual, done, .. } => {
                let pending = self.pending[place].as_mut().ok_or(Errno::PROTO)?;
                let data = &mut pending.urb.buffer.bytes_mut()[done..actual];
                // The next header comes with the same call when it is there already.
                let mut pieces = [IoSliceMut::new(data), IoSliceMut::new(&mut self.header)];
                rustix::io::readv(&self.stream, &mut pieces)
            }
        }
    }

    fn digest(&mut self, bytes: usize) {
        let have = match self.reading {
            Reading::Header(have) => have + bytes,
            Reading::Data { place, status, actual, done } => {
                let rest = actual - done;
                if bytes < rest {
                    self.reading = Reading::Data { place, status, actual, done: done + bytes };
                    return;
                }
                self.end(place, status, actual);
                bytes - rest
            }
        };
        self.reading = Reading::Header(have);
        if have == HEADER_BYTES {
            self.reading = Reading::Header(0);
            let header = Header::read(&self.header);
            self.answer(&header);
        }
    }

    fn answer(&mut self, header: &Header) {
        let (status, actual) = header.outcome();
        if header.command == UNLINKED {
            let found = self.unlinks.iter().position(|&(sequence, _)| sequence == header.sequence);
            let Some((_, target)) = found.map(|at| self.unlinks.swap_remove(at)) else { return self.lose() };
            if status == Status::Cancelled
                && let Some(place) = self.find(target)
            {
                self.end(place, Status::Cancelled, 0);
            }
            return;
        }
        let place = if header.command == SUBMITTED { self.find(header.sequence) } else { None };
        let Some((place, urb)) = place.and_then(|at| Some((at, &self.pending[at].as_ref()?.urb))) else {
            return self.lose();
        };
        let limit = urb.length.min(urb.buffer.bytes().len());
        if actual > limit {
            return self.lose();
        }
        if urb.is_in() && actual > 0 {
            self.reading = Reading::Data { place, status, actual, done: 0 };
        } else {
            self.end(place, status, actual);
        }
    }

    fn find(&self, sequence: u32) -> Option<usize> {
        let place = sequence as usize & (PLACES - 1);
        self.pending[place].as_ref().filter(|pending| pending.sequence == sequence).map(|_| place)
    }

    fn end(&mut self, place: usize, status: Status, actual: usize) {
        if let Some(pending) = self.pending[place].take() {
            self.free.push(place);
            self.done.push_back(Completion { urb: pending.urb, status, actual });
        }
    }

    /// The connection is of no use any more.
    #[cold]
    fn lose(&mut self) {
        self.gone = true;
        self.outgoing.clear();
        let pending = self.pending.iter_mut().filter_map(Option::take);
        self.done.extend(pending.map(|pending| Completion::gone(pending.urb)));
    }
}

/// Bytes of a message with its data.
fn message_bytes(message: &Outgoing, pending: &[Option<Pending>]) -> usize {
    match message {
        Outgoing::Message(_) => HEADER_BYTES,
        Outgoing::Transfer(place) => {
            let data = pending[*place].as_ref().map_or(0, |pending| data_of(&pending.urb).len());
            HEADER_BYTES + data
        }
    }
}

/// The bytes that go to the server behind a transfer's header.
fn data_of(urb: &Urb) -> &[u8] {
    if urb.is_in() { &[] } else { &urb.buffer.bytes()[..urb.length.min(urb.buffer.bytes().len())] }
}

/// Puts the pieces of messages together, without the first `skip` bytes; returns how many.
fn gather<'a>(
    outgoing: &'a VecDeque<Outgoing>,
    pending: &'a [Option<Pending>],
    mut skip: usize,
    pieces: &mut [IoSlice<'a>; PIECES],
) -> usize {
    let mut count = 0;
    for message in outgoing {
        let parts: [&[u8]; 2] = match message {
            Outgoing::Message(bytes) => [bytes, &[]],
            Outgoing::Transfer(place) => pending[*place]
                .as_ref()
                .map_or([&[], &[]], |pending| [&pending.header, data_of(&pending.urb)]),
        };
        for part in parts {
            let from = skip.min(part.len());
            skip -= from;
            let part = &part[from..];
            if part.is_empty() {
                continue;
            }
            if count == PIECES {
                return count;
            }
            pieces[count] = IoSlice::new(part);
            count += 1;
        }
    }
    count
}

impl Transport for Client {
    fn speed(&self) -> Speed {
        self.speed
    }

    fn submit(&mut self, urb: Urb) {
        let Some(place) = self.free.pop().filter(|_| !self.gone) else {
            self.done.push_back(Completion::gone(urb));
            return;
        };
        let sequence = self.sequence(place);
        let is_in = urb.is_in();
        let length = u32::try_from(urb.length).unwrap_or(u32::MAX);
        let header = Header {
            command: SUBMIT,
            sequence,
            device: self.device,
            direction: u32::from(is_in),
            endpoint: u32::from(urb.endpoint & 0xf),
            words: [0, length, 0, u32::MAX, 0],
            setup: urb.setup.write(),
        };
        self.pending[place] = Some(Pending { sequence, header: header.write(), urb });
        self.outgoing.push_back(Outgoing::Transfer(place));
    }

    fn cancel(&mut self, endpoint: u8) {
        let targets = self.pending.iter().flatten().filter(|pending| pending.urb.endpoint == endpoint);
        let targets: Vec<u32> = targets.map(|pending| pending.sequence).collect();
        for target in targets {
            let sequence = self.sequence(0);
            let header = Header {
                command: UNLINK,
                sequence,
                device: self.device,
                words: [target, 0, 0, 0, 0],
                ..Header::default()
            };
            self.unlinks.push((sequence, target));
            self.outgoing.push_back(Outgoing::Message(header.write()));
        }
        self.send();
    }

    fn flush(&mut self) {
        self.send();
    }

    fn complete(&mut self) -> Option<Completion> {
        if self.done.is_empty() {
            self.send();
            self.receive();
        }
        self.done.pop_front()
    }

    fn wait(&mut self, limit: Duration) {
        self.send();
        if self.gone || !self.done.is_empty() {
            return;
        }
        let output = if self.outgoing.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let mut look = [PollFd::new(&self.stream, PollFlags::IN | output)];
        // Woken or not: the caller looks.
        let _ = rustix::event::poll(&mut look, Timespec::try_from(limit).ok().as_ref());
    }

    fn arm(&mut self) -> Armed {
        self.send();
        if self.gone || !self.done.is_empty() || !self.outgoing.is_empty() {
            return Armed::Raced;
        }
        self.calls += 1;
        let mut look = [PollFd::new(&self.stream, PollFlags::IN)];
        match rustix::event::poll(&mut look, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(0) => Armed::Waiting,
            _ => Armed::Raced,
        }
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stream.as_fd())
    }

    fn now(&self) -> Nanos {
        monotonic()
    }

    fn is_gone(&self) -> bool {
        self.gone
    }

    fn system_calls(&self) -> u64 {
        self.calls
    }

    fn place(&self) -> String {
        self.place.clone()
    }
}

pub(super) fn connect(address: &str, patience: Duration) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

pub(super) fn connect_local(path: &Path, patience: Duration) -> std::io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

/// Asks for the device; what follows on the stream are transfers.
fn import(
    stream: &mut (impl Read + Write),
    server: &ServerAddress,
    name: &str,
) -> Result<Described, ClientError> {
    let reach = |error| ClientError::Reach(server.clone(), error);
    let mut request = setup_head(REQUEST_IMPORT, 0).to_vec();
    request.extend(name.bytes());
    request.resize(SETUP_BYTES + NAME_BYTES, 0);
    stream.write_all(&request).map_err(reach)?;
    let mut head = [0; SETUP_BYTES];
    stream.read_exact(&mut head).map_err(reach)?;
    let expected = setup_head(REPLY_IMPORT, 0);
    if head[..4] != expected[..4] {
        debug_assert_eq!(expected[..2], VERSION.to_be_bytes());
        return Err(ClientError::Protocol(server.clone()));
    }
    if head != expected {
        return Err(ClientError::NoDevice(server.clone(), name.to_owned()));
    }
    let mut record = [0; DEVICE_BYTES];
    stream.read_exact(&mut record).map_err(reach)?;
    Ok(Described::read(&record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lan78xx::usb::{Setup, UrbBuffer};

    /// Every place at which the socket can have stopped taking bytes.
    #[test]
    fn what_is_left_of_messages_is_put_together() {
        let urb = |endpoint, bytes: &[u8]| Urb {
            id: 0,
            endpoint,
            setup: Setup::default(),
            buffer: UrbBuffer::Heap(bytes.into()),
            length: bytes.len(),
        };
        let pending = vec![
            Some(Pending { sequence: 0, header: [1; HEADER_BYTES], urb: urb(2, &[7; 10]) }),
            Some(Pending { sequence: 1, header: [2; HEADER_BYTES], urb: urb(0x81, &[8; 10]) }),
        ];
        let outgoing = VecDeque::from([
            Outgoing::Transfer(0),
            Outgoing::Message([3; HEADER_BYTES]),
            Outgoing::Transfer(1),
        ]);
        let whole = [vec![1; 48], vec![7; 10], vec![3; 48], vec![2; 48]].concat();
        for skip in 0..58 {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = gather(&outgoing, &pending, skip, &mut pieces);
            let bytes: Vec<u8> = pieces[..count].iter().flat_map(|piece| piece.iter().copied()).collect();
            assert_eq!(bytes, whole[skip..], "{skip}");
        }
    }
}
