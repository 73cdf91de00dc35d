//! Buffer manager: all buffers of a gateway, in two kinds and two classes.
//!
//! A [`Pool`] allocates whole frames and fragments, by size; control and data have separate pools.
//! [`Reloader`]s load further memory on threads that the gateway runs. Source: C1 to C4.

use crate::fragment::{FragmentMemory, FragmentOptions, SharedFragments};
use crate::gauge::Gauge;
use crate::lend::Lender;
use crate::policy::{AllocationPolicy, Reloadable};
use crate::pool::Pool;
use crate::region::{CLASSES, Class, ClassOptions, Region};
use crate::region_error::RegionError;
use crate::reload::Reloader;
use crate::reserve::ReserveCounts;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Buffer options of one class.
#[derive(Clone, Copy, Debug)]
pub struct ClassBuffers {
    /// Whole frames.
    pub frames: ClassOptions,
    /// Fragments; `None` for a class that uses a whole frame for every packet.
    pub fragments: Option<FragmentOptions>,
}

/// Memory and policies of a buffer manager.
#[derive(Clone, Copy, Debug)]
pub struct BufferOptions {
    /// Size of a frame in bytes.
    pub slot_bytes: u32,
    /// Unit in bytes in which memory is loaded and returned: a power of two from the system's page size to 64
    /// KiB.
    pub page_bytes: usize,
    /// Buffers for control traffic.
    pub control: ClassBuffers,
    /// Buffers for data traffic.
    pub data: ClassBuffers,
    /// True if each class has a reloader; false if one reloader serves both in order of request (C3).
    pub splits_reload: bool,
    /// Time for which memory must be unused before it is returned; `None` for never (C4 off).
    pub patience: Option<Duration>,
    /// True if each worker has its own fragment allocator; false if all share one under a lock (D5).
    pub owns_fragments: bool,
}

impl BufferOptions {
    /// Options for frames that are all allocated at the start and stay, for memory that devices hold; no
    /// fragments.
    pub fn fixed(slot_bytes: u32, control_slots: u32, data_slots: u32) -> Self {
        let class = |slots| ClassBuffers { frames: ClassOptions::fixed(slots), fragments: None };
        Self {
            slot_bytes,
            page_bytes: rustix::param::page_size(),
            control: class(control_slots),
            data: class(data_slots),
            splits_reload: true,
            patience: Some(Duration::from_secs(2)),
            owns_fragments: true,
        }
    }
}

/// All buffers of a gateway.
#[derive(Debug)]
pub struct BufferManager {
    region: Region,
    /// Fragment memories by class, in the order of [`CLASSES`].
    fragments: [Option<FragmentMemory>; 2],
    shared: [Option<Arc<SharedFragments>>; 2],
    options: BufferOptions,
    gauges: Mutex<Vec<(BufferPlace, Arc<AtomicU64>)>>,
}

impl BufferManager {
    /// Maps the memory of both classes.
    ///
    /// # Errors
    /// [`RegionError`] with the parameters and a remedy.
    pub fn new(options: BufferOptions) -> Result<Self, RegionError> {
        let BufferOptions { slot_bytes, page_bytes, control, data, .. } = options;
        let region = Region::with_classes(slot_bytes, control.frames, data.frames, page_bytes)?;
        let memory = |class: ClassBuffers| {
            class.fragments.map(|options| FragmentMemory::with_pages(options, page_bytes)).transpose()
        };
        let fragments = [memory(control)?, memory(data)?];
        let share = |memory: &Option<FragmentMemory>| {
            let memory = memory.as_ref().filter(|_| !options.owns_fragments)?;
            Some(Arc::new(SharedFragments::new(memory)))
        };
        let shared = fragments.each_ref().map(share);
        Ok(Self { region, fragments, shared, options, gauges: Mutex::default() })
    }

    /// Region of whole frames, which devices may hold.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Fragment memory of a class; `None` without fragments.
    pub fn fragments(&self, class: Class) -> Option<&FragmentMemory> {
        self.fragments[class.place()].as_ref()
    }

    /// Creates one worker's pool of a class, for frames and fragments.
    pub fn pool(&self, class: Class) -> Pool {
        let pool = self.region.pool_of(class);
        match (&self.shared[class.place()], self.fragments(class)) {
            (Some(shared), _) => pool.with_shared_fragments(Arc::clone(shared)),
            (None, Some(memory)) => pool.with_fragments(memory.fragments()),
            (None, None) => pool,
        }
    }

    /// Reloaders for all memory that grows; each must run on a thread of its own, the first one with higher
    /// priority. Called once.
    pub fn reloaders(&self) -> Vec<Reloader> {
        let buffers = CLASSES.map(|class| self.buffers(class));
        let groups = if self.options.splits_reload {
            buffers.into_iter().collect::<Vec<_>>()
        } else {
            vec![buffers.into_iter().flatten().collect()]
        };
        let groups = groups.into_iter().filter(|buffers| !buffers.is_empty());
        groups.map(|buffers| Reloader::new(self.region.clone(), buffers, self.options.patience)).collect()
    }

    /// Memory of a class that grows.
    fn buffers(&self, class: Class) -> Vec<Arc<dyn Reloadable>> {
        let options = self.class_options(class);
        let mut buffers: Vec<Arc<dyn Reloadable>> = Vec::new();
        let is_reloaded = |policy, reserve_options: crate::ReserveOptions| {
            matches!(policy, AllocationPolicy::Growing(_)) && reserve_options.is_reloaded
        };
        if is_reloaded(options.frames.policy, options.frames.reserve_options) {
            buffers.push(self.region.reserve(class).clone());
        }
        if let Some((memory, options)) = self.fragments(class).zip(options.fragments)
            && is_reloaded(options.policy, options.reserve_options)
        {
            buffers.push(memory.reserve().clone());
        }
        buffers
    }

    fn class_options(&self, class: Class) -> ClassBuffers {
        match class {
            Class::Control => self.options.control,
            Class::Data => self.options.data,
        }
    }

    /// Creates a gauge of the frames in a place; the caller sets it.
    pub fn gauge(&self, place: BufferPlace) -> Gauge {
        let count = Arc::new(AtomicU64::new(0));
        let mut gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        // A gauge whose owner is gone is removed.
        gauges.retain(|(_, count)| Arc::strong_count(count) > 1);
        gauges.push((place, Arc::clone(&count)));
        Gauge(count)
    }

    /// Creates a lender of frames to one process; lent frames count as [`BufferPlace::Lent`].
    pub fn lender(&self) -> Lender {
        Lender::new(self.region.clone(), self.gauge(BufferPlace::Lent))
    }

    /// Number of frames in a place, summed over its gauges.
    pub fn counted(&self, place: BufferPlace) -> u64 {
        let gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        let live = gauges.iter().filter(|(of, count)| *of == place && Arc::strong_count(count) > 1);
        live.map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }

    /// Buffers and counters of each class and kind.
    pub fn accounts(&self) -> Vec<BufferStats> {
        let frames = CLASSES.map(|class| self.account_of_frames(class));
        let fragments = CLASSES.map(|class| self.account_of_fragments(class));
        frames.into_iter().chain(fragments.into_iter().flatten()).collect()
    }

    fn account_of_frames(&self, class: Class) -> BufferStats {
        let frames = self.class_options(class).frames;
        let reserve = self.region.reserve(class);
        let (counts, numbers) = (reserve.counters().counts(), reserve.numbers());
        let (cold, waiting) = reserve.sleeping();
        let level = reserve.level();
        BufferStats {
            class,
            kind: Kind::Frames,
            total: numbers.end - numbers.start,
            cold,
            bytes: u64::from(numbers.end - numbers.start - cold) * u64::from(self.region.slot_bytes()),
            reserve: level + waiting,
            cached: counts.cached,
            taken: counts.taken,
            exhausted: counts.exhausted,
            acting: Acting::of(frames.policy, frames.reserve_options, self.options.patience),
            events: reserve.reserve().counts(level),
            late_frees: self.region.late_frees(),
        }
    }

    fn account_of_fragments(&self, class: Class) -> Option<BufferStats> {
        let memory = self.fragments(class)?;
        let (reserve, options) = (memory.reserve(), memory.options());
        let ((large, pages), cold) = (reserve.free(), reserve.cold());
        let counts = memory.counts();
        Some(BufferStats {
            class,
            kind: Kind::Blocks,
            total: reserve.count(),
            cold,
            bytes: reserve.bytes(cold),
            reserve: large + pages,
            cached: counts.cached,
            taken: counts.taken,
            exhausted: counts.exhausted,
            acting: Acting::of(options.policy, options.reserve_options, self.options.patience),
            events: reserve.events(),
            late_frees: memory.late_frees(),
        })
    }
}

impl Class {
    fn place(self) -> usize {
        match self {
            Self::Control => 0,
            Self::Data => 1,
        }
    }
}

/// Place of a frame in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferPlace {
    /// In a ring of a device.
    Posted,
    /// In a packet being processed, or between two workers.
    Path,
    /// In a queue, or waiting for reassembly.
    Held,
    /// Lent to another process.
    Lent,
}

/// All places.
pub const BUFFER_PLACES: [BufferPlace; 4] =
    [BufferPlace::Posted, BufferPlace::Path, BufferPlace::Held, BufferPlace::Lent];

/// The two kinds of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Whole frames.
    Frames,
    /// Blocks of fragments.
    Blocks,
}

/// Techniques of the reserve that are active for one class and kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acting {
    /// Buffers are allocated ahead of use (C1).
    pub ready_ahead: bool,
    /// A reloader loads more when few are left (C2).
    pub is_reloaded: bool,
    /// Unused buffers are returned to the system (C4).
    pub gives_back: bool,
}

impl Acting {
    fn of(policy: AllocationPolicy, options: crate::ReserveOptions, patience: Option<Duration>) -> Self {
        match policy {
            AllocationPolicy::Fixed => Self { ready_ahead: true, ..Self::default() },
            AllocationPolicy::Growing(_) => Self {
                ready_ahead: options.is_pooled,
                is_reloaded: options.is_reloaded,
                gives_back: options.is_reloaded && patience.is_some(),
            },
        }
    }
}

/// Buffers and counters of one class and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferStats {
    /// Class of the buffers.
    pub class: Class,
    /// Frames, or blocks of fragments.
    pub kind: Kind,
    /// Total number of buffers.
    pub total: u32,
    /// Number of buffers without memory.
    pub cold: u32,
    /// Size in bytes of the buffers that have memory.
    pub bytes: u64,
    /// Number of buffers available to any worker.
    pub reserve: u32,
    /// Number of buffers in workers' caches (frames) or held by workers (blocks), as last published.
    pub cached: u64,
    /// Number of frames or fragments allocated so far, as last published.
    pub taken: u64,
    /// Number of times that no buffer was free, as last published.
    pub exhausted: u64,
    /// Active techniques.
    pub acting: Acting,
    /// Counters of the reserve.
    pub events: ReserveCounts,
    /// Number of late frees (frames: of both classes).
    pub late_frees: u64,
}

impl BufferStats {
    /// Number of free buffers: available to any worker, or in workers' caches.
    pub fn free(&self) -> u64 {
        u64::from(self.reserve) + self.cached
    }

    /// Number of frames or blocks in use: posted, in packets, held or lent. Exact while no worker runs.
    pub fn out(&self) -> u64 {
        u64::from(self.total - self.cold - self.reserve).saturating_sub(self.cached)
    }
}
