//! A reader that looks addresses up while the writer changes the table and uses its lines again.

use super::{Fib, FibReader, Leave, NextHopId, View};
use crate::route::Prefix;
use loom::thread;
use std::net::Ipv4Addr;

const TEN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const TWENTY: Ipv4Addr = Ipv4Addr::new(20, 0, 0, 1);

fn way(number: u32) -> NextHopId {
    NextHopId::new(number).expect("a small number")
}

fn prefix(first: u8, bits: u8) -> Prefix {
    Prefix::new([first, 0, 0, 0].into(), bits).expect("bits of the family")
}

/// A table with a node of two routes, and its reader.
fn table() -> (Fib, FibReader) {
    let mut fib = Fib::v4();
    fib.insert(prefix(10, 8), way(1));
    fib.insert(prefix(20, 8), way(2));
    let reader = fib.reader();
    (fib, reader)
}

/// True for values of the two that a reader may see.
fn is_right(ten: NextHopId, twenty: NextHopId) -> bool {
    [1, 3].contains(&ten.get()) && twenty == way(2)
}

/// Changes that need the first node's lines again: each writes a node anew, of another shape than the one
/// before, and takes back the one before that.
fn change(fib: &mut Fib) {
    fib.insert(prefix(10, 8), way(3));
    fib.insert(prefix(5, 8), way(9));
    assert!(fib.shared.epoch.load(crate::sync::Ordering::Relaxed) >= 4, "looks at who reads after each");
}

#[test]
fn a_reader_sees_whole_nodes_alone() {
    loom::model(|| {
        let (mut fib, mut reader) = table();
        let looking = thread::spawn(move || {
            let view = reader.view();
            let (ten, twenty) = (view.lookup_v4(TEN), view.lookup_v4(TWENTY));
            drop(view);
            assert!(is_right(ten, twenty), "{ten:?} {twenty:?}");
            reader
        });
        change(&mut fib);
        drop(looking.join().expect("the reader does not panic"));
    });
}

#[test]
fn a_second_view_sees_no_older_table() {
    loom::model(|| {
        let (mut fib, mut reader) = table();
        let looking = thread::spawn(move || {
            let first = reader.view().lookup_v4(TEN);
            let second = reader.view().lookup_v4(TEN);
            assert!((first, second) != (way(3), way(1)), "back in time");
            assert!(is_right(first, way(2)) && is_right(second, way(2)), "{first:?} {second:?}");
            reader
        });
        fib.insert(prefix(10, 8), way(3));
        drop(looking.join().expect("the reader does not panic"));
    });
}

#[test]
fn a_node_below_is_there_when_it_can_be_found() {
    loom::model(|| {
        let (mut fib, mut reader) = table();
        let looking = thread::spawn(move || {
            let below = reader.view().lookup_v4(Ipv4Addr::new(10, 7, 0, 1));
            assert!([way(1), way(4)].contains(&below), "{below:?}");
            reader
        });
        fib.insert(Prefix::new([10, 7, 0, 0].into(), 16).expect("bits of the family"), way(4));
        drop(looking.join().expect("the reader does not panic"));
    });
}

/// The model can fail: who reads without a seat meets lines that are written again.
#[test]
#[should_panic(expected = "half of a node")]
fn a_reader_without_a_seat_is_found_out() {
    loom::model(|| {
        let (mut fib, reader) = table();
        let looking = thread::spawn(move || {
            let view = View::new(reader.arena.get(), Leave(&reader.seat));
            let (ten, twenty) = (view.lookup_v4(TEN), view.lookup_v4(TWENTY));
            drop(view);
            assert!(is_right(ten, twenty), "half of a node: {ten:?} {twenty:?}");
            reader
        });
        change(&mut fib);
        let _reader = looking.join();
    });
}
