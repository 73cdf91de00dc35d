//! Answers of the kinds of device to the rest of the gateway.

use super::lock::InterfaceLock;
use crate::config::buffers::headroom;
use crate::config::model::{Bridge, Configuration, Port};
use crate::config::router::InterfaceAddress;
use crate::show::adapter::AdapterRow;
use crate::show::buffers::TransferRow;
use crate::show::modem::ModemRow;
use crate::show::nic::NicRow;
use anyhow::Result;
use polder_buffers::{PortId, Region};
use polder_datapath::capture::{Program, Where};
use polder_datapath::counters::QueueCounters;
use polder_datapath::forward::ForwardGroups;
use polder_datapath::offload::Takes;
use polder_datapath::scheduler::Backlog;
use polder_datapath::wire::MacAddress;
use polder_devices::af_xdp::{Ingress, LocalPrefixes, XdpVerdict, YieldWord};
use polder_devices::skb::{Copies, CopyError, FlowTable, LAYOUT};
use polder_devices::{AnyQueue, Receiving};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Properties of an open port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The interface's name.
    pub interface: String,
    /// The kernel's number of the interface; `None` for a device that the kernel does not have.
    pub index: Option<u32>,
    /// Its link-layer address.
    pub mac: MacAddress,
    /// Its longest network packet, in bytes, Ethernet header excluded.
    pub mtu: u32,
    /// Packets that it takes beyond complete packets that fit its link.
    pub takes: Takes,
    /// Number of queues.
    pub queues: usize,
    /// Mode in which it is attached, in one line.
    pub mode: String,
    /// Reason for that mode, where the configuration leaves it to the device.
    pub mode_reason: Option<String>,
    /// Neighbour and addresses of a link that has one neighbour; `None` for other links.
    pub link_addresses: Option<PointToPoint>,
}

impl Facts {
    /// Facts of a device that the kernel does not have, with one queue, which takes complete packets alone.
    pub fn new(interface: impl Into<String>, mac: MacAddress, mtu: u32, mode: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            index: None,
            mac,
            mtu,
            takes: Takes::default(),
            queues: 1,
            mode: mode.into(),
            mode_reason: None,
            link_addresses: None,
        }
    }
}

/// A link with one neighbour, whose addresses the network gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointToPoint {
    /// Link-layer address of the neighbour.
    pub neighbour: MacAddress,
    /// Own addresses of each session that is active; session 0 has no tag, the others have their number as VLAN.
    pub sessions: Vec<(u8, Vec<InterfaceAddress>)>,
}

/// A port that has been opened and belongs to no worker yet.
pub struct OpenPort {
    /// Its number.
    pub id: PortId,
    /// Properties of the port.
    pub facts: Facts,
    /// Its queues.
    pub queues: Vec<AnyQueue>,
    /// Handle that keeps the device open; `None` for a port that is in memory alone.
    pub handle: Option<Box<dyn Handle>>,
    /// Backlog of a consumer behind the port, which works on the time of the worker that has its queue.
    pub backlog: Option<Arc<Backlog>>,
    /// Lock of its interface.
    pub lock: Option<InterfaceLock>,
}

impl OpenPort {
    /// A port whose device stays open as long as the handle is there.
    pub(super) fn held(
        id: PortId,
        facts: Facts,
        queues: Vec<AnyQueue>,
        handle: impl Handle + 'static,
    ) -> Self {
        Self { handle: Some(Box::new(handle)), ..Self::in_memory(id, facts, queues) }
    }

    /// A port with queues alone, such as the ends of an in-memory cable.
    pub fn in_memory(id: PortId, facts: Facts, queues: Vec<AnyQueue>) -> Self {
        Self { id, facts, queues, handle: None, backlog: None, lock: None }
    }
}

/// The state of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The link carries packets.
    Up,
    /// The interface is up, and has no carrier.
    NoCarrier,
    /// The interface is switched off.
    Down,
}

impl Link {
    /// The link of an interface that is switched on or not, with or without carrier.
    pub(super) fn new(up: bool, carrier: bool) -> Self {
        match (up, carrier) {
            (true, true) => Self::Up,
            (true, false) => Self::NoCarrier,
            (false, _) => Self::Down,
        }
    }
}

/// A link without carrier that may come up a moment after the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedLink {
    /// True if the link was up before the device was opened.
    pub had_carrier: bool,
    /// True if it is hardware, whose link may be reset when a program is attached.
    pub is_hardware: bool,
}

/// Kind of the parts with which another process goes on with an open port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartsKind {
    /// An interface through a TAP.
    Skb {
        /// Version of what its program and its receivers share.
        layout: u32,
        /// True if its program carries flows.
        has_flows: bool,
    },
    /// A TAP.
    Tap,
}

/// Parts of a port that another process has open.
#[derive(Debug)]
pub struct Parts {
    /// Their kind.
    pub kind: PartsKind,
    /// Descriptors of the kind.
    pub descriptors: Vec<OwnedFd>,
}

impl PartsKind {
    /// Reason why this process cannot go on with such parts; `None` if it can.
    pub fn obstacle(self) -> Option<String> {
        match self {
            Self::Skb { layout, .. } if layout != LAYOUT => Some(format!(
                "its program shares memory in another form (version {layout} and not {})",
                LAYOUT
            )),
            Self::Skb { .. } | Self::Tap => None,
        }
    }
}

/// Finding about the machine and a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// Topic, in a word or two.
    pub topic: &'static str,
    /// Description, and the remedy.
    pub text: String,
    /// True if the device can be opened all the same.
    pub opens: bool,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// As it should be, or good to know.
    Fine,
    /// Something will be slower, or lost in some cases.
    Warning,
    /// The gateway will not start, or most packets will be lost.
    Problem,
}

impl Finding {
    pub(super) fn new(severity: Severity, topic: &'static str, text: String) -> Self {
        Self { severity, topic, text, opens: severity < Severity::Problem }
    }
}

/// Opens a device on another thread, because that takes seconds.
pub type SlowOpening = Box<dyn FnOnce() -> Result<OpenPort> + Send>;

/// A kind of device, before a device of it is open.
pub(super) trait Driver {
    /// Opens the device of `port`.
    fn open(&self, port: &Port, configuration: &Configuration, region: &Region) -> Result<OpenPort>;

    /// Opens the device again on another thread; `None` for a device that is opened at once.
    fn slow_opening(&self, _port: &Port, _configuration: &Configuration) -> Option<SlowOpening> {
        None
    }

    /// Obstacles on this machine to the device, found without touching it.
    fn inspect(&self, port: &Port, configuration: &Configuration) -> Vec<Finding>;

    /// The device, for people.
    fn describe(&self) -> String;
}

/// Handle that keeps a device open, and reports on it.
pub trait Handle: Send {
    /// Looks at the device again: takes its name, address and MTU over into `facts`, or `most_mtu` where that is less.
    /// Answers the state of its link; `None` for a device that has none.
    ///
    /// # Errors
    /// When the device is gone.
    fn refresh(&self, facts: &mut Facts, most_mtu: Option<u32>) -> Result<Option<Link>, Errno>;

    /// True unless it is known that nothing is connected.
    fn carries(&self) -> bool {
        true
    }

    /// The link, if it has no carrier and may be waited for.
    fn awaited_link(&self) -> Option<AwaitedLink> {
        None
    }

    /// Reason why a queue of the device has closed.
    fn why_closed(&self) -> &'static str {
        GONE
    }

    /// Findings at the last opening that ought to be mended.
    fn findings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Program of another's that has the device's packets before its own, if there is one.
    fn program_in_front(&self) -> Option<String> {
        None
    }

    /// Requests of the driver that the kernel has refused since the device was opened.
    fn refusals(&self) -> Vec<String> {
        Vec::new()
    }

    /// Verdict of the device's XDP or TCX program on a frame; `None` for a device without one, which brings every frame.
    fn verdict(&self, _frame: &[u8]) -> Option<Result<XdpVerdict, Errno>> {
        None
    }

    /// Takes the packets of the tunnels that `configuration` has on `port`, and leaves those of others to the kernel.
    ///
    /// # Errors
    /// Errors of the kernel.
    fn set_tunnels(&self, _port: &Port, _configuration: &Configuration) -> Result<(), Errno> {
        Ok(())
    }

    /// Takes what comes by `ingresses` for routing, and leaves what is for `local` to the kernel.
    ///
    /// # Errors
    /// Errors of the kernel.
    fn set_router(&self, _ingresses: &[Ingress], _local: &[LocalPrefixes]) -> Result<(), Errno> {
        Ok(())
    }

    /// Number of the interface at whose ingress packets can return to the kernel; `None` for a device without a punt path.
    fn punt_interface(&self) -> Option<u32> {
        None
    }

    /// Makes `ports` the ports whose packets the punt path takes, each with the number of its interface.
    ///
    /// # Errors
    /// Errors of the kernel.
    fn set_punt_ports(&self, _ports: &BTreeMap<PortId, u32>) -> Result<(), Errno> {
        Ok(())
    }

    /// Packets that the punt path returned at the interface of a port; `None` for a device that is none, or has no such port.
    fn returned(&self, _port: PortId) -> Option<u64> {
        None
    }

    /// Returned packets that the port's program knew again; `None` for a device whose program does not see them.
    fn recognized(&self) -> Option<u64> {
        None
    }

    /// Makes `groups` the link-local groups that the bridge of the port forwards, and that the kernel does not receive.
    fn set_forward_groups(&self, _groups: ForwardGroups) {}

    /// Packets that the interface has dropped since it was opened, although it was given them; `None` where drops are
    /// known packet by packet.
    fn link_dropped(&self) -> Option<u64> {
        None
    }

    /// Word by which the packets of a router's port are left to the kernel; `None` for a device or a port without one.
    fn yield_word(&self) -> Option<&Arc<YieldWord>> {
        None
    }

    /// Table of flows that the device's program carries, if it can.
    fn flows(&self) -> Option<&Arc<FlowTable>> {
        None
    }

    /// Copies of packets that the device receives, sends, or both, for a capture with this filter and at most so many bytes
    /// of each; `None` for a device whose packets all come to user space.
    fn copies(&self, _filter: &Program, _longest: u32, _places: Where) -> Option<Result<Copies, CopyError>> {
        None
    }

    /// Counters of packets that are lost where no queue sees them, if there is such a place.
    fn lost(&self) -> Option<Arc<QueueCounters>> {
        None
    }

    /// Puts the device's settings back after a worker was lost with its queues; `None` for a device without such
    /// settings.
    fn restore(&self) -> Option<Box<dyn FnOnce()>> {
        None
    }

    /// Parts with which another process can go on; `None` for a device that it has to open anew.
    fn parts(&self) -> Option<(PartsKind, Vec<BorrowedFd<'_>>)> {
        None
    }

    /// Puts the program of a device to work that another process has had.
    ///
    /// # Errors
    /// Errors of the kernel.
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    /// Puts the device's program to work again: the process that was to go on with it does not.
    ///
    /// # Errors
    /// Errors of the kernel.
    fn take_back(&self) -> Result<()> {
        Ok(())
    }

    /// Has more packets wait in the device while another process takes over, or no more than otherwise.
    fn deepen(&self, _is_deep: bool) {}

    /// Leaves the device as it is when it is closed: another process goes on with it.
    fn leave(&mut self) {}

    /// Row of `polder show ports` about an adapter.
    fn adapter_row(&self) -> Option<AdapterRow> {
        None
    }

    /// Row about a modem.
    fn modem_row(&self) -> Option<ModemRow> {
        None
    }

    /// Has a modem connect its sessions, or disconnect them; false for a device that is none.
    fn order_modem(&self, _connects: bool) -> bool {
        false
    }

    /// Row of `polder show ports` about a PCI device.
    fn nic_row(&self) -> Option<NicRow> {
        None
    }

    /// Rows of `polder show buffers` about memory of transfers, for the port of that name.
    fn transfers(&self, _port: &str) -> Vec<TransferRow> {
        Vec::new()
    }
}

/// Reason why a port is closed.
pub const GONE: &str = "the interface has disappeared";

/// Slots of packet memory.
pub fn frames(configuration: &Configuration) -> u32 {
    let gateway = &configuration.gateway;
    let slots = (u64::from(gateway.memory_mib) << 20) / u64::from(gateway.slot_bytes);
    u32::try_from(slots).unwrap_or(u32::MAX)
}

/// Link-local groups that the bridge of `port` forwards.
pub fn forward_groups(port: &Port, configuration: &Configuration) -> ForwardGroups {
    configuration.bridge_of(port.id).map(Bridge::groups).unwrap_or_default()
}

/// Refill threshold of rings, and treatment of small packets.
pub(super) fn receiving(configuration: &Configuration) -> Receiving {
    Receiving {
        refill_below_percent: configuration.lab.refill_below_percent,
        copy_break: configuration.buffers.copy_break,
        headroom: headroom(configuration),
    }
}
