//! Options of bridges, and errors in them.

use super::fdb::{Fdb, FdbKey};
use super::groups::ForwardGroups;
use super::vlan_set::VlanMode;
use crate::wire::{MacAddress, VlanId};
use polder_buffers::PortId;
use std::sync::Arc;

/// One bridge.
#[derive(Clone, Debug)]
pub struct BridgeOptions {
    /// Its name, for messages.
    pub name: String,
    /// Seconds that a learned address outlives its last frame, 1 to 1 000 000; 300 is usual.
    pub ageing_seconds: u32,
    /// Its members, two or more to be of use.
    pub members: Vec<MemberOptions>,
    /// Addresses that are bound to a member.
    pub static_entries: Vec<StaticEntry>,
    /// Link-local groups that it forwards.
    pub forward_groups: ForwardGroups,
    /// Learned addresses; given on from table to table, so that a reload forgets nothing.
    pub fdb: Arc<Fdb>,
}

/// One port of a bridge.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// The port.
    pub port: PortId,
    /// Treatment of VLANs.
    pub vlans: VlanMode,
    /// True if the sources of its frames are learned.
    pub learning: bool,
    /// True if it is sent frames to unknown stations. Groups and broadcast it is sent in any case.
    pub flood: bool,
    /// True if it is kept apart from the other isolated members.
    pub isolated: bool,
    /// Group of members that are one port to the bridge and exchange nothing, named by one of them: the remotes of
    /// a tunnel (split horizon; RFC 4762, 4.4). `None` for a member by itself.
    pub split_horizon: Option<PortId>,
    /// Limits on its flooded frames.
    pub flood_limits: FloodLimits,
    /// Most addresses that are learned on it; `None` for as many as the database takes.
    pub fdb_max_learned: Option<u32>,
    /// Most flooded frames a second, by worker, that leave by it although they came in by it; `None` if no frame does.
    pub hairpin: Option<u32>,
    /// Address that the kernel has there: the bridge drops what comes in by another member with it as source.
    pub own_address: Option<MacAddress>,
}

impl BridgeOptions {
    /// A bridge of `members` that forgets addresses after 300 seconds, and has no option.
    pub fn new(name: &str, members: Vec<MemberOptions>, fdb: Arc<Fdb>) -> Self {
        let (name, forward_groups) = (name.to_owned(), ForwardGroups::NONE);
        Self { name, ageing_seconds: 300, members, static_entries: Vec::new(), forward_groups, fdb }
    }
}

impl MemberOptions {
    /// A transparent member by itself that learns and is flooded to, without limits.
    pub fn new(port: PortId) -> Self {
        Self {
            port,
            vlans: VlanMode::Transparent,
            learning: true,
            flood: true,
            isolated: false,
            split_horizon: None,
            flood_limits: FloodLimits::default(),
            fdb_max_learned: None,
            hairpin: None,
            own_address: None,
        }
    }
}

/// Maximum number of frames a second that come in by a port and go to several members, by worker;
/// `None` for any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FloodLimits {
    /// Frames for a station that is not known.
    pub unknown_unicast: Option<u32>,
    /// Frames for a group other than all.
    pub multicast: Option<u32>,
    /// Frames for all.
    pub broadcast: Option<u32>,
}

/// An address that is bound to a member: neither aged nor moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticEntry {
    /// The address of one station.
    pub address: MacAddress,
    /// Its VLAN; `None` on a bridge of transparent members.
    pub vlan: Option<VlanId>,
    /// The member behind which it is.
    pub port: PortId,
}

/// Error in a configuration of bridges.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BridgeError {
    /// A port is a member twice.
    #[error("port {} is a member of {first} and of {second}; a port is in one bridge, once", port.0)]
    TwiceMember {
        /// The port.
        port: PortId,
        /// The bridge that has it.
        first: String,
        /// The bridge that wants it as well.
        second: String,
    },
    /// Transparent and VLAN-aware members in one bridge.
    #[error("{bridge} has members with and without VLANs; give every member a VLAN mode or none")]
    MixedModes {
        /// The bridge.
        bridge: String,
    },
    /// A trunk that carries nothing.
    #[error("port {} of {bridge} is a trunk without VLANs; name those that it carries", port.0)]
    EmptyTrunk {
        /// The bridge.
        bridge: String,
        /// The port.
        port: PortId,
    },
    /// VLAN 0 as access or native VLAN.
    #[error("port {} of {bridge}: 0 is no VLAN; use 1 to 4094", port.0)]
    VlanZero {
        /// The bridge.
        bridge: String,
        /// The port.
        port: PortId,
    },
    /// An ageing time out of range.
    #[error("{bridge}: an ageing time of {seconds} s; use 1 to 1000000")]
    Ageing {
        /// The bridge.
        bridge: String,
        /// Configured ageing time.
        seconds: u32,
    },
    /// A static entry for a group address or for no address.
    #[error("{bridge}: {address} is not the address of one station")]
    StaticGroup {
        /// The bridge.
        bridge: String,
        /// The address.
        address: MacAddress,
    },
    /// A static entry for a port that is not a member.
    #[error("{bridge}: {address} is bound to port {}, which is not a member", port.0)]
    StaticPort {
        /// The bridge.
        bridge: String,
        /// The address.
        address: MacAddress,
        /// The port.
        port: PortId,
    },
    /// A static entry for a VLAN that its port does not carry.
    #[error("{bridge}: {address} is bound to a VLAN that port {} does not carry", port.0)]
    StaticVlan {
        /// The bridge.
        bridge: String,
        /// The address.
        address: MacAddress,
        /// The port.
        port: PortId,
    },
    /// More members than a table can number.
    #[error("{count} members in all bridges; at most 65534")]
    TooMany {
        /// Number of members.
        count: usize,
    },
}

impl StaticEntry {
    pub(super) fn key(&self) -> FdbKey {
        FdbKey::new(self.address, self.vlan.map_or(0, VlanId::get))
    }
}

/// Of a port that is in no bridge; beyond every place in `members`.
pub(super) const NOT_A_MEMBER: u16 = u16::MAX;
