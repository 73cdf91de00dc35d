//! Interface between datapath and devices: one dynamic call per batch, none per packet.
//!
//! A device has one [`RxQueue`] and one [`TxQueue`] for each of its queues; the worker that polls a queue
//! owns it. The contract of a poll:
//!
//! 1. `receive` moves at most the budget into the batch and refills the ring. [`Turn::OutOfBudget`] means
//!    "poll again, do not sleep"; [`Turn::Drained`] means "the ring was empty when last read".
//! 2. `arm` enables the event and then reads the ring again. [`Armed::Raced`] means that a packet arrived in
//!    between: poll again. The worker may sleep only after [`Armed::Waiting`].
//! 3. A device that was removed returns [`Turn::Closed`] from then on, and never panics.

mod control;

pub use control::{Drive, Driven, RxControl};

use crate::counters::QueueCounters;
use crate::units::Nanos;
use polder_buffers::{Batch, Pool};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Number of packets that a queue may still receive in this turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(u32);

impl Budget {
    /// Budget of `packets` packets; 0 lets the queue reclaim and refill only.
    pub const fn new(packets: u32) -> Self {
        Self(packets)
    }

    /// Packets left.
    pub const fn left(self) -> u32 {
        self.0
    }

    /// Subtracts `packets`; stops at 0.
    pub const fn spend(&mut self, packets: u32) {
        self.0 = self.0.saturating_sub(packets);
    }
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "out of budget means that the queue has to be polled again"]
pub enum Turn {
    /// The ring is empty.
    Drained,
    /// The budget, the batch or the pool ran out first: poll again before sleeping.
    OutOfBudget,
    /// The device was removed. Every later turn returns the same until its port is opened again.
    Closed,
}

/// Result of arming a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "after `Raced` the worker must not sleep"]
pub enum Armed {
    /// The event is enabled; the worker may sleep.
    Waiting,
    /// A packet arrived before the event was enabled: poll again.
    Raced,
}

/// The receive side of one device queue.
pub trait RxQueue: Send {
    /// Moves received packets to the end of `batch`, limited by `budget` and the batch's room, subtracts them
    /// from the budget, and refills the ring from `pool`.
    ///
    /// Each packet counts in [`QueueCounters::received`]; a packet that the device refuses counts there and
    /// as a drop. The worker sets `ingress` and `received_at`.
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn;

    /// Enables the event for the next packet, then reads the ring again.
    fn arm(&mut self) -> Armed;

    /// File descriptor that is readable when there is work; `None` for a queue that must be polled.
    fn event(&self) -> Option<BorrowedFd<'_>>;

    /// Maximum time between two calls of [`receive`](Self::receive) while no event comes; `None` for a device
    /// without periodic work.
    fn longest_sleep(&self) -> Option<Nanos> {
        None
    }

    /// Control of the kernel's receive side, for the scheduler; `None` for a device without such control.
    fn control(&mut self) -> Option<&mut dyn RxControl> {
        None
    }

    /// Frames in the device's ring or in the driver that are empty and ready for packets.
    fn posted(&self) -> u32 {
        0
    }

    /// The queue's counters.
    fn counters(&self) -> &Arc<QueueCounters>;
}

/// The transmit side of one device queue.
pub trait TxQueue: Send {
    /// Takes packets from the front of `batch` while the ring has room; leaves the rest in the batch.
    ///
    /// A packet that can never be sent (longer than the link allows) is taken, counted as a drop and released
    /// by the next [`TxQueue::reclaim`].
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool);

    /// Returns the frames of sent packets to `pool`. Bounded; [`Turn::OutOfBudget`] means that more frames
    /// may be ready.
    fn reclaim(&mut self, pool: &mut Pool) -> Turn;

    /// Packets that were taken and whose frames are not yet reclaimed.
    fn held(&self) -> u32;

    /// Frames of the packets that were taken and are not yet reclaimed.
    fn posted(&self) -> u32 {
        self.held()
    }

    /// True if taken packets still wait for a full device, so that packets which the kernel forwards by
    /// itself would overtake them.
    fn has_unsent(&self) -> bool {
        false
    }

    /// The queue's counters.
    fn counters(&self) -> &Arc<QueueCounters>;
}
