//! Rows of `polder show queues`.
//!
//! Numbers come from the counters of the queues, flows and hosts from the workers, which are asked.

use super::super::gateway::{Gateway, PortState, QueueState};
use super::super::worker::{Command, QueueContents};
use crate::config::model::PortQueue;
use crate::show::queues::{QueueRow, QueuedFlowRow, QueuedHostRow, TinRow, WaitRow};
use polder_buffers::PortId;
use polder_datapath::drops::DropReason;
use polder_datapath::queue::report::{FlowReport, HostReport};
use polder_datapath::queue::{TIN_NAMES, TinCounters, TinsCounters};
use polder_datapath::steer::FlowName;
use polder_datapath::units::Nanos;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// Ways of a queue: of packets that leave by the port, and of packets that come in by it.
const UP: &str = "up";
const DOWN: &str = "down";

/// Rows of the queues of all ports.
pub(in crate::runtime) fn queues(gateway: &Gateway) -> Vec<QueueRow> {
    let of = |port: &PortState| {
        let of_way = |way: &'static str, configured: Option<PortQueue>, queues: &[QueueState]| {
            let rows = configured
                .map(|configured| queues.iter().map(move |queue| row(port, queue, way, configured)));
            rows.into_iter().flatten().collect::<Vec<_>>()
        };
        let up = of_way(UP, port.configuration.way_out(), &port.queues);
        [up, of_way(DOWN, port.configuration.way_in(), &port.inlets)].concat()
    };
    gateway.ports.iter().flat_map(of).collect()
}

fn row(
    port: &PortState,
    QueueState { worker, counters, .. }: &QueueState,
    way: &str,
    configured: PortQueue,
) -> QueueRow {
    QueueRow {
        way: way.to_owned(),
        port: port.configuration.name.clone(),
        worker: *worker,
        kind: configured.kind.word().to_owned(),
        limit_bytes: u64::from(configured.limit_bytes),
        limit_packets: configured.limit_packets(),
        rate_kbit: configured.rate_kbit.map(u64::from),
        entered: counters.entered.get(),
        left: counters.left.get(),
        left_bytes: counters.left_bytes.get(),
        dropped_full: counters.full.get(),
        dropped_delay: counters.delay.get(),
        marked: counters.marked.get(),
        flows_new: counters.flows_new.get(),
        flows_old: counters.flows_old.get(),
        flows_started: counters.flows_started.get(),
        waiting: counters.waiting.get(),
        waiting_bytes: counters.waiting_bytes.get(),
        wait_nanos: counters.wait_nanos.get(),
        waited_nanos: counters.waits.nanos.get(),
        waits: counters.waits.classes().map(wait_row).collect(),
        tins: tins(&configured, &counters.tins),
        flows: Vec::new(),
        hosts: Vec::new(),
    }
}

/// Rows of the tins of a queue; none if it tells no classes of traffic apart.
fn tins(configured: &PortQueue, counters: &TinsCounters) -> Vec<TinRow> {
    let row = |(name, tin): (&&str, &TinCounters)| TinRow {
        tin: (*name).to_owned(),
        entered: tin.entered.get(),
        left: tin.left.get(),
        left_bytes: tin.left_bytes.get(),
        dropped_full: tin.full.get(),
        dropped_delay: tin.delay.get(),
        marked: tin.marked.get(),
        waiting: tin.waiting.get(),
        waiting_bytes: tin.waiting_bytes.get(),
        wait_nanos: tin.wait_nanos.get(),
    };
    if configured.has_tins() { TIN_NAMES.iter().zip(counters).map(row).collect() } else { Vec::new() }
}

/// Question to workers for the flows and hosts that wait in queues.
pub(super) struct QueueQuestion {
    answers: Receiver<QueueContents>,
    /// Names of the ports in question.
    names: Vec<(PortId, String)>,
}

impl QueueQuestion {
    /// Asks the workers of all queues.
    pub(super) fn ask(gateway: &Gateway) -> Self {
        let ports = gateway.ports.iter().filter(|port| port.open).collect::<Vec<_>>();
        let most = ports.iter().map(|port| port.queues.len() + port.inlets.len()).sum::<usize>();
        // A worker answers for each of its queues of a port.
        let (sender, answers) = sync_channel(2 * most + 1);
        for port in &ports {
            let states = port.queues.iter().chain(&port.inlets).filter(|state| state.options.is_some());
            let numbers = states.map(|state| state.worker).collect::<BTreeSet<_>>();
            for worker in numbers.into_iter().filter_map(|number| gateway.workers.get(number)) {
                worker.send(Command::ReportQueue(port.configuration.id, sender.clone()));
            }
        }
        let name = |port: &&PortState| (port.configuration.id, port.configuration.name.clone());
        Self { answers, names: ports.iter().map(name).collect() }
    }

    /// Adds the answers to the rows, until all workers have answered or one takes longer than [`ANSWER`].
    pub(super) fn fill(self, rows: &mut [QueueRow]) {
        while let Ok(contents) = self.answers.recv_timeout(ANSWER) {
            let QueueContents { port, worker, is_inlet, report } = contents;
            let name = self.names.iter().find(|(known, _)| *known == port).map(|(_, name)| name);
            let is_row = |row: &&mut QueueRow| {
                row.worker == worker && Some(&row.port) == name && (row.way == DOWN) == is_inlet
            };
            let Some(row) = rows.iter_mut().find(is_row) else { continue };
            let has_tins = !row.tins.is_empty();
            let tin = |tin: usize| TIN_NAMES.get(tin).filter(|_| has_tins).map(|name| (*name).to_owned());
            row.flows = report.flows.iter().map(|flow| waiting_flow(flow, tin(flow.tin))).collect();
            row.hosts = report.hosts.iter().map(|host| waiting_host(host, tin(host.tin))).collect();
        }
    }
}

/// Drops for a reason by the queues of a port.
pub(super) fn queue_drops(state: &PortState, reason: DropReason) -> u64 {
    let queues = || state.queues.iter().chain(&state.inlets);
    if reason == DropReason::QueueFull {
        queues().map(|queue| queue.counters.full.get()).sum()
    } else if reason == DropReason::QueueDelay {
        queues().map(|queue| queue.counters.delay.get()).sum()
    } else {
        0
    }
}

/// Maximum time to wait for the answer of a worker.
const ANSWER: Duration = Duration::from_millis(200);

fn waiting_flow(flow: &FlowReport, tin: Option<String>) -> QueuedFlowRow {
    let FlowReport { name, bytes, wait, is_new, .. } = flow;
    let text = |name: &FlowName| {
        let inside = if name.inside { " in a tunnel" } else { "" };
        format!("{}{inside}", name.ends)
    };
    QueuedFlowRow {
        flow: name.as_ref().map_or_else(|| MALFORMED.to_owned(), text),
        tin,
        list: if *is_new { "new" } else { "old" }.to_owned(),
        bytes: (*bytes).into(),
        wait_nanos: wait.0,
    }
}

fn waiting_host(host: &HostReport, tin: Option<String>) -> QueuedHostRow {
    let HostReport { address, is_source, bytes, flows, .. } = host;
    QueuedHostRow {
        host: address.map_or_else(|| MALFORMED.to_owned(), |address| address.to_string()),
        role: if *is_source { "source" } else { "destination" }.to_owned(),
        tin,
        bytes: (*bytes).into(),
        flows: (*flows).into(),
    }
}

/// Name of a flow or host whose packet cannot be read.
const MALFORMED: &str = "malformed";

fn wait_row((longest, packets): (Option<Nanos>, u64)) -> WaitRow {
    WaitRow { longest_nanos: longest.map(|longest| longest.0), packets }
}
