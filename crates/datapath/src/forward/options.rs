//! Options of bridges, and configuration errors.

use super::fdb::{Fdb, FdbKey};
use super::groups::ForwardGroups;
use super::vlan_set::VlanMode;
use crate::wire::{MacAddress, VlanId};
use polder_buffers::PortId;
use std::sync::Arc;

/// Options of one bridge.
#[derive(Clone, Debug)]
pub struct BridgeOptions {
    /// Name, for messages.
    pub name: String,
    /// Ageing time: seconds from the last frame until a learned address expires, 1 to 1 000 000; 300 is
    /// usual.
    pub ageing_seconds: u32,
    /// Members; at least two to be useful.
    pub members: Vec<MemberOptions>,
    /// Addresses bound to a member.
    pub static_entries: Vec<StaticEntry>,
    /// Link-local groups that are forwarded.
    pub forward_groups: ForwardGroups,
    /// Forwarding database; passed on from table to table, so that a reload keeps it.
    pub fdb: Arc<Fdb>,
}

/// Options of one bridge member.
#[derive(Clone, Debug)]
pub struct MemberOptions {
    /// Port of the member.
    pub port: PortId,
    /// VLAN mode.
    pub vlans: VlanMode,
    /// True if the sources of received frames are learned.
    pub learning: bool,
    /// True if frames to unknown addresses are flooded to the member. Multicast and broadcast always are.
    pub flood: bool,
    /// True if the member exchanges no frames with other isolated members.
    pub isolated: bool,
    /// Split-horizon group, named by one of its members: its members exchange no frames, like the remotes of
    /// one tunnel (RFC 4762, 4.4). `None` for a member without group.
    pub split_horizon: Option<PortId>,
    /// Limits of flooded frames received on the member.
    pub flood_limits: FloodLimits,
    /// Maximum number of learned addresses; `None` for no limit.
    pub fdb_max_learned: Option<u32>,
    /// Maximum number of flooded frames per second and worker that leave by their ingress (hairpin); `None`
    /// if hairpin is off.
    pub hairpin: Option<u32>,
    /// Address of the kernel on this port: frames with this source from other members are dropped.
    pub own_address: Option<MacAddress>,
}

impl BridgeOptions {
    /// A bridge with an ageing time of 300 seconds and default options.
    pub fn new(name: &str, members: Vec<MemberOptions>, fdb: Arc<Fdb>) -> Self {
        let (name, forward_groups) = (name.to_owned(), ForwardGroups::NONE);
        Self { name, ageing_seconds: 300, members, static_entries: Vec::new(), forward_groups, fdb }
    }
}

impl MemberOptions {
    /// A transparent member that learns and receives floods, without limits.
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

/// Maximum number of flooded frames received on a port, per second and worker; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FloodLimits {
    /// Frames to unknown unicast addresses.
    pub unknown_unicast: Option<u32>,
    /// Frames to multicast groups except broadcast.
    pub multicast: Option<u32>,
    /// Broadcast frames.
    pub broadcast: Option<u32>,
}

/// Static entry: an address bound to a member, which neither ages nor moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticEntry {
    /// Unicast address.
    pub address: MacAddress,
    /// VLAN; `None` on a bridge of transparent members.
    pub vlan: Option<VlanId>,
    /// Member on which the station is.
    pub port: PortId,
}

/// Error in the configuration of bridges.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BridgeError {
    /// A port is a member of two bridges, or twice of one.
    #[error("port {} is a member of {first} and of {second}; a port is in one bridge, once", port.0)]
    TwiceMember {
        /// The port.
        port: PortId,
        /// Bridge that has the port.
        first: String,
        /// Second bridge that names the port.
        second: String,
    },
    /// A bridge mixes transparent and VLAN-aware members.
    #[error("{bridge} has members with and without VLANs; give all members a VLAN mode, or none of them")]
    MixedModes {
        /// The bridge.
        bridge: String,
    },
    /// A trunk without VLANs.
    #[error("port {} of {bridge} is a trunk without VLANs; name the VLANs that the trunk carries", port.0)]
    EmptyTrunk {
        /// The bridge.
        bridge: String,
        /// The port.
        port: PortId,
    },
    /// VLAN 0 as access or native VLAN.
    #[error("port {} of {bridge}: 0 is no VLAN ID; use 1 to 4094", port.0)]
    VlanZero {
        /// The bridge.
        bridge: String,
        /// The port.
        port: PortId,
    },
    /// The ageing time is out of range.
    #[error("{bridge}: an ageing time of {seconds} s is out of range; use 1 to 1000000 s")]
    Ageing {
        /// The bridge.
        bridge: String,
        /// Configured ageing time.
        seconds: u32,
    },
    /// A static entry for a group or zero address.
    #[error("{bridge}: {address} is not a unicast address")]
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
    /// The number of members exceeds the range of their indices.
    #[error("the bridges have {count} members; at most 65534 are possible")]
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

/// Index of a port that is in no bridge.
pub(super) const NOT_A_MEMBER: u16 = u16::MAX;
