//! Port as a whole: its programs, their maps, and the findings about it.

use super::attach::Attached;
use super::copies::{Copies, CopyError};
use super::error::Hook;
use super::program::{DROP, REDIRECT};
use super::settings;
use crate::Interface;
use crate::af_xdp::attach::program_name;
use crate::af_xdp::link::{self, LinkInfo, TransmitDrops, Which};
use crate::af_xdp::{LinkState, Report, XdpVerdict};
use crate::bpf::sys;
use crate::bpf::taken::TakenMaps;
use crate::bpf::window::Windows;
use crate::bpf::{FlowTable, Ingress, LocalPrefixes, TunnelEndpoint, YieldWord};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use polder_datapath::capture::{Program, Where};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::forward::ForwardGroups;
use rustix::io::Errno;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

/// An interface that has been opened.
pub type Opened = crate::Opened<Port>;

/// An open interface: as long as this lives, its programs are attached.
///
/// It belongs to the thread that looks after ports; workers have the queues.
#[derive(Debug)]
pub struct Port {
    /// The interface, as it was when it was opened.
    pub interface: Interface,
    /// Findings, and the mode that was obtained.
    pub report: Report,
    /// True if UDP packets come and leave uncut too.
    pub udp_segments: bool,
    /// True if packets in tunnels over UDP come and leave uncut too.
    pub tunnel_segments: bool,
    /// True if somebody was at the other end before the interface was opened.
    pub had_carrier: bool,
    /// True if it is a device with a driver.
    pub is_hardware: bool,
    pub(super) mtu: Arc<AtomicU32>,
    /// True while the interface is up, as [`refresh`](Self::refresh) has found it.
    pub(super) is_up: Arc<AtomicBool>,
    /// Number of the XDP program of the interface, as [`refresh`](Self::refresh) has found it; 0 if there is none.
    pub(super) xdp: AtomicU32,
    pub(super) taken: TakenMaps,
    pub(super) flows: Option<Arc<FlowTable>>,
    /// The interface's program, to be asked about frames.
    pub(super) program: OwnedFd,
    /// The TAP's number.
    pub(super) tap: u32,
    /// Packets that the TAP has lost.
    pub(super) lost: Arc<QueueCounters>,
    pub(super) lost_before: AtomicU64,
    pub(super) link_dropped: TransmitDrops,
    /// Link of the program that sees the kernel forward packets of known connections.
    pub(super) _evidence: Option<OwnedFd>,
    /// Keeps the interface promiscuous.
    pub(super) _promiscuous: Option<OwnedFd>,
    /// The hook of its programs.
    pub hook: Hook,
    pub(super) attached: Attached,
    /// The interface as the program was made for it.
    pub(super) link: LinkInfo,
    pub(super) tap_programs: [OwnedFd; 2],
    pub(super) tap_files: Vec<Arc<OwnedFd>>,
    pub(super) windows: Windows,
}

impl Port {
    /// Makes `endpoints` those of the port: what is not among them stays with the kernel.
    ///
    /// # Errors
    /// Errors of the kernel; `NODEV` for a port that takes everything.
    pub fn set_claims(&self, endpoints: &[TunnelEndpoint]) -> Result<(), Errno> {
        self.taken.set_endpoints(endpoints)
    }

    /// Makes `ingresses` those of a router's port, and `lands` what is left to the kernel of what comes through them.
    ///
    /// # Errors
    /// Errors of the kernel; `NODEV` for a port that does not route.
    pub fn set_router(&self, ingresses: &[Ingress], lands: &[LocalPrefixes]) -> Result<(), Errno> {
        self.taken.set_router(ingresses, lands)
    }

    /// Packets that user space had returned to the kernel, here or at an instance before, and that the program knew again.
    pub fn recognized(&self) -> u64 {
        self.windows.recognized()
    }

    /// Word by which the packets of a router's port are left to the kernel; `None` for another port.
    pub fn yield_word(&self) -> Option<&Arc<YieldWord>> {
        self.taken.yield_word()
    }

    /// Makes `groups` the link-local groups that the bridge of the port forwards. The kernel receives the others.
    pub fn set_forward_groups(&self, groups: ForwardGroups) {
        self.taken.set_forward_groups(groups);
    }

    /// Flows that the interface's program carries; `None` for a port whose packets all come to user space.
    pub fn flows(&self) -> Option<&Arc<FlowTable>> {
        self.flows.as_ref()
    }

    /// Copies of the packets that the interface receives, sends, or both, of which `filter` matches; with at most `longest`
    /// bytes each.
    ///
    /// # Errors
    /// [`CopyError`] where the kernel cannot.
    pub fn copies(&self, filter: &Program, longest: u32, places: Where) -> Result<Copies, CopyError> {
        let of = (&self.link, Arc::downgrade(&self.is_up));
        Copies::open(of, (filter, longest, places), COPIES_BYTES)
    }

    /// The interface as it is.
    ///
    /// # Errors
    /// `NODEV` when the interface is gone.
    pub fn link(&self) -> Result<LinkState, Errno> {
        LinkState::of(self.interface.index)
    }

    /// Packets that the interface itself has dropped instead of sending them, since it was opened; as
    /// [`refresh`](Self::refresh) has found it. Those of other senders are among them.
    pub fn link_dropped(&self) -> u64 {
        self.link_dropped.count()
    }

    /// Looks at the interface again, and takes its MTU over for what is sent, or `most_mtu` where that is less. Looks at
    /// the TAP too: what it lost is counted, and it is switched on again if somebody has switched it off.
    ///
    /// # Errors
    /// `NODEV` when the interface or the TAP is gone, or somebody has detached the program.
    pub fn refresh(&self, most_mtu: Option<u32>) -> Result<LinkState, Errno> {
        let link = link::query(Which::Index(self.interface.index))?;
        self.link_dropped.note(&link);
        self.taken.set_mac(link.mac);
        // Relaxed: a flag and a number that order nothing.
        self.is_up.store(link.up, Ordering::Relaxed);
        self.mtu.store(link.mtu.min(most_mtu.unwrap_or(u32::MAX)), Ordering::Relaxed);
        self.xdp.store(link.xdp.program().unwrap_or(0), Ordering::Relaxed);
        let tap = settings::state(self.tap)?;
        if !tap.up {
            settings::switch_on(self.tap)?;
        }
        // Relaxed: only the thread that looks after ports comes here.
        let lost = tap.dropped.saturating_sub(self.lost_before.swap(tap.dropped, Ordering::Relaxed));
        if lost > 0 {
            self.lost.received.add(lost);
            self.lost.drops.count(DropReason::RxOverrun, lost);
        }
        if !self.attached.is_attached() {
            return Err(Errno::NODEV);
        }
        Ok((&link).into())
    }

    /// Program of another's that has the interface's packets before the port's own.
    pub fn program_in_front(&self) -> Option<String> {
        // Relaxed: a number that orders nothing.
        match self.xdp.load(Ordering::Relaxed) {
            0 => self.attached.in_front(self.interface.index, &self.program),
            xdp => Some(format!("{} of XDP", program_name(xdp))),
        }
    }

    /// Packets that the TAP has lost, as [`refresh`](Self::refresh) has found them.
    pub fn lost(&self) -> &Arc<QueueCounters> {
        &self.lost
    }

    /// Runs the interface's program on a frame, as if that had come in. The frame goes nowhere.
    ///
    /// # Errors
    /// Errors of the kernel: `PERM` without the right to run programs, `INVAL` for a frame that is shorter
    /// than an Ethernet header, `NOENT` when the interface does not have the program any more.
    pub fn verdict(&self, frame: &[u8]) -> Result<XdpVerdict, Errno> {
        let shown = &frame[..frame.len().min(SHOWN)];
        if shown.len() <= SHORTEST {
            return Err(Errno::INVAL);
        }
        if !self.attached.is_attached() {
            return Err(Errno::NOENT);
        }
        if self.flows.as_ref().is_some_and(|flows| flows.carries(frame)) {
            return Ok(XdpVerdict::Carried);
        }
        Ok(match sys::test_run(self.program.as_fd(), shown)? {
            REDIRECT => XdpVerdict::Taken,
            answer if answer == DROP.cast_unsigned() => XdpVerdict::Dropped,
            _ => XdpVerdict::Kernel,
        })
    }
}

/// Bytes of copies that wait for a capture.
const COPIES_BYTES: u32 = 8 << 20;
/// Bytes that the program is shown: more than it reads.
const SHOWN: usize = 512;
/// An Ethernet header; the kernel lets no program run on less, or no more.
const SHORTEST: usize = 14;
