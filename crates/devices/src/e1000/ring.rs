//! A ring of descriptors, in memory that the device writes.

use super::desc::DESCRIPTOR_BYTES;
use crate::pci::Coherent;

/// Descriptors of one direction. The device owns those from its head up to the tail; one always stays free,
/// because a tail equal to the head means an empty ring (3.2.6, 3.4).
#[derive(Debug)]
pub(super) struct Ring {
    memory: Coherent,
    mask: usize,
}

impl Ring {
    /// Returns a ring of `count` descriptors in `memory`; `None` if they do not fit, or `count` is no power
    /// of two.
    pub(super) fn new(memory: Coherent, count: u16) -> Option<Self> {
        let count = usize::from(count);
        let fits = count * DESCRIPTOR_BYTES / 8 <= memory.words();
        (fits && count.is_power_of_two() && count >= 8).then(|| Self { memory, mask: count - 1 })
    }

    /// Returns the number of descriptors.
    pub(super) fn len(&self) -> usize {
        self.mask + 1
    }

    /// Returns the I/O address of the first descriptor.
    pub(super) fn io_address(&self) -> u64 {
        self.memory.io_address()
    }

    /// Returns the index after `place`.
    #[inline(always)]
    pub(super) fn after(&self, place: usize) -> usize {
        (place + 1) & self.mask
    }

    /// Returns the index before `place`.
    #[inline(always)]
    pub(super) fn before(&self, place: usize) -> usize {
        place.wrapping_sub(1) & self.mask
    }

    /// Returns the current second word of a descriptor.
    #[inline(always)]
    pub(super) fn second(&self, place: usize) -> u64 {
        self.memory.load(2 * (place & self.mask) + 1)
    }

    /// Writes both words of a descriptor, the second one last.
    #[inline(always)]
    pub(super) fn put(&self, place: usize, [first, second]: [u64; 2]) {
        let place = place & self.mask;
        self.memory.store(2 * place, first);
        self.memory.store(2 * place + 1, second);
    }

    /// Writes the second word of a descriptor.
    #[inline(always)]
    pub(super) fn put_second(&self, place: usize, second: u64) {
        self.memory.store(2 * (place & self.mask) + 1, second);
    }
}
