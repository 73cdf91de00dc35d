//! Memory of a BPF ring buffer; the functions that this file exports are safe to call.
//!
//! Facts are from Linux, kernel/bpf/ringbuf.c (mapping offsets) and mmap(2).
#![expect(unsafe_code, reason = "UNSAFETY: memory that the kernel writes to")]

use core::ptr::{NonNull, copy_nonoverlapping};
use core::sync::atomic::{AtomicU32, AtomicUsize};
use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};

/// The pages of both positions, and the records.
#[derive(Debug)]
pub(super) struct RingMemory {
    /// A page that begins with the consumer position.
    reader: NonNull<u8>,
    /// A page that begins with the producer position, followed by the records.
    producers: NonNull<u8>,
    page: usize,
    bytes: usize,
}

// SAFETY: the pointers lead to memory that is mapped as long as this lives, and that no thread owns.
unsafe impl Send for RingMemory {}

impl RingMemory {
    /// Maps the ring of a map of `bytes` bytes, a power of two of at least a page.
    pub(super) fn map(map: BorrowedFd<'_>, bytes: usize) -> Result<Self, Errno> {
        Self::of(bytes, |offset, length, access| {
            mapped(length, access, (libc::MAP_SHARED, map.as_raw_fd()), offset)
        })
    }

    /// A ring of this process alone, whose records can be written.
    #[cfg(test)]
    pub(super) fn plain(bytes: usize) -> Result<Self, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Self::of(bytes, |_, length, _| mapped(length, libc::PROT_READ | libc::PROT_WRITE, (flags, -1), 0))
    }

    fn of(
        bytes: usize,
        map: impl Fn(usize, usize, i32) -> Result<NonNull<u8>, Errno>,
    ) -> Result<Self, Errno> {
        let page = rustix::param::page_size();
        if !bytes.is_power_of_two() || bytes < page {
            return Err(Errno::INVAL);
        }
        let reader = map(0, page, libc::PROT_READ | libc::PROT_WRITE)?;
        let producers = map(page, page + bytes, libc::PROT_READ);
        let producers = producers.inspect_err(|_| unmap(reader, page))?;
        Ok(Self { reader, producers, page, bytes })
    }

    /// Returns the size of the records' memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the position up to which the reader has read.
    pub(super) fn consumed(&self) -> &AtomicUsize {
        // SAFETY: the page is mapped as long as this lives, aligned, and begins with this word, which the kernel reads.
        unsafe { self.reader.cast().as_ref() }
    }

    /// Returns the position up to which room is reserved. Only the kernel writes it.
    pub(super) fn produced(&self) -> &AtomicUsize {
        // SAFETY: as above; the kernel writes it as a whole word.
        unsafe { self.producers.cast().as_ref() }
    }

    /// Returns the first word of the record header at `position`. Only the kernel writes it.
    ///
    /// # Panics
    /// If no header starts at the position.
    pub(super) fn head(&self, position: usize) -> &AtomicU32 {
        assert!(position.is_multiple_of(8), "heads are aligned");
        // SAFETY: the place is inside the mapping, by the mask, and aligned, by the assertion and because pages are; the
        // kernel writes it as a whole word.
        unsafe { self.place(position).cast().as_ref() }
    }

    /// Copies a record out. Its producer has submitted it, and the consumer position has not passed it.
    ///
    /// # Panics
    /// If it is larger than the ring.
    pub(super) fn copy(&self, position: usize, into: &mut [u8]) {
        let (first, second) = into.split_at_mut(self.before_end(position, into.len()));
        for (from, to) in [(position, first), (0, second)] {
            // SAFETY: so many bytes lie between the place and the end of the mapping; `to` is memory of this process, and
            // nobody writes to a record between its submission and the reader's position.
            unsafe { copy_nonoverlapping(self.place(from).as_ptr(), to.as_mut_ptr(), to.len()) };
        }
    }

    /// Writes a record.
    #[cfg(test)]
    pub(super) fn write(&self, position: usize, record: &[u8]) {
        let (first, second) = record.split_at(self.before_end(position, record.len()));
        for (to, from) in [(position, first), (0, second)] {
            // SAFETY: as above; the memory can be written to, and the test that writes has the only thread.
            unsafe { copy_nonoverlapping(from.as_ptr(), self.place(to).as_ptr(), from.len()) };
        }
    }

    /// Returns the number of bytes of a record before the end of the memory; the others are at its beginning.
    fn before_end(&self, position: usize, length: usize) -> usize {
        assert!(length <= self.bytes, "a record is in the ring");
        length.min(self.bytes - (position & (self.bytes - 1)))
    }

    fn place(&self, position: usize) -> NonNull<u8> {
        // SAFETY: behind the page there are `bytes` bytes, a power of two, and the mask leaves less.
        unsafe { self.producers.add(self.page + (position & (self.bytes - 1))) }
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        unmap(self.reader, self.page);
        unmap(self.producers, self.page + self.bytes);
    }
}

fn mapped(
    length: usize,
    access: i32,
    (flags, file): (i32, RawFd),
    offset: usize,
) -> Result<NonNull<u8>, Errno> {
    let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let memory = unsafe { libc::mmap(core::ptr::null_mut(), length, access, flags, file, offset) };
    if memory == libc::MAP_FAILED {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    NonNull::new(memory.cast()).ok_or(Errno::NOMEM)
}

fn unmap(memory: NonNull<u8>, length: usize) {
    // SAFETY: the mapping is of this length, and nobody has a reference into it any more.
    unsafe { libc::munmap(memory.as_ptr().cast(), length) };
}
