//! The memory of a ring: shared with the kernel, accessed by atomics alone.
//!
//! The functions that this file exports are safe to call. Facts are from mmap(2) and
//! `Documentation/networking/af_xdp.rst`.
#![expect(unsafe_code, reason = "UNSAFETY: memory shared with the kernel")]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::xdp::XdpRingOffset;
use std::os::fd::BorrowedFd;
#[cfg(test)]
use std::sync::Arc;

/// The memory of one ring: two cursors, flags and descriptors, shared with the other end.
///
/// Every access is atomic, so it is defined whatever the other end writes, at any time.
#[derive(Debug)]
pub(in super::super) struct RingMemory {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    words: NonNull<AtomicU64>,
    word_count: usize,
    /// Keeps the memory.
    _owner: Owner,
}

// SAFETY: the pointers lead into memory that `_owner` keeps, and are read through shared references
// to atomics alone, which any thread may use.
unsafe impl Send for RingMemory {}

#[derive(Debug)]
enum Owner {
    Mapping(#[expect(dead_code, reason = "held for its drop")] Mapping),
    #[cfg(test)]
    Heap(#[expect(dead_code, reason = "held for its drop")] Arc<HeapRing>),
}

impl RingMemory {
    /// Maps the ring at page offset `at` of an AF_XDP socket.
    pub(in super::super) fn map(
        socket: BorrowedFd<'_>,
        at: u64,
        offsets: &XdpRingOffset,
        word_count: usize,
    ) -> Result<Self, Errno> {
        let flags = offsets.flags.ok_or(Errno::NOSYS)?;
        let ends =
            [offsets.producer + 4, offsets.consumer + 4, flags + 4, offsets.desc + 8 * word_count as u64];
        let bytes = ends.into_iter().max().and_then(|end| usize::try_from(end).ok()).ok_or(Errno::INVAL)?;
        let mapping = Mapping::new(socket, at, bytes)?;
        Ok(Self {
            producer: mapping.at(offsets.producer)?,
            consumer: mapping.at(offsets.consumer)?,
            flags: mapping.at(flags)?,
            words: mapping.at(offsets.desc)?,
            word_count,
            _owner: Owner::Mapping(mapping),
        })
    }

    /// Creates one end of a ring in ordinary memory; a model of the kernel has the other end.
    #[cfg(test)]
    pub(in super::super) fn heap(ring: &Arc<HeapRing>) -> Self {
        Self {
            producer: NonNull::from(&ring.producer),
            consumer: NonNull::from(&ring.consumer),
            flags: NonNull::from(&ring.flags),
            words: NonNull::from(&*ring.words).cast(),
            word_count: ring.words.len(),
            _owner: Owner::Heap(Arc::clone(ring)),
        }
    }

    #[inline(always)]
    pub(in super::super) fn producer(&self) -> &AtomicU32 {
        // SAFETY: (1) `map` and `heap` took the pointer from inside memory that `_owner` keeps, at
        // an aligned place; (2) all access is atomic.
        unsafe { self.producer.as_ref() }
    }

    #[inline(always)]
    pub(in super::super) fn consumer(&self) -> &AtomicU32 {
        // SAFETY: facts of `producer`.
        unsafe { self.consumer.as_ref() }
    }

    #[inline(always)]
    pub(in super::super) fn flags(&self) -> &AtomicU32 {
        // SAFETY: facts of `producer`.
        unsafe { self.flags.as_ref() }
    }

    #[inline(always)]
    pub(in super::super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: facts of `producer`; `map` mapped, and `heap` found, `word_count` words.
        unsafe { core::slice::from_raw_parts(self.words.as_ptr(), self.word_count) }
    }
}

/// A ring in ordinary memory.
#[cfg(test)]
#[derive(Debug)]
pub(in super::super) struct HeapRing {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    words: Box<[AtomicU64]>,
}

#[cfg(test)]
impl HeapRing {
    /// Creates a ring of `word_count` words.
    pub(in super::super) fn new(word_count: usize) -> Arc<Self> {
        Arc::new(Self {
            producer: AtomicU32::new(0),
            consumer: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            words: (0..word_count).map(|_| AtomicU64::new(0)).collect(),
        })
    }
}

#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    fn new(socket: BorrowedFd<'_>, at: u64, bytes: usize) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: (1) a null hint without MAP_FIXED never replaces a mapping that exists (mmap(2)).
        let base = unsafe { rustix::mm::mmap(core::ptr::null_mut(), bytes, protection, flags, socket, at) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, bytes })
    }

    /// Returns the address at `offset` of a `T` that lies wholly inside the mapping and is aligned.
    fn at<T>(&self, offset: u64) -> Result<NonNull<T>, Errno> {
        let offset = usize::try_from(offset).map_err(|_| Errno::INVAL)?;
        if offset + size_of::<T>() > self.bytes || !offset.is_multiple_of(align_of::<T>()) {
            return Err(Errno::INVAL);
        }
        // SAFETY: the result is inside the mapping, as just checked.
        Ok(unsafe { self.base.add(offset) }.cast())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: (1) `new` made exactly this mapping; (2) its owner, the ring, is being dropped, and
        // with it every pointer into it.
        let result = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(result.is_ok(), "munmap of the ring's own mapping");
    }
}
