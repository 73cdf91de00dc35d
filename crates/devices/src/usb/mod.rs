//! Common parts of user-space drivers of USB network functions.
//!
//! A driver reaches its device through a [`Transport`]: a USB/IP server ([`usbip`]), a device of this machine
//! ([`usbfs`]), a model in this process (`local`). Frames travel in bulk transfers, several per transfer; all else
//! is control requests and interrupt transfers.
//!
//! | file | contents |
//! |---|---|
//! | `transport` `devices` `usbfs` `usbip` `local` | URBs, and transports to a device |
//! | `descriptor` | USB descriptors |
//! | `identify` | descriptors of a device before a driver has been chosen |
//! | `function` | the parts that a driver provides: dialogue, reader, writer |
//! | `settings` | settings of a port, and reasons why it cannot be opened |
//! | `control` `task` `tasks` | endpoint 0, one request at a time |
//! | `rx` `incoming` `tx` `sending` `packed` `port` `urbs` | frames, transfers, state of both directions |
//! | `status` | published status of a port |
//! | `model` | interface of models, and a device whose wire is a port |
//!
//! Techniques of source A, each with a switch in [`Techniques`]: work in the worker's turn within its budget (A1),
//! URB memory from the buffer manager (A2), the pending queue (A3), resubmission in the cycle (A4), the overflow
//! queue (A5). Packets carry no private header (A6). Control requests and notifications have memory of their own
//! and are handled before received data (C3).

pub mod descriptor;
mod transport;

pub(crate) mod control;
mod devices;
pub(crate) mod function;
mod identify;
mod incoming;
mod packed;
mod port;
mod rx;
mod sending;
mod settings;
pub(crate) mod status;
mod task;
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
pub use settings::{OpenError, Techniques};
pub(crate) use settings::{Settings, urbs_within};
pub use status::{Connection, PortStatus, UrbMemory};
pub use transport::{ClaimError, Completion, Setup, Speed, Status, Transport, Urb, UrbBuffer};

use crate::{AnyQueue, Queue};
use function::Function;
use polder_datapath::units::Nanos;
use port::Core;
use rustix::time::{ClockId, clock_gettime};
use rx::UsbRx;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};
use tx::{SharedCore, UsbTx};

/// Bytes of an Ethernet header and a tag.
pub(crate) const HEADERS: u16 = 14 + 4;
/// The smallest MTU.
pub(crate) const SMALLEST_MTU: u16 = 68;

/// A port of a function that is up.
pub(crate) struct OpenFunction<F: Function> {
    pub(crate) found: F::DeviceProperties,
    pub(crate) status: Arc<PortStatus<F::Status>>,
    pub(crate) queue: AnyQueue,
}

/// Brings up the device behind `transport`. Frames are taken from the pools that the queue is polled with.
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

/// Returns a generated MAC address: locally administered, unicast, and constant per port while the process
/// runs, so that a replugged device keeps its address.
pub(crate) fn random_mac(place: &str) -> [u8; 6] {
    static CHANCE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let chance = CHANCE.hash_one(place).to_be_bytes();
    let [_, _, a, b, c, d, e, f] = chance;
    [a & 0xfc | 0x02, b, c, d, e, f]
}

/// Returns the monotonic time, for set-up code, servers and deadlines of hardware.
pub(crate) fn monotonic() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}
