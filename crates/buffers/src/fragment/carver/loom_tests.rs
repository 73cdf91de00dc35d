//! Two workers and one block, in every order.

use super::*;
use loom::cell::UnsafeCell;

/// The bytes of each unit; the model checker finds any two uses that are not in order.
struct Memory(Vec<UnsafeCell<u32>>);

impl Memory {
    fn touch(&self, unit: u32) {
        self.0[unit as usize].with_mut(|_| ());
    }
}

fn model(is_biased: bool, resets: bool, held: usize) {
    loom::model(move || {
        let blocks = Arc::new(Blocks::new(2, 2, 0));
        let memory = Arc::new(Memory((0..4).map(|_| UnsafeCell::new(0)).collect()));
        let carving = Carving { is_biased, resets, held, never_cross: 2 };
        let mut here = Carver::new(Arc::clone(&blocks), carving);
        let lent = [here.take(1), here.take(1)].map(|unit| unit.expect("a free block"));
        lent.iter().for_each(|&unit| memory.touch(unit));
        let (other_blocks, other_memory) = (Arc::clone(&blocks), Arc::clone(&memory));
        let thread = loom::thread::spawn(move || {
            let mut there = Carver::new(other_blocks, carving);
            for unit in lent {
                other_memory.touch(unit);
                there.release(unit);
                there.settle();
            }
        });
        // Three more do not fit into the other block: the first one has to be alone again, or not.
        for unit in [here.take(1), here.take(1), here.take(1)].into_iter().flatten() {
            memory.touch(unit);
            here.release(unit);
        }
        thread.join().expect("the other thread does not panic");
        here.give_back();
        assert_eq!(blocks.take_all(), 2);
    });
}

#[test]
fn a_block_is_carved_again_when_its_last_user_is_gone() {
    model(true, true, 2);
}

#[test]
fn without_bias_too() {
    model(false, true, 1);
}

#[test]
fn a_block_that_was_let_go_comes_home_once() {
    model(true, false, 1);
}
