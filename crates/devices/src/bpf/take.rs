//! Packets that a port takes of an interface, in the words of the gateway.

use polder_datapath::route::Prefix;
use polder_datapath::tunnel::{Carrier, Ends};

/// Packets that are taken from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take {
    /// Every packet but the interface's own: those to link-local groups that the bridge does not forward, 802.1X and PTP
    /// to the interface's address. The kernel receives nothing else on this interface; it can still send.
    Whole,
    /// Tunnel packets (IPv4 or IPv6, protocol 47) between these end points; the rest stays with the kernel.
    Tunnels(Vec<TunnelEndpoint>),
    /// The same, and IPv4 and IPv6 that come through one of the port's [`Ingress`]s and are for none of this
    /// machine's addresses. There is no ingress at first.
    Routed(Vec<TunnelEndpoint>),
}

/// A link-layer address by which packets reach a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ingress {
    /// The address.
    pub mac: [u8; 6],
    /// The VLAN in whose tag they come; 0 for packets without one.
    pub vlan: u16,
}

/// Addresses that stay with the kernel at a router's ingresses. Of several networks with an address the
/// smallest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocalPrefixes {
    /// An address, or a network.
    pub network: Prefix,
    /// True if it is the kernel's; else it is a part of such a network that is not.
    pub is_kernels: bool,
}

/// The end points of a tunnel whose packets are taken, and the outer field by which they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TunnelEndpoint {
    /// Our address, the packets' destination, and that of the other end, their source.
    pub ends: Ends,
    /// Protocol or UDP destination port of the packets.
    pub carrier: Carrier,
}
