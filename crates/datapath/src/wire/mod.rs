//! Protocol headers: parsing, writing and changing them.
//!
//! Each protocol has one file, and all files use the same words:
//!
//! | word | meaning |
//! |---|---|
//! | `mod field` | offset of each field, in wire order |
//! | `Ipv4::parse(bytes)` | a view whose structure has been checked, or [`DropReason`](crate::drops::DropReason) |
//! | `Ipv4::parse_head(bytes, length)` | the same for a packet of `length` bytes of which `bytes` is the first part |
//! | `verify(…)` | checks the checksum; `parse` never does |
//! | `payload()` | the bytes after the header; padding that a length field excludes is cut off |
//! | `Ipv4Header { … }.emit(bytes)` | writes a header and returns the bytes after it, or [`TooShort`] |
//! | `Ipv4Mut` | changes single fields in place and updates the checksum |
//!
//! Views borrow and copy nothing. No input makes them panic: fixed headers are arrays, and the compiler
//! checks each field's position against the array's size.
//!
//! Not supported: jumbograms (RFC 2675), source-routed GRE (RFC 1701), ARP for anything else than
//! IPv4 over Ethernet.

mod field;

mod ethernet;
mod link;
mod mac;
mod vlan;

mod arp;

mod ecn;
mod extension;
mod ip;
mod ipv4;
mod ipv6;

mod gre;
mod icmp;
mod icmpv6;
mod tcp;
mod udp;
mod vxlan;

mod inside;

pub mod checksum;

pub use arp::{Arp, ArpHeader, ArpOperation};
pub use checksum::{Checksum, Pseudo};
pub use ecn::{Ecn, EcnMode, NotEcnCapable};
pub use ethernet::{EtherType, Ethernet, EthernetHeader};
pub use extension::{Ipv6Extension, Ipv6Fragment, Ipv6Option, Ipv6Options};
pub use gre::{Gre, GreHeader, GreMut};
pub use icmp::{Icmp, IcmpHeader};
pub use icmpv6::Icmpv6;
pub use inside::Inside;
pub use ip::{Dscp, IpProtocol, TrafficClass};
pub use ipv4::{Ipv4, Ipv4Header, Ipv4Mut};
pub use ipv6::{Ipv6, Ipv6Header, Ipv6Mut, Upper};
pub use link::Link;
pub use mac::{BadMacAddress, MacAddress};
pub use tcp::{Tcp, TcpFlags, TcpMut, TcpOption, TcpOptions};
pub use udp::{Udp, UdpHeader, UdpMut};
pub use vlan::{Vlan, VlanId, VlanTag, pop_tag, push_tag};
pub use vxlan::{Vxlan, VxlanHeader};

/// The buffer is shorter than the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the buffer is shorter than the protocol header")]
pub struct TooShort;
