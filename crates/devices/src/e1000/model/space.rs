//! The address space of the device: windows of memory at addresses that are no pointers.

use crate::pci::{Coherent, SharedMemory};
use polder_buffers::{Class, Region};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Address of the first memory for descriptors.
const COHERENT: u64 = 0x1000_0000;
/// Address of the packet memory: above 4 GiB, so that the upper halves of addresses are used.
const PACKETS: u64 = 0x2_4000_0000;

/// Part of a memory at a device address.
#[derive(Clone, Debug)]
pub struct Window {
    /// Address of its first byte.
    pub address: u64,
    /// The memory.
    pub memory: Arc<SharedMemory>,
    /// Offset of its first byte in the memory.
    pub first: usize,
    /// Its length in bytes.
    pub bytes: usize,
}

impl Window {
    fn whole(address: u64, memory: Arc<SharedMemory>) -> Self {
        let bytes = memory.bytes().len();
        Self { address, memory, first: 0, bytes }
    }
}

/// Memory that the device can access.
#[derive(Debug, Default)]
pub(super) struct Space {
    windows: Vec<Window>,
}

impl Space {
    pub(super) fn of(windows: Vec<Window>) -> Self {
        Self { windows }
    }

    pub(super) fn coherent(&mut self, bytes: usize) -> Result<Coherent, Errno> {
        let memory = Arc::new(SharedMemory::new(bytes)?);
        let others = self.windows.iter().filter(|window| window.address < PACKETS);
        let address = COHERENT + others.map(|window| window.bytes as u64).sum::<u64>();
        self.windows.push(Window::whole(address, Arc::clone(&memory)));
        Coherent::new(memory, 0, bytes.next_multiple_of(8), address).ok_or(Errno::INVAL)
    }

    /// Maps the packet memory, by a separate mapping.
    pub(super) fn map(&mut self, region: &Region) -> Result<u64, Errno> {
        let file = region.file(Class::Data).try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        let memory = SharedMemory::of_file(file, region.mapped_bytes())?;
        // There is one at a time: that of a closed port is gone.
        self.windows.retain(|window| window.address < PACKETS);
        self.windows.push(Window::whole(PACKETS, Arc::new(memory)));
        Ok(PACKETS)
    }

    /// Returns the memory at an address, and the offset in it, if `length` bytes are mapped.
    fn find(&self, address: u64, length: usize) -> Option<(&SharedMemory, usize)> {
        self.windows.iter().find_map(|window| {
            let inside = usize::try_from(address.checked_sub(window.address)?).ok()?;
            let place = window.first.checked_add(inside)?;
            let end = place.checked_add(length)?;
            let is_there = inside.checked_add(length)? <= window.bytes && end <= window.memory.bytes().len();
            is_there.then_some((&*window.memory, place))
        })
    }

    /// Reads bytes; `None` if the address is unmapped.
    pub(super) fn read(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let (memory, place) = self.find(address, length)?;
        // Relaxed: the doorbell's access has ordered the driver's writes.
        Some(memory.bytes()[place..place + length].iter().map(|byte| byte.load(Ordering::Relaxed)).collect())
    }

    /// Writes bytes; returns `false` if the address is unmapped.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let Some((memory, place)) = self.find(address, bytes.len()) else { return false };
        for (to, &from) in memory.bytes()[place..].iter().zip(bytes) {
            // Relaxed: the word that reports them is stored later, with Release.
            to.store(from, Ordering::Relaxed);
        }
        true
    }

    /// Reads a descriptor.
    pub(super) fn descriptor(&self, address: u64) -> Option<[u64; 2]> {
        let (memory, place) = self.find(address, 16)?;
        // Acquire pairs with the driver's Release store of the second word.
        let word = |index: usize| u64::from_le(memory.words()[place / 8 + index].load(Ordering::Acquire));
        Some([word(0), word(1)])
    }

    /// Writes a word, ordered after all earlier writes.
    pub(super) fn store(&self, address: u64, word: u64) -> bool {
        let Some((memory, place)) = self.find(address, 8) else { return false };
        // Release pairs with the driver's Acquire load of a descriptor's second word.
        memory.words()[place / 8].store(word.to_le(), Ordering::Release);
        true
    }
}
