//! Parses packets for both programs: TCP, UDP and UDP-Lite over IPv4 without options or IPv6 without extension headers, no
//! fragments.

use super::entry::{
    DESTINATION, ENDED, FLAGS, HIGHEST_END, KEY_CHECK, LAST_ACK, LEAVES, LIMIT, PORTS, PROTOCOL, TCP, UDP,
    UDP_LITE, VERSION, WINDOW, WINDOW_SHIFT,
};
use super::words::ConnectionMaps;
use crate::bpf::assembler::{Arithmetic, Assembler, Condition, Helper, Label, Operand, Register, Width};
use crate::bpf::classify::{ETHERNET, IPV4, need, network_order};
use crate::checks::Check;
use crate::netlink::link::LinkLayer;
use crate::skb::context::DATA_END;
use crate::skb::layer;
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R9, R10};
use std::os::fd::BorrowedFd;

/// Version of an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}

/// Order of the endpoints in a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// Source first, as in the packet.
    AsSent,
    /// Destination first: the key of the reverse direction.
    Exchanged,
}

/// Stores the key of the packet at R2 at [`KEY`], the offset of its transport header at [`OFFSET`], and the address of that header
/// minus [`ETHERNET`] in R7. Jumps to `odd` for other IP packets, to `rest` for other EtherTypes. `check` gets the IP version and
/// may change R1, R4 and R5; the IP header is [`ETHERNET`] bytes behind R2. R3 is the end of the data; R1 to R5 change.
pub(super) fn read(
    program: &mut Assembler,
    (link, ends): (LinkLayer, Ends),
    (odd, rest): (Label, Label),
    check: impl Fn(&mut Assembler, Version),
) {
    let [ipv6, udp, read] = [(); 3].map(|()| program.label());
    let [source, destination] = match ends {
        Ends::AsSent => [KEY, KEY + DESTINATION],
        Ends::Exchanged => [KEY + DESTINATION, KEY],
    };
    need(program, ETHERNET + IPV4, rest);
    layer::ether_type(program, link, (R2, R5));
    program.jump_value(Condition::Equal, R5, network_order(0x86dd), ipv6);
    program.jump_value(Condition::NotEqual, R5, network_order(0x0800), rest);
    program.load(Width::Byte, R5, R2, ETHERNET);
    program.jump_value(Condition::NotEqual, R5, 0x45, odd);
    program.load(Width::Half, R5, R2, ETHERNET + 6);
    let fragment = if Check::ConnectionFragment.is_made() { 0x3fff } else { 0 };
    program.jump_value(Condition::AnyBit, R5, network_order(fragment), odd);
    check(program, Version::V4);
    program.set(R5, 0);
    for (from, to) in [(12, source), (16, destination)] {
        // Upper parts first: see `classify`.
        program.store(Width::Double, R10, to + 8, R5);
        program.store(Width::Word, R10, to + 4, R5);
        program.load(Width::Word, R1, R2, ETHERNET + from);
        program.store(Width::Word, R10, to, R1);
    }
    program.load(Width::Byte, R1, R2, ETHERNET + 9);
    identify(program, (4, IPV4));
    program.go(read);

    program.place(ipv6);
    need(program, ETHERNET + IPV6, odd);
    program.load(Width::Byte, R5, R2, ETHERNET);
    program.and(R5, 0xf0);
    program.jump_value(Condition::NotEqual, R5, 0x60, odd);
    check(program, Version::V6);
    for (from, to) in [(8, source), (24, destination)] {
        for part in [0, 8] {
            program.load(Width::Double, R5, R2, ETHERNET + from + part);
            program.store(Width::Double, R10, to + part, R5);
        }
    }
    program.load(Width::Byte, R1, R2, ETHERNET + 6);
    identify(program, (6, IPV6));

    program.place(read);
    program.copy(R7, R2);
    let ported = program.label();
    program.jump_value(Condition::NotEqual, R1, TCP, udp);
    need(program, ETHERNET + TCP_HEADER, odd);
    program.go(ported);
    program.place(udp);
    let headed = program.label();
    program.jump_value(Condition::Equal, R1, UDP, headed);
    program.jump_value(Condition::NotEqual, R1, UDP_LITE, odd);
    program.place(headed);
    need(program, ETHERNET + UDP_HEADER, odd);
    program.place(ported);
    let [first, second] = match ends {
        Ends::AsSent => [0, 2],
        Ends::Exchanged => [2, 0],
    };
    // Upper parts first, here too.
    program.load(Width::Half, R5, R7, ETHERNET + second);
    program.store(Width::Half, R10, KEY + PORTS + 2, R5);
    program.load(Width::Half, R5, R7, ETHERNET + first);
    program.store(Width::Half, R10, KEY + PORTS, R5);
}

/// Stores the IP version, and the protocol from R1, in the key; advances R2 by the length of the IP header.
fn identify(program: &mut Assembler, (version, header): (i32, i16)) {
    program.set(R5, 0);
    program.store(Width::Half, R10, KEY + VERSION + 1, R5);
    program.set(R5, version);
    program.store(Width::Byte, R10, KEY + VERSION, R5);
    program.store(Width::Byte, R10, KEY + PROTOCOL, R1);
    program.set(R5, i32::from(ETHERNET + header));
    program.store(Width::Double, R10, OFFSET, R5);
    program.add(R2, i32::from(header));
}

/// Looks up the key at that stack offset: R0 is the entry or 0. R1 to R5 change.
pub(super) fn look_up(program: &mut Assembler, entries: BorrowedFd<'_>, key: i16) {
    program.map(R1, entries);
    program.copy(R2, R10);
    program.add(R2, i32::from(key));
    program.call(Helper::MapLookup);
}

/// Looks up the entry of the direction reverse to `entry`: R0 is the entry or 0. Its key is the translated tuple of `entry` with
/// the endpoints exchanged. R1 to R5 change.
pub(super) fn look_up_peer(program: &mut Assembler, entries: BorrowedFd<'_>, entry: Register) {
    for (from, to) in [(DESTINATION, 0), (0, DESTINATION)] {
        for part in [0, 8] {
            program.load(Width::Double, R5, entry, LEAVES + from + part);
            program.store(Width::Double, R10, PEER + to + part, R5);
        }
    }
    program.load(Width::Word, R5, entry, LEAVES + PROTOCOL);
    program.store(Width::Word, R10, PEER + PROTOCOL, R5);
    for (from, to) in [(PORTS, PORTS + 2), (PORTS + 2, PORTS)] {
        program.load(Width::Half, R5, entry, LEAVES + from);
        program.store(Width::Half, R10, PEER + to, R5);
    }
    look_up(program, entries, PEER);
}

/// Puts the frame length of the packet on a link into R5; for a GSO packet, of its longest segment. Expects R7 as [`read`] leaves
/// it; R1 to R4 change.
pub(super) fn longest(program: &mut Assembler, link: LinkLayer) {
    let [whole, udp, known] = [(); 3].map(|()| program.label());
    program.load(Width::Word, R1, R6, GSO_SIZE);
    program.jump_value(Condition::Equal, R1, 0, whole);
    program.load(Width::Double, R5, R10, OFFSET);
    program.add_register(R1, R5);
    is_tcp(program, udp);
    header_bytes(program, R5);
    program.add_register(R5, R1);
    program.go(known);
    program.place(udp);
    program.copy(R5, R1);
    program.add(R5, i32::from(UDP_HEADER));
    program.go(known);
    program.place(whole);
    layer::length(program, link, R5);
    program.place(known);
}

/// Jumps to `udp` unless the packet is TCP. Afterwards the verifier accepts loads from the TCP header at R7. R2 to R5 change.
pub(super) fn is_tcp(program: &mut Assembler, udp: Label) {
    program.load(Width::Byte, R5, R10, KEY + PROTOCOL);
    program.jump_value(Condition::NotEqual, R5, TCP, udp);
    program.copy(R2, R7);
    program.load(Width::Word, R3, R6, DATA_END);
    need(program, ETHERNET + TCP_HEADER, udp);
}

/// Puts the length of the TCP header in bytes into `to`.
fn header_bytes(program: &mut Assembler, to: Register) {
    program.load(Width::Byte, to, R7, ETHERNET + 12);
    program.and(to, 0xf0);
    program.shift_right(to, 2);
}

/// Updates the entry at R9 from the TCP segment at R7: end of data, acknowledgement, window. R0 to R5 change.
///
/// The end of data does not advance beyond the receiver's window, so a forged segment cannot move it further. The receiver's
/// entry is looked up once per window.
pub(super) fn track(program: &mut Assembler, maps: ConnectionMaps<'_>, link: LinkLayer) {
    let [newer, beyond, fits, tracked] = [(); 4].map(|()| program.label());
    sequence(program, R1);
    layer::length(program, link, R4);
    program.load(Width::Double, R5, R10, OFFSET);
    program.subtract(R4, R5);
    header_bytes(program, R5);
    program.subtract(R4, R5);
    program.compute_word(Arithmetic::Add, R1, Operand::Register(R4));
    program.load(Width::Word, R4, R9, HIGHEST_END);
    // No segment was noted.
    program.jump_value(Condition::Equal, R4, 0, fits);
    jump_behind(program, R4, newer);
    program.go(tracked);
    program.place(newer);
    program.load(Width::Word, R4, R9, LIMIT);
    jump_behind(program, R4, beyond);
    program.go(fits);
    program.place(beyond);
    program.store(Width::Double, R10, END, R1);
    look_up_peer(program, maps.entries, R9);
    found(program, tracked);
    program.load(Width::Word, R4, R0, LAST_ACK);
    program.load(Width::Word, R5, R0, WINDOW);
    program.compute_word(Arithmetic::Add, R4, Operand::Register(R5));
    program.store(Width::Word, R9, LIMIT, R4);
    program.load(Width::Double, R1, R10, END);
    jump_behind(program, R4, tracked);
    program.place(fits);
    program.store(Width::Word, R9, HIGHEST_END, R1);
    program.place(tracked);
    let unacknowledged = program.label();
    program.load(Width::Byte, R5, R7, ETHERNET + 13);
    program.and(R5, ACK);
    program.jump_value(Condition::Equal, R5, 0, unacknowledged);
    program.load(Width::Word, R1, R7, ETHERNET + 8);
    program.big_endian(R1, Width::Word);
    program.store(Width::Word, R9, LAST_ACK, R1);
    program.load(Width::Half, R1, R7, ETHERNET + 14);
    program.big_endian(R1, Width::Half);
    program.load(Width::Half, R4, R9, WINDOW_SHIFT);
    program.and(R4, 0x0f);
    program.shift_left_by(R1, R4);
    program.store(Width::Word, R9, WINDOW, R1);
    program.place(unacknowledged);
}

/// Jumps to `behind` if the sequence number in R1 is greater than that in `number`, modulo 2^32. R5 changes.
fn jump_behind(program: &mut Assembler, number: Register, behind: Label) {
    program.copy(R5, R1);
    program.compute_word(Arithmetic::Subtract, R5, Operand::Register(number));
    program.jump_word(Condition::SignedGreater, R5, Operand::Value(0), behind);
}

/// Puts the sequence number of the TCP segment at R7 into `to`.
pub(super) fn sequence(program: &mut Assembler, to: Register) {
    program.load(Width::Word, to, R7, ETHERNET + 4);
    program.big_endian(to, Width::Word);
}

/// Jumps to `other` unless the entry at R9 still is that of the key at [`KEY`]: the kernel reuses the memory of a removed entry at
/// once, also for programs that have just looked it up. R4 and R5 change.
pub(super) fn is_of_key(program: &mut Assembler, other: Label) {
    program.load(Width::Double, R5, R10, KEY);
    for part in [8, 16, 24, 32] {
        program.load(Width::Double, R4, R10, KEY + part);
        program.exclusive_or_register(R5, R4);
    }
    for bits in [32, 16] {
        program.copy(R4, R5);
        program.shift_right(R4, bits);
        program.exclusive_or_register(R5, R4);
    }
    program.and(R5, 0xffff);
    program.load(Width::Half, R4, R9, KEY_CHECK);
    program.jump(Condition::NotEqual, R5, R4, other);
}

/// Marks the entry as ended. R5 changes.
pub(super) fn end(program: &mut Assembler, entry: Register) {
    program.load(Width::Word, R5, entry, FLAGS);
    program.or(R5, ENDED);
    program.store(Width::Word, entry, FLAGS, R5);
}

/// Increments the shared word at this offset. R1 and R5 change.
pub(super) fn count(program: &mut Assembler, words: BorrowedFd<'_>, word: i16) {
    program.map_value(R1, words);
    program.set(R5, 1);
    program.count(R1, word, R5);
}

/// Jumps to `rest` if R0 is 0: the look-up found no entry.
pub(super) fn found(program: &mut Assembler, rest: Label) {
    program.jump_value(Condition::Equal, R0, 0, rest);
}

/// Stack offsets of the packet's key, of the key of the reverse direction, and of the transport header's offset.
pub(super) const KEY: i16 = -40;
pub(super) const PEER: i16 = -80;
pub(super) const OFFSET: i16 = -88;
/// Stack offset of the end of a segment's data.
const END: i16 = -96;
/// First free stack offset.
pub(super) const BELOW: i16 = -104;
pub(super) const IPV6: i16 = 40;
/// Link-layer addresses, as two loads.
pub(super) const LINK_PARTS: [(i16, Width); 2] = [(0, Width::Double), (8, Width::Word)];
const TCP_HEADER: i16 = 20;
const UDP_HEADER: i16 = 8;
/// TCP flags.
pub(super) const FIN: i32 = 0x01;
pub(super) const SYN: i32 = 0x02;
pub(super) const RST: i32 = 0x04;
pub(super) const ACK: i32 = 0x10;
/// Offsets in the context of a program (`struct __sk_buff`).
const GSO_SIZE: i16 = 176;
