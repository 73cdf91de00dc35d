//! Rows of one scrape.

use crate::show::buffers::Buffers;
use crate::show::counters::Counters;
use crate::show::drops::Drops;
use crate::show::fdb::BridgeRow;
use crate::show::filters::Filters;
use crate::show::flows::FastPathRow;
use crate::show::path::WorkerPath;
use crate::show::ports::PortRow;
use crate::show::queues::QueueRow;
use crate::show::routes::Routes;
use crate::show::steering::SteeringRow;
use crate::show::tunnels::TunnelRow;
use crate::show::workers::WorkerRow;
use serde::{Deserialize, Serialize};

/// State of the gateway as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayState {
    /// Its name.
    pub gateway: String,
    /// Time since its start.
    pub uptime_nanos: u64,
    /// Generation of the configuration in force.
    pub generation: u64,
    /// Reloads that were applied, those that changed nothing included.
    pub reloads_applied: u64,
    /// Reloads that were refused.
    pub reloads_refused: u64,
    /// False if the last reload was refused.
    pub last_reload_worked: bool,
    /// Reasons why it is not ready, a sentence each.
    pub not_ready: Vec<String>,
    /// Threads that were lost.
    pub lost_threads: Vec<String>,
}

/// Rows of one scrape, read under one lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// The gateway as a whole.
    pub state: GatewayState,
    /// Stages of each worker.
    pub path: Vec<WorkerPath>,
    /// Ports.
    pub ports: Vec<PortRow>,
    /// Tunnels.
    pub tunnels: Vec<TunnelRow>,
    /// Bridges, without their addresses.
    pub bridges: Vec<BridgeRow>,
    /// The router, without its routes.
    pub routes: Routes,
    /// Counters of the routing stage, by name.
    pub routing: Vec<(String, u64)>,
    /// Neighbours of the router.
    pub neighbours: u64,
    /// Neighbours whose link-layer address is known.
    pub neighbours_known: u64,
    /// Rules.
    pub filters: Filters,
    /// Ports and tunnels with their fast path.
    pub fast_path: Vec<FastPathRow>,
    /// Flows that programs of ports carry.
    pub carried_flows: u64,
    /// Drops.
    pub drops: Drops,
    /// The conservation law.
    pub counters: Counters,
    /// Workers.
    pub workers: Vec<WorkerRow>,
    /// Workers that share packets.
    pub steering: Vec<SteeringRow>,
    /// Packet memory.
    pub buffers: Buffers,
    /// Queues in front of ports.
    pub queues: Vec<QueueRow>,
}
