//! A worker takes slots while the reloader moves them out of the depot and back.

use super::*;
use loom::sync::Arc as Shared;

const PAGE: usize = 4096;
const SLOTS: u32 = 2;

fn reserve() -> SlotReserve {
    let memory = Arc::new(Memory::map_pages(PAGE, PAGE).expect("memory for a test"));
    let marks = Marks { target: SLOTS, reload_below: 0, give_back_above: u32::MAX };
    let policy = AllocationPolicy::Growing(marks);
    SlotReserve::new(&memory, 0..SLOTS, 11, policy, ReserveOptions::default()).expect("memory for a test")
}

/// All slots are ready, and none is given back: a take finds them in the depot or under the lock.
#[test]
fn a_take_finds_slots_that_are_being_moved() {
    loom::model(|| {
        let reserve = Shared::new(reserve());
        let moved = Shared::clone(&reserve);
        let reloader = loom::thread::spawn(move || moved.unload(0, &mut || ()));
        let mut slots = [0; MAGAZINE];
        let count = reserve.take(&mut slots, |slot| slot, || ());
        assert_eq!(count, SLOTS as usize, "they are ready all the time");
        let given_back = reloader.join().expect("the reloader does not panic");
        assert_eq!(given_back, 0);
        assert_eq!(reserve.put(&slots[..count], |&slot| slot), count);
        assert_eq!(reserve.take_all(), SLOTS);
    });
}
