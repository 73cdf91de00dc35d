//! Memory for URBs: slots of the buffer manager, each large enough for a full transfer (A2).

use super::transport::{Transport, UrbBuffer};
use polder_buffers::{Pool, Region, RegionError, RegionOptions};

/// Minimum memory of a URB in bytes.
const SHORTEST: u32 = 2048;

/// Source of the URBs' memory.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// The pool; `None` with A2 off, when each URB has memory of its own.
    pool: Option<Pool>,
    /// Unused memory from the transport; then there is no pool.
    mapped: Vec<UrbBuffer>,
    is_mapped: bool,
    /// True if memory is allocated when the pool is empty.
    grows: bool,
    bytes: usize,
    /// Number of existing buffers, and of buffers that no transfer uses.
    all: usize,
    free: usize,
}

impl Buffers {
    /// Creates memory for `count` URBs of `bytes`.
    pub(super) fn new(bytes: usize, count: usize, pooled: bool) -> Result<Self, RegionError> {
        let mut buffers =
            Self { pool: None, mapped: Vec::new(), is_mapped: false, grows: false, bytes, all: 0, free: 0 };
        if !pooled {
            return Ok(buffers);
        }
        let slots = u32::try_from(count).unwrap_or(u32::MAX);
        let slot_bytes = u32::try_from(bytes).unwrap_or(u32::MAX).max(SHORTEST).next_power_of_two();
        let region = Region::new(RegionOptions { slots, slot_bytes })?;
        buffers.pool = Some(region.pool());
        (buffers.all, buffers.free) = (count, count);
        Ok(buffers)
    }

    /// Sets if memory is allocated when the pool is empty.
    pub(super) fn growing(self, grows: bool) -> Self {
        Self { grows, ..self }
    }

    /// Uses memory of the transport instead of the pool's, if it has any.
    pub(super) fn map(&mut self, transport: &mut dyn Transport, endpoint: u8, count: usize) {
        if self.pool.is_none() {
            return;
        }
        let mapped: Option<Vec<_>> = (0..count).map(|_| transport.allocate(endpoint, self.bytes)).collect();
        if let Some(mapped) = mapped {
            self.pool = None;
            (self.all, self.free) = (mapped.len(), mapped.len());
            self.mapped = mapped;
            self.is_mapped = true;
        }
    }

    /// Returns memory for one URB that transfers `wanted` bytes; `None` if all is in use.
    pub(super) fn take(&mut self, wanted: usize) -> Option<UrbBuffer> {
        let buffer = match &mut self.pool {
            Some(pool) => pool.take().map(UrbBuffer::Frame),
            None => self.mapped.pop(),
        };
        if buffer.is_some() {
            self.free -= 1;
        } else if self.grows || !self.reuses() {
            // Separately allocated memory lives from here until `give`.
            self.all += 1;
            return Some(UrbBuffer::heap(wanted.min(self.bytes)));
        }
        buffer
    }

    /// Takes memory back.
    pub(super) fn give(&mut self, buffer: UrbBuffer) {
        match (&mut self.pool, buffer) {
            (Some(pool), UrbBuffer::Frame(frame)) => pool.release_frame(frame),
            (None, buffer @ UrbBuffer::Mapped(_)) if self.is_mapped => self.mapped.push(buffer),
            (_, UrbBuffer::Heap(_) | UrbBuffer::Frame(_) | UrbBuffer::Mapped(_)) => {
                self.all -= 1;
                return;
            }
        }
        self.free += 1;
    }

    /// Returns the number of existing buffers, and of unused buffers.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.all, self.free)
    }

    /// True if buffers are reused.
    pub(super) fn reuses(&self) -> bool {
        self.pool.is_some() || self.is_mapped
    }

    /// True if a slot of the pool holds `bytes`.
    pub(super) fn can_serve(&self, bytes: usize) -> bool {
        self.pool.is_some() && self.bytes >= bytes
    }

    /// Returns the bytes of each URB.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// First bit of the place in a URB's identifier.
const PLACE_SHIFT: u32 = 2;

/// Bits of the kind in a URB's identifier.
const KIND_MASK: u32 = (1 << PLACE_SHIFT) - 1;

/// The kind of a URB, in the lower bits of its identifier.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UrbKind {
    Control,
    Interrupt,
    Receive,
    Send,
}

impl UrbKind {
    pub(super) const fn id(self) -> u32 {
        match self {
            Self::Control => 0,
            Self::Interrupt => 1,
            Self::Receive => 2,
            Self::Send => 3,
        }
    }

    /// Returns the identifier of the URB in `place`.
    pub(super) fn at(self, place: usize) -> u32 {
        self.id() | u32::try_from(place).unwrap_or(0) << PLACE_SHIFT
    }

    /// Returns the place of a URB.
    pub(super) const fn place(id: u32) -> usize {
        (id >> PLACE_SHIFT) as usize
    }

    pub(super) const fn of(id: u32) -> Self {
        match id & KIND_MASK {
            0 => Self::Control,
            1 => Self::Interrupt,
            2 => Self::Receive,
            _ => Self::Send,
        }
    }
}
