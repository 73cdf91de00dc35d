//! Common parts of drivers for PCI devices: three interfaces between a driver and its device.
//!
//! | interface | access to |
//! |---|---|
//! | [`Registers`] | a window of 32-bit registers |
//! | [`Dma`] | memory that driver and device share, at I/O addresses |
//! | [`Interrupt`] | one interrupt, as a descriptor that becomes readable |
//!
//! A driver gets a [`Device`] and knows nothing else of the bus. [`vfio`] opens the devices of this machine; a
//! device's model implements the interfaces in this process. An I/O address is never a pointer: the packet memory
//! is mapped once, and a frame's I/O address is that of its region plus its offset there.

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

/// Value of every register of a device that is gone: no device drives the bus.
pub const ALL_ONES: u32 = u32::MAX;

/// A device's register window. Both directions of a port use it at the same time.
pub trait Registers: Send + Sync {
    /// Reads the register at `offset`, a multiple of four. The device's earlier writes to memory are visible
    /// afterwards.
    fn read32(&self, offset: u32) -> u32;

    /// Writes the register at `offset`. The caller's earlier writes to memory are visible to the device once
    /// it sees this write.
    fn write32(&self, offset: u32, value: u32);

    /// Waits, to give the device time.
    fn pause(&self, time: Nanos) {
        std::thread::sleep(core::time::Duration::from_nanos(time.0));
    }
}

/// Memory that driver and device share.
pub trait Dma: Send + Sync {
    /// Allocates at least `bytes` zeroed bytes, at an I/O address that is a multiple of 4096.
    ///
    /// # Errors
    /// [`DmaError`], whose text names the remedy.
    fn coherent(&self, bytes: usize) -> Result<Coherent, DmaError>;

    /// Lets the device access the packet memory until this value is dropped. Returns the I/O address of the
    /// first byte, a multiple of 65 536.
    ///
    /// # Errors
    /// [`DmaError`], whose text names the remedy.
    fn map(&self, region: &Region) -> Result<u64, DmaError>;

    /// True if the bus has refused a transfer of the device since the device was opened.
    fn was_refused(&self) -> bool;
}

/// An interrupt that masks itself when it occurs.
pub trait Interrupt: Send + Sync {
    /// Returns the descriptor that is readable if the interrupt has occurred, or the device is gone.
    fn event(&self) -> BorrowedFd<'_>;

    /// Makes the descriptor unreadable until the next interrupt; returns `true` if it was readable.
    fn acknowledge(&self) -> bool;

    /// Unmasks the interrupt; it occurs at once if the device asserts it.
    fn unmask(&self);
}

/// Access to one device.
#[derive(Clone)]
pub struct Device {
    /// Its registers.
    pub registers: Arc<dyn Registers>,
    /// Memory that it can access.
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
    #[error("cannot allocate {bytes} bytes for the PCI device's rings: {errno}; free memory")]
    Memory {
        /// Requested bytes.
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
    /// The packet memory consists of several files, and only one can be mapped.
    #[error(
        "the device cannot map packet memory that grows, because it consists of several files; use fixed \
         classes"
    )]
    SeveralFiles,
}
