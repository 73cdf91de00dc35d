//! Memory for URBs: slots of the buffer manager, each large enough for a full transfer (A2).

use super::usb::{Speed, UrbBuffer};
use polder_buffers::{Pool, Region, RegionError, RegionOptions};

/// Bytes of a full transfer.
pub(super) const fn transfer_bytes(speed: Speed) -> usize {
    match speed {
        Speed::High => 16 * 1024,
        Speed::Super => 32 * 1024,
    }
}

/// Where the memory of URBs comes from and goes to.
#[derive(Debug)]
pub(super) struct Buffers {
    /// The pool, unless A2 is off: then every URB has memory of its own, for its life.
    pool: Option<Pool>,
    bytes: usize,
}

impl Buffers {
    /// Memory for `count` URBs of `speed`.
    pub(super) fn new(speed: Speed, count: usize, pooled: bool) -> Result<Self, RegionError> {
        let bytes = transfer_bytes(speed);
        if !pooled {
            return Ok(Self { pool: None, bytes });
        }
        let slots = u32::try_from(count).unwrap_or(u32::MAX);
        let slot_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let region = Region::new(RegionOptions { slots, slot_bytes })?;
        Ok(Self { pool: Some(region.pool()), bytes })
    }

    /// Memory for one URB; `None` when all is in use.
    pub(super) fn take(&mut self) -> Option<UrbBuffer> {
        match &mut self.pool {
            Some(pool) => pool.take().map(UrbBuffer::Frame),
            None => Some(UrbBuffer::heap(self.bytes)),
        }
    }

    /// Takes memory back.
    pub(super) fn give(&mut self, buffer: UrbBuffer) {
        if let (Some(pool), UrbBuffer::Frame(frame)) = (&mut self.pool, buffer) {
            pool.release_frame(frame);
        }
    }

    /// Whether the same memory serves the next URB.
    pub(super) fn reuses(&self) -> bool {
        self.pool.is_some()
    }

    /// Bytes of each URB.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
