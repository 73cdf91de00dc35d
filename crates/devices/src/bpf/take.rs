//! Packets that a port takes of an interface, in the words of the gateway.

use polder_datapath::route::Prefix;
use polder_datapath::tunnel::Ends;

/// Packets that are taken from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take {
    /// Every packet but the interface's own: those to link-local groups that the bridge does not forward, 802.1X and PTP
    /// to the interface's address. The kernel receives nothing else on this interface; it can still send.
    Whole,
    /// Packets of these tunnels, over IPv4 or IPv6; the rest stays with the kernel.
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

/// The end points of a tunnel whose packets are taken, and what tells it from others between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TunnelEndpoint {
    /// Our address, the packets' destination, and that of the other end, their source.
    pub ends: Ends,
    /// Fields that all packets of the tunnel have.
    pub fields: TunnelFields,
}

/// Fields behind the outer IP header by which the packets of a tunnel are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TunnelFields {
    /// IP protocol 47, GRE version 0.
    Gre {
        /// True for frames inside (protocol type 0x6558), false for packets and keepalives
        /// ([`PACKET_PROTOCOLS`](polder_datapath::tunnel::PACKET_PROTOCOLS)).
        has_frames: bool,
        /// The key, if any.
        key: Option<u32>,
    },
    /// IPv4 with a protocol that is followed by an IP packet
    /// ([`IP_IN_IP_PROTOCOLS`](polder_datapath::tunnel::IP_IN_IP_PROTOCOLS)); fragments too.
    Ip {
        /// Protocol of the outer header.
        protocol: u8,
    },
    /// UDP, and a VXLAN header with a network identifier.
    Vxlan {
        /// UDP destination port.
        port: u16,
        /// Network identifier, 24 bits.
        vni: u32,
    },
}
