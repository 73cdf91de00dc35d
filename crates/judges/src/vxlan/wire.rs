//! The wire between the two namespaces: every frame passes through here, is written down, and can be marked or spoilt
//! on the way.

use super::faults::{Fault, Stations};
use super::outer::Outer;
use super::remotes::source;
use super::tunnel::PORTS;
use anyhow::Context as _;
use polder_testbed::traffic::raw::PacketSocket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Frames that are written down at most.
const MOST_SEEN: usize = 4096;
/// The longest frame.
const LONGEST: usize = 1 << 16;
/// ECN field that a congested router writes.
const CONGESTION: u8 = 3;

/// Sender of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Kernel,
    Polder,
}

/// Behaviour of the wire.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Fault in packets of Polder.
    pub(super) fault: Option<Fault>,
    /// Sender whose packets meet congestion.
    pub(super) congested: Option<From>,
    /// Senders of the kernel's outer packets.
    stations: Stations,
    /// Frames as they arrive, in order.
    seen: Vec<(From, Vec<u8>)>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    ways: Mutex<Ways>,
    kernel: PacketSocket,
    polder: PacketSocket,
}

/// A running wire. It ends with this.
#[derive(Debug)]
pub(super) struct Wire {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    /// Lays it between the interfaces that lead to the kernel's namespace and to Polder's.
    pub(super) fn lay(kernel: PacketSocket, polder: PacketSocket) -> anyhow::Result<Self> {
        let shared =
            Arc::new(Shared { stop: AtomicBool::new(false), ways: Mutex::default(), kernel, polder });
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

    /// Sends a frame to Polder as if the kernel had.
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
            let mut both =
                [PollFd::new(&self.kernel, PollFlags::IN), PollFd::new(&self.polder, PollFlags::IN)];
            let patience = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            // What comes, comes again: an interrupted wait is no harm.
            let _ = poll(&mut both, Some(&patience));
            while let Ok(length) = self.kernel.receive(&mut frame) {
                self.pass(From::Kernel, frame[..length].to_vec());
            }
            while let Ok(length) = self.polder.receive(&mut frame) {
                self.pass(From::Polder, frame[..length].to_vec());
            }
        }
    }

    // What a socket does not take is lost as on any wire.
    fn pass(&self, from: From, mut frame: Vec<u8>) {
        let mut ways = self.ways();
        let outer = Outer::read(&frame, &PORTS);
        if let Some(outer) = &outer {
            if let Some(fault) = ways.fault.filter(|_| from == From::Polder) {
                fault.spoil(&mut frame, outer);
            }
            let (class, _) = outer.class_and_ttl(&frame);
            // What is not capable of it a congested router would drop; here it may pass as it is.
            let meets = ways.congested == Some(from);
            if meets && (from == From::Kernel || matches!(class & CONGESTION, 1 | 2)) {
                outer.set_class(&mut frame, class | CONGESTION);
            }
        }
        if from == From::Kernel {
            let sender = outer.as_ref().filter(|outer| !outer.v6).and_then(|_| source(&frame));
            ways.stations.extend(sender);
            let relayed = outer.zip(ways.fault);
            let relayed = relayed.and_then(|(outer, fault)| fault.relayed(&frame, &outer, &ways.stations));
            ways.note(From::Kernel, &frame);
            let _ = self.polder.send(&frame);
            relayed.iter().for_each(|relayed| self.arrives(&mut ways, relayed));
            return;
        }
        match outer.zip(ways.fault) {
            Some((outer, fault)) => {
                let copies = fault.copies(frame, &outer, &ways.stations);
                copies.iter().for_each(|copy| self.arrives(&mut ways, copy));
            }
            None => self.arrives(&mut ways, &frame),
        }
    }

    /// Lets a frame of Polder arrive at the kernel.
    fn arrives(&self, ways: &mut Ways, frame: &[u8]) {
        ways.note(From::Polder, frame);
        let _ = self.kernel.send(frame);
    }
}

impl Ways {
    fn note(&mut self, from: From, frame: &[u8]) {
        if self.seen.len() < MOST_SEEN {
            self.seen.push((from, frame.to_vec()));
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
