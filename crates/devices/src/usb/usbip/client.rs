//! A transport to a device behind a socket.
//!
//! Data is read and written directly between the socket and the memory of the URBs. The server's messages are
//! checked: after an answer to no request, or one longer than requested, the connection is closed, and every
//! URB completes as gone.

use super::attach::{ClientError, Conversation, ServerAddress, import};
use super::message::{
    FLAG_IN, FLAG_ZERO_PACKET, HEADER_BYTES, Header, NAME_BYTES, SUBMIT, SUBMITTED, UNLINK, UNLINKED,
};
use super::outgoing::{Outgoing, PIECES, Pending, gather, message_bytes};
use crate::usb::monotonic;
use crate::usb::{Completion, Speed, Status, Transport, Urb};
use core::time::Duration;
use polder_datapath::port::Armed;
use polder_datapath::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;

/// Maximum number of transfers in flight; the lower bits of a sequence number are its place.
const PLACES: usize = 1024;
const PLACE_BITS: u32 = PLACES.trailing_zeros();
/// Time limit for connecting and importing together, name resolution excluded.
const PATIENCE: Duration = Duration::from_secs(5);

/// State of the stream from the server: the kind of the next bytes.
#[derive(Debug)]
enum Reading {
    /// A header, with its bytes so far.
    Header(usize),
    /// Data for the transfer in that place, of which `done` bytes have arrived; then the header.
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
    /// Messages to be sent: places of transfers, or short messages.
    outgoing: VecDeque<Outgoing>,
    /// Bytes of the first message that have been sent.
    sent: usize,
    /// Requests to cancel transfers: their sequence number and that of the transfer.
    unlinks: Vec<(u32, u32)>,
    reading: Reading,
    header: [u8; HEADER_BYTES],
    done: VecDeque<Completion>,
    gone: bool,
    calls: u64,
}

impl Client {
    /// Attaches the device `name` of a server.
    ///
    /// # Errors
    /// [`ClientError`], whose text names the remedy.
    pub fn attach(server: &ServerAddress, name: &str) -> Result<Self, ClientError> {
        Self::attach_unless(server, name, &AtomicBool::new(false))
    }

    /// Attaches a device, unless `cancelled` is set meanwhile.
    ///
    /// # Errors
    /// [`ClientError`], whose text names the remedy.
    pub fn attach_unless(
        server: &ServerAddress,
        name: &str,
        cancelled: &AtomicBool,
    ) -> Result<Self, ClientError> {
        if name.is_empty() || name.len() >= NAME_BYTES {
            return Err(ClientError::Name(name.to_owned()));
        }
        let mut conversation = Conversation::begin(server, PATIENCE, cancelled)?;
        let described = import(&mut conversation, server, name)?;
        let stream = conversation.into_stream();
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

    /// Sends as much as the socket accepts.
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

    /// Reads received bytes directly into their place.
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
                // The same call reads the next header if it has arrived.
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
            // An earlier completed transfer has been answered; a cancelled one gets no other answer.
            if let Some(place) = self.find(target) {
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

    /// Marks the connection as lost.
    #[cold]
    fn lose(&mut self) {
        self.gone = true;
        self.outgoing.clear();
        let pending = self.pending.iter_mut().filter_map(Option::take);
        self.done.extend(pending.map(|pending| Completion::gone(pending.urb)));
    }
}

/// Returns the flags of a transfer, as Linux's `vhci_hcd` sends them.
fn transfer_flags(urb: &Urb) -> u32 {
    let direction = if urb.is_in() { FLAG_IN } else { 0 };
    direction | if urb.zero_packet { FLAG_ZERO_PACKET } else { 0 }
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
            words: [transfer_flags(&urb), length, 0, u32::MAX, urb.interval],
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
        // Woken or not, the caller checks.
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
