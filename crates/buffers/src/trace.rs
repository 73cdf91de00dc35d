//! Allocation sites of allocated frames, in debug builds, so that a leak or double free can be traced to its
//! source.

/// Allocation sites of the frames of one region.
#[cfg(debug_assertions)]
pub(crate) struct Traces {
    /// Allocation site by the frame's first unit; null if it is free.
    taken: Box<[std::sync::atomic::AtomicPtr<Site>]>,
    /// Allocation site of the last late free.
    late_free: std::sync::atomic::AtomicPtr<Site>,
}

/// Source location.
pub(crate) type Site = core::panic::Location<'static>;

#[cfg(debug_assertions)]
mod debug {
    use super::{Site, Traces};
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, Ordering};

    impl Traces {
        pub(crate) fn new(units: u32) -> Self {
            let taken = (0..units).map(|_| AtomicPtr::new(null_mut())).collect();
            Self { taken, late_free: AtomicPtr::new(null_mut()) }
        }

        /// Records an allocation.
        ///
        /// # Panics
        /// If the frame is allocated already.
        pub(crate) fn take(&self, index: u32, site: &'static Site) {
            // Relaxed, here and below: the transfer of the frame orders this as well.
            let before =
                self.taken[index as usize].swap(core::ptr::from_ref(site).cast_mut(), Ordering::Relaxed);
            if let Some(before) = Self::site(before) {
                unreachable!("frame {index} is taken at {site}, and was taken before at {before}");
            }
        }

        /// Records a release.
        ///
        /// # Panics
        /// If the frame is not allocated.
        pub(crate) fn release(&self, index: u32) {
            let before = self.taken[index as usize].swap(null_mut(), Ordering::Relaxed);
            assert!(!before.is_null(), "frame {index} is released, and was released before");
        }

        /// Records that a frame was dropped instead of released.
        pub(crate) fn late_free(&self, index: u32) {
            let taken =
                self.taken.get(index as usize).map_or(null_mut(), |site| site.load(Ordering::Relaxed));
            self.late_free.store(taken, Ordering::Relaxed);
        }

        /// Allocation site of the last late free.
        pub(crate) fn last_late_free(&self) -> Option<&'static Site> {
            Self::site(self.late_free.load(Ordering::Relaxed))
        }

        /// Indices and allocation sites of allocated frames.
        pub(crate) fn out(&self) -> Vec<(u32, &'static Site)> {
            let sites = self.taken.iter().map(|site| Self::site(site.load(Ordering::Relaxed)));
            (0..).zip(sites).filter_map(|(index, site)| Some((index, site?))).collect()
        }

        #[expect(unsafe_code, reason = "UNSAFETY: the pointer becomes a reference again")]
        fn site(site: *mut Site) -> Option<&'static Site> {
            // SAFETY: null, or made from a `&'static Site` in `take`; nobody writes through it.
            unsafe { site.cast_const().as_ref() }
        }
    }
}

/// Does nothing in release builds.
#[cfg(not(debug_assertions))]
pub(crate) struct Traces;

#[cfg(not(debug_assertions))]
impl Traces {
    pub(crate) fn new(_units: u32) -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn late_free(&self, _index: u32) {}

    pub(crate) fn last_late_free(&self) -> Option<&'static Site> {
        None
    }

    pub(crate) fn out(&self) -> Vec<(u32, &'static Site)> {
        Vec::new()
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use crate::{FragmentMemory, FragmentOptions, Packet, Region, RegionOptions};

    #[test]
    fn what_is_out_knows_where_it_was_taken() {
        let region = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 }).expect("memory for a test");
        let memory = FragmentMemory::new(FragmentOptions::default()).expect("memory for a test");
        let mut pool = region.pool().with_fragments(memory.fragments());
        assert!(region.out().is_empty() && region.last_late_free().is_none());
        let (line, frames) = (line!(), [pool.take(), pool.take_for(1600), pool.take_for(100)]);
        let [slot, long, fragment] = frames.map(|frame| frame.expect("there are free ones"));
        let lines = |out: Vec<(u32, &Site)>| out.iter().map(|(_, site)| site.line()).collect::<Vec<_>>();
        assert_eq!((lines(region.out()), lines(memory.out())), (vec![line, line], vec![line]));
        pool.release_frame(long);
        pool.release_frame(fragment);
        assert_eq!((region.out().len(), region.out()[0].0, memory.out().len()), (1, slot.index(), 0));
        drop(slot);
        assert_eq!(region.last_late_free().map(|site| (site.file(), site.line())), Some((file!(), line)));
        assert!(region.out().is_empty());
        let (line, packet) = (line!(), Packet::copy_from(&[1; 5000], &mut pool).expect("64 slots"));
        assert_eq!(lines(region.out()), [line; 3], "the caller's, not the crate's own");
        pool.release_packet(packet);
    }

    #[test]
    #[should_panic(expected = "was taken before at")]
    fn a_frame_that_is_taken_twice_is_named() {
        let traces = Traces::new(2);
        traces.take(1, core::panic::Location::caller());
        traces.take(0, core::panic::Location::caller());
        traces.take(1, core::panic::Location::caller());
    }

    #[test]
    #[should_panic(expected = "was released before")]
    fn a_frame_that_is_released_twice_is_named() {
        let traces = Traces::new(1);
        traces.take(0, core::panic::Location::caller());
        traces.release(0);
        traces.release(0);
    }
}
