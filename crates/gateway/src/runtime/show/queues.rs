//! Rows of `polder show queues`.
//!
//! Numbers come from the counters of the queues, flows and hosts from the workers, which are asked.

use super::super::gateway::{Gateway, PortState, QueueState};
use super::super::worker::{Command, QueueContents};
use crate::config::model::PortQueue;
use crate::show::queues::{QueueRow, QueuedFlowRow, QueuedHostRow, TinRow, WaitRow};
use polder_buffers::PortId;
use polder_datapath::queue::report::{FlowReport, HostReport};
use polder_datapath::queue::{TIN_NAMES, TinCounters, TinsCounters};
use polder_datapath::steer::FlowName;
use polder_datapath::units::Nanos;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// Rows of the queues of all ports.
pub(in crate::runtime) fn queues(gateway: &Gateway) -> Vec<QueueRow> {
    gateway.ports.iter().flat_map(|port| port.queues.iter().filter_map(|queue| row(port, queue))).collect()
}

fn row(port: &PortState, QueueState { worker, counters, .. }: &QueueState) -> Option<QueueRow> {
    let configured = port.configuration.queue?;
    Some(QueueRow {
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
    })
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

/// Asks workers for the flows and hosts that wait in front of ports.
pub(super) struct QueueQuestion {
    answers: Receiver<QueueContents>,
    asked: usize,
    /// Ports with tins.
    with_tins: Vec<PortId>,
    ports: Vec<(PortId, String)>,
}

impl QueueQuestion {
    /// Asks the workers of all queues that tell flows apart.
    pub(super) fn ask(gateway: &Gateway) -> Self {
        let queues = gateway.ports.iter().filter_map(|port| Some((port, port.configuration.queue?)));
        let queues = queues.filter(|(_, queue)| queue.has_flows()).collect::<Vec<_>>();
        let most = queues.iter().map(|(port, _)| port.queues.len()).sum::<usize>();
        let (sender, answers) = sync_channel(most.max(1));
        let mut asked = 0;
        for (port, state) in
            queues.iter().flat_map(|(port, _)| port.queues.iter().map(move |state| (port, state)))
        {
            if let Some(worker) = gateway.workers.get(state.worker).filter(|_| state.options.is_some()) {
                worker.send(Command::ReportQueue(port.configuration.id, sender.clone()));
                asked += 1;
            }
        }
        let with_tins = queues.iter().filter(|(_, queue)| queue.has_tins());
        Self {
            answers,
            asked,
            with_tins: with_tins.map(|(port, _)| port.configuration.id).collect(),
            ports: queues
                .iter()
                .map(|(port, _)| (port.configuration.id, port.configuration.name.clone()))
                .collect(),
        }
    }

    /// Adds the answers to the rows; waits at most [`ANSWER`] for each worker, and leaves out what is missing.
    pub(super) fn fill(self, rows: &mut [QueueRow]) {
        for _ in 0..self.asked {
            let Ok(contents) = self.answers.recv_timeout(ANSWER) else { return };
            let name = self.ports.iter().find(|(port, _)| *port == contents.port).map(|(_, name)| name);
            let is_row = |row: &&mut QueueRow| row.worker == contents.worker && Some(&row.port) == name;
            let Some(row) = rows.iter_mut().find(is_row) else { continue };
            let has_tins = self.with_tins.contains(&contents.port);
            let tin = |tin: usize| TIN_NAMES.get(tin).filter(|_| has_tins).map(|name| (*name).to_owned());
            row.flows = contents.report.flows.iter().map(|flow| waiting_flow(flow, tin(flow.tin))).collect();
            row.hosts = contents.report.hosts.iter().map(|host| waiting_host(host, tin(host.tin))).collect();
        }
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
