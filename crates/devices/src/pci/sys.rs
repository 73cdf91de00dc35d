//! Mapping of a memory file that others write too; the functions that this file exports are safe to call.
#![expect(unsafe_code, reason = "UNSAFETY: memory shared with a device")]

use core::ptr::NonNull;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64};

/// A mapped memory file. Every access is atomic, so it is defined whatever another writer does, at any time.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    length: usize,
    file: OwnedFd,
}

// SAFETY: the pointer leads into the mapping, which lives as long as the value, and is read through shared
// references to atomics alone, which any thread may use.
unsafe impl Send for SharedMemory {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Creates a file of `length` zero bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// Error of the system.
    pub fn new(length: usize) -> Result<Self, Errno> {
        let length = length.max(1).next_multiple_of(rustix::param::page_size());
        let file = rustix::fs::memfd_create("polder-dma", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, length as u64)?;
        Self::of_file(file, length)
    }

    /// Maps the first `length` bytes of a file.
    ///
    /// # Errors
    /// Error of the system; `INVAL` for a shorter file.
    pub fn of_file(file: OwnedFd, length: usize) -> Result<Self, Errno> {
        let has = rustix::fs::fstat(&file)?.st_size;
        if usize::try_from(has).map_or(true, |has| has < length) || length == 0 {
            return Err(Errno::INVAL);
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: (1) a null hint without MAP_FIXED never replaces a mapping that exists (mmap(2)).
        let base = unsafe {
            rustix::mm::mmap(core::ptr::null_mut(), length, protection, MapFlags::SHARED, &file, 0)
        }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, length, file })
    }

    /// Returns the memory as bytes.
    #[inline]
    pub fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: (1) `of_file` mapped `length` bytes at `base`; (2) they stay mapped as long as `self`; (3) all
        // access from this process is atomic, and no byte pattern is invalid.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr().cast(), self.length) }
    }

    /// Returns the memory as words of 64 bits.
    #[inline(always)]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: as for `bytes`; a mapping begins at a page, so words are aligned.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr().cast(), self.length / 8) }
    }

    /// Returns the address of the first byte, to map it for a device.
    pub fn address(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns the file, to share it with another process.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: (1) `of_file` made exactly this mapping; (2) its owner is being dropped, and with it every
        // reference into it.
        let result = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
        debug_assert!(result.is_ok(), "munmap of a mapping of our own");
    }
}
