//! Bridges of a configuration: checked, prepared, and brought into the databases.

use super::{Bridge, Bridges, Links, Member};
use crate::forward::check::{check, places};
use crate::forward::fdb::{FdbEntry, FdbFull, FdbKey, FdbTime};
use crate::forward::options::{BridgeError, BridgeOptions, MemberOptions, NOT_A_MEMBER};
use crate::forward::own::OwnAddresses;
use crate::forward::vlan::PortVlans;
use polder_buffers::{BATCH, PortId};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

impl Links {
    /// The states of ports 0 to `ports` − 1: up, until somebody says otherwise.
    pub fn new(ports: usize) -> Self {
        Self((0..ports).map(|_| AtomicBool::new(true)).collect())
    }

    /// Notes whether `port` can send; says whether that is news.
    ///
    /// Addresses that were learned behind a port that went down must be flushed: see
    /// [`Fdb::flush_port`](crate::forward::Fdb::flush_port).
    pub fn set(&self, port: PortId, up: bool) -> bool {
        let link = self.0.get(usize::from(port.0));
        // Relaxed: the flag orders nothing; a frame more or less meets the closed port itself.
        link.is_some_and(|link| link.swap(up, Ordering::Relaxed) != up)
    }
}

impl Default for Bridges {
    fn default() -> Self {
        Self::none()
    }
}

impl Bridges {
    /// No bridge at all.
    #[expect(clippy::missing_panics_doc, reason = "nothing is wrong with no bridge")]
    pub fn none() -> Self {
        Self::new(Vec::new(), Arc::new(Links::new(0))).expect("no bridge has no error")
    }

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
            let own = OwnAddresses::of(&options);
            let start = members.len();
            members.extend(options.members.iter().map(|member| Member::new(member, number)));
            bridges.push(Bridge {
                fdb: options.fdb,
                ageing: options.ageing_seconds,
                members: start..members.len(),
                static_entries: options.static_entries,
                forward_groups: options.forward_groups,
                own,
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
            let bound = bridge.static_entries.iter().map(|entry| (entry.key(), entry.port));
            let wanted = bound.chain(self.own_entries(bridge)).collect::<Vec<_>>();
            let ports = wanted.iter().map(|&(key, port)| (key, port.0)).collect();
            bridge.fdb.remove_where(|entry| !self.keeps(number, &ports, entry));
            for (key, port) in wanted {
                result = result.and(bridge.fdb.set_static(key, port, time));
            }
        }
        result
    }

    /// Static entries of the members' own addresses, in the VLAN that each sends without a tag.
    fn own_entries<'a>(&'a self, bridge: &'a Bridge) -> impl Iterator<Item = (FdbKey, PortId)> + 'a {
        // Of several members with one address, the first is found.
        let first = bridge.own.iter().filter(|&(key, port)| bridge.own.members(key).next() == Some(port));
        first.filter_map(|(address, port)| {
            let vlan = self.member(port)?.untagged()?;
            Some((address.in_vlan(vlan), port))
        })
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

    /// True if an entry of the database agrees with the configuration.
    fn keeps(&self, bridge: u16, wanted: &HashSet<(FdbKey, u16)>, entry: &FdbEntry) -> bool {
        let member = self.member(entry.port).filter(|member| member.bridge == bridge);
        let key = FdbKey::new(entry.address, entry.vlan);
        member.is_some_and(|member| member.carries(entry.vlan))
            && match entry.is_static {
                true => wanted.contains(&(key, entry.port.0)),
                false => !self.bridge(bridge).own.is_elsewhere(key, entry.port),
            }
    }
}

impl Member {
    pub(in crate::forward) fn new(options: &MemberOptions, bridge: u16) -> Self {
        Self {
            port: options.port,
            bridge,
            learning: options.learning,
            flood: options.flood,
            isolated: options.isolated,
            split_horizon: options.split_horizon.unwrap_or(options.port),
            flood_limits: options.flood_limits,
            fdb_max_learned: options.fdb_max_learned.unwrap_or(u32::MAX),
            hairpin: options.hairpin,
            vlans: PortVlans::new(&options.vlans).map(Box::new),
        }
    }
}
