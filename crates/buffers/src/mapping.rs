//! Memory from the system: mapped, loaded ahead of use, returned.

use core::ops::Range;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Size of a large page in bytes; mappings are rounded up to it if large pages are used.
const LARGE_PAGE: usize = 2 << 20;

/// Creates an empty vector with room for `count` elements, on large pages if it fills some and the system
/// provides them: random accesses to a large table otherwise cost more in TLB misses than in cache misses.
///
/// Cost: an allocation from the system. A large page is allocated whole, at the first write to it.
#[expect(unsafe_code, reason = "UNSAFETY: advice on memory that nobody has used yet")]
pub fn large_vec<T>(count: usize) -> Vec<T> {
    let mut vector = Vec::<T>::with_capacity(count);
    let room = vector.spare_capacity_mut();
    let (start, bytes) = (room.as_mut_ptr().cast::<u8>(), size_of_val(room));
    // Only whole pages inside the vector; the rest of a page belongs to other allocations.
    let before = start.addr().next_multiple_of(LARGE_PAGE) - start.addr();
    let inside = bytes.saturating_sub(before) / LARGE_PAGE * LARGE_PAGE;
    if inside > 0 {
        // SAFETY: fewer bytes than the vector's capacity has.
        let first = unsafe { start.add(before) };
        // SAFETY: (1) the pages lie within the vector's capacity; (2) the advice changes neither what they
        // hold nor what may be done with them (madvise(2)), only how the system backs them.
        let advised = unsafe { rustix::mm::madvise(first.cast(), inside, Advice::LinuxHugepage) };
        // Without large pages the table is merely slower.
        let (Ok(()) | Err(_)) = advised;
    }
    vector
}

/// A mapping of consecutive memory files, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Memory {
    base: AtomicPtr<u8>,
    bytes: usize,
    /// Unit in bytes in which memory is loaded and returned.
    page_bytes: usize,
    large_pages: bool,
    /// Files in order, each with the offset of its first byte.
    files: Vec<(usize, OwnedFd)>,
    /// True if loading must fail, to simulate a system without memory.
    is_short: AtomicBool,
}

impl Memory {
    /// Maps at least `bytes` bytes; on 2 MiB pages if the system has free ones. `page_bytes`, here and below,
    /// is a multiple of the system's page size.
    pub(crate) fn map(bytes: usize, page_bytes: usize) -> Result<Self, Errno> {
        let large = bytes.next_multiple_of(LARGE_PAGE);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        if bytes >= LARGE_PAGE
            && let Ok(mut memory) = Self::map_file(large, page_bytes, flags)
        {
            memory.large_pages = true;
            return Ok(memory);
        }
        Self::map_pages(bytes, page_bytes)
    }

    /// Maps at least `bytes` bytes on ordinary pages, so that each can be loaded and returned.
    pub(crate) fn map_pages(bytes: usize, page_bytes: usize) -> Result<Self, Errno> {
        Self::map_file(bytes.next_multiple_of(page_bytes), page_bytes, MemfdFlags::CLOEXEC)
    }

    #[expect(unsafe_code, reason = "UNSAFETY: mapping memory")]
    fn map_file(bytes: usize, page_bytes: usize, flags: MemfdFlags) -> Result<Self, Errno> {
        let file = file_of(bytes, flags)?;
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
        let files = vec![(0, file)];
        Ok(Self { base, bytes, page_bytes, large_pages: false, files, is_short: AtomicBool::new(false) })
    }

    /// Maps consecutive parts of these sizes, rounded up to whole pages, on ordinary pages. Each part is a
    /// file of its own: the system locks a file while pages are returned, and loading pages of another file
    /// does not wait for that.
    #[expect(unsafe_code, reason = "UNSAFETY: mapping memory")]
    pub(crate) fn map_parts(parts: [usize; 2], page_bytes: usize) -> Result<Self, Errno> {
        let parts = parts.map(|bytes| bytes.next_multiple_of(page_bytes));
        let bytes = parts.iter().sum();
        let reserved = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a null hint without MAP_FIXED never replaces a mapping that exists (mmap(2)).
        let base = unsafe {
            rustix::mm::mmap_anonymous(core::ptr::null_mut(), bytes, ProtFlags::empty(), reserved)
        }?;
        let base = AtomicPtr::new(base.cast());
        let files = Vec::with_capacity(parts.len());
        let is_short = AtomicBool::new(false);
        // From here on a failure unmaps the reservation.
        let mut memory = Self { base, bytes, page_bytes, large_pages: false, files, is_short };
        let mut start = 0;
        for bytes in parts.into_iter().filter(|&bytes| bytes > 0) {
            let file = file_of(bytes, MemfdFlags::CLOEXEC)?;
            let (access, how) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
            // SAFETY: (1) `start` is the sum of the parts before this one, so the part ends within the bytes
            // that were reserved above at `base`.
            let place = unsafe { memory.base().add(start) };
            // SAFETY: (1), so MAP_FIXED replaces nothing but a part of the reservation; (2) nobody has a
            // reference into it yet: it was made in this function and has no access.
            unsafe { rustix::mm::mmap(place.cast(), bytes, access, how, &file, 0) }?;
            memory.files.push((start, file));
            start += bytes;
        }
        Ok(memory)
    }

    /// Address of the first byte. A caller that makes references from it must keep this value alive.
    pub(crate) fn base(&self) -> *mut u8 {
        // Relaxed: written once, before the value was shared.
        self.base.load(Ordering::Relaxed)
    }

    /// Size of the mapping in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Unit in bytes in which memory is loaded and returned.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// True if the mapping is on 2 MiB pages.
    pub(crate) fn on_large_pages(&self) -> bool {
        self.large_pages
    }

    /// File of the byte at offset `place`.
    ///
    /// # Panics
    /// If the mapping is empty.
    pub(crate) fn file(&self, place: usize) -> BorrowedFd<'_> {
        self.file_at(place).1
    }

    /// True if one file backs the whole mapping.
    pub(crate) fn has_one_file(&self) -> bool {
        self.files.len() < 2
    }

    /// File of the byte at offset `place`, and the file's start offset.
    fn file_at(&self, place: usize) -> (usize, BorrowedFd<'_>) {
        let at = self.files.iter().rev().find(|&&(start, _)| start <= place);
        let (start, file) = at.expect("the first file begins at the first byte");
        (*start, file.as_fd())
    }

    /// Makes loading fail or work again.
    pub(crate) fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Relaxed);
    }

    /// Loads pages for `range`, so that its first user does not fault. Contents are not changed; new pages
    /// are zero. The last page may be partial.
    ///
    /// # Errors
    /// `INVAL` if the range does not begin at a page, as the system returns.
    ///
    /// # Panics
    /// If the range exceeds the mapping.
    #[expect(unsafe_code, reason = "UNSAFETY: advice on memory that may be in use")]
    pub(crate) fn bring_in(&self, range: Range<usize>) -> Result<(), Errno> {
        assert!(range.start <= range.end && range.end <= self.bytes, "a range of the mapping");
        if self.is_short.load(Ordering::Relaxed) {
            return Err(Errno::NOMEM);
        }
        if !range.start.is_multiple_of(self.page_bytes) {
            return Err(Errno::INVAL);
        }
        // SAFETY: (1) asserted above: the sum stays inside the one mapping that starts at `base`.
        let start = unsafe { self.base().add(range.start) };
        // SAFETY: (1) again; (2) MADV_POPULATE_WRITE faults pages in without changing their content
        // (madvise(2)), so nobody who reads or writes them sees a difference.
        unsafe { rustix::mm::madvise(start.cast(), range.len(), Advice::LinuxPopulateWrite) }
    }

    /// Returns the pages of `range` to the system. Its bytes read as zero afterwards, so the caller must own
    /// every slot in it. The range must be within one file.
    ///
    /// # Errors
    /// `INVAL` if the range has a partial page: the system would only zero that part and keep the page.
    pub(crate) fn give_back(&self, range: Range<usize>) -> Result<(), Errno> {
        if [range.start, range.end].iter().any(|place| !place.is_multiple_of(self.page_bytes)) {
            return Err(Errno::INVAL);
        }
        let (start, file) = self.file_at(range.start);
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(file, how, (range.start - start) as u64, range.len() as u64)
    }
}

impl Drop for Memory {
    #[expect(unsafe_code, reason = "UNSAFETY: unmapping memory")]
    fn drop(&mut self) {
        // SAFETY: (1) `map_file` or `map_parts` made exactly this mapping; (2) no reference into it is left: they are
        // made from frames alone, through a control block that holds this value (`table::locate`).
        let result = unsafe { rustix::mm::munmap(self.base().cast(), self.bytes) };
        debug_assert!(result.is_ok(), "munmap of a mapping of our own");
    }
}

/// Creates a memory file of `bytes` bytes.
fn file_of(bytes: usize, flags: MemfdFlags) -> Result<OwnedFd, Errno> {
    let file = rustix::fs::memfd_create("polder-region", flags)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    Ok(file)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::emulated::brings_memory_in;
    use crate::region::page_sizes;

    fn committed(memory: &Memory, place: usize) -> u64 {
        let status = rustix::fs::fstat(memory.file(place)).expect("the file is open");
        u64::try_from(status.st_blocks).expect("a count of 512 bytes") * 512
    }

    #[test]
    fn parts_have_files_of_their_own() {
        if !brings_memory_in("parts_have_files_of_their_own") {
            return;
        }
        for page in page_sizes() {
            let memory = Memory::map_parts([2 * page, 3 * page], page).expect("memory for a test");
            memory.bring_in(page..4 * page).expect("memory for a test");
            let pages = |place| committed(&memory, place) / page as u64;
            assert_eq!([pages(0), pages(2 * page), pages(4 * page)], [1, 2, 2]);
            memory.give_back(3 * page..4 * page).expect("a hole in the second file");
            assert_eq!([pages(0), pages(2 * page)], [1, 1]);
            memory.give_back(page..2 * page).expect("a hole in the first file");
            assert_eq!([pages(0), pages(2 * page)], [0, 1]);
            let second = Memory::map_parts([0, page], page).expect("memory for a test");
            second.bring_in(0..page).expect("memory for a test");
            assert_eq!(committed(&second, 0), page as u64);
        }
    }

    #[test]
    fn parts_of_pages_are_refused() {
        for page in page_sizes() {
            let memory = Memory::map_pages(2 * page + 1, page).expect("memory for a test");
            assert_eq!(memory.bytes(), 3 * page);
            for part in [1..page, page / 2..page, page..2 * page - 64] {
                assert_eq!(memory.give_back(part), Err(Errno::INVAL));
            }
            assert_eq!(memory.bring_in(page / 2..2 * page), Err(Errno::INVAL));
            memory.bring_in(page..2 * page + 64).expect("the last page need not be whole");
        }
    }
}
