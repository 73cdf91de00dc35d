//! Inputs of flow decisions by port, so that a change ends only the entries that it may affect.
//!
//! A change that is not limited to one port counts as a change of all ports: rules, static routes, settings
//! of the process. Learned addresses and the kernel's routes are not included: their changes end entries as a
//! move does.

use crate::config::model::{Bridge, Configuration, FloodLimit, Member, Metrics, Port, Tunnel};
use crate::device::PortProperties;
use polder_buffers::PortId;
use polder_datapath::wire::MacAddress;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Properties of an open port, and whether its link is up.
pub(super) type OpenFacts = (PortProperties, bool);

/// Inputs of the decisions made by one version of the tables.
#[derive(Debug)]
pub(super) struct Grounds {
    /// The configuration without ports, tunnels, bridges and metrics.
    shared: Configuration,
    /// Bridges without members and without settings that do not affect known stations' frames; true for a
    /// bridge with VLANs.
    bridges: HashMap<String, (Bridge, bool)>,
    ports: HashMap<PortId, Port>,
    tunnels: HashMap<PortId, Tunnel>,
    /// Members, each with the name of its bridge.
    members: HashMap<PortId, (String, Member)>,
    facts: HashMap<PortId, OpenFacts>,
    /// Tunnels whose remote is unreachable.
    dead: HashSet<PortId>,
    /// Ports and tunnels whose flows programs carry.
    carried: HashSet<PortId>,
}

impl Grounds {
    /// Inputs of the tables of a configuration.
    pub(super) fn new(
        configuration: &Configuration,
        facts: HashMap<PortId, OpenFacts>,
        dead: HashSet<PortId>,
        carried: HashSet<PortId>,
    ) -> Self {
        let mut shared = configuration.clone();
        shared.metrics = Metrics::default();
        let ports = std::mem::take(&mut shared.ports);
        let tunnels = std::mem::take(&mut shared.tunnels);
        let bridges = std::mem::take(&mut shared.bridges);
        let of_bridge = |bridge: &Bridge| {
            let has_vlans = bridge.members.iter().any(|member| member.vlan.is_some());
            let bridge = Bridge {
                members: Vec::new(),
                ageing_seconds: 0,
                flood_limit: FloodLimit::default(),
                ..bridge.clone()
            };
            (bridge.name.clone(), (bridge, has_vlans))
        };
        let members = bridges.iter().flat_map(|bridge| {
            bridge.members.iter().map(|member| (member.port, (bridge.name.clone(), member.clone())))
        });
        Self {
            shared,
            members: members.collect(),
            bridges: bridges.iter().map(of_bridge).collect(),
            ports: ports.into_iter().map(|port| (port.id, port)).collect(),
            tunnels: tunnels.into_iter().map(|tunnel| (tunnel.id, tunnel)).collect(),
            facts,
            dead,
            carried,
        }
    }

    /// Ports and tunnels whose flows programs carry.
    pub(super) fn carried(&self) -> HashSet<PortId> {
        self.carried.clone()
    }

    /// Returns a predicate: true for a port or tunnel whose inputs equal those in `before`.
    pub(super) fn unchanged<'g>(&'g self, before: &'g Self) -> impl Fn(PortId) -> bool + 'g {
        let is_same = self.shared == before.shared;
        move |id| is_same && self.is_same(before, id)
    }

    fn is_same(&self, before: &Self, id: PortId) -> bool {
        let member = |grounds: &Self| grounds.members.get(&id).cloned();
        let bridge = |grounds: &Self| grounds.bridges.get(&member(grounds)?.0).cloned();
        let underlay = self.tunnels.get(&id).map(|tunnel| tunnel.port);
        self.ports.get(&id) == before.ports.get(&id)
            && self.tunnels.get(&id) == before.tunnels.get(&id)
            && self.facts.get(&id) == before.facts.get(&id)
            && self.dead.contains(&id) == before.dead.contains(&id)
            && self.carried.contains(&id) == before.carried.contains(&id)
            && member(self) == member(before)
            && bridge(self) == bridge(before)
            && underlay.is_none_or(|underlay| self.is_same(before, underlay))
    }

    /// MAC addresses that ports have gained or lost since `before`. Frames of these stations are treated
    /// differently on every port.
    pub(super) fn changed_addresses(&self, before: &Self) -> BTreeSet<MacAddress> {
        self.own().symmetric_difference(&before.own()).copied().collect()
    }

    fn own(&self) -> BTreeSet<MacAddress> {
        self.facts.values().map(|(facts, _)| facts.mac).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    const TEXT: &str = "version = 1\n[port.a]\ninterface = \"a0\"\n[port.b]\ninterface = \"b0\"\n[port.c]\ninterface = \"c0\"\n\
        [bridge.lan]\nmembers = [\"a\", \"b\", \"c\"]\n";

    fn grounds(text: &str) -> Grounds {
        let loaded = config::parse(text, "test.toml".as_ref()).expect("a right file");
        Grounds::new(&loaded.configuration, HashMap::new(), HashSet::new(), HashSet::new())
    }

    /// True for those of a, b and c that have the grounds of [`TEXT`].
    fn unchanged(text: &str) -> [bool; 3] {
        let (before, now) = (grounds(TEXT), grounds(text));
        let is_unchanged = now.unchanged(&before);
        [0, 1, 2].map(|id| is_unchanged(PortId(id)))
    }

    #[test]
    fn a_change_is_of_the_ports_that_it_touches() {
        let all = [true; 3];
        assert_eq!(unchanged(TEXT), all);
        assert_eq!(
            unchanged(&format!("{TEXT}ageing_seconds = 77\n[bridge.lan.flood_limit]\nbroadcast = 9\n")),
            all
        );
        let isolated = format!("{TEXT}[bridge.lan.port.c]\nisolated = true\n");
        assert_eq!(unchanged(&isolated), [true, true, false]);
        assert_eq!(unchanged(&TEXT.replace("\"b0\"\n", "\"b0\"\nweight = 9\n")), [true, false, true]);
        let other = TEXT
            .replace("[bridge", "[port.d]\ninterface = \"d0\"\n[bridge")
            .replace("\"c\"]", "\"c\", \"d\"]");
        assert_eq!(unchanged(&other), all);
    }

    #[test]
    fn what_may_concern_all_changes_all() {
        let none = [false; 3];
        assert_eq!(unchanged(&format!("{TEXT}[[filter]]\nprotocol = \"icmp\"\naction = \"drop\"\n")), none);
        assert_eq!(unchanged(&format!("{TEXT}forward_groups = [\"lldp\"]\n")), none);
        let vlan = format!(
            "{TEXT}[bridge.lan.port.a]\nvlan = {{ access = 7 }}\n[bridge.lan.port.b]\nvlan = {{ access = 7 }}\n\
            [bridge.lan.port.c]\nvlan = {{ access = 8 }}\n"
        );
        assert_eq!(unchanged(&vlan), none);
    }
}
