//! Whereto: a VLAN-aware learning bridge.
//!
//! * In: packets with `ingress`, headers in the head frame.
//! * Out: `egress` is a member of the same bridge (a device or a tunnel), `vlan` is set, and the tag
//!   is the one that member sends. A frame that several members get has become several packets.
//! * Exits: the reasons of stage "bridge" in [`drops`](crate::drops), and [`NoBuffer`], [`NoHeadroom`],
//!   [`EthernetTruncated`], [`VlanTruncated`].
//! * Cost: two lookups of one cache line each; nothing is written unless something changed.
//!   Flooding to several members copies, once a member but one.
//! * Source: IEEE 802.1Q-2022, clause 8 (relay, filtering, learning); behaviour between the lines as
//!   of the Linux bridge.
//!
//! | file | what it knows |
//! |---|---|
//! | [`Bridges`] | configuration: who bridges with whom, and how |
//! | [`bridge()`] | the stage: one verdict a packet |
//! | [`Fdb`] | where addresses are |
//! | [`VlanMode`] | which tag goes in and comes out where |
//! | [`ForwardGroups`] | which link-local groups are forwarded |
//! | `OwnAddresses` | which addresses are the members' own |
//! | `HairpinGate` | how many frames a member may reflect |
//! | `FloodGates` | copies for several members, and how many floods a port may cause |
//!
//! The page for operators is `docs/guide/bridge.md`; how the database works, in ADR 0004.
//!
//! [`NoBuffer`]: crate::drops::DropReason::NoBuffer
//! [`NoHeadroom`]: crate::drops::DropReason::NoHeadroom
//! [`EthernetTruncated`]: crate::drops::DropReason::EthernetTruncated
//! [`VlanTruncated`]: crate::drops::DropReason::VlanTruncated

mod bridge;
mod check;
mod fdb;
mod flood;
mod groups;
mod hairpin;
mod options;
mod own;
mod table;
mod vlan;
mod vlan_set;

pub use bridge::{BridgeCounters, BridgeState, Offences, bridge};
pub use fdb::{
    Fdb, FdbEntry, FdbFull, FdbKey, FdbOptions, FdbTime, Learned, PortLearning, SweepCursor, Swept,
};
pub use groups::{ForwardGroups, LinkLocalGroup};
pub use options::{BridgeError, BridgeOptions, FloodLimits, MemberOptions, StaticEntry};
pub use table::{Bridges, Links};
pub use vlan_set::{VlanMode, VlanSet};
