//! The control thread's state: ports, workers and tables, and their changes.
//!
//! `start` opens ports and starts workers, `upkeep` is the periodic work, `reload` applies another
//! configuration; these use `port`, `share` and `worker_lifecycle`.

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
use super::liveness::Liveness;
use super::memory::Memory;
use super::path::Paths;
use super::routing::Ports;
use super::tables::Lasting;
use super::tunnel_next_hops::NextHops;
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

/// Handle of one worker.
pub struct WorkerHandle {
    commands: Sender<Command>,
    wakeup: Arc<Wakeup>,
    /// The worker's counters.
    pub counters: Arc<WorkerCounters>,
    /// CPU that the worker is pinned to.
    pub cpu: Option<u16>,
    /// Published steering state, if workers share flows.
    pub board: Option<Arc<Board>>,
    /// Flow hash, if workers share flows.
    pub hasher: Option<Hasher>,
    thread: Option<Thread<Option<Worker>>>,
}

/// Counts of reloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reloads {
    /// Generation of the running configuration: 1 at the start, plus 1 for each reload that changed it.
    pub generation: u64,
    /// Number of applied reloads, including those without a change.
    pub applied: u64,
    /// Number of refused reloads.
    pub refused: u64,
    /// True unless the last reload was refused.
    pub last_worked: bool,
}

impl Default for Reloads {
    fn default() -> Self {
        Self { generation: 1, applied: 0, refused: 0, last_worked: true }
    }
}

impl Reloads {
    /// Records a reload: whether it changed the configuration, or `None` if it was refused.
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
    /// The running configuration.
    pub configuration: Configuration,
    /// Ports that are in no file.
    pub added: AddedPorts,
    /// Packet memory of all ports.
    pub memory: Memory,
    /// The clock of all workers.
    pub clock: Clock,
    /// The workers.
    pub workers: Vec<WorkerHandle>,
    /// The device ports.
    pub ports: Vec<PortState>,
    /// State that survives configurations.
    pub lasting: Lasting,
    /// Reloads since the start.
    pub reloads: Reloads,
    /// Events since the start.
    pub events: Events,
    /// Drops of the last day.
    pub(super) history: DropHistory,
    event_watch: EventWatch,
    /// BFD and keepalives of tunnels.
    pub liveness: Liveness,
    /// True after `polder drain`: the gateway reports that it is not ready.
    pub draining: bool,
    /// Time by which the control thread's next turn is due; 0 before its first turn.
    pub turn_due: Nanos,
    /// End of the period in which devices may hold more packets than usual.
    deep_until: Option<Nanos>,
    /// Reason why the previous gateway ended, if it lost a thread.
    pub before: Option<String>,
    /// Spawns and supervises threads.
    pub threads: Threads,
    devices: Devices,
    /// Watch for kernel packet hooks that Polder bypasses.
    pub hooks: Watch,
    tables: Snapshot<Tables>,
    links: Arc<Links>,
    retired: Vec<Arc<QueueCounters>>,
    report: Sender<Report>,
    reports: Receiver<Report>,
    /// Counters of each worker since the start, by number, including removed workers.
    engine_counters: Vec<EngineCounters>,
    asked_at: HashMap<(PortId, IpAddr), Nanos>,
    paths: Paths,
    /// Next hops of tunnels.
    pub(in crate::runtime) next_hops: NextHops,
    sweeps: HashMap<String, SweepCursor>,
    /// Time of the last check for idle memory.
    looked_at: Nanos,
    /// Ports as the router saw them last.
    seen: Ports,
    /// True if the tables do not reflect a change of interfaces yet and must be rebuilt.
    is_stale: bool,
    /// True once another process has taken over.
    is_left: bool,
    /// Flows that programs carry.
    flows: FlowUpkeep,
    punts: PuntWatch,
    /// Follower of the kernel's connections, used once a port may carry some.
    pub(in crate::runtime) connections: Followed,
}

impl Gateway {
    /// The tables that workers use.
    pub fn tables(&self) -> Arc<Tables> {
        self.tables.latest()
    }

    /// Wakes each sleeping worker, which makes a round.
    pub fn wake_workers(&self) {
        self.workers.iter().for_each(|worker| worker.wakeup.wake());
    }

    /// Counters of all workers since the start, current workers first.
    pub fn worker_counters(&self) -> Vec<Arc<WorkerCounters>> {
        self.engine_counters.iter().map(|(counters, _)| Arc::clone(counters)).collect()
    }

    /// Counters of the workers' bridge stages.
    pub fn bridge_counters(&self) -> impl Iterator<Item = &BridgeCounters> {
        self.engine_counters.iter().map(|(_, bridging)| &**bridging)
    }

    /// Counters of all queues since the start.
    pub fn queue_counters(&self) -> Vec<Arc<QueueCounters>> {
        let live = self.ports.iter().flat_map(|port| &port.counters);
        live.chain(&self.retired).map(Arc::clone).collect()
    }

    /// Both sides of the conservation law.
    pub fn accounts(&self) -> Accounts {
        Accounts::of(&self.worker_counters(), &self.queue_counters())
    }

    /// One sentence for each lost thread, in this run or at the end of the previous one.
    pub fn lost_threads(&self) -> Vec<String> {
        self.before.iter().cloned().chain(self.threads.losses()).collect()
    }

    /// Stops the workers: they send their queued packets, wait for their frames and drop their queues.
    pub fn stop(&mut self) {
        self.liveness.stop();
        for worker in &self.workers {
            worker.send(Command::Stop);
        }
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take()
                && thread.join().is_none()
            {
                tracing::error!("a worker has panicked, and its packets are lost");
            }
        }
    }

    /// Gives interfaces with `on_exit = "kernel"` back at once and then stops the remaining workers, after a
    /// thread was lost. Waits for them at most `limit`.
    pub(super) fn abandon(&mut self, limit: Duration) {
        let restore = |state: &PortState| state.handle()?.restore();
        let settings = self.ports.iter().filter_map(restore).collect::<Vec<_>>();
        self.ports.iter_mut().for_each(|state| state.handle = None);
        self.workers.iter().for_each(|worker| worker.send(Command::Stop));
        let end = self.clock.now() + Nanos(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        for thread in self.workers.iter_mut().filter_map(|worker| worker.thread.take()) {
            // A lost or late worker keeps its state until the process ends.
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
    pub(super) fn send(&self, command: Command) {
        // `stop` and the supervisor report a worker that has ended.
        let _ = self.commands.send(command);
        self.wakeup.wake();
    }
}
