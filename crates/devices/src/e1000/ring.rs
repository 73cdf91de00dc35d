//! A ring of descriptors: a power of two of them, in memory that the device writes.

use super::desc::DESCRIPTOR_BYTES;
use crate::pci::Coherent;

/// Descriptors of one direction. The device has those from its head up to the tail; one always stays free, because
/// a tail that is equal to the head means that it has none (3.2.6, 3.4).
#[derive(Debug)]
pub(super) struct Ring {
    memory: Coherent,
    mask: usize,
}

impl Ring {
    /// The ring in `memory`, of `count` descriptors; `None` when they do not fit or are no power of two.
    pub(super) fn new(memory: Coherent, count: u16) -> Option<Self> {
        let count = usize::from(count);
        let fits = count * DESCRIPTOR_BYTES / 8 <= memory.words();
        (fits && count.is_power_of_two() && count >= 8).then(|| Self { memory, mask: count - 1 })
    }

    /// Number of descriptors.
    pub(super) fn len(&self) -> usize {
        self.mask + 1
    }

    /// I/O address of the first descriptor.
    pub(super) fn io_address(&self) -> u64 {
        self.memory.io_address()
    }

    /// The place behind `place`.
    #[inline(always)]
    pub(super) fn after(&self, place: usize) -> usize {
        (place + 1) & self.mask
    }

    /// The place before `place`.
    #[inline(always)]
    pub(super) fn before(&self, place: usize) -> usize {
        place.wrapping_sub(1) & self.mask
    }

    /// Second word of a descriptor, as it is at this moment.
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
