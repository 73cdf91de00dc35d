//! The table, where two threads change it at once.

use super::*;
use crate::wire::MacAddress;
use loom::sync::Arc;
use loom::thread;

const EARLY: FdbTime = FdbTime { second: 10, ageing: 5 };
const LATE: FdbTime = FdbTime { second: 16, ageing: 5 };

/// Two buckets, which are those of every address.
fn table(capacity: u32) -> Arc<Fdb> {
    Arc::new(Fdb::with_buckets(2, capacity, 1))
}

fn key(number: u64) -> FdbKey {
    FdbKey::new(MacAddress::from_u64(0x0200_0000_0000 + number), 0)
}

/// Two addresses with the same first bucket.
fn neighbours(fdb: &Fdb) -> (FdbKey, FdbKey) {
    let first = |key| core::ptr::from_ref(fdb.view().buckets_of(key)[0]);
    let other = (1..).map(key).find(|&other| first(other) == first(key(0)));
    (key(0), other.expect("every other address"))
}

/// The counts of ports are those of their entries.
fn check_counts(fdb: &Fdb) {
    for port in (0..3).map(PortId) {
        let is_of = |entry: &FdbEntry| entry.port == port && !entry.is_static;
        assert_eq!(fdb.port(port).learned as usize, fdb.entries().filter(is_of).count(), "{port:?}");
    }
}

fn only_entry(fdb: &Fdb) -> FdbEntry {
    let entries: Vec<_> = fdb.entries().collect();
    check_counts(fdb);
    assert_eq!((entries.len(), fdb.occupied()), (1, 1), "{entries:?}");
    entries[0]
}

#[test]
fn two_that_learn_one_address_leave_one_entry() {
    loom::model(|| {
        let fdb = table(8);
        let other = Arc::clone(&fdb);
        let learner = thread::spawn(move || other.learn(key(0), PortId(1), EARLY));
        fdb.learn(key(0), PortId(2), EARLY);
        learner.join().expect("the learner does not panic");
        assert!([1, 2].contains(&only_entry(&fdb).port.0));
    });
}

#[test]
fn a_static_entry_survives_learning() {
    loom::model(|| {
        let fdb = table(8);
        let other = Arc::clone(&fdb);
        let learner = thread::spawn(move || other.learn(key(0), PortId(1), EARLY));
        fdb.set_static(key(0), PortId(2), EARLY).expect("an empty table");
        learner.join().expect("the learner does not panic");
        let entry = only_entry(&fdb);
        assert_eq!((entry.port, entry.is_static), (PortId(2), true));
    });
}

#[test]
fn a_reader_never_takes_the_port_of_another_address() {
    loom::model(|| {
        let fdb = table(8);
        let (old, new) = neighbours(&fdb);
        fdb.learn(old, PortId(1), EARLY);
        // The reader is the one that is spawned: the model checker runs it late, and goes back to each
        // store that it might have come before.
        let other = Arc::clone(&fdb);
        let reader = thread::spawn(move || {
            assert!([None, Some(PortId(1))].contains(&other.lookup(old, EARLY)));
            assert!([None, Some(PortId(2))].contains(&other.lookup(new, EARLY)));
            let known = [(old.address(), PortId(1)), (new.address(), PortId(2))];
            assert!(other.entries().all(|entry| known.contains(&(entry.address, entry.port))));
        });
        fdb.remove(old);
        fdb.learn(new, PortId(2), EARLY);
        reader.join().expect("the reader does not panic");
        assert_eq!(only_entry(&fdb).port, PortId(2));
    });
}

#[test]
fn a_sweep_does_not_take_what_was_just_seen() {
    loom::model(|| {
        let fdb = table(8);
        fdb.learn(key(0), PortId(1), EARLY);
        let other = Arc::clone(&fdb);
        let sweeper = thread::spawn(move || other.sweep(&mut SweepCursor::default(), 2, LATE));
        fdb.learn(key(0), PortId(1), LATE);
        sweeper.join().expect("the sweeper does not panic");
        assert_eq!(only_entry(&fdb).seen, LATE.second);
    });
}

#[test]
fn the_last_place_is_given_once() {
    loom::model(|| {
        let fdb = table(1);
        let other = Arc::clone(&fdb);
        let learner = thread::spawn(move || other.learn(key(1), PortId(1), EARLY));
        fdb.learn(key(0), PortId(0), EARLY);
        learner.join().expect("the learner does not panic");
        assert!(fdb.occupied() <= 1);
        assert_eq!(fdb.entries().count(), fdb.occupied() as usize);
    });
}

/// The port with most entries gives one, and only one of two newcomers has it.
#[test]
fn a_full_table_makes_room_for_each_once() {
    loom::model(|| {
        let fdb = table(2);
        fdb.learn(key(0), PortId(0), EARLY);
        fdb.learn(key(1), PortId(0), EARLY);
        let other = Arc::clone(&fdb);
        let learner = thread::spawn(move || other.learn(key(2), PortId(1), EARLY));
        fdb.learn(key(3), PortId(2), EARLY);
        learner.join().expect("the learner does not panic");
        check_counts(&fdb);
        assert!(fdb.occupied() <= 2);
        assert_eq!(fdb.entries().count(), fdb.occupied() as usize);
    });
}

#[test]
fn a_limit_holds_for_two_that_come_at_once() {
    loom::model(|| {
        let fdb = table(8);
        let other = Arc::clone(&fdb);
        let learner = thread::spawn(move || other.learn_within(key(1), PortId(1), 1, EARLY));
        let said = fdb.learn_within(key(0), PortId(1), 1, EARLY);
        let others = learner.join().expect("the learner does not panic");
        assert!(said == Learned::Added || others == Learned::Added);
        only_entry(&fdb);
    });
}

#[test]
fn an_entry_that_moves_and_ends_at_once_is_counted_once() {
    loom::model(|| {
        let fdb = table(8);
        fdb.learn(key(0), PortId(0), EARLY);
        let other = Arc::clone(&fdb);
        let mover = thread::spawn(move || other.learn(key(0), PortId(1), EARLY));
        fdb.flush_port(PortId(0));
        mover.join().expect("the mover does not panic");
        check_counts(&fdb);
    });
}
