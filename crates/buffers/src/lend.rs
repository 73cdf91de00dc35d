//! Frames lent to another process.
//!
//! A process that got a class's memory file ([`Region::file`]) accesses a frame's bytes there. Meanwhile the
//! frame is stored in a [`Lender`], so that no code here has a reference to bytes that change. Offsets that
//! the process returns are checked. A caller that does not trust the process to stop using a returned frame
//! must copy it.

use crate::frame::Frame;
use crate::frame::table;
use crate::gauge::Gauge;
use crate::pool::Pool;
use crate::region::{CLASSES, Class, Region};

/// Frames of one region that are lent to one process.
#[derive(Debug)]
pub struct Lender {
    region: Region,
    /// Lent frames by slot number.
    lent: Box<[Option<Frame>]>,
    count: u64,
    gauge: Gauge,
}

/// Position of a lent frame in the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loan {
    /// Class whose file contains the frame.
    pub class: Class,
    /// Offset of the frame in that file, in bytes.
    pub offset: u64,
    /// Size of the frame in bytes.
    pub bytes: u32,
}

/// Another process returned a frame that was not lent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the other process returned the frame of class {class:?} at offset {offset}, which was not lent to it"
)]
pub struct NotLent {
    /// Class named by the process.
    pub class: Class,
    /// Offset named by the process.
    pub offset: u64,
}

impl Lender {
    pub(crate) fn new(region: Region, gauge: Gauge) -> Self {
        let lent = (0..region.slots()).map(|_| None).collect();
        Self { region, lent, count: 0, gauge }
    }

    /// Lends a frame.
    ///
    /// # Errors
    /// The frame itself if it is no slot of this region, or shared.
    pub fn lend(&mut self, frame: Frame) -> Result<Loan, Frame> {
        if frame.region() != self.region.id() || frame.is_shared() {
            return Err(frame);
        }
        let (index, bytes) = (frame.index(), frame.slot_bytes());
        let class = self.region.class_of(index);
        let offset = u64::from(index - self.region.first_in_file(class)) * u64::from(bytes);
        // A frame is the only owner of its slot, so the entry is free.
        self.lent[index as usize] = Some(frame);
        self.set_count(self.count + 1);
        Ok(Loan { class, offset, bytes })
    }

    /// Takes back a frame that the process has returned. `offset` may point anywhere into the frame.
    ///
    /// # Errors
    /// [`NotLent`] if the process has no lent frame at `offset`.
    pub fn take_back(&mut self, class: Class, offset: u64) -> Result<Frame, NotLent> {
        let slot = offset / u64::from(self.region.slot_bytes());
        let index = slot.checked_add(self.region.first_in_file(class).into());
        let index = index.and_then(|index| usize::try_from(index).ok());
        let lent = index.and_then(|index| self.lent.get_mut(index));
        let of_class = |frame: &mut Frame| self.region.class_of(frame.index()) == class;
        let frame = lent.and_then(|place| place.take_if(of_class)).ok_or(NotLent { class, offset })?;
        self.set_count(self.count - 1);
        Ok(frame)
    }

    /// Takes back all frames after the process has ended.
    pub fn take_all(&mut self, pool: &mut Pool) {
        self.lent.iter_mut().filter_map(Option::take).for_each(|frame| pool.release_frame(frame));
        self.set_count(0);
    }

    /// Number of lent frames.
    pub fn lent(&self) -> u64 {
        self.count
    }

    fn set_count(&mut self, count: u64) {
        self.count = count;
        self.gauge.set(count);
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        self.lent.iter_mut().filter_map(Option::take).for_each(|frame| table::send_home(frame.into_place()));
    }
}

impl Region {
    /// Class of a slot.
    fn class_of(&self, index: u32) -> Class {
        let [control, data] = CLASSES;
        if self.reserve(control).numbers().contains(&index) { control } else { data }
    }

    /// First slot in a class's file.
    fn first_in_file(&self, class: Class) -> u32 {
        if self.has_one_file() { 0 } else { self.reserve(class).numbers().start }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AllocationPolicy, BufferManager, BufferOptions, BufferPlace, ClassBuffers, ClassOptions,
        FragmentOptions, Marks, ReserveOptions,
    };

    fn manager(policy: AllocationPolicy) -> BufferManager {
        let frames = |slots| ClassOptions { slots, policy, reserve_options: ReserveOptions::default() };
        let fragments = Some(FragmentOptions { blocks: 4, ..FragmentOptions::default() });
        let class = |slots| ClassBuffers { frames: frames(slots), fragments };
        let options =
            BufferOptions { control: class(16), data: class(64), ..BufferOptions::fixed(2048, 0, 0) };
        BufferManager::new(options).expect("memory for a test")
    }

    /// Bytes that the other process writes into the file are in the frame that comes back, whether the
    /// classes share a file or have one each.
    #[test]
    fn what_another_process_writes_comes_back() {
        for policy in [AllocationPolicy::Fixed, AllocationPolicy::Growing(Marks::for_target(16))] {
            let manager = manager(policy);
            let mut lender = manager.lender();
            for class in CLASSES {
                let mut pool = manager.pool(class);
                let frame = pool.take().expect("a free frame");
                let (index, loan) = (frame.index(), lender.lend(frame).expect("a slot of the region"));
                assert_eq!((loan.class, loan.bytes, lender.lent()), (class, 2048, 1));
                assert_eq!(manager.counted(BufferPlace::Lent), 1);
                rustix::io::pwrite(manager.region().file(class), b"written elsewhere", loan.offset + 64)
                    .expect("the file is open");
                let frame = lender.take_back(class, loan.offset + 64).expect("it is lent");
                assert_eq!((&frame.slot()[64..81], frame.index()), (&b"written elsewhere"[..], index));
                pool.release_frame(frame);
            }
            assert_eq!(manager.counted(BufferPlace::Lent), 0);
            drop(lender);
            assert_eq!((manager.region().free_slots(), manager.region().late_frees()), (80, 0));
        }
    }

    /// A returned frame that is not lent is refused: twice, another class, elsewhere, nowhere.
    #[test]
    fn what_was_not_lent_is_not_taken_back() {
        let manager = manager(AllocationPolicy::Growing(Marks::for_target(16)));
        let (mut pool, mut lender) = (manager.pool(Class::Data), manager.lender());
        let loan = lender.lend(pool.take().expect("a free frame")).expect("a slot of the region");
        let offsets = [loan.offset + 2048, u64::MAX, u64::MAX / 2048 * 2048, 80 * 2048];
        for offset in offsets {
            assert_eq!(lender.take_back(Class::Data, offset), Err(NotLent { class: Class::Data, offset }));
        }
        let place_in_region = loan.offset + 16 * 2048;
        assert!(lender.take_back(Class::Control, place_in_region).is_err(), "the right place, another class");
        pool.release_frame(lender.take_back(Class::Data, loan.offset).expect("it is lent"));
        assert!(lender.take_back(Class::Data, loan.offset).is_err(), "twice");
    }

    /// Only a slot with one name is lent; and when the process is gone, everything is home again.
    #[test]
    fn only_slots_are_lent_and_all_come_home() {
        let manager = manager(AllocationPolicy::Fixed);
        let (mut pool, mut lender) = (manager.pool(Class::Data), manager.lender());
        let fragment = pool.take_for(100).expect("a fragment");
        pool.release_frame(lender.lend(fragment).expect_err("a fragment has no file"));
        let mut frame = pool.take().expect("a free frame");
        let other = frame.share().expect("a free name");
        [lender.lend(frame), lender.lend(other)].into_iter().for_each(|refused| {
            pool.release_frame(refused.expect_err("it has two names"));
        });
        for _ in 0..3 {
            lender.lend(pool.take().expect("a free frame")).expect("a slot of the region");
        }
        lender.take_all(&mut pool);
        assert_eq!((lender.lent(), manager.counted(BufferPlace::Lent)), (0, 0));
        lender.lend(pool.take().expect("a free frame")).expect("a slot of the region");
        drop((lender, pool));
        assert_eq!(manager.counted(BufferPlace::Lent), 0, "a gauge ends with its owner");
        assert_eq!((manager.region().free_slots(), manager.region().late_frees()), (80, 0));
    }
}
