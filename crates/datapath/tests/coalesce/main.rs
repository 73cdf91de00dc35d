//! Merging segments, and cutting them apart again.

#[path = "../oracle/mod.rs"]
mod oracle;

mod cutting;

use oracle::coalesce::{ACK, Arrival, Bench, DONT_FRAGMENT, FIN, PSH, Recipe, assert_same};
use polder_buffers::ChecksumState;
use polder_datapath::coalesce::{MISSES, PERIOD};
use proptest::prelude::*;

/// Target of the fuzzer.
fn target() -> fn(&[u8]) {
    oracle::TARGETS.into_iter().find(|target| target.0 == "coalesce").expect("a target").1
}

/// Merges frames whose checksums are in that state.
fn merge(bench: &mut Bench, frames: &[Vec<u8>], state: ChecksumState) -> Vec<Vec<Vec<u8>>> {
    let arrivals = frames.iter().map(|frame| Arrival::of(frame, state)).collect::<Vec<_>>();
    bench.merge(&arrivals)
}

/// Packets of each result, in order.
fn merged(recipes: &[Recipe]) -> Vec<usize> {
    let frames = recipes.iter().map(Recipe::frame).collect::<Vec<_>>();
    let mut bench = Bench::new(2048, true);
    let results = merge(&mut bench, &frames, ChecksumState::Unknown);
    assert_same(&frames, &results.concat());
    results.iter().map(Vec::len).collect()
}

/// A packet, and the one that follows it, changed.
fn pair(first: &Recipe, change: impl Fn(&mut Recipe)) -> Vec<usize> {
    let mut second = first.next();
    change(&mut second);
    merged(&[first.clone(), second])
}

fn v6(first: Recipe) -> Recipe {
    Recipe { v6: true, ..first }
}

fn udp(first: Recipe) -> Recipe {
    Recipe { udp: true, ..first }
}

#[test]
fn neighbours_merge_when_they_are_alike() {
    let tagged = Recipe { tags: vec![7], ..Recipe::tcp(100) };
    let twice = Recipe { tags: vec![7, 0xe009], ..Recipe::tcp(100) };
    let timestamps = Recipe { options: vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], ..Recipe::tcp(100) };
    for first in [Recipe::tcp(100), tagged, twice, timestamps] {
        for first in [first.clone(), v6(first.clone()), udp(first.clone()), udp(v6(first))] {
            assert_eq!(pair(&first, |_| ()), [2], "{first:?}");
            assert_eq!(pair(&first, |next| next.tags.push(3)), [1, 1], "{first:?}: another VLAN");
            assert_eq!(pair(&first, |next| next.class ^= 2), [1, 1], "{first:?}: ECN");
            assert_eq!(pair(&first, |next| next.class ^= 0x40), [1, 1], "{first:?}: DSCP");
            assert_eq!(pair(&first, |next| next.ttl -= 1), [1, 1], "{first:?}: TTL");
            assert_eq!(pair(&first, |next| next.port += 1), [1, 1], "{first:?}: another flow");
            assert_eq!(pair(&first, |next| next.padding = 2), [1, 1], "{first:?}: padding");
            assert_eq!(pair(&first, |next| next.payload.truncate(99)), [2], "{first:?}: a shorter last");
            assert_eq!(pair(&first, |next| next.payload.push(0)), [1, 1], "{first:?}: longer");
            assert_eq!(pair(&first, |next| next.payload.clear()), [1, 1], "{first:?}: empty");
            let third = |short: usize| {
                let (mut second, third) = (first.next(), first.next().next());
                second.payload.truncate(100 - short);
                merged(&[first.clone(), second, third])
            };
            assert_eq!(third(0), [3], "{first:?}");
            assert_eq!(third(1), [2, 1], "{first:?}: nothing behind a short one");
        }
    }
}

#[test]
fn no_merged_packet_is_longer_than_its_port_takes() {
    // Ethernet, IPv4 and TCP headers take 54 bytes.
    for (longest, expected) in [(53, vec![1; 6]), (253, vec![1; 6]), (254, vec![2; 3]), (354, vec![3; 2])] {
        let recipes = std::iter::successors(Some(Recipe::tcp(100)), |last| Some(last.next())).take(6);
        let frames = recipes.map(|recipe| recipe.frame()).collect::<Vec<_>>();
        let mut bench = Bench::new(2048, true);
        bench.outlet.takes.longest = Some(longest);
        let results = merge(&mut bench, &frames, ChecksumState::Unknown);
        assert_same(&frames, &results.concat());
        assert_eq!(results.iter().map(Vec::len).collect::<Vec<_>>(), expected, "up to {longest} bytes");
    }
}

#[test]
fn traffic_that_does_not_merge_is_looked_at_seldom_and_merges_again_soon() {
    let first = Recipe::tcp(100);
    let alone = [first.frame(), Recipe { port: first.port + 1, ..first.clone() }.frame()];
    let flow = [first.frame(), first.next().frame()];
    let mut bench = Bench::new(2048, true);
    for _ in 0..3 {
        for _ in 0..10 * (MISSES + PERIOD) {
            assert_eq!(merge(&mut bench, &alone, ChecksumState::Unknown).len(), 2);
        }
        let missed =
            (0..PERIOD).take_while(|_| merge(&mut bench, &flow, ChecksumState::Unknown).len() == 2).count();
        assert!(missed < PERIOD as usize, "no batch of {PERIOD} has merged");
        // From then on each one merges, with as many in between that do not.
        for _ in 0..MISSES {
            assert_eq!(merge(&mut bench, &alone, ChecksumState::Unknown).len(), 2);
        }
        assert_eq!(
            merge(&mut bench, &flow, ChecksumState::Unknown).len(),
            2,
            "the next one is not looked at"
        );
        let missed =
            (0..PERIOD).take_while(|_| merge(&mut bench, &flow, ChecksumState::Unknown).len() == 2).count();
        assert!(missed < PERIOD as usize);
        assert_eq!(merge(&mut bench, &flow, ChecksumState::Unknown).len(), 1);
    }
}

#[test]
fn what_tcp_says_to_the_receiver_is_kept() {
    for first in [Recipe::tcp(100), v6(Recipe::tcp(100))] {
        assert_eq!(pair(&first, |next| next.sequence += 1), [1, 1], "a hole");
        assert_eq!(pair(&first, |next| next.sequence -= 100), [1, 1], "the same again");
        assert_eq!(pair(&first, |next| next.acknowledgement += 1), [1, 1]);
        assert_eq!(pair(&first, |next| next.window += 1), [1, 1]);
        assert_eq!(pair(&first, |next| next.options = vec![1; 4]), [1, 1]);
        for flag in [PSH, FIN, PSH | FIN] {
            assert_eq!(pair(&first, |next| next.flags |= flag), [2], "flags {flag:#x} on the last");
            let ends = Recipe { flags: ACK | flag, ..first.clone() };
            assert_eq!(pair(&ends, |_| ()), [1, 1], "flags {flag:#x} on the first");
            let (mut second, third) = (first.next(), first.next().next());
            second.flags |= flag;
            assert_eq!(merged(&[first.clone(), second, third]), [2, 1], "flags {flag:#x} in the middle");
        }
        // SYN, RST, URG, CWR, no ACK; and ECE, which all or none have.
        for flag in [0x02, 0x04, 0x20, 0x80, ACK, 0x40] {
            assert_eq!(pair(&first, |next| next.flags ^= flag), [1, 1], "flags {flag:#x}");
        }
        let echo = Recipe { flags: ACK | 0x40, ..first.clone() };
        assert_eq!(pair(&echo, |_| ()), [2]);
        let different = Recipe { options: vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], ..first.clone() };
        assert_eq!(pair(&different, |next| next.options[7] += 1), [1, 1], "timestamps");
    }
    let wraps = Recipe { sequence: u32::MAX - 50, ..Recipe::tcp(100) };
    assert_eq!(pair(&wraps, |_| ()), [2]);
}

#[test]
fn identifications_count() {
    for first in [Recipe::tcp(100), udp(Recipe::tcp(100))] {
        let free = Recipe { fragment: 0, ..first.clone() };
        let with = |first: &Recipe, ids: &[u16]| {
            let follow = |id: &u16| Recipe { identification: *id, ..first.clone() };
            let mut recipes = ids.iter().map(follow).collect::<Vec<_>>();
            for number in 1..recipes.len() {
                recipes[number].sequence = recipes[number - 1].sequence + 100;
            }
            merged(&recipes)
        };
        assert_eq!(with(&first, &[5, 6, 7]), [3]);
        assert_eq!(with(&first, &[5, 5, 5]), [1, 1, 1], "whoever cuts for a device counts up");
        assert_eq!(with(&first, &[0, 0, 0]), [1, 1, 1]);
        assert_eq!(with(&first, &[65_535, 0, 1]), [3]);
        assert_eq!(with(&first, &[5, 6, 6]), [2, 1]);
        assert_eq!(with(&first, &[5, 5, 6]), [1, 2]);
        assert_eq!(with(&first, &[5, 7]), [1, 1]);
        assert_eq!(with(&first, &[5, 4]), [1, 1]);
        assert_eq!(with(&free, &[5, 6, 7]), [3]);
        assert_eq!(with(&free, &[5, 5]), [1, 1]);
        assert_eq!(pair(&first, |next| next.fragment ^= DONT_FRAGMENT), [1, 1]);
        assert_eq!(pair(&first, |next| next.fragment |= 0x2000), [1, 1], "a first fragment");
        assert_eq!(pair(&first, |next| next.fragment = 10), [1, 1], "a later fragment");
        assert_eq!(pair(&first, |next| next.ip_options = vec![1; 4]), [1, 1]);
        let options = Recipe { ip_options: vec![1; 4], ..first };
        assert_eq!(pair(&options, |_| ()), [1, 1]);
    }
}

/// A packet with a wrong checksum stays as it is, by itself.
/// Segments as a tunnel brings them from a local sender: without a look at their payload.
#[test]
fn partial_checksums_merge_and_lies_do_not() {
    for recipe in [Recipe::tcp(100), v6(Recipe::tcp(100)), udp(Recipe::tcp(100)), udp(v6(Recipe::tcp(100)))] {
        let frames = [recipe.clone(), recipe.next(), recipe.next().next()].map(|recipe| recipe.frame());
        for (lies, packets) in [([false; 3], 1), ([true, false, false], 2), ([false, false, true], 2)] {
            let arrivals = frames.iter().zip(lies).map(|(frame, lies)| Arrival::unfinished(frame, lies));
            let arrivals = arrivals.map(|arrival| arrival.expect("TCP or UDP")).collect::<Vec<_>>();
            let mut bench = Bench::new(2048, true);
            assert_eq!(bench.merge(&arrivals).len(), packets, "{recipe:?} {lies:?}");
        }
    }
}

#[test]
fn what_is_damaged_is_not_merged() {
    for recipe in [Recipe::tcp(100), v6(Recipe::tcp(100)), udp(Recipe::tcp(100)), udp(v6(Recipe::tcp(100)))] {
        let frames = [recipe.clone(), recipe.next(), recipe.next().next()].map(|recipe| recipe.frame());
        for damaged in 0..3 {
            let mut frames = frames.clone();
            let last = frames[damaged].len() - 1;
            frames[damaged][last] ^= 1;
            let mut bench = Bench::new(2048, true);
            let results = merge(&mut bench, &frames, ChecksumState::Unknown);
            assert_same(&frames, &results.concat());
            let lengths = results.iter().map(Vec::len).collect::<Vec<_>>();
            let expected: &[usize] = [&[1, 2][..], &[1, 1, 1], &[2, 1]][damaged];
            assert_eq!(lengths, expected, "{recipe:?}");
            assert_eq!(
                merge(&mut bench, &frames, ChecksumState::Verified).len(),
                1,
                "a device that has verified them is believed"
            );
        }
    }
}

#[test]
fn udp_without_a_checksum_or_for_a_port_without_segments_is_not_merged() {
    let first = udp(Recipe::tcp(100));
    let mut frames = [first.frame(), first.next().frame()];
    let mut bench = Bench::new(2048, false);
    assert_eq!(merge(&mut bench, &frames, ChecksumState::Unknown).len(), 2);
    frames.iter_mut().for_each(|frame| frame[40..42].fill(0));
    let mut bench = Bench::new(2048, true);
    assert_eq!(merge(&mut bench, &frames, ChecksumState::Unknown).len(), 2);
}

/// A packet is not overtaken unless it is certainly of another flow.
#[test]
fn nothing_is_overtaken() {
    let first = Recipe::tcp(100);
    let (second, third) = (first.next(), first.next().next());
    let between = |odd: Recipe| merged(&[first.clone(), odd, second.clone(), third.clone()]);
    assert_eq!(between(Recipe { flags: ACK, ..Recipe::tcp(0) }), [1, 1, 2], "an acknowledgement of the flow");
    assert_eq!(between(Recipe { fragment: 5, ..Recipe::tcp(100) }), [1, 1, 2], "a fragment");
    assert_eq!(between(Recipe { tags: vec![1, 2, 3], ..Recipe::tcp(100) }), [1, 1, 2], "three tags");
    assert_eq!(between(Recipe { port: 9, ..Recipe::tcp(100) }), [3, 1], "another flow");
}

/// A tag of the old kind hides a flow as well as any other.
#[test]
fn what_is_behind_an_old_tag_is_not_overtaken() {
    let first = Recipe::tcp(100);
    let mut hidden = Recipe { tags: vec![1], ..first.clone() }.frame();
    hidden[12..14].copy_from_slice(&[0x91, 0]);
    let frames = [first.frame(), hidden, first.next().frame(), first.next().next().frame()];
    let mut bench = Bench::new(2048, false);
    let results = merge(&mut bench, &frames, ChecksumState::Unknown);
    assert_eq!(results.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 2]);
    assert_same(&frames, &results.concat());
}

#[test]
fn bounds_are_kept() {
    // 64 packets of 1400 bytes are more than an IP packet holds.
    let stream = |length: usize, first: Recipe| {
        let first = Recipe { payload: vec![7; length], ..first };
        std::iter::successors(Some(first), |last| Some(last.next())).take(64).collect::<Vec<_>>()
    };
    assert_eq!(merged(&stream(1400, Recipe::tcp(0))), [46, 18], "65 535 bytes");
    assert_eq!(merged(&stream(1400, v6(Recipe::tcp(0)))), [46, 18]);
    assert_eq!(merged(&stream(10, Recipe::tcp(0))), [60, 4], "frames");
    // Slots of 512 bytes: three to four frames a packet.
    let frames = stream(1400, Recipe::tcp(0)).iter().map(Recipe::frame).collect::<Vec<_>>();
    let mut bench = Bench::new(512, false);
    let results = merge(&mut bench, &frames, ChecksumState::Unknown);
    assert_eq!(results.iter().map(Vec::len).collect::<Vec<_>>(), [15, 15, 15, 15, 4]);
    assert_same(&frames, &results.concat());
}

/// A step of a history: mostly a stream that goes on.
fn step() -> impl Strategy<Value = [u8; 4]> {
    let what = prop_oneof![8 => 0_u8..8, 1 => any::<u8>()];
    (what, any::<u8>(), any::<u8>(), any::<u8>())
        .prop_map(|(what, length, at, value)| [what, length, at, value])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// Merging and cutting again changes nothing.
    #[test]
    fn any_history(choice in 0_u8..4, steps in proptest::collection::vec(step(), 0..200)) {
        let bytes = [vec![choice], steps.concat()].concat();
        target()(&bytes);
    }

    /// Streams that run beside each other become one packet each.
    #[test]
    fn streams_merge_whole(turns in proptest::collection::vec(0_u16..4, 2..64)) {
        let mut streams = [0, 1, 2, 3].map(|port| {
            let tcp = Recipe { port: 4000 + port, ..Recipe::tcp(500) };
            if port % 2 == 0 { tcp } else { v6(tcp) }
        });
        let mut recipes = Vec::new();
        for &turn in &turns {
            let stream = &mut streams[usize::from(turn)];
            recipes.push(stream.clone());
            *stream = stream.next();
        }
        let kinds = turns.iter().collect::<std::collections::BTreeSet<_>>().len();
        let longest = (0..4).map(|port| turns.iter().filter(|&&turn| turn == port).count()).max();
        prop_assume!(longest.is_none_or(|longest| longest <= 60));
        prop_assert_eq!(merged(&recipes).len(), kinds);
    }
}
