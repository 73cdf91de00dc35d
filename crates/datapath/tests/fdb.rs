//! The forwarding database by itself: how well it fills, and what several threads see of it.

use polder_buffers::PortId;
use polder_datapath::forward::{
    Fdb, FdbEntry, FdbKey, FdbOptions, FdbTime, Learned, PortLearning, SweepCursor,
};
use polder_datapath::wire::MacAddress;
use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const NOW: FdbTime = FdbTime { second: 1000, ageing: 300 };

fn table(capacity: u32, seed: u64) -> Fdb {
    Fdb::new(FdbOptions { capacity, seed })
}

fn key(number: u64, vlan: u16) -> FdbKey {
    FdbKey::new(MacAddress::from_u64(0x0200_0000_0000 + number), vlan)
}

/// The address with a number.
type Pattern = fn(u32) -> FdbKey;

/// Next hops in which the addresses of a network follow each other.
fn patterns() -> Vec<(&'static str, Pattern)> {
    vec![
        ("one after the other", |n| key(u64::from(n), 0)),
        ("every second", |n| key(u64::from(n) * 2, 0)),
        ("in the fifth byte", |n| key(u64::from(n) << 8, 0)),
        ("in the fourth byte", |n| key(u64::from(n) << 16, 0)),
        ("in the third byte", |n| key((u64::from(n) << 24) & 0xff_ffff_ffff, 0)),
        ("in two bytes", |n| key(u64::from(n & 63) | u64::from(n >> 6) << 24, 0)),
        ("one in each VLAN", |n| key(0, u16::try_from(n & 0xfff).expect("12 bits"))),
        ("eight in each VLAN", |n| key(u64::from(n & 7), u16::try_from(n >> 3).expect("12 bits"))),
        ("at random", |n| key(u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24, 0)),
    ]
}

/// A capacity that fills the table as far as any does: half.
const FULL: u32 = 4096;

/// Number of the first `count` addresses of a pattern that find no place.
fn lost(pattern: Pattern, count: u32, seed: u64) -> u32 {
    let fdb = table(FULL, seed);
    (0..count).for_each(|number| assert_eq!(fdb.learn(pattern(number), PortId(1), NOW), Learned::Added));
    // What finds both of its buckets full takes the place of another of its port.
    let PortLearning { learned, evicted, limited } = fdb.port(PortId(1));
    let lost = count - fdb.occupied();
    assert_eq!((learned, evicted, limited), (fdb.occupied(), u64::from(lost), 0));
    lost
}

#[test]
fn addresses_find_a_place_however_they_follow_each_other() {
    for (name, pattern) in patterns() {
        let full: Vec<_> = (0..20).map(|seed| lost(pattern, FULL, seed)).collect();
        assert!(full.iter().all(|&count| count <= FULL / 100), "{name}: {full:?}");
        assert!(full.iter().sum::<u32>() <= FULL * 20 / 200, "{name}: {full:?}");
        let half: u32 = (0..20).map(|seed| lost(pattern, FULL / 2, seed)).sum();
        assert!(half <= FULL / 2 * 20 / 5000, "{name}: {half} at half the capacity");
    }
}

/// The two ports that an address may be on.
fn ports_of(number: u64) -> [PortId; 2] {
    let number = u16::try_from(number * 2).expect("few addresses");
    [PortId(number), PortId(number + 1)]
}

/// A small generator, one for each thread.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Asserts that each address stands in the table once, and that the count is right.
fn check_quiet(fdb: &Fdb) {
    let mut ports = HashMap::new();
    for entry in fdb.entries() {
        let double = ports.insert((entry.address, entry.vlan), entry.port);
        assert_eq!(double, None, "{} stands in the table twice", entry.address);
        assert_eq!(fdb.lookup(FdbKey::new(entry.address, entry.vlan), NOW), Some(entry.port));
    }
    assert_eq!(ports.len(), fdb.occupied() as usize, "the count is that of the entries");
    assert!(fdb.occupied() <= fdb.capacity(), "no more than promised");
    let mut by_port = HashMap::<PortId, u32>::new();
    let learned = fdb.entries().filter(|entry| !entry.is_static);
    learned.for_each(|entry| *by_port.entry(entry.port).or_default() += 1);
    for port in (0..512).map(PortId) {
        let learned = by_port.get(&port).copied().unwrap_or(0);
        assert_eq!(fdb.port(port).learned, learned, "addresses of port {}", port.0);
    }
}

/// Twice as many addresses as the table takes, so that slots change their owners all the time.
const ADDRESSES: u64 = 128;

/// Learns and removes at random, until `done`.
fn disturb(fdb: &Fdb, seed: u64, done: &AtomicBool) {
    let mut random = Random(seed);
    while !done.load(Ordering::Relaxed) {
        let number = random.below(ADDRESSES);
        match usize::try_from(random.below(4)).expect("below 4") {
            0 => _ = fdb.remove(key(number, 0)),
            side => _ = fdb.learn(key(number, 0), ports_of(number)[side % 2], NOW),
        }
    }
}

/// Looks up and lists; sets `done` at the end.
fn watch(fdb: &Fdb, done: &AtomicBool) {
    let _done = Done(done);
    let mut random = Random(99);
    let mut found = 0;
    while found < 200_000 {
        let number = random.below(ADDRESSES);
        let port = fdb.lookup(key(number, 0), NOW);
        assert!(port.is_none_or(|port| ports_of(number).contains(&port)), "{port:?} for address {number}");
        found += u64::from(port.is_some());
        if found % 256 == 0 {
            let is_right = |entry: &FdbEntry| ports_of(entry.address.to_u64() & 0xffff).contains(&entry.port);
            assert_eq!(fdb.entries().find(|entry| !is_right(entry)), None);
        }
    }
}

/// Ends the others, whatever becomes of this thread.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nobody_ever_sees_the_port_of_another_address() {
    let fdb = table(64, 3);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (fdb, done) = (&fdb, &done);
        (1..=3).for_each(|seed| _ = scope.spawn(move || disturb(fdb, seed, done)));
        scope.spawn(move || watch(fdb, done));
    });
    check_quiet(&fdb);
}

#[test]
fn an_address_that_moves_is_always_somewhere() {
    let fdb = table(64, 5);
    let station = key(7, 0);
    fdb.learn(station, PortId(0), NOW);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (fdb, done) = (&fdb, &done);
        let until_done = move |action: &dyn Fn()| {
            while !done.load(Ordering::Relaxed) {
                action();
            }
        };
        for port in 0..2 {
            scope.spawn(move || until_done(&|| _ = fdb.learn(station, PortId(port), NOW)));
        }
        scope.spawn(move || until_done(&|| _ = fdb.sweep(&mut SweepCursor::default(), 64, NOW)));
        scope.spawn(move || {
            let _done = Done(done);
            for _ in 0..500_000 {
                let port = fdb.lookup(station, NOW);
                assert!(port.is_some_and(|port| port.0 < 2), "{port:?}");
            }
        });
    });
    check_quiet(&fdb);
}

/// Lets three threads begin at once, each with its number.
fn at_once(action: impl Fn(u16, &Barrier) + Sync) {
    let barrier = Barrier::new(3);
    thread::scope(|scope| {
        let (action, barrier) = (&action, &barrier);
        (0..3).for_each(|number| _ = scope.spawn(move || action(number, barrier)));
    });
}

#[test]
fn threads_that_learn_one_address_at_once_leave_one_entry() {
    const ROUNDS: u64 = 3_000;
    let fdb = table(8192, 11);
    at_once(|port, barrier| {
        for number in 0..ROUNDS {
            barrier.wait();
            fdb.learn(key(number, 0), PortId(port), NOW);
        }
    });
    check_quiet(&fdb);
    assert_eq!(u64::from(fdb.occupied()), ROUNDS);
}

#[test]
fn the_capacity_holds_against_many_threads() {
    for seed in 0..50 {
        let fdb = table(64, seed);
        at_once(|thread, barrier| {
            barrier.wait();
            (0..100).for_each(|number| _ = fdb.learn(key(number * 3 + u64::from(thread), 0), PortId(1), NOW));
        });
        check_quiet(&fdb);
        assert!(fdb.occupied() > 60, "{} of 64", fdb.occupied());
    }
}

/// Addresses by port.
fn by_port(fdb: &Fdb) -> HashMap<PortId, u32> {
    let mut counts = HashMap::new();
    fdb.entries().for_each(|entry| *counts.entry(entry.port).or_default() += 1);
    counts
}

/// Checks a step of learning in a small table against the entries before it: the oracle of
/// [`whoever_has_most_makes_room`].
fn check_step(before: &HashMap<FdbKey, FdbEntry>, fdb: &Fdb, step: (FdbKey, PortId, u32), said: Learned) {
    let (key, port, limit) = step;
    let of = |port| {
        let learned = before.values().filter(|entry| entry.port == port && !entry.is_static);
        u32::try_from(learned.count()).expect("few")
    };
    let after: HashMap<_, _> = fdb.entries().map(|entry| (FdbKey::new(entry.address, 0), entry)).collect();
    let lost: Vec<_> =
        before.iter().filter(|(known, _)| **known != key && !after.contains_key(known)).collect();
    let was_full = before.len() == fdb.capacity() as usize;
    match said {
        Learned::Added => {
            assert_eq!((before.get(&key), after[&key].port), (None, port));
            assert!(lost.len() <= 1 && of(port) < limit, "{lost:?}");
            assert!(!was_full || lost.len() == 1, "a full table gives a place away");
            for (_, victim) in lost {
                let is_fair = victim.port == port || of(victim.port) > of(port);
                assert!(is_fair && !victim.is_static, "{} to {}: {victim:?}", of(victim.port), of(port));
            }
        }
        Learned::Limited => {
            assert!(of(port) >= limit && lost.is_empty() && !after.contains_key(&key));
        }
        Learned::Moved => {
            assert!(before[&key].port != port && after[&key].port == port && lost.is_empty());
            assert!(of(port) < limit);
        }
        Learned::Known | Learned::Refreshed => {
            assert!(before[&key].port == port && after[&key].port == port && lost.is_empty());
        }
        Learned::Pinned => assert!(before[&key].is_static && lost.is_empty()),
        // A sample of equals may hold nothing of the port that learns.
        Learned::Full => assert!(lost.is_empty() && !after.contains_key(&key) && of(port) > 0),
    }
}

#[test]
fn whoever_has_most_makes_room() {
    for seed in 1..=20 {
        let (fdb, mut random) = (table(64, seed), Random(seed));
        fdb.set_static(key(1, 0), PortId(0), NOW).expect("room");
        let mut full = 0;
        for round in 0..3_000 {
            let before = fdb.entries().map(|entry| (FdbKey::new(entry.address, 0), entry)).collect();
            // Ports of low numbers have many stations; one has a limit.
            let port = PortId(u16::try_from(random.below(8).min(random.below(8))).expect("a small number"));
            let limit = if port.0 == 1 { 9 } else { u32::MAX };
            let key = key(random.below(40) + 40 * u64::from(port.0 / 2), 0);
            let time = FdbTime { second: NOW.second + round / 500, ..NOW };
            let said = fdb.learn_within(key, port, limit, time);
            check_step(&before, &fdb, (key, port, limit), said);
            full += u32::from(said == Learned::Full);
        }
        assert!(full <= 10, "{full} of 3000 found no place");
        check_quiet(&fdb);
    }
}

#[test]
fn a_flood_of_one_port_costs_that_port_alone() {
    let fdb = table(8192, 17);
    let calm = |number: u64| (key(number, 0), PortId(u16::try_from(1 + number % 7).expect("below 8")));
    for number in 0..700 {
        let (key, port) = calm(number);
        assert_eq!(fdb.learn(key, port, NOW), Learned::Added);
    }
    (0..100_000)
        .for_each(|number| assert_eq!(fdb.learn(key(1 << 20 | number, 0), PortId(0), NOW), Learned::Added));
    assert_eq!(fdb.occupied(), 8192);
    assert_eq!(fdb.port(PortId(0)).evicted, 100_000 - (8192 - 700), "what came more than there is room for");
    // Nobody has lost anything, and each new station of another port finds a place at once.
    (0..700).map(calm).for_each(|(key, port)| assert_eq!(fdb.lookup(key, NOW), Some(port)));
    for number in 700..3_000 {
        let (key, port) = calm(number);
        assert_eq!((fdb.learn(key, port, NOW), fdb.lookup(key, NOW)), (Learned::Added, Some(port)));
    }
    // Both buckets of a station may be full of such: then one of them makes room.
    let lost = (0..3_000).filter(|&number| fdb.lookup(calm(number).0, NOW).is_none()).count();
    assert!(lost <= 4, "{lost} of 3000 lost their places");
    assert_eq!(by_port(&fdb).get(&PortId(0)).copied(), u32::try_from(8192 - 3_000 + lost).ok());
    check_quiet(&fdb);
}

#[test]
fn who_was_not_seen_for_long_makes_room_first() {
    let fdb = table(1024, 5);
    let later = FdbTime { second: NOW.second + 60, ..NOW };
    (0..1024).for_each(|number| _ = fdb.learn(key(number, 0), PortId(0), NOW));
    let busy = (0..1024).filter(|number| number % 4 == 0).map(|number| key(number, 0)).collect::<Vec<_>>();
    busy.iter().for_each(|&key| _ = fdb.learn(key, PortId(0), later));
    (2_000..2_500).for_each(|number| _ = fdb.learn(key(number, 0), PortId(0), later));
    let left = busy.iter().filter(|&&key| fdb.lookup(key, later).is_some()).count();
    assert!(left >= busy.len() * 95 / 100, "{left} of {} that sent a while ago", busy.len());
}

#[test]
fn an_address_that_comes_to_a_full_port_is_forgotten() {
    let fdb = table(64, 5);
    fdb.learn(key(0, 0), PortId(0), NOW);
    (1..=3)
        .for_each(|number| assert_eq!(fdb.learn_within(key(number, 0), PortId(1), 3, NOW), Learned::Added));
    assert_eq!(fdb.learn_within(key(0, 0), PortId(1), 3, NOW), Learned::Limited);
    assert_eq!((fdb.lookup(key(0, 0), NOW), fdb.port(PortId(0)).learned), (None, 0));
    assert_eq!(fdb.port(PortId(1)), PortLearning { learned: 3, evicted: 0, limited: 1 });
    // What leaves gives its place to another.
    fdb.learn(key(3, 0), PortId(0), NOW);
    assert_eq!(fdb.learn_within(key(4, 0), PortId(1), 3, NOW), Learned::Added);
    check_quiet(&fdb);
}

/// Learns or removes one address at random.
fn crowd(fdb: &Fdb, random: &mut Random) {
    let (key, port) = (key(random.below(1_000), 0), random.below(16));
    if port == 0 {
        fdb.remove(key);
        return;
    }
    fdb.learn_within(key, PortId(u16::try_from(port % 5).expect("below 5")), 100, NOW);
}

/// Concurrent learning by workers leaves a full table consistent.
#[test]
fn many_threads_may_make_room_at_once() {
    for seed in 0..20 {
        let fdb = table(256, seed);
        at_once(|thread, barrier| {
            let mut random = Random(seed * 3 + u64::from(thread) + 1);
            barrier.wait();
            (0..5_000).for_each(|_| crowd(&fdb, &mut random));
        });
        check_quiet(&fdb);
    }
}
