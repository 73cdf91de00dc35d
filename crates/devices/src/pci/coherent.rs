//! Memory for descriptor rings.

use super::SharedMemory;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Part of shared memory that driver and device access, in words of 64 bits, which both may write.
#[derive(Clone, Debug)]
pub struct Coherent {
    memory: Arc<SharedMemory>,
    first: usize,
    count: usize,
    io_address: u64,
}

impl Coherent {
    /// Returns the `bytes` bytes of `memory` from `start`, whose device address is `io_address`; `None` if
    /// they are outside, or not whole words.
    pub fn new(memory: Arc<SharedMemory>, start: usize, bytes: usize, io_address: u64) -> Option<Self> {
        let end = start.checked_add(bytes)?;
        let is_whole = start.is_multiple_of(8) && bytes.is_multiple_of(8) && end <= memory.bytes().len();
        is_whole.then_some(Self { memory, first: start / 8, count: bytes / 8, io_address })
    }

    /// Returns the number of words.
    pub fn words(&self) -> usize {
        self.count
    }

    /// Returns the device address of the first byte.
    pub fn io_address(&self) -> u64 {
        self.io_address
    }

    /// Returns the current value of word `index`.
    ///
    /// # Panics
    /// If there is no such word.
    #[inline(always)]
    pub fn load(&self, index: usize) -> u64 {
        assert!(index < self.count, "a word of this piece");
        // Acquire pairs with the device's order of writes: its writes before this word are visible
        // afterwards.
        u64::from_le(self.memory.words()[self.first + index].load(Ordering::Acquire))
    }

    /// Sets word `index`.
    ///
    /// # Panics
    /// If there is no such word.
    #[inline(always)]
    pub fn store(&self, index: usize, value: u64) {
        assert!(index < self.count, "a word of this piece");
        // Release pairs with the device's read, which follows the doorbell (`Registers::write32`).
        self.memory.words()[self.first + index].store(value.to_le(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_lies_in_its_memory() {
        let memory = Arc::new(SharedMemory::new(4096).expect("a page"));
        assert!(Coherent::new(Arc::clone(&memory), 4096 - 8, 16, 0).is_none());
        assert!(Coherent::new(Arc::clone(&memory), 4, 8, 0).is_none());
        let piece = Coherent::new(Arc::clone(&memory), 16, 32, 0x1000).expect("inside");
        piece.store(1, 0x0102_0304_0506_0708);
        assert_eq!(piece.load(1), 0x0102_0304_0506_0708);
        assert_eq!(memory.bytes()[16 + 8].load(Ordering::Relaxed), 8, "little-endian, as PCI is");
        assert_eq!((piece.words(), piece.io_address()), (4, 0x1000));
    }
}
