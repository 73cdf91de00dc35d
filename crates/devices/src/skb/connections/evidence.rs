//! The egress program: opens the entries of a connection when the kernel forwards its packets.

use super::entry::{
    CONTRADICTED, ENDED, EVIDENCE, FLAGS, HOP, HOP_SEEN, INPUT, LEAVES, LINK, LONGEST, NUMBER, OPEN, OUTPUT,
    PAIR, PORTS,
};
use super::generation::{hop, is_fresh, of_entry, pair, same_hop};
use super::packet::{
    BELOW, Ends, FIN, KEY, LINK_PARTS, RST, SYN, count, found, is_tcp, longest, look_up, look_up_peer, read,
    track,
};
use super::words::{CONTRADICTIONS, ConnectionMaps, NONCE, SEEN, at};
use crate::bpf::assembler::{Assembler, Condition, Label, Operand, Register, Width};
use crate::bpf::classify::{ETHERNET, need};
use crate::checks::Check;
use crate::netlink::link::LinkLayer;
use crate::skb::layer;
use crate::skb::program::{
    CONTROL_BLOCK, HEADERS, INGRESS_INTERFACE, INTERFACE, NEXT, VLAN_PRESENT, headers,
};
use Register::{R0, R1, R2, R4, R5, R6, R7, R8, R9, R10};

/// Assembles the program for the TCX egress hook of a port's interface, whose packets have that header. It changes no
/// packet.
pub(in crate::skb) fn evidence(maps: ConnectionMaps<'_>, link: LinkLayer) -> Vec<u64> {
    let [rest, fresh, seen, contradiction] = [(); 4];
    let mut program = Assembler::new();
    let [rest, fresh, seen, contradiction] = [rest, fresh, seen, contradiction].map(|()| program.label());
    program.copy(R6, R1);
    was_forwarded(&mut program, maps, rest);
    headers(&mut program, HEADERS);
    layer::to_frame(&mut program, link);
    keep_link(&mut program, link, rest);
    read(&mut program, (link, Ends::Exchanged), (rest, rest), |_, _| {});
    is_no_end(&mut program, rest);
    // The entry of the reverse direction has the translated tuple of this packet.
    look_up(&mut program, maps.entries, KEY);
    found(&mut program, rest);
    program.store(Width::Double, R10, PEER_ENTRY, R0);
    look_up_peer(&mut program, maps.entries, R0);
    found(&mut program, rest);
    program.copy(R9, R0);
    program.load(Width::Word, R5, R9, NUMBER);
    program.store(Width::Double, R10, CONNECTION, R5);
    program.order_loads(ORDER);
    generations(&mut program, maps, rest);
    program.load(Width::Double, R0, R10, PEER_ENTRY);
    is_same_connection(&mut program, rest);
    mirrors(&mut program, contradiction);
    program.load(Width::Double, R5, R9, EVIDENCE);
    program.jump(Condition::NotEqual, R5, R8, fresh);
    same_hop(&mut program, maps, R9, fresh);
    is_unchanged(&mut program, contradiction);
    program.go(seen);
    program.place(fresh);
    enter(&mut program);
    // Another CPU may have entered the reverse direction at the same time. One of the two CPUs sees the other's stores.
    mirrors(&mut program, contradiction);
    program.place(seen);
    allow_length(&mut program, link);
    note_tcp(&mut program, maps, link);
    open(&mut program, maps, rest);

    program.place(contradiction);
    contradict(&mut program, maps);
    program.place(rest);
    program.set(R0, NEXT);
    program.exit();
    program.finish()
}

/// Jumps to `rest` for a packet of a local socket, with a VLAN tag, redirected by the ingress program, or with an old stamp.
fn was_forwarded(program: &mut Assembler, maps: ConnectionMaps<'_>, rest: Label) {
    let other = program.label();
    program.load(Width::Word, R5, R6, INGRESS_INTERFACE);
    program.jump_value(Condition::Equal, R5, 0, rest);
    program.load(Width::Word, R5, R6, VLAN_PRESENT);
    program.jump_value(Condition::NotEqual, R5, 0, rest);
    is_fresh(program, maps, rest);
    program.map_value(R7, maps.words);
    // Packets redirected by the ingress program have the nonce in their control block.
    program.load(Width::Double, R4, R7, at(NONCE));
    program.load(Width::Word, R5, R6, CONTROL_BLOCK);
    program.jump_word(Condition::NotEqual, R5, Operand::Register(R4), other);
    program.shift_right(R4, 32);
    program.load(Width::Word, R5, R6, CONTROL_BLOCK + 4);
    program.jump(Condition::Equal, R5, R4, rest);
    program.place(other);
}

/// Puts the generation of the connection into R8, and slot and generation of the packet's next hop on the stack. Jumps to `rest` if
/// the kernel's state changed since ingress: the generations read here include no change that the stamp lacks.
fn generations(program: &mut Assembler, maps: ConnectionMaps<'_>, rest: Label) {
    of_entry(program, maps, R9, R8);
    hop(program, maps, ON_STACK);
    program.store(Width::Double, R10, HOP_SLOT, R4);
    program.store(Width::Double, R10, HOP_WORD, R5);
    program.order_loads(ORDER);
    is_fresh(program, maps, rest);
}

/// Puts the index of the ingress interface into R1, and of the egress interface into R2.
fn interfaces(program: &mut Assembler) {
    program.load(Width::Word, R1, R6, INGRESS_INTERFACE);
    program.load(Width::Word, R2, R6, INTERFACE);
}

/// Jumps to `rest` for a TCP segment with SYN, FIN or RST.
fn is_no_end(program: &mut Assembler, rest: Label) {
    let udp = program.label();
    is_tcp(program, udp);
    program.load(Width::Byte, R5, R7, ETHERNET + 13);
    program.jump_value(Condition::AnyBit, R5, SYN | FIN | RST, rest);
    program.place(udp);
}

/// Jumps to `rest` unless the translated tuple of the entry at R9 is that of this packet, and neither entry has ended or is
/// contradicted in this generation.
fn is_same_connection(program: &mut Assembler, rest: Label) {
    // The key on the stack has the ends exchanged.
    for (field, on_stack) in [(0, 16), (8, 24), (16, 0), (24, 8)] {
        program.load(Width::Double, R4, R9, LEAVES + field);
        program.load(Width::Double, R5, R10, KEY + on_stack);
        program.jump(Condition::NotEqual, R4, R5, rest);
    }
    for (field, on_stack) in [(PORTS, PORTS + 2), (PORTS + 2, PORTS)] {
        program.load(Width::Half, R4, R9, LEAVES + field);
        program.load(Width::Half, R5, R10, KEY + on_stack);
        program.jump(Condition::NotEqual, R4, R5, rest);
    }
    for entry in [R9, R0] {
        program.load(Width::Word, R5, entry, FLAGS);
        program.jump_value(Condition::AnyBit, R5, ENDED, rest);
        program.load(Width::Double, R5, entry, CONTRADICTED);
        program.jump(Condition::Equal, R5, R8, rest);
    }
}

/// Jumps to `contradiction` if the entry of the reverse direction, in R0, has other interfaces than this packet has, exchanged.
fn mirrors(program: &mut Assembler, contradiction: Label) {
    let unknown = program.label();
    interfaces(program);
    program.load(Width::Double, R5, R0, EVIDENCE);
    program.jump(Condition::NotEqual, R5, R8, unknown);
    // Pairs with the order of stores in `enter`.
    program.order_loads(ORDER);
    for (field, is) in [(INPUT, R2), (OUTPUT, R1)] {
        program.load(Width::Word, R5, R0, field);
        program.jump(Condition::NotEqual, R5, is, contradiction);
    }
    program.place(unknown);
}

/// Jumps to `contradiction` unless this packet has the interfaces and link-layer addresses that the entry has.
fn is_unchanged(program: &mut Assembler, contradiction: Label) {
    // Pairs with the order of stores in `enter`: the evidence was read before.
    program.order_loads(ORDER);
    interfaces(program);
    for (field, is) in [(INPUT, R1), (OUTPUT, R2)] {
        program.load(Width::Word, R5, R9, field);
        program.jump(Condition::NotEqual, R5, is, contradiction);
    }
    for (at, width) in LINK_PARTS {
        program.load(width, R4, R10, ON_STACK + at);
        program.load(width, R5, R9, LINK + at);
        program.jump(Condition::NotEqual, R4, R5, contradiction);
    }
}

/// Stores interfaces, link-layer addresses, next hop and generation of the packet in the entry at R9.
fn enter(program: &mut Assembler) {
    // Invalid until the stores below are complete: the ingress program carries no packet meanwhile.
    program.set(R5, -1);
    program.exchange(R9, HOP_SEEN, R5);
    interfaces(program);
    program.store(Width::Word, R9, INPUT, R1);
    program.store(Width::Word, R9, OUTPUT, R2);
    for (at, width) in LINK_PARTS {
        program.load(width, R4, R10, ON_STACK + at);
        program.store(width, R9, LINK + at, R4);
    }
    program.set(R5, 0);
    program.store(Width::Word, R9, LONGEST, R5);
    pair(program);
    program.store(Width::Word, R9, PAIR, R5);
    program.load(Width::Double, R5, R10, HOP_SLOT);
    program.store(Width::Word, R9, HOP, R5);
    // Readers that see the generation also see the stores above.
    program.order_stores(ORDER);
    program.store(Width::Double, R9, EVIDENCE, R8);
    program.load(Width::Double, R5, R10, HOP_WORD);
    program.exchange(R9, HOP_SEEN, R5);
}

/// Copies the link-layer addresses of the frame at R2 to the stack; zeros for a packet without a header, since the
/// kernel removes the header of a carried one.
fn keep_link(program: &mut Assembler, link: LinkLayer, rest: Label) {
    if link == LinkLayer::Packets {
        program.set(R5, 0);
        for (at, width) in LINK_PARTS.into_iter().rev() {
            program.store(width, R10, ON_STACK + at, R5);
        }
        return;
    }
    need(program, ETHERNET, rest);
    // Upper parts first: see `classify`.
    for (at, width) in LINK_PARTS.into_iter().rev() {
        program.load(width, R5, R2, at);
        program.store(width, R10, ON_STACK + at, R5);
    }
}

/// Raises the maximum frame length of the entry to that of this packet.
fn allow_length(program: &mut Assembler, link: LinkLayer) {
    let allowed = program.label();
    longest(program, link);
    program.load(Width::Word, R4, R9, LONGEST);
    program.jump(Condition::NotGreater, R5, R4, allowed);
    program.store(Width::Word, R9, LONGEST, R5);
    program.place(allowed);
}

/// Updates the TCP state of the entry, so that an entry that opens has the end of its data.
fn note_tcp(program: &mut Assembler, maps: ConnectionMaps<'_>, link: LinkLayer) {
    let udp = program.label();
    is_tcp(program, udp);
    track(program, maps, link);
    program.place(udp);
}

/// Opens both directions if the reverse direction has evidence of the same generation.
fn open(program: &mut Assembler, maps: ConnectionMaps<'_>, rest: Label) {
    let [entered, reused] = [(); 2].map(|()| program.label());
    program.load(Width::Double, R0, R10, PEER_ENTRY);
    count(program, maps.words, at(SEEN));
    program.load(Width::Double, R5, R0, EVIDENCE);
    if Check::ConnectionWays.is_made() {
        program.jump(Condition::NotEqual, R5, R8, entered);
    }
    for entry in [R9, R0] {
        program.copy(R5, R8);
        program.exchange(entry, OPEN, R5);
    }
    // Pairs with `contradict` on another CPU: either the contradiction is seen here, or that CPU closes the entries.
    program.load(Width::Double, R5, R9, CONTRADICTED);
    program.jump(Condition::NotEqual, R5, R8, entered);
    close(program);
    program.place(entered);
    is_same_number(program, reused);
    program.go(rest);

    program.place(reused);
    program.set(R5, 0);
    for entry in [R9, R0] {
        program.store(Width::Double, entry, EVIDENCE, R5);
    }
    close(program);
    program.go(rest);
}

/// Jumps to `reused` if either entry is now that of another connection. The kernel reuses the memory of a removed entry at once, so
/// the stores of this program may be in it.
fn is_same_number(program: &mut Assembler, reused: Label) {
    program.load(Width::Double, R4, R10, CONNECTION);
    for entry in [R9, R0] {
        program.load(Width::Word, R5, entry, NUMBER);
        program.jump(Condition::NotEqual, R5, R4, reused);
    }
}

/// Marks both directions as contradicted in this generation, and closes them.
fn contradict(program: &mut Assembler, maps: ConnectionMaps<'_>) {
    for entry in [R9, R0] {
        program.store(Width::Double, entry, CONTRADICTED, R8);
    }
    close(program);
    count(program, maps.words, at(CONTRADICTIONS));
}

/// Closes both directions, after all earlier stores.
fn close(program: &mut Assembler) {
    for entry in [R9, R0] {
        program.set(R5, 0);
        program.exchange(entry, OPEN, R5);
    }
}

/// Stack offset of the pointer to the entry of the reverse direction.
const PEER_ENTRY: i16 = BELOW;
/// Stack offset of the link-layer addresses.
const ON_STACK: i16 = PEER_ENTRY - 16;
/// Stack offsets of slot and generation of the next hop, and of the operand of load barriers.
const HOP_SLOT: i16 = ON_STACK - 8;
const HOP_WORD: i16 = HOP_SLOT - 8;
const ORDER: i16 = HOP_WORD - 8;
/// Stack offset of the connection's number.
const CONNECTION: i16 = ORDER - 8;
