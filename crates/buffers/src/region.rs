//! Region: one mapping, divided into slots of equal size.
//!
//! A region is unmapped only when all its slots are free; the bytes of a frame stay mapped as long as the
//! frame lives.

use crate::frame::table::{self, Keeper};
use crate::mapping::Memory;
use crate::policy::{AllocationPolicy, ReserveOptions};
use crate::region_error::RegionError;
use crate::remote_free::RemoteFreeList;
use crate::slot_reserve::SlotReserve;
use core::num::NonZeroU16;
use core::panic::Location;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Layout of a region.
#[derive(Clone, Copy, Debug)]
pub struct RegionOptions {
    /// Number of slots, 1 to 2²⁴.
    pub slots: u32,
    /// Size of a slot in bytes, headroom included: a power of two, 512 to 32 768. AF_XDP requires 2048 or
    /// 4096.
    pub slot_bytes: u32,
}

/// Class of buffers: each class has its own, so that neither can use up all memory. Source: C3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Packets that keep the gateway working: neighbour resolution, ICMP errors, keepalives.
    Control,
    /// Forwarded packets.
    Data,
}

/// Both classes, in order of precedence.
pub const CLASSES: [Class; 2] = [Class::Control, Class::Data];

/// Options of one class's slots.
#[derive(Clone, Copy, Debug)]
pub struct ClassOptions {
    /// Number of slots, rounded up to whole pages for the control class.
    pub slots: u32,
    /// Allocation policy of the slots.
    pub policy: AllocationPolicy,
    /// Techniques of the slots' reserve.
    pub reserve_options: ReserveOptions,
}

impl ClassOptions {
    /// Slots that are all allocated at the start and stay.
    pub fn fixed(slots: u32) -> Self {
        Self { slots, policy: AllocationPolicy::Fixed, reserve_options: ReserveOptions::default() }
    }
}

/// One mapping of shared memory, divided into slots of equal size.
///
/// Cloning is cheap; clones share the region.
#[derive(Clone)]
pub struct Region {
    inner: Arc<Inner>,
}

struct Inner {
    id: NonZeroU16,
    slots: u32,
    slot_bytes: u32,
    memory: Arc<Memory>,
    /// Slot reserves by class, in the order of [`CLASSES`].
    reserves: [Arc<SlotReserve>; 2],
}

impl Region {
    /// Maps memory for `options.slots` data slots, on 2 MiB pages if the system has free ones.
    ///
    /// # Errors
    /// [`RegionError`] with the parameters and a remedy.
    ///
    /// Cost: a few system calls; pages are faulted in by their first user.
    pub fn new(options: RegionOptions) -> Result<Self, RegionError> {
        let RegionOptions { slots, slot_bytes } = options;
        let [none, all] = [0, slots].map(ClassOptions::fixed);
        Self::with_classes(slot_bytes, none, all, rustix::param::page_size())
    }

    /// Maps memory for slots of both classes. Large pages are used if both are fixed. Memory is loaded and
    /// returned in units of `page_bytes`.
    ///
    /// # Errors
    /// [`RegionError`] with the parameters and a remedy.
    pub fn with_classes(
        slot_bytes: u32,
        control: ClassOptions,
        data: ClassOptions,
        page_bytes: usize,
    ) -> Result<Self, RegionError> {
        check_page(page_bytes)?;
        if !slot_bytes.is_power_of_two() || !(512..=32_768).contains(&slot_bytes) {
            return Err(RegionError::SlotBytes(slot_bytes));
        }
        // The classes share no page, so that each can return its own.
        let page_slots = (page_bytes / slot_bytes as usize).max(1);
        let whole_pages = (control.slots as usize).next_multiple_of(page_slots);
        let slots = whole_pages + data.slots as usize;
        let Some(slots) = u32::try_from(slots).ok().filter(|slots| (1..=1 << 24).contains(slots)) else {
            return Err(RegionError::Slots(data.slots.saturating_add(control.slots)));
        };
        let border = slots - data.slots;
        let bytes = slots as usize * slot_bytes as usize;
        let is_fixed = [control, data].iter().all(|class| matches!(class.policy, AllocationPolicy::Fixed));
        let parts = [border, data.slots].map(|slots| slots as usize * slot_bytes as usize);
        let memory =
            if is_fixed { Memory::map(bytes, page_bytes) } else { Memory::map_parts(parts, page_bytes) };
        let no_memory = |source| RegionError::Map { bytes, source };
        let memory = Arc::new(memory.map_err(no_memory)?);
        let shift = slot_bytes.trailing_zeros();
        let reserve = |numbers, class: ClassOptions| {
            SlotReserve::new(&memory, numbers, shift, class.policy, class.reserve_options)
                .map_err(no_memory)
                .map(Arc::new)
        };
        let reserves = [reserve(0..border, control)?, reserve(border..slots, data)?];
        let id = table::register(&memory, shift, slots, Keeper::Slots(RemoteFreeList::new(slots)))?;
        Ok(Self { inner: Arc::new(Inner { id, slots, slot_bytes, memory, reserves }) })
    }

    /// Identity of the region in its frames.
    pub fn id(&self) -> NonZeroU16 {
        self.inner.id
    }

    /// Number of slots.
    pub fn slots(&self) -> u32 {
        self.inner.slots
    }

    /// Size of a slot in bytes.
    pub fn slot_bytes(&self) -> u32 {
        self.inner.slot_bytes
    }

    /// Size of the mapping in bytes; at least slots × slot size.
    pub fn mapped_bytes(&self) -> usize {
        self.inner.memory.bytes()
    }

    /// True if the mapping is on 2 MiB pages.
    pub fn on_large_pages(&self) -> bool {
        self.inner.memory.on_large_pages()
    }

    /// Address of the first byte, for registering the region with a device.
    ///
    /// The mapping lives until every frame is free and every clone of the region is dropped.
    pub fn base_address(&self) -> *mut u8 {
        self.inner.memory.base()
    }

    /// Memory file of a class's slots, for sharing them with another process. Memory that a device may hold
    /// is one file.
    pub fn file(&self, class: Class) -> BorrowedFd<'_> {
        let first = self.reserve(class).numbers().start.min(self.slots() - 1);
        self.inner.memory.file(first as usize * self.slot_bytes() as usize)
    }

    /// True if one file backs both classes.
    pub(crate) fn has_one_file(&self) -> bool {
        self.inner.memory.has_one_file()
    }

    /// Number of free slots: in magazines, on the remote-free list, asleep, or in a pool's cache as last
    /// published.
    ///
    /// Equal to [`Region::slots`] if no frame exists. Exact while no worker runs.
    pub fn free_slots(&self) -> u32 {
        self.collect_remote_frees();
        self.inner.reserves.iter().map(|reserve| reserve.free_slots()).sum()
    }

    /// Number of slots that several packets share.
    pub fn shared(&self) -> u32 {
        table::shared(self.inner.id)
    }

    /// Number of frames that were dropped instead of released (late frees); 0 in normal operation.
    pub fn late_frees(&self) -> u64 {
        table::late_frees(self.inner.id)
    }

    /// Makes loading of memory fail or work again, to simulate a system without memory.
    pub fn simulate_shortage(&self, is_short: bool) {
        self.inner.memory.set_short(is_short);
    }

    /// Slot reserve of one class.
    pub(crate) fn reserve(&self, class: Class) -> &Arc<SlotReserve> {
        let [control, data] = &self.inner.reserves;
        match class {
            Class::Control => control,
            Class::Data => data,
        }
    }

    /// Allocated frames with their allocation sites: leaks, if no code is left that could own them. Only in
    /// debug builds.
    pub fn out(&self) -> Vec<(u32, &'static Location<'static>)> {
        table::traces(self.inner.id).out()
    }

    /// Allocation site of the last late free; only in debug builds.
    pub fn last_late_free(&self) -> Option<&'static Location<'static>> {
        table::traces(self.inner.id).last_late_free()
    }

    /// Puts a free slot without magazine on the remote-free list.
    pub(crate) fn bring_home(&self, slot: u32) {
        table::remote_free_list(self.inner.id).push(slot);
    }

    /// Moves the slots of the remote-free list to the reserves.
    pub(crate) fn collect_remote_frees(&self) {
        self.inner.collect();
    }
}

/// Refuses page sizes that are not multiples of the system's.
pub(crate) fn check_page(page_bytes: usize) -> Result<(), RegionError> {
    let is_possible = page_bytes.is_power_of_two() && page_bytes >= rustix::param::page_size();
    if is_possible && page_bytes <= LARGEST_PAGE { Ok(()) } else { Err(RegionError::PageBytes(page_bytes)) }
}

/// Largest page size that Linux supports: 64 KiB, on ARM (Documentation/arch/arm64/memory.rst).
pub(crate) const LARGEST_PAGE: usize = 65_536;

/// Page sizes that a region accepts on this system.
#[cfg(all(test, not(loom)))]
pub(crate) fn page_sizes() -> impl Iterator<Item = usize> {
    [4096, 16_384, LARGEST_PAGE].into_iter().filter(|&page| check_page(page).is_ok())
}

impl Inner {
    fn collect(&self) {
        let list = table::remote_free_list(self.id);
        let [control, data] = &self.reserves;
        let border = control.numbers().end;
        let (mut of_control, mut of_data) = (Vec::new(), Vec::new());
        list.take_all(|slot| if slot < border { of_control.push(slot) } else { of_data.push(slot) });
        control.put_ready(&of_control);
        data.put_ready(&of_data);
    }
}

impl core::fmt::Debug for Region {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("Region")
            .field("id", &self.inner.id)
            .field("slots", &self.inner.slots)
            .field("slot_bytes", &self.inner.slot_bytes)
            .field("reserves", &self.inner.reserves)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.collect();
        if self.reserves.iter().map(|reserve| reserve.take_all()).sum::<u32>() == self.slots {
            table::close(self.id);
        }
        // Otherwise frames outlive their region, whose bytes then stay mapped for ever.
    }
}
