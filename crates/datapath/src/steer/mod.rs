//! Choice of a packet's worker (E2), and the order definition point of a flow (E8).
//!
//! In: received batches of steered ports. Out: packets for this worker, packets for other workers, and work
//! batches for idle workers. Exits: `NoCore`, when no ticket is available or a ring is full. Cost: one hash
//! per packet; one ticket and one hand-over per batch.
//!
//! Flows of a steered port are hashed into buckets. A *hashed* bucket is processed by one worker, its home. A
//! *spread* bucket is processed by all workers; tickets record the order of its packets, and
//! [`reorder`](crate::reorder) restores it. `docs/adr/0007-order.md` explains why that is correct.

mod board;
mod bucket_policy;
mod dispatcher;
mod flow;
mod flow_name;
mod load;
mod sketch;
pub mod toeplitz;
mod work_batch;

pub use board::{Board, BucketView, Flows};
pub use bucket_policy::{BucketPolicy, Thresholds};
pub use dispatcher::{Dispatcher, ReorderCursors};
pub(crate) use flow::name as flow_name_of;
pub use flow::{Flow, Hasher};
pub use flow_name::{Ends, FlowName};
pub use load::{Load, LoadMeter, Loads, WorkerLoad};
pub use sketch::{Heaviest, Heavy};
pub use work_batch::WorkBatch;

/// Order of a port's packets, and the rule that selects their worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Packets stay with the worker that polls their queue; flows are not hashed.
    #[default]
    Queue,
    /// Each flow is processed by one worker.
    Hash,
    /// Packets are spread over all workers and reordered before they are sent.
    Spread,
    /// As `Hash`, but a bucket whose flows overload their worker is spread.
    Auto,
}

/// Maximum number of workers in a worker group.
pub const MOST_WORKERS: usize = 64;
/// Maximum number of buckets that one receiving worker can spread at a time: one lane of tickets each.
pub const LANES: usize = 32;
/// Maximum number of outstanding tickets per lane.
pub const WINDOW: u32 = 64;
/// Maximum number of outstanding work batches per receiving worker: one for each ticket.
pub const WORK_BATCHES: usize = LANES * WINDOW as usize;

/// Bucket numbers of each order; pinned packets of all ports share a range.
mod buckets {
    use super::{LANES, Order};
    use core::ops::Range;

    pub(super) const HASHED: Range<usize> = 0..256;
    pub(super) const AUTO: Range<usize> = 256..512;
    pub(super) const PINNED: Range<usize> = 512..528;
    /// Buckets of order `spread`: few, so that work batches are not small; each has a permanent lane.
    pub(super) const SPREAD: Range<usize> = 528..528 + LANES / 2;
    pub(super) const ALL: usize = SPREAD.end;

    /// Order of the ports whose packets a bucket holds; `None` for pinned packets.
    pub(super) fn order(bucket: usize) -> Option<Order> {
        match bucket {
            _ if HASHED.contains(&bucket) => Some(Order::Hash),
            _ if AUTO.contains(&bucket) => Some(Order::Auto),
            _ if SPREAD.contains(&bucket) => Some(Order::Spread),
            _ => None,
        }
    }

    /// Bucket of a packet.
    #[inline]
    pub(super) fn of(hash: u32, pinned: bool, order: Order) -> usize {
        let range = match order {
            _ if pinned => PINNED,
            Order::Queue | Order::Hash => HASHED,
            Order::Auto => AUTO,
            Order::Spread => SPREAD,
        };
        range.start + (hash as usize & (range.len() - 1))
    }
}

/// Bucket of a flow's packets on a port of the given order.
pub fn bucket_of(flow: Flow, order: Order) -> usize {
    buckets::of(flow.hash, flow.pinned, order)
}

/// Number of buckets of all ranges.
pub const BUCKETS: usize = buckets::ALL;
