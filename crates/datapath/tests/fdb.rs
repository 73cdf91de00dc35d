//! The forwarding database by itself: how well it fills, and what several threads see of it.

use polder_buffers::PortId;
use polder_datapath::forward::{Fdb, FdbEntry, FdbKey, FdbOptions, FdbTime, Learned, SweepCursor};
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

/// Ways in which the addresses of a network follow each other.
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

/// How many of the first `count` addresses of a pattern find no place, over all seeds.
fn lost(pattern: Pattern, count: u32, seed: u64) -> u32 {
    let fdb = table(FULL, seed);
    let failures = (0..count).filter(|&number| fdb.learn(pattern(number), PortId(1), NOW) == Learned::Full);
    let failures = u32::try_from(failures.count()).expect("a small count");
    assert_eq!(fdb.occupied(), count - failures);
    failures
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
