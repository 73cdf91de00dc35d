//! The running gateway's state as rows of `polder show`.
//!
//! The gateway's lock is held while counters are copied; large tables are read after it is released.

mod bridges;
pub(super) mod connections;
mod queues;
mod tunnels;

use super::accounts::{Accounts, drops};
use super::gateway::{Gateway, PortState, Reloads, WorkerHandle};
use super::shared::lock;
use super::threads::{self, asleep};
use super::views;
use crate::config::model::{Configuration, Decide, OnExit, Role};
use crate::device::Link;
use crate::events::program_in_front;
use crate::kernel::hooks::Bypassed;
use crate::metrics::{GatewayState, Rows};
use crate::show::configuration::Written;
use crate::show::counters::{Bridging, Counters, Law};
use crate::show::drops::{DropRow, Drops};
use crate::show::path::{EndRow, Path, StageRow, WorkerPath};
use crate::show::ports::{BypassedRow, PortRow, SegmentRow, YieldRow};
use crate::show::routes::Routes;
use crate::show::row::Row as _;
use crate::show::workers::WorkerRow;
use crate::show::{FORMAT, Shown, View, What};
use bridges::{bridge_row, places};
use polder_datapath::counters::{Counter, QueueCounters, Stage, WorkerCounters};
use polder_datapath::drops::{DropCounters, DropReason};
use polder_datapath::forward::{BridgeCounters, FdbTime};
use polder_datapath::offload::OutletState;
use polder_datapath::scheduler::{Mode, PollMode};
use polder_datapath::units::Nanos;
use queues::{QueueQuestion, queue_drops, queues};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use tunnels::tunnels;

/// One view of the gateway, or its rows with the name, address or number `of`; at most `most` connections;
/// drops of the last `since_seconds`, or of the known history.
///
/// # Errors
/// When no row matches.
pub fn show_of(
    gateway: &Mutex<Gateway>,
    what: What,
    (of, most): (Option<&str>, Option<usize>),
    since_seconds: Option<u64>,
) -> Result<Shown, String> {
    let address = of.map(|of| of.parse::<IpAddr>());
    if let (What::Routes, Some(Ok(address))) = (what, address) {
        return route_of(gateway, address);
    }
    let mut shown = show(gateway, what, (of, most.unwrap_or(connections::MOST)));
    if let (View::Drops(drops), Some(seconds)) = (&mut shown.view, since_seconds) {
        shown.since_nanos = Some(keep_latest(&lock(gateway), drops, seconds).0);
    }
    match (&mut shown.view, of) {
        (View::Drops(drops), Some(of)) if is_port(&lock(gateway), of, drops) => {
            *drops = std::mem::take(drops).of_port(of);
        }
        (view, Some(of)) => view.select(of)?,
        (_, None) => {}
    }
    Ok(shown)
}

/// Subtracts drops that are older than `seconds`; returns the time that is covered.
fn keep_latest(gateway: &Gateway, drops: &mut Drops, seconds: u64) -> Nanos {
    let now = gateway.clock.now();
    let ago = Nanos(seconds.saturating_mul(Nanos::SECOND.0));
    let (since, before) = gateway.history.totals(now, ago);
    drops.difference(&before);
    drops.remove_zeroes();
    now.since(since)
}

/// True if `name` is a port, and neither a drop reason nor a stage.
fn is_port(gateway: &Gateway, name: &str, drops: &Drops) -> bool {
    gateway.ports.iter().any(|state| state.configuration.name == name)
        && !drops.reasons.iter().any(|row| row.reason == name || row.stage == name)
}

/// The routes that match an address.
fn route_of(gateway: &Mutex<Gateway>, address: IpAddr) -> Result<Shown, String> {
    let locked = lock(gateway);
    let routing = &locked.lasting.routing;
    let found = routing.covering(address, None);
    if found.is_empty() {
        return Err(format!("there is no route to {address}"));
    }
    let routes = Routes { routes: found, ..routing.summary(&locked.configuration) };
    let (gateway, uptime_nanos) = (locked.configuration.gateway.name.clone(), uptime(&locked).0);
    let view = View::Routes(routes);
    let (since_nanos, lost_threads) = (None, Vec::new());
    Ok(Shown { format: FORMAT, gateway, uptime_nanos, since_nanos, lost_threads, view })
}

/// One view of the gateway; `wanted` restricts connections, to a filter and a maximum number.
fn show(gateway: &Mutex<Gateway>, what: What, wanted: (Option<&str>, usize)) -> Shown {
    let mut locked = lock(gateway);
    locked.count_carried();
    // Idle workers update their counters, and devices' ones, for the next view.
    locked.wake_workers();
    let name = locked.configuration.gateway.name.clone();
    let uptime = uptime(&locked);
    let lost_threads = match what {
        What::Ports | What::Workers => locked.lost_threads(),
        What::Path | What::Tunnels | What::Routes | What::Neighbors | What::Filters | What::Flows => {
            Vec::new()
        }
        What::Drops | What::Counters | What::Steering | What::Buffers | What::Queues => Vec::new(),
        What::Config | What::Fdb | What::Connections => Vec::new(),
    };
    let view = match what {
        What::Path => View::Path(path(&locked)),
        What::Ports => View::Ports(locked.ports.iter().map(|state| port(&locked, state)).collect()),
        What::Tunnels => View::Tunnels(tunnels(&locked)),
        What::Routes => View::Routes(locked.lasting.routing.routes(&locked.configuration)),
        What::Neighbors => View::Neighbors(locked.lasting.routing.neighbours(locked.clock.now())),
        What::Filters => {
            View::Filters(locked.lasting.filters.show(&locked.configuration, &locked.worker_counters()))
        }
        What::Flows => View::Flows(views::flows(&locked)),
        What::Connections => {
            let source = views::connections(&locked);
            // Reading the rows takes long and needs no lock.
            drop(locked);
            View::Connections(source.read(wanted.0, wanted.1))
        }
        What::Drops => View::Drops(all_drops(&locked)),
        What::Counters => View::Counters(counters(&locked)),
        What::Workers => View::Workers(workers(&locked)),
        What::Steering => View::Steering(views::steering(&locked)),
        What::Buffers => View::Buffers(super::buffer_rows::buffers(&locked)),
        What::Queues => {
            let (mut rows, question) = (queues(&locked), QueueQuestion::ask(&locked));
            // Workers take a round to answer, and their answers need no lock.
            drop(locked);
            question.fill(&mut rows);
            View::Queues(rows)
        }
        What::Config => {
            let running = locked.configuration.clone();
            // Writing the text takes long and needs no lock.
            drop(locked);
            View::Config(configuration(&running))
        }
        What::Fdb => {
            let bridges = locked.configuration.bridges.iter().map(|bridge| bridge_row(bridge, &locked));
            let bridges = bridges.collect::<Vec<_>>();
            let places = places(&locked.configuration);
            let second = FdbTime::new(locked.clock.now(), 0).second;
            // Walking the tables takes long and needs no lock.
            drop(locked);
            View::Fdb(bridges.into_iter().map(|bridge| bridge.fill(&places, second)).collect())
        }
    };
    Shown { format: FORMAT, gateway: name, uptime_nanos: uptime.0, since_nanos: None, lost_threads, view }
}

/// Rows of the metrics, read under one lock.
pub(super) fn rows(gateway: &Mutex<Gateway>) -> Rows {
    let mut gateway = lock(gateway);
    gateway.count_carried();
    gateway.wake_workers();
    let gateway = &*gateway;
    let flows = views::flows(gateway);
    let bridges = gateway.configuration.bridges.iter().map(|bridge| bridge_row(bridge, gateway).row);
    let (neighbours, neighbours_known) = gateway.lasting.routing.count_neighbours();
    Rows {
        state: state(gateway),
        path: path(gateway).workers,
        ports: gateway.ports.iter().map(|state| port(gateway, state)).collect(),
        tunnels: tunnels(gateway),
        bridges: bridges.collect(),
        routes: gateway.lasting.routing.summary(&gateway.configuration),
        routing: routing(gateway),
        neighbours,
        neighbours_known,
        filters: gateway.lasting.filters.show(&gateway.configuration, &gateway.worker_counters()),
        fast_path: [flows.ports, flows.tunnels].concat(),
        carried_flows: flows.flows.len() as u64,
        connections: views::connections(gateway).totals(),
        drops: all_drops(gateway),
        counters: counters(gateway),
        workers: workers(gateway),
        steering: views::steering(gateway).workers,
        buffers: super::buffer_rows::buffers(gateway),
        queues: queues(gateway),
    }
}

fn state(gateway: &Gateway) -> GatewayState {
    let Reloads { generation, applied, refused, last_worked } = gateway.reloads;
    GatewayState {
        gateway: gateway.configuration.gateway.name.clone(),
        uptime_nanos: uptime(gateway).0,
        generation,
        reloads_applied: applied,
        reloads_refused: refused,
        last_reload_worked: last_worked,
        not_ready: gateway.not_ready(),
        lost_threads: gateway.lost_threads(),
    }
}

/// Counters of the routing stages, summed over all workers.
fn routing(gateway: &Gateway) -> Vec<(String, u64)> {
    let mut sums = BTreeMap::<&str, u64>::new();
    for worker in gateway.worker_counters() {
        worker.route.rows().for_each(|(name, _, count)| *sums.entry(name).or_default() += count);
    }
    sums.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Time since the start of the gateway.
pub(super) fn uptime(gateway: &Gateway) -> Nanos {
    gateway.clock.elapsed()
}

fn path(gateway: &Gateway) -> Path {
    let queues = gateway.queue_counters();
    let workers = gateway.worker_counters();
    let all = workers.iter().map(AsRef::as_ref).collect::<Vec<&WorkerCounters>>();
    let uptime = uptime(gateway);
    let times = threads::times("worker-");
    let times = |number| times.get(&format!("worker-{number}"));
    let has_rules = !gateway.configuration.filters.is_empty();
    let stages = |workers: &[&WorkerCounters], queues: &[Arc<QueueCounters>]| {
        let mut rows = stages(workers, queues);
        // Without rules the filter stage is not shown.
        rows.retain(|row| row.stage != Stage::Filter.name() || row.packets > 0 || has_rules);
        rows
    };
    let of_worker = |(number, worker): (usize, &Arc<WorkerCounters>)| WorkerPath {
        number,
        elapsed_nanos: uptime.0,
        slept_nanos: asleep(times(number), uptime, Nanos(worker.slept_nanos.get())).0,
        waited_nanos: times(number).map(|times| times.waiting.0),
        stages: stages(&[worker.as_ref()], &[]),
    };
    Path {
        stages: stages(&all, &queues),
        ends: gateway.ports.iter().map(end).collect(),
        carried: gateway.ports.iter().map(|state| state.carried.received.get()).sum(),
        law: law(gateway),
        workers: workers.iter().enumerate().take(gateway.workers.len()).map(of_worker).collect(),
    }
}

fn stages(workers: &[&WorkerCounters], queues: &[Arc<QueueCounters>]) -> Vec<StageRow> {
    let row = |&stage: &Stage| {
        let sum = |counter: fn(&polder_datapath::counters::StageCounters) -> &Counter| {
            workers.iter().map(|worker| counter(worker.stage(stage)).get()).sum()
        };
        let of_stage = DropReason::ALL.iter().filter(|reason| reason.stage() == stage.name());
        let drops = of_stage.filter_map(|&reason| {
            let ended = workers.iter().map(|worker| worker.drops.get(reason)).sum::<u64>();
            let refused = queues.iter().map(|queue| queue.drops.get(reason)).sum::<u64>();
            (ended + refused > 0).then(|| (reason.name().to_owned(), ended + refused))
        });
        StageRow {
            stage: stage.name().to_owned(),
            packets: sum(|counters| &counters.packets),
            batches: sum(|counters| &counters.batches),
            timed_packets: sum(|counters| &counters.timed_packets),
            timed_nanos: sum(|counters| &counters.timed_nanos),
            drops: drops.collect(),
            ..StageRow::default()
        }
        .finish()
    };
    Stage::ALL.iter().map(row).collect()
}

fn sum(state: &PortState, counter: impl Fn(&QueueCounters) -> &Counter) -> u64 {
    state.counters.iter().map(|queue| counter(queue).get()).sum()
}

fn end(state: &PortState) -> EndRow {
    EndRow {
        port: state.configuration.name.clone(),
        received: sum(state, |queue| &queue.received),
        transmitted: sum(state, |queue| &queue.transmitted),
    }
}

fn law(gateway: &Gateway) -> Law {
    let accounts = gateway.accounts();
    let unaccounted = accounts.unaccounted();
    let Accounts { received, generated, cloned, split, transmitted, delivered, dropped, merged, held } =
        accounts;
    Law { received, generated, cloned, split, transmitted, delivered, dropped, merged, held, unaccounted }
}

fn counters(gateway: &Gateway) -> Counters {
    let (workers, queues) = (gateway.worker_counters(), gateway.queue_counters());
    let count = |&reason: &DropReason| {
        let packets = drops(&workers, &queues, reason);
        (packets > 0).then(|| (reason.name().to_owned(), packets))
    };
    let drops = DropReason::ALL.iter().filter_map(count).collect();
    Counters { law: law(gateway), drops, bridging: bridging(gateway) }
}

fn bridging(gateway: &Gateway) -> Bridging {
    let mut sum = Bridging::default();
    for counters in gateway.bridge_counters() {
        let BridgeCounters { learned, moved, pinned, limited, learn_failures, flooded, .. } = counters;
        sum.learned += learned.get();
        sum.moved += moved.get();
        sum.pinned += pinned.get();
        sum.limited += limited.get();
        sum.learn_failures += learn_failures.get();
        sum.flooded += flooded.get();
        sum.own_addresses += counters.own_addresses.count.get();
        sum.looped += counters.looped.count.get();
    }
    let fdbs = &gateway.lasting.fdbs;
    let members = gateway.configuration.bridges.iter().flat_map(|bridge| {
        bridge.members.iter().filter_map(|member| Some(fdbs.get(&bridge.name)?.port(member.port)))
    });
    sum.evicted = members.map(|member| member.evicted).sum();
    sum
}

fn segments(outlet: &OutletState) -> SegmentRow {
    SegmentRow {
        merged: outlet.total(|counters| &counters.merged),
        merged_into: outlet.total(|counters| &counters.merged_into),
        cut: outlet.total(|counters| &counters.cut),
        segments: outlet.total(|counters| &counters.segments),
    }
}

#[expect(clippy::too_many_lines, reason = "a line for each field")]
fn port(gateway: &Gateway, state: &PortState) -> PortRow {
    let facts = state.facts.as_ref();
    let configuration = &state.configuration;
    let interface = configuration.device.name();
    let mut drops = BTreeMap::new();
    for queue in &state.counters {
        add_drops(&mut drops, &queue.drops);
    }
    for reason in [DropReason::QueueFull, DropReason::QueueDelay] {
        let packets = queue_drops(state, reason);
        if packets > 0 {
            drops.insert(reason.name().to_owned(), packets);
        }
    }
    let yielding = gateway.hooks.yielding(&configuration.name, gateway.clock.now());
    let is_kernels = configuration.role == Role::Router && configuration.decide == Decide::Kernel;
    let bridge = gateway.configuration.bridge_of(configuration.id);
    let fdb = bridge.and_then(|bridge| gateway.lasting.fdbs.get(&bridge.name));
    let members = bridge.into_iter().flat_map(|bridge| &bridge.members);
    PortRow {
        name: configuration.name.clone(),
        interface: facts.map_or(interface, |facts| facts.interface.clone()),
        kind: configuration.device.capabilities().word.to_owned(),
        role: configuration.role_word().to_owned(),
        on_exit: match configuration.on_exit {
            OnExit::Kernel => "kernel".to_owned(),
            OnExit::Drop => "drop".to_owned(),
        },
        open: state.open,
        state: state.word().to_owned(),
        carrier: state.link.filter(|_| state.open).map(|link| link == Link::Up),
        trouble: state.trouble.clone(),
        mode: facts.map(|facts| facts.mode.clone()),
        mode_reason: facts.and_then(|facts| facts.mode_reason.as_deref()).map(str::to_owned),
        qdisc: facts.and_then(|facts| facts.shaper.as_deref()).map(str::to_owned),
        queues: facts.map(|facts| facts.queues),
        weight: configuration.weight,
        mtu: facts.map(|facts| facts.mtu),
        learned: fdb.map(|fdb| fdb.port(configuration.id).learned),
        fdb_max_learned: members
            .filter(|member| member.port == configuration.id)
            .find_map(|member| member.fdb_max_learned),
        mac: facts.map(|facts| facts.mac.to_string()),
        router_mac: gateway.lasting.routing.station(configuration.id).map(|mac| mac.to_string()),
        openings: state.openings,
        received: sum(state, |queue| &queue.received),
        received_bytes: sum(state, |queue| &queue.received_bytes),
        transmitted: sum(state, |queue| &queue.transmitted),
        transmitted_bytes: sum(state, |queue| &queue.transmitted_bytes),
        link_dropped: state.handle().and_then(|handle| handle.link_dropped()),
        in_flight: sum(state, |queue| &queue.in_flight),
        worked_nanos: sum(state, |queue| &queue.worked_nanos),
        partial_checksums: sum(state, |queue| &queue.partial_checksums),
        system_calls: sum(state, |queue| &queue.system_calls),
        segments: gateway
            .lasting
            .outlets
            .get(&configuration.name)
            .map(|outlet| segments(outlet))
            .unwrap_or_default(),
        drops,
        findings: findings(state),
        bypassed: gateway.hooks.of(&configuration.name).into_iter().map(bypassed).collect(),
        decide: (configuration.role == Role::Router)
            .then(|| if is_kernels { "kernel" } else { "router" }.to_owned()),
        decide_reason: gateway.configuration.decided.clone().filter(|_| is_kernels),
        obstacle: is_kernels.then(|| gateway.connection_obstacle()).flatten(),
        left_to_kernel: yielding.since.map(|since| YieldRow { hooks: yielding.hooks, nanos: since.0 }),
        yields: yielding.times,
        yielded_nanos: yielding.total.0,
        adapter: state.handle().and_then(|handle| handle.adapter_row()),
        modem: state.handle().and_then(|handle| handle.modem_row()),
        nic: state.handle().and_then(|handle| handle.nic_row()),
    }
}

fn add_drops(sums: &mut BTreeMap<String, u64>, counters: &DropCounters) {
    for (reason, packets) in counters.occurred() {
        *sums.entry(reason.name().to_owned()).or_default() += packets;
    }
}

fn bypassed((bypassed, appeared): (Bypassed, bool)) -> BypassedRow {
    let Bypassed { by, name, effect, .. } = bypassed;
    BypassedRow { by, name, effect, appeared }
}

/// Findings of the last opening of a port that need a remedy.
fn findings(state: &PortState) -> Vec<String> {
    let findings = state.handle().map(|handle| handle.findings()).unwrap_or_default();
    let in_front = state.program_in_front.as_deref().map(program_in_front);
    findings.into_iter().chain(state.refusals.iter().cloned()).chain(in_front).collect()
}

/// Drops since the start.
pub(super) fn all_drops(gateway: &Gateway) -> Drops {
    let workers = gateway.worker_counters();
    let row = |&reason: &DropReason| {
        let workers = workers.iter().map(|worker| worker.drops.get(reason)).collect::<Vec<_>>();
        let refused =
            |state: &PortState| state.counters.iter().map(|queue| queue.drops.get(reason)).sum::<u64>();
        let queued = |state: &PortState| queue_drops(state, reason);
        let ports = gateway
            .ports
            .iter()
            .map(|state| (state.configuration.name.clone(), refused(state) + queued(state)));
        let ports = ports.filter(|(_, packets)| *packets > 0).collect();
        let packets = drops(&gateway.worker_counters(), &gateway.queue_counters(), reason);
        (packets > 0).then(|| DropRow { packets, ports, workers, ..DropRow::new(reason) })
    };
    Drops { reasons: DropReason::ALL.iter().filter_map(row).collect(), ..Drops::default() }
}

/// Packets that the queue of a port has dropped for `reason`.
fn workers(gateway: &Gateway) -> Vec<WorkerRow> {
    let uptime = uptime(gateway);
    let times = threads::times("worker-");
    let mut confined = super::confined::threads("worker-");
    let row = |(number, worker): (usize, &WorkerHandle)| {
        let counters = &worker.counters;
        let receive = counters.stage(Stage::Receive);
        let times = times.get(&format!("worker-{number}"));
        let mode = Mode::of(counters.mode.get());
        WorkerRow {
            number,
            cpu: worker.cpu,
            elapsed_nanos: uptime.0,
            slept_nanos: asleep(times, uptime, Nanos(counters.slept_nanos.get())).0,
            cpu_nanos: times.map(|times| times.on_cpu.0),
            waited_nanos: times.map(|times| times.waiting.0),
            received: receive.packets.get(),
            batches: receive.batches.get(),
            polls: counters.polls.get(),
            empty_polls: counters.empty_polls.get(),
            sleeps: counters.sleeps.get(),
            wakeups: counters.wakeups.get(),
            mode: mode.name().to_owned(),
            budget: counters.budget.get(),
            moderation_nanos: if mode == Mode::Throttled { PollMode::THROTTLE.0 } else { 0 },
            share_nanos: counters.share_nanos.get(),
            handed_over: counters.handed_over.get(),
            taken_over: counters.taken_over.get(),
            dropped: counters.drops.total(),
            cached_frames: counters.cached_frames.get(),
            pool_exhausted: counters.pool_exhausted.get(),
            confined: confined.remove(&format!("worker-{number}")).unwrap_or_default(),
        }
    };
    gateway.workers.iter().enumerate().map(row).collect()
}

fn configuration(configuration: &Configuration) -> Written {
    let values = serde_json::to_value(configuration).unwrap_or_default();
    Written { toml: configuration.to_toml(), values }
}
