//! Rows of bridges.

use crate::config::bridge::ranges;
use crate::config::model::{Bridge, Configuration, Member, MemberVlan};
use crate::runtime::gateway::Gateway;
use crate::show::fdb::{BridgeRow, FdbRow, MOST, MemberRow};
use polder_buffers::PortId;
use polder_datapath::forward::{Fdb, FdbEntry, PortLearning};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of each port or tunnel with the tunnel's remote, by port number.
pub(super) fn places(configuration: &Configuration) -> BTreeMap<u16, (String, Option<String>)> {
    let place = |(id, name): (PortId, &str)| {
        let tunnel = configuration.tunnel(id);
        let name = tunnel.map_or(name, |tunnel| &tunnel.table).to_owned();
        (id.0, (name, tunnel.map(|tunnel| tunnel.remote.to_string())))
    };
    configuration.names().map(place).collect()
}

/// A bridge row without its FDB entries, which are read without the gateway's lock.
pub(super) struct Unread {
    pub(super) row: BridgeRow,
    pub(super) fdb: Option<Arc<Fdb>>,
    pub(super) has_vlans: bool,
}

pub(super) fn bridge_row(bridge: &Bridge, gateway: &Gateway) -> Unread {
    let fdb = gateway.lasting.fdbs.get(&bridge.name).map(Arc::clone);
    let row = BridgeRow {
        name: bridge.name.clone(),
        members: bridge.members.iter().map(|member| member_row(member, fdb.as_deref(), gateway)).collect(),
        ageing_seconds: bridge.ageing_seconds,
        capacity: fdb.as_ref().map_or(0, |fdb| fdb.capacity()),
        occupied: fdb.as_ref().map_or(0, |fdb| fdb.occupied()),
        entries: Vec::new(),
    };
    Unread { row, fdb, has_vlans: bridge.is_vlan_aware() }
}

pub(super) fn member_row(member: &Member, fdb: Option<&Fdb>, gateway: &Gateway) -> MemberRow {
    let PortLearning { learned, evicted, limited } = fdb.map(|fdb| fdb.port(member.port)).unwrap_or_default();
    // A tunnel is open while its underlay port is.
    let device = gateway.configuration.tunnel(member.port).map_or(member.port, |tunnel| tunnel.port);
    let vlans = member.vlan.as_ref().map(|vlan| match vlan {
        MemberVlan::Access(vlan) => format!("access {vlan}"),
        MemberVlan::Trunk { allowed, native } => {
            let native = native.map(|native| format!(", native {native}")).unwrap_or_default();
            format!("trunk {}{native}", ranges(allowed).replace('"', ""))
        }
    });
    MemberRow {
        name: gateway.configuration.name_of(member.port).unwrap_or_default().to_owned(),
        vlans,
        isolated: member.isolated,
        open: gateway.ports.iter().any(|state| state.configuration.id == device && state.open),
        learned,
        fdb_max_learned: member.fdb_max_learned,
        evicted,
        limited,
    }
}

impl Unread {
    pub(super) fn fill(self, places: &BTreeMap<u16, (String, Option<String>)>, second: u32) -> BridgeRow {
        let Self { mut row, fdb, has_vlans } = self;
        let Some(fdb) = fdb else { return row };
        let ageing = row.ageing_seconds;
        let is_young = |entry: &FdbEntry| entry.is_static || second.saturating_sub(entry.seen) <= ageing;
        let mut entries = fdb.entries().filter(is_young).collect::<Vec<_>>();
        entries.sort_unstable_by_key(|entry| (entry.vlan, entry.port.0, entry.address.0));
        entries.truncate(MOST);
        let entry = |entry: FdbEntry| {
            let (port, remote) = places.get(&entry.port.0).cloned().unwrap_or_default();
            FdbRow {
                vlan: has_vlans.then_some(entry.vlan),
                address: entry.address.to_string(),
                port,
                remote,
                age_seconds: (!entry.is_static).then(|| second.saturating_sub(entry.seen)),
            }
        };
        row.entries = entries.into_iter().map(entry).collect();
        row
    }
}
