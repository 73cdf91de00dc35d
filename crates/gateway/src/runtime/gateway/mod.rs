//! The control thread's side: ports, workers and tables, and what changes them.
//!
//! `start` brings it up, `upkeep` looks after it, `reload` changes it; `port`, `share` and `staff`, which is
//! its workers, are what these have in common.

mod added;
mod fast_path;
mod flow_grounds;
mod port;
mod punts;
mod reload;
mod reopen;
mod routes;
mod share;
mod start;
mod taps;
mod tunnels;
mod upgrade;
mod upkeep;
mod worker_lifecycle;

pub use super::devices::Opener;
pub use added::{AddedPort, AddedPorts, OfPattern};
pub(in crate::runtime) use fast_path::{FailureSource, FilteredPorts, obstacle, tunnel_obstacle};
pub use port::{PortState, QueueState};
pub use reload::Plan;
pub use share::{Share, meshes, share};

use self::fast_path::FlowUpkeep;
use self::punts::PuntWatch;
use super::accounts::Accounts;
use super::connections::Followed;
use super::devices::Devices;
use super::events::EventWatch;
use super::history::DropHistory;
use super::hooks::Watch;
use super::hops::NextHops;
use super::liveness::Liveness;
use super::memory::Memory;
use super::path::Paths;
use super::routing::Ports;
use super::tables::Lasting;
use super::wake::Wakeup;
use super::worker::{Command, Report, Worker};
use crate::clock::Clock;
use crate::config::model::Configuration;
use crate::events::Events;
use crate::supervise::{Thread, Threads};
use polder_buffers::PortId;
use polder_buffers::snapshot::Snapshot;
use polder_datapath::counters::{QueueCounters, WorkerCounters};
use polder_datapath::engine::{EngineCounters, Tables};
use polder_datapath::forward::{BridgeCounters, Links, SweepCursor};
use polder_datapath::steer::{Board, Hasher};
use polder_datapath::units::Nanos;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

/// One worker, from outside.
pub struct WorkerHandle {
    commands: Sender<Command>,
    wakeup: Arc<Wakeup>,
    /// Its counters.
    pub counters: Arc<WorkerCounters>,
    /// The CPU that it was pinned to.
    pub cpu: Option<u16>,
    /// Published steering state, if workers share.
    pub board: Option<Arc<Board>>,
    /// Hash of flows, if workers share.
    pub hasher: Option<Hasher>,
    thread: Option<Thread<Option<Worker>>>,
}

/// Reloads of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reloads {
    /// Generation of the configuration in force: 1 at the start, and one more for each reload that changed something.
    pub generation: u64,
    /// Reloads that were applied, those that changed nothing included.
    pub applied: u64,
    /// Reloads that were refused.
    pub refused: u64,
    /// True unless the last one was refused.
    pub last_worked: bool,
}

impl Default for Reloads {
    fn default() -> Self {
        Self { generation: 1, applied: 0, refused: 0, last_worked: true }
    }
}

impl Reloads {
    /// Takes note of a reload: what it changed, or that it was refused.
    pub fn note(&mut self, has_changed: Option<bool>) {
        self.last_worked = has_changed.is_some();
        match has_changed {
            Some(has_changed) => {
                self.applied += 1;
                self.generation += u64::from(has_changed);
            }
            None => self.refused += 1,
        }
    }
}

/// A running gateway.
pub struct Gateway {
    /// Configuration that it runs.
    pub configuration: Configuration,
    /// Ports of it that were added by command.
    pub added: AddedPorts,
    /// Packet memory of all ports.
    pub memory: Memory,
    /// The clock of all workers.
    pub clock: Clock,
    /// Its workers.
    pub workers: Vec<WorkerHandle>,
    /// Its device ports.
    pub ports: Vec<PortState>,
    /// State that outlives configurations.
    pub lasting: Lasting,
    /// Reloads since the start.
    pub reloads: Reloads,
    /// Events since the start.
    pub events: Events,
    /// Drops of the last day.
    pub(super) history: DropHistory,
    event_watch: EventWatch,
    /// BFD between the ends of tunnels.
    pub liveness: Liveness,
    /// True if it is to say that it is not ready.
    pub draining: bool,
    /// Time by which the control thread is to have made its next turn; 0 before it begins to make them.
    pub turn_due: Nanos,
    /// Time until which more packets wait in devices than otherwise.
    deep_until: Option<Nanos>,
    /// Last words of the gateway before it, if that lost a thread.
    pub before: Option<String>,
    /// Starts its threads.
    pub threads: Threads,
    devices: Devices,
    /// The watch over packet hooks of the kernel that are bypassed.
    pub hooks: Watch,
    tables: Snapshot<Tables>,
    links: Arc<Links>,
    retired: Vec<Arc<QueueCounters>>,
    report: Sender<Report>,
    reports: Receiver<Report>,
    /// Counters of each worker that there has ever been, by number.
    engine_counters: Vec<EngineCounters>,
    asked_at: HashMap<(PortId, IpAddr), Nanos>,
    paths: Paths,
    /// Next hops of tunnels.
    pub(in crate::runtime) next_hops: NextHops,
    sweeps: HashMap<String, SweepCursor>,
    /// Time at which memory was last looked at.
    looked_at: Nanos,
    /// Ports as the router has seen them last.
    seen: Ports,
    /// True if the tables have not followed a change of interfaces, and are to be built again.
    is_stale: bool,
    /// True once another process goes on with the gateway.
    is_left: bool,
    /// Flows that programs carry.
    flows: FlowUpkeep,
    punts: PuntWatch,
    /// Follows the kernel's connections, once a port may carry some.
    pub(in crate::runtime) connections: Followed,
}

impl Gateway {
    /// The tables that workers go by.
    pub fn tables(&self) -> Arc<Tables> {
        self.tables.latest()
    }

    /// Lets each worker that sleeps make a round.
    pub fn wake_workers(&self) {
        self.workers.iter().for_each(|worker| worker.wakeup.wake());
    }

    /// Counters of all workers that there have ever been, those that there are first.
    pub fn worker_counters(&self) -> Vec<Arc<WorkerCounters>> {
        self.engine_counters.iter().map(|(counters, _)| Arc::clone(counters)).collect()
    }

    /// The same of their bridge stages.
    pub fn bridge_counters(&self) -> impl Iterator<Item = &BridgeCounters> {
        self.engine_counters.iter().map(|(_, bridging)| &**bridging)
    }

    /// Counters of all queues that there have ever been.
    pub fn queue_counters(&self) -> Vec<Arc<QueueCounters>> {
        let live = self.ports.iter().flat_map(|port| &port.counters);
        live.chain(&self.retired).map(Arc::clone).collect()
    }

    /// Both sides of the conservation law.
    pub fn accounts(&self) -> Accounts {
        Accounts::of(&self.worker_counters(), &self.queue_counters())
    }

    /// One sentence for each thread that was lost, in this run or at the end of the one before.
    pub fn lost_threads(&self) -> Vec<String> {
        self.before.iter().cloned().chain(self.threads.losses()).collect()
    }

    /// Stops the workers: they send what they have, wait for their frames and let go of their queues.
    pub fn stop(&mut self) {
        self.liveness.stop();
        for worker in &self.workers {
            worker.send(Command::Stop);
        }
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take()
                && thread.join().is_none()
            {
                tracing::error!("a worker was lost, and its packets with it");
            }
        }
    }

    /// Gives interfaces back whose port is `on_exit = "kernel"`, at once, and then ends the workers that there still
    /// are: one of the gateway's threads is lost. Takes no longer than `limit` to wait for them.
    pub(super) fn abandon(&mut self, limit: Duration) {
        let restore = |state: &PortState| state.handle()?.restore();
        let settings = self.ports.iter().filter_map(restore).collect::<Vec<_>>();
        self.ports.iter_mut().for_each(|state| state.handle = None);
        self.workers.iter().for_each(|worker| worker.send(Command::Stop));
        let end = self.clock.now() + Nanos(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        for thread in self.workers.iter_mut().filter_map(|worker| worker.thread.take()) {
            // A worker that is lost, or late, keeps what it has until the process ends.
            let left = Duration::from_nanos(end.since(self.clock.now()).0);
            let limit = if thread.status().is_lost() { Duration::ZERO } else { left };
            drop(thread.join_within(limit));
        }
        settings.into_iter().for_each(|restore| restore());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop();
    }
}

impl WorkerHandle {
    fn send(&self, command: Command) {
        // A worker that is gone is reported by `stop`, and by the supervisor.
        let _ = self.commands.send(command);
        self.wakeup.wake();
    }
}
