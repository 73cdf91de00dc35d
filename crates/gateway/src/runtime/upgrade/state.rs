//! State of a gateway whose workers stand still, for the process that goes on with it.

use crate::events::HandedEvents;
use crate::runtime::liveness::HandedSession;
use polder_datapath::counters::{Counter, Totals};
use polder_datapath::tunnel::TunnelNumbers;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Counters of one block by name; those of zero are left out.
pub(in crate::runtime) type Values = BTreeMap<String, u64>;

/// State of a gateway. What a process does not know it leaves out, and what is missing counts from zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::runtime) struct State {
    /// Version of the tables by which flows are carried.
    pub(in crate::runtime) tables: u64,
    /// By number, those included that there are no more.
    pub(in crate::runtime) workers: Vec<WorkerTotals>,
    /// By name.
    pub(in crate::runtime) ports: BTreeMap<String, PortTotals>,
    /// Of queues whose ports are gone.
    pub(in crate::runtime) retired: Values,
    /// By name.
    pub(in crate::runtime) tunnels: BTreeMap<String, TunnelTotals>,
    /// By name.
    pub(in crate::runtime) bridges: BTreeMap<String, BridgeTotals>,
    /// Packets and bytes of each rule, by its identity.
    pub(in crate::runtime) filters: BTreeMap<String, (u64, u64)>,
    /// Packets merged and cut for each port, by worker.
    pub(in crate::runtime) outlets: BTreeMap<String, Vec<Values>>,
    /// Generation of the configuration, and reloads applied and refused.
    pub(in crate::runtime) reloads: (u64, u64, u64),
    /// True if packets are to be sent elsewhere.
    pub(in crate::runtime) draining: bool,
    /// BFD sessions.
    pub(in crate::runtime) sessions: Vec<HandedSession>,
    /// The last events.
    pub(in crate::runtime) events: Option<HandedEvents>,
    /// Ports whose interfaces are locked, with the locked files, in the order of the message's descriptors.
    pub(in crate::runtime) locks: Vec<(String, PathBuf)>,
    /// Names of tunnels that are known to be dead.
    pub(in crate::runtime) dead: Vec<String>,
    /// Names of tunnels of which it was said that they live.
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
    /// Of all its queues together.
    pub(in crate::runtime) queues: Values,
    /// Of what programs have carried from and to it.
    pub(in crate::runtime) carried: Values,
    /// Ways of its table of flows, in their order, with what is counted of each: ports that packets came in and left by,
    /// packets, bytes.
    pub(in crate::runtime) ways: Vec<(u16, u16, u64, u64)>,
    /// Of the queues in front of it, by worker.
    pub(in crate::runtime) egress: Vec<(usize, Values)>,
    /// Times that it was opened.
    pub(in crate::runtime) openings: u64,
}

/// Numbers and counters of a tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::runtime) struct TunnelTotals {
    pub(in crate::runtime) sent: u32,
    pub(in crate::runtime) identification: u32,
    pub(in crate::runtime) received: u64,
    pub(in crate::runtime) next_hop: u64,
    /// By worker.
    pub(in crate::runtime) workers: Vec<Values>,
    pub(in crate::runtime) carried: Values,
}

/// Stations of a bridge: address, VLAN, port, second of the gateway's clock at which it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::runtime) struct BridgeTotals(pub(in crate::runtime) Vec<([u8; 6], u16, u16, u32)>);

impl TunnelTotals {
    /// The numbers of the tunnel.
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

/// Adds `values` to the counters of a block whose owner does not run.
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
