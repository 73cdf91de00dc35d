//! Choice of a packet's worker (E2), and the order definition point of a flow (E8).
//!
//! In: received batches of ports that are steered. Out: packets for the worker itself, packets for
//! other workers, and work batches for idle workers. Exits: `NoCore`, when there is no ticket to be had
//! or a ring is full. Cost: a hash a packet; a ticket and one hand-over a batch.
//!
//! A port whose packets are steered has its flows hashed into buckets. A bucket is *hashed*: the work
//! of one worker, its home. Or it is *spread* over all of them; then the order in which its packets
//! came is written down in tickets, and [`reorder`](crate::reorder) brings it back.
//! `docs/adr/0007-order.md` says why it holds.

mod board;
mod define;
mod flow;
mod flow_name;
mod judge;
mod load;
mod sketch;
pub mod toeplitz;
mod work_batch;

pub use board::{Board, BucketView, Flows};
pub use define::{Definer, Gates};
pub use flow::{Flow, Hasher};
pub use flow_name::{Ends, FlowName};
pub use judge::{Judge, Marks};
pub use load::{Load, LoadMeter, Loads, WorkerLoad};
pub use sketch::{Heaviest, Heavy};
pub use work_batch::WorkBatch;

/// Order in which the packets of a port are processed, and choice of their worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Packets stay with the worker that polls their queue; nothing is hashed.
    #[default]
    Queue,
    /// By flow; a flow is the work of one worker.
    Hash,
    /// Over all workers, in order again where they leave.
    Spread,
    /// By flow, and spread while a flow is more than its worker can carry.
    Auto,
}

/// Workers that can share their work.
pub const MOST_WORKERS: usize = 64;
/// Lines of tickets that one receiving worker can have open.
pub const LANES: usize = 32;
/// Tickets of one line that are out at most.
pub const WINDOW: u32 = 64;
/// Work batches that one receiving worker can have out: a ticket each.
pub const WORK_BATCHES: usize = LANES * WINDOW as usize;

/// Buckets of ports in each order; pinned packets of all ports have some of their own.
mod buckets {
    use super::{LANES, Order};
    use core::ops::Range;

    pub(super) const HASHED: Range<usize> = 0..256;
    pub(super) const AUTO: Range<usize> = 256..512;
    pub(super) const PINNED: Range<usize> = 512..528;
    /// Few, so that work batches are not all crumbs; each has a lane for good.
    pub(super) const SPREAD: Range<usize> = 528..528 + LANES / 2;
    pub(super) const ALL: usize = SPREAD.end;

    /// Packets of ports of which order a bucket has; `None` of any.
    pub(super) fn order(bucket: usize) -> Option<Order> {
        match bucket {
            _ if HASHED.contains(&bucket) => Some(Order::Hash),
            _ if AUTO.contains(&bucket) => Some(Order::Auto),
            _ if SPREAD.contains(&bucket) => Some(Order::Spread),
            _ => None,
        }
    }

    /// The bucket of a packet.
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

/// The bucket of a packet of a port in that order, by its flow.
pub fn bucket_of(flow: Flow, order: Order) -> usize {
    buckets::of(flow.hash, flow.pinned, order)
}

/// Number of buckets, of all kinds.
pub const BUCKETS: usize = buckets::ALL;
