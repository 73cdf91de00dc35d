//! Switches for each technique of the buffers, for measurements or for operation without them.

use crate::fragment::FragmentOptions;
use crate::manager::{BufferOptions, ClassBuffers};
use crate::policy::ReserveOptions;

/// Techniques of the buffers. All are on by default; each field describes "off".
///
/// They are chosen when buffers are created, so the packet path does not test them. C1, C2, C4 and reuse of
/// frames concern memory that grows ([`AllocationPolicy::Growing`](crate::AllocationPolicy)); memory that a
/// device holds does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// C1: released frames are kept for reuse; off, each is returned to the system and allocated anew.
    pub pools_frames: bool,
    /// C1: released blocks of fragments are kept for reuse.
    pub pools_fragments: bool,
    /// C2: reloaders fill reserves; off, they are filled once at the start, and then by allocations.
    pub reloads: bool,
    /// C3: control and data have a reloader each; off, one for both, in order of request.
    pub splits_reload: bool,
    /// C4: unused memory is returned to the system; off, never.
    pub gives_back: bool,
    /// C5: a receive ring is refilled once fewer than this percentage of its frames are posted; 100 (off)
    /// refills after every poll.
    pub refill_below_percent: u8,
    /// A released buffer is reused soon; off, after all others.
    pub reuses: bool,
    /// D1: a block of fragments restarts as soon as it has no fragments; off, when it is used up.
    pub resets_when_alone: bool,
    /// D2: blocks of 32 KiB; off, of 4 KiB.
    pub large_blocks: bool,
    /// D3: the shared count is updated once per block; off, for each fragment.
    pub biased_count: bool,
    /// D4: single pages are used when no block is free; off, allocation fails.
    pub single_pages: bool,
    /// D5: each worker has its own fragment allocator; off, all share one behind a lock.
    pub owns_fragments: bool,
    /// D6: maximum number of blocks that a worker holds; off is 1.
    pub held_blocks: u8,
    /// E7: bytes whose multiples no fragment crosses; off is 32 768.
    pub never_cross: u32,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            pools_frames: true,
            pools_fragments: true,
            reloads: true,
            splits_reload: true,
            gives_back: true,
            refill_below_percent: 67,
            reuses: true,
            resets_when_alone: true,
            large_blocks: true,
            biased_count: true,
            single_pages: true,
            owns_fragments: true,
            held_blocks: 8,
            never_cross: 4096,
        }
    }
}

impl Switches {
    /// All techniques off.
    pub const OFF: Self = Self {
        pools_frames: false,
        pools_fragments: false,
        reloads: false,
        splits_reload: false,
        gives_back: false,
        refill_below_percent: 100,
        reuses: false,
        resets_when_alone: false,
        large_blocks: false,
        biased_count: false,
        single_pages: false,
        owns_fragments: false,
        held_blocks: 1,
        never_cross: 32_768,
    };

    fn reserve_options(&self, is_pooled: bool) -> ReserveOptions {
        ReserveOptions { is_pooled, is_reloaded: self.reloads, is_reused: self.reuses }
    }
}

impl BufferOptions {
    /// The same options with the techniques of `switches` in both classes. Sizes and thresholds do not
    /// change.
    #[must_use]
    pub fn with_switches(self, switches: &Switches) -> Self {
        let class = |class: ClassBuffers| ClassBuffers {
            frames: crate::ClassOptions {
                reserve_options: switches.reserve_options(switches.pools_frames),
                ..class.frames
            },
            fragments: class.fragments.map(|fragments| fragments.with_switches(switches)),
        };
        Self {
            control: class(self.control),
            data: class(self.data),
            splits_reload: switches.splits_reload,
            patience: self.patience.filter(|_| switches.gives_back),
            owns_fragments: switches.owns_fragments,
            ..self
        }
    }
}

impl FragmentOptions {
    /// The same options with the techniques of `switches`.
    #[must_use]
    pub fn with_switches(self, switches: &Switches) -> Self {
        Self {
            spare_pages: if switches.single_pages { self.spare_pages } else { 0 },
            large_blocks: switches.large_blocks,
            biased_count: switches.biased_count,
            reset_when_alone: switches.resets_when_alone,
            held_blocks: switches.held_blocks,
            never_cross: switches.never_cross,
            reserve_options: switches.reserve_options(switches.pools_fragments),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AllocationPolicy, BufferManager, Class, ClassOptions, Marks};
    use std::time::Duration;

    fn options() -> BufferOptions {
        let policy = AllocationPolicy::Growing(Marks::for_target(64));
        let frames = ClassOptions { slots: 256, policy, reserve_options: ReserveOptions::default() };
        let policy = AllocationPolicy::Growing(Marks::for_target(4));
        let class = ClassBuffers {
            frames,
            fragments: Some(FragmentOptions { blocks: 16, policy, ..FragmentOptions::default() }),
        };
        BufferOptions { control: class, data: class, ..BufferOptions::fixed(2048, 0, 0) }
    }

    /// The defaults of the switches are those of the options.
    #[test]
    fn all_on_changes_nothing() {
        let (before, after) = (options(), options().with_switches(&Switches::default()));
        assert_eq!(format!("{before:?}"), format!("{after:?}"));
    }

    /// With everything off, buffers still come and go; there is no reloader to be run.
    #[test]
    fn all_off_works() {
        let off = options().with_switches(&Switches::OFF);
        assert_eq!(
            (off.patience, off.data.fragments.map(|fragments| fragments.spare_pages)),
            (None, Some(0))
        );
        let manager = BufferManager::new(off).expect("memory for a test");
        assert!(manager.reloaders().is_empty());
        let mut pool = manager.pool(Class::Data);
        for _ in 0..200 {
            let frames = [pool.take_for(300), pool.take_for(2000)];
            frames.into_iter().for_each(|frame| pool.release_frame(frame.expect("on demand")));
        }
        let accounts = manager.accounts();
        assert!(accounts.iter().any(|account| account.events.on_demand > 0), "{accounts:?}");
        drop(pool);
        assert_eq!(manager.region().free_slots(), 512);
    }

    #[test]
    fn what_a_device_holds_stays() {
        let fixed = BufferOptions { patience: Some(Duration::ZERO), ..BufferOptions::fixed(2048, 8, 256) };
        let manager = BufferManager::new(fixed.with_switches(&Switches::OFF)).expect("memory for a test");
        let mut pool = manager.pool(Class::Data);
        let mut frame = pool.take().expect("256 slots");
        frame.slot_mut().fill(7);
        pool.release_frame(frame);
        pool.give_back();
        let data = manager.accounts()[1];
        assert_eq!((data.cold, data.events.given_back, data.free()), (0, 0, 256));
    }
}
