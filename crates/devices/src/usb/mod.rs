//! USB network functions, driven from user space: what their drivers share.
//!
//! A device is reached by a [`Transport`]: a USB/IP server ([`usbip`]), a device of this machine
//! ([`usbfs`]), a model in this process (`local`). Frames travel in bulk transfers, several to one;
//! everything else is control requests and interrupt transfers.
//!
//! | file | what it is |
//! |---|---|
//! | `transport` `usbfs` `usbip` `local` | URBs, and ways to a device |
//! | `descriptor` | what a device says of itself |
//! | `identify` | descriptors of a device for which no driver has been chosen |
//! | `function` | what a driver gives: dialogue, reader, writer |
//! | `control` `tasks` | endpoint 0, one request at a time |
//! | `rx` `incoming` `tx` `packed` `port` `urbs` | frames, transfers, what both directions share |
//! | `status` | what a port shows of itself |
//! | `model` | the seam of models, and a device whose wire is a port |
//!
//! Techniques of source A, each with a switch in [`Techniques`]: work in the worker's turn under its
//! budget (A1), URB memory from the buffer manager (A2), the pending queue (A3), resubmission in the
//! cycle (A4), the overflow queue (A5). Packets carry no private header (A6). Control requests and notifications
//! have memory of their own and go before received data (C3).

pub mod descriptor;
mod transport;

pub(crate) mod control;
pub(crate) mod function;
mod identify;
mod incoming;
mod packed;
mod port;
mod rx;
pub(crate) mod status;
mod tasks;
mod tx;
mod urbs;

#[cfg(feature = "models")]
pub mod local;
#[cfg(feature = "models")]
pub mod model;
pub mod usbfs;
pub mod usbip;

pub use control::ControlError;
pub use identify::{Identified, IdentifyError, identify};
pub use status::{Connection, PortStatus, UrbMemory};
pub use transport::{ClaimError, Completion, Setup, Speed, Status, Transport, Urb, UrbBuffer};

use crate::{AnyQueue, Queue, Receiving};
use function::Function;
use polder_buffers::RegionError;
use polder_datapath::units::Nanos;
use port::Core;
use rustix::time::{ClockId, clock_gettime};
use rx::UsbRx;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use tx::{SharedCore, UsbTx};

/// Bytes of an Ethernet header and a tag.
pub(crate) const HEADERS: u16 = 14 + 4;
/// The smallest MTU.
pub(crate) const SMALLEST_MTU: u16 = 68;

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

/// A port of a function that is up.
pub(crate) struct OpenFunction<F: Function> {
    pub(crate) found: F::Found,
    pub(crate) status: Arc<PortStatus<F::Status>>,
    pub(crate) queue: AnyQueue,
}

/// Brings up the device behind `transport`. Frames come from the pools that the queue is polled with.
pub(crate) fn open<F: Function>(
    mut transport: Box<dyn Transport>,
    function: F,
    settings: &Settings,
) -> Result<OpenFunction<F>, OpenError<F::Error>> {
    let claimed = transport.claim(function.configuration(), &function.interfaces());
    claimed.map_err(OpenError::Claim)?;
    let core = Core::open(transport, function, settings)?;
    let event = core.transport.event().map(|event| event.try_clone_to_owned());
    let event = event.transpose().map_err(OpenError::Event)?;
    let status = Arc::clone(&core.status);
    let (Some(found), Some(transfers)) = (core.found.clone(), core.transfers) else {
        return Err(OpenError::Gone { place: core.transport.place() });
    };
    let reader = core.function.reader(&found, &status);
    let core = SharedCore::new(core);
    let rx = UsbRx::new(core.clone(), reader, event, settings.receiving);
    let tx = UsbTx::new(core, transfers.longest);
    Ok(OpenFunction { found, status, queue: Queue { rx, tx }.boxed() })
}

/// An address of our own making: locally administered, unicast, and the same for a place as long as the
/// process runs, so that a device that was unplugged keeps its address.
pub(crate) fn random_mac(place: &str) -> [u8; 6] {
    static CHANCE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let chance = CHANCE.hash_one(place).to_be_bytes();
    let [_, _, a, b, c, d, e, f] = chance;
    [a & 0xfc | 0x02, b, c, d, e, f]
}

/// The monotonic clock, for set-up code, servers and deadlines of hardware.
pub(crate) fn monotonic() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}
