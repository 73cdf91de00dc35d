//! Metrics of workers: their time, their stages, and how packets are distributed among them.

use super::family::Value::{Count, Nanos, Permille};
use super::family::{Family, Labels, NONE, PACKETS, RATIO, SECONDS, Value};
use super::ports::count;
use crate::show::path::{StageRow, WorkerPath};
use crate::show::steering::SteeringRow;
use crate::show::workers::WorkerRow;
use polder_datapath::scheduler::Mode;

/// Labels of a worker.
pub(super) fn labels(row: &WorkerRow) -> Labels {
    Labels::one("worker", row.number)
}

/// Families of workers.
pub(super) const WORKER: &[Family<WorkerRow>] = &[
    Family::info("worker", "A worker, its CPU and the confinement of its thread.", |row| {
        let cpu = row.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string());
        let confined = row.confined.calls && row.confined.files;
        vec![(Labels::one("cpu", cpu).and("confined", confined), Count(1))]
    }),
    Family::gauges("worker_mode", NONE, "1 for the mode in which the worker waits for packets.", |row| {
        let modes = [Mode::Interrupts, Mode::Throttled, Mode::Polled];
        let is = |mode: Mode| (Labels::one("mode", mode.name()), Value::flag(row.mode == mode.name()));
        modes.map(is).to_vec()
    }),
    Family::counter("worker_slept", SECONDS, "Time asleep, pauses for its share included.", |row| {
        Some(Nanos(row.slept_nanos))
    }),
    Family::counter("worker_cpu", SECONDS, "Time on a CPU, by the scheduler's account.", |row| {
        row.cpu_nanos.map(Nanos)
    }),
    Family::counter("worker_waited", SECONDS, "Time ready to run while another thread had the CPU.", |row| {
        row.waited_nanos.map(Nanos)
    }),
    Family::counter(
        "worker_share_pause",
        SECONDS,
        "Time away from the core because its share was used up.",
        |row| Some(Nanos(row.share_nanos)),
    ),
    Family::counter("worker_received", PACKETS, "Packets received.", |row| Some(Count(row.received))),
    Family::counter("worker_received", "batches", "Batches of received packets.", |row| {
        Some(Count(row.batches))
    }),
    Family::counter("worker_polls", NONE, "Rounds over all queues.", |row| Some(Count(row.polls))),
    Family::counter("worker_empty_polls", NONE, "Rounds in which nothing was found.", |row| {
        Some(Count(row.empty_polls))
    }),
    Family::counter("worker_sleeps", NONE, "Times that the worker went to sleep.", |row| {
        Some(Count(row.sleeps))
    }),
    Family::counter("worker_wakeups", NONE, "Times that an event woke the worker.", |row| {
        Some(Count(row.wakeups))
    }),
    Family::gauge("worker_budget", PACKETS, "Packets that a turn may take at most.", |row| {
        Some(Count(row.budget))
    }),
    Family::gauge(
        "worker_moderation",
        SECONDS,
        "Time for which devices that adapt put off a wake-up.",
        |row| Some(Nanos(row.moderation_nanos)),
    ),
    Family::counter("worker_handed_over", PACKETS, "Packets handed to other workers for sending.", |row| {
        Some(Count(row.handed_over))
    }),
    Family::counter("worker_taken_over", PACKETS, "Packets taken from other workers for sending.", |row| {
        Some(Count(row.taken_over))
    }),
    Family::counter("worker_dropped", PACKETS, "Packets that the worker's stages dropped.", |row| {
        Some(Count(row.dropped))
    }),
    Family::gauge("worker_cached", "frames", "Free frames in the worker's cache.", |row| {
        Some(Count(row.cached_frames))
    }),
    Family::counter(
        "worker_pool_exhausted",
        NONE,
        "Times that a frame was wanted and none was free.",
        |row| Some(Count(row.pool_exhausted)),
    ),
];

/// Labels of a worker's stages.
pub(super) fn path_labels(row: &WorkerPath) -> Labels {
    Labels::one("worker", row.number)
}

/// Families of stages.
pub(super) const STAGE: &[Family<WorkerPath>] = &[
    Family::counters("stage_entered", PACKETS, "Packets that entered the stage.", |row| {
        stages(row, |stage| Count(stage.packets))
    }),
    Family::counters("stage_entered", "batches", "Batches that entered the stage with a packet.", |row| {
        stages(row, |stage| Count(stage.batches))
    }),
    Family::counters("stage_timed", PACKETS, "Packets whose time in the stage was taken: a sample.", |row| {
        stages(row, |stage| Count(stage.timed_packets))
    }),
    Family::counters("stage_timed", SECONDS, "Time that the timed packets took in the stage.", |row| {
        stages(row, |stage| Nanos(stage.timed_nanos))
    }),
];

fn stages(row: &WorkerPath, value: fn(&StageRow) -> Value) -> Vec<(Labels, Value)> {
    row.stages.iter().map(|stage| (Labels::one("stage", &stage.stage), value(stage))).collect()
}

/// Labels of a worker that shares packets with others.
pub(super) fn steering_labels(row: &SteeringRow) -> Labels {
    Labels::one("worker", row.number)
}

/// Families of the distribution of packets among workers.
pub(super) const STEERING: &[Family<SteeringRow>] = &[
    Family::gauge("steering_busy", RATIO, "Part of the last interval in which the worker had work.", |row| {
        Some(Permille(row.busy_permille.into()))
    }),
    Family::gauge(
        "steering_pressed",
        RATIO,
        "Part of the batches that left more where they came from.",
        |row| Some(Permille(row.pressed_permille.into())),
    ),
    Family::gauge(
        "steering_worked",
        RATIO,
        "Part of the last interval that packets took in the stages.",
        |row| Some(Permille(row.worked_permille.into())),
    ),
    Family::gauge("steering_packet_time", SECONDS, "Mean time of a packet in the last interval.", |row| {
        Some(Nanos(row.packet_nanos.into()))
    }),
    Family::counter(
        "steering_steered",
        PACKETS,
        "Packets handed to the workers that their flows belong to.",
        |row| Some(Count(row.steered)),
    ),
    Family::counter(
        "steering_steered_here",
        PACKETS,
        "Packets that other workers handed to this one.",
        |row| Some(Count(row.steered_here)),
    ),
    Family::counter("steering_offered", PACKETS, "Packets received and offered to idle workers.", |row| {
        Some(Count(row.offered))
    }),
    Family::counter("steering_pulled", PACKETS, "Offered packets that the worker worked on.", |row| {
        Some(Count(row.pulled))
    }),
    Family::counter(
        "steering_helped",
        "batches",
        "Work batches of other workers that the worker worked on.",
        |row| Some(Count(row.helped)),
    ),
    Family::counter("steering_restored", PACKETS, "Packets whose order the worker restored.", |row| {
        Some(Count(row.restored))
    }),
    Family::counter(
        "steering_expired_tickets",
        NONE,
        "Tickets that the worker gave up waiting for.",
        |row| Some(Count(row.expired)),
    ),
    Family::counter(
        "steering_bucket_changes",
        NONE,
        "Times that a bucket became spread, or hashed again.",
        |row| Some(Count(row.changes)),
    ),
    Family::counter(
        "steering_no_core",
        PACKETS,
        "Packets dropped because there was no ticket or no room in a ring.",
        |row| Some(Count(row.no_core)),
    ),
    Family::counter("steering_late", PACKETS, "Packets dropped because they came after their turn.", |row| {
        Some(Count(row.late))
    }),
];

/// Number of lost threads as a value.
pub(super) fn lost(threads: &[String]) -> Value {
    Count(count(threads.len()))
}
