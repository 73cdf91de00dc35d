//! Memory from the system.

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::OwnedFd;

/// The size of a large page; mappings are rounded up to it when large pages are used.
const LARGE_PAGE: usize = 2 << 20;

/// A fresh mapping of a memory file. It stays until [`unmap`] is called.
pub(crate) struct Mapping {
    pub(crate) base: *mut u8,
    pub(crate) bytes: usize,
    pub(crate) large_pages: bool,
    pub(crate) file: OwnedFd,
}

/// Maps at least `bytes`; on 2 MiB pages when the system has them to spare.
pub(crate) fn map(bytes: usize) -> Result<Mapping, rustix::io::Errno> {
    let large = bytes.next_multiple_of(LARGE_PAGE);
    if bytes >= LARGE_PAGE
        && let Ok(mapping) = map_file(large, MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB)
    {
        return Ok(Mapping { large_pages: true, ..mapping });
    }
    map_ordinary(bytes)
}

/// Maps at least `bytes` on ordinary pages, so that each of them can be given back.
pub(crate) fn map_ordinary(bytes: usize) -> Result<Mapping, rustix::io::Errno> {
    map_file(bytes.next_multiple_of(rustix::param::page_size()), MemfdFlags::CLOEXEC)
}

#[expect(unsafe_code, reason = "UNSAFETY: mapping memory")]
fn map_file(bytes: usize, flags: MemfdFlags) -> Result<Mapping, rustix::io::Errno> {
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
    Ok(Mapping { base: base.cast(), bytes, large_pages: false, file })
}

/// Ends a mapping.
///
/// # Safety
/// (1) `base` and `bytes` are those of a [`Mapping`] that was not unmapped before; (2) no reference
/// into it is left, and none will be made.
#[expect(unsafe_code, reason = "UNSAFETY: unmapping memory")]
pub(crate) unsafe fn unmap(base: *mut u8, bytes: usize) {
    // SAFETY: (1) and (2) are the caller's word, and all that munmap(2) asks for.
    let result = unsafe { rustix::mm::munmap(base.cast(), bytes) };
    debug_assert!(result.is_ok(), "munmap of a mapping of our own");
}
