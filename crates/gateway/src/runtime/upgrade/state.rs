//! State of a gateway whose workers have stopped, for its successor.

use crate::events::HandedEvents;
use crate::runtime::liveness::HandedSession;
use polder_datapath::counters::{Counter, Totals};
use polder_datapath::tunnel::TunnelNumbers;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Counters of one block by name; zeros are left out.
pub(in crate::runtime) type Values = BTreeMap<String, u64>;

/// State of a gateway. A successor ignores unknown fields, and missing counters begin at zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::runtime) struct State {
    /// Version of the tables that flows are carried by.
    pub(in crate::runtime) tables: u64,
    /// Workers by number, including removed ones.
    pub(in crate::runtime) workers: Vec<WorkerTotals>,
    /// Ports by name.
    pub(in crate::runtime) ports: BTreeMap<String, PortTotals>,
    /// Counters of queues whose ports were removed.
    pub(in crate::runtime) retired: Values,
    /// Tunnels by name.
    pub(in crate::runtime) tunnels: BTreeMap<String, TunnelTotals>,
    /// Bridges by name.
    pub(in crate::runtime) bridges: BTreeMap<String, BridgeTotals>,
    /// Packets and bytes of each rule, by its identity.
    pub(in crate::runtime) filters: BTreeMap<String, (u64, u64)>,
    /// Merged and split packets of each port, by worker.
    pub(in crate::runtime) outlets: BTreeMap<String, Vec<Values>>,
    /// Generation of the configuration, applied and refused reloads.
    pub(in crate::runtime) reloads: (u64, u64, u64),
    /// True after `polder drain`.
    pub(in crate::runtime) draining: bool,
    /// BFD sessions.
    pub(in crate::runtime) sessions: Vec<HandedSession>,
    /// The latest events.
    pub(in crate::runtime) events: Option<HandedEvents>,
    /// Ports with a locked interface, each with its lock file, in the order of the message's descriptors.
    pub(in crate::runtime) locks: Vec<(String, PathBuf)>,
    /// Names of tunnels that are down.
    pub(in crate::runtime) dead: Vec<String>,
    /// Names of tunnels that were reported as up.
    pub(in crate::runtime) alive: Vec<String>,
}

/// Counters of a worker and of its bridge stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::runtime) struct WorkerTotals {
    pub(in crate::runtime) counters: Values,
    pub(in crate::runtime) bridging: Values,
}

/// Counters of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::runtime) struct PortTotals {
    /// Sum over all its queues.
    pub(in crate::runtime) queues: Values,
    /// Packets that programs have carried from and to the port.
    pub(in crate::runtime) carried: Values,
    /// Counts of its flow table, in the table's order: ingress port, egress port, packets, bytes.
    pub(in crate::runtime) ways: Vec<(u16, u16, u64, u64)>,
    /// Counters of its egress queues, by worker.
    pub(in crate::runtime) egress: Vec<(usize, Values)>,
    /// Counters of its queues of received packets, by worker.
    pub(in crate::runtime) inlets: Vec<(usize, Values)>,
    /// Number of times that the port was opened.
    pub(in crate::runtime) openings: u64,
}

/// Sequence numbers and counters of a tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::runtime) struct TunnelTotals {
    pub(in crate::runtime) sent: u32,
    pub(in crate::runtime) identification: u32,
    pub(in crate::runtime) received: u64,
    pub(in crate::runtime) next_hop: u64,
    /// Counters by worker.
    pub(in crate::runtime) workers: Vec<Values>,
    pub(in crate::runtime) carried: Values,
}

/// Stations of a bridge: address, VLAN, port, last seen in seconds of the gateway's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::runtime) struct BridgeTotals(pub(in crate::runtime) Vec<([u8; 6], u16, u16, u32)>);

impl TunnelTotals {
    /// Sequence numbers of the tunnel.
    pub(in crate::runtime) fn numbers(&self) -> TunnelNumbers {
        let &Self { sent, identification, received, next_hop, .. } = self;
        TunnelNumbers { sent, identification, received, next_hop }
    }
}

/// Adds the counters of a block to `values`.
pub(in crate::runtime) fn totals(block: &impl Totals, values: &mut Values) {
    block.totals("", &mut |name, counter| {
        let count = counter.get();
        if count > 0 {
            *values.entry(name.to_owned()).or_default() += count;
        }
    });
}

/// Adds `values` to the counters of a block whose owner has stopped.
pub(in crate::runtime) fn add(block: &impl Totals, values: &Values) {
    block.totals("", &mut |name, counter: &Counter| {
        if let Some(&count) = values.get(name) {
            counter.add(count);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_datapath::counters::QueueCounters;
    use polder_datapath::drops::DropReason;

    #[test]
    fn counters_go_on_from_where_they_were() {
        let (before, after) = (QueueCounters::default(), QueueCounters::default());
        before.received.add(7);
        before.drops.count(DropReason::Fence, 3);
        before.in_flight.set(9);
        after.received.add(1);
        let mut values = Values::new();
        totals(&before, &mut values);
        assert_eq!(values.len(), 2, "a gauge is no total: {values:?}");
        values.insert("unheard-of".to_owned(), 5);
        add(&after, &values);
        assert_eq!((after.received.get(), after.drops.get(DropReason::Fence)), (8, 3));
    }

    /// A program may know more than the one before it, and less.
    #[test]
    fn states_of_other_programs_are_read() {
        let read = serde_json::from_str::<State>(r#"{"tables":3,"news":[1],"ports":{"lan":{"openings":2}}}"#);
        let state = read.expect("it is read");
        assert_eq!((state.tables, state.ports["lan"].openings), (3, 2));
    }
}
