//! The configuration of the bridges, checked and prepared: built once, replaced whole.

use super::fdb::{Fdb, FdbEntry, FdbFull, FdbKey, FdbTime};
use super::vlan::{PortVlans, VlanMode};
use crate::wire::{MacAddress, VlanId};
use core::ops::Range;
use polder_buffers::{BATCH, PortId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Link state: the ports that can send. Shared by all tables and workers; the thread that learns of
/// a link's state writes it.
#[derive(Debug)]
pub struct Links(Box<[AtomicBool]>);

/// All bridges.
#[derive(Debug)]
pub struct Bridges {
    /// By port: the place in `members`, or `NOT_A_MEMBER`.
    by_port: Box<[u16]>,
    /// Members of all bridges; those of one bridge stand together.
    members: Box<[Member]>,
    bridges: Box<[Bridge]>,
    links: Arc<Links>,
}

#[derive(Clone, Debug)]
pub(super) struct Bridge {
    pub(super) fdb: Arc<Fdb>,
    pub(super) ageing: u32,
    members: Range<usize>,
    static_entries: Vec<StaticEntry>,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) port: PortId,
    pub(super) bridge: u16,
    pub(super) learning: bool,
    pub(super) flood: bool,
    pub(super) isolated: bool,
    /// [`MemberOptions::split_horizon`]; its own port if it is in no group.
    pub(super) split_horizon: PortId,
    pub(super) flood_limits: FloodLimits,
    pub(super) fdb_max_learned: u32,
    /// `None` when transparent.
    pub(super) vlans: Option<Box<PortVlans>>,
}

impl Links {
    /// The states of ports 0 to `ports` − 1: up, until somebody says otherwise.
    pub fn new(ports: usize) -> Self {
        Self((0..ports).map(|_| AtomicBool::new(true)).collect())
    }

    /// Notes whether `port` can send; says whether that is news.
    ///
    /// Addresses that were learned behind a port that went down must be flushed: see [`Fdb::flush_port`].
    pub fn set(&self, port: PortId, up: bool) -> bool {
        let link = self.0.get(usize::from(port.0));
        // Relaxed: the flag orders nothing; a frame more or less meets the closed port itself.
        link.is_some_and(|link| link.swap(up, Ordering::Relaxed) != up)
    }

    /// True if `port` can send; ports that were not announced cannot.
    #[inline(always)]
    pub fn is_up(&self, port: PortId) -> bool {
        self.0.get(usize::from(port.0)).is_some_and(|link| link.load(Ordering::Relaxed))
    }
}

impl Bridges {
    /// Checks and prepares the configuration. The databases are not touched: see
    /// [`Bridges::bind_static`].
    ///
    /// # Errors
    /// The first [`BridgeError`], in the order of the configuration.
    pub fn new(options: Vec<BridgeOptions>, links: Arc<Links>) -> Result<Self, BridgeError> {
        let count = options.iter().map(|bridge| bridge.members.len()).sum();
        if count >= usize::from(NOT_A_MEMBER) {
            return Err(BridgeError::TooMany { count });
        }
        let by_port = places(&options)?;
        let mut members = Vec::with_capacity(count);
        let mut bridges = Vec::with_capacity(options.len());
        for (number, options) in (0_u16..).zip(options) {
            check(&options)?;
            let start = members.len();
            members.extend(options.members.iter().map(|member| Member::new(member, number)));
            bridges.push(Bridge {
                fdb: options.fdb,
                ageing: options.ageing_seconds,
                members: start..members.len(),
                static_entries: options.static_entries,
            });
        }
        Ok(Self { by_port, members: members.into(), bridges: bridges.into(), links })
    }

    /// Brings the static entries of the databases in line with the configuration, and forgets
    /// addresses learned on ports that left; to be called once the table is in use.
    ///
    /// # Errors
    /// [`FdbFull`] when an address finds no place; the others are bound all the same.
    pub fn bind_static(&self, second: u32) -> Result<(), FdbFull> {
        let mut result = Ok(());
        for (number, bridge) in (0..).zip(&self.bridges) {
            let time = FdbTime { second, ageing: bridge.ageing };
            let wanted = bridge.static_entries.iter().map(|entry| (entry.key(), entry.port.0)).collect();
            bridge.fdb.remove_where(|entry| !self.keeps(number, &wanted, entry));
            for entry in &bridge.static_entries {
                result = result.and(bridge.fdb.set_static(entry.key(), entry.port, time));
            }
        }
        result
    }

    /// Number of packets that the stage may make of one batch, so that a worker can reserve room.
    pub fn longest_expansion(&self) -> usize {
        let longest = self.bridges.iter().map(|bridge| bridge.members.len()).max();
        BATCH * longest.unwrap_or(1).max(1)
    }

    /// The same with copies of the learned addresses.
    pub(crate) fn image(&self) -> Self {
        let bridge = |bridge: &Bridge| Bridge { fdb: Arc::new(bridge.fdb.copy()), ..bridge.clone() };
        Self {
            by_port: self.by_port.clone(),
            members: self.members.clone(),
            bridges: self.bridges.iter().map(bridge).collect(),
            links: Arc::clone(&self.links),
        }
    }

    /// Learned addresses of a member's bridge, and its ageing time in seconds.
    pub fn learned_by(&self, port: PortId) -> Option<(&Fdb, u32)> {
        let bridge = self.bridge(self.member(port)?.bridge);
        Some((&bridge.fdb, bridge.ageing))
    }

    /// Link state: the ports that can send.
    pub fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// True if `port` is a member of a bridge.
    pub fn has_member(&self, port: PortId) -> bool {
        self.member(port).is_some()
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    #[inline(always)]
    pub(super) fn member(&self, port: PortId) -> Option<&Member> {
        let place = self.by_port.get(usize::from(port.0))?;
        self.members.get(usize::from(*place))
    }

    /// The bridge of a member, by [`Member::bridge`].
    #[inline(always)]
    pub(super) fn bridge(&self, number: u16) -> &Bridge {
        &self.bridges[usize::from(number)]
    }

    /// The members of a bridge, in the order of the configuration.
    #[inline(always)]
    pub(super) fn members_of(&self, bridge: &Bridge) -> &[Member] {
        &self.members[bridge.members.clone()]
    }

    /// True if an entry of the database agrees with the configuration.
    fn keeps(&self, bridge: u16, wanted: &HashSet<(FdbKey, u16)>, entry: &FdbEntry) -> bool {
        let member = self.member(entry.port).filter(|member| member.bridge == bridge);
        member.is_some_and(|member| member.carries(entry.vlan))
            && (!entry.is_static || wanted.contains(&(FdbKey::new(entry.address, entry.vlan), entry.port.0)))
    }
}

impl Member {
    fn new(options: &MemberOptions, bridge: u16) -> Self {
        Self {
            port: options.port,
            bridge,
            learning: options.learning,
            flood: options.flood,
            isolated: options.isolated,
            split_horizon: options.split_horizon.unwrap_or(options.port),
            flood_limits: options.flood_limits,
            fdb_max_learned: options.fdb_max_learned.unwrap_or(u32::MAX),
            vlans: PortVlans::new(&options.vlans).map(Box::new),
        }
    }

    /// True if the member sends frames of `vlan` (0 on a bridge without VLANs).
    #[inline(always)]
    pub(super) fn carries(&self, vlan: u16) -> bool {
        self.vlans.as_ref().map_or(vlan == 0, |vlans| vlans.carries(vlan))
    }
}

impl StaticEntry {
    fn key(&self) -> FdbKey {
        FdbKey::new(self.address, self.vlan.map_or(0, VlanId::get))
    }
}

/// By port: its place among all members.
fn places(options: &[BridgeOptions]) -> Result<Box<[u16]>, BridgeError> {
    let mut by_port = Vec::new();
    let mut owners = Vec::<&BridgeOptions>::new();
    let members = options.iter().flat_map(|bridge| bridge.members.iter().map(move |member| (bridge, member)));
    for (place, (bridge, member)) in (0_u16..).zip(members) {
        let port = usize::from(member.port.0);
        by_port.resize(by_port.len().max(port + 1), NOT_A_MEMBER);
        if let Some(owner) = owners.get(usize::from(by_port[port])) {
            let (first, second) = (owner.name.clone(), bridge.name.clone());
            return Err(BridgeError::TwiceMember { port: member.port, first, second });
        }
        by_port[port] = place;
        owners.push(bridge);
    }
    Ok(by_port.into())
}

/// Checks the options of one bridge by itself.
fn check(options: &BridgeOptions) -> Result<(), BridgeError> {
    let bridge = || options.name.clone();
    if !(1..=1_000_000).contains(&options.ageing_seconds) {
        return Err(BridgeError::Ageing { bridge: bridge(), seconds: options.ageing_seconds });
    }
    let transparent = options.members.iter().filter(|member| member.vlans == VlanMode::Transparent).count();
    if transparent != 0 && transparent != options.members.len() {
        return Err(BridgeError::MixedModes { bridge: bridge() });
    }
    for member in &options.members {
        let port = member.port;
        match &member.vlans {
            VlanMode::Trunk { allowed, native: None } if allowed.is_empty() => {
                return Err(BridgeError::EmptyTrunk { bridge: bridge(), port });
            }
            VlanMode::Access(VlanId::PRIORITY) | VlanMode::Trunk { native: Some(VlanId::PRIORITY), .. } => {
                return Err(BridgeError::VlanZero { bridge: bridge(), port });
            }
            VlanMode::Transparent | VlanMode::Access(_) | VlanMode::Trunk { .. } => {}
        }
    }
    let members = options.members.iter().map(|member| (member.port.0, member)).collect::<HashMap<_, _>>();
    for &StaticEntry { address, vlan, port } in &options.static_entries {
        if !address.is_station() {
            return Err(BridgeError::StaticGroup { bridge: bridge(), address });
        }
        let Some(member) = members.get(&port.0) else {
            return Err(BridgeError::StaticPort { bridge: bridge(), address, port });
        };
        if !Member::new(member, 0).carries(vlan.map_or(0, VlanId::get)) {
            return Err(BridgeError::StaticVlan { bridge: bridge(), address, port });
        }
    }
    Ok(())
}

/// Of a port that is in no bridge; beyond every place in `members`.
const NOT_A_MEMBER: u16 = u16::MAX;
