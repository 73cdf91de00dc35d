//! Selection of packets that a port takes from an interface.

use polder_datapath::route::Prefix;
use polder_datapath::tunnel::Ends;

/// Packets that are taken from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take {
    /// Every packet except the interface's own: those to link-local groups that the bridge does not forward,
    /// 802.1X and PTP to the interface's MAC address. The kernel receives nothing else on this interface; it
    /// can still send.
    Whole,
    /// Packets of these tunnels, over IPv4 or IPv6; the kernel keeps the rest.
    Tunnels(Vec<TunnelEndpoint>),
    /// Packets of these tunnels, and IPv4 and IPv6 packets that arrive at one of the port's [`Ingress`]es and
    /// are not for a local address. There is no ingress at first.
    Routed(Vec<TunnelEndpoint>),
}

/// A MAC address and VLAN by which packets reach a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ingress {
    /// The MAC address.
    pub mac: [u8; 6],
    /// The VLAN ID of the packets; 0 for untagged packets.
    pub vlan: u16,
}

/// Prefixes that stay with the kernel at a router's ingresses. The longest matching prefix decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocalPrefixes {
    /// An address or a prefix.
    pub network: Prefix,
    /// True if the prefix stays with the kernel; false for a part of such a prefix that is taken.
    pub is_kernels: bool,
}

/// The endpoints of a tunnel whose packets are taken, and the fields that distinguish it from others between
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TunnelEndpoint {
    /// Local address (the packets' destination), and remote address (their source).
    pub ends: Ends,
    /// Fields that all packets of the tunnel have.
    pub fields: TunnelFields,
}

/// Fields after the outer IP header by which a tunnel's packets are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TunnelFields {
    /// IP protocol 47, GRE version 0.
    Gre {
        /// True for inner frames (protocol type 0x6558), false for inner packets and keepalives
        /// ([`PACKET_PROTOCOLS`](polder_datapath::tunnel::PACKET_PROTOCOLS)).
        has_frames: bool,
        /// The key, if any.
        key: Option<u32>,
    },
    /// IPv4 with a protocol that an IP packet follows
    /// ([`IP_IN_IP_PROTOCOLS`](polder_datapath::tunnel::IP_IN_IP_PROTOCOLS)); fragments too.
    Ip {
        /// Protocol of the outer header.
        protocol: u8,
    },
    /// UDP, and a VXLAN header with a VNI.
    Vxlan {
        /// UDP destination port.
        port: u16,
        /// VNI, 24 bits.
        vni: u32,
    },
}
