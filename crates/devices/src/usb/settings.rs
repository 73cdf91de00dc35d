//! Settings of a port, and reasons why it could not be opened.

use super::transport::ClaimError;
use crate::Receiving;
use polder_buffers::RegionError;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Enabled techniques of source A. Off is the source's initial state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Techniques {
    /// A1: received transfers are read in the worker's turn within its budget; off: all at once, without a
    /// budget.
    pub poll_cycle: bool,
    /// A2: URBs have memory from a pool; off: each transfer allocates memory.
    pub urb_pools: bool,
    /// A3: several packets per bulk-out URB, and a queue of pending packets; off: one packet per URB.
    pub pending_queue: bool,
    /// A4: a bulk-in URB is resubmitted in the turn that has handled its frames; off: when it completes.
    pub resubmit_in_cycle: bool,
    /// A5: a frame is a unit of the budget; off: a started transfer is finished.
    pub frame_is_unit: bool,
}

impl Techniques {
    /// All techniques on.
    pub const ON: Self = Self {
        poll_cycle: true,
        urb_pools: true,
        pending_queue: true,
        resubmit_in_cycle: true,
        frame_is_unit: true,
    };
    /// All techniques off.
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

/// Settings of a port that are common to all functions.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Number of bulk-in URBs in flight.
    pub(crate) receive_urbs: usize,
    /// Number of bulk-out URBs in flight.
    pub(crate) send_urbs: usize,
    /// Maximum number of packets that wait for a bulk-out URB.
    pub(crate) pending: usize,
    pub(crate) receiving: Receiving,
    pub(crate) techniques: Techniques,
    /// C3: control messages have memory of their own and are handled before received data; off: they share
    /// the memory of bulk-in URBs, in order of arrival.
    pub(crate) own_control: bool,
    /// Cancels opening when set.
    pub(crate) cancelled: Arc<AtomicBool>,
}

/// Returns the number of URBs in flight, within the allowed range.
pub(crate) fn urbs_within(wanted: Option<usize>, usual: usize) -> usize {
    wanted.unwrap_or(usual).clamp(1, 256)
}

/// Reason why a device could not be opened; `E` is the error of its function.
#[derive(Debug, thiserror::Error)]
pub enum OpenError<E: core::error::Error + 'static> {
    /// The MTU is out of range.
    #[error("invalid MTU of {mtu} bytes: a {kind} port supports 68 to {largest}")]
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
    /// The device is unknown to the driver, or does not work.
    #[error("{place}: {error}")]
    Init {
        /// Bus and address of the device.
        place: String,
        /// Cause of the failure.
        error: E,
    },
    /// The device was unplugged while it was brought up.
    #[error("{place}: the USB device was unplugged, or the connection to its USB/IP server ended")]
    Gone {
        /// Bus and address of the device.
        place: String,
    },
    /// Opening was cancelled.
    #[error("opening the USB device {place} was cancelled, because the program ends")]
    Cancelled {
        /// Bus and address of the device.
        place: String,
    },
    /// No memory for URBs.
    #[error(transparent)]
    Memory(RegionError),
    /// The event descriptor cannot be duplicated.
    #[error("cannot duplicate the event descriptor of the USB transport: {0}; raise the limit of open files")]
    Event(std::io::Error),
}
