//! Kinds of events.

use super::words::{held_routes, of_vlan, program_in_front, refused, synchronized};
use crate::show::layout::{duration, grouped};
use serde::{Deserialize, Serialize};

/// Log level of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Routine changes: stations, neighbours.
    Debug,
    /// An expected change.
    Info,
    /// A condition that needs attention.
    Warn,
    /// A failure.
    Error,
}

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// Carries packets.
    Up,
    /// Up without carrier.
    NoCarrier,
    /// Down.
    Down,
}

/// Kind of an event, with its fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum EventKind {
    /// The link state of an open port has changed.
    Carrier {
        /// The port.
        port: String,
        /// The interface or device.
        device: String,
        /// New state.
        state: LinkState,
    },
    /// The interface of an open port was renamed.
    Renamed {
        /// The port.
        port: String,
        /// Old name.
        from: String,
        /// New name.
        to: String,
    },
    /// The state of a modem has changed.
    Modem {
        /// The port.
        port: String,
        /// State or error, as text.
        state: String,
        /// True if its sessions are active.
        connected: bool,
    },
    /// A port was opened.
    PortOpened {
        /// The port.
        port: String,
        /// Device, mode and queues, as text.
        how: String,
    },
    /// An interface that matches a pattern becomes no port.
    PatternSkipped {
        /// The pattern.
        pattern: String,
        /// The interface.
        interface: String,
        /// Reason, as text.
        why: String,
    },
    /// A packet hook of the kernel has appeared, and a port yields: the kernel gets its packets.
    Yielded {
        /// The port.
        port: String,
        /// Hooks that its packets would bypass, each with its effect.
        hooks: Vec<String>,
    },
    /// A port's yield has ended: Polder takes its packets again.
    TakenBack {
        /// The port.
        port: String,
        /// Length of the yield.
        nanos: u64,
    },
    /// A packet hook of the kernel has appeared that a port bypasses.
    HookAppeared {
        /// The port.
        port: String,
        /// The hook, with its effect.
        hook: String,
    },
    /// A packet hook of the kernel has disappeared.
    HookGone {
        /// Port whose packets bypassed it.
        port: String,
        /// The hook, with its effect.
        hook: String,
    },
    /// A reason has appeared why ports with `decide = "kernel"` carry no connections, or none between two
    /// ports.
    ObstacleAppeared {
        /// The reason: a rule, a filter, or a table that cannot be read.
        obstacle: String,
    },
    /// Such a reason has disappeared.
    ObstacleGone {
        /// The reason.
        obstacle: String,
    },
    /// Connections stay with the kernel because the table has no room for them.
    ConnectionsRefused {
        /// Connections in the last second that found the table full.
        full: u64,
        /// Connections in the last second whose source address already has a quarter of the table.
        share: u64,
    },
    /// conntrack events were lost: all connections were removed from the table, and are read again.
    ConnectionEventsLost,
    /// Another application's BPF program receives a port's packets before the port's own, or no longer does.
    ProgramInFront {
        /// The port.
        port: String,
        /// The program; `None` if the port's own is first again.
        program: Option<String>,
    },
    /// A port was closed.
    PortClosed {
        /// The port.
        port: String,
        /// Reason.
        why: String,
    },
    /// The link-layer address of a router's neighbour was learned, changed or removed.
    Neighbour {
        /// The port.
        port: String,
        /// IP address of the neighbour.
        address: String,
        /// MAC address; `None` for a neighbour that was removed or does not answer.
        mac: Option<String>,
    },
    /// A bridge has learned a station.
    StationLearnt {
        /// The bridge.
        bridge: String,
        /// The port or tunnel.
        port: String,
        /// VLAN, on a VLAN-aware bridge.
        vlan: Option<u16>,
        /// Address of the station.
        address: String,
    },
    /// A station has moved to another port.
    StationMoved {
        /// The bridge.
        bridge: String,
        /// Previous port or tunnel.
        from: String,
        /// New port or tunnel.
        to: String,
        /// VLAN, on a VLAN-aware bridge.
        vlan: Option<u16>,
        /// Address of the station.
        address: String,
    },
    /// A frame with the source address of a member's interface or TAP arrived on another member, and was
    /// dropped.
    OwnAddress {
        /// The bridge.
        bridge: String,
        /// Ingress port or tunnel.
        port: String,
        /// The address.
        address: String,
    },
    /// A station's frames come back by a hairpin port, and are dropped.
    HairpinLoop {
        /// The bridge.
        bridge: String,
        /// Ingress port or tunnel.
        port: String,
        /// Address of the station.
        address: String,
    },
    /// Punted packets come back: the port punts no packets for a minute.
    PuntLoop {
        /// Port at whose interface they were punted.
        port: String,
    },
    /// More stations changed in a second than are reported one by one.
    MoreStations {
        /// The bridge.
        bridge: String,
        /// Learned stations.
        learnt: u64,
        /// Moved stations.
        moved: u64,
    },
    /// Routes were added, removed or changed.
    Routes {
        /// Number of IPv4 routes.
        ipv4: u64,
        /// Number of IPv6 routes.
        ipv6: u64,
        /// Changes of routes, next hops and neighbours' addresses in the last second.
        changes: u64,
    },
    /// A routing daemon has ended and its routes are held, or the hold has ended.
    RoutesHeld {
        /// Name of the daemon, or its protocol number.
        protocol: String,
        /// True if routes are held.
        held: bool,
        /// Number of held routes, or of routes that were not added again in time.
        routes: u64,
    },
    /// The kernel's tables are being read again, or have been read completely.
    RoutesSynchronized {
        /// True if they have been read.
        settled: bool,
    },
    /// The state of a tunnel has changed.
    Tunnel {
        /// The tunnel.
        tunnel: String,
        /// `up`, `quiet`, `nothing heard`, `no next hop` or `port closed`.
        state: String,
        /// True if the tunnel is up.
        up: bool,
    },
    /// Packets are dropped for a reason for the first time in a minute.
    DropsBegan {
        /// The reason.
        reason: String,
        /// The stage.
        stage: String,
        /// Packets in the last second.
        packets: u64,
    },
    /// Drops for a reason have ended.
    DropsEnded {
        /// The reason.
        reason: String,
        /// The stage.
        stage: String,
        /// Packets since the first drop.
        packets: u64,
        /// Time from the first to the last drop.
        nanos: u64,
    },
    /// A worker's mode has changed, because its load has changed.
    WorkerMode {
        /// The worker.
        worker: usize,
        /// `interrupts`, `throttled` or `polling`.
        mode: String,
    },
    /// A configuration was applied.
    Reloaded {
        /// Generation of the new configuration.
        generation: u64,
        /// One line for each change.
        changes: Vec<String>,
    },
    /// A configuration was refused.
    ReloadRefused {
        /// Reason, as text of one or more lines.
        why: String,
    },
    /// An unconfirmed reload was rolled back.
    ReloadTakenBack {
        /// One line for each change that was rolled back.
        changes: Vec<String>,
    },
    /// The log filter has changed.
    LogLevel {
        /// The new filter.
        filter: String,
    },
    /// `polder drain` has marked the gateway as not ready, or as ready again.
    Draining {
        /// True if not ready.
        draining: bool,
    },
    /// A successor process has taken over.
    HandedOver {
        /// Process id of the successor.
        process: u32,
    },
    /// An upgrade failed; this process continues.
    UpgradeFailed {
        /// Reason.
        why: String,
    },
    /// The gateway has started.
    Started {
        /// The gateway.
        gateway: String,
        /// Version of Polder.
        version: String,
    },
    /// The gateway stops.
    Stopping {
        /// The gateway.
        gateway: String,
    },
}

impl EventKind {
    /// Log level of the event.
    pub fn level(&self) -> Level {
        match self {
            Self::StationLearnt { .. }
            | Self::Neighbour { mac: Some(_), .. }
            | Self::Routes { .. }
            | Self::MoreStations { .. }
            | Self::WorkerMode { .. } => Level::Debug,
            Self::Carrier { state: LinkState::Up, .. }
            | Self::Modem { .. }
            | Self::PortOpened { .. }
            | Self::TakenBack { .. }
            | Self::PatternSkipped { .. }
            | Self::ProgramInFront { program: None, .. }
            | Self::HookGone { .. }
            | Self::ObstacleGone { .. }
            | Self::Neighbour { mac: None, .. }
            | Self::StationMoved { .. }
            | Self::RoutesSynchronized { settled: true }
            | Self::RoutesHeld { held: false, routes: 0, .. }
            | Self::Tunnel { up: true, .. }
            | Self::DropsEnded { .. }
            | Self::Reloaded { .. }
            | Self::LogLevel { .. }
            | Self::Draining { .. }
            | Self::HandedOver { .. }
            | Self::Started { .. }
            | Self::Stopping { .. } => Level::Info,
            Self::Carrier { state: LinkState::NoCarrier | LinkState::Down, .. }
            | Self::Renamed { .. }
            | Self::PortClosed { .. }
            | Self::ReloadTakenBack { .. }
            | Self::Yielded { .. }
            | Self::HookAppeared { .. }
            | Self::ObstacleAppeared { .. }
            | Self::ConnectionsRefused { .. }
            | Self::ConnectionEventsLost
            | Self::ProgramInFront { .. }
            | Self::RoutesSynchronized { settled: false }
            | Self::RoutesHeld { .. }
            | Self::Tunnel { up: false, .. }
            | Self::OwnAddress { .. }
            | Self::HairpinLoop { .. }
            | Self::PuntLoop { .. }
            | Self::DropsBegan { .. } => Level::Warn,
            Self::ReloadRefused { .. } | Self::UpgradeFailed { .. } => Level::Error,
        }
    }

    /// The event as a line of text.
    #[expect(clippy::too_many_lines, reason = "a line or two for each kind")]
    pub fn text(&self) -> String {
        match self {
            Self::Carrier { port, device, state } => format!("port {port}: {}", link(device, *state)),
            Self::Renamed { port, from, to } => {
                format!(
                    "port {port}: its interface {from} was renamed to {to} and remains in use; write the \
                     new name to the file"
                )
            }
            Self::Modem { port, state, .. } => format!("port {port}: {state}"),
            Self::PortOpened { port, how } => format!("port {port}: {how}"),
            Self::Yielded { port, hooks } => {
                format!("port {port}: the kernel forwards its packets, because {}", hooks.join("; "))
            }
            Self::TakenBack { port, nanos } => {
                format!("port {port}: Polder forwards its packets again after {}", duration(*nanos))
            }
            Self::HookAppeared { port, hook } => {
                format!("port {port}: a new kernel hook is bypassed by its packets: {hook}")
            }
            Self::HookGone { port, hook } => format!("port {port}: kernel hook removed: {hook}"),
            Self::ObstacleAppeared { obstacle } => format!("connections stay with the kernel: {obstacle}"),
            Self::ObstacleGone { obstacle } => {
                format!("removed: {obstacle}, which kept connections with the kernel")
            }
            Self::ConnectionsRefused { full, share } => refused(*full, *share),
            Self::ConnectionEventsLost => {
                "conntrack events were lost: the kernel forwards all connections until they have been read \
                 again"
                    .to_owned()
            }
            Self::ProgramInFront { port, program: Some(program) } => {
                format!("port {port}: {}", program_in_front(program))
            }
            Self::ProgramInFront { port, program: None } => {
                format!("port {port}: its eBPF program is the first of the hook again")
            }
            Self::PatternSkipped { pattern, interface, why } => {
                format!("[port.\"{pattern}\"]: {interface} is not made a port: {why}")
            }
            Self::PortClosed { port, why } => format!("port {port}: closed: {why}; the other ports continue"),
            Self::Neighbour { port, address, mac: Some(mac) } => {
                format!("neighbour {address} on {port} is {mac}")
            }
            Self::Neighbour { port, address, mac: None } => format!(
                "neighbour {address} on {port} was \
                    removed"
            ),
            Self::StationLearnt { bridge, port, vlan, address } => {
                format!("bridge {bridge}: station {address}{} learnt on {port}", of_vlan(*vlan))
            }
            Self::StationMoved { bridge, from, to, vlan, address } => {
                format!("bridge {bridge}: station {address}{} moved from {from} to {to}", of_vlan(*vlan))
            }
            Self::OwnAddress { bridge, port, address } => format!(
                "bridge {bridge}: dropped a frame from {port} with {address} as source, an address of this machine: \
                 it is forged, or there is a loop"
            ),
            Self::HairpinLoop { bridge, port, address } => format!(
                "bridge {bridge}: frames of {address} return on hairpin port {port} and are dropped: the \
                 other end reflects them, too"
            ),
            Self::PuntLoop { port } => format!(
                "port {port}: packets returned to the kernel arrive at Polder a second time, because \
                 another program at the interface's tc ingress changes their control block; for a minute \
                 such packets are dropped (to-kernel)"
            ),
            Self::MoreStations { bridge, learnt, moved } => {
                format!(
                    "bridge {bridge}: {} more stations learnt, {} more moved",
                    grouped(*learnt),
                    grouped(*moved)
                )
            }
            Self::Routes { ipv4, ipv6, changes } => format!(
                "routes: {} changes; {} of IPv4 and {} of IPv6",
                grouped(*changes),
                grouped(*ipv4),
                grouped(*ipv6)
            ),
            Self::RoutesHeld { protocol, held, routes } => held_routes(protocol, *held, *routes),
            Self::RoutesSynchronized { settled } => synchronized(*settled).to_owned(),
            Self::Tunnel { tunnel, state, .. } => format!("tunnel {tunnel}: {state}"),
            Self::DropsBegan { reason, stage, packets } => {
                format!("drops began: {reason} ({stage}), {} in a second", grouped(*packets))
            }
            Self::DropsEnded { reason, stage, packets, nanos } => {
                format!("drops ended: {reason} ({stage}), {} within {}", grouped(*packets), duration(*nanos))
            }
            Self::WorkerMode { worker, mode } => format!("worker {worker}: {mode}"),
            Self::Reloaded { changes, .. } if changes.is_empty() => {
                "reloaded: nothing has changed".to_owned()
            }
            Self::Reloaded { generation, changes } => {
                format!("reloaded: generation {generation}: {}", changes.join("; "))
            }
            Self::ReloadRefused { why } => {
                let why = why.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>();
                format!("reload refused, the running configuration is unchanged: {}", why.join("; "))
            }
            Self::ReloadTakenBack { changes } => format!(
                "not confirmed, the previous configuration is active again: {}; the file still has the new \
                 one, which the next reload or start applies",
                changes.iter().map(|change| change.trim()).collect::<Vec<_>>().join("; ")
            ),
            Self::LogLevel { filter } => format!("the log's level is {filter}"),
            Self::Draining { draining: true } => "not ready: neighbours should send packets to another \
                gateway"
                .to_owned(),
            Self::Draining { draining: false } => "ready again after a drain".to_owned(),
            Self::HandedOver { process } => format!("handed over: process {process} runs the gateway"),
            Self::UpgradeFailed { why } => format!("hand-over failed, this process continues: {why}"),
            Self::Started { gateway, version } => format!("gateway {gateway} runs, polder {version}"),
            Self::Stopping { gateway } => format!("gateway {gateway} ends"),
        }
    }
}

fn link(device: &str, state: LinkState) -> String {
    match state {
        LinkState::Up => format!("the link of {device} is up"),
        LinkState::NoCarrier => format!(
            "{device} has no carrier: nothing is connected, or its other end is off; packets for it are dropped"
        ),
        LinkState::Down => {
            format!("{device} is down: `ip link set dev {device} up`; packets for it are dropped")
        }
    }
}
