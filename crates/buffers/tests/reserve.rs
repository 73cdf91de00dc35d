//! Properties of reserves: growth and give-back under random histories, control beside data, a
//! system without memory, faults of the packet thread.

use polder_buffers::{
    AllocationPolicy, BufferManager, BufferOptions, BufferStats, Class, ClassBuffers, ClassOptions,
    FragmentOptions, Frame, Kind, Marks, Pool, Reloader, ReserveOptions,
};
use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[path = "../src/emulated.rs"]
mod emulated;

use emulated::brings_memory_in;

const PATIENCE: Duration = Duration::from_millis(10);

fn growing(slots: u32, target: u32) -> ClassOptions {
    let policy = AllocationPolicy::Growing(Marks::for_target(target));
    ClassOptions { slots, policy, reserve_options: ReserveOptions::default() }
}

fn fragments(blocks: u32, target: u32) -> FragmentOptions {
    let policy = AllocationPolicy::Growing(Marks::for_target(target));
    FragmentOptions { blocks, spare_pages: 2, policy, ..FragmentOptions::default() }
}

fn options(slot_bytes: u32) -> BufferOptions {
    let class = |slots, target, blocks| ClassBuffers {
        frames: growing(slots, target),
        fragments: Some(fragments(blocks, 2)),
    };
    BufferOptions {
        control: class(64, 32, 4),
        data: class(600, 150, 12),
        patience: Some(PATIENCE),
        ..BufferOptions::fixed(slot_bytes, 0, 0)
    }
}

/// The same on pages of every size that is possible here.
fn on_pages(slot_bytes: u32) -> impl Iterator<Item = BufferOptions> {
    let sizes = [4096, 16_384, 65_536].into_iter().filter(|&bytes| bytes >= rustix::param::page_size());
    sizes.map(move |page_bytes| BufferOptions { page_bytes, ..options(slot_bytes) })
}

/// Bytes that the system has given to the region.
fn committed(manager: &BufferManager) -> u64 {
    let of = |class| {
        let status = rustix::fs::fstat(manager.region().file(class)).expect("the file is open");
        u64::try_from(status.st_blocks).expect("a count of 512 bytes") * 512
    };
    of(Class::Control) + of(Class::Data)
}

fn account(manager: &BufferManager, class: Class, kind: Kind) -> BufferStats {
    let is_it = |account: &BufferStats| account.class == class && account.kind == kind;
    manager.accounts().into_iter().find(is_it).expect("there is one of each")
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take { pool: usize, bytes: u32, count: usize },
    Release { pool: usize, count: usize },
    Share,
    Drop,
    GiveBack { pool: usize },
    Reload,
    Idle,
    Shortage(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let (pool, count) = (0_usize..4, 1_usize..60);
    let bytes = prop_oneof![0_u32..1024, 1024_u32..2048];
    prop_oneof![
        6 => (pool.clone(), bytes, count.clone()).prop_map(|(pool, bytes, count)| Step::Take { pool, bytes, count }),
        6 => (pool.clone(), count).prop_map(|(pool, count)| Step::Release { pool, count }),
        2 => Just(Step::Share),
        1 => Just(Step::Drop),
        1 => pool.prop_map(|pool| Step::GiveBack { pool }),
        2 => Just(Step::Reload),
        2 => Just(Step::Idle),
        1 => any::<bool>().prop_map(Step::Shortage),
    ]
}

/// The buffers under test, and their model.
struct World {
    manager: BufferManager,
    /// Two of control, two of data.
    pools: [Pool; 4],
    reloaders: Vec<Reloader>,
    now: Duration,
    live: Vec<(Frame, u8)>,
    names: HashSet<(u16, u32)>,
    mark: u8,
}

impl World {
    fn new(options: BufferOptions) -> Self {
        let manager = BufferManager::new(options).expect("memory for a test");
        let pools =
            [Class::Control, Class::Control, Class::Data, Class::Data].map(|class| manager.pool(class));
        let reloaders = manager.reloaders();
        let now = Duration::from_secs(1);
        Self { manager, pools, reloaders, now, live: Vec::new(), names: HashSet::new(), mark: 0 }
    }

    fn take(&mut self, pool: usize, bytes: u32) -> bool {
        let Some(mut frame) = self.pools[pool].take_for(bytes) else { return false };
        assert!(frame.slot_bytes() >= bytes);
        assert!(self.names.insert((frame.region().get(), frame.index())), "{frame:?} has two names");
        self.mark = self.mark.wrapping_add(1);
        frame.slot_mut().fill(self.mark);
        self.live.push((frame, self.mark));
        true
    }

    /// The oldest frame, whose bytes must be unchanged and present.
    fn end(&mut self) -> Option<Frame> {
        if self.live.is_empty() {
            return None;
        }
        let (frame, mark) = self.live.remove(0);
        assert!(frame.slot().iter().all(|&byte| byte == mark), "{frame:?} was changed by somebody else");
        self.names.remove(&(frame.region().get(), frame.index()));
        Some(frame)
    }

    /// Gives the youngest frame another name.
    fn share(&mut self) {
        let Some((frame, mark)) = self.live.last_mut() else { return };
        let name = |frame: &Frame| (frame.region().get(), frame.index());
        assert!(self.names.remove(&name(frame)));
        let (other, mark) = (frame.share(), *mark);
        assert!(self.names.insert(name(frame)), "{frame:?} has two owners");
        if let Some(other) = other {
            assert!(self.names.insert(name(&other)) && frame.is_shared() && other.is_shared());
            assert_eq!(frame.offset_in_region(), other.offset_in_region());
            self.live.insert(self.live.len() / 2, (other, mark));
        }
    }

    fn turn(&mut self, passed: Duration) {
        self.now += passed;
        self.reloaders.iter_mut().for_each(|reloader| reloader.turn(self.now));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Take { pool, bytes, count } => {
                (0..count).take_while(|_| self.take(pool, bytes)).for_each(|_| ());
            }
            Step::Release { pool, count } => {
                let mut ending = std::iter::from_fn(|| self.end()).take(count).collect::<Vec<_>>();
                if count % 2 == 0 {
                    return self.pools[pool].release_bulk(&mut ending);
                }
                ending.into_iter().for_each(|frame| self.pools[pool].release_frame(frame));
            }
            Step::Share => self.share(),
            Step::Drop => drop(self.end()),
            Step::GiveBack { pool } => self.pools[pool].give_back(),
            Step::Reload => self.turn(Duration::ZERO),
            Step::Idle => self.turn(PATIENCE),
            Step::Shortage(is_short) => self.shortage(is_short),
        }
    }

    fn shortage(&self, is_short: bool) {
        self.manager.region().simulate_shortage(is_short);
        let memories = [Class::Control, Class::Data].map(|class| self.manager.fragments(class));
        memories.into_iter().flatten().for_each(|memory| memory.simulate_shortage(is_short));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever happens, a buffer has one owner and keeps its bytes; and when all is quiet, everything
    /// is home and what is not needed has gone back.
    #[test]
    fn what_is_taken_stays_and_what_is_not_goes(
        steps in proptest::collection::vec(step(), 1..150),
        shift in 10_u32..14,
        page_shift in prop_oneof![4 => Just(12), 1 => Just(14), 1 => Just(16)],
        switches in any::<[bool; 5]>(),
    ) {
        let mut options = options(1 << shift);
        options.page_bytes = rustix::param::page_size().max(1 << page_shift);
        let [is_pooled, is_reloaded, is_reused, splits_reload, owns_fragments] = switches;
        let reserve_options = ReserveOptions { is_pooled: is_pooled || shift % 2 == 0, is_reloaded, is_reused };
        for class in [&mut options.control, &mut options.data] {
            class.frames.reserve_options = reserve_options;
            class.fragments.as_mut().expect("they are set").reserve_options = reserve_options;
        }
        let options = BufferOptions { splits_reload, owns_fragments, ..options };
        let mut world = World::new(options);
        let whole = world.manager.region().slots();
        steps.into_iter().for_each(|step| world.step(step));

        world.shortage(false);
        while let Some(frame) = world.end() {
            world.pools[3].release_frame(frame);
        }
        world.pools.iter_mut().for_each(Pool::give_back);
        for _ in 0..4 {
            world.turn(Duration::from_secs(1));
        }
        let World { manager, pools, reloaders, .. } = world;
        drop(pools);
        prop_assert_eq!(manager.region().free_slots(), whole);
        for memory in [Class::Control, Class::Data].into_iter().filter_map(|class| manager.fragments(class)) {
            prop_assert!(!owns_fragments || memory.is_home(), "{:?}", memory);
        }
        if is_reloaded && reserve_options.is_pooled && is_reused {
            for account in manager.accounts().into_iter().filter(|account| account.kind == Kind::Frames) {
                let marks = Marks::for_target(if account.class == Class::Control { 32 } else { 150 });
                let page_slots = u32::try_from(options.page_bytes >> shift).expect("few");
                let most = marks.give_back_above.max(64 * 4.max(page_slots));
                prop_assert!(account.reserve <= most, "{:?}", account);
                prop_assert_eq!(account.out(), 0);
            }
        }
        drop(reloaders);
    }
}

/// C2: below the mark a reload is asked for, and it fills up to the target.
#[test]
fn a_reserve_is_filled_before_it_is_empty() {
    let mut world = World::new(options(4096));
    let frames = |world: &World| account(&world.manager, Class::Data, Kind::Frames);
    assert_eq!((frames(&world).reserve, frames(&world).cold), (150, 450));
    (0..40).for_each(|_| assert!(world.take(2, 4000)));
    world.turn(Duration::ZERO);
    assert_eq!(frames(&world).events.reloads, 0, "more than two thirds are left");
    (0..30).for_each(|_| assert!(world.take(2, 4000)));
    world.turn(Duration::ZERO);
    let after = frames(&world);
    assert_eq!((after.events.reloads, after.reserve), (1, 150));
    assert_eq!((after.events.failures, after.events.on_demand, after.exhausted), (0, 0, 0));
    assert!(after.events.lowest < 100);
}

/// C4: what stays unused goes back to the system, and nothing else does.
#[test]
fn memory_goes_back_after_a_burst() {
    if brings_memory_in("memory_goes_back_after_a_burst") {
        on_pages(2048).for_each(burst);
    }
}

fn burst(options: BufferOptions) {
    let mut world = World::new(options);
    let before = committed(&world.manager);
    for _ in 0..6 {
        (0..100).for_each(|_| assert!(world.take(2, 2000)));
        world.turn(Duration::ZERO);
    }
    let peak = committed(&world.manager);
    assert!(world.live.len() == 600 && peak > before * 3, "{} live, {before} to {peak}", world.live.len());
    // Released in another order than taken, through the cache of another worker.
    world.live.sort_by_key(|(frame, _)| frame.index().wrapping_mul(0x9e37_79b1));
    while let Some(frame) = world.end() {
        world.pools[3].release_frame(frame);
    }
    world.pools.iter_mut().for_each(Pool::give_back);
    world.turn(PATIENCE);
    assert!(committed(&world.manager) > before, "the first look finds what was needed until now");
    world.turn(PATIENCE);
    let after = committed(&world.manager);
    // Of the last page, some slots may have been ready before.
    let most = before + before / 20 + options.page_bytes as u64;
    assert!(after <= most, "{before} before, {peak} at the peak, {after} after");
}

/// C4: a reloader that sleeps is woken by what comes back, and gives it back when it has stayed for long.
#[test]
fn a_sleeping_reloader_hears_of_a_surplus() {
    if !brings_memory_in("a_sleeping_reloader_hears_of_a_surplus") {
        return;
    }
    let World { manager, pools: [_, _, mut pool, _], reloaders, .. } = World::new(options(2048));
    let wakers = reloaders.iter().map(Reloader::waker).collect::<Vec<_>>();
    let is_done = AtomicBool::new(false);
    let before = committed(&manager);
    std::thread::scope(|scope| {
        reloaders.into_iter().for_each(|reloader| drop(scope.spawn(|| serve(reloader, &is_done))));
        let (mut frames, mut looks) = (Vec::new(), 0..2000);
        while frames.len() < 600 && looks.next().is_some() {
            pool.take_bulk(600 - frames.len(), &mut frames);
            std::thread::sleep(PATIENCE / 100);
        }
        let peak = committed(&manager);
        // Longer than a reload takes: both reloaders sleep, with nothing to wait for.
        std::thread::sleep(3 * PATIENCE);
        pool.release_bulk(&mut frames);
        pool.give_back();
        while committed(&manager) > before && looks.next().is_some() {
            std::thread::sleep(PATIENCE);
        }
        is_done.store(true, Ordering::Relaxed);
        wakers.iter().for_each(polder_buffers::Waker::wake);
        assert!(peak > 2 * before, "{before} to {peak}");
    });
    assert!(committed(&manager) <= before, "{before} before, {} after", committed(&manager));
}

/// C3: data takes all it can get, twice over; control finds its own.
#[test]
fn data_cannot_make_control_fail() {
    let mut world = World::new(options(2048));
    let mut failed = 0;
    for round in 0..300 {
        let step = Step::Take { pool: 2 + round % 2, bytes: 2000, count: 60 };
        world.step(step);
        world.turn(Duration::ZERO);
        // Control packets are released by the worker that sends them: a data worker.
        let control = world.pools[0].take_for(2000);
        failed += u32::from(control.is_none());
        control.into_iter().for_each(|frame| world.pools[2 + round % 2].release_frame(frame));
    }
    assert_eq!((failed, world.live.len()), (0, 600));
    assert!(account(&world.manager, Class::Data, Kind::Frames).exhausted > 100);
    assert_eq!(account(&world.manager, Class::Control, Kind::Frames).exhausted, 0);
    // The meter can count: control beyond what it has fails seventeen times.
    let take = |_: &u32| {
        world.turn(Duration::ZERO);
        !world.take(0, 2000)
    };
    let failures = (0..64 + 17).filter(take).count();
    assert_eq!((failures, account_after(&world, 0)), (17, 17));
}

fn account_after(world: &World, pool: usize) -> u64 {
    world.pools[pool].publish();
    account(&world.manager, Class::Control, Kind::Frames).exhausted
}

/// Without memory, pages stand in for blocks (D4), frames run out with a count, and all recovers.
#[test]
fn a_shortage_is_counted_and_ends() {
    let mut world = World::new(options(2048));
    world.shortage(true);
    let mut taken = 0;
    while taken < 10_000 && world.take(2, 1000) {
        taken += 1;
        world.turn(Duration::ZERO);
    }
    let (frames, blocks) = (
        account(&world.manager, Class::Data, Kind::Frames),
        account(&world.manager, Class::Data, Kind::Blocks),
    );
    assert_eq!(world.manager.fragments(Class::Data).map(|memory| memory.free_blocks()), Some((0, 0)));
    let failures = frames.events.failures + blocks.events.failures;
    assert!(failures > 0 && frames.reserve == 0, "{frames:?} {blocks:?}");
    assert!(!world.take(2, 2000));
    world.shortage(false);
    world.turn(Duration::from_millis(1));
    assert!(!world.take(2, 2000), "a system without memory is left alone for a while");
    world.turn(Duration::from_millis(30));
    assert!(world.take(2, 2000) && world.take(2, 100));
}

/// Page faults of the calling thread that needed no disk (proc(5), field 10).
fn minor_faults() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/stat").expect("procfs is mounted");
    let (_, fields) = text.rsplit_once(") ").expect("the name is in brackets");
    fields.split(' ').nth(7).and_then(|field| field.parse().ok()).expect("a number")
}

/// C2: with a reserve the packet thread never faults memory in; without, it does.
#[test]
fn the_packet_thread_does_not_fault() {
    if !brings_memory_in("the_packet_thread_does_not_fault") {
        return;
    }
    // A few more are the kernel's own doing, when it looks which pages are in use.
    for (is_reloaded, least, most) in [(true, 0, 5), (false, 400, 1000)] {
        let mut options = options(4096);
        options.data.frames.reserve_options.is_reloaded = is_reloaded;
        options.data.fragments = None;
        let manager = BufferManager::new(options).expect("memory for a test");
        let mut reloaders = manager.reloaders();
        let mut pool = manager.pool(Class::Data);
        let mut live = Vec::with_capacity(600);
        let mut faults = 0;
        for _ in 0..600 {
            let before = minor_faults();
            let mut frame = pool.take().expect("600 slots");
            frame.slot_mut()[..64].fill(1);
            faults += minor_faults() - before;
            live.push(frame);
            reloaders.iter_mut().for_each(|reloader| reloader.turn(Duration::ZERO));
        }
        assert!((least..=most).contains(&faults), "reload {is_reloaded}: {faults} faults");
        pool.release_bulk(&mut live);
    }
}

/// Reloaders on their own threads, workers that take more than is ready: nobody waits for ever, and
/// everything comes home.
#[test]
fn reloaders_answer_on_their_own_threads() {
    let manager = BufferManager::new(options(2048)).expect("memory for a test");
    let reloaders = manager.reloaders();
    let wakers = reloaders.iter().map(Reloader::waker).collect::<Vec<_>>();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_done = &is_done;
        for reloader in reloaders {
            scope.spawn(move || serve(reloader, is_done));
        }
        let workers = [Class::Control, Class::Data, Class::Data].map(|class| {
            let mut pool = manager.pool(class);
            scope.spawn(move || work(&mut pool, if class == Class::Control { 30 } else { 250 }))
        });
        let waited = workers.map(|worker| worker.join().expect("a worker does not panic"));
        assert!(waited.iter().all(|&waited| waited < 20_000), "{waited:?}");
        is_done.store(true, Ordering::Relaxed);
        wakers.iter().for_each(polder_buffers::Waker::wake);
    });
    assert_eq!(manager.region().free_slots(), manager.region().slots());
    assert_eq!(account(&manager, Class::Control, Kind::Frames).exhausted, 0);
}

fn serve(mut reloader: Reloader, is_done: &AtomicBool) {
    let mut now = Duration::ZERO;
    while !is_done.load(Ordering::Relaxed) {
        reloader.wait();
        now += Duration::from_millis(1);
        reloader.turn(now);
    }
}

/// Takes `count` frames and releases them, fifty times; how often it had to wait for one.
fn work(pool: &mut Pool, count: usize) -> u32 {
    let mut live = Vec::with_capacity(count);
    let mut waited = 0;
    for _ in 0..50 {
        while live.len() < count {
            if let Some(frame) = pool.take() {
                live.push(frame);
            } else {
                waited += 1;
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        pool.release_bulk(&mut live);
    }
    waited
}

/// While memory is given back, over and over, a taker finds the buffers that stay.
#[test]
fn giving_back_starves_nobody() {
    const ENOUGH: u64 = 40_000;
    let marks = Marks { target: 64, reload_below: 32, give_back_above: 65 };
    let mut options = options(4096);
    options.patience = Some(Duration::ZERO);
    options.data = ClassBuffers {
        frames: ClassOptions { policy: AllocationPolicy::Growing(marks), ..growing(256, 64) },
        fragments: None,
    };
    let manager = BufferManager::new(options).expect("memory for a test");
    let mut reloaders = manager.reloaders();
    let is_done = AtomicBool::new(false);
    let (failed, turns) = std::thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let (mut pool, mut failed) = (manager.pool(Class::Data), 0);
            while !is_done.load(Ordering::Relaxed) {
                match pool.take() {
                    Some(frame) => pool.release_frame(frame),
                    None => failed += 1,
                }
                pool.give_back();
            }
            failed
        });
        let (mut hoard, mut pool) = (Vec::new(), manager.pool(Class::Data));
        let reserve = || account(&manager, Class::Data, Kind::Frames);
        let mut now = Duration::ZERO;
        let mut turn = || {
            now += Duration::from_micros(1);
            reloaders.iter_mut().for_each(|reloader| reloader.turn(now));
        };
        for _ in 0..100_000 {
            // What is taken here is brought in again, and is too much when it comes back.
            while reserve().reserve >= marks.reload_below {
                pool.take_bulk(8, &mut hoard);
            }
            pool.give_back();
            turn();
            pool.release_bulk(&mut hoard);
            pool.give_back();
            // The other thread may have seen little before the release: the second look counts.
            turn();
            turn();
            if reserve().events.given_back > ENOUGH {
                break;
            }
        }
        is_done.store(true, Ordering::Relaxed);
        (taker.join().expect("the taker does not panic"), account(&manager, Class::Data, Kind::Frames).events)
    });
    assert!(turns.given_back > ENOUGH, "{turns:?}");
    assert_eq!(failed, 0);
}
