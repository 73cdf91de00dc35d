//! An open interface as a whole: its program, its endpoints, its properties.

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

/// An open interface; its program stays attached until this value is dropped.
///
/// The port belongs to the thread that manages ports; workers own the queues.
#[derive(Debug)]
pub struct Port {
    /// The interface's properties at opening.
    pub interface: Interface,
    /// Findings, and the result of opening.
    pub report: Report,
    pub(super) mtu: Arc<AtomicU32>,
    pub(super) taken: TakenMaps,
    pub(super) flows: Option<Arc<FlowTable>>,
    pub(super) link_dropped: TransmitDrops,
    /// The XDP program, for test runs on frames.
    pub(super) program: OwnedFd,
    pub(super) cores: Vec<Weak<Core>>,
    /// Keeps the interface promiscuous.
    pub(super) _promiscuous: Option<OwnedFd>,
    /// True if the link had a carrier before opening.
    pub had_carrier: bool,
    /// True for a device whose driver may reset its link when a program is attached.
    pub is_hardware: bool,
    /// Restores the kernel's moderation on drop.
    pub(super) _moderated: Option<Moderated>,
    pub(super) attachment: Attachment,
    /// Restores offloads on drop; last, so that the program meets no packet with the offloads on.
    pub(super) _offloads: Option<SwitchedOff>,
}

/// Properties of an interface that may change while it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Name.
    pub name: String,
    /// MAC address.
    pub mac: [u8; 6],
    /// MTU in bytes, Ethernet header excluded.
    pub mtu: u32,
    /// True if the interface is administratively up.
    pub up: bool,
    /// True if the link has a carrier.
    pub carrier: bool,
    /// Queueing discipline that shapes what leaves the interface, if it has one.
    pub shaper: Option<Box<str>>,
}

impl LinkState {
    /// Returns the properties of the interface of index `index`.
    pub(crate) fn of(index: u32) -> Result<Self, Errno> {
        link::query(Which::Index(index)).map(|link| Self::from(&link))
    }
}

impl From<&LinkInfo> for LinkState {
    fn from(link: &LinkInfo) -> Self {
        let &LinkInfo { mac, mtu, up, carrier, .. } = link;
        let shaper = link.shaper().map(Into::into);
        Self { name: link.name.clone(), mac, mtu, up, carrier, shaper }
    }
}

impl Port {
    /// Packets are sent as the link carries them: no checksum is completed, no segmentation is done on
    /// transmit.
    pub const ABILITIES: Abilities = Abilities { partial_checksums: false, segments: false };

    /// Makes `endpoints` the port's tunnel endpoints: the kernel keeps all other packets. An endpoint in the
    /// old and the new set is served without interruption.
    ///
    /// # Errors
    /// Error of the kernel; `NODEV` for a port that takes every packet.
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

    /// Returns the interface's current properties.
    ///
    /// # Errors
    /// `NODEV` if the interface is gone.
    pub fn link(&self) -> Result<LinkState, Errno> {
        LinkState::of(self.interface.index)
    }

    /// Reads the interface's properties again, and makes its MTU, or `most_mtu` if lower, the limit for
    /// sending.
    ///
    /// # Errors
    /// `NODEV` if the interface is gone, or if its program was detached.
    pub fn refresh(&self, most_mtu: Option<u32>) -> Result<LinkState, Errno> {
        let link = link::query(Which::Index(self.interface.index))?;
        self.link_dropped.note(&link);
        self.taken.set_mac(link.mac);
        // Relaxed: the number orders nothing.
        self.mtu.store(link.mtu.min(most_mtu.unwrap_or(u32::MAX)), Ordering::Relaxed);
        if self.is_attached() { Ok((&link).into()) } else { Err(Errno::NODEV) }
    }

    /// True unless the program was detached from outside.
    pub fn is_attached(&self) -> bool {
        self.attachment.is_attached()
    }

    /// Returns the number of packets that the interface has dropped on transmit since it was opened, as of
    /// the last [`refresh`](Self::refresh). Packets of other senders are included, and those that a queue
    /// counts as `tx-error`.
    pub fn link_dropped(&self) -> u64 {
        self.link_dropped.count()
    }

    /// Returns the current moderation of each NAPI context of the interface.
    ///
    /// # Errors
    /// Error of the kernel; before Linux 6.13 the request is unknown.
    pub fn moderation(&self) -> Result<Vec<Moderation>, Errno> {
        napi::moderations(self.interface.index)
    }

    /// Returns the kernel's refusals of receive settings since the port was opened, as text.
    pub fn refusals(&self) -> Vec<String> {
        let cores = self.cores.iter().filter_map(Weak::upgrade);
        cores.filter_map(|core| Some(refusal(core.queue().unwrap_or(0), core.refused()?))).collect()
    }

    /// Returns the kernel's counters, summed over all open queues.
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

/// Returns the text of a refusal: the operation, its effect, and the remedy.
fn refusal(queue: u32, refused: Refused) -> String {
    let Refused { step, errno } = refused;
    let remedy = match errno {
        Errno::PERM | Errno::ACCESS => {
            "; grant CAP_SYS_NICE and CAP_NET_ADMIN, in systemd by CapabilityBoundingSet=, or run as root"
        }
        _ => "",
    };
    format!(
        "queue {queue}: cannot {step}: {errno}; the interface is unchanged. Under overload the kernel can \
         take CPU time from the worker without limit, and cpu_share does not bound it{remedy}"
    )
}
