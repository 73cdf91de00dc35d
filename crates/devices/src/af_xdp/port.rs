//! State of an open interface as a whole: its program, its endpoints, its properties.

use super::attach::Attachment;
use super::link::{self, LinkInfo, TransmitDrops, Which};
use super::napi::{self, Moderated, Moderation};
use super::offloads::SwitchedOff;
use super::report::Report;
use super::socket::{Core, Refused, Statistics};
use crate::bpf::FlowTable;
use crate::bpf::taken::TakenMaps;
use crate::bpf::{Ingress, LocalPrefixes, TunnelEndpoint, YieldWord};
use crate::{Abilities, Interface};
use core::sync::atomic::{AtomicU32, Ordering};
use polder_datapath::forward::ForwardGroups;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

/// An interface that has been opened.
pub type Opened = crate::Opened<Port>;

/// An open interface: as long as this lives, its program is attached.
///
/// It belongs to the thread that looks after ports; workers have the queues.
#[derive(Debug)]
pub struct Port {
    /// The interface, as it was when it was opened.
    pub interface: Interface,
    /// Findings, and the result of opening.
    pub report: Report,
    pub(super) mtu: Arc<AtomicU32>,
    pub(super) taken: TakenMaps,
    pub(super) flows: Option<Arc<FlowTable>>,
    pub(super) link_dropped: TransmitDrops,
    /// The XDP program, to be asked about frames.
    pub(super) program: OwnedFd,
    pub(super) cores: Vec<Weak<Core>>,
    /// Keeps the interface promiscuous.
    pub(super) _promiscuous: Option<OwnedFd>,
    /// True if the link had a carrier before the interface was opened.
    pub had_carrier: bool,
    /// True if it is a device with a driver that may reset its link when a program is attached.
    pub is_hardware: bool,
    /// Puts the kernel's moderation back.
    pub(super) _moderated: Option<Moderated>,
    pub(super) attachment: Attachment,
    /// Switches offloads on again; last, so that no packet meets the program with them on.
    pub(super) _offloads: Option<SwitchedOff>,
}

/// Properties of an interface that may change while it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Its name.
    pub name: String,
    /// Its link-layer address.
    pub mac: [u8; 6],
    /// Its largest network packet in bytes, Ethernet header excluded.
    pub mtu: u32,
    /// True if it was switched on.
    pub up: bool,
    /// True if the link has a carrier.
    pub carrier: bool,
}

impl LinkState {
    /// Properties of the interface with this number.
    pub(crate) fn of(index: u32) -> Result<Self, Errno> {
        link::query(Which::Index(index)).map(|link| Self::from(&link))
    }
}

impl From<&LinkInfo> for LinkState {
    fn from(link: &LinkInfo) -> Self {
        let &LinkInfo { mac, mtu, up, carrier, .. } = link;
        Self { name: link.name.clone(), mac, mtu, up, carrier }
    }
}

impl Port {
    /// Packets are sent as the link carries them: no checksum is completed and no segment cut on the way.
    pub const ABILITIES: Abilities = Abilities { partial_checksums: false, segments: false };

    /// Makes `endpoints` those of the port: what is not among them stays with the kernel. What was
    /// claimed before and still is, is claimed all the time.
    ///
    /// # Errors
    /// Error of the kernel; `NODEV` for a port that takes everything.
    pub fn set_claims(&self, endpoints: &[TunnelEndpoint]) -> Result<(), Errno> {
        self.taken.set_endpoints(endpoints)
    }

    /// Sets the ingresses of a router's port, and the local prefixes (`lands`) that stay with the kernel.
    ///
    /// # Errors
    /// Error of the kernel; `NODEV` for a port that does not route.
    pub fn set_router(&self, ingresses: &[Ingress], lands: &[LocalPrefixes]) -> Result<(), Errno> {
        self.taken.set_router(ingresses, lands)
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

    /// The interface as it is.
    ///
    /// # Errors
    /// `NODEV` when the interface is gone.
    pub fn link(&self) -> Result<LinkState, Errno> {
        LinkState::of(self.interface.index)
    }

    /// Reads the interface's state again, and takes its MTU over for sending, or `most_mtu` where
    /// that is less.
    ///
    /// # Errors
    /// `NODEV` when the interface is gone, or somebody has detached the program.
    pub fn refresh(&self, most_mtu: Option<u32>) -> Result<LinkState, Errno> {
        let link = link::query(Which::Index(self.interface.index))?;
        self.link_dropped.note(&link);
        self.taken.set_mac(link.mac);
        // Relaxed: a number that orders nothing.
        self.mtu.store(link.mtu.min(most_mtu.unwrap_or(u32::MAX)), Ordering::Relaxed);
        if self.is_attached() { Ok((&link).into()) } else { Err(Errno::NODEV) }
    }

    /// True unless somebody has detached the program.
    pub fn is_attached(&self) -> bool {
        self.attachment.is_attached()
    }

    /// Packets that the interface itself has dropped instead of sending them, since it was opened; as
    /// [`refresh`](Self::refresh) has found it. Those of other senders are among them, and those that a queue counts as
    /// `tx-error`.
    pub fn link_dropped(&self) -> u64 {
        self.link_dropped.count()
    }

    /// Current moderation of the kernel's polling of the device, for each of its NAPI contexts.
    ///
    /// # Errors
    /// Error of the kernel; before Linux 6.13 it has no answer.
    pub fn moderation(&self) -> Result<Vec<Moderation>, Errno> {
        napi::moderations(self.interface.index)
    }

    /// Refusals of the kernel since the port was opened about receiving for its queues, for people.
    pub fn refusals(&self) -> Vec<String> {
        let cores = self.cores.iter().filter_map(Weak::upgrade);
        cores.filter_map(|core| Some(refusal(core.queue().unwrap_or(0), core.refused()?))).collect()
    }

    /// Counters of the kernel, over all queues that are still open.
    pub fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        for core in self.cores.iter().filter_map(Weak::upgrade) {
            let statistics = core.statistics();
            sum.dropped += statistics.dropped;
            sum.receive_ring_full += statistics.receive_ring_full;
            sum.fill_ring_empty += statistics.fill_ring_empty;
            sum.invalid += statistics.invalid;
        }
        sum
    }
}

/// Text about a refusal: the operation, its effect, and the remedy.
fn refusal(queue: u32, refused: Refused) -> String {
    let Refused { step, errno } = refused;
    let remedy = match errno {
        Errno::PERM | Errno::ACCESS => {
            "; grant CAP_SYS_NICE and CAP_NET_ADMIN, in systemd by CapabilityBoundingSet=, or run as root"
        }
        _ => "",
    };
    format!(
        "queue {queue}: cannot {step}: {errno}; the interface is as it was before. Under overload the kernel takes from \
         the worker what it likes, and a cpu_share does not bound it{remedy}"
    )
}
