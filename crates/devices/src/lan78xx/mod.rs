//! LAN7800, LAN7801 and LAN7850: USB Ethernet adapters, driven from user space.

pub mod descriptor;
pub mod frame;
pub mod local;
pub mod model;
pub mod regs;
pub mod statistics;
pub mod usb;
pub mod usbip;

use polder_datapath::units::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock, for set-up code, servers and deadlines of hardware.
pub(crate) fn monotonic() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}
