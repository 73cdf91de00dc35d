//! Pools beside a set of slot numbers, over random histories and over threads.

use polder_buffers::ring::channel;
use polder_buffers::{
    Batch, BufferManager, BufferOptions, Class, Frame, MAGAZINE, Packet, Region, RegionOptions,
};
use proptest::prelude::*;
use std::collections::HashSet;

fn region(slots: u32) -> Region {
    Region::new(RegionOptions { slots, slot_bytes: 512 }).expect("memory for a test")
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take(usize),
    TakeBulk(usize, usize),
    Release(usize),
    ReleaseBulk(usize, usize),
    ReleaseBatch(usize, usize),
    Drop(usize),
    GiveBack(usize),
    Restart(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let pool = 0_usize..3;
    prop_oneof![
        6 => pool.clone().prop_map(Step::Take),
        6 => pool.clone().prop_map(Step::Release),
        2 => (pool.clone(), 0_usize..80).prop_map(|(pool, count)| Step::TakeBulk(pool, count)),
        2 => (pool.clone(), 0_usize..80).prop_map(|(pool, count)| Step::ReleaseBulk(pool, count)),
        2 => (pool.clone(), 0_usize..64).prop_map(|(pool, count)| Step::ReleaseBatch(pool, count)),
        1 => pool.clone().prop_map(Step::Drop),
        1 => pool.clone().prop_map(Step::GiveBack),
        1 => pool.prop_map(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// No slot has two names, none is lost, and a pool says "none" only when its fellows hoard.
    #[test]
    fn a_slot_is_in_one_place(steps in proptest::collection::vec(step(), 1..600), slots in prop_oneof![3 => 1_u32..400, 1 => 2000_u32..5000]) {
        let region = region(slots);
        let mut pools = [region.pool(), region.pool(), region.pool()];
        let other = self::region(64);
        let mut others = other.pool();
        let mut live: Vec<Frame> = Vec::new();
        let mut names = HashSet::new();
        let mut dropped = 0;
        for step in steps {
            let mut strange = others.take();
            match step {
                Step::Take(pool) => match pools[pool].take() {
                    Some(frame) => {
                        prop_assert!(names.insert(frame.index()), "slot {} has two names", frame.index());
                        live.push(frame);
                    }
                    None => {
                        let cached = pools.iter().map(polder_buffers::Pool::cached).sum::<usize>();
                        prop_assert_eq!(live.len() + cached, slots as usize);
                    }
                },
                Step::TakeBulk(pool, wanted) => {
                    let before = live.len();
                    prop_assert_eq!(pools[pool].take_bulk(wanted, &mut live), live.len() - before);
                    for frame in &live[before..] {
                        prop_assert!(names.insert(frame.index()), "slot {} has two names", frame.index());
                    }
                    if live.len() - before < wanted {
                        let cached = pools.iter().map(polder_buffers::Pool::cached).sum::<usize>();
                        prop_assert_eq!(live.len() + cached, slots as usize);
                    }
                },
                Step::ReleaseBulk(pool, count) => {
                    let mut going = live.split_off(live.len().saturating_sub(count));
                    for frame in &going {
                        names.remove(&frame.index());
                    }
                    // One that the pool does not know goes home by its own way.
                    going.extend(strange.take());
                    pools[pool].release_bulk(&mut going);
                    prop_assert!(going.is_empty());
                },
                Step::ReleaseBatch(pool, count) => {
                    let mut batch = Batch::new();
                    for frame in live.split_off(live.len().saturating_sub(count)) {
                        names.remove(&frame.index());
                        batch.push(Packet::new(frame)).expect("fewer than a batch");
                    }
                    pools[pool].release(&mut batch);
                    prop_assert!(batch.is_empty());
                },
                Step::Release(pool) => if let Some(frame) = live.pop() {
                    names.remove(&frame.index());
                    pools[pool].release_frame(frame);
                },
                Step::Drop(at) => if !live.is_empty() {
                    let frame = live.swap_remove(at % live.len());
                    names.remove(&frame.index());
                    dropped += 1;
                    drop(frame);
                },
                Step::GiveBack(pool) => pools[pool].give_back(),
                Step::Restart(pool) => pools[pool] = region.pool(),
            }
            strange.into_iter().for_each(|frame| others.release_frame(frame));
        }
        prop_assert_eq!(region.late_frees(), dropped);
        let outstanding = u32::try_from(live.len()).expect("at most 5000");
        drop(pools);
        prop_assert_eq!(region.free_slots() + outstanding, slots);
        drop(live);
        prop_assert_eq!(region.free_slots(), slots);
        drop(others);
        prop_assert_eq!((other.free_slots(), other.late_frees()), (64, 0));
    }
}

/// Seventeen frames that are kept are seventeen frames that are missing.
#[test]
fn seventeen_leaks_are_seventeen() {
    let region = region(256);
    let mut pool = region.pool();
    let kept: Vec<Frame> = (0..17).filter_map(|_| pool.take()).collect();
    drop(pool);
    assert_eq!(region.slots() - region.free_slots(), 17);
    drop(kept);
    assert_eq!((region.free_slots(), region.late_frees()), (256, 17));
}

/// Taken on one core, released on another, a hundred thousand times over.
#[test]
fn frames_go_home_across_threads() {
    const ROUNDS: u32 = 100_000;
    let region = region(2 * u32::try_from(MAGAZINE).expect("128"));
    let (mut there, mut here) = channel::<Packet>(32);
    let mut pool = region.pool();
    let consumer = std::thread::spawn(move || {
        let mut seen = 0;
        while seen < ROUNDS {
            let count = here.pop_all(16, |packet| {
                assert_eq!(packet.bytes(), seen.to_ne_bytes());
                pool.release_packet(packet);
                seen += 1;
            });
            if count == 0 {
                std::thread::sleep(std::time::Duration::from_micros(10));
            }
        }
    });
    let mut pool = region.pool();
    let mut sent = 0_u32;
    while sent < ROUNDS {
        let Some(packet) = Packet::copy_from(&sent.to_ne_bytes(), &mut pool) else {
            std::thread::sleep(std::time::Duration::from_micros(10));
            continue;
        };
        let mut waiting = Some(packet);
        while let Some(packet) = waiting.take() {
            if let Err(packet) = there.push(packet) {
                waiting = Some(packet);
                std::thread::sleep(std::time::Duration::from_micros(10));
            }
        }
        sent += 1;
    }
    consumer.join().expect("the consumer does not panic");
    drop((pool, there));
    assert_eq!((region.free_slots(), region.late_frees()), (region.slots(), 0));
}

/// Packets left in a ring when both ends go are released by the safety net.
#[test]
fn a_ring_drops_what_is_left() {
    let region = region(64);
    let mut pool = region.pool();
    let (mut there, here) = channel::<Packet>(8);
    for _ in 0..5 {
        let packet = Packet::new(pool.take().expect("64 slots"));
        there.push(packet).expect("eight cells");
    }
    drop((pool, there, here));
    assert_eq!((region.free_slots(), region.late_frees()), (64, 5));
}

/// Data cannot use up control's memory, and the worker's one pool releases each frame directly to its
/// own class.
#[test]
fn a_worker_has_both_classes_in_one_pool() {
    let manager = BufferManager::new(BufferOptions::fixed(2048, 16, 64)).expect("memory for a test");
    let pool = || manager.pool(Class::Data).with_control(manager.pool(Class::Control));
    let mut pool = pool();
    let mut taken = Vec::new();
    assert_eq!(pool.take_bulk(100, &mut taken), 64);
    assert!(pool.take_for(100).is_none() && pool.take().is_none());
    for _ in 0..8 {
        taken.push(pool.take_control_for(100).expect("control has its own"));
    }
    let of_host = core::iter::from_fn(|| pool.control().take()).collect::<Vec<_>>();
    assert_eq!(of_host.len(), 8);
    assert!(pool.take_control_for(100).is_none());
    taken.extend(of_host);
    taken.into_iter().for_each(|frame| pool.release_frame(frame));
    let again = core::iter::from_fn(|| pool.control().take()).collect::<Vec<_>>();
    assert_eq!(again.len(), 16);
    again.into_iter().for_each(|frame| pool.release_frame(frame));
    drop(pool);
    assert_eq!((manager.region().free_slots(), manager.region().late_frees()), (80, 0));
    let accounts = manager.accounts();
    assert_eq!(accounts.iter().map(|account| account.free()).collect::<Vec<_>>(), [16, 64]);
}
