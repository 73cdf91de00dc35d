//! Threads that receive the kernel's change notices and make ports yield at once, before the change is
//! examined.
//!
//! They have real-time priority where the kernel permits. One thread is not pinned; each of the others is
//! pinned to a CPU. A process that makes a change runs on one of these CPUs: the pinned thread is ready
//! before the kernel answers the request and preempts the process, so no packet passes after the command has
//! returned. An unpinned thread can be later when all cores are busy in the kernel.

use super::watch::Shared;
use super::yields::Words;
use crate::clock::monotonic;
use crate::kernel::hooks::{AffectedObjects, Noticed, Subscription, ThreadPriority, Unannounced, run_first};
use crate::supervise::{Loss, Thread, Threads};
use polder_devices::checks::Check;
use polder_devices::skb::connections::{ConnectionTable, HEARTBEAT};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;

/// Heartbeat value that stops all connections from being carried.
const NEVER: u64 = 0;
/// Interval of the heartbeats while the table is empty, in nanoseconds.
const IDLE: u32 = 500_000_000;
/// Interval of the checks for hooks without notices, in nanoseconds.
const SILENT: u64 = 40_000_000;

/// Starts the listening threads: one unpinned, and one for each CPU of `cpus`.
pub(super) fn start(
    threads: &Threads,
    shared: &Arc<Shared>,
    cpus: &[usize],
) -> std::io::Result<Vec<Thread<()>>> {
    let (subscription, listens) = (Subscription::open()?, Arc::clone(shared));
    let anywhere = threads.spawn("kernel-notices", Loss::Repaired, move || listen(&listens, subscription))?;
    let mut listeners = vec![anywhere];
    for (place, &cpu) in cpus.iter().enumerate() {
        let (subscription, listens) = (Subscription::open()?, Arc::clone(shared));
        let listen = move || listen_at(&listens, subscription, place + 1, cpu);
        listeners.push(threads.spawn(&format!("notices-{cpu}"), Loss::Repaired, listen)?);
    }
    Ok(listeners)
}

/// CPUs with a pinned thread: the first [`MOST_CPUS`] on which this process may run.
pub(super) fn cpus() -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).take(MOST_CPUS).collect()
}

/// Maximum number of CPUs with a pinned thread.
const MOST_CPUS: usize = 16;

/// Listens until the watch ends, and sends heartbeats that confirm that all notices were read.
fn listen(shared: &Shared, mut subscription: Subscription) {
    match run_first() {
        ThreadPriority::RealTime => {
            tracing::debug!("thread kernel-notices has priority over all ordinary threads (SCHED_FIFO)")
        }
        ThreadPriority::Nice => {
            tracing::info!("thread kernel-notices runs at nice -20: the system does not permit SCHED_FIFO")
        }
        ThreadPriority::Ordinary => tracing::warn!(
            "thread kernel-notices has no priority, so a busy core delays it: grant CAP_SYS_NICE"
        ),
    }
    let mut known = shared.yields.words();
    let (mut unannounced, mut looked) = (Unannounced::default(), 0);
    while wait((shared, ANYWHERE), &subscription, known.connections.as_deref()) {
        // Notices that arrive while others are read are covered by the next heartbeat.
        let before = monotonic();
        let is_deaf = hear((shared, ANYWHERE), &mut subscription, &mut known);
        let Some(connections) = known.connections.clone() else { continue };
        if before.saturating_sub(looked) >= SILENT {
            looked = before;
            if unannounced.has_changed(&known.interfaces) {
                let hook = Noticed { any: true, hook: true, ..Noticed::default() };
                shared.yields.notice(hook, &mut known);
                shared.wake();
            }
        }
        let is_clear = shared.yields.is_clear() || !Check::ConnectionClear.is_made();
        connections.beat(if is_clear && !is_deaf { before } else { NEVER });
    }
}

/// Listens on one CPU until the watch ends. `number` is the thread's number.
fn listen_at(shared: &Shared, mut subscription: Subscription, number: usize, cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    // A thread that cannot be pinned still works.
    let _: Result<(), rustix::io::Errno> = sched_setaffinity(None, &cpus);
    run_first();
    let mut known = shared.yields.words();
    while wait((shared, number), &subscription, None) {
        hear((shared, number), &mut subscription, &mut known);
    }
}

/// Reads notices and acts on them; returns true if the kernel refuses notices that connections need.
fn hear((shared, number): (&Shared, usize), subscription: &mut Subscription, known: &mut Arc<Words>) -> bool {
    // Cleared first, so that later changes of the ports are seen next time.
    let _: Result<usize, rustix::io::Errno> = rustix::io::read(&shared.renewed[number], &mut [0; 8]);
    shared.yields.refresh(known);
    let is_deaf = known.connections.is_some() && begins_to_hear(subscription, shared, known);
    let noticed = subscription.read(|interface| known.is_port(interface));
    if noticed.hook || noticed.route || noticed.evidence {
        shared.yields.notice(noticed, known);
    }
    if let Some(connections) = known.connections.as_ref().filter(|_| !noticed.changes_evidence()) {
        subscription.affected().iter().for_each(|affected| apply_affected(connections, *affected));
    }
    if noticed.any {
        shared.wake();
    }
    is_deaf
}

/// Closes the connections that a change affects.
fn apply_affected(connections: &ConnectionTable, affected: AffectedObjects) {
    match affected {
        AffectedObjects::Network(..) if !Check::ConnectionRoute.is_made() => {}
        AffectedObjects::Neighbour(_) if !Check::ConnectionNeighbour.is_made() => {}
        AffectedObjects::Network(address, bits) => connections.route_changed((address, bits)),
        AffectedObjects::Neighbour(address) => connections.neighbour_changed(address),
    }
}

/// Subscribes to all notices that connections depend on; returns true if the kernel refuses. The subscription
/// counts as a change, because earlier changes were not seen.
fn begins_to_hear(subscription: &mut Subscription, shared: &Shared, known: &mut Arc<Words>) -> bool {
    match subscription.hear_evidence() {
        Ok(false) => false,
        Ok(true) => {
            let unknown = Noticed { evidence: true, ..Noticed::default() };
            shared.yields.notice(unknown, known);
            false
        }
        Err(error) => {
            tracing::error!(%error, "the kernel does not report links and neighbours, so no connection is \
                                     carried");
            true
        }
    }
}

/// Time until the next heartbeat: connections are carried only for a limited time after a heartbeat.
fn pause(connections: &ConnectionTable) -> Timespec {
    let nanos = if connections.has_entries() { HEARTBEAT.subsec_nanos() / 3 } else { IDLE };
    Timespec { tv_sec: 0, tv_nsec: nanos.into() }
}

/// Waits for notices, or until a heartbeat for `beats` is due; returns false at the end.
fn wait(
    (shared, number): (&Shared, usize),
    subscription: &Subscription,
    beats: Option<&ConnectionTable>,
) -> bool {
    let mut files =
        vec![PollFd::new(&shared.end, PollFlags::IN), PollFd::new(&shared.renewed[number], PollFlags::IN)];
    files.extend(beats.map(|connections| PollFd::new(connections.begins(), PollFlags::IN)));
    files.extend(subscription.sockets().map(|socket| PollFd::new(socket, PollFlags::IN)));
    // After EINTR the reads find nothing.
    let _: Result<usize, rustix::io::Errno> = poll(&mut files, beats.map(pause).as_ref());
    files.first().is_some_and(|end| end.revents().is_empty())
}

/// Number of the unpinned thread.
const ANYWHERE: usize = 0;
