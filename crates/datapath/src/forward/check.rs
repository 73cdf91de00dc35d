//! Checks of bridge options.

use super::options::{BridgeError, BridgeOptions, NOT_A_MEMBER, StaticEntry};
use super::table::Member;
use super::vlan_set::VlanMode;
use crate::wire::VlanId;
use std::collections::HashMap;

/// Index of each port among all members, by port.
pub(super) fn places(options: &[BridgeOptions]) -> Result<Box<[u16]>, BridgeError> {
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

/// Checks the options of one bridge.
pub(super) fn check(options: &BridgeOptions) -> Result<(), BridgeError> {
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
