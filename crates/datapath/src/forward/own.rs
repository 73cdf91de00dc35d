//! Own addresses: MAC addresses of members that belong to this machine's kernel.
//!
//! A host's TAP, and an interface on which the kernel continues to send, are stations of this machine. A
//! frame from another member with such a source is forged or looped: it is dropped and not learned, so that
//! no port can attract the host's frames.

use super::fdb::FdbKey;
use super::options::BridgeOptions;
use polder_buffers::PortId;
use std::collections::HashSet;

/// Own addresses of one bridge's members, in ascending order; several members may share an address.
#[derive(Clone, Debug)]
pub(super) struct OwnAddresses(Box<[(FdbKey, PortId)]>);

impl OwnAddresses {
    /// Own addresses of the members, except those bound by a static entry.
    pub(super) fn of(options: &BridgeOptions) -> Self {
        let bound = options.static_entries.iter().map(|entry| entry.address).collect::<HashSet<_>>();
        let of_members = options.members.iter().filter_map(|member| Some((member.own_address?, member.port)));
        let free = of_members.filter(|(address, _)| address.is_station() && !bound.contains(address));
        let mut addresses = free.map(|(address, port)| (FdbKey::new(address, 0), port)).collect::<Vec<_>>();
        addresses.sort_unstable_by_key(|&(key, port)| (key.0, port.0));
        Self(addresses.into())
    }

    /// True if no member has an own address.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All own addresses, each with its member.
    pub(super) fn iter(&self) -> impl Iterator<Item = (FdbKey, PortId)> + '_ {
        self.0.iter().copied()
    }

    /// Members whose own address is `station`, in any VLAN.
    pub(super) fn members(&self, station: FdbKey) -> impl Iterator<Item = PortId> + '_ {
        let address = station.without_vlan();
        let first = self.0.partition_point(|(key, _)| key.0 < address.0);
        self.0[first..].iter().take_while(move |(key, _)| *key == address).map(|&(_, port)| port)
    }

    /// True if `station` is the own address of members other than `port`.
    pub(super) fn is_elsewhere(&self, station: FdbKey, port: PortId) -> bool {
        let mut members = self.members(station).peekable();
        members.peek().is_some() && members.all(|member| member != port)
    }
}
