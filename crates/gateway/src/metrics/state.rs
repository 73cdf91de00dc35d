//! Metrics of the gateway as a whole: version, configuration, packet memory, routes.

use super::family::Value::{Count, Nanos};
use super::family::{BYTES, Family, Labels, NONE, SECONDS, Value};
use super::rows::{GatewayState, Rows};
use super::workers::lost;
use crate::show::buffers::{Buffers, PoolRow, TransferRow};
use crate::show::routes::Routes;

/// Families of the gateway.
pub(super) const GATEWAY: &[Family<GatewayState>] = &[
    Family::info("build", "Version of Polder, and the gateway's name.", |state| {
        let labels = Labels::one("version", env!("CARGO_PKG_VERSION")).and("gateway", &state.gateway);
        vec![(labels, Count(1))]
    }),
    Family::gauge("uptime", SECONDS, "Time since the start of the gateway.", |state| {
        Some(Nanos(state.uptime_nanos))
    }),
    Family::gauge(
        "configuration_generation",
        NONE,
        "Generation of the configuration in force: 1 at the start, and one more for each reload that changed something.",
        |state| Some(Count(state.generation)),
    ),
    Family::counters("configuration_reloads", NONE, "Reloads by outcome.", |state| {
        vec![
            (Labels::one("outcome", "applied"), Count(state.reloads_applied)),
            (Labels::one("outcome", "refused"), Count(state.reloads_refused)),
        ]
    }),
    Family::gauge(
        "configuration_last_reload_successful",
        NONE,
        "0 if the last reload was refused.",
        |state| Some(Value::flag(state.last_reload_worked)),
    ),
    Family::gauge("ready", NONE, "1 if the gateway is ready, as /readyz says.", |state| {
        Some(Value::flag(state.not_ready.is_empty()))
    }),
    Family::gauge(
        "lost_threads",
        NONE,
        "Threads that were lost, at the end of the last gateway included.",
        |state| Some(lost(&state.lost_threads)),
    ),
];

/// Families of packet memory.
pub(super) const BUFFERS: &[Family<Buffers>] = &[
    Family::gauge("buffer_frame_size", BYTES, "Bytes of a frame.", |row| Some(Count(row.frame_bytes.into()))),
    Family::gauge(
        "buffer_headroom",
        BYTES,
        "Bytes in front of packets that a driver places itself.",
        |row| Some(Count(row.headroom.into())),
    ),
    Family::gauges("buffer_place", "frames", "Frames by place; each frame is in one place.", |row| {
        let places = &row.places;
        let counts = [
            ("free", places.free),
            ("reserve", places.reserve),
            ("posted", places.posted),
            ("held", places.held),
            ("shared", places.shared),
            ("lent", places.lent),
        ];
        let place = |(place, frames)| (Labels::one("place", place), Count(frames));
        let path = (Labels::one("place", "path"), Value::Signed(places.path));
        counts.into_iter().map(place).chain([path]).collect()
    }),
    Family::gauge("buffer_all", "frames", "Frames of both classes.", |row| Some(Count(row.places.total))),
    Family::counter(
        "buffer_strays",
        NONE,
        "Frames and fragments that were dropped instead of released.",
        |row| Some(Count(row.strays)),
    ),
];

/// Labels of a pool.
pub(super) fn pool_labels(row: &PoolRow) -> Labels {
    Labels::one("kind", &row.kind).and("class", &row.class)
}

/// Families of pools.
pub(super) const POOL: &[Family<PoolRow>] = &[
    Family::gauge("pool_buffers", NONE, "Buffers of the pool.", |row| Some(Count(row.total))),
    Family::gauge("pool_cold_buffers", NONE, "Buffers without memory behind them.", |row| {
        Some(Count(row.cold))
    }),
    Family::gauge("pool_memory", BYTES, "Memory behind the pool's buffers.", |row| Some(Count(row.bytes))),
    Family::gauge("pool_reserve_buffers", NONE, "Buffers ready for any worker.", |row| {
        Some(Count(row.reserve))
    }),
    Family::gauge("pool_cached_buffers", NONE, "Buffers ready in workers' own caches.", |row| {
        Some(Count(row.cached))
    }),
    Family::gauge("pool_used_buffers", NONE, "Buffers in use.", |row| Some(Count(row.out))),
    Family::gauge("pool_lowest_ready_buffers", NONE, "Fewest buffers that were ready.", |row| {
        Some(Count(row.lowest))
    }),
    Family::counter("pool_allocations", NONE, "Buffers taken.", |row| Some(Count(row.taken))),
    Family::counter("pool_failed_allocations", NONE, "Allocations that failed.", |row| {
        Some(Count(row.exhausted))
    }),
    Family::counter("pool_reloads", NONE, "Reloads of the reserve.", |row| Some(Count(row.reloads))),
    Family::counter("pool_loaded_buffers", NONE, "Buffers that reloads brought in.", |row| {
        Some(Count(row.loaded))
    }),
    Family::counter("pool_failed_reloads", NONE, "Reloads that the system had no memory for.", |row| {
        Some(Count(row.failures))
    }),
    Family::counter("pool_returned_buffers", NONE, "Buffers that went back to the system.", |row| {
        Some(Count(row.given_back))
    }),
    Family::counter(
        "pool_on_demand_buffers",
        NONE,
        "Buffers that the packet path itself took from the system.",
        |row| Some(Count(row.on_demand)),
    ),
];

/// Labels of transfers of an adapter.
pub(super) fn transfer_labels(row: &TransferRow) -> Labels {
    Labels::one("port", &row.port).and("direction", &row.direction)
}

/// Families of the memory of USB transfers.
pub(super) const TRANSFER: &[Family<TransferRow>] = &[
    Family::gauge("transfer_buffer_size", BYTES, "Bytes of a transfer's buffer, at most.", |row| {
        Some(Count(row.buffer_bytes))
    }),
    Family::gauge("transfer_buffers", NONE, "Buffers of transfers.", |row| Some(Count(row.total))),
    Family::gauge("transfer_free_buffers", NONE, "Buffers with no transfer.", |row| Some(Count(row.free))),
    Family::gauge("transfer_in_flight_buffers", NONE, "Buffers with the bus.", |row| {
        Some(Count(row.in_flight))
    }),
    Family::gauge("transfer_held_buffers", NONE, "Received buffers with frames that wait.", |row| {
        Some(Count(row.held))
    }),
];

/// Families of the router.
pub(super) const ROUTER: &[Family<Routes>] = &[
    Family::gauges("routes", NONE, "Routes that packets follow.", |row| {
        vec![
            (Labels::one("family", "ipv4"), Count(row.ipv4)),
            (Labels::one("family", "ipv6"), Count(row.ipv6)),
        ]
    }),
    Family::gauge("routes_synchronized", NONE, "1 if all of the kernel's tables are known.", |row| {
        row.settled.map(Value::flag)
    }),
    Family::counter(
        "routes_resynchronizations",
        NONE,
        "Times that all of the kernel's tables were dumped again.",
        |row| Some(Count(row.restarts)),
    ),
    Family::gauge("routes_held", NONE, "Routes of routing daemons that have ended.", |row| {
        Some(Count(row.held))
    }),
    Family::gauge("routes_rules_left_out", NONE, "Rules of the kernel that are not followed.", |row| {
        Some(Count(row.rules_left_out))
    }),
    Family::gauge("routes_memory", BYTES, "Memory of the tables of routes.", |row| Some(Count(row.bytes))),
];

/// Families of the rows as a whole.
pub(super) const ROWS: &[Family<Rows>] = &[
    Family::gauge("neighbors", NONE, "Neighbours of the router.", |rows| Some(Count(rows.neighbours))),
    Family::gauge("neighbors_known", NONE, "Neighbours whose link-layer address is known.", |rows| {
        Some(Count(rows.neighbours_known))
    }),
    Family::gauge("fast_path_flows", NONE, "Flows that ports' programs carry.", |rows| {
        Some(Count(rows.carried_flows))
    }),
    Family::counters("route", NONE, "Counters of the routing stage, by name.", |rows| {
        let event = |(name, number): &(String, u64)| (Labels::one("event", name), Count(*number));
        rows.routing.iter().map(event).collect()
    }),
];
