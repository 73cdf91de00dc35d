//! The seam between datapath and devices: one indirect call a batch, none a packet.
//!
//! A device gives one [`RxQueue`] and one [`TxQueue`] for each of its queues; a worker owns those
//! that it polls and sends on. The contract of a poll:
//!
//! 1. `receive` moves at most the budget into the batch and refills the ring. [`Turn::OutOfBudget`]
//!    means "poll again, do not sleep"; [`Turn::Drained`] means "nothing was left when I looked".
//! 2. `arm` asks for an event and then looks once more. [`Armed::Raced`] means that something came
//!    in between: poll again. Only after [`Armed::Waiting`] may the worker sleep.
//! 3. A device that is gone answers [`Turn::Closed`] from then on, and never panics.

mod control;

pub use control::{Drive, Driven, RxControl};

use crate::counters::QueueCounters;
use crate::units::Nanos;
use polder_buffers::{Batch, Pool};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Number of packets that may still be received in this turn.
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

    /// Takes `packets` off.
    pub const fn spend(&mut self, packets: u32) {
        self.0 = self.0.saturating_sub(packets);
    }
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "out of budget means that the queue has to be polled again"]
pub enum Turn {
    /// Nothing was left.
    Drained,
    /// The budget, the batch or the memory ended first: poll again before sleeping.
    OutOfBudget,
    /// The device is gone. It stays so until its port is opened again.
    Closed,
}

/// Result of arming a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "after `Raced` the worker must not sleep"]
pub enum Armed {
    /// An event will come; the worker may sleep.
    Waiting,
    /// Packets are there already: poll again.
    Raced,
}

/// The receiving end of one queue of a device.
pub trait RxQueue: Send {
    /// Moves received packets to the end of `batch`, at most as many as `budget` and the batch allow,
    /// takes them off the budget, and refills the ring from `pool`.
    ///
    /// Each packet counts in [`QueueCounters::received`], also one that the device refuses, which
    /// counts as a drop there too. `ingress` and `received_at` are the worker's to set.
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn;

    /// Asks for an event at the next packet, then looks once more.
    fn arm(&mut self) -> Armed;

    /// Descriptor that is readable when there is work; `None` for a queue that has to be polled.
    fn event(&self) -> Option<BorrowedFd<'_>>;

    /// Longest time between two calls of [`receive`](Self::receive) while no event comes; `None` for a device that has
    /// nothing to do by itself.
    fn longest_sleep(&self) -> Option<Nanos> {
        None
    }

    /// Control of the kernel's half of receiving, for the scheduler; `None` for a device that has none.
    fn control(&mut self) -> Option<&mut dyn RxControl> {
        None
    }

    /// Frames that wait in the device's ring, or in the driver, for packets to come.
    fn posted(&self) -> u32 {
        0
    }

    /// The queue's counters.
    fn counters(&self) -> &Arc<QueueCounters>;
}

/// The sending end of one queue of a device.
pub trait TxQueue: Send {
    /// Takes packets from the front of `batch` while the ring has room; leaves the rest.
    ///
    /// A packet that cannot be sent at all (too long for the link) is taken, counted as a drop and
    /// released with the next [`TxQueue::reclaim`].
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool);

    /// Returns the frames of sent packets to `pool`. Bounded; [`Turn::OutOfBudget`] means that more
    /// may be there.
    fn reclaim(&mut self, pool: &mut Pool) -> Turn;

    /// Packets that were taken and whose frames have not come back.
    fn held(&self) -> u32;

    /// Frames of those packets.
    fn posted(&self) -> u32 {
        self.held()
    }

    /// True if packets that were taken wait for a device that was full, and packets that the kernel sends by itself would
    /// overtake them.
    fn has_unsent(&self) -> bool {
        false
    }

    /// The queue's counters.
    fn counters(&self) -> &Arc<QueueCounters>;
}
