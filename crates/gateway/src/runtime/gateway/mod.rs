//! The control thread's side: ports, workers and tables, and what changes them.
//!
//! `start` brings it up, `upkeep` looks after it, `reload` changes it; `port`, `share` and `staff`, which is
//! its workers, are what these have in common.

mod port;
mod reload;
mod routes;
mod seek;
mod share;
mod staff;
mod start;
mod taps;
mod upkeep;

pub use super::devices::Opener;
pub use port::{Link, PortState, QueueState};
pub use reload::Plan;
pub use share::{Share, meshes, share};
pub use start::MOST_PORTS;

use super::accounts::Accounts;
use super::clock::Clock;
use super::devices::Devices;
use super::hooks::Watch;
use super::memory::Memory;
use super::path::Paths;
use super::routing::Ports;
use super::tables::Lasting;
use super::wake::Bell;
use super::worker::{Command, Report, Worker};
use crate::config::model::Configuration;
use polder_buffers::snapshot::Snapshot;
use polder_datapath::counters::{QueueCounters, WorkerCounters};
use polder_datapath::engine::{Books, Tables};
use polder_datapath::forward::{BridgeCounters, Links, SweepCursor};
use polder_datapath::steer::{Board, Hasher};
use polder_datapath::units::Nanos;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;

/// One worker, from outside.
pub struct WorkerHandle {
    commands: Sender<Command>,
    bell: Arc<Bell>,
    /// Its counters.
    pub counters: Arc<WorkerCounters>,
    /// The CPU that it was pinned to.
    pub cpu: Option<u16>,
    /// What it lets others see of its steering, if workers share.
    pub board: Option<Arc<Board>>,
    /// How it hashes flows, if workers share.
    pub hasher: Option<Hasher>,
    thread: Option<JoinHandle<Option<Worker>>>,
}

/// A running gateway.
pub struct Gateway {
    /// What it runs.
    pub configuration: Configuration,
    /// Packet memory of all ports.
    pub memory: Memory,
    /// The clock of all workers.
    pub clock: Clock,
    /// Its workers.
    pub workers: Vec<WorkerHandle>,
    /// Its device ports.
    pub ports: Vec<PortState>,
    /// What outlives configurations.
    pub lasting: Lasting,
    devices: Devices,
    /// The watch over packet hooks of the kernel that are bypassed.
    pub hooks: Watch,
    tables: Snapshot<Tables>,
    links: Arc<Links>,
    retired: Vec<Arc<QueueCounters>>,
    report: Sender<Report>,
    reports: Receiver<Report>,
    /// What each worker that there has ever been counts in, by number.
    books: Vec<Books>,
    asked_at: HashMap<String, Nanos>,
    paths: Paths,
    sweeps: HashMap<String, SweepCursor>,
    /// Ports as the router has seen them last.
    seen: Ports,
}

impl Gateway {
    /// The tables that workers go by.
    pub fn tables(&self) -> Arc<Tables> {
        self.tables.latest()
    }

    /// Counters of all workers that there have ever been, those that there are first.
    pub fn worker_counters(&self) -> Vec<Arc<WorkerCounters>> {
        self.books.iter().map(|(counters, _)| Arc::clone(counters)).collect()
    }

    /// The same of their bridge stages.
    pub fn bridge_counters(&self) -> impl Iterator<Item = &BridgeCounters> {
        self.books.iter().map(|(_, bridging)| &**bridging)
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

    /// Stops the workers: they send what they have, wait for their frames and let go of their queues.
    pub fn stop(&mut self) {
        for worker in &self.workers {
            worker.send(Command::Stop);
        }
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take()
                && thread.join().is_err()
            {
                tracing::error!("a worker has panicked; its packets are lost");
            }
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop();
    }
}

impl WorkerHandle {
    fn send(&self, command: Command) {
        // A worker that is gone has panicked, which `stop` reports.
        let _ = self.commands.send(command);
        self.bell.ring();
    }
}
