//! Kinds of events.

use super::words::{held_routes, of_vlan, program_in_front, refused, synchronized};
use crate::show::look::{duration, grouped};
use serde::{Deserialize, Serialize};

/// Weight of an event, as in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Ordinary traffic: stations, neighbours.
    Debug,
    /// A change that is as it should be.
    Info,
    /// Something that ought to be looked at.
    Warn,
    /// A failure.
    Error,
}

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkState {
    /// It carries.
    Up,
    /// It is switched on and has no carrier.
    NoCarrier,
    /// It is switched off.
    Down,
}

/// Kind of an event, with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum EventKind {
    /// The link of an open port is another.
    Carrier {
        /// The port.
        port: String,
        /// The interface or device.
        device: String,
        /// Its state.
        state: LinkState,
    },
    /// The interface of an open port has another name.
    Renamed {
        /// The port.
        port: String,
        /// Name until now.
        from: String,
        /// Name from now on.
        to: String,
    },
    /// A modem is at another step, or has failed.
    Modem {
        /// The port.
        port: String,
        /// Step or failure, in words.
        state: String,
        /// True if its sessions are active.
        connected: bool,
    },
    /// A port is open.
    PortOpened {
        /// The port.
        port: String,
        /// In words: device, mode, queues.
        how: String,
    },
    /// An interface of a pattern becomes no port.
    PatternSkipped {
        /// The pattern.
        pattern: String,
        /// The interface.
        interface: String,
        /// Reason, in words.
        why: String,
    },
    /// A packet hook of the kernel has appeared, and the packets of a port are left to the kernel.
    Yielded {
        /// The port.
        port: String,
        /// The hooks that its packets would not reach, each with its effect.
        hooks: Vec<String>,
    },
    /// The packets of a port that was left to the kernel are taken again.
    TakenBack {
        /// The port.
        port: String,
        /// Time for which they were left to the kernel.
        nanos: u64,
    },
    /// A packet hook of the kernel has appeared that a port goes round.
    HookAppeared {
        /// The port.
        port: String,
        /// The hook, with its effect.
        hook: String,
    },
    /// A packet hook of the kernel has gone.
    HookGone {
        /// The port whose packets it concerned.
        port: String,
        /// The hook, with its effect.
        hook: String,
    },
    /// There is a reason why ports where the kernel decides do not carry connections, or those from one port to another.
    ObstacleAppeared {
        /// The reason: rule, filter, or what cannot be read.
        obstacle: String,
    },
    /// Such a reason has gone.
    ObstacleGone {
        /// The reason.
        obstacle: String,
    },
    /// Connections stay with the kernel for lack of room.
    ConnectionsRefused {
        /// Connections of the last second that found the table full.
        full: u64,
        /// Connections of the last second whose source address has a quarter of the table.
        share: u64,
    },
    /// Events of conntrack were lost: all connections have left the table, and are read again.
    ConnectionEventsLost,
    /// A BPF program of another's has the packets of a port before its own, or has them no more.
    ProgramInFront {
        /// The port.
        port: String,
        /// The program; none if the port's own is the first again.
        program: Option<String>,
    },
    /// A port has closed.
    PortClosed {
        /// The port.
        port: String,
        /// Reason.
        why: String,
    },
    /// A neighbour of the router has a link-layer address, another one or none.
    Neighbour {
        /// The port.
        port: String,
        /// Address of the neighbour.
        address: String,
        /// Link-layer address; none for a neighbour that is gone or does not answer.
        mac: Option<String>,
    },
    /// A bridge has learnt a station.
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
    /// A station is on another port.
    StationMoved {
        /// The bridge.
        bridge: String,
        /// The port or tunnel that it was on.
        from: String,
        /// The port or tunnel that it is on.
        to: String,
        /// VLAN, on a VLAN-aware bridge.
        vlan: Option<u16>,
        /// Address of the station.
        address: String,
    },
    /// A frame with the address of a member's interface or TAP came in by another member, and was dropped.
    OwnAddress {
        /// The bridge.
        bridge: String,
        /// The port or tunnel that it came in by.
        port: String,
        /// The address.
        address: String,
    },
    /// Frames of a station come back by a hairpin port, and are dropped.
    HairpinLoop {
        /// The bridge.
        bridge: String,
        /// The port or tunnel that they come back by.
        port: String,
        /// Address of the station.
        address: String,
    },
    /// Packets that return to the kernel are taken once more: none returns for a minute.
    PuntLoop {
        /// The port at whose interface they returned.
        port: String,
    },
    /// Further stations of the same second, too many to name.
    MoreStations {
        /// The bridge.
        bridge: String,
        /// Stations learnt.
        learnt: u64,
        /// Stations that moved.
        moved: u64,
    },
    /// Routes have come, gone or changed.
    Routes {
        /// Number of IPv4 routes.
        ipv4: u64,
        /// Number of IPv6 routes.
        ipv6: u64,
        /// Changes of routes, next hops and neighbours' addresses in the last second.
        changes: u64,
    },
    /// A routing daemon has ended, and its routes are held; or nothing of it is held any more.
    RoutesHeld {
        /// Name of the daemon, or number of its protocol.
        protocol: String,
        /// True if they are held now.
        held: bool,
        /// Number of routes that are held, or that did not come back in time.
        routes: u64,
    },
    /// The kernel's tables are followed anew, or all of them are known.
    RoutesSynchronized {
        /// True if all are known.
        settled: bool,
    },
    /// The state of a tunnel is another.
    Tunnel {
        /// The tunnel.
        tunnel: String,
        /// `up`, `quiet`, `nothing heard`, `no next hop` or `port closed`.
        state: String,
        /// True if it carries.
        up: bool,
    },
    /// Packets are dropped for a reason for which none were before.
    DropsBegan {
        /// The reason.
        reason: String,
        /// The stage.
        stage: String,
        /// Packets of the last second.
        packets: u64,
    },
    /// No packets are dropped any more for a reason.
    DropsEnded {
        /// The reason.
        reason: String,
        /// The stage.
        stage: String,
        /// Packets since it began.
        packets: u64,
        /// Time from the first to the last of them.
        nanos: u64,
    },
    /// A worker waits for packets in another mode: it is loaded more, or less.
    WorkerMode {
        /// The worker.
        worker: usize,
        /// `interrupts`, `throttled` or `polling`.
        mode: String,
    },
    /// The configuration was applied.
    Reloaded {
        /// Generation of the configuration in force.
        generation: u64,
        /// One line for each thing that changed.
        changes: Vec<String>,
    },
    /// The configuration was refused.
    ReloadRefused {
        /// Reason, in one line or several.
        why: String,
    },
    /// A reload was not confirmed, and the configuration before it is back.
    ReloadTakenBack {
        /// One line for each thing that changed back.
        changes: Vec<String>,
    },
    /// The log has another level.
    LogLevel {
        /// The filter in force.
        filter: String,
    },
    /// Packets are to be sent elsewhere, or here again.
    Draining {
        /// True if elsewhere.
        draining: bool,
    },
    /// Another process goes on with the gateway.
    HandedOver {
        /// Number of the process.
        process: u32,
    },
    /// Another process was to go on with the gateway, and does not.
    UpgradeFailed {
        /// Reason.
        why: String,
    },
    /// The gateway runs.
    Started {
        /// The gateway.
        gateway: String,
        /// Version of Polder.
        version: String,
    },
    /// The gateway ends.
    Stopping {
        /// The gateway.
        gateway: String,
    },
}

impl EventKind {
    /// Weight of the event.
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

    /// The event in words, in one line.
    #[expect(clippy::too_many_lines, reason = "a line or two for each kind")]
    pub fn text(&self) -> String {
        match self {
            Self::Carrier { port, device, state } => format!("port {port}: {}", link(device, *state)),
            Self::Renamed { port, from, to } => {
                format!(
                    "port {port}: its interface {from} is named {to}, and stays the port's; write the new name to the file"
                )
            }
            Self::Modem { port, state, .. } => format!("port {port}: {state}"),
            Self::PortOpened { port, how } => format!("port {port}: {how}"),
            Self::Yielded { port, hooks } => {
                format!("port {port}: left to the kernel, because {}", hooks.join("; "))
            }
            Self::TakenBack { port, nanos } => {
                format!("port {port}: taken back from the kernel after {}", duration(*nanos))
            }
            Self::HookAppeared { port, hook } => {
                format!("port {port}: a kernel hook has appeared that its packets do not meet: {hook}")
            }
            Self::HookGone { port, hook } => format!("port {port}: gone: {hook}"),
            Self::ObstacleAppeared { obstacle } => format!("connections stay with the kernel: {obstacle}"),
            Self::ObstacleGone { obstacle } => {
                format!("gone: {obstacle}, which kept connections with the kernel")
            }
            Self::ConnectionsRefused { full, share } => refused(*full, *share),
            Self::ConnectionEventsLost => {
                "events of conntrack were lost: the kernel has all connections until they are read again"
                    .to_owned()
            }
            Self::ProgramInFront { port, program: Some(program) } => {
                format!("port {port}: {}", program_in_front(program))
            }
            Self::ProgramInFront { port, program: None } => {
                format!("port {port}: its program is the first again")
            }
            Self::PatternSkipped { pattern, interface, why } => {
                format!("[port.\"{pattern}\"]: {interface} becomes no port: {why}")
            }
            Self::PortClosed { port, why } => format!("port {port}: closed: {why}; the other ports go on"),
            Self::Neighbour { port, address, mac: Some(mac) } => {
                format!("neighbour {address} on {port} is {mac}")
            }
            Self::Neighbour { port, address, mac: None } => format!("neighbour {address} on {port} is gone"),
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
                "bridge {bridge}: frames of {address} come back by hairpin port {port} and are dropped: the other end \
                 reflects them too"
            ),
            Self::PuntLoop { port } => format!(
                "port {port}: packets that return to the kernel are taken once more, because another program at the \
                 interface's tc ingress writes to their control block; none returns for a minute (to-kernel)"
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
                format!("not reloaded, everything goes on as before: {}", why.join("; "))
            }
            Self::ReloadTakenBack { changes } => format!(
                "not confirmed, the configuration of before is back: {}; the next reload or start takes the file, which \
                 still has the new one",
                changes.iter().map(|change| change.trim()).collect::<Vec<_>>().join("; ")
            ),
            Self::LogLevel { filter } => format!("the log's level is {filter}"),
            Self::Draining { draining: true } => "not ready: packets are to be sent elsewhere".to_owned(),
            Self::Draining { draining: false } => "ready again after a drain".to_owned(),
            Self::HandedOver { process } => format!("handed over: process {process} goes on"),
            Self::UpgradeFailed { why } => format!("not handed over, everything goes on as before: {why}"),
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
            format!("{device} is switched off: `ip link set dev {device} up`; packets for it are dropped")
        }
    }
}
