//! Inputs for both directions of a tunnel: a byte of options, then steps. See the oracle for what they
//! mean.

use super::Seeds;
use polder_datapath::wire::{Checksum, EtherType, GreHeader, GreMut};

const CHECKSUM: u8 = 1;
const KEY: u8 = 2;
const SEQUENCE: u8 = 4;
const DONT_FRAGMENT: u8 = 16;
const MTU: u8 = 32;
const NARROW: u8 = 64;
/// VXLAN; the lower bits are family, checksum, and whether none is taken over IPv6.
const VXLAN: u8 = 128;
/// Added to the length of a step: its bytes are put over a datagram that is right.
const OVER: u8 = 0x80;

const RAW: u8 = 0;
const FRAGMENT: u8 = 1;
const PACKET: u8 = 4;
const SEND: u8 = 5;
const WAIT: u8 = 7;
/// Added to a kind: the wire is given to the receiver.
const FLUSH: u8 = 0x80;

/// A step; `content` is padded to a multiple of four.
fn step(kind: u8, [a, b, c]: [u8; 3], content: &[u8]) -> Vec<u8> {
    let words = content.len().div_ceil(4);
    let mut bytes = vec![kind, u8::try_from(words).expect("a short step"), a, b, c];
    bytes.extend(content);
    bytes.resize(5 + words * 4, 0);
    bytes
}

/// A whole GRE packet with a frame inside.
fn gre(choice: u8, sequence: u32, length: usize) -> Vec<u8> {
    let header = GreHeader {
        protocol: EtherType::TRANSPARENT_ETHERNET,
        checksum: choice & CHECKSUM != 0,
        key: (choice & KEY != 0).then_some(0x0102_0304),
        sequence: (choice & SEQUENCE != 0).then_some(sequence),
    };
    let mut bytes = vec![0x5a; header.header_bytes() + length];
    header.emit(&mut bytes).expect("room");
    GreMut::parse(&mut bytes).expect("a header of ours").set_checksum([]);
    bytes
}

/// The part of a packet from one place to another, in units of eight bytes.
fn part(packet: &[u8], identification: u8, from: usize, to: usize) -> Vec<u8> {
    let end = packet.len().min(to * 8);
    let last = u8::from(end == packet.len()) << 7;
    let from_byte = u8::try_from(from).expect("a short packet");
    step(FRAGMENT, [identification | last, 0, from_byte], &packet[from * 8..end])
}

/// A frame of an IPv4 packet with a TCP SYN inside.
fn syn() -> Vec<u8> {
    let mut ip = [
        &[0x45, 0, 0, 44, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2][..],
        &[16, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 0x20, 0, 0, 0, 0, 0, 2, 4, 5, 0xb4],
    ]
    .concat();
    let checksum = Checksum::of(&ip[..20]);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    [&[2, 0, 0, 0, 7, 2, 2, 0, 0, 0, 7, 1, 8, 0][..], &ip].concat()
}

/// A sequence of steps under these options.
fn steps<const N: usize>(choice: u8, steps: [Vec<u8>; N]) -> Vec<u8> {
    [vec![choice], steps.concat()].concat()
}

/// A UDP header without a checksum in front of 68 bytes.
const UDP: [u8; 8] = [0xc1, 0x23, 0x12, 0xb5, 0, 0x4c, 0, 0];

/// A datagram that is right but for its first bytes.
fn over(choice: u8, start: &[u8]) -> Vec<u8> {
    let length = u8::try_from(start.len()).expect("a short start") | OVER;
    [&[choice, length], start].concat()
}

pub(super) fn seeds() -> Seeds {
    let plain = gre(0, 0, 92);
    let all = CHECKSUM | KEY | SEQUENCE;
    let guarded = gre(all, 7, 80);
    let cut = |id: u8, bounds: &[usize]| {
        let parts = bounds.windows(2).map(|pair| part(&plain, id, pair[0], pair[1]));
        parts.collect::<Vec<_>>().concat()
    };
    let unlike = [part(&plain, 3, 0, 4), part(&plain, 3, 8, 12), part(&plain, 3, 4, 8)].concat();
    vec![
        ("empty", Vec::new()),
        ("whole", steps(0, [step(PACKET, [0; 3], &plain)])),
        ("whole-guarded", steps(all, [step(PACKET, [0; 3], &guarded)])),
        ("whole-late", steps(all, [step(PACKET | FLUSH, [0; 3], &guarded), step(PACKET, [0; 3], &guarded)])),
        (
            "whole-after-silence",
            steps(
                all,
                [
                    step(PACKET | FLUSH, [0; 3], &guarded),
                    step(WAIT, [0; 3], &[0; 1000]),
                    step(PACKET, [0; 3], &guarded),
                ],
            ),
        ),
        ("whole-wrong-key", steps(KEY, [step(PACKET, [0; 3], &plain)])),
        ("raw", steps(0, [step(RAW, [0; 3], &syn())])),
        ("fragments", steps(0, [cut(1, &[0, 4, 8, 12])])),
        ("fragments-guarded", steps(all, [part(&guarded, 2, 0, 1), part(&guarded, 2, 1, 12)])),
        ("fragments-unlike", steps(0, [unlike])),
        ("fragments-twice", steps(0, [part(&plain, 1, 0, 4), cut(1, &[0, 4, 12])])),
        ("fragments-overlap", steps(0, [part(&plain, 1, 0, 5), part(&plain, 1, 4, 12)])),
        ("fragments-too-many", steps(0, [cut(1, &[0, 1, 2, 3, 4, 5, 6, 7])])),
        ("fragments-of-many", steps(0, [0, 1, 2, 3, 4, 5].map(|id| part(&plain, id, 0, 4)))),
        (
            "fragments-late",
            steps(0, [part(&plain, 1, 0, 4), step(WAIT, [0; 3], &[0; 60]), part(&plain, 1, 4, 12)]),
        ),
        ("fragment-last-twice", steps(0, [part(&plain, 1, 4, 12), step(FRAGMENT, [0x81, 0, 2], &[0; 8])])),
        ("fragment-beyond", steps(0, [step(FRAGMENT, [0xc1, 0x1f, 0xff], &[0; 16])])),
        ("send", steps(0, [step(SEND | FLUSH, [0; 3], &syn())])),
        ("send-guarded", steps(all | 8, [step(SEND | FLUSH, [0; 3], &syn())])),
        ("send-cut", steps(all | MTU, [step(SEND | FLUSH, [130, 0, 0], &plain)])),
        ("vxlan", vec![VXLAN, OVER, OVER]),
        ("vxlan-over-ipv6", vec![VXLAN | 1, OVER]),
        ("vxlan-zero-checksum", over(VXLAN | 1, &UDP)),
        ("vxlan-zero-checksum-taken", over(VXLAN | 5, &UDP)),
        ("vxlan-no-flag", over(VXLAN, &[&UDP[..], &[0xf7]].concat())),
        ("vxlan-raw", [&[VXLAN, 9][..], &UDP, &[8]].concat()),
        ("send-too-big", steps(DONT_FRAGMENT | NARROW, [step(SEND | FLUSH, [255, 0, 0], &syn())])),
    ]
}
