//! Settings of a port, and reasons why it could not be opened.

use super::transport::ClaimError;
use crate::Receiving;
use polder_buffers::RegionError;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Techniques of source A that are on. Off is the state that the source started from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Techniques {
    /// A1: received transfers are read in the worker's turn under its budget; off: all at once, and no
    /// budget applies.
    pub poll_cycle: bool,
    /// A2: URBs have memory from a pool; off: memory of their own, for the life of one transfer.
    pub urb_pools: bool,
    /// A3: several packets in a bulk-out URB, and a queue of pending ones; off: one packet in a URB.
    pub pending_queue: bool,
    /// A4: a bulk-in URB goes back in the turn, when its frames have been handled; off: when it completes.
    pub resubmit_in_cycle: bool,
    /// A5: a frame is a unit of the budget; off: a transfer that was begun is finished.
    pub frame_is_unit: bool,
}

impl Techniques {
    /// All on.
    pub const ON: Self = Self {
        poll_cycle: true,
        urb_pools: true,
        pending_queue: true,
        resubmit_in_cycle: true,
        frame_is_unit: true,
    };
    /// All off.
    pub const OFF: Self = Self {
        poll_cycle: false,
        urb_pools: false,
        pending_queue: false,
        resubmit_in_cycle: false,
        frame_is_unit: false,
    };
}

impl Default for Techniques {
    fn default() -> Self {
        Self::ON
    }
}

/// Settings of a port that no function has of its own.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Bulk-in URBs in flight.
    pub(crate) receive_urbs: usize,
    /// Bulk-out URBs in flight.
    pub(crate) send_urbs: usize,
    /// Packets that wait for a bulk-out URB, at most.
    pub(crate) pending: usize,
    pub(crate) receiving: Receiving,
    pub(crate) techniques: Techniques,
    /// C3: control messages have memory of their own and go before received data; off: they share the memory of
    /// bulk-in URBs, first come, first served.
    pub(crate) own_control: bool,
    /// Gives up opening when it is set.
    pub(crate) cancelled: Arc<AtomicBool>,
}

/// URBs in flight that a file may ask for.
pub(crate) fn urbs_within(wanted: Option<usize>, usual: usize) -> usize {
    wanted.unwrap_or(usual).clamp(1, 256)
}

/// Reason why a device could not be opened; `E` is that of its function.
#[derive(Debug, thiserror::Error)]
pub enum OpenError<E: core::error::Error + 'static> {
    /// An MTU that it cannot have.
    #[error("an MTU of {mtu}: a {kind} port has 68 to {largest}")]
    Mtu {
        /// Requested MTU.
        mtu: u16,
        /// Kind of the port.
        kind: &'static str,
        /// The largest MTU.
        largest: u16,
    },
    /// Another driver or program has an interface of the device.
    #[error("{0}")]
    Claim(ClaimError),
    /// The device is none that the driver knows, or does not work.
    #[error("{place}: {error}")]
    Init {
        /// Bus and address of the device, for people.
        place: String,
        /// Cause of the failure.
        error: E,
    },
    /// The device went while it was brought up.
    #[error("{place}: the adapter was unplugged, or the connection to it ended")]
    Gone {
        /// Bus and address of the device, for people.
        place: String,
    },
    /// Opening was cancelled.
    #[error("opening {place} was given up, because the program ends")]
    Cancelled {
        /// Bus and address of the device, for people.
        place: String,
    },
    /// No memory for URBs.
    #[error(transparent)]
    Memory(RegionError),
    /// No file for events.
    #[error("cannot share the transport's event: {0}; raise the limit of open files")]
    Event(std::io::Error),
}
