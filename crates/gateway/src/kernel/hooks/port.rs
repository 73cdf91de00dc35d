//! Ports whose packets kernel hooks may see.

use std::net::IpAddr;

/// A port that takes packets from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name of the port.
    pub name: String,
    /// Interface of the port.
    pub interface: String,
    /// Packets that the port takes.
    pub takes: Takes,
    /// True if packets sent by the interface pass its tc egress filters.
    pub meets_egress: bool,
    /// Reaction of the port when a hook appears.
    pub answer: Answer,
}

/// Reaction of a port when a hook appears that its packets bypass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Packets bypass the hook, as the file permits.
    Bypass,
    /// The port yields: the kernel gets its packets.
    Yield,
    /// The kernel decides about the packets in any case.
    Decided,
    /// Packets bypass the hook, because the kernel cannot forward them: the reason.
    GoOn(&'static str),
    /// Packets are dropped, because the kernel cannot forward them: the reason.
    Stop(&'static str),
}

/// Packets that a port takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Takes {
    /// All packets, for a bridge.
    Bridge {
        /// Name of the bridge.
        bridge: String,
        /// Interfaces of its members.
        members: Vec<String>,
    },
    /// Packets of these tunnels.
    Tunnels(Vec<Tunnel>),
    /// Routed packets, and packets of these tunnels.
    Router {
        /// The tunnels.
        tunnels: Vec<Tunnel>,
        /// Interfaces of all router ports.
        interfaces: Vec<String>,
    },
}

/// A tunnel's outer addresses and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Address of this host.
    pub local: IpAddr,
    /// Address of the remote end.
    pub remote: IpAddr,
    /// Protocol of the outer IP header.
    pub protocol: u8,
}
