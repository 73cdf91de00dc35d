//! Interface of all device kinds to the rest of the gateway.

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
use polder_datapath::capture::{CapturePoints, Program};
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
pub struct PortProperties {
    /// Name of the interface.
    pub interface: String,
    /// Kernel index of the interface; `None` for a device without kernel interface.
    pub index: Option<u32>,
    /// MAC address.
    pub mac: MacAddress,
    /// MTU in bytes, Ethernet header excluded.
    pub mtu: u32,
    /// Offloads: incomplete checksums and super-packets that it accepts.
    pub takes: Takes,
    /// Number of queues.
    pub queues: usize,
    /// Attach mode, as a line of text.
    pub mode: String,
    /// Reason for the mode if the device has chosen it.
    pub mode_reason: Option<Box<str>>,
    /// Queueing discipline of the kernel's that shapes what leaves the interface, if it has one.
    pub shaper: Option<Box<str>>,
    /// Neighbour and addresses of a point-to-point link; `None` for other links.
    pub link_addresses: Option<PointToPoint>,
}

impl PortProperties {
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
            shaper: None,
            link_addresses: None,
        }
    }
}

/// A point-to-point link: the sessions of a modem, whose addresses the network assigns, or an interface without Ethernet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointToPoint {
    /// MAC address of the neighbour.
    pub neighbour: MacAddress,
    /// Own addresses of each active modem session, by number; session 0 is untagged, session n is VLAN n.
    pub sessions: Vec<(u8, Vec<InterfaceAddress>)>,
}

/// An open port whose queues no worker has yet.
pub struct OpenPort {
    /// Number of the port.
    pub id: PortId,
    /// Properties of the port.
    pub facts: PortProperties,
    /// Its queues.
    pub queues: Vec<AnyQueue>,
    /// Handle that keeps the device open; `None` for an in-memory port.
    pub handle: Option<Box<dyn Handle>>,
    /// Backlog of a consumer behind the port, which runs on the CPU time of the worker that owns the queue.
    pub backlog: Option<Arc<Backlog>>,
    /// Lock of the interface.
    pub lock: Option<InterfaceLock>,
}

impl OpenPort {
    /// A port whose device stays open as long as the handle is there.
    pub(super) fn held(
        id: PortId,
        facts: PortProperties,
        queues: Vec<AnyQueue>,
        handle: impl Handle + 'static,
    ) -> Self {
        Self { handle: Some(Box::new(handle)), ..Self::in_memory(id, facts, queues) }
    }

    /// A port that consists of queues only, such as the end of an in-memory cable.
    pub fn in_memory(id: PortId, facts: PortProperties, queues: Vec<AnyQueue>) -> Self {
        Self { id, facts, queues, handle: None, backlog: None, lock: None }
    }
}

/// State of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The link carries packets.
    Up,
    /// The interface is up without carrier.
    NoCarrier,
    /// The interface is down.
    Down,
}

impl Link {
    /// Link state from the interface's flags.
    pub(super) fn new(up: bool, carrier: bool) -> Self {
        match (up, carrier) {
            (true, true) => Self::Up,
            (true, false) => Self::NoCarrier,
            (false, _) => Self::Down,
        }
    }
}

/// A link without carrier that may come up soon after the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedLink {
    /// True if the link was up before the device was opened.
    pub had_carrier: bool,
    /// True for hardware, which may reset the link when a program is attached.
    pub is_hardware: bool,
}

/// Kind of port that a successor process can adopt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartsKind {
    /// An interface through a TAP.
    Skb {
        /// Version of the memory shared by the program and the receivers.
        layout: u32,
        /// True if the program carries flows.
        has_flows: bool,
    },
    /// A TAP.
    Tap,
    /// The device of a tunnel.
    Tun,
}

/// Properties that the device of a tunnel has to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelLink {
    /// The tunnel's MTU in bytes; `None` while it is unknown.
    pub mtu: Option<u32>,
    /// True if the tunnel can be used.
    pub carrier: bool,
    /// Addresses of the configuration; others on the device stay.
    pub addresses: Vec<InterfaceAddress>,
}

/// Descriptors of a port of another process.
#[derive(Debug)]
pub struct Parts {
    /// Their kind.
    pub kind: PartsKind,
    /// Descriptors, as the kind requires.
    pub descriptors: Vec<OwnedFd>,
}

impl PartsKind {
    /// Reason why this process cannot adopt the port; `None` if it can.
    pub fn obstacle(self) -> Option<String> {
        match self {
            Self::Skb { layout, .. } if layout != LAYOUT => Some(format!(
                "its eBPF program uses another layout of shared memory (version {layout}, not {})",
                LAYOUT
            )),
            Self::Skb { .. } | Self::Tap | Self::Tun => None,
        }
    }
}

/// Finding about the host and a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// Topic, as a word or two.
    pub topic: &'static str,
    /// Description, with the remedy.
    pub text: String,
    /// True if the device can be opened in spite of the finding.
    pub opens: bool,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// No action needed.
    Fine,
    /// Some packets may be slow or lost.
    Warning,
    /// The gateway will not start, or most packets will be lost.
    Problem,
}

impl Finding {
    pub(super) fn new(severity: Severity, topic: &'static str, text: String) -> Self {
        Self { severity, topic, text, opens: severity < Severity::Problem }
    }
}

/// Function that opens a device on another thread, because that takes seconds.
pub type SlowOpening = Box<dyn FnOnce() -> Result<OpenPort> + Send>;

/// A kind of device, before a device is open.
pub(super) trait Driver {
    /// Opens the device of `port`.
    fn open(&self, port: &Port, configuration: &Configuration, region: &Region) -> Result<OpenPort>;

    /// Function that opens the device again on another thread; `None` if opening is fast.
    fn slow_opening(&self, _port: &Port, _configuration: &Configuration) -> Option<SlowOpening> {
        None
    }

    /// Findings about the host and the device, without opening it.
    fn inspect(&self, port: &Port, configuration: &Configuration) -> Vec<Finding>;

    /// Description of the device, as text.
    fn describe(&self) -> String;
}

/// Handle that keeps a device open, and reports on it.
pub trait Handle: Send {
    /// Updates name, address and MTU in `facts`, with the MTU at most `most_mtu`. Returns the state of the
    /// link; `None` for a device without one.
    ///
    /// # Errors
    /// When the device is gone.
    fn refresh(&self, facts: &mut PortProperties, most_mtu: Option<u32>) -> Result<Option<Link>, Errno>;

    /// True unless the link is known to be down.
    fn carries(&self) -> bool {
        true
    }

    /// Link without carrier that the start may wait for.
    fn awaited_link(&self) -> Option<AwaitedLink> {
        None
    }

    /// Reason why a queue of the device has closed.
    fn why_closed(&self) -> &'static str {
        GONE
    }

    /// Findings of the last opening that need a remedy.
    fn findings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Another application's program that sees packets before the device's own, if any.
    fn program_in_front(&self) -> Option<String> {
        None
    }

    /// Driver requests that the kernel has refused since the device was opened.
    fn refusals(&self) -> Vec<String> {
        Vec::new()
    }

    /// Verdict of the device's XDP or TCX program on a frame; `None` for a device without a program.
    fn verdict(&self, _frame: &[u8]) -> Option<Result<XdpVerdict, Errno>> {
        None
    }

    /// Sets the tunnel endpoints of `configuration` on `port`; packets of other tunnels stay with the kernel.
    ///
    /// # Errors
    /// Errors of the kernel.
    fn set_tunnels(&self, _port: &Port, _configuration: &Configuration) -> Result<(), Errno> {
        Ok(())
    }

    /// Sets the ingresses whose packets are routed, and the local prefixes whose packets stay with the
    /// kernel.
    ///
    /// # Errors
    /// Errors of the kernel.
    fn set_router(&self, _ingresses: &[Ingress], _local: &[LocalPrefixes]) -> Result<(), Errno> {
        Ok(())
    }

    /// Index of the interface at whose ingress packets can be punted to the kernel; `None` if they cannot.
    fn punt_interface(&self) -> Option<u32> {
        None
    }

    /// Sets the ports that the punt path serves, each with its interface index.
    ///
    /// # Errors
    /// Errors of the kernel.
    fn set_punt_ports(&self, _ports: &BTreeMap<PortId, u32>) -> Result<(), Errno> {
        Ok(())
    }

    /// Number of packets punted at a port's interface; `None` if the device is no punt path or does not serve
    /// the port.
    fn returned(&self, _port: PortId) -> Option<u64> {
        None
    }

    /// Number of punted packets that the port's program recognised; `None` if the program cannot see them.
    fn recognized(&self) -> Option<u64> {
        None
    }

    /// Sets properties of a tunnel's device where they differ from the last ones; others' changes stay until then.
    fn set_tunnel_link(&self, _link: &TunnelLink) {}

    /// Sets the link-local groups that the port's bridge forwards and that the kernel does not receive.
    fn set_forward_groups(&self, _groups: ForwardGroups) {}

    /// Number of packets that the interface dropped on transmission since it was opened; `None` if each queue
    /// counts its drops.
    fn link_dropped(&self) -> Option<u64> {
        None
    }

    /// Yield word of a router port; `None` for a device or port without one.
    fn yield_word(&self) -> Option<&Arc<YieldWord>> {
        None
    }

    /// Flow table of the device's program; `None` if it carries no flows.
    fn flows(&self) -> Option<&Arc<FlowTable>> {
        None
    }

    /// Copies of received or sent packets that match a filter, with at most `longest` bytes each; `None` for
    /// a device whose packets are all in user space.
    fn copies(
        &self,
        _filter: &Program,
        _longest: u32,
        _places: CapturePoints,
    ) -> Option<Result<Copies, CopyError>> {
        None
    }

    /// Counters of packets that are lost outside of queues, if any.
    fn lost(&self) -> Option<Arc<QueueCounters>> {
        None
    }

    /// Function that restores the device's settings after a worker was lost with its queues; `None` for a
    /// device without settings.
    fn restore(&self) -> Option<Box<dyn FnOnce()>> {
        None
    }

    /// Descriptors that a successor process needs to adopt the device; `None` if the successor has to open it
    /// again.
    fn parts(&self) -> Option<(PartsKind, Vec<BorrowedFd<'_>>)> {
        None
    }

    /// Activates the program of an adopted device.
    ///
    /// # Errors
    /// Errors of the kernel.
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    /// Activates the device's program again after a failed hand-over.
    ///
    /// # Errors
    /// Errors of the kernel.
    fn take_back(&self) -> Result<()> {
        Ok(())
    }

    /// Lets the device hold more packets than usual while another process takes over, or ends that.
    fn deepen(&self, _is_deep: bool) {}

    /// Keeps the device's state when it is closed, because a successor process has adopted it.
    fn leave(&mut self) {}

    /// Row of `polder show ports` about a USB adapter.
    fn adapter_row(&self) -> Option<AdapterRow> {
        None
    }

    /// Row about a modem.
    fn modem_row(&self) -> Option<ModemRow> {
        None
    }

    /// Connects or disconnects a modem's sessions; returns false if the device is no modem.
    fn order_modem(&self, _connects: bool) -> bool {
        false
    }

    /// Row of `polder show ports` about a PCI device.
    fn nic_row(&self) -> Option<NicRow> {
        None
    }

    /// Rows of `polder show buffers` about transfer memory of the port `_port`.
    fn transfers(&self, _port: &str) -> Vec<TransferRow> {
        Vec::new()
    }
}

/// Reason why a port is closed.
pub const GONE: &str = "the interface has disappeared";

/// Number of slots of packet memory.
pub fn frames(configuration: &Configuration) -> u32 {
    let gateway = &configuration.gateway;
    let slots = (u64::from(gateway.memory_mib) << 20) / u64::from(gateway.slot_bytes);
    u32::try_from(slots).unwrap_or(u32::MAX)
}

/// Link-local groups that the bridge of `port` forwards.
pub fn forward_groups(port: &Port, configuration: &Configuration) -> ForwardGroups {
    configuration.bridge_of(port.id).map(Bridge::groups).unwrap_or_default()
}

/// Refill threshold of rings, and limit for copying small packets.
pub(super) fn receiving(configuration: &Configuration) -> Receiving {
    Receiving {
        refill_below_percent: configuration.lab.refill_below_percent,
        copy_break: configuration.buffers.copy_break,
        headroom: headroom(configuration),
    }
}
