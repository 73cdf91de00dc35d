//! Table of regions: addresses, chain links and owners of frames.
//!
//! A [`Frame`] has eight bytes and no pointer, so one table contains the base addresses of all regions of the
//! process, written when a region is created. An entry is freed only when every frame of its region is free.

use super::address::BufferAddress;
use super::aliases::Aliases;
use super::name::Frame;
use crate::blocks::Blocks;
use crate::mapping::Memory;
use crate::region_error::{REGIONS, RegionError};
use crate::remote_free::RemoteFreeList;
use crate::trace::{Site, Traces};
use core::num::NonZeroU16;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const _: () = assert!(REGIONS.is_power_of_two() && REGIONS <= 256);

/// Control block of a region.
struct Control {
    keeper: Keeper,
    aliases: Aliases,
    /// Chain links of the units, then of the aliases.
    links: Box<[Link]>,
    /// Number of late frees.
    late_frees: AtomicU64,
    traces: Traces,
    /// Memory of the entry's base address; unmapped after this is dropped.
    _memory: Arc<Memory>,
}

/// Owner of units that are freed without a pool.
pub(crate) enum Keeper {
    /// Slots: pushed to a list.
    Slots(RemoteFreeList),
    /// Fragments: subtracted from the count of their block.
    Blocks(Arc<Blocks>),
}

/// Chain link of a frame that is not the head of its packet. Initially zero, in memory that the system
/// provides when the first chain is made.
pub(crate) struct Link {
    /// Next frame of the chain, as [`BufferAddress::into_word`]; 0 at the end.
    pub(crate) next: AtomicU64,
    /// Offset of the data in the frame (upper half) and its length (lower half), in bytes.
    pub(crate) extent: AtomicU32,
}

/// Entry of the table. Written once, before the first frame of the region exists.
struct Entry {
    base: AtomicPtr<u8>,
    control: AtomicPtr<Control>,
    unit_shift: AtomicU32,
}

static TABLE: [Entry; REGIONS] = [const {
    Entry {
        base: AtomicPtr::new(core::ptr::null_mut()),
        control: AtomicPtr::new(core::ptr::null_mut()),
        unit_shift: AtomicU32::new(0),
    }
}; REGIONS];

/// True for entries in use.
static TAKEN: Mutex<[bool; REGIONS]> = Mutex::new([false; REGIONS]);

/// Allocates an entry for `units` units of `1 << unit_shift` bytes of `memory`.
pub(crate) fn register(
    memory: &Arc<Memory>,
    unit_shift: u32,
    units: u32,
    keeper: Keeper,
) -> Result<NonZeroU16, RegionError> {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let id = (1..=255).filter_map(NonZeroU16::new).find(|id| !taken[usize::from(id.get())]);
    let id = id.ok_or(RegionError::TooMany)?;
    assert!((units as usize) << unit_shift <= memory.bytes(), "units beyond their memory");
    taken[usize::from(id.get())] = true;
    drop(taken);
    let (late_frees, traces, _memory) = (AtomicU64::new(0), Traces::new(units), Arc::clone(memory));
    let aliases = Aliases::new(units);
    let links = links(units as usize + aliases.count());
    let control = Control { keeper, aliases, links, late_frees, traces, _memory };
    let entry = entry(id.get());
    // Relaxed is sufficient: a frame reaches another thread only with synchronisation (a magazine, a ring,
    // the remote-free list, a spawned thread), and it is made after these stores.
    entry.base.store(memory.base(), Ordering::Relaxed);
    entry.unit_shift.store(unit_shift, Ordering::Relaxed);
    entry.control.store(Box::into_raw(Box::new(control)), Ordering::Relaxed);
    Ok(id)
}

/// Frees the entry. Only when all units are free and no pool of the region is left.
#[expect(unsafe_code, reason = "UNSAFETY: ends what frames reach by address")]
pub(crate) fn close(id: NonZeroU16) {
    let entry = entry(id.get());
    entry.base.store(core::ptr::null_mut(), Ordering::Relaxed);
    let control = entry.control.swap(core::ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: (1) the pointer came from `Box::into_raw` in `register`; (2) only frames and the
    // region itself use it: all units are home, so no frame and no reference into its memory exists,
    // and no pool is left that could make one (each holds its region).
    drop(unsafe { Box::from_raw(control) });
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)[usize::from(id.get())] = false;
}

#[expect(unsafe_code, reason = "UNSAFETY: links start as zeros, without being written")]
fn links(count: usize) -> Box<[Link]> {
    let links = Box::new_zeroed_slice(count);
    // SAFETY: a `Link` is atomic integers, for which zero bytes are a valid value (std, `AtomicU64`:
    // "the same size and bit validity as the underlying integer type").
    unsafe { links.assume_init() }
}

#[inline(always)]
fn entry(region: u16) -> &'static Entry {
    // The mask keeps the index in range without a branch; identities are below REGIONS.
    &TABLE[usize::from(region) & (REGIONS - 1)]
}

/// Size of a unit, as a power of two.
#[inline(always)]
pub(crate) fn unit_shift(region: u16) -> u32 {
    entry(region).unit_shift.load(Ordering::Relaxed)
}

/// Size in bytes of a frame that is the only owner; negative for an alias.
#[inline(always)]
pub(crate) fn own_bytes(place: BufferAddress) -> i64 {
    place.own_units().wrapping_shl(unit_shift(place.region()))
}

#[inline]
#[expect(unsafe_code, reason = "UNSAFETY: the table holds the control block as a raw pointer")]
fn control(region: u16) -> &'static Control {
    let control = entry(region).control.load(Ordering::Relaxed);
    // SAFETY: (1) an identity exists only after `register` stored the pointer; (2) it came from
    // `Box::into_raw` and is freed only when no frame and no region is left (`close`).
    unsafe { &*control }
}

/// Remote-free list of a region of slots.
pub(crate) fn remote_free_list(id: NonZeroU16) -> &'static RemoteFreeList {
    match &control(id.get()).keeper {
        Keeper::Slots(list) => list,
        Keeper::Blocks(_) => unreachable!("the identity of a region of slots"),
    }
}

/// Number of shared buffers of a region.
pub(crate) fn shared(id: NonZeroU16) -> u32 {
    control(id.get()).aliases.places()
}

/// Number of late frees of a region.
pub(crate) fn late_frees(id: NonZeroU16) -> u64 {
    control(id.get()).late_frees.load(Ordering::Relaxed)
}

/// Records that a frame was allocated at `site`. Does nothing in release builds.
#[inline(always)]
#[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "kept in debug builds alone"))]
pub(crate) fn trace_taken(place: BufferAddress, site: &'static Site) {
    #[cfg(debug_assertions)]
    control(place.region()).traces.take(place.index(), site);
}

/// Records that a frame was released. Does nothing in release builds.
#[inline(always)]
#[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "kept in debug builds alone"))]
pub(crate) fn trace_released(place: BufferAddress) {
    #[cfg(debug_assertions)]
    control(place.region()).traces.release(place.index());
}

/// Allocation sites of the region's allocated frames, and of the last late free; empty in release builds.
pub(crate) fn traces(id: NonZeroU16) -> &'static Traces {
    &control(id.get()).traces
}

/// Frees a dropped unit and counts it as late free.
#[cold]
pub(crate) fn free_late(place: BufferAddress) {
    let control = control(place.region());
    control.late_frees.fetch_add(1, Ordering::Relaxed);
    control.traces.late_free(place.index());
    send_home(place);
}

/// Frees a unit of a foreign pool through its owner. The caller gives it up.
#[inline]
pub(crate) fn send_home(place: BufferAddress) {
    let place = if place.is_shared() { release_name(place) } else { Some(place) };
    let Some(place) = place else { return };
    trace_released(place);
    match &control(place.region()).keeper {
        Keeper::Slots(list) => list.push(place.index()),
        Keeper::Blocks(blocks) => blocks.release(blocks.block_of(place.index()), 1),
    }
}

/// Replaces a buffer that the caller owns alone by two aliases.
pub(crate) fn share(place: BufferAddress) -> Option<(BufferAddress, BufferAddress)> {
    control(place.region()).aliases.share(place)
}

/// Creates a further alias.
pub(crate) fn share_again(name: BufferAddress) -> Option<BufferAddress> {
    control(name.region()).aliases.share_again(name)
}

/// Releases an alias; returns the buffer's address if it was the last one.
pub(crate) fn release_name(name: BufferAddress) -> Option<BufferAddress> {
    control(name.region()).aliases.release(name)
}

/// Returns the buffer's address, and ends the alias, if the caller has the last one.
pub(crate) fn end_sharing(name: BufferAddress) -> Option<BufferAddress> {
    control(name.region()).aliases.end(name)
}

/// Address of the buffer of an alias.
pub(crate) fn target(name: BufferAddress) -> BufferAddress {
    control(name.region()).aliases.target(name)
}

/// Chain link of a frame.
#[inline]
pub(crate) fn link(place: BufferAddress) -> &'static Link {
    &control(place.region()).links[place.index() as usize]
}

/// Data of a frame that is linked after the frame `first` of a chain.
#[inline]
#[expect(unsafe_code, reason = "UNSAFETY: a chained frame's bytes are reached by address")]
pub(crate) fn chained_slot(first: &Frame, place: BufferAddress, offset: u16, length: u16) -> &[u8] {
    let _owner = first;
    let (address, length) = locate(place, u32::from(offset), u32::from(length));
    // SAFETY: facts of `locate`; and whoever owns `first` owns what is linked behind it, so the
    // borrow of `first` covers this frame. Nobody holds `&mut` to bytes with several aliases: `own`.
    unsafe { core::slice::from_raw_parts(address, length) }
}

/// `length` bytes of the frame from `offset` on.
#[inline(always)]
#[expect(unsafe_code, reason = "UNSAFETY: a frame's bytes are reached by address")]
pub(crate) fn slot(frame: &Frame, offset: u32, length: u32) -> &[u8] {
    let (address, length) = locate(frame.place(), offset, length);
    // SAFETY: facts of `locate`; and the frame is borrowed, so nobody holds `&mut` to its bytes by
    // this name, nor by another one: `own`.
    unsafe { core::slice::from_raw_parts(address, length) }
}

/// `length` bytes of the frame from `offset` on, for writing.
///
/// # Panics
/// If the range exceeds the frame, or the frame is shared.
#[inline(always)]
#[expect(unsafe_code, reason = "UNSAFETY: a frame's bytes are reached by address")]
pub(crate) fn slot_mut(frame: &mut Frame, offset: u32, length: u32) -> &mut [u8] {
    let address = own(frame.place(), offset, length).expect("a range of the frame, which is not shared");
    // SAFETY: facts of `own`; and the frame is mutably borrowed, and the only name of its bytes.
    unsafe { core::slice::from_raw_parts_mut(address, length as usize) }
}

/// Base address and size of frames of one kind, looked up once. As long as it lives, a frame of that kind
/// exists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameKindCache<'a> {
    /// Kind as [`BufferAddress::kind`]; 0 for none.
    kind: u32,
    /// Size of each such frame in bytes; 0 for aliases.
    bytes: u32,
    unit_bytes: usize,
    base: *const u8,
    _frame: core::marker::PhantomData<&'a Frame>,
}

impl<'a> FrameKindCache<'a> {
    /// Value without frames.
    pub(crate) const NONE: Self =
        Self { kind: 0, bytes: 0, unit_bytes: 0, base: core::ptr::null(), _frame: core::marker::PhantomData };

    /// Base address and size for frames of this frame's kind.
    #[inline]
    pub(crate) fn of(frame: &'a Frame) -> Self {
        let place = frame.place();
        let entry = entry(place.region());
        Self {
            kind: place.kind(),
            bytes: u32::try_from(own_bytes(place)).unwrap_or(0),
            unit_bytes: 1 << entry.unit_shift.load(Ordering::Relaxed),
            base: entry.base.load(Ordering::Relaxed),
            _frame: core::marker::PhantomData,
        }
    }

    /// `length` bytes of a frame from `offset` on; `None` if it is of another kind or too short.
    #[inline(always)]
    #[expect(unsafe_code, reason = "UNSAFETY: a frame's bytes are reached by address")]
    pub(crate) fn slot<'b>(&self, frame: &'b Frame, offset: u32, length: u32) -> Option<&'b [u8]> {
        let place = frame.place();
        if place.kind() != self.kind || u64::from(offset) + u64::from(length) > u64::from(self.bytes) {
            return None;
        }
        let position = (place.index() as usize).wrapping_mul(self.unit_bytes).wrapping_add(offset as usize);
        // SAFETY: a frame of this kind exists for as long as the shelf, so its region is the one that was
        // looked up, and is as it was (`close`); the kind has region, units and aliases of both frames alike.
        // So facts (1) to (5) of `own` hold for this frame: what it compares is compared above, and a name
        // beside others has no bytes here. The result is inside the mapping that starts at `base`.
        let address = unsafe { self.base.add(position) };
        // SAFETY: the facts above; and the frame is borrowed, so nobody holds `&mut` to its bytes.
        Some(unsafe { core::slice::from_raw_parts(address, length as usize) })
    }
}

/// Address of a range of a frame for reading: facts of `own` except for aliases.
#[inline(always)]
fn locate(place: BufferAddress, offset: u32, length: u32) -> (*mut u8, usize) {
    let address = own(place, offset, length);
    (address.unwrap_or_else(|| locate_shared(place, offset, length)), length as usize)
}

#[cold]
fn locate_shared(place: BufferAddress, offset: u32, length: u32) -> *mut u8 {
    let address = place.is_shared().then(|| own(target(place), offset, length)).flatten();
    address.expect("a range of the frame")
}

/// The address of a range of a frame that is the only name of its bytes. Facts for the callers:
/// (1) `offset + length` is within the frame's units, compared here; (2) the units are within the
/// mapping, because frames are made from slot numbers below the number of slots (`SlotReserve`) and
/// from pieces of blocks below the number of blocks (`Carver::take`) alone, and `register` has
/// compared both with the mapping; (3) the mapping lives as long as a frame does: the control block
/// holds it (`close`); (4) the memory is initialised: a fresh memory file reads as zeros; (5) a name
/// beside others counts fewer than no units, so there is no address for writing by it; the place that
/// they lead to is a frame again only when the last one is gone (`Aliases::release`).
#[inline(always)]
#[expect(unsafe_code, reason = "UNSAFETY: pointer arithmetic inside one mapping")]
fn own(place: BufferAddress, offset: u32, length: u32) -> Option<*mut u8> {
    let entry = entry(place.region());
    let shift = entry.unit_shift.load(Ordering::Relaxed);
    // A shift is below 32 (`register`), and so are the sums: nothing here overflows.
    if i64::from(offset).wrapping_add(i64::from(length)) > place.own_units().wrapping_shl(shift) {
        return None;
    }
    let position = (place.index() as usize).wrapping_shl(shift).wrapping_add(offset as usize);
    // SAFETY: facts (1) and (2): the result is inside the mapping that starts at `base`.
    Some(unsafe { entry.base.load(Ordering::Relaxed).add(position) })
}
