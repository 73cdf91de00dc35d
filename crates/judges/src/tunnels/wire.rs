//! The wire between the guest's network card and the gateway's underlay: every frame passes through here,
//! is written down if that is asked for, and can be marked, cut or spoilt on the way.

use super::faults::Fault;
use super::outer::Outer;
use anyhow::Context as _;
use polder_testbed::traffic::raw::PacketSocket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Frames that are written down at most.
const MOST_SEEN: usize = 4096;
/// The longest frame.
const LONGEST: usize = 1 << 16;
/// Offset at which an outer IPv6 packet of the guest is cut.
const CUT_BEHIND: usize = 400;
/// ECN field that a congested router writes.
const CONGESTION: u8 = 3;

/// Sender of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Guest,
    Polder,
}

/// Behaviour of the wire.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Fault in packets that Polder has sent.
    pub(super) fault: Option<Fault>,
    /// Sender whose packets meet congestion.
    pub(super) congested: Option<From>,
    /// True if long outer packets of the guest are cut.
    pub(super) cuts: bool,
    /// Frames as they arrive, in order.
    pub(super) seen: Vec<(From, Vec<u8>)>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    ways: Mutex<Ways>,
    card: UdpSocket,
    polder: PacketSocket,
}

/// A running wire. It ends with this.
#[derive(Debug)]
pub(super) struct Wire {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    /// Lays it between the emulator's socket and the interface that `polder` is bound to.
    pub(super) fn lay(card: UdpSocket, polder: PacketSocket) -> anyhow::Result<Self> {
        card.set_nonblocking(true)?;
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), ways: Mutex::default(), card, polder });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("wire".to_owned()).spawn(move || own.run());
        Ok(Self { shared, thread: Some(thread.context("cannot start a thread")?) })
    }

    /// Behaviour of the wire, to be changed.
    pub(super) fn ways(&self) -> MutexGuard<'_, Ways> {
        self.shared.ways()
    }

    /// Forgets the seen frames.
    pub(super) fn forget(&self) {
        self.ways().seen.clear();
    }

    /// Frames of one sender.
    pub(super) fn seen(&self, from: From) -> Vec<Vec<u8>> {
        let ways = self.ways();
        ways.seen.iter().filter(|(who, _)| *who == from).map(|(_, frame)| frame.clone()).collect()
    }

    /// Sends a frame to Polder as if the guest had.
    pub(super) fn inject(&self, frame: &[u8]) -> anyhow::Result<()> {
        self.shared.polder.send(frame).context("cannot send by the wire")
    }
}

impl Shared {
    fn ways(&self) -> MutexGuard<'_, Ways> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut frame = vec![0; LONGEST];
        while !self.stop.load(Ordering::Relaxed) {
            let mut both = [PollFd::new(&self.card, PollFlags::IN), PollFd::new(&self.polder, PollFlags::IN)];
            let patience = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            // What comes, comes again: an interrupted wait is no harm.
            let _ = poll(&mut both, Some(&patience));
            while let Ok(length) = self.card.recv(&mut frame) {
                self.pass_guests(&frame[..length]);
            }
            while let Ok(length) = self.polder.receive(&mut frame) {
                self.pass_polders(frame[..length].to_vec());
            }
        }
    }

    // What a socket does not take is lost as on any wire.
    fn pass_guests(&self, frame: &[u8]) {
        let mut frame = frame.to_vec();
        let mut ways = self.ways();
        let outer = Outer::read(&frame);
        if let Some(outer) = outer.filter(|_| ways.congested == Some(From::Guest)) {
            congest(&mut frame, &outer);
        }
        ways.note(From::Guest, &frame);
        let parts = outer.filter(|_| ways.cuts).and_then(|outer| outer.cut(&frame, CUT_BEHIND));
        for part in parts.iter().flatten().chain(parts.is_none().then_some(&frame)) {
            let _ = self.polder.send(part);
        }
    }

    fn pass_polders(&self, mut frame: Vec<u8>) {
        let mut ways = self.ways();
        if let Some(outer) = Outer::read(&frame) {
            if let Some(fault) = ways.fault {
                fault.spoil(&mut frame, &outer);
            }
            // What is not capable of it a congested router would drop; here it may pass as it is.
            let capable = matches!(outer.class_and_ttl(&frame).0 & CONGESTION, 1 | 2);
            if ways.congested == Some(From::Polder) && capable {
                congest(&mut frame, &outer);
            }
        }
        ways.note(From::Polder, &frame);
        let _ = self.card.send(&frame);
    }
}

impl Ways {
    fn note(&mut self, from: From, frame: &[u8]) {
        if self.seen.len() < MOST_SEEN {
            self.seen.push((from, frame.to_vec()));
        }
    }
}

/// Marks a packet as a congested router does.
fn congest(frame: &mut [u8], outer: &Outer) {
    let (class, _) = outer.class_and_ttl(frame);
    outer.set_class(frame, class | CONGESTION);
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
