//! Ports whose packets hooks may see.

use std::net::IpAddr;

/// A port whose packets are taken from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its interface.
    pub interface: String,
    /// The packets that are taken.
    pub takes: Takes,
    /// True if packets that leave by the interface meet the tc filters at its egress.
    pub meets_egress: bool,
    /// Answer of the port when a hook appears.
    pub answer: Answer,
}

/// Answer of a port when a hook appears that its packets do not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// They go round it, as the file says.
    Bypass,
    /// They are left to the kernel.
    Yield,
    /// The kernel decides about them in any case.
    Decided,
    /// They go on, because the kernel cannot forward them: the reason.
    GoOn(&'static str),
    /// They are dropped, because the kernel cannot forward them: the reason.
    Stop(&'static str),
}

/// The packets that a port takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Takes {
    /// All, for a bridge.
    Bridge {
        /// The name of the bridge.
        bridge: String,
        /// The interfaces of its members.
        members: Vec<String>,
    },
    /// Packets of these tunnels.
    Tunnels(Vec<Tunnel>),
    /// Packets that are routed, and those of these tunnels.
    Router {
        /// The tunnels.
        tunnels: Vec<Tunnel>,
        /// All interfaces of the router.
        interfaces: Vec<String>,
    },
}

/// A tunnel, by its outer addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// This machine's.
    pub local: IpAddr,
    /// Outer address of the other end.
    pub remote: IpAddr,
    /// Protocol of the outer IP header.
    pub protocol: u8,
}
