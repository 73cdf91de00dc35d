//! State shared by both ends of a port: access to the device, the mapped memory, the end reason.

use super::access::Access;
use super::init;
use super::status::{End, PortStatus};
use crate::pci::{Dma, Interrupt};
use polder_buffers::{Frame, Region};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// State shared by both ends.
pub(super) struct Core {
    pub(super) access: Access,
    pub(super) interrupt: Arc<dyn Interrupt>,
    pub(super) status: Arc<PortStatus>,
    /// The packet memory, and its I/O address.
    pub(super) region: Region,
    pub(super) base: u64,
    closed: AtomicBool,
    /// Frames that the device may use until it has been reset.
    left: Mutex<Vec<Frame>>,
    /// Last, so that memory is unmapped after the device was reset.
    _dma: Arc<dyn Dma>,
}

impl core::fmt::Debug for Core {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Core").finish_non_exhaustive()
    }
}

impl Core {
    pub(super) fn new(
        (access, interrupt, dma): (Access, Arc<dyn Interrupt>, Arc<dyn Dma>),
        (region, base): (Region, u64),
    ) -> Self {
        let (closed, left) = (AtomicBool::new(false), Mutex::default());
        Self { access, interrupt, status: Arc::default(), region, base, closed, left, _dma: dma }
    }

    /// True if the device is gone or faulty.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        // Relaxed: each end detects a dead device itself; the flag orders nothing.
        self.closed.load(Ordering::Relaxed)
    }

    /// Closes the port: the device is told to stop, and its data is ignored from here on.
    #[cold]
    pub(super) fn close(&self, end: End) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.status.set_closed(end);
            init::stop(&self.access);
        }
    }

    /// Closes the port if the device does not answer.
    #[cold]
    pub(super) fn look_for_end(&self) {
        if self.access.is_gone() {
            self.close(End::Gone);
        }
    }

    /// Takes over frames that the device may still use.
    pub(super) fn leave(&self, frames: impl Iterator<Item = Frame>) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).extend(frames);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        init::stop(&self.access);
        // If the reset fails, dropping the device's access, which comes last, cuts it off from memory.
        let (Ok(()) | Err(_)) = self.access.reset();
        let mut frames = core::mem::take(self.left.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.region.pool().release_bulk(&mut frames);
    }
}
