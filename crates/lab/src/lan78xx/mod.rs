//! The model of a LAN78xx USB Ethernet adapter, shown to the kernel and measured with our driver.

pub mod device;
pub mod forward;
pub mod joined;
pub mod judge;
mod trunk;

pub use device::{Door, Shown, Wire};

use anyhow::Context as _;
use polder_buffers::{Region, RegionOptions};
use polder_devices::lan78xx::usbfs::Usbfs;
use polder_devices::{Queue, lan78xx, tap};

/// Drives the adapter at a USB port of this machine and joins it to a TAP, until it is unplugged.
///
/// # Errors
/// When the adapter cannot be opened, or the TAP cannot be made.
pub fn usb_port(place: &str, name: &str) -> anyhow::Result<()> {
    let region = Region::new(RegionOptions { slots: 4096, slot_bytes: 2048 })?;
    let port = lan78xx::open(Box::new(Usbfs::open(place)?), &lan78xx::Options::default())?;
    let options = tap::Options { offloads: tap::Offloads::None, ..tap::Options::new(name) };
    let tap = tap::open(&options, &region)?;
    let stack = tap.queues.into_iter().next().map(Queue::boxed).context("a TAP has a queue")?;
    forward::Forwarder::start(port.queue.boxed(), stack, region.pool())?.join();
    Ok(())
}
