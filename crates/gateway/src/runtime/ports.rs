//! Opening a device port.

use super::adapter;
use crate::config::buffers::headroom;
use crate::config::model::{Bridge, Configuration, Device, Mode, OnExit, Port, Queues, Role};
use anyhow::{Context as _, Result};
use polder_buffers::{PortId, Region};
use polder_datapath::offload::Takes;
use polder_datapath::tunnel::Ends;
use polder_datapath::wire::MacAddress;
use polder_devices::lan78xx::PortStatus;
use polder_devices::{AnyQueue, Queue, Receiving, af_xdp, tap};
use std::sync::Arc;

/// Properties of an open port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The interface's name.
    pub interface: String,
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
}

/// A port that has been opened and belongs to no worker yet.
pub struct OpenPort {
    /// Its number.
    pub id: PortId,
    /// Properties of the port.
    pub facts: Facts,
    /// Its queues.
    pub queues: Vec<AnyQueue>,
    /// Attachment that keeps the device.
    pub attachment: Option<Attachment>,
}

/// Driver's handle that keeps a device open, or reports on it.
pub enum Attachment {
    /// An interface that is attached by AF_XDP.
    Interface(Box<af_xdp::Port>),
    /// A USB adapter.
    Adapter(Arc<PortStatus>),
    /// A TAP, whose buffers hold packets of so many bytes at most, Ethernet header excluded.
    Tap(u32),
}

impl Attachment {
    /// The interface, if it is one.
    pub fn interface(&self) -> Option<&af_xdp::Port> {
        match self {
            Self::Interface(port) => Some(port),
            Self::Adapter(_) | Self::Tap(_) => None,
        }
    }

    /// The adapter, if it is one.
    pub fn adapter(&self) -> Option<&Arc<PortStatus>> {
        match self {
            Self::Interface(_) | Self::Tap(_) => None,
            Self::Adapter(status) => Some(status),
        }
    }
}

/// Opens the device of `port`.
///
/// # Errors
/// When the device cannot be opened; the message says what to do.
pub fn open(port: &Port, configuration: &Configuration, region: &Region) -> Result<OpenPort> {
    let opened = match &port.device {
        Device::Tap(name) => open_tap(name, port, receiving(configuration), region),
        Device::Lan78xx(adapter) => adapter::open(adapter, port, receiving(configuration)),
        Device::Interface(name) => {
            open_interface(&interface_options(name, port, configuration), port.id, region)
        }
    };
    opened.with_context(|| format!("cannot open port {}", port.name))
}

/// The tunnels whose packets are taken on `port`.
pub fn endpoints(port: PortId, configuration: &Configuration) -> Vec<af_xdp::TunnelEndpoint> {
    let over = configuration.tunnels.iter().filter(|tunnel| tunnel.port == port);
    over.filter_map(|tunnel| {
        let ends = Ends::of(tunnel.local, tunnel.remote)?;
        Some(af_xdp::TunnelEndpoint { ends, carrier: tunnel.carrier() })
    })
    .collect()
}

/// Options with which the driver opens `interface` as `port`.
pub fn interface_options(interface: &str, port: &Port, configuration: &Configuration) -> af_xdp::Options {
    let options = match port.role {
        Role::Bridge => af_xdp::Options::whole(interface),
        Role::Underlay => af_xdp::Options::tunnels(interface, endpoints(port.id, configuration)),
        Role::Router => af_xdp::Options::routed(interface, endpoints(port.id, configuration)),
    };
    let interfaces = configuration.ports.iter().filter(|port| matches!(port.device, Device::Interface(_)));
    let interfaces = u32::try_from(interfaces.count()).unwrap_or(u32::MAX);
    af_xdp::Options {
        on_exit: match port.on_exit {
            OnExit::Kernel => af_xdp::OnExit::Kernel,
            OnExit::Drop => af_xdp::OnExit::Drop,
        },
        mode: match port.mode {
            Mode::Auto => af_xdp::Mode::Auto,
            Mode::ZeroCopy => af_xdp::Mode::ZeroCopy,
            Mode::Native => af_xdp::Mode::Native,
            Mode::Generic => af_xdp::Mode::Generic,
        },
        queues: match port.queues {
            Queues::All => None,
            Queues::Count(count) => Some(u32::from(count)),
        },
        mtu: port.mtu.map(u32::from),
        needs_tags: needs_tags(port.id, configuration),
        receiving: receiving(configuration),
        // Half of the memory may wait in receive rings; the other half is on its way.
        receive_frames: Some(frames(configuration) / 2 / interfaces.max(1)),
        moderation: moderation(port),
        adapts: configuration.gateway.balance && port.moderation_us.is_none() && !port.busy_poll,
        busy_poll: port.busy_poll.then_some(af_xdp::BusyPoll { budget: BATCH_PACKETS, microseconds: 1 }),
        ..options
    }
}

/// True if tags keep packets of the port apart, because it is a member of a VLAN-aware bridge.
fn needs_tags(port: PortId, configuration: &Configuration) -> bool {
    let is_member = |bridge: &Bridge| bridge.members.iter().any(|member| member.port == port);
    let mut bridges = configuration.bridges.iter();
    bridges.any(|bridge| bridge.is_vlan_aware() && is_member(bridge))
}

/// Moderation of the kernel's polling of the device.
fn moderation(port: &Port) -> Option<af_xdp::Moderation> {
    let microseconds = match (port.moderation_us, port.busy_poll) {
        (None | Some(0), false) => return None,
        // Interrupts stay masked between two questions of the worker only as long as this.
        (None | Some(0), true) => BUSY_POLL_TIMER,
        (Some(moderation), _) => u32::from(moderation),
    };
    Some(af_xdp::Moderation { microseconds, empty_polls: EMPTY_POLLS })
}

/// Packets that the kernel brings in when the worker asks: as many as a turn takes.
const BATCH_PACKETS: u32 = 64;
/// Microseconds after which the kernel polls a device that no worker has polled.
const BUSY_POLL_TIMER: u32 = 200;
/// Polls in vain after which interrupts come again: one may meet a gap of a flow that goes on.
const EMPTY_POLLS: u32 = 2;

/// Slots of packet memory.
pub fn frames(configuration: &Configuration) -> u32 {
    let gateway = &configuration.gateway;
    let slots = (u64::from(gateway.memory_mib) << 20) / u64::from(gateway.slot_bytes);
    u32::try_from(slots).unwrap_or(u32::MAX)
}

/// Refill threshold of rings, and treatment of small packets.
pub(super) fn receiving(configuration: &Configuration) -> Receiving {
    let buffers = &configuration.buffers;
    Receiving {
        refill_below_percent: buffers.refill_below_percent,
        copy_break: buffers.copy_break,
        headroom: headroom(configuration),
    }
}

fn open_interface(options: &af_xdp::Options, id: PortId, region: &Region) -> Result<OpenPort> {
    let af_xdp::Opened { port: attachment, queues } = af_xdp::open(options, region)?;
    let report = &attachment.report;
    let hook = report.hook.map(|hook| hook.to_string()).unwrap_or_default();
    let transfer = if report.zero_copy == Some(true) { "zero copy" } else { "copy" };
    let interface = &attachment.interface;
    let facts = Facts {
        interface: interface.name.clone(),
        mac: MacAddress(interface.mac),
        mtu: interface.mtu.min(options.mtu.unwrap_or(u32::MAX)),
        takes: Takes::default(),
        queues: queues.len(),
        mode: format!("AF_XDP, {hook}, {transfer}"),
    };
    Ok(OpenPort { id, facts, queues, attachment: Some(Attachment::Interface(Box::new(attachment))) })
}

fn open_tap(name: &str, port: &Port, receiving: Receiving, region: &Region) -> Result<OpenPort> {
    let queues = match port.queues {
        Queues::All => 1,
        Queues::Count(count) => usize::from(count),
    };
    let offloads = if port.segments { tap::Offloads::Segments } else { tap::Offloads::Checksum };
    let mtu = port.mtu.map(u32::from);
    let options = tap::Options { queues, receiving, mtu, offloads, ..tap::Options::new(name) };
    let tap = tap::open(&options, region)?;
    let facts = Facts {
        interface: tap.interface.name,
        mac: MacAddress(tap.interface.mac),
        mtu: tap.interface.mtu,
        // What the kernel takes from us it may also give to us.
        takes: Takes { partial_checksums: true, segments: true, udp_segments: tap.udp_segments },
        queues: tap.queues.len(),
        mode: "TAP with virtio-net headers".to_owned(),
    };
    let queues = tap.queues.into_iter().map(Queue::boxed).collect();
    let attachment = Some(Attachment::Tap(facts.mtu));
    Ok(OpenPort { id: port.id, facts, queues, attachment })
}
