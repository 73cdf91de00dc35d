//! Fragments beside a map of intervals, over random histories on several workers.

use polder_buffers::{
    FragmentMemory, FragmentOptions, Frame, Packet, Region, RegionOptions, SharedFragments,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const BLOCKS: u32 = 4;

#[derive(Clone, Copy, Debug)]
enum Step {
    Take { worker: usize, bytes: u32 },
    TakeRun { worker: usize, bytes: u32, count: usize },
    Release { worker: usize, at: usize },
    ReleaseRun { worker: usize, count: usize },
    Drop { at: usize },
    GiveBack { worker: usize },
    Restart { worker: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let worker = 0_usize..3;
    let bytes = prop_oneof![4 => 0_u32..600, 2 => 600_u32..4097, 1 => 4097_u32..33_000];
    prop_oneof![
        9 => (worker.clone(), bytes).prop_map(|(worker, bytes)| Step::Take { worker, bytes }),
        2 => (worker.clone(), 0_u32..2100, 1_usize..50)
            .prop_map(|(worker, bytes, count)| Step::TakeRun { worker, bytes, count }),
        8 => (worker.clone(), any::<usize>()).prop_map(|(worker, at)| Step::Release { worker, at }),
        2 => (worker.clone(), 1_usize..90).prop_map(|(worker, count)| Step::ReleaseRun { worker, count }),
        1 => any::<usize>().prop_map(|at| Step::Drop { at }),
        1 => worker.clone().prop_map(|worker| Step::GiveBack { worker }),
        1 => worker.prop_map(|worker| Step::Restart { worker }),
    ]
}

fn options() -> impl Strategy<Value = FragmentOptions> {
    let switches = (any::<bool>(), any::<bool>(), any::<bool>());
    (switches, 1_u8..9, 6_u32..16, 0_u32..4, 0..=BLOCKS).prop_map(
        |((large_blocks, biased_count, reset_when_alone), held_blocks, shift, spare_pages, blocks)| {
            FragmentOptions {
                blocks: blocks.max(u32::from(spare_pages == 0)),
                spare_pages,
                large_blocks,
                biased_count,
                reset_when_alone,
                held_blocks,
                never_cross: 1 << shift,
                ..FragmentOptions::default()
            }
        },
    )
}

/// Every fragment that lives: where it begins, where it ends, and the byte it was filled with.
#[derive(Default)]
struct Oracle(BTreeMap<u64, (u64, u8)>);

impl Oracle {
    fn take(&mut self, frame: &mut Frame, wanted: u32, never_cross: u32, mark: u8) {
        let (start, length) = (frame.offset_in_region(), u64::from(frame.slot_bytes()));
        let end = start + length;
        assert!(length >= u64::from(wanted) && length < u64::from(wanted.max(1)) + 64);
        assert_eq!(start / u64::from(never_cross), (end - 1) / u64::from(never_cross), "crosses");
        let before = self.0.range(..end).next_back();
        assert!(before.is_none_or(|(_, &(before, _))| before <= start), "two fragments overlap");
        frame.slot_mut().fill(mark);
        self.0.insert(start, (end, mark));
    }

    fn end(&mut self, frame: &Frame) {
        let (_, mark) = self.0.remove(&frame.offset_in_region()).expect("it was taken");
        assert!(frame.slot().iter().all(|&byte| byte == mark), "somebody else wrote into a fragment");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_fragment_is_nobody_elses(
        options in options(),
        steps in proptest::collection::vec(step(), 1..400),
    ) {
        let memory = FragmentMemory::new(options).expect("memory for a test");
        let mut workers = [memory.fragments(), memory.fragments(), memory.fragments()];
        let (mut live, mut oracle, mut late_frees) = (Vec::new(), Oracle::default(), 0);
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Take { worker, bytes } => {
                    if let Some(mut frame) = workers[worker].take(bytes) {
                        let mark = u8::try_from(number % 251).expect("below 251");
                        oracle.take(&mut frame, bytes, options.never_cross, mark);
                        live.push(frame);
                    } else {
                        let bytes = bytes.next_multiple_of(64);
                        let free = memory.free_blocks();
                        prop_assert!(bytes > options.never_cross || bytes > 4096 || free == (0, 0));
                    }
                }
                Step::TakeRun { worker, bytes, count } => {
                    let before = live.len();
                    let taken = workers[worker].take_bulk(bytes, count, &mut live);
                    prop_assert_eq!(live.len(), before + taken);
                    let mark = u8::try_from(number % 251).expect("below 251");
                    for frame in &mut live[before..] {
                        oracle.take(frame, bytes, options.never_cross, mark);
                    }
                    let is_refused = bytes.next_multiple_of(64) > options.never_cross;
                    prop_assert!(taken == count || is_refused || memory.free_blocks() == (0, 0));
                }
                Step::ReleaseRun { worker, count } => {
                    let mut ending = live.split_off(live.len().saturating_sub(count));
                    ending.iter().for_each(|frame| oracle.end(frame));
                    workers[worker].release_bulk(&mut ending);
                    prop_assert!(ending.is_empty());
                }
                Step::Release { worker, at } => if !live.is_empty() {
                    let frame = live.swap_remove(at % live.len());
                    oracle.end(&frame);
                    workers[worker].release(frame);
                },
                Step::Drop { at } => if !live.is_empty() {
                    let frame = live.swap_remove(at % live.len());
                    oracle.end(&frame);
                    late_frees += 1;
                    drop(frame);
                },
                Step::GiveBack { worker } => workers[worker].give_back(),
                Step::Restart { worker } => workers[worker] = memory.fragments(),
            }
        }
        prop_assert_eq!(memory.late_frees(), late_frees);
        for frame in live.drain(..) {
            oracle.end(&frame);
            workers[0].release(frame);
        }
        drop(workers);
        prop_assert!(memory.is_home(), "{memory:?}");
    }
}

/// Fragments and frames in one chain: a fragment is a frame.
#[test]
fn fragments_are_frames_in_chains() {
    let memory = FragmentMemory::new(FragmentOptions::default()).expect("memory for a test");
    let region = Region::new(RegionOptions { slots: 64, slot_bytes: 512 }).expect("memory for a test");
    let (mut fragments, mut pool) = (memory.fragments(), region.pool());
    let mut packet = Packet::new(fragments.take(320).expect("blocks are free"));
    assert_eq!((packet.headroom(), packet.tailroom()), (160, 160));
    packet.prepend(60).expect("headroom of a fragment").fill(1);
    packet.extend_from(&[2; 700], &mut pool).expect("64 slots");
    let after = packet.split_off(100, &mut pool).expect("64 slots");
    assert_eq!((packet.len(), after.len()), (100, 660));
    packet.join(after);
    assert_eq!(packet.segments().map(<[u8]>::len).sum::<usize>(), 760);
    assert!(packet.segments().flatten().skip(60).all(|&byte| byte == 2));
    for segment in packet.into_segments() {
        if fragments.owns(&segment.frame) {
            fragments.release(segment.frame)
        } else {
            pool.release_frame(segment.frame)
        }
    }
    drop((fragments, pool));
    assert!(memory.is_home());
    assert_eq!((region.free_slots(), region.late_frees(), memory.late_frees()), (64, 0, 0));
}

/// Taken by one thread, released by the other, more often than the memory has room for.
#[test]
fn fragments_go_home_across_threads() {
    const ROUNDS: u32 = 100_000;
    let memory = FragmentMemory::new(FragmentOptions { blocks: 8, ..FragmentOptions::default() });
    let memory = memory.expect("memory for a test");
    let (mut there, mut here) = polder_buffers::ring::channel::<Frame>(64);
    let mut taker = memory.fragments();
    let mut giver = memory.fragments();
    let consumer = std::thread::spawn(move || {
        let mut seen = 0_u32;
        while seen < ROUNDS {
            let count = here.pop_all(16, |frame| {
                assert_eq!(frame.slot()[..4], seen.to_ne_bytes());
                giver.release(frame);
                seen += 1;
            });
            giver.settle();
            if count == 0 {
                std::thread::sleep(std::time::Duration::from_micros(10));
            }
        }
    });
    let mut waiting: Option<Frame> = None;
    let mut made = 0_u32;
    while made < ROUNDS || waiting.is_some() {
        if waiting.is_none() {
            waiting = taker.take(256 + made % 700);
            if let Some(frame) = &mut waiting {
                frame.slot_mut()[..4].copy_from_slice(&made.to_ne_bytes());
                made += 1;
            }
        }
        waiting = waiting.and_then(|frame| there.push(frame).err());
        if waiting.is_some() || taker.exhausted() > 0 {
            std::thread::sleep(std::time::Duration::from_micros(10));
        }
    }
    consumer.join().expect("the consumer does not panic");
    drop((taker, there));
    assert!(memory.is_home(), "{memory:?}");
}

/// Threads without an end of their own share one.
#[test]
fn any_thread_takes_and_releases() {
    let memory = FragmentMemory::new(FragmentOptions { blocks: 2, ..FragmentOptions::default() });
    let memory = memory.expect("memory for a test");
    let shared = SharedFragments::new(&memory);
    let work = &|mark: u8| {
        for length in 1..2000 {
            let mut frame = shared.take(length % 512).expect("few fragments live at a time");
            frame.slot_mut().fill(mark);
            assert!(frame.slot().iter().all(|&byte| byte == mark));
            shared.release(frame);
        }
    };
    std::thread::scope(|scope| (1..4).for_each(|mark| drop(scope.spawn(move || work(mark)))));
    drop(shared);
    assert!(memory.is_home());
    assert_eq!(memory.late_frees(), 0);
}

/// A block of 32 KiB takes three frames of 9000 bytes; eight pages of 4 KiB take none (D2).
#[test]
fn long_frames_need_large_blocks() {
    let count = |large_blocks| {
        let options = FragmentOptions {
            blocks: 1,
            spare_pages: 0,
            large_blocks,
            never_cross: 32_768,
            ..FragmentOptions::default()
        };
        let memory = FragmentMemory::new(options).expect("memory for a test");
        let mut fragments = memory.fragments();
        let taken = core::iter::from_fn(|| fragments.take(9000)).collect::<Vec<_>>();
        let count = taken.len();
        taken.into_iter().for_each(|frame| fragments.release(frame));
        count
    };
    assert_eq!((count(true), count(false)), (3, 0));
}

/// One pool for both kinds: few bytes lie in a fragment, many in a slot, and all calls are the same.
#[test]
fn a_pool_hands_out_what_fits() {
    let options = FragmentOptions { blocks: 1, spare_pages: 0, ..FragmentOptions::default() };
    let memory = FragmentMemory::new(options).expect("memory for a test");
    let region = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 }).expect("memory for a test");
    let mut pool = region.pool().with_fragments(memory.fragments());
    let mut batch = polder_buffers::Batch::new();
    let mut bytes = 0_u32;
    while let Some(frame) = pool.take_for(bytes % 1024) {
        let is_fragment = frame.region() == memory.id();
        assert!(frame.slot_bytes() >= bytes % 1024 && (is_fragment || frame.slot_bytes() == 2048));
        batch.push(Packet::new(frame)).unwrap_or_else(|packet| pool.release_packet(packet));
        bytes += 97;
        if bytes > 97 * 10_000 {
            break;
        }
    }
    assert!(batch.is_full() && pool.take_for(2049).is_none());
    assert!(batch.iter().any(|packet| packet.head().region() == memory.id()), "no fragment at all");
    pool.release(&mut batch);
    let whole = pool.take_for(1025).expect("slots are free");
    assert_eq!(whole.region(), region.id());
    pool.release_frame(whole);
    drop(pool);
    assert!(memory.is_home());
    assert_eq!((region.free_slots(), region.late_frees(), memory.late_frees()), (64, 0, 0));
}
