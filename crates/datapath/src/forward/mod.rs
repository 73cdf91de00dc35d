//! Bridge: VLAN-aware and learning.
//!
//! * In: packets with `ingress`, headers in the head frame.
//! * Out: `egress` is a member of the same bridge (a device or a tunnel), `vlan` is set, and the tag is the
//!   egress member's. A frame for several members has become several packets.
//! * Exits: the reasons of stage "bridge" in [`drops`](crate::drops), and [`NoBuffer`], [`NoHeadroom`],
//!   [`EthernetTruncated`], [`VlanTruncated`].
//! * Cost: two look-ups of one cache line each; nothing is written unless something changed. Flooding copies
//!   the packet for each member but one.
//! * Source: IEEE 802.1Q-2022, clause 8 (relay, filtering, learning); unspecified behaviour as in the Linux
//!   bridge.
//!
//! | module | content |
//! |---|---|
//! | [`Bridges`] | configuration: bridges and their members |
//! | [`bridge()`] | the stage: one verdict per packet |
//! | [`Fdb`] | forwarding database: port of each address |
//! | [`VlanMode`] | VLAN tags on ingress and egress |
//! | [`ForwardGroups`] | link-local groups that are forwarded |
//! | `OwnAddresses` | addresses that belong to the members themselves |
//! | `HairpinGate` | limit of frames that a member reflects |
//! | `FloodGates` | copies for several members, and limits of flooding |
//!
//! Operators: `docs/guide/bridge.md`. Design of the database: ADR 0004.
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

pub use bridge::{BridgeCounters, BridgeState, InvalidSources, bridge};
pub use fdb::{
    Fdb, FdbEntry, FdbFull, FdbKey, FdbOptions, FdbTime, Learned, PortLearning, SweepCursor, Swept,
};
pub use groups::{ForwardGroups, LinkLocalGroup};
pub use options::{BridgeError, BridgeOptions, FloodLimits, MemberOptions, StaticEntry};
pub use table::{Bridges, Links};
pub use vlan_set::{VlanMode, VlanSet};
