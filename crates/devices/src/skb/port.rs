//! A port as a whole: its programs, their maps, and the findings about it.

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
use crate::netlink::link::{FAR_STATION, LinkLayer};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use polder_datapath::capture::{CapturePoints, Program};
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::forward::ForwardGroups;
use rustix::io::Errno;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

/// An interface that has been opened.
pub type Opened = crate::Opened<Port>;

/// An open interface; its programs stay attached until this value is dropped.
///
/// The port belongs to the thread that manages ports; workers own the queues.
#[derive(Debug)]
pub struct Port {
    /// The interface's properties at opening.
    pub interface: Interface,
    /// Findings, and the mode in use.
    pub report: Report,
    /// True if UDP super-packets pass unsegmented.
    pub udp_segments: bool,
    /// True if super-packets in tunnels over UDP pass unsegmented.
    pub tunnel_segments: bool,
    /// True if the link had a carrier before opening.
    pub had_carrier: bool,
    /// True for a device with a driver.
    pub is_hardware: bool,
    pub(super) mtu: Arc<AtomicU32>,
    /// True while the interface is up, as of the last [`refresh`](Self::refresh).
    pub(super) is_up: Arc<AtomicBool>,
    /// Id of the interface's XDP program, as of the last [`refresh`](Self::refresh); 0 if there is none.
    pub(super) xdp: AtomicU32,
    pub(super) taken: TakenMaps,
    pub(super) flows: Option<Arc<FlowTable>>,
    /// The interface's program.
    pub(super) program: OwnedFd,
    /// The program for test runs, if the interface's packets have no Ethernet header.
    pub(super) examined: Option<OwnedFd>,
    /// The TAP's interface index.
    pub(super) tap: u32,
    /// Counter of packets that the TAP has lost.
    pub(super) lost: Arc<QueueCounters>,
    pub(super) lost_before: AtomicU64,
    pub(super) link_dropped: TransmitDrops,
    /// Link of the program that sees the kernel forward packets of known connections.
    pub(super) _evidence: Option<OwnedFd>,
    /// Keeps the interface promiscuous.
    pub(super) _promiscuous: Option<OwnedFd>,
    /// The hook of the programs.
    pub hook: Hook,
    pub(super) attached: Attached,
    /// The interface for which the program was made.
    pub(super) link: LinkInfo,
    pub(super) tap_programs: [OwnedFd; 2],
    pub(super) tap_files: Vec<Arc<OwnedFd>>,
    pub(super) windows: Windows,
}

impl Port {
    /// Makes `endpoints` the port's tunnel endpoints: the kernel keeps all other packets.
    ///
    /// # Errors
    /// Errors of the kernel; `NODEV` for a port that takes every packet.
    pub fn set_claims(&self, endpoints: &[TunnelEndpoint]) -> Result<(), Errno> {
        self.taken.set_endpoints(endpoints)
    }

    /// Sets the ingresses of a router's port, and the local prefixes (`lands`) that stay with the kernel.
    ///
    /// # Errors
    /// Errors of the kernel; `NODEV` for a port that does not route.
    pub fn set_router(&self, ingresses: &[Ingress], lands: &[LocalPrefixes]) -> Result<(), Errno> {
        self.taken.set_router(ingresses, lands)
    }

    /// Returns the MAC address of the other end in the headers of packets that arrive without one; `None` for an
    /// Ethernet interface.
    pub fn far_station(&self) -> Option<[u8; 6]> {
        (self.link.layer == LinkLayer::Packets).then_some(FAR_STATION)
    }

    /// Returns the number of packets that the program recognised as punted, here or by an earlier instance.
    pub fn recognized(&self) -> u64 {
        self.windows.recognized()
    }

    /// Returns the yield word of a router's port, by which its packets are left to the kernel; `None` for
    /// another port.
    pub fn yield_word(&self) -> Option<&Arc<YieldWord>> {
        self.taken.yield_word()
    }

    /// Makes `groups` the link-local groups that the port's bridge forwards. The kernel receives the others.
    pub fn set_forward_groups(&self, groups: ForwardGroups) {
        self.taken.set_forward_groups(groups);
    }

    /// Returns the flows that the interface's program carries; `None` for a port whose packets all go to user
    /// space.
    pub fn flows(&self) -> Option<&Arc<FlowTable>> {
        self.flows.as_ref()
    }

    /// Starts to copy the packets that match `filter` and that the interface receives, sends, or both; at
    /// most `longest` bytes each.
    ///
    /// # Errors
    /// [`CopyError`] if the kernel cannot.
    pub fn copies(&self, filter: &Program, longest: u32, places: CapturePoints) -> Result<Copies, CopyError> {
        let of = (&self.link, Arc::downgrade(&self.is_up));
        Copies::open(of, (filter, longest, places), COPIES_BYTES)
    }

    /// Returns the interface's current properties.
    ///
    /// # Errors
    /// `NODEV` if the interface is gone.
    pub fn link(&self) -> Result<LinkState, Errno> {
        LinkState::of(self.interface.index)
    }

    /// Returns the number of packets that the interface has dropped on transmit since it was opened, as of
    /// the last [`refresh`](Self::refresh). Packets of other senders are included.
    pub fn link_dropped(&self) -> u64 {
        self.link_dropped.count()
    }

    /// Reads the interface's properties again, and makes its MTU, or `most_mtu` if lower, the limit for
    /// sending. Counts the TAP's losses, and sets the TAP up again if it was set down.
    ///
    /// # Errors
    /// `NODEV` if the interface or the TAP is gone, or if the program was detached.
    pub fn refresh(&self, most_mtu: Option<u32>) -> Result<LinkState, Errno> {
        let link = link::query(Which::Index(self.interface.index))?;
        self.link_dropped.note(&link);
        self.taken.set_mac(link.mac);
        // Relaxed: flag and number order nothing.
        self.is_up.store(link.up, Ordering::Relaxed);
        self.mtu.store(link.mtu.min(most_mtu.unwrap_or(u32::MAX)), Ordering::Relaxed);
        self.xdp.store(link.xdp.program().unwrap_or(0), Ordering::Relaxed);
        let tap = settings::state(self.tap)?;
        if !tap.up {
            settings::switch_on(self.tap)?;
        }
        // Relaxed: only the thread that manages ports runs this.
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

    /// Returns the foreign program that sees the interface's packets before the port's own.
    pub fn program_in_front(&self) -> Option<String> {
        // Relaxed: the number orders nothing.
        match self.xdp.load(Ordering::Relaxed) {
            0 => self.attached.in_front(self.interface.index, &self.program),
            xdp => Some(format!("{} of XDP", program_name(xdp))),
        }
    }

    /// Returns the counter of packets that the TAP has lost, as of the last [`refresh`](Self::refresh).
    pub fn lost(&self) -> &Arc<QueueCounters> {
        &self.lost
    }

    /// Runs the interface's program on a frame, as if the interface had received it. The frame is not
    /// forwarded.
    ///
    /// # Errors
    /// Errors of the kernel: `PERM` without the right to run programs, `INVAL` for a frame shorter than an
    /// Ethernet header, `NOENT` if the interface has lost the program.
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
        Ok(match sys::test_run(self.examined.as_ref().unwrap_or(&self.program).as_fd(), shown)? {
            REDIRECT => XdpVerdict::Taken,
            answer if answer == DROP.cast_unsigned() => XdpVerdict::Dropped,
            _ => XdpVerdict::Kernel,
        })
    }
}

/// Maximum number of bytes of copies that wait for a capture.
const COPIES_BYTES: u32 = 8 << 20;
/// Number of bytes that the program gets: more than it reads.
const SHOWN: usize = 512;
/// Length of an Ethernet header; the kernel runs no program on that or less.
const SHORTEST: usize = 14;
