//! One mapping, cut into slots; and the table by which a frame finds its bytes.
//!
//! A [`Frame`] is eight bytes and holds no pointer, so the addresses of all regions stand in one
//! table of the process, written when a region is created. A region is unmapped only when all its
//! slots are home; as long as a frame lives, its bytes do too.

use crate::frame::Frame;
use crate::home::HomeList;
use crate::pool::{Depot, Pool};
use core::num::NonZeroU16;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The size of a large page; mappings are rounded up to it when large pages are used.
const LARGE_PAGE: usize = 2 << 20;
/// Regions that one process may have at a time. Entry 0 is never used.
const REGIONS: usize = 256;
const _: () = assert!(REGIONS.is_power_of_two() && REGIONS <= 256);

/// How a region is cut.
#[derive(Clone, Copy, Debug)]
pub struct RegionOptions {
    /// Number of slots, 1 to 2²⁴.
    pub slots: u32,
    /// Bytes a slot, headroom included: a power of two, 512 to 32 768. AF_XDP takes 2048 or 4096.
    pub slot_bytes: u32,
}

/// Why a region could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// A slot size that is not a power of two from 512 to 32 768.
    #[error("slots of {0} bytes: the size has to be a power of two from 512 to 32768")]
    SlotBytes(u32),
    /// No slots, or more than 2²⁴.
    #[error("{0} slots: a region has 1 to 16777216")]
    Slots(u32),
    /// The system has no memory for it.
    #[error("cannot map {bytes} bytes of packet memory: {source}; lower the memory setting or free memory")]
    Map {
        /// Bytes that were asked for.
        bytes: usize,
        /// What the system said.
        source: rustix::io::Errno,
    },
    /// The process has too many regions.
    #[error("a process has at most {} regions at a time", REGIONS - 1)]
    TooMany,
}

/// One mapping of shared memory, cut into slots of equal size.
///
/// Cloning is cheap and names the same region.
#[derive(Clone)]
pub struct Region {
    inner: Arc<Inner>,
}

struct Inner {
    id: NonZeroU16,
    options: RegionOptions,
    bytes: usize,
    large_pages: bool,
    file: OwnedFd,
    depot: Arc<Depot>,
}

impl Region {
    /// Maps memory for `options.slots` slots, on 2 MiB pages when the system has them to spare.
    ///
    /// # Errors
    /// [`RegionError`] says what was asked for and what to change.
    ///
    /// Cost: a few system calls; the pages themselves are faulted in by their first user.
    pub fn new(options: RegionOptions) -> Result<Self, RegionError> {
        let RegionOptions { slots, slot_bytes } = options;
        if !slot_bytes.is_power_of_two() || !(512..=32_768).contains(&slot_bytes) {
            return Err(RegionError::SlotBytes(slot_bytes));
        }
        if !(1..=1 << 24).contains(&slots) {
            return Err(RegionError::Slots(slots));
        }
        let bytes = slots as usize * slot_bytes as usize;
        let mapping = map(bytes)?;
        let links = (0..slots).map(|_| Link::default()).collect::<Box<[Link]>>();
        let control = Box::new(Control { home: HomeList::new(slots), links });
        let id = register(mapping.base, slot_bytes.trailing_zeros(), control)?;
        let depot = Arc::new(Depot::new(id, slots));
        Ok(Self {
            inner: Arc::new(Inner {
                id,
                options,
                bytes: mapping.bytes,
                large_pages: mapping.large_pages,
                file: mapping.file,
                depot,
            }),
        })
    }

    /// The identity that frames of this region carry.
    pub fn id(&self) -> NonZeroU16 {
        self.inner.id
    }

    /// Number of slots.
    pub fn slots(&self) -> u32 {
        self.inner.options.slots
    }

    /// Bytes a slot.
    pub fn slot_bytes(&self) -> u32 {
        self.inner.options.slot_bytes
    }

    /// Bytes of the mapping; at least slots × bytes a slot.
    pub fn mapped_bytes(&self) -> usize {
        self.inner.bytes
    }

    /// Whether the mapping is on 2 MiB pages.
    pub fn on_large_pages(&self) -> bool {
        self.inner.large_pages
    }

    /// The address of the first byte, for registering the region with a device.
    ///
    /// The mapping stays until every frame is home and every clone of this region is gone.
    pub fn base_address(&self) -> *mut u8 {
        entry(self.inner.id).base.load(Ordering::Relaxed)
    }

    /// The memory file behind the mapping, for sharing it with another process.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.inner.file.as_fd()
    }

    /// A cache of free slots for one worker.
    pub fn pool(&self) -> Pool {
        Pool::new(self.clone(), Arc::clone(&self.inner.depot))
    }

    /// Slots that are free: in magazines, on the way home, or in a pool's cache as last published.
    ///
    /// Equal to [`Region::slots`] when no frame lives. Exact while no worker runs.
    pub fn home(&self) -> u32 {
        self.collect_strays();
        self.inner.depot.home()
    }

    /// How many frames have been dropped instead of released; 0 on a steady path.
    pub fn strays(&self) -> u64 {
        control(self.inner.id).home.pushed()
    }

    /// Brings the slots of dropped frames back into circulation.
    pub(crate) fn collect_strays(&self) {
        self.inner.depot.collect(&control(self.inner.id).home);
    }
}

impl core::fmt::Debug for Region {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("Region")
            .field("id", &self.inner.id)
            .field("options", &self.inner.options)
            .field("large_pages", &self.inner.large_pages)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.depot.collect(&control(self.id).home);
        if self.depot.home() == self.options.slots {
            unmap(self.id, self.bytes);
        }
        // Otherwise frames live on without their region; their bytes stay mapped for good.
    }
}

/// What a frame that is not the head of its packet knows of its neighbours.
#[derive(Default)]
pub(crate) struct Link {
    /// The next frame of the chain: region (upper 8 bits) and slot (lower 24); 0 at the end.
    pub(crate) next: AtomicU32,
    /// Offset of the data in the slot (upper half) and its length (lower half), in bytes.
    pub(crate) extent: AtomicU32,
}

struct Control {
    home: HomeList,
    links: Box<[Link]>,
}

/// One line of the table of regions. Written once, before the first frame of the region exists.
struct Entry {
    base: AtomicPtr<u8>,
    control: AtomicPtr<Control>,
    slot_shift: AtomicU32,
}

static TABLE: [Entry; REGIONS] = [const {
    Entry {
        base: AtomicPtr::new(core::ptr::null_mut()),
        control: AtomicPtr::new(core::ptr::null_mut()),
        slot_shift: AtomicU32::new(0),
    }
}; REGIONS];

/// Which lines of the table are taken.
static TAKEN: Mutex<[bool; REGIONS]> = Mutex::new([false; REGIONS]);

fn register(base: *mut u8, slot_shift: u32, control: Box<Control>) -> Result<NonZeroU16, RegionError> {
    let mut taken: MutexGuard<'_, [bool; REGIONS]> = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let id = (1..=255).filter_map(NonZeroU16::new).find(|id| !taken[usize::from(id.get())]);
    let id = id.ok_or(RegionError::TooMany)?;
    taken[usize::from(id.get())] = true;
    drop(taken);
    let entry = entry(id);
    // Relaxed is enough: a frame reaches another thread only through something that synchronises
    // (a magazine, a ring, the home list, a spawned thread), and it is made after these stores.
    entry.base.store(base, Ordering::Relaxed);
    entry.slot_shift.store(slot_shift, Ordering::Relaxed);
    entry.control.store(Box::into_raw(control), Ordering::Relaxed);
    Ok(id)
}

#[inline(always)]
fn entry(id: NonZeroU16) -> &'static Entry {
    // The mask keeps the index inside the table without a branch; identities are below REGIONS.
    &TABLE[usize::from(id.get()) & (REGIONS - 1)]
}

#[inline(always)]
pub(crate) fn slot_shift(id: NonZeroU16) -> u32 {
    entry(id).slot_shift.load(Ordering::Relaxed)
}

#[inline(always)]
pub(crate) fn slot_bytes(id: NonZeroU16) -> u32 {
    1 << slot_shift(id)
}

#[expect(unsafe_code, reason = "UNSAFETY: the table holds the control block as a raw pointer")]
fn control(id: NonZeroU16) -> &'static Control {
    let control = entry(id).control.load(Ordering::Relaxed);
    // SAFETY: (1) an identity exists only after `register` stored the pointer; (2) it came from
    // `Box::into_raw` and is freed only when no frame and no region is left (`unmap`).
    unsafe { &*control }
}

/// The chain link of `frame`.
#[inline]
pub(crate) fn link(frame: &Frame) -> &'static Link {
    link_at(frame.region(), frame.index())
}

/// The chain link of a slot.
#[inline]
pub(crate) fn link_at(id: NonZeroU16, index: u32) -> &'static Link {
    &control(id).links[index as usize]
}

/// The data of a slot that is linked behind the frame `first` of a chain.
#[inline]
#[expect(unsafe_code, reason = "UNSAFETY: a chained frame's bytes are reached by address")]
pub(crate) fn chained_slot(first: &Frame, id: NonZeroU16, index: u32, offset: u16, length: u16) -> &[u8] {
    let _owner = first;
    let (address, length) = locate(id, index, u32::from(offset), u32::from(length));
    // SAFETY: facts of `locate`; and whoever owns `first` owns what is linked behind it, so the
    // borrow of `first` covers this slot.
    unsafe { core::slice::from_raw_parts(address, length) }
}

/// Puts a slot that nobody released on the list home.
pub(crate) fn send_home(id: NonZeroU16, index: u32) {
    control(id).home.push(index);
}

/// `length` bytes of the frame's slot from `offset`.
#[inline(always)]
#[expect(unsafe_code, reason = "UNSAFETY: a frame's bytes are reached by address")]
pub(crate) fn slot(frame: &Frame, offset: u32, length: u32) -> &[u8] {
    let (address, length) = locate(frame.region(), frame.index(), offset, length);
    // SAFETY: facts of `locate`; and the frame is borrowed, so nobody holds `&mut` to its slot.
    unsafe { core::slice::from_raw_parts(address, length) }
}

/// `length` bytes of the frame's slot from `offset`, for writing.
#[inline(always)]
#[expect(unsafe_code, reason = "UNSAFETY: a frame's bytes are reached by address")]
pub(crate) fn slot_mut(frame: &mut Frame, offset: u32, length: u32) -> &mut [u8] {
    let (address, length) = locate(frame.region(), frame.index(), offset, length);
    // SAFETY: facts of `locate`; and the frame is the only name of its slot and mutably borrowed.
    unsafe { core::slice::from_raw_parts_mut(address, length) }
}

/// The address of a range of a slot. Facts for the callers:
/// (1) `offset + length` is within the slot, asserted here; (2) the slot is within the mapping,
/// because frames are made from indices below the number of slots alone (`Depot::new`);
/// (3) the mapping lives as long as a frame does (`Inner::drop`); (4) the memory is initialised:
/// a fresh memory file reads as zeros.
#[inline(always)]
#[expect(unsafe_code, reason = "UNSAFETY: pointer arithmetic inside one mapping")]
fn locate(id: NonZeroU16, index: u32, offset: u32, length: u32) -> (*mut u8, usize) {
    let entry = entry(id);
    let shift = entry.slot_shift.load(Ordering::Relaxed);
    assert!(u64::from(offset) + u64::from(length) <= 1 << shift, "a range beyond its slot");
    let position = ((index as usize) << shift) + offset as usize;
    // SAFETY: facts (1) and (2): the result is inside the mapping that starts at `base`.
    (unsafe { entry.base.load(Ordering::Relaxed).add(position) }, length as usize)
}

struct Mapping {
    base: *mut u8,
    bytes: usize,
    large_pages: bool,
    file: OwnedFd,
}

fn map(bytes: usize) -> Result<Mapping, RegionError> {
    let large = bytes.next_multiple_of(LARGE_PAGE);
    if bytes >= LARGE_PAGE
        && let Ok(mapping) = map_file(large, MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB)
    {
        return Ok(Mapping { large_pages: true, ..mapping });
    }
    let page = rustix::param::page_size();
    map_file(bytes.next_multiple_of(page), MemfdFlags::CLOEXEC)
        .map_err(|source| RegionError::Map { bytes, source })
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

/// Takes the region's line back. Only for a region whose slots are all home.
#[expect(unsafe_code, reason = "UNSAFETY: unmapping memory")]
fn unmap(id: NonZeroU16, bytes: usize) {
    let base = entry(id).base.swap(core::ptr::null_mut(), Ordering::Relaxed);
    let control = entry(id).control.swap(core::ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: (1) `map_file` made exactly this mapping; (2) all slots are home, so no frame and no
    // reference into it exists, and no pool is left that could make one (each holds the region).
    let result = unsafe { rustix::mm::munmap(base.cast(), bytes) };
    debug_assert!(result.is_ok(), "munmap of the region's own mapping");
    // SAFETY: (1) the pointer came from `Box::into_raw` in `register`; (2) only frames and the region
    // itself use it, and neither is left.
    drop(unsafe { Box::from_raw(control) });
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)[usize::from(id.get())] = false;
}
