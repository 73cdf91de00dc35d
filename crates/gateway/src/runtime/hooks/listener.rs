//! The threads that hear of changes in the kernel, and leave the packets of ports to it before anything is known of them.
//!
//! They run before all ordinary threads where the kernel lets them. One runs anywhere; each of the others is bound to a CPU. The
//! process that makes a change runs on one of these CPUs: the thread there is ready before the kernel has answered the request, so
//! it runs before that process does, and no packet passes after the command has returned. Where all cores are busy in the kernel,
//! a thread that may run anywhere can be later than that.

use super::watch::Shared;
use super::yields::Words;
use crate::clock::monotonic;
use crate::kernel::hooks::{Noticed, Precedence, Subscription, Touched, Unannounced, run_first};
use crate::supervise::{Loss, Thread, Threads};
use polder_devices::checks::Check;
use polder_devices::skb::connections::{ConnectionTable, HEARTBEAT};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;

/// Heartbeat that no connection is carried by.
const NEVER: u64 = 0;
/// Nanoseconds between looks at a table without connections.
const IDLE: u32 = 500_000_000;
/// Nanoseconds between looks for hooks of which the kernel tells nobody.
const SILENT: u64 = 40_000_000;

/// Starts the threads that hear of changes: one for all CPUs, and one for each of these.
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

/// CPUs that have a thread of their own: the first ones on which this process may run.
pub(super) fn cpus() -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).take(MOST_CPUS).collect()
}

/// CPUs that have a thread at most.
const MOST_CPUS: usize = 16;

/// Listens until the watch is over, and says by heartbeats that all notices are heard.
fn listen(shared: &Shared, mut subscription: Subscription) {
    match run_first() {
        Precedence::RealTime => {
            tracing::debug!("kernel-notices runs before all ordinary threads (SCHED_FIFO)")
        }
        Precedence::Nice => {
            tracing::info!("kernel-notices runs at nice -20: the system permits no SCHED_FIFO")
        }
        Precedence::Ordinary => tracing::warn!(
            "kernel-notices runs as an ordinary thread, so that a busy core delays what it has to do: grant CAP_SYS_NICE"
        ),
    }
    let mut known = shared.yields.words();
    let (mut unannounced, mut looked) = (Unannounced::default(), 0);
    while wait((shared, ANYWHERE), &subscription, known.connections.as_deref()) {
        // Notices that come while others are read are heard by the next heartbeat.
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

/// Listens on one CPU until the watch is over. `number` is that of the thread.
fn listen_at(shared: &Shared, mut subscription: Subscription, number: usize, cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    // One that may run anywhere does no harm.
    let _: Result<(), rustix::io::Errno> = sched_setaffinity(None, &cpus);
    run_first();
    let mut known = shared.yields.words();
    while wait((shared, number), &subscription, None) {
        hear((shared, number), &mut subscription, &mut known);
    }
}

/// Reads what has come, and acts on it; returns true if the kernel does not tell all that connections depend on.
fn hear((shared, number): (&Shared, usize), subscription: &mut Subscription, known: &mut Arc<Words>) -> bool {
    // Emptied first: ports that change from here on are seen the next time.
    let _: Result<usize, rustix::io::Errno> = rustix::io::read(&shared.renewed[number], &mut [0; 8]);
    shared.yields.refresh(known);
    let is_deaf = known.connections.is_some() && begins_to_hear(subscription, shared, known);
    let noticed = subscription.read(|interface| known.is_port(interface));
    if noticed.hook || noticed.route || noticed.evidence {
        shared.yields.notice(noticed, known);
    }
    if let Some(connections) = known.connections.as_ref().filter(|_| !noticed.changes_evidence()) {
        subscription.touched().iter().for_each(|touched| touch(connections, *touched));
    }
    if noticed.any {
        shared.wake();
    }
    is_deaf
}

/// Closes the connections that a change touches.
fn touch(connections: &ConnectionTable, touched: Touched) {
    match touched {
        Touched::Network(..) if !Check::ConnectionRoute.is_made() => {}
        Touched::Neighbour(_) if !Check::ConnectionNeighbour.is_made() => {}
        Touched::Network(address, bits) => connections.route_changed((address, bits)),
        Touched::Neighbour(address) => connections.neighbour_changed(address),
    }
}

/// Hears of all that connections depend on; returns true if the kernel refuses. What changed before counts as a change.
fn begins_to_hear(subscription: &mut Subscription, shared: &Shared, known: &mut Arc<Words>) -> bool {
    match subscription.hear_evidence() {
        Ok(false) => false,
        Ok(true) => {
            let unknown = Noticed { evidence: true, ..Noticed::default() };
            shared.yields.notice(unknown, known);
            false
        }
        Err(error) => {
            tracing::error!(%error, "the kernel tells nothing of links and neighbours, so no connection is carried");
            true
        }
    }
}

/// Time until the next heartbeat is due: connections are carried for no longer than a bounded time after the last one.
fn pause(connections: &ConnectionTable) -> Timespec {
    let nanos = if connections.has_entries() { HEARTBEAT.subsec_nanos() / 3 } else { IDLE };
    Timespec { tv_sec: 0, tv_nsec: nanos.into() }
}

/// Waits for notices, or until a heartbeat is due for these connections; false at the end.
fn wait(
    (shared, number): (&Shared, usize),
    subscription: &Subscription,
    beats: Option<&ConnectionTable>,
) -> bool {
    let mut files =
        vec![PollFd::new(&shared.end, PollFlags::IN), PollFd::new(&shared.renewed[number], PollFlags::IN)];
    files.extend(beats.map(|connections| PollFd::new(connections.begins(), PollFlags::IN)));
    files.extend(subscription.sockets().map(|socket| PollFd::new(socket, PollFlags::IN)));
    // An interrupted wait ends early; reading finds nothing then.
    let _: Result<usize, rustix::io::Errno> = poll(&mut files, beats.map(pause).as_ref());
    files.first().is_some_and(|end| end.revents().is_empty())
}

/// Number of the thread that may run on any CPU.
const ANYWHERE: usize = 0;
