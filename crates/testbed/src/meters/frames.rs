//! Frames that did not come home.

use polder_buffers::Region;

/// Slots of `region` that are not free. With all workers gone and all queues closed: leaked.
pub fn away(region: &Region) -> u32 {
    region.slots() - region.free_slots()
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_buffers::RegionOptions;

    #[test]
    fn seventeen_leaked_frames_are_seventeen() {
        let region = Region::new(RegionOptions { slots: 1000, slot_bytes: 2048 }).unwrap();
        let mut pool = region.pool();
        for frame in 0..500 {
            let taken = pool.take().unwrap();
            if frame % 29 == 3 && frame < 29 * 17 {
                std::mem::forget(taken);
            } else {
                pool.release_frame(taken);
            }
        }
        drop(pool);
        assert_eq!(away(&region), 17);
    }
}
