//! The model of a LAN78xx USB Ethernet adapter, shown to the kernel and measured with our driver.

pub mod device;
pub mod judge;
mod trunk;

pub use device::{Shown, Wire};
