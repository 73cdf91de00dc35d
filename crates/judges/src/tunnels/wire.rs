//! The wire between the kernel's end and the gateway's underlay: every frame passes through here, is written down if that
//! is asked for, and can be marked, cut or spoilt on the way.

use super::outer::{Outer, Stations, sender};
use anyhow::Context as _;
use polder_testbed::traffic::raw::PacketSocket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Frames that are written down at most.
const MOST_SEEN: usize = 4096;
/// The longest frame.
const LONGEST: usize = 1 << 16;
/// Offset at which an outer IPv6 packet of the kernel is cut.
const CUT_BEHIND: usize = 400;
/// ECN field that a congested router writes.
const CONGESTION: u8 = 3;

/// Sender of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Kernel,
    Polder,
}

/// Fault that the wire puts into packets of an honest encapsulator.
pub(super) trait Faulty: Copy + Send + 'static {
    /// Name for people.
    fn name(self) -> &'static str;

    /// Headers before the encapsulation; `None` for frames that are none of it.
    fn read(frame: &[u8]) -> Option<Outer>;

    /// Type of the packet inside, and where it begins.
    fn inner(outer: &Outer, frame: &[u8]) -> Option<(u16, usize)>;

    /// Spoils an outer packet.
    fn spoil(self, frame: &mut Vec<u8>, outer: &Outer);

    /// Packets that a broken replicator sends in place of one of its own, given the kernel's stations.
    fn copies(self, frame: Vec<u8>, _outer: &Outer, _stations: &Stations) -> Vec<Vec<u8>> {
        vec![frame]
    }

    /// Frame of the kernel's end as a broken Polder hears it; `None` if it does not.
    fn heard(self, frame: Vec<u8>, _outer: Option<&Outer>) -> Option<Vec<u8>> {
        Some(frame)
    }

    /// Packet of the kernel as a relaying replicator sends it on, if this is that fault.
    fn relayed(self, _frame: &[u8], _outer: &Outer, _stations: &Stations) -> Option<Vec<u8>> {
        None
    }
}

/// Behaviour of the wire.
#[derive(Debug)]
pub(super) struct Ways<F> {
    /// Fault in packets that Polder has sent.
    pub(super) fault: Option<F>,
    /// Sender whose packets meet congestion.
    pub(super) congested: Option<From>,
    /// True if long outer packets of the kernel are cut.
    pub(super) cuts: bool,
    /// Senders of the kernel's outer packets.
    stations: Stations,
    /// Frames as they arrive, in order.
    seen: Vec<(From, Vec<u8>)>,
}

/// Socket at the kernel's end of the wire.
#[derive(Debug)]
pub(super) enum Far {
    /// The emulator's network card.
    Card(UdpSocket),
    /// An interface.
    Interface(PacketSocket),
}

impl Far {
    fn send(&self, frame: &[u8]) {
        // What a socket does not take is lost as on any wire.
        match self {
            Self::Card(socket) => drop(socket.send(frame)),
            Self::Interface(socket) => drop(socket.send(frame)),
        }
    }

    fn receive(&self, room: &mut [u8]) -> Option<usize> {
        match self {
            Self::Card(socket) => socket.recv(room).ok(),
            Self::Interface(socket) => socket.receive(room).ok(),
        }
    }
}

impl AsFd for Far {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Card(socket) => socket.as_fd(),
            Self::Interface(socket) => socket.as_fd(),
        }
    }
}

#[derive(Debug)]
struct Shared<F> {
    stop: AtomicBool,
    ways: Mutex<Ways<F>>,
    kernel: Far,
    polder: PacketSocket,
}

/// A running wire. It ends with this.
#[derive(Debug)]
pub(super) struct Wire<F: Faulty> {
    shared: Arc<Shared<F>>,
    thread: Option<JoinHandle<()>>,
}

impl<F: Faulty> Wire<F> {
    /// Lays it between the kernel's end and the interface that `polder` is bound to.
    pub(super) fn lay(kernel: Far, polder: PacketSocket) -> anyhow::Result<Self> {
        let ways = Ways {
            fault: None,
            congested: None,
            cuts: false,
            stations: Stations::default(),
            seen: Vec::new(),
        };
        let stop = AtomicBool::new(false);
        let shared = Arc::new(Shared { stop, ways: Mutex::new(ways), kernel, polder });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("wire".to_owned()).spawn(move || own.run());
        Ok(Self { shared, thread: Some(thread.context("cannot start a thread")?) })
    }

    /// Behaviour of the wire, to be changed.
    pub(super) fn ways(&self) -> MutexGuard<'_, Ways<F>> {
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
        let fault = self.ways().fault;
        self.shared.hears(fault, frame.to_vec()).context("cannot send by the wire")
    }
}

impl<F: Faulty> Shared<F> {
    fn ways(&self) -> MutexGuard<'_, Ways<F>> {
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
            while let Some(length) = self.kernel.receive(&mut frame) {
                self.pass_kernels(frame[..length].to_vec());
            }
            while let Ok(length) = self.polder.receive(&mut frame) {
                self.pass_polders(frame[..length].to_vec());
            }
        }
    }

    fn pass_kernels(&self, mut frame: Vec<u8>) {
        let mut ways = self.ways();
        let outer = F::read(&frame);
        if let Some(outer) = &outer {
            if ways.congested == Some(From::Kernel) {
                congest(&mut frame, outer);
            }
            ways.stations.extend(sender(&frame).filter(|_| !outer.v6));
        }
        let relayed = outer.zip(ways.fault);
        let relayed = relayed.and_then(|(outer, fault)| fault.relayed(&frame, &outer, &ways.stations));
        ways.note(From::Kernel, &frame);
        let parts = outer.filter(|_| ways.cuts).and_then(|outer| outer.cut(&frame, CUT_BEHIND));
        for part in parts.iter().flatten().chain(parts.is_none().then_some(&frame)) {
            let _ = self.hears(ways.fault, part.clone());
        }
        relayed.iter().for_each(|relayed| self.arrives(&mut ways, relayed));
    }

    /// Delivers a frame to Polder.
    fn hears(&self, fault: Option<F>, frame: Vec<u8>) -> rustix::io::Result<()> {
        let heard = match fault {
            Some(fault) => fault.heard(frame.clone(), F::read(&frame).as_ref()),
            None => Some(frame),
        };
        heard.map_or(Ok(()), |frame| self.polder.send(&frame))
    }

    fn pass_polders(&self, mut frame: Vec<u8>) {
        let mut ways = self.ways();
        let Some(outer) = F::read(&frame) else { return self.arrives(&mut ways, &frame) };
        if let Some(fault) = ways.fault {
            fault.spoil(&mut frame, &outer);
        }
        // What is not capable of it a congested router would drop; here it may pass as it is.
        let capable = matches!(outer.class_and_ttl(&frame).0 & CONGESTION, 1 | 2);
        if ways.congested == Some(From::Polder) && capable {
            congest(&mut frame, &outer);
        }
        let copies = match ways.fault {
            Some(fault) => fault.copies(frame, &outer, &ways.stations),
            None => vec![frame],
        };
        copies.iter().for_each(|copy| self.arrives(&mut ways, copy));
    }

    /// Delivers a frame from Polder to the kernel.
    fn arrives(&self, ways: &mut Ways<F>, frame: &[u8]) {
        ways.note(From::Polder, frame);
        self.kernel.send(frame);
    }
}

impl<F> Ways<F> {
    /// True if Polder has a fault at present.
    pub(super) fn is_broken(&self) -> bool {
        self.fault.is_some()
    }

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

impl<F: Faulty> Drop for Wire<F> {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
