//! Tunnels: Ethernet or IP in GRE (gretap, gre), Ethernet in VXLAN, in IPv4 or IPv6, and IP in IPv4 (ipip,
//! sit). Packets are decapsulated before bridge and router, and encapsulated after them. [`Encapsulation`]
//! describes each kind.
//!
//! A tunnel that carries frames is a bridge port, one that carries packets a router interface. Its outer
//! packets cross an *underlay* port: a device from which Polder takes only packets between tunnel endpoints.
//!
//! ```text
//! underlay rx ─▶ reassemble ─▶ decapsulate ─▶ bridge ─▶ mss ─▶ encapsulate ─▶ fragment ─▶ reorder ─▶ sequence ─▶ underlay tx
//!                fragments     strip, check   ports     clamp  copy a         only where             sequence
//!                as a chain    key, sequence            SYN    template       allowed                numbers, IP id
//! ```
//!
//! Outer headers are written into the headroom and removed by moving the packet's start. The payload is not
//! copied (E4), except when an outer packet is fragmented. A tunnel's local address may belong to the
//! loopback interface: outer packets are sent to the [`NextHop`](crate::next_hop::NextHop), which the control
//! thread resolves, independently of the addresses.
//!
//! [`Tunnels`] is built once from a configuration and replaced whole. State that survives a reload is in
//! [`TunnelState`].
//!
//! Not supported: other inner protocols; outer IPv4 options (received, never sent); outer IPv6 extension
//! headers except fragment and destination options; a tunnel whose underlay is a tunnel.

mod bare;
mod datagram;
mod decapsulate;
mod ecn;
mod encapsulate;
mod encapsulation;
mod ends;
mod fragment;
mod gre;
mod image;
mod inner;
mod ip_in_ip;
mod keepalive;
mod lane;
mod mss;
mod options;
mod outer;
mod published;
mod quick;
mod reassemble;
mod recursion;
mod state;
mod table;
mod template;
mod toobig;
mod vxlan;

pub use decapsulate::{DecapsulateState, decapsulate};
pub(crate) use ecn::write_traffic_class;
pub use encapsulate::{EncapsulateState, encapsulate};
pub use encapsulation::{Carrier, Encapsulation, OuterHeader, TunnelId, TunnelLabel};
pub use ends::Ends;
pub use ip_in_ip::IP_IN_IP_PROTOCOLS;
pub use keepalive::PACKET_PROTOCOLS;
pub use options::{Carries, FlowLabel, Stations, TcpMss, Ttl, TunnelDscp, TunnelOptions, Underlay};
pub use published::{OuterKey, OuterTemplate};
pub use reassemble::ReassemblyLimits;
pub use state::{Sequence, TunnelCounters, TunnelNumbers, TunnelState};
pub use table::{Tunnel, Tunnels};
pub use vxlan::VxlanOptions;

use polder_buffers::PortId;

/// Minimum MTU of a tunnel in bytes: the size that every IPv4 host accepts (RFC 791).
pub const LEAST_MTU: u16 = 576;

/// Error in a set of tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TunnelsError {
    /// Two tunnels or underlays have the same port.
    #[error("port number {} is given to two tunnels or underlays", .0.0)]
    PortTwice(PortId),
    /// The tunnel's underlay is not an underlay port.
    #[error("port number {} is not an underlay port", .0.0)]
    NoUnderlay(PortId),
    /// Packets of two tunnels could not be distinguished.
    #[error("two tunnels run from {0} with the same key or VNI; give each tunnel a key or VNI of its own")]
    EndsTwice(Ends),
    /// The MTU, configured or limited by the underlay, or the underlay's own MTU is below [`LEAST_MTU`].
    #[error("an MTU of {0} bytes is too small: tunnels and underlay ports need at least {LEAST_MTU} bytes")]
    MtuTooSmall(u16),
    /// The underlay's MTU is below the IPv6 minimum of a link (RFC 8200, 5).
    #[error("an underlay MTU of {0} bytes is too small for IPv6, which needs at least {least} bytes", least = toobig::LEAST_MTU_V6)]
    TooNarrow(u16),
    /// The number of tunnels or ports exceeds the range of their indices.
    #[error("there are more than 65536 tunnels or ports")]
    TooMany,
}

/// Length of an Ethernet header without tags, in bytes.
const ETHERNET_BYTES: u16 = 14;
/// Length of an Ethernet header with two tags, in bytes.
const MOST_LINK_BYTES: u16 = ETHERNET_BYTES + 8;
/// Length of an IPv4 header without options, in bytes.
const IPV4_BYTES: u16 = 20;
/// Length of an IPv6 header without extension headers, in bytes.
const IPV6_BYTES: u16 = 40;
/// Length in bytes of the destination options that an outer IPv6 header may have.
const OPTIONS_BYTES: u16 = 8;
/// Maximum MTU in bytes: a packet of that size and all outer headers fit into an IP packet.
const MOST_MTU: u16 = u16::MAX - MOST_OVERHEAD - MOST_LINK_BYTES;
/// Length in bytes of the longest outer headers: Ethernet, one tag, IPv6 with options, GRE with all fields.
const MOST_OVERHEAD: u16 = ETHERNET_BYTES + 4 + IPV6_BYTES + OPTIONS_BYTES + 16;
/// Maximum size in bytes of a packet that is fragmented because its sender cannot be told of the MTU: more
/// than any bridge port carries.
const MOST_CUT: u16 = 9216;
