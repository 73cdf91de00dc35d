//! Builds the table of bridges from a configuration.

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
    /// Link states of ports 0 to `ports` − 1, initially up.
    pub fn new(ports: usize) -> Self {
        Self((0..ports).map(|_| AtomicBool::new(true)).collect())
    }

    /// Sets the link state of `port`; returns true if it changed.
    ///
    /// After a link went down, the addresses on the port must be flushed:
    /// [`Fdb::flush_port`](crate::forward::Fdb::flush_port).
    pub fn set(&self, port: PortId, up: bool) -> bool {
        let link = self.0.get(usize::from(port.0));
        // Relaxed: the flag orders nothing; a late frame is dropped by the closed port itself.
        link.is_some_and(|link| link.swap(up, Ordering::Relaxed) != up)
    }
}

impl Default for Bridges {
    fn default() -> Self {
        Self::none()
    }
}

impl Bridges {
    /// A table without bridges.
    #[expect(clippy::missing_panics_doc, reason = "nothing is wrong with no bridge")]
    pub fn none() -> Self {
        Self::new(Vec::new(), Arc::new(Links::new(0))).expect("no bridge has no error")
    }

    /// Checks the configuration and builds the table, without changing the databases: see
    /// [`Bridges::bind_static`].
    ///
    /// # Errors
    /// The first [`BridgeError`] in the order of the configuration.
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

    /// Updates the static entries of the databases, and removes addresses of ports that left; must be called
    /// once the table is in use.
    ///
    /// # Errors
    /// [`FdbFull`] if there is no room for an address; all other addresses are bound.
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

    /// Static entries of the members' own addresses, in each member's untagged VLAN.
    fn own_entries<'a>(&'a self, bridge: &'a Bridge) -> impl Iterator<Item = (FdbKey, PortId)> + 'a {
        // If several members share an address, the first one is used.
        let first = bridge.own.iter().filter(|&(key, port)| bridge.own.members(key).next() == Some(port));
        first.filter_map(|(address, port)| {
            let vlan = self.member(port)?.untagged()?;
            Some((address.in_vlan(vlan), port))
        })
    }

    /// Maximum number of packets that the stage makes of one batch.
    pub fn longest_expansion(&self) -> usize {
        let longest = self.bridges.iter().map(|bridge| bridge.members.len()).max();
        BATCH * longest.unwrap_or(1).max(1)
    }

    /// A copy of the table with copies of the databases.
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
