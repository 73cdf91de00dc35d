//! Inputs for merging and cutting: a byte of options, then steps of four bytes. See the oracle for what
//! they mean.

use super::Seeds;

const PSH: u8 = 8;
const FIN: u8 = 16;
/// The identification stays.
const STAYS: u8 = 32;
const ODD: u8 = 64;
const DAMAGED: u8 = 128;

/// Full segments of one flow.
fn stream(what: u8, count: usize) -> Vec<u8> {
    [what, 0, 0, 0].repeat(count)
}

/// A stream of one flow with one packet in it that is odd.
fn odd(what: u8, value: u8) -> Vec<u8> {
    [vec![2], stream(0, 3), vec![ODD, 0, what, value], stream(0, 3)].concat()
}

pub(super) fn seeds() -> Seeds {
    let all = (0..64).flat_map(|number| [number % 8, 0, 0, 0]).collect::<Vec<_>>();
    let with = |choice: u8, steps: Vec<u8>| [vec![choice], steps].concat();
    let damaged = |at: u8| [vec![2], stream(0, 2), vec![DAMAGED, 0, at, 1], stream(0, 2)].concat();
    vec![
        ("empty", Vec::new()),
        ("tcp4", with(0, stream(0, 64))),
        ("tcp6", with(0, stream(1, 64))),
        ("timestamps", with(0, stream(2, 64))),
        ("tagged", with(0, stream(3, 64))),
        ("udp", with(2, stream(4, 64))),
        ("udp-not-taken", with(0, stream(4, 64))),
        ("udp6-tagged-twice", with(2, stream(5, 64))),
        ("sequence-wraps", with(0, stream(6, 64))),
        ("one-identification", with(0, stream(STAYS, 64))),
        ("udp-one-identification", with(2, stream(4 | STAYS, 64))),
        ("eight-flows", with(2, all.clone())),
        ("eight-flows-in-small-slots", with(3, all)),
        (
            "push-and-end",
            [vec![0], stream(0, 3), vec![PSH, 200, 0, 0], stream(0, 3), vec![FIN, 0, 0, 0]].concat(),
        ),
        ("short-last", [vec![0], stream(0, 3), vec![0, 130, 0, 0], stream(0, 3)].concat()),
        ("acknowledgements", [vec![0], stream(0, 2), vec![0, 195, 0, 0], stream(0, 2)].concat()),
        ("hole", odd(0, 9)),
        ("other-acknowledgement", odd(1, 1)),
        ("synchronise", odd(2, 2)),
        ("urgent", odd(2, 0x20)),
        ("window", odd(3, 1)),
        ("congestion", odd(4, 3)),
        ("time-to-live", odd(5, 1)),
        ("identification", odd(6, 5)),
        ("fragment", odd(7, 0x20)),
        ("may-fragment", odd(7, 0x40)),
        ("padding", odd(8, 6)),
        ("options", odd(9, 1)),
        ("checksum-of-header", damaged(24)),
        ("checksum-of-transport", damaged(50)),
        ("data-offset", damaged(46)),
        ("ether-type", damaged(12)),
        ("old-tag", [vec![2], stream(5, 3), vec![DAMAGED | 5, 0, 16, 0x10], stream(5, 3)].concat()),
    ]
}
