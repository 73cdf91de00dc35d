//! Counters of queues, stages and workers.

mod route;
mod stage;
mod totals;

pub use crate::counter::Counter;
pub use route::RouteCounters;
pub use stage::Stage;
pub(crate) use stage::with_stages;
pub use totals::Totals;
pub(crate) use totals::totals;

use crate::drops::{DropCounters, Ledger};
use std::sync::Arc;

/// Counters of one device queue, aligned to avoid false sharing with another core's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct QueueCounters {
    /// Packets received, including packets that the device refused.
    pub received: Counter,
    /// Bytes received, Ethernet header included, FCS excluded.
    pub received_bytes: Counter,
    /// Packets passed to the device for transmission; if the device reports accepted packets, only those.
    pub transmitted: Counter,
    /// Bytes of transmitted packets, Ethernet header included, FCS excluded.
    pub transmitted_bytes: Counter,
    /// Packets taken for transmission and not completed. A gauge.
    pub in_flight: Counter,
    /// Packets in flight that are neither counted as transmitted nor as dropped yet. A gauge; 0 for a device
    /// that counts packets when it is given them.
    pub unsent: Counter,
    /// CPU time of the worker in turns of the queue that received packets, in nanoseconds; estimated where
    /// preemption by other threads made the measurement unusable.
    pub worked_nanos: Counter,
    /// Packets with a partial checksum that the device did not report.
    pub partial_checksums: Counter,
    /// System calls made for the queue.
    pub system_calls: Counter,
    /// Packets that the device or its driver dropped, by reason.
    pub drops: DropCounters,
}

/// Counters of one stage.
#[derive(Debug, Default)]
pub struct StageCounters {
    /// Packets that entered the stage.
    pub packets: Counter,
    /// Batches that entered the stage with at least one packet.
    pub batches: Counter,
    /// Packets whose time was measured; a sample of `packets`.
    pub timed_packets: Counter,
    /// Time of the measured packets in nanoseconds.
    pub timed_nanos: Counter,
}

/// Counters of one worker's steering and reordering.
#[derive(Debug, Default)]
pub struct OrderCounters {
    /// Packets handed to their flow's worker.
    pub steered: Counter,
    /// Packets received from other workers for flows of this worker.
    pub steered_here: Counter,
    /// Tickets drawn.
    pub tickets: Counter,
    /// Packets in work batches that were offered to idle workers.
    pub given: Counter,
    /// Packets in work batches that this worker took, from itself or others.
    pub pulled: Counter,
    /// Work batches pulled from other workers.
    pub helped: Counter,
    /// Packets in work batches that were redeemed.
    pub redeemed: Counter,
    /// Packets that passed the reorder buffer, in order or too late.
    pub restored: Counter,
    /// Tickets that were skipped because they were missing for too long.
    pub expired: Counter,
    /// Number of times that a bucket became spread or hashed.
    pub changes: Counter,
}

impl OrderCounters {
    /// Packets that entered rings and work batches minus those that left; over all workers, the number of
    /// packets in them.
    pub fn held(&self) -> i64 {
        // Outgoing counters are read first, so that packets in transit count as held.
        let out = self.steered_here.get() + self.pulled.get() + self.restored.get();
        let into = self.steered.get() + self.given.get() + self.redeemed.get();
        into.cast_signed().wrapping_sub(out.cast_signed())
    }
}

/// Counters of replies of one worker's filter stage.
#[derive(Debug, Default)]
pub struct FilterCounters {
    /// Replies to rejected packets.
    pub answered: Counter,
    /// Rejected packets without reply: not permitted, or rate limited.
    pub silenced: Counter,
}

/// Counters of one worker, aligned to avoid false sharing with another core's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// Counters by stage, in the order of [`Stage::ALL`].
    pub stages: [StageCounters; Stage::COUNT],
    /// Packets dropped by the datapath, by reason; drops of devices are counted by their queues.
    pub drops: DropCounters,
    /// Packets that the worker created or merged.
    pub ledger: Ledger,
    /// Rounds over all queues.
    pub polls: Counter,
    /// Rounds without work.
    pub empty_polls: Counter,
    /// Times that the worker went to sleep.
    pub sleeps: Counter,
    /// Number of wake-ups by an event.
    pub wakeups: Counter,
    /// Time asleep, in nanoseconds.
    pub slept_nanos: Counter,
    /// Time for which the worker stayed off its core because its CPU share was used up, in nanoseconds.
    pub share_nanos: Counter,
    /// Polling mode: a number of [`Mode`](crate::scheduler::Mode). A gauge.
    pub mode: Counter,
    /// The largest budget of its queues, in packets. A gauge.
    pub budget: Counter,
    /// Maximum number of packets that can wait for consumers of this worker, as last set: frames posted to
    /// the devices, and consumers' backlogs. A gauge.
    pub bound: Counter,
    /// Counters of the filter stage's replies.
    pub filter: Arc<FilterCounters>,
    /// Additional counters of the routing stage.
    pub route: Arc<RouteCounters>,
    /// Counters of steering and reordering.
    pub order: OrderCounters,
    /// Packets handed to other workers for transmission.
    pub handed_over: Counter,
    /// Packets received from other workers for transmission.
    pub taken_over: Counter,
    /// Packets in egress queues. A gauge.
    pub queued: Counter,
    /// Received packets in queues in front of the stages. A gauge.
    pub waiting_to_enter: Counter,
    /// Frames in the worker's cache. A gauge.
    pub cached_frames: Counter,
    /// Number of times that no frame was free.
    pub pool_exhausted: Counter,
}

impl WorkerCounters {
    /// Counters of one stage.
    #[inline]
    pub fn stage(&self, stage: Stage) -> &StageCounters {
        &self.stages[stage as usize]
    }
}
