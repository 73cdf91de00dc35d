//! Common ground of drivers for PCI devices: three seams between a driver and the way to its device.
//!
//! | seam | what is behind it |
//! |---|---|
//! | [`Registers`] | a window of 32-bit registers |
//! | [`Dma`] | memory that driver and device share, under addresses of the device's own |
//! | [`Interrupt`] | one interrupt, as a descriptor that becomes readable |
//!
//! A driver is given a [`Device`] and knows no more of the bus. [`vfio`] has the devices of this machine; the model of a
//! device implements the seams in this process. An I/O address is never a pointer: the packet memory is
//! mapped once, and a frame's address is that of its region plus its offset there.

pub mod vfio;

mod address;
mod coherent;
mod sys;

pub use address::{Address, NoAddress};
pub use coherent::Coherent;
pub use sys::SharedMemory;

use polder_buffers::Region;
use polder_datapath::units::Nanos;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Value of every register of a device that is gone: nobody drives the bus.
pub const ALL_ONES: u32 = u32::MAX;

/// A device's window of registers. Both directions of a port use it at once.
pub trait Registers: Send + Sync {
    /// Reads the register at `offset`, a multiple of four. What the device wrote to memory before it answered is
    /// visible afterwards.
    fn read32(&self, offset: u32) -> u32;

    /// Writes the register at `offset`. What the caller wrote to memory before is visible to the device when it
    /// sees the write.
    fn write32(&self, offset: u32, value: u32);

    /// Gives the device time for something that it does by itself.
    fn pause(&self, time: Nanos) {
        std::thread::sleep(core::time::Duration::from_nanos(time.0));
    }
}

/// Memory that driver and device share.
pub trait Dma: Send + Sync {
    /// Makes at least `bytes` bytes of zeros, at an I/O address that is a multiple of 4096.
    ///
    /// # Errors
    /// [`DmaError`] says what to do next.
    fn coherent(&self, bytes: usize) -> Result<Coherent, DmaError>;

    /// Lets the device reach the packet memory, as long as this value lives. Returns the I/O address of its first
    /// byte, a multiple of 65 536.
    ///
    /// # Errors
    /// [`DmaError`] says what to do next.
    fn map(&self, region: &Region) -> Result<u64, DmaError>;

    /// True if the bus tells that a transfer of the device has been refused since this way to it was opened.
    fn was_refused(&self) -> bool;
}

/// An interrupt that masks itself when it comes.
pub trait Interrupt: Send + Sync {
    /// Descriptor that is readable when the interrupt has come, or the device has gone.
    fn event(&self) -> BorrowedFd<'_>;

    /// Makes the descriptor unreadable until the interrupt comes again; `true` if it was readable.
    fn acknowledge(&self) -> bool;

    /// Lets the interrupt come; at once if the device asserts it.
    fn unmask(&self);
}

/// The way to one device.
#[derive(Clone)]
pub struct Device {
    /// Its registers.
    pub registers: Arc<dyn Registers>,
    /// Memory that it reaches.
    pub dma: Arc<dyn Dma>,
    /// Its interrupt.
    pub interrupt: Arc<dyn Interrupt>,
}

impl core::fmt::Debug for Device {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Device").finish_non_exhaustive()
    }
}

/// Reason why a device cannot share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmaError {
    /// No memory for descriptors.
    #[error("no memory of {bytes} bytes for the device's rings: {errno}; free memory")]
    Memory {
        /// Bytes that were asked for.
        bytes: usize,
        /// Error of the system.
        errno: Errno,
    },
    /// The packet memory cannot be pinned or mapped.
    #[error(
        "cannot map {bytes} bytes of packet memory for the device: {errno}; raise RLIMIT_MEMLOCK (in systemd \
         LimitMEMLOCK=) or lower the memory setting"
    )]
    Map {
        /// Bytes of the region.
        bytes: usize,
        /// Error of the system.
        errno: Errno,
    },
    /// The packet memory is of several files, and the way to the device maps one.
    #[error(
        "packet memory whose classes grow is of several files, which this device cannot map; use fixed classes"
    )]
    SeveralFiles,
}
