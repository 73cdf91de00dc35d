//! The configuration of the bridges, checked and prepared: built once, replaced whole.

use super::fdb::{Fdb, FdbEntry, FdbFull, FdbKey, FdbTime};
use super::options::{
    BridgeError, BridgeOptions, FloodLimits, MemberOptions, NOT_A_MEMBER, StaticEntry, check, places,
};
use super::vlan::PortVlans;
use core::ops::Range;
use polder_buffers::{BATCH, PortId};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    pub(super) fn new(options: &MemberOptions, bridge: u16) -> Self {
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
