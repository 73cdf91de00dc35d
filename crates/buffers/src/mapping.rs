//! Memory from the system: mapped, brought in ahead of its use, given back.

use core::ops::Range;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The size of a large page; mappings are rounded up to it when large pages are used.
const LARGE_PAGE: usize = 2 << 20;

/// A mapping of a memory file, unmapped when it is dropped.
#[derive(Debug)]
pub(crate) struct Memory {
    base: AtomicPtr<u8>,
    bytes: usize,
    large_pages: bool,
    file: OwnedFd,
    /// Whether bringing in fails, as it does on a system without memory.
    is_short: AtomicBool,
}

impl Memory {
    /// Maps at least `bytes`; on 2 MiB pages when the system has them to spare.
    pub(crate) fn map(bytes: usize) -> Result<Self, Errno> {
        let large = bytes.next_multiple_of(LARGE_PAGE);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        if bytes >= LARGE_PAGE
            && let Ok(mut memory) = Self::map_file(large, flags)
        {
            memory.large_pages = true;
            return Ok(memory);
        }
        Self::map_pages(bytes)
    }

    /// Maps at least `bytes` on ordinary pages, so that each of them can be brought in and given back.
    pub(crate) fn map_pages(bytes: usize) -> Result<Self, Errno> {
        Self::map_file(bytes.next_multiple_of(rustix::param::page_size()), MemfdFlags::CLOEXEC)
    }

    #[expect(unsafe_code, reason = "UNSAFETY: mapping memory")]
    fn map_file(bytes: usize, flags: MemfdFlags) -> Result<Self, Errno> {
        let file = rustix::fs::memfd_create("polder-region", flags)?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        // SAFETY: a null hint without MAP_FIXED never replaces a mapping that exists (mmap(2)).
        let base = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        let base = AtomicPtr::new(base.cast());
        Ok(Self { base, bytes, large_pages: false, file, is_short: AtomicBool::new(false) })
    }

    /// The first byte. Whoever makes references from it holds this value as long as they live.
    pub(crate) fn base(&self) -> *mut u8 {
        // Relaxed: written once, before the value was shared.
        self.base.load(Ordering::Relaxed)
    }

    /// Bytes of the mapping.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is on 2 MiB pages.
    pub(crate) fn on_large_pages(&self) -> bool {
        self.large_pages
    }

    /// The file behind it.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Makes bringing in fail from here on, or work again.
    pub(crate) fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Relaxed);
    }

    /// Puts pages behind `range`, so that its first user does not fault. Their bytes are not changed;
    /// those of a page that is new are zeros.
    ///
    /// # Panics
    /// When the range does not lie within the mapping.
    #[expect(unsafe_code, reason = "UNSAFETY: advice on memory that may be in use")]
    pub(crate) fn bring_in(&self, range: Range<usize>) -> Result<(), Errno> {
        assert!(range.start <= range.end && range.end <= self.bytes, "a range of the mapping");
        if self.is_short.load(Ordering::Relaxed) {
            return Err(Errno::NOMEM);
        }
        // SAFETY: (1) asserted above: the sum stays inside the one mapping that starts at `base`.
        let start = unsafe { self.base().add(range.start) };
        // SAFETY: (1) again; (2) MADV_POPULATE_WRITE faults pages in without changing their content
        // (madvise(2)), so nobody who reads or writes them sees a difference.
        unsafe { rustix::mm::madvise(start.cast(), range.len(), Advice::LinuxPopulateWrite) }
    }

    /// Gives the pages behind `range` back to the system. Its bytes read as zeros from then on, so the
    /// caller owns every slot in it.
    pub(crate) fn give_back(&self, range: Range<usize>) -> Result<(), Errno> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.file, how, range.start as u64, range.len() as u64)
    }
}

impl Drop for Memory {
    #[expect(unsafe_code, reason = "UNSAFETY: unmapping memory")]
    fn drop(&mut self) {
        // SAFETY: (1) `map_file` made exactly this mapping; (2) no reference into it is left: they are
        // made from frames alone, through a control block that holds this value (`table::locate`).
        let result = unsafe { rustix::mm::munmap(self.base().cast(), self.bytes) };
        debug_assert!(result.is_ok(), "munmap of a mapping of our own");
    }
}
