//! One mapping, cut into slots of equal size.
//!
//! A region is unmapped only when all its slots are home; as long as a frame lives, its bytes do too.

use crate::depot::Depot;
use crate::home::HomeList;
use crate::mapping;
use crate::pool::Pool;
use crate::table::{self, Keeper};
use core::num::NonZeroU16;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

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
    #[error("a process has at most {} regions at a time", table::REGIONS - 1)]
    TooMany,
    /// No blocks for fragments, or more than 2¹⁹.
    #[error("{0} blocks for fragments: a memory has 1 to 524288")]
    Blocks(u32),
    /// More blocks for one worker than it can look through.
    #[error("{0} blocks held by a worker: 1 to 64")]
    HeldBlocks(u8),
    /// A limit that fragments cannot keep.
    #[error("fragments that never cross {0}: it has to be a power of two from 64 to 32768")]
    NeverCross(u32),
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
    depot: Depot,
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
        let mapping = mapping::map(bytes).map_err(|source| RegionError::Map { bytes, source })?;
        let keeper = Keeper::Slots(HomeList::new(slots));
        let id = table::register(mapping.base, slot_bytes.trailing_zeros(), slots, keeper)?;
        let depot = Depot::new(slots);
        depot.fill(slots);
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
        table::base(self.inner.id)
    }

    /// The memory file behind the mapping, for sharing it with another process.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.inner.file.as_fd()
    }

    /// A cache of free slots for one worker.
    pub fn pool(&self) -> Pool {
        Pool::new(self.clone())
    }

    /// Slots that are free: in magazines, on the way home, or in a pool's cache as last published.
    ///
    /// Equal to [`Region::slots`] when no frame lives. Exact while no worker runs.
    pub fn home(&self) -> u32 {
        self.collect_strays();
        self.inner.depot.level()
    }

    /// How many frames have been dropped instead of released; 0 on a steady path.
    pub fn strays(&self) -> u64 {
        table::strays(self.inner.id)
    }

    /// The free slots that no pool has.
    pub(crate) fn depot(&self) -> &Depot {
        &self.inner.depot
    }

    /// Brings the slots of dropped frames back into circulation.
    pub(crate) fn collect_strays(&self) {
        self.inner.depot.collect(table::home_list(self.inner.id));
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
        self.depot.collect(table::home_list(self.id));
        if self.depot.take_all() == self.options.slots {
            table::close(self.id, self.bytes);
        }
        // Otherwise frames live on without their region; their bytes stay mapped for good.
    }
}
