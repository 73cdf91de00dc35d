//! Maps: creating, reading and writing them, and counters in the memory of a map; the functions that this
//! file exports are safe to call.
#![expect(unsafe_code, reason = "UNSAFETY: bpf(2) and mmap(2) of a map")]

use crate::bpf::sys::{Attributes, bpf, bpf_answered, bpf_descriptor, last_error, object_info};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

/// The type of a BPF map (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MapKind {
    /// A hash table without preallocation.
    Hash = 1,
    /// An array of one entry that this process and programs share.
    Shared = 2,
    /// Programs, for tail calls. The kernel empties it when its last descriptor is closed.
    Programs = 3,
    /// Longest-prefix match, without preallocation.
    LongestPrefix = 11,
    XskMap = 17,
    /// Records for this process, in mapped memory; its size is in bytes.
    Ring = 27,
    /// A [`Hash`](Self::Hash) with preallocation, for programs that may run anywhere in the kernel.
    Reserved = 1 | RESERVED,
}

impl MapKind {
    /// Returns the kernel's number of the type.
    fn number(self) -> u32 {
        self as u32 & !RESERVED
    }
}

/// A BPF map, and the key and value sizes that the kernel copies.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl Map {
    /// Creates a map of `entries` entries.
    pub(crate) fn new(
        kind: MapKind,
        name: &str,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
    ) -> Result<Self, Errno> {
        let flags = match kind {
            MapKind::Hash | MapKind::LongestPrefix => NO_PREALLOCATION,
            MapKind::Shared => MAPPABLE,
            MapKind::XskMap | MapKind::Programs | MapKind::Ring | MapKind::Reserved => 0,
        };
        let attributes = Attributes::new()
            .u32(0, kind.number())
            .u32(4, key_bytes)
            .u32(8, value_bytes)
            .u32(12, entries)
            .u32(16, flags)
            .name(28, name);
        // SAFETY: (1) BPF_MAP_CREATE reads no pointer from the attributes.
        let fd = unsafe { bpf_descriptor(MAP_CREATE, &attributes) }?;
        Ok(Self { fd, key_bytes: key_bytes as usize, value_bytes: value_bytes as usize })
    }

    /// Adopts a map of the predecessor process.
    ///
    /// # Errors
    /// `INVAL` for a map of another type or size.
    pub(crate) fn adopt(
        fd: OwnedFd,
        kind: MapKind,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
    ) -> Result<Self, Errno> {
        let info = object_info(fd.as_fd())?;
        // `struct bpf_map_info`: type, id, sizes of key and value, entries.
        let number = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
        if [0, 8, 12, 16].map(number) != [kind.number(), key_bytes, value_bytes, entries] {
            return Err(Errno::INVAL);
        }
        Ok(Self { fd, key_bytes: key_bytes as usize, value_bytes: value_bytes as usize })
    }

    /// Sets the value of `key`.
    pub(crate) fn set(&self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        self.update(key, value, 0)
    }

    /// Sets the value of a new `key`: `EXIST` if it has one.
    pub(crate) fn add(&self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        self.update(key, value, NO_EXIST)
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        if key.len() != self.key_bytes || value.len() != self.value_bytes {
            return Err(Errno::INVAL);
        }
        let attributes = Attributes::new()
            .fd(0, self.fd.as_fd())
            .pointer(8, key.as_ptr().cast())
            .pointer(16, value.as_ptr().cast())
            .u64(24, flags);
        // SAFETY: (1) the kernel reads the key's and the value's size of this map, which are the
        // lengths of the two slices; both live across the call.
        unsafe { bpf(MAP_UPDATE, &attributes) }.map(drop)
    }

    /// Reads the value of `key` into `value`.
    pub(crate) fn get(&self, key: &[u8], value: &mut [u8]) -> Result<(), Errno> {
        if key.len() != self.key_bytes || value.len() != self.value_bytes {
            return Err(Errno::INVAL);
        }
        let attributes = Attributes::new()
            .fd(0, self.fd.as_fd())
            .pointer(8, key.as_ptr().cast())
            .pointer(16, value.as_mut_ptr().cast());
        // SAFETY: (1) the kernel reads the key's size of this map and writes the value's size, which are the
        // lengths of the two slices; both live across the call.
        unsafe { bpf(MAP_LOOKUP, &attributes) }.map(drop)
    }

    /// Calls `take` with each key and value of a hash table, in no order. Entries added or removed meanwhile
    /// may be missing.
    pub(crate) fn for_each(&self, take: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), Errno> {
        let room = BATCH as usize;
        let (mut keys, mut values) = (vec![0_u8; room * self.key_bytes], vec![0_u8; room * self.value_bytes]);
        let (mut place, mut next) = ([0_u64; 2], [0_u64; 2]);
        let mut is_first = true;
        loop {
            let from = if is_first { core::ptr::null() } else { place.as_ptr().cast() };
            let mut attributes = Attributes::new()
                .pointer(0, from)
                .pointer(8, next.as_mut_ptr().cast())
                .pointer(16, keys.as_mut_ptr())
                .pointer(24, values.as_mut_ptr())
                .u32(32, BATCH)
                .fd(36, self.fd.as_fd());
            // SAFETY: (1) the kernel writes at most `count` keys and values of this map's sizes, the vectors' lengths, and a
            // position of four bytes, or of a key's; (2) it reads such a position.
            let is_last = match unsafe { bpf_answered(MAP_LOOKUP_BATCH, &mut attributes) } {
                Ok(()) => false,
                // The end of the table is no error.
                Err(Errno::NOENT) => true,
                Err(error) => return Err(error),
            };
            let count = attributes.count(32).min(room);
            let pairs = keys.chunks_exact(self.key_bytes).zip(values.chunks_exact(self.value_bytes));
            pairs.take(count).for_each(|(key, value)| take(key, value));
            if is_last {
                return Ok(());
            }
            (place, is_first) = (next, false);
        }
    }

    /// Returns all keys and values of a hash table, each value after its key.
    pub(crate) fn entries(&self) -> Result<Vec<u8>, Errno> {
        let mut all = Vec::new();
        self.for_each(&mut |key, value| {
            all.extend_from_slice(key);
            all.extend_from_slice(value);
        })?;
        Ok(all)
    }

    /// Removes `key`.
    pub(crate) fn remove(&self, key: &[u8]) -> Result<(), Errno> {
        if key.len() != self.key_bytes {
            return Err(Errno::INVAL);
        }
        let attributes = Attributes::new().fd(0, self.fd.as_fd()).pointer(8, key.as_ptr().cast());
        // SAFETY: (1) the kernel reads the key's size of this map, which is the slice's length.
        unsafe { bpf(MAP_DELETE, &attributes) }.map(drop)
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Counters that programs and this process share: the value of a map of one entry, mapped into this process.
#[derive(Debug)]
pub(crate) struct SharedCounters {
    map: Map,
    words: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the pointer leads to atomics, which any thread may use, in memory that is mapped as long as this lives.
unsafe impl Send for SharedCounters {}
// SAFETY: as above.
unsafe impl Sync for SharedCounters {}

impl SharedCounters {
    /// Creates `count` counters of zero.
    pub(crate) fn new(name: &str, count: usize) -> Result<Self, Errno> {
        Self::map(Map::new(MapKind::Shared, name, 4, bytes_of(count)?, 1)?, count)
    }

    /// Adopts the `count` counters of the predecessor's map.
    ///
    /// # Errors
    /// `INVAL` for another map.
    pub(crate) fn adopt(fd: OwnedFd, count: usize) -> Result<Self, Errno> {
        Self::map(Map::adopt(fd, MapKind::Shared, 4, bytes_of(count)?, 1)?, count)
    }

    fn map(map: Map, count: usize) -> Result<Self, Errno> {
        let bytes = bytes_of(count)?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let file = map.fd.as_raw_fd();
        // SAFETY: (1) a new mapping of a descriptor that is open, at an address that the kernel chooses.
        let memory = unsafe { libc::mmap(core::ptr::null_mut(), bytes as usize, access, kind, file, 0) };
        if memory == libc::MAP_FAILED {
            return Err(last_error());
        }
        let words = NonNull::new(memory.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { map, words, count })
    }

    /// Returns counter `index`.
    ///
    /// # Panics
    /// If there is no such counter.
    pub(crate) fn get(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.count, "counter {index} of {}", self.count);
        // SAFETY: (1) the mapping has `count` words, of which this is one.
        let word = unsafe { self.words.add(index) };
        // SAFETY: (1) the mapping is aligned to a page and lives as long as this; (2) everybody who writes there, programs
        // included, does so by whole words.
        unsafe { word.as_ref() }
    }
}

impl AsFd for SharedCounters {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl Drop for SharedCounters {
    fn drop(&mut self) {
        // SAFETY: (1) the mapping is of this length, and nobody has a reference into it any more.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.count * size_of::<u64>()) };
    }
}

fn bytes_of(count: usize) -> Result<u32, Errno> {
    u32::try_from(count * size_of::<u64>()).map_err(|_| Errno::INVAL)
}

/// Number of entries of a hash table that are read at a time; a bucket has fewer.
const BATCH: u32 = 1024;
/// Mark of a type with preallocation.
const RESERVED: u32 = 1 << 16;
/// `BPF_F_NO_PREALLOC`, which tries require.
const NO_PREALLOCATION: u32 = 1;
/// `BPF_F_MMAPABLE`.
const MAPPABLE: u32 = 1 << 10;
/// `BPF_NOEXIST`.
const NO_EXIST: u64 = 1;
const MAP_CREATE: i32 = 0;
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
const MAP_LOOKUP_BATCH: i32 = 24;
