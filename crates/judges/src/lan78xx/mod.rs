//! The model of a LAN78xx USB Ethernet adapter, shown to the kernel and measured with our driver.

pub mod device;
pub mod forward;
pub mod joined;
pub mod judge;
pub mod listen;
mod station;
mod trunk;

pub use crate::usb::Door;
pub use device::{Shown, Wire};
pub use listen::Listen;
