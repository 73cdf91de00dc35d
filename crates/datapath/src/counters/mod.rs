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

/// Counters of one queue of a device, on cache lines of their own, for their neighbours may be
/// another core's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct QueueCounters {
    /// Packets received, those that the device refused included.
    pub received: Counter,
    /// Bytes received, Ethernet header included, FCS excluded.
    pub received_bytes: Counter,
    /// Packets handed to the device for sending; of a device that says what it took, those that it took.
    pub transmitted: Counter,
    /// Bytes of those.
    pub transmitted_bytes: Counter,
    /// Packets taken for sending and not completed. A gauge.
    pub in_flight: Counter,
    /// Packets in flight that are neither counted as transmitted nor as dropped yet. A gauge; 0 for a device that counts
    /// packets as transmitted when it is given them.
    pub unsent: Counter,
    /// Time that the worker has spent on turns of the queue in which packets came, in nanoseconds: its own time, without what
    /// others had of its core meanwhile. What that was is estimated where it could not be told.
    pub worked_nanos: Counter,
    /// Packets whose checksum a local sender has left to the device, which did not say so.
    pub partial_checksums: Counter,
    /// System calls made for the queue.
    pub system_calls: Counter,
    /// Packets that the device or its driver refused, by reason.
    pub drops: DropCounters,
}

/// Counters of one stage.
#[derive(Debug, Default)]
pub struct StageCounters {
    /// Packets that entered.
    pub packets: Counter,
    /// Batches that entered with at least one packet.
    pub batches: Counter,
    /// Packets whose time was taken; a sample of `packets`.
    pub timed_packets: Counter,
    /// Time that those took, in nanoseconds.
    pub timed_nanos: Counter,
}

/// Counters of one worker's steering and reordering.
#[derive(Debug, Default)]
pub struct OrderCounters {
    /// Packets handed to the worker that their flow belongs to.
    pub steered: Counter,
    /// Packets taken from workers that received them.
    pub steered_here: Counter,
    /// Tickets drawn.
    pub tickets: Counter,
    /// Packets in work batches that were offered to idle workers.
    pub given: Counter,
    /// Packets in work batches that were pulled: the worker's own, and those of others.
    pub pulled: Counter,
    /// Work batches pulled from other workers.
    pub helped: Counter,
    /// Packets in work batches that were redeemed.
    pub redeemed: Counter,
    /// Packets whose order was restored, and packets that came too late for it.
    pub restored: Counter,
    /// Tickets that were given up, because they were missing for too long.
    pub expired: Counter,
    /// Times that a bucket became spread, or hashed again.
    pub changes: Counter,
}

impl OrderCounters {
    /// Packets that went into rings and work batches, less those that came out; of all workers together,
    /// this is what is in there.
    pub fn held(&self) -> i64 {
        // What came out is read first, so that what is on its way counts as held.
        let out = self.steered_here.get() + self.pulled.get() + self.restored.get();
        let into = self.steered.get() + self.given.get() + self.redeemed.get();
        into.cast_signed().wrapping_sub(out.cast_signed())
    }
}

/// Answers of one worker's filter stage.
#[derive(Debug, Default)]
pub struct FilterCounters {
    /// Answers to packets that were rejected.
    pub answered: Counter,
    /// Packets that were rejected without an answer: none is due, or too many were given.
    pub silenced: Counter,
}

/// Counters of one worker, on cache lines of their own, for their neighbours may be another core's.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// By stage, in the order of [`Stage::ALL`].
    pub stages: [StageCounters; Stage::COUNT],
    /// Journeys that the datapath ended, by reason; what devices refuse is counted by their queues.
    pub drops: DropCounters,
    /// Packets made and unmade.
    pub ledger: Ledger,
    /// Rounds over all queues.
    pub polls: Counter,
    /// Rounds in which nothing was found.
    pub empty_polls: Counter,
    /// Times that the worker went to sleep.
    pub sleeps: Counter,
    /// Times that it was woken by an event.
    pub wakeups: Counter,
    /// Time asleep, in nanoseconds.
    pub slept_nanos: Counter,
    /// Time that it stayed away from its core because its share of it was used up, in nanoseconds.
    pub share_nanos: Counter,
    /// Mode of waiting: a number of [`Mode`](crate::scheduler::Mode). A gauge.
    pub mode: Counter,
    /// The largest budget of its queues, in packets. A gauge.
    pub budget: Counter,
    /// Packets that could wait for services of this worker when that was last bounded: frames posted to devices
    /// whose packets they are, and places in front of the services. A gauge.
    pub bound: Counter,
    /// Counters of the filter stage's messages to senders.
    pub filter: Arc<FilterCounters>,
    /// Counters of the routing stage beside those of every stage.
    pub route: Arc<RouteCounters>,
    /// Steering and order.
    pub order: OrderCounters,
    /// Packets handed to other workers for sending.
    pub handed_over: Counter,
    /// Packets taken from other workers for sending.
    pub taken_over: Counter,
    /// Packets in the queues of ports. A gauge.
    pub queued: Counter,
    /// Frames in the worker's own cache. A gauge.
    pub cached_frames: Counter,
    /// Times that a frame was wanted and none was free.
    pub pool_exhausted: Counter,
}

impl WorkerCounters {
    /// The counters of one stage.
    #[inline]
    pub fn stage(&self, stage: Stage) -> &StageCounters {
        &self.stages[stage as usize]
    }
}
