//! Outer fragments: what fits, what does not, and how much of it is kept.

use super::{PATH, ends, receive, send};
use crate::frames::{other, v4};
use crate::oracle::ends::{End, SLOT_BYTES, bytes_of, outer_frame};
use polder_datapath::drops::DropReason;
use polder_datapath::tunnel::ReassemblyLimits;
use polder_datapath::units::Nanos;

const MORE: u16 = 0x2000;

/// A GRE packet of `length` bytes.
fn packet(length: usize) -> Vec<u8> {
    [&[0, 0, 0x65, 0x58][..], &other(&[], length - 4)].concat()
}

/// Bytes of the packet from one place to another, in units of eight.
fn part(packet: &[u8], identification: u16, from: usize, to: usize) -> Vec<u8> {
    part_of_class(packet, identification, from, to, 0)
}

fn part_of_class(packet: &[u8], identification: u16, from: usize, to: usize, class: u8) -> Vec<u8> {
    let end = packet.len().min(to * 8);
    let more = if end < packet.len() { MORE } else { 0 };
    let place = u16::try_from(from).expect("below 64 KiB") | more;
    outer_frame(0, class, identification, place, &packet[from * 8..end])
}

fn one_end(limits: ReassemblyLimits) -> End {
    End::new(1, PATH, limits, |_| {})
}

/// In both orders, and with the GRE header itself cut in two.
#[test]
fn a_packet_in_pieces() {
    let whole = packet(100);
    for bounds in [&[0, 5, 13][..], &[0, 1, 13], &[0, 1, 2, 3, 12, 13]] {
        for reverse in [false, true] {
            let mut end = one_end(ReassemblyLimits::default());
            let mut wire =
                bounds.windows(2).map(|pair| part(&whole, 1, pair[0], pair[1])).collect::<Vec<_>>();
            if reverse {
                wire.reverse();
            }
            let last = wire.pop().expect("two at least");
            assert!(receive(&mut end, &wire).is_empty());
            assert_eq!(end.ledger.held.get(), wire.len() as u64);
            assert_eq!(receive(&mut end, &[last]), [&whole[4..]]);
            assert_eq!(end.ledger.merged.get(), wire.len() as u64);
            assert_eq!(end.state.total(|counters| &counters.reassembled), 1);
            assert_eq!(end.drops.total(), 0);
        }
    }
}

/// The datagram stands where its last fragment stood; what is around it keeps its place.
#[test]
fn fragments_between_packets() {
    let whole = packet(100);
    let alone = |length| outer_frame(0, 0, 9, 0x4000, &packet(length));
    let (first, second) = (part(&whole, 1, 0, 6), part(&whole, 1, 6, 13));
    let mut end = one_end(ReassemblyLimits::default());
    let out = receive(&mut end, &[alone(70), first, alone(71), second, alone(72)]);
    assert_eq!(out.iter().map(Vec::len).collect::<Vec<_>>(), [66, 67, 96, 68]);
}

/// An overlap gains a sender nothing: the whole datagram goes, counted fragment by fragment, and
/// what comes later of it, too.
#[test]
fn overlaps_end_a_datagram() {
    let whole = packet(160);
    for (from, to) in [(4, 6), (2, 5), (5, 9), (5, 8), (7, 10), (0, 12), (1, 20), (4, 10), (6, 7)] {
        let mut end = one_end(ReassemblyLimits::default());
        let wire =
            [part(&whole, 1, 4, 8), part(&whole, 1, from, to), part(&whole, 1, 8, 20), part(&whole, 1, 0, 4)];
        assert!(receive(&mut end, &wire).is_empty());
        assert_eq!(end.dropped(DropReason::FragmentOverlap), 4, "{from}..{to}");
        assert_eq!((end.drops.total(), end.ledger.held.get()), (4, 0));
        // The identification may come again once the datagram has been forgotten.
        end.now = end.now + ReassemblyLimits::default().timeout;
        assert_eq!(receive(&mut end, &[part(&whole, 1, 0, 9), part(&whole, 1, 9, 20)]), [&whole[4..]]);
    }
}

/// Networks do duplicate: an exact repetition goes alone.
#[test]
fn repetitions_go_alone() {
    let whole = packet(160);
    let mut end = one_end(ReassemblyLimits::default());
    let (first, second) = (part(&whole, 1, 0, 8), part(&whole, 1, 8, 20));
    let out = receive(&mut end, &[first.clone(), first.clone(), first, second]);
    assert_eq!(out, [&whole[4..]]);
    assert_eq!((end.dropped(DropReason::FragmentDuplicate), end.drops.total()), (2, 2));
}

/// RFC 791, 3.2: sizes in units of eight, ends within 65 535 bytes, one end for all.
#[test]
fn impossible_fragments() {
    let fragment = |place: u16, length: usize| outer_frame(0, 0, 1, place, &vec![0; length]);
    let cases: [(&[Vec<u8>], u64); 8] = [
        (&[fragment(MORE, 0)], 1),
        (&[fragment(MORE, 12)], 1),
        (&[fragment(0x1fff, 8)], 1),
        (&[fragment(0x1ffe, 1500)], 1),
        (&[fragment(MORE | 0x1fff, 8)], 1),
        (&[fragment(4, 8), fragment(8, 8)], 2),
        (&[fragment(4, 8), fragment(MORE | 8, 8)], 2),
        (&[fragment(MORE | 8, 8), fragment(4, 8)], 2),
    ];
    for (number, (wire, count)) in cases.into_iter().enumerate() {
        let mut end = one_end(ReassemblyLimits::default());
        assert!(receive(&mut end, wire).is_empty());
        assert_eq!(
            (end.dropped(DropReason::FragmentBad), end.drops.total()),
            (count, count),
            "case {number}"
        );
    }
}

/// A header with options makes a datagram too long whose payload alone fits.
#[test]
fn the_longest_datagram() {
    let whole = packet(65_515);
    let limits = ReassemblyLimits { datagrams: 2, ..ReassemblyLimits::default() };
    let mut end = one_end(limits);
    let wire = (0..8190).step_by(185).map(|from| part(&whole, 1, from, from + 185)).collect::<Vec<_>>();
    assert_eq!(receive(&mut end, &wire), [&whole[4..]]);
}

#[test]
fn time_is_bounded() {
    let whole = packet(160);
    let limits = ReassemblyLimits::default();
    let mut end = one_end(limits);
    receive(&mut end, &[part(&whole, 1, 0, 8)]);
    end.now = end.now + limits.timeout - Nanos(1);
    receive(&mut end, &[part(&whole, 2, 0, 8), part(&whole, 1, 8, 12)]);
    assert_eq!((end.drops.total(), end.ledger.held.get()), (0, 3));
    end.now = end.now + Nanos(1);
    assert!(receive(&mut end, &[part(&whole, 1, 12, 20)]).is_empty(), "the others are gone");
    assert_eq!((end.dropped(DropReason::FragmentTimeout), end.ledger.held.get()), (2, 2));
    assert_eq!(
        receive(&mut end, &[part(&whole, 2, 8, 20)]),
        [&whole[4..]],
        "the time of one is not that of another"
    );
}

/// The oldest datagram makes room for a new one.
#[test]
fn datagrams_are_bounded() {
    let whole = packet(160);
    let mut end = one_end(ReassemblyLimits { datagrams: 3, ..ReassemblyLimits::default() });
    let halves = (1..=4).map(|id| part(&whole, id, 0, 8)).collect::<Vec<_>>();
    receive(&mut end, &halves);
    assert_eq!((end.dropped(DropReason::FragmentLimit), end.ledger.held.get()), (1, 3));
    let others = (2..=4).map(|id| part(&whole, id, 8, 20)).collect::<Vec<_>>();
    assert_eq!(receive(&mut end, &others).len(), 3);
}

#[test]
fn fragments_of_a_datagram_are_bounded() {
    let whole = packet(160);
    let limits = ReassemblyLimits { fragments: 4, ..ReassemblyLimits::default() };
    let in_parts = |parts: usize| {
        let bounds = (0..parts).chain([20]).collect::<Vec<_>>();
        bounds.windows(2).map(|pair| part(&whole, 1, pair[0], pair[1])).collect::<Vec<_>>()
    };
    let mut end = one_end(limits);
    assert_eq!(receive(&mut end, &in_parts(4)), [&whole[4..]]);
    assert!(receive(&mut end, &in_parts(6)).is_empty());
    assert_eq!((end.dropped(DropReason::FragmentLimit), end.drops.total()), (6, 6));
}

/// Memory is counted in whole slots: a sender of small fragments gets no more of it.
#[test]
fn memory_is_bounded() {
    let whole = packet(160);
    let mut end =
        one_end(ReassemblyLimits { memory: 5 * SLOT_BYTES as usize, ..ReassemblyLimits::default() });
    let wire =
        (0..40).map(|number| part(&whole, number / 4, usize::from(number % 4), usize::from(number % 4) + 1));
    let wire = wire.collect::<Vec<_>>();
    for fragment in wire {
        receive(&mut end, &[fragment]);
        assert!(end.ledger.held.get() <= 5);
    }
    assert!(end.dropped(DropReason::FragmentLimit) >= 35);
    let own = (0..7).map(|from| part(&whole, 100, from, from + 1)).collect::<Vec<_>>();
    receive(&mut end, &own);
    assert!(end.ledger.held.get() <= 5, "one datagram alone, too");
}

/// RFC 3168, 5.3.
#[test]
fn congestion_of_one_fragment_is_that_of_all() {
    let frame = v4(&[], 2, 64, false, 100);
    let whole = [&[0, 0, 0x65, 0x58][..], &frame].concat();
    let cases = [
        ([2, 2], Some(2)),
        ([2, 3], Some(3)),
        ([3, 2], Some(3)),
        ([0, 0], Some(2)),
        ([0, 3], None),
        ([3, 0], None),
    ];
    for (classes, expected) in cases {
        let mut end = one_end(ReassemblyLimits::default());
        let wire = [part_of_class(&whole, 1, 0, 6, classes[0]), part_of_class(&whole, 1, 6, 20, classes[1])];
        let out = receive(&mut end, &wire);
        assert_eq!(out.first().map(|frame| frame[15] & 3), expected, "{classes:?}");
        assert_eq!(end.dropped(DropReason::EcnNotCapable), u64::from(expected.is_none()));
    }
}

/// Fragments between addresses that no tunnel has take no room.
#[test]
fn strangers_fragments_are_not_kept() {
    let mut end = one_end(ReassemblyLimits::default());
    // From the right end to itself.
    let mut wire = outer_frame(0, 0, 1, MORE, &[0; 16]);
    wire[29] ^= 2;
    wire[25] = wire[25].wrapping_sub(2);
    assert!(receive(&mut end, &[wire]).is_empty());
    assert_eq!((end.dropped(DropReason::NoTunnel), end.drops.total()), (1, 1));
}

/// The reassembled packet consists of the received frames, one behind the other.
#[test]
fn no_payload_is_copied() {
    let whole = packet(1000);
    let mut end = one_end(ReassemblyLimits::default());
    let wire = [part(&whole, 1, 0, 60), part(&whole, 1, 60, 125)];
    let packets = wire.iter().map(|frame| end.packet(frame, &[])).collect::<Vec<_>>();
    let heads = packets.iter().map(|packet| packet.head().index()).collect::<Vec<_>>();
    let out = end.receive(packets);
    assert_eq!((out[0].head().index(), out[0].segment_count()), (heads[0], 2));
    assert_eq!(bytes_of(&out[0]), whole[4..]);
    end.release(out);
}

/// A worker that ends drops its held packets; its end asserts that.
#[test]
fn what_is_held_is_dropped_at_the_end() {
    let mut end = one_end(ReassemblyLimits::default());
    receive(&mut end, &[part(&packet(160), 1, 0, 8)]);
    assert_eq!(end.ledger.held.get(), 1);
}

/// No fragment leaves if memory runs out in the middle: a datagram with a hole is of no use.
#[test]
fn no_memory_no_fragments() {
    let (mut left, _right) = ends(|options| options.mtu = Some(9000));
    let frame = other(&[], 8000);
    let packet = left.packet(&frame, &[]);
    let mut hoard = Vec::new();
    while let Some(frame) = left.pool.take() {
        hoard.push(frame);
    }
    hoard.drain(..2).for_each(|frame| left.pool.release_frame(frame));
    let (out, _) = left.send(vec![packet]);
    assert!(out.is_empty());
    assert!(left.dropped(DropReason::NoBuffer) >= 1);
    assert_eq!(left.drops.total(), 1 + left.ledger.split.get());
    hoard.into_iter().for_each(|frame| left.pool.release_frame(frame));
    assert!(send(&mut left, &[frame]).len() > 5);
    assert_eq!(left.state.total(|counters| &counters.fragmented), 1);
}
