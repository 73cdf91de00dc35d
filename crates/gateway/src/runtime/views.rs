//! Rows of `polder show` about flows, connections and steering.

use super::gateway::{
    FailureSource, FilteredPorts, Gateway, PortState, WorkerHandle, obstacle, tunnel_obstacle,
};
use super::show::connections::Source;
use crate::config::model::{Order, Port, Tunnel};
use crate::show::flows::{self, CarriedRow, FailedRow, FastPathRow};
use crate::show::steering::{BucketRow, FlowRow, SteeredPort, Steering, SteeringRow};
use polder_buffers::PortId;
use polder_datapath::counters::Counter;
use polder_datapath::drops::DropReason;
use polder_datapath::fast_path::FlowKey;
use polder_datapath::steer::{self, Board, FlowName, Flows, Heavy};
use polder_datapath::tunnel::TunnelCounters;
use polder_datapath::units::Nanos;
use polder_devices::skb::Entry;
use std::collections::HashMap;

/// Flows that ports' programs carry, by bytes, largest first.
pub(super) fn flows(gateway: &Gateway) -> flows::Flows {
    let mut entries = gateway.flows();
    entries.sort_unstable_by_key(|entry| core::cmp::Reverse(entry.bytes));
    entries.truncate(MOST_FLOWS);
    let name = |port: PortId| gateway.configuration.name_of(port).unwrap_or_default().to_owned();
    let row = |entry: Entry| {
        let (vlan, source, destination) = match entry.flow {
            FlowKey::Stations(pair) => (pair.tag, pair.source.to_string(), pair.destination.to_string()),
            FlowKey::Addresses(pair) => (pair.tag, pair.source.to_string(), pair.destination.to_string()),
        };
        let next_hop = entry.link.map(|link| link.destination.to_string());
        let state = if entry.is_open { "carried" } else { "waiting" }.to_owned();
        let Entry { from, to, packets, bytes, .. } = entry;
        CarriedRow {
            from: name(from),
            to: name(to),
            next_hop,
            vlan,
            source,
            destination,
            state,
            packets,
            bytes,
        }
    };
    let mut failed = gateway.failed_redirects();
    let mut port = |state: &PortState| FastPathRow {
        failed: failed.remove(&state.configuration.id).map(failed_row),
        port: state.configuration.name.clone(),
        obstacle: obstacle(gateway, state).map(str::to_owned),
        received: state.carried.received.get(),
        received_bytes: state.carried.received_bytes.get(),
        transmitted: state.carried.transmitted.get(),
        transmitted_bytes: state.carried.transmitted_bytes.get(),
    };
    let filtered = FilteredPorts::of(&gateway.configuration);
    let tunnel = |tunnel: &Tunnel| {
        let state = gateway.lasting.tunnels.get(&tunnel.name);
        let count =
            |counter: fn(&TunnelCounters) -> &Counter| state.map_or(0, |state| counter(&state.carried).get());
        FastPathRow {
            port: tunnel.name.clone(),
            obstacle: tunnel_obstacle(gateway, &filtered, tunnel).map(str::to_owned),
            received: count(|counters| &counters.received),
            received_bytes: count(|counters| &counters.received_bytes),
            transmitted: count(|counters| &counters.sent),
            transmitted_bytes: count(|counters| &counters.sent_bytes),
            failed: None,
        }
    };
    flows::Flows {
        ports: gateway.ports.iter().map(&mut port).collect(),
        tunnels: gateway.configuration.tunnels.iter().map(tunnel).collect(),
        flows: entries.into_iter().map(row).collect(),
    }
}

fn failed_row((packets, source): (u64, FailureSource)) -> FailedRow {
    let (source, reason) = match source {
        FailureSource::Tracepoint => ("tracepoint", None),
        FailureSource::Interface(reason) => ("interface", Some(reason)),
    };
    FailedRow { packets, source: source.to_owned(), reason }
}

/// State that the rows of connections are read from.
pub(super) fn connections(gateway: &Gateway) -> Source {
    let index = |state: &PortState| state.facts.as_ref().and_then(|facts| facts.index);
    let port = |state: &PortState| Some((index(state)?, state.configuration.name.clone()));
    Source {
        shared: gateway.connections(),
        obstacle: gateway.connection_obstacle(),
        rules: gateway.hooks.each_packet(),
        ports: gateway.ports.iter().filter_map(port).collect(),
        now: gateway.clock.now(),
    }
}

/// Maximum number of flows shown.
const MOST_FLOWS: usize = 1000;

/// Distribution of packets among workers.
pub(super) fn steering(gateway: &Gateway) -> Steering {
    let boards = gateway.workers.iter().enumerate();
    let boards = boards.filter_map(|(number, worker)| Some((number, worker, worker.board.as_deref()?)));
    let boards = boards.collect::<Vec<_>>();
    if boards.is_empty() {
        return Steering::default();
    }
    let now = gateway.clock.now();
    let ports = gateway.configuration.ports.iter().filter(|port| port.order != Order::Queue);
    let steered = |port: &Port| SteeredPort { port: port.name.clone(), order: port.order.word().to_owned() };
    Steering {
        ports: ports.map(steered).collect(),
        workers: boards
            .iter()
            .map(|&(number, worker, board)| steering_row(number, worker, board, now))
            .collect(),
        buckets: boards.iter().flat_map(|&(number, _, board)| bucket_rows(number, board)).collect(),
        flows: flow_rows(gateway, boards.iter().map(|&(.., board)| board.flows())),
    }
}

fn steering_row(number: usize, worker: &WorkerHandle, board: &Board, now: Nanos) -> SteeringRow {
    let (load, counters) = (board.loads[number].at(now), &worker.counters.order);
    SteeringRow {
        number,
        busy_permille: load.busy,
        pressed_permille: load.pressed,
        worked_permille: load.worked,
        packet_nanos: load.packet_nanos,
        steered: counters.steered.get(),
        steered_here: counters.steered_here.get(),
        offered: counters.given.get(),
        pulled: counters.pulled.get(),
        helped: counters.helped.get(),
        restored: counters.restored.get(),
        expired: counters.expired.get(),
        changes: counters.changes.get(),
        no_core: worker.counters.drops.get(DropReason::NoCore),
        late: worker.counters.drops.get(DropReason::LateAfterReorder),
    }
}

fn bucket_rows(receiver: usize, board: &Board) -> impl Iterator<Item = BucketRow> + '_ {
    board.buckets().map(move |bucket| BucketRow {
        receiver,
        bucket: bucket.number,
        order: bucket.order.map_or("pinned", word).to_owned(),
        home: bucket.home,
        spread: bucket.spread,
        packets: bucket.packets,
        load_permille: bucket.weight,
    })
}

fn word(order: steer::Order) -> &'static str {
    match order {
        steer::Order::Queue => "queue",
        steer::Order::Hash => "hash",
        steer::Order::Spread => "spread",
        steer::Order::Auto => "auto",
    }
}

/// Heaviest flows, summed over all workers: a spread flow has load on several.
fn flow_rows(gateway: &Gateway, flows: impl Iterator<Item = Flows>) -> Vec<FlowRow> {
    let (mut sums, mut nanos) = (HashMap::<u32, (Heavy, Option<FlowName>)>::new(), 0);
    for flows in flows {
        nanos += flows.nanos;
        for (heavy, name) in flows.heaviest {
            let (sum, known) =
                sums.entry(heavy.hash).or_insert((Heavy { hash: heavy.hash, ..Heavy::default() }, name));
            sum.weight += heavy.weight;
            sum.excess += heavy.excess;
            *known = known.or(name);
        }
    }
    let share = |part: u64| (1000 * part).checked_div(nanos).unwrap_or(0).min(1000);
    let mut sums = sums.into_values().collect::<Vec<_>>();
    sums.sort_unstable_by_key(|(heavy, _)| core::cmp::Reverse(heavy.weight));
    let row = |(heavy, name): (Heavy, Option<FlowName>)| FlowRow {
        flow: name.map_or_else(|| "?".to_owned(), |name| name.ends.to_string()),
        port: name
            .and_then(|name| gateway.configuration.name_of(name.ingress))
            .unwrap_or_default()
            .to_owned(),
        inside: name.is_some_and(|name| name.inside),
        hash: heavy.hash,
        share_permille: share(heavy.weight),
        error_permille: share(heavy.excess),
    };
    sums.into_iter().map(row).collect()
}
