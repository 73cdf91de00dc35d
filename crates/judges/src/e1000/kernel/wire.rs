//! The device's wire: to a namespace of this machine, and to a station in this process.
//!
//! Each frame that leaves is looked at: length, checksums, the sequence of TCP segments.

use super::line::Line;
use super::station::STATION;
use anyhow::Context as _;
use polder_datapath::wire::{EtherType, IpProtocol, Ipv4, Tcp, Udp};
use polder_devices::e1000::model::Nic;
use polder_testbed::traffic::raw::PacketSocket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest frame without tag and FCS.
const LONGEST: usize = 1514;
/// Bytes of an Ethernet header, of its addresses, and of a tag.
const ETHERNET: usize = 14;
const ADDRESSES: usize = 12;
const TAG: usize = 4;
/// Frames for the station, and complaints, that are kept.
const KEPT: usize = 4096;
const COMPLAINTS: usize = 8;
/// Frames that are taken from the far end at once.
const BURST: usize = 64;
/// Time between two looks at the throttle: while it delays an interrupt, and otherwise.
const SHORT: Duration = Duration::from_micros(100);
const LONG: Duration = Duration::from_millis(5);

/// Counters of the frames that have passed.
#[derive(Clone, Debug, Default)]
pub(super) struct Traffic {
    /// Frames that have left, and their bytes without FCS.
    pub(super) sent: [u64; 2],
    /// Frames that were put on the wire, and their bytes without FCS.
    pub(super) received: [u64; 2],
    /// TCP segments with data that have left, and those of them that repeat the one before.
    pub(super) segments: u64,
    pub(super) repeated: u64,
    /// Full segments that have left.
    pub(super) full: u64,
    /// Frames that are not as they have to be, the first ones.
    pub(super) complaints: Vec<String>,
}

/// The wire.
#[derive(Debug)]
pub(super) struct Wire {
    nic: Nic,
    line: Arc<Line>,
    far: PacketSocket,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    traffic: Traffic,
    kept: VecDeque<Vec<u8>>,
    /// Ports and sequence number of the last TCP segment with data.
    last: Option<(u16, u16, u32)>,
}

impl Wire {
    pub(super) fn new(nic: Nic, line: Arc<Line>, far: PacketSocket) -> Self {
        Self { nic, line, far, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counters of the frames that have passed so far.
    pub(super) fn traffic(&self) -> Traffic {
        self.lock().traffic.clone()
    }

    /// Forgets complaints and frames for the station.
    pub(super) fn forget(&self) {
        let mut state = self.lock();
        state.kept.clear();
        state.traffic.complaints.clear();
    }

    /// Removes a frame sent by the controller from the wire.
    pub(super) fn take(&self) -> Option<Vec<u8>> {
        self.lock().kept.pop_front()
    }

    /// Puts a frame on the wire.
    pub(super) fn inject(&self, frame: &[u8]) -> anyhow::Result<()> {
        {
            let received = &mut self.lock().traffic.received;
            received[0] += 1;
            received[1] += frame.len() as u64;
        }
        self.nic.inject(frame);
        self.line.update()
    }

    /// Carries the frames that have left the device to where they go.
    pub(super) fn carry(&self) -> anyhow::Result<()> {
        while let Some(frame) = self.nic.extract() {
            let mut state = self.lock();
            state.look(&frame);
            if frame.starts_with(&STATION) {
                state.keep(frame);
                continue;
            }
            drop(state);
            match self.far.send(&frame) {
                // A full queue drops, as a wire's far end may.
                Ok(()) | Err(Errno::NOBUFS | Errno::AGAIN | Errno::MSGSIZE) => {}
                Err(error) => return Err(error).context("the far end takes no frame"),
            }
        }
        Ok(())
    }

    /// Carries frames from the far end to the device, and lets the throttle's time pass.
    fn pump(&self) -> anyhow::Result<()> {
        let patience = if self.line.is_delayed() { SHORT } else { LONG };
        let timeout = Timespec::try_from(patience)?;
        poll(&mut [PollFd::new(&self.far, PollFlags::IN)], Some(&timeout))?;
        let mut room = [0; 2048];
        for _ in 0..BURST {
            match self.far.receive_tagged(&mut room) {
                Ok(frame) => self.inject(&frame)?,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => return Err(error).context("the far end gives no frame"),
            }
        }
        self.line.update()
    }
}

impl State {
    fn keep(&mut self, frame: Vec<u8>) {
        if self.kept.len() < KEPT {
            self.kept.push_back(frame);
        }
    }

    fn look(&mut self, frame: &[u8]) {
        self.traffic.sent[0] += 1;
        self.traffic.sent[1] += frame.len() as u64;
        let is_tagged = frame.get(ADDRESSES..ETHERNET) == Some(&EtherType::VLAN.0.to_be_bytes());
        let header = if is_tagged { ETHERNET + TAG } else { ETHERNET };
        if frame.len() > LONGEST + header - ETHERNET {
            self.complain(format!("a frame of {} bytes", frame.len()));
        }
        let kind = frame.get(header - 2..header);
        if kind == Some(&EtherType::IPV4.0.to_be_bytes()) {
            self.look_at_packet(frame.get(header..).unwrap_or_default());
        }
    }

    fn look_at_packet(&mut self, packet: &[u8]) {
        let Ok(ip) = Ipv4::parse(packet) else { return self.complain("a broken IPv4 packet".to_owned()) };
        if ip.verify().is_err() {
            self.complain("a wrong checksum of IPv4".to_owned());
        }
        if ip.is_fragment() {
            return;
        }
        let is_right = match ip.protocol() {
            IpProtocol::TCP => Tcp::parse(ip.payload()).is_ok_and(|tcp| {
                self.look_at_segment(&tcp);
                tcp.verify(ip.pseudo()).is_ok()
            }),
            IpProtocol::UDP => Udp::parse(ip.payload()).is_ok_and(|udp| udp.verify(ip.pseudo()).is_ok()),
            _ => true,
        };
        if !is_right {
            self.complain(format!("a wrong checksum of protocol {}", ip.protocol().0));
        }
    }

    fn look_at_segment(&mut self, tcp: &Tcp<'_>) {
        if tcp.payload().is_empty() {
            return;
        }
        let this = (tcp.source_port(), tcp.destination_port(), tcp.sequence());
        self.traffic.segments += 1;
        self.traffic.repeated += u64::from(self.last == Some(this));
        self.traffic.full += u64::from(tcp.payload().len() > 1400);
        self.last = Some(this);
    }

    fn complain(&mut self, what: String) {
        if self.traffic.complaints.len() < COMPLAINTS {
            self.traffic.complaints.push(what);
        }
    }
}

/// Thread that carries frames from the far end. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Pump {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Pump {
    pub(super) fn start(wire: Arc<Wire>) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let run = move || {
            // Relaxed: the flag says nothing of other memory.
            while !told.load(Ordering::Relaxed) {
                wire.pump()?;
            }
            Ok(())
        };
        let thread = std::thread::Builder::new().name("wire".to_owned()).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Fails when the thread has.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        match self.thread.take_if(|thread| thread.is_finished()).map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => anyhow::bail!("the wire's thread has panicked"),
            None => Ok(()),
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_devices::e1000::model::frames::{KINDS, complete};

    #[test]
    fn frames_are_looked_at() {
        let mut state = State::default();
        for kind in KINDS {
            let mut frame = complete(kind, 1420);
            state.look(&frame);
            assert_eq!(state.traffic.complaints, Vec::<String>::new());
            *frame.last_mut().unwrap() ^= 1;
            state.look(&frame);
            // Only IPv4 is looked into.
            assert_eq!(state.traffic.complaints.is_empty(), kind.is_ipv6);
            state.traffic.complaints.clear();
        }
        assert_eq!((state.traffic.segments, state.traffic.repeated, state.traffic.full), (2, 1, 2));
        state.look(&[0; 1515]);
        assert_eq!(state.traffic.complaints.len(), 1);
        let mut tagged = [0; 1518];
        tagged[12] = 0x81;
        state.look(&tagged);
        assert_eq!(state.traffic.complaints.len(), 1);
    }
}
