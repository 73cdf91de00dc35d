//! Ethernet or IP in GRE (gretap, gre), Ethernet in VXLAN, in IPv4 or IPv6, and IP in IPv4 (ipip, sit): out of the tunnel
//! before the bridge and the router, into it behind. What an encapsulation is, [`Encapsulation`] knows.
//!
//! A tunnel of frames is a port of the bridge like any other, one of packets an interface of the router. Its outer packets cross an *underlay* port, a
//! device of which Polder takes what runs between a tunnel's ends and nothing else.
//!
//! ```text
//! underlay rx ─▶ reassemble ─▶ decapsulate ─▶ bridge ─▶ mss ─▶ encapsulate ─▶ fragment ─▶ reorder ─▶ sequence ─▶ underlay tx
//!                fragments     strip, check   ports     clamp  copy a         only where             sequence
//!                as a chain    key, sequence            SYN    template       allowed                numbers, IP id
//! ```
//!
//! Headers are written into the headroom and taken off by moving the start of the packet; the
//! payload is never copied (E4), except what lies behind the first piece when an outer packet has to
//! be cut. The ends of a tunnel may be addresses of the loopback interface, reached through a next
//! hop: the outer packet goes to [`NextHop`](crate::next_hop::NextHop), which a control thread keeps, whatever the addresses.
//!
//! [`Tunnels`] is built once from a configuration and swapped whole. What outlives a configuration
//! stands in [`TunnelState`].
//!
//! Not supported: other protocols inside than these, IPv4 options outside (they are taken, never sent), extension
//! headers of IPv6 outside other than fragments and destination options, a tunnel whose underlay is a
//! tunnel.

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

/// The smallest MTU that a tunnel may be given: what every IPv4 host takes (RFC 791).
pub const LEAST_MTU: u16 = 576;

/// Reason why a set of tunnels cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TunnelsError {
    /// Two tunnels or underlays are the same port.
    #[error("port {} is given twice", .0.0)]
    PortTwice(PortId),
    /// The tunnel's underlay is none of the underlay ports.
    #[error("port {} is no underlay port", .0.0)]
    NoUnderlay(PortId),
    /// Packets of two tunnels could not be told apart.
    #[error("two tunnels run from {0} with the same key or VNI; give them different ones")]
    EndsTwice(Ends),
    /// The MTU, given or left by the underlay, is below [`LEAST_MTU`], or the underlay's is.
    #[error("an MTU of {0} is too small: tunnels and what carries them take at least {LEAST_MTU} bytes")]
    MtuTooSmall(u16),
    /// The underlay's MTU is below the IPv6 minimum of a link (RFC 8200, 5).
    #[error("an underlay of {0} bytes is too narrow for IPv6, which takes at least {least}", least = toobig::LEAST_MTU_V6)]
    TooNarrow(u16),
    /// More tunnels or ports than numbers for them.
    #[error("too many tunnels")]
    TooMany,
}

/// Bytes of an Ethernet header without tags.
const ETHERNET_BYTES: u16 = 14;
/// Bytes of an Ethernet header with as many tags as are looked behind.
const MOST_LINK_BYTES: u16 = ETHERNET_BYTES + 8;
/// Bytes of an IPv4 header without options.
const IPV4_BYTES: u16 = 20;
/// Bytes of an IPv6 header without extension headers.
const IPV6_BYTES: u16 = 40;
/// Bytes of the destination options that an IPv6 header of ours may have behind it.
const OPTIONS_BYTES: u16 = 8;
/// The largest MTU that leaves room in an IP packet for everything around it.
const MOST_MTU: u16 = u16::MAX - MOST_OVERHEAD - MOST_LINK_BYTES;
/// Bytes of the longest outer headers: Ethernet, one tag, IPv6 with options, GRE with all its fields.
const MOST_OVERHEAD: u16 = ETHERNET_BYTES + 4 + IPV6_BYTES + OPTIONS_BYTES + 16;
/// The largest packet that is cut into fragments because its sender cannot be told that it is too
/// big: more than the ports of a bridge carry.
const MOST_CUT: u16 = 9216;
