//! Tests of carving, block by block.

use super::*;
use crate::blocks::{LARGE_UNITS, PAGE_UNITS};

const ON: Carving = Carving { is_biased: true, resets: true, held: 8, never_cross: PAGE_UNITS };

fn blocks(large: u32, pages: u32) -> Arc<Blocks> {
    Arc::new(Blocks::new(large, LARGE_UNITS, pages))
}

/// D3: whatever its own worker does with a block, the shared count stands still.
#[test]
fn the_shared_count_is_touched_once_a_block() {
    let blocks = blocks(1, 0);
    let mut carver = Carver::new(Arc::clone(&blocks), ON);
    let mut live = vec![carver.take(4).expect("a free block")];
    for round in 0..1000_u32 {
        assert!(blocks.is_alone(0, BIAS + 1), "in round {round}");
        if round % 3 == 0 {
            carver.release(live.swap_remove(0));
        }
        live.extend(carver.take(1 + round % 2));
    }
    let mut off = Carver::new(Arc::clone(&blocks), Carving { is_biased: false, ..ON });
    live.drain(..).for_each(|unit| carver.release(unit));
    carver.give_back();
    let taken = [off.take(1), off.take(1), off.take(1)].map(|unit| unit.expect("room in the block"));
    assert!(blocks.is_alone(0, 4), "three fragments and the worker itself");
    taken.into_iter().for_each(|unit| off.release(unit));
    off.settle();
    assert!(blocks.is_alone(0, 1));
}

/// Different places that a thousand fragments had, of which one lives at a time.
fn places(carving: Carving) -> usize {
    let mut carver = Carver::new(blocks(2, 0), carving);
    let take_and_release = |_| {
        let unit = carver.take(4).expect("a free block");
        carver.release(unit);
        carver.settle();
        unit
    };
    (0..1000).map(take_and_release).collect::<std::collections::BTreeSet<_>>().len()
}

/// D1: alone, the same warm bytes again and again; off, new ones to the end of the block.
#[test]
fn a_block_starts_again_when_alone() {
    for is_biased in [true, false] {
        assert_eq!(places(Carving { is_biased, ..ON }), 1);
        assert_eq!(places(Carving { is_biased, resets: false, ..ON }), LARGE_UNITS as usize / 4);
    }
}

/// Free blocks after each of 200 takes of a page, of which four live at a time.
fn levels(held: usize) -> std::collections::BTreeSet<(u32, u32)> {
    let blocks = blocks(20, 0);
    let mut carver = Carver::new(Arc::clone(&blocks), Carving { held, ..ON });
    let mut live = VecDeque::new();
    let take = |_| {
        live.push_back(carver.take(PAGE_UNITS).expect("a free block"));
        let free = blocks.free();
        live.drain(..live.len().saturating_sub(4)).for_each(|unit| carver.release(unit));
        carver.settle();
        free
    };
    (0..200).map(take).skip(20).collect()
}

/// D6: with several blocks held, a fragment that lives on does not send its worker to the shared
/// reserve at every end of a block.
#[test]
fn several_blocks_wait_to_be_alone() {
    assert_eq!(levels(8).len(), 1);
    assert_eq!(levels(1).len(), 2);
}

/// Before a worker says that there is none, it looks at every block that it holds.
#[test]
fn the_last_block_is_looked_for() {
    let blocks = blocks(3, 0);
    let mut carver = Carver::new(Arc::clone(&blocks), ON);
    let live: Vec<u32> = std::iter::from_fn(|| carver.take(PAGE_UNITS)).collect();
    assert_eq!((live.len(), carver.held()), (24, 3));
    let mut other = Carver::new(Arc::clone(&blocks), ON);
    live[8..16].iter().for_each(|&unit| other.release(unit));
    other.settle();
    assert_eq!(carver.take(1).map(|unit| blocks.block_of(unit)), Some(blocks.block_of(live[8])));
}

/// D4: without large blocks, pages; without pages, nothing; and both come home.
#[test]
fn pages_stand_in() {
    let blocks = blocks(1, 2);
    let mut carver = Carver::new(Arc::clone(&blocks), ON);
    let mut live: Vec<u32> = std::iter::from_fn(|| carver.take(PAGE_UNITS)).collect();
    assert_eq!(live.len(), 8 + 2);
    assert!(blocks.block_of(live[9]) == 2 && !blocks.is_large(blocks.block_of(live[8])));
    live.drain(..).for_each(|unit| carver.release(unit));
    carver.give_back();
    assert_eq!(blocks.free(), (1, 2));
}

#[test]
fn what_cannot_fit_is_refused() {
    let mut carver = Carver::new(blocks(1, 1), ON);
    assert_eq!(carver.take(PAGE_UNITS + 1), None, "longer than what must not be crossed");
    let free = Carving { never_cross: LARGE_UNITS, ..ON };
    let mut carver = Carver::new(blocks(1, 1), free);
    let thrice = 9000_u32.div_ceil(64);
    let taken = [carver.take(thrice), carver.take(thrice), carver.take(thrice), carver.take(thrice)];
    assert_eq!(taken.map(|unit| unit.is_some()), [true, true, true, false], "three of 9000 bytes (D2)");
}

/// Pieces taken in runs lie where the same pieces lie when they are taken one by one, whatever lies between them
/// and however the line that they must not cross cuts a block.
#[test]
fn a_run_is_what_single_pieces_are() {
    // The interpreter takes a thousand times as long.
    let most = if cfg!(miri) { 6 } else { 60_usize };
    for never_cross in [16, PAGE_UNITS, LARGE_UNITS] {
        let carving = Carving { never_cross, ..ON };
        let (mut alone, mut together) =
            (Carver::new(blocks(40, 8), carving), Carver::new(blocks(40, 8), carving));
        let mut size = 7_u32;
        for wanted in 1..most {
            size = size * 31 % 127;
            let units = 1 + size % (never_cross.min(40));
            let single: Vec<u32> = std::iter::from_fn(|| alone.take(units)).take(wanted).collect();
            let mut run = Vec::new();
            let count = together.take_run(units, wanted, |first, count| {
                run.extend((0..count).map(|number| first - number * units));
            });
            assert_eq!((count, &run), (single.len(), &single), "{wanted} of {units} within {never_cross}");
            let crosses = |&unit: &u32| unit / never_cross != (unit + units - 1) / never_cross;
            assert!(!run.iter().any(crosses), "{run:?} of {units} within {never_cross}");
            if wanted % 3 == 0 {
                single.iter().for_each(|&unit| alone.release(unit));
                alone.settle();
                together.release_run(&run, |&unit| unit);
            }
        }
    }
}
