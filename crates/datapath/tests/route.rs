//! The table of routes against a list of routes, over random histories.

use polder_datapath::route::{Fib, FibReader, NextHopId, Prefix, View};
use proptest::prelude::*;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};

fn prefix(address: IpAddr, bits: u8) -> Prefix {
    Prefix::new(address, bits).expect("no longer than the family has bits")
}

fn way(number: u32) -> NextHopId {
    NextHopId::new(number).expect("a small number")
}

/// The routes themselves; the longest that matches is looked for among all.
#[derive(Default)]
struct Oracle(HashMap<Prefix, NextHopId>);

impl Oracle {
    fn lookup(&self, address: IpAddr) -> NextHopId {
        let bits = if address.is_ipv6() { 128 } else { 32 };
        (0..=bits)
            .rev()
            .find_map(|bits| self.0.get(&prefix(address, bits)).copied())
            .unwrap_or(NextHopId::NONE)
    }
}

/// One change: a prefix, from few addresses so that they meet, and a way or none.
#[derive(Clone, Debug)]
struct Change {
    address: [u8; 16],
    bits: u8,
    way: Option<u32>,
}

fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0), Just(1), Just(0x80), Just(0xff), any::<u8>()]
}

fn changes(longest: u8) -> impl Strategy<Value = Vec<Change>> {
    let bits =
        prop_oneof![0..=longest, 0..=longest.min(32), Just(longest), Just(longest / 2), Just(8), Just(16)];
    let way = prop_oneof![3 => (1_u32..6).prop_map(Some), 2 => Just(None)];
    let address = prop::array::uniform16(byte());
    let change = (address, bits, way).prop_map(|(address, bits, way)| Change { address, bits, way });
    prop::collection::vec(change, 1..200)
}

fn address(bytes: [u8; 16], is_v6: bool) -> IpAddr {
    let [a, b, c, d, ..] = bytes;
    if is_v6 { Ipv6Addr::from(bytes).into() } else { Ipv4Addr::from([a, b, c, d]).into() }
}

fn lookup(reader: &mut FibReader, address: IpAddr) -> NextHopId {
    match address {
        IpAddr::V4(address) => reader.view().lookup_v4(address),
        IpAddr::V6(address) => reader.view().lookup_v6(address),
    }
}

/// Addresses at and around both ends of a prefix.
fn near(prefix: &Prefix) -> Vec<IpAddr> {
    let ends = |first: u128, bits: u32, length: u32| {
        let size = if length == 0 { u128::MAX } else { (1_u128 << (bits - length)).wrapping_sub(1) };
        [first, first.wrapping_add(size), first.wrapping_sub(1), first.wrapping_add(size).wrapping_add(1)]
    };
    match prefix.address() {
        IpAddr::V4(address) => ends(u128::from(address.to_bits()), 32, u32::from(prefix.bits()))
            .map(|address| {
                Ipv4Addr::from_bits(u32::try_from(address & u128::from(u32::MAX)).expect("masked")).into()
            })
            .to_vec(),
        IpAddr::V6(address) => ends(address.to_bits(), 128, u32::from(prefix.bits()))
            .map(|address| Ipv6Addr::from_bits(address).into())
            .to_vec(),
    }
}

fn run(history: &[Change], is_v6: bool, filler: u32) -> Result<(), TestCaseError> {
    let mut fib = if is_v6 { Fib::v6() } else { Fib::v4() };
    let (mut oracle, mut reader) = (Oracle::default(), fib.reader());
    for number in 0..filler {
        // Far from the others: all of them in 12.0.0.0/8, or 0c00::/8.
        let [_, b, c, d] = (number * 37).to_be_bytes();
        let prefix = prefix(address([12, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], is_v6), 30);
        let way = way(9);
        prop_assert_eq!(fib.insert(prefix, way), oracle.0.insert(prefix, way));
    }
    for change in history {
        let prefix = prefix(address(change.address, is_v6), change.bits);
        match change.way.and_then(NextHopId::new) {
            Some(way) => prop_assert_eq!(fib.insert(prefix, way), oracle.0.insert(prefix, way)),
            None => prop_assert_eq!(fib.remove(prefix), oracle.0.remove(&prefix)),
        }
        prop_assert_eq!(fib.len(), oracle.0.len());
        for address in near(&prefix) {
            prop_assert_eq!(
                lookup(&mut reader, address),
                oracle.lookup(address),
                "{} after {:?}",
                address,
                change
            );
        }
    }
    for change in history {
        for address in near(&prefix(address(change.address, is_v6), change.bits)) {
            prop_assert_eq!(lookup(&mut reader, address), oracle.lookup(address), "{}", address);
        }
    }
    let all: Vec<_> = oracle.0.keys().copied().collect();
    for prefix in all {
        prop_assert_eq!(fib.remove(prefix), oracle.0.remove(&prefix));
    }
    prop_assert!(fib.is_empty());
    prop_assert_eq!(lookup(&mut reader, address([1; 16], is_v6)), NextHopId::NONE);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn v4_is_a_list_of_routes(history in changes(32)) {
        run(&history, false, 0)?;
    }

    #[test]
    fn v6_is_a_list_of_routes(history in changes(128)) {
        run(&history, true, 0)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Large enough for the table of first 16 bits.
    #[test]
    fn large_tables_are_lists_as_well(history in changes(32), history_v6 in changes(128)) {
        run(&history, false, 1100)?;
        run(&history_v6, true, 1100)?;
    }
}

/// 10.1.200.0/24 is never anything but the /16; 10.1.7.0/24 is one of three.
fn look(view: &View<'_>, last: u8) {
    assert_eq!(view.lookup_v4(Ipv4Addr::new(10, 1, 200, last)).get(), 7);
    let way = view.lookup_v4(Ipv4Addr::new(10, 1, 7, last)).get();
    assert!([7, 1, 2].contains(&way), "{way}");
}

fn read_until(stop: &AtomicBool, reader: &mut FibReader) {
    while !stop.load(Ordering::Relaxed) {
        let view = reader.view();
        (0..=255).for_each(|last| look(&view, last));
    }
}

/// Readers never see a way that no route ever had there, while routes come and go.
#[test]
fn updates_do_not_disturb_readers() {
    let mut fib = Fib::v4();
    let fixed = way(7);
    let prefix = |a, b, c, bits| prefix(Ipv4Addr::new(a, b, c, 0).into(), bits);
    fib.insert(prefix(10, 1, 0, 16), fixed);
    let stop = AtomicBool::new(false);
    let mut readers: Vec<_> = (0..2).map(|_| fib.reader()).collect();
    std::thread::scope(|scope| {
        for reader in &mut readers {
            scope.spawn(|| read_until(&stop, reader));
        }
        for round in 0..20_000_u32 {
            let [_, _, high, low] = round.to_be_bytes();
            fib.insert(prefix(10, 1, 7, 24), way(1 + round % 2));
            fib.insert(prefix(10, 1, 7, 25 + low % 8), way(1 + round % 2));
            fib.insert(prefix(11, high, low, 24), way(3));
            fib.remove(prefix(10, 1, 7, 25 + low % 8));
            if round % 3 == 0 {
                fib.remove(prefix(10, 1, 7, 24));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Freed memory is used again, also while a reader lives that reads now and then.
#[test]
fn memory_is_reused() {
    let mut fib = Fib::v4();
    let mut reader = fib.reader();
    let mut bytes = 0;
    for round in 0..50_000_u32 {
        let prefix = prefix(Ipv4Addr::new(10, 1, u8::try_from(round % 50).expect("below 50"), 0).into(), 24);
        fib.insert(prefix, way(1 + round % 7));
        if round == 1000 {
            bytes = fib.bytes();
        }
        if round % 100 == 0 {
            assert_ne!(reader.view().lookup_v4(Ipv4Addr::new(10, 1, 0, 1)), NextHopId::NONE);
        }
    }
    assert_eq!(fib.bytes(), bytes);
}
