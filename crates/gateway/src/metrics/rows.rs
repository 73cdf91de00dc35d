//! Rows of one scrape.

use crate::show::buffers::Buffers;
use crate::show::connections::Connections;
use crate::show::counters::Counters;
use crate::show::drops::Drops;
use crate::show::family::Unit::{Nanos, Plain};
use crate::show::family::{Family, Labels};
use crate::show::fdb::BridgeRow;
use crate::show::filters::Filters;
use crate::show::flows::FastPathRow;
use crate::show::path::WorkerPath;
use crate::show::ports::PortRow;
use crate::show::queues::QueueRow;
use crate::show::routes::Routes;
use crate::show::row::rows;
use crate::show::steering::SteeringRow;
use crate::show::tunnels::TunnelRow;
use crate::show::workers::WorkerRow;
use serde::{Deserialize, Serialize};

rows! {
    /// State of the gateway as a whole.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct GatewayState {
        /// Its name.
        pub gateway: String,
        /// Time since the start of the gateway.
        pub uptime_nanos: u64 => gauge("uptime", Nanos),
        /// Generation of the configuration in force: 1 at the start, and one more for each reload that changed something.
        pub generation: u64 => gauge("configuration_generation", Plain),
        /// Reloads that were applied, those that changed nothing included.
        pub reloads_applied: u64,
        /// Reloads that were refused.
        pub reloads_refused: u64,
        /// False if the last reload was refused.
        pub last_reload_worked: bool,
        /// Reasons why it is not ready, a sentence each.
        pub not_ready: Vec<String>,
        /// Threads that were lost, at the end of the last gateway included.
        pub lost_threads: Vec<String> => gauge("lost_threads", Plain),
    }
    also &[
        Family::info("build", "Version of Polder and name of the gateway.", |state| {
            Labels::one("version", env!("CARGO_PKG_VERSION")).and("gateway", &state.gateway)
        }),
        Family::counters(("configuration_reloads", Plain), "Reloads by outcome.", |state| {
            let of = |outcome: &str, reloads: u64| (Labels::one("outcome", outcome), reloads.into());
            vec![of("applied", state.reloads_applied), of("refused", state.reloads_refused)]
        }),
        Family::gauge(
            "configuration_last_reload_successful",
            "1 if the last reload was applied, 0 if it was refused.",
            |state| state.last_reload_worked.into(),
        ),
        Family::gauge("ready", "1 if the gateway is ready, as /readyz says.", |state| {
            state.not_ready.is_empty().into()
        }),
    ];

    /// Rows of one scrape, read under one lock.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    pub struct Rows {
        /// The gateway as a whole.
        pub state: GatewayState => rows(),
        /// Stages of each worker.
        pub path: Vec<WorkerPath> => rows(),
        /// Ports.
        pub ports: Vec<PortRow> => rows(),
        /// Tunnels.
        pub tunnels: Vec<TunnelRow> => rows(),
        /// Bridges, without their addresses.
        pub bridges: Vec<BridgeRow> => rows(),
        /// The router, without its routes.
        pub routes: Routes => rows(),
        /// Counters of the routing stage, by name.
        pub routing: Vec<(String, u64)>,
        /// Neighbours of the router.
        pub neighbours: u64 => gauge("neighbors", Plain),
        /// Neighbours whose link-layer address is known.
        pub neighbours_known: u64 => gauge("neighbors_known", Plain),
        /// Rules.
        pub filters: Filters => rows(),
        /// Ports and tunnels with their fast path.
        pub fast_path: Vec<FastPathRow> => rows(),
        /// Flows that ports' programs carry.
        pub carried_flows: u64 => gauge("fast_path_flows", Plain),
        /// Totals of the connections that ports carry; none where the kernel decides about no port's packets.
        pub connections: Option<Connections> => rows(),
        /// Drops.
        pub drops: Drops => rows(),
        /// The conservation law.
        pub counters: Counters => rows(),
        /// Workers.
        pub workers: Vec<WorkerRow> => rows(),
        /// Workers that share packets.
        pub steering: Vec<SteeringRow> => rows(),
        /// Packet memory.
        pub buffers: Buffers => rows(),
        /// Queues in front of ports.
        pub queues: Vec<QueueRow> => rows(),
    }
}

/// Counters of the routing stage, which have their names from the datapath.
pub(super) const ROUTING: Family<Rows> =
    Family::counters(("route", Plain), "Counters of the routing stage, by name.", |rows| {
        let event = |(name, number): &(String, u64)| (Labels::one("event", name), (*number).into());
        rows.routing.iter().map(event).collect()
    });
