//! Decapsulation: removes the outer headers of a frame that is in the table, as the tunnel stage does.
//!
//! Packets that are not of a tunnel over IPv4, with headers as the stage itself writes them, are left to the
//! rest of the program. Some of the others go to user space because only the stage can treat them:
//! super-packets whose offload type this kernel cannot restore, the first packets of TCP connections,
//! congestion marks that differ from the inner ones, inner fragments and options.

use super::FlowMaps;
use super::entry::{GRE, GRE_KEYED, LONGEST};
use super::hook::Hook;
use super::program::{count, find, go_up, in_order, send, verify_v4};
use crate::bpf::assembler::{Assembler, Condition, Label, Register, Width};
use crate::bpf::classify::{ETHERNET, need, network_order};
use crate::checks::Check;
use Register::{R0, R1, R2, R3, R4, R5, R6, R8, R9, R10};

/// Carries the inner frame and ends the program, or jumps to `rest`. The context is in R6.
pub(crate) fn carry<H: Hook>(program: &mut Assembler, maps: FlowMaps<'_>, hook: &H, rest: Label) {
    let [open, close, lose, drop] = [(); 4].map(|()| program.label());
    outer(program, hook, rest);
    inner(program, hook, rest);
    find(program, maps, STACK_KEY, rest);
    inner_length(program, hook);
    program.load(Width::Word, R5, R9, LONGEST);
    program.jump(Condition::Greater, R8, R5, close);
    program.load(Width::Double, R5, R10, STACK_UP);
    program.jump_value(Condition::NotEqual, R5, 0, close);
    in_order(program, hook, open, drop);

    program.place(open);
    inner_length(program, hook);
    hook.add_ethernet(program, lose);
    hook.take_off(program, [STACK_OFFSET, STACK_ROOM], lose);
    if H::MOVES_ETHERNET {
        write_ethernet::<H>(program, lose);
    }
    hook.change_tag(program, lose);
    count(program, hook, maps, drop);
    send(program);

    program.place(close);
    go_up(program, hook, drop);
    program.place(lose);
    hook.lose(program);
    program.place(drop);
    hook.discard(program);
}

/// Puts the length of the inner frame into R8.
fn inner_length(program: &mut Assembler, hook: &impl Hook) {
    hook.length(program, R8);
    program.load(Width::Double, R5, R10, STACK_OFFSET);
    program.subtract(R8, R5);
}

/// Reads the outer headers: puts addresses, encapsulation and number into the key, and the inner frame into
/// R2, with its offset on the stack. Jumps to `rest` if the packet is not of a tunnel.
fn outer(program: &mut Assembler, hook: &impl Hook, rest: Label) {
    let [udp, found] = [(); 2].map(|()| program.label());
    hook.begin(program, rest);
    hook.headers(program);
    need(program, ETHERNET + IPV4 + GRE_BYTES, rest);
    if Check::OutStation.is_made() {
        hook.is_for_host(program, rest);
    }
    header(program, hook, rest);
    // Upper halves first: see `classify`.
    for (from, to) in [(12, STACK_KEY + 20), (16, STACK_KEY + 16)] {
        program.load(Width::Word, R5, R2, ETHERNET + from);
        program.store(Width::Word, R10, to, R5);
    }
    program.load(Width::Byte, R5, R2, ETHERNET + 9);
    program.jump_value(Condition::Equal, R5, UDP, udp);
    program.jump_value(Condition::NotEqual, R5, PROTOCOL_GRE, rest);
    gre(program, rest, found);
    program.place(udp);
    vxlan(program, hook, rest);
    program.place(found);
}

/// Checks the IPv4 header: no options, no fragment, the packet's length, the checksum. Leaves the congestion
/// mark on the stack.
fn header(program: &mut Assembler, hook: &impl Hook, rest: Label) {
    hook.ether_type(program, R2, R5);
    program.jump_value(Condition::NotEqual, R5, network_order(0x0800), rest);
    program.load(Width::Byte, R5, R2, ETHERNET);
    program.check_value(Check::OutHeader, Condition::NotEqual, R5, 0x45, rest);
    program.load(Width::Half, R5, R2, ETHERNET + 6);
    program.and(R5, network_order(0x3fff));
    program.check_value(Check::OutFragment, Condition::NotEqual, R5, 0, rest);
    program.load(Width::Half, R5, R2, ETHERNET + 2);
    program.network_order(R5);
    program.add(R5, i32::from(ETHERNET));
    hook.length(program, R4);
    program.check(Check::OutLength, Condition::NotEqual, R4, R5, rest);
    if Check::OutChecksum.is_made() {
        verify_v4(program, R2, rest);
    }
    program.load(Width::Byte, R5, R2, ETHERNET + 1);
    program.and(R5, ECN);
    program.store(Width::Double, R10, STACK_ECN, R5);
}

/// Accepts GRE with Ethernet inside, with or without a key, and no other field.
fn gre(program: &mut Assembler, rest: Label, found: Label) {
    let keyed = program.label();
    program.load(Width::Half, R4, R2, ETHERNET + IPV4 + 2);
    program.check_value(Check::OutProtocol, Condition::NotEqual, R4, network_order(0x6558), rest);
    program.load(Width::Half, R4, R2, ETHERNET + IPV4);
    program.jump_value(Condition::Equal, R4, network_order(KEY_PRESENT), keyed);
    program.check_value(Check::OutFlags, Condition::NotEqual, R4, 0, rest);
    program.set(R5, 0);
    enter(program, GRE, R5, ETHERNET + IPV4 + GRE_BYTES);
    program.go(found);
    program.place(keyed);
    need(program, ETHERNET + IPV4 + 2 * GRE_BYTES, rest);
    program.load(Width::Word, R5, R2, ETHERNET + IPV4 + GRE_BYTES);
    enter(program, GRE_KEYED, R5, ETHERNET + IPV4 + 2 * GRE_BYTES);
    program.go(found);
}

/// Accepts UDP without a checksum, and VXLAN with no flag but that of the VNI.
fn vxlan(program: &mut Assembler, hook: &impl Hook, rest: Label) {
    let at = ETHERNET + IPV4;
    need(program, at + VXLAN_BYTES, rest);
    program.load(Width::Half, R5, R2, at + 4);
    program.network_order(R5);
    program.add(R5, i32::from(at));
    hook.length(program, R4);
    program.check(Check::OutUdpLength, Condition::NotEqual, R4, R5, rest);
    program.load(Width::Half, R5, R2, at + 6);
    program.check_value(Check::OutUdpChecksum, Condition::NotEqual, R5, 0, rest);
    program.load(Width::Half, R5, R2, at + 8);
    program.check_value(Check::OutVxlanFlags, Condition::NotEqual, R5, network_order(0x0800), rest);
    program.load(Width::Half, R5, R2, at + 10);
    program.jump_value(Condition::NotEqual, R5, 0, rest);
    program.load(Width::Byte, R5, R2, at + 15);
    program.jump_value(Condition::NotEqual, R5, 0, rest);
    program.load(Width::Word, R5, R2, at + 12);
    program.load(Width::Half, R4, R2, at + 2);
    finish(program, R5, at + VXLAN_BYTES);
}

/// Puts encapsulation and number into the key, and continues with the inner frame at `offset`.
fn enter(program: &mut Assembler, encapsulation: i32, number: Register, offset: i16) {
    program.set(R4, encapsulation);
    finish(program, number, offset);
}

/// Like `enter`, for an encapsulation in R4.
fn finish(program: &mut Assembler, number: Register, offset: i16) {
    program.store(Width::Word, R10, STACK_KEY + 28, number);
    program.store(Width::Word, R10, STACK_KEY + 24, R4);
    program.set(R4, i32::from(offset));
    program.store(Width::Double, R10, STACK_OFFSET, R4);
    program.add(R2, i32::from(offset));
}

/// Reads the inner frame at R2: puts its MAC addresses into the key, keeps its Ethernet header, and records
/// if it has to go to user space. Jumps to `rest` if it is too short for IP.
fn inner(program: &mut Assembler, hook: &impl Hook, rest: Label) {
    let [ipv6, up, known] = [(); 3].map(|()| program.label());
    need(program, ETHERNET + IPV4, rest);
    program.load(Width::Double, R5, R2, 0);
    program.store(Width::Double, R10, STACK_KEY, R5);
    program.store(Width::Double, R10, STACK_ETHERNET, R5);
    program.load(Width::Double, R5, R2, 8);
    program.store(Width::Double, R10, STACK_ETHERNET + 8, R5);
    program.set(R5, 0);
    program.store(Width::Double, R10, STACK_UP, R5);
    program.store(Width::Word, R10, STACK_KEY + 12, R5);
    program.load(Width::Word, R5, R2, 8);
    program.store(Width::Word, R10, STACK_KEY + 8, R5);
    hook.has_inner_checksum(program, up);
    program.load(Width::Half, R5, R2, 12);
    program.set(R0, INSIDE_V4);
    program.store(Width::Double, R10, STACK_ROOM, R0);
    program.jump_value(Condition::Equal, R5, network_order(0x86dd), ipv6);
    program.jump_value(Condition::NotEqual, R5, network_order(0x0800), up);
    program.load(Width::Byte, R5, R2, ETHERNET);
    program.check_value(Check::OutInsideHeader, Condition::NotEqual, R5, 0x45, up);
    program.load(Width::Half, R5, R2, ETHERNET + 6);
    program.and(R5, network_order(0x3fff));
    program.jump_value(Condition::NotEqual, R5, 0, up);
    program.load(Width::Byte, R1, R2, ETHERNET + 1);
    program.load(Width::Byte, R5, R2, ETHERNET + 9);
    program.add(R2, i32::from(ETHERNET + IPV4));
    transport(program, hook, up, known);

    program.place(ipv6);
    program.set(R0, INSIDE_V6);
    program.store(Width::Double, R10, STACK_ROOM, R0);
    need(program, ETHERNET + IPV6, up);
    program.load(Width::Byte, R1, R2, ETHERNET + 1);
    program.shift_right(R1, 4);
    program.load(Width::Byte, R5, R2, ETHERNET + 6);
    program.add(R2, i32::from(ETHERNET + IPV6));
    let upper = program.label();
    for protocol in [TCP, UDP, ICMPV6] {
        program.jump_value(Condition::Equal, R5, protocol, upper);
    }
    program.go(up);
    program.place(upper);
    transport(program, hook, up, known);

    program.place(up);
    program.set(R5, 1);
    program.store(Width::Double, R10, STACK_UP, R5);
    program.place(known);
}

/// Jumps to `known` for a packet that need not go to user space. R1 has the traffic class, R5 the protocol,
/// R2 the transport header.
fn transport(program: &mut Assembler, hook: &impl Hook, up: Label, known: Label) {
    let [other, unmarked] = [(); 2].map(|()| program.label());
    program.jump_value(Condition::NotEqual, R5, TCP, other);
    need(program, TCP_BYTES, up);
    program.load(Width::Byte, R5, R2, 13);
    if Check::OutSyn.is_made() {
        program.and(R5, SYN);
        program.jump_value(Condition::NotEqual, R5, 0, up);
    }
    program.place(other);
    hook.segment(program, R5);
    program.jump_value(Condition::NotEqual, R5, 0, up);
    // An outer mark equal to the inner one, or none, changes nothing inside (RFC 6040, 4.2).
    program.load(Width::Double, R5, R10, STACK_ECN);
    program.jump_value(Condition::Equal, R5, 0, unmarked);
    program.and(R1, ECN);
    program.check(Check::OutCongestion, Condition::NotEqual, R1, R5, up);
    program.place(unmarked);
    program.go(known);
}

/// Writes the frame's Ethernet header, after the bytes behind it were removed.
fn write_ethernet<H: Hook>(program: &mut Assembler, lose: Label) {
    program.copy(R1, R6);
    program.set(R2, 0);
    program.copy(R3, R10);
    program.add(R3, i32::from(STACK_ETHERNET));
    program.set(R4, i32::from(ETHERNET));
    program.set(R5, 0);
    program.call(H::STORE);
    program.jump_value(Condition::NotEqual, R0, 0, lose);
}

/// Stack slots, below the keys of `classify`, which divide their eight-byte slots differently: a key with
/// outer fields, and below it the fields kept of the packet.
const STACK_KEY: i16 = -72;
const STACK_UP: i16 = -80;
const STACK_OFFSET: i16 = -88;
const STACK_ROOM: i16 = -96;
const STACK_ECN: i16 = -104;
const STACK_ETHERNET: i16 = -120;

const IPV4: i16 = 20;
const IPV6: i16 = 40;
/// Bytes of the shortest GRE header, and of each optional field.
const GRE_BYTES: i16 = 4;
/// Bytes of UDP and VXLAN headers.
const VXLAN_BYTES: i16 = 16;
const TCP_BYTES: i16 = 20;
const TCP: i32 = 6;
const UDP: i32 = 17;
const PROTOCOL_GRE: i32 = 47;
const ICMPV6: i32 = 58;
/// Flag of a GRE header (RFC 2890).
const KEY_PRESENT: u16 = 0x2000;
/// Flag of a TCP header.
const SYN: i32 = 0x02;
/// Congestion bits of a traffic class.
const ECN: i32 = 0b11;
/// `BPF_F_ADJ_ROOM_DECAP_L3_IPV4` and `BPF_F_ADJ_ROOM_DECAP_L3_IPV6`.
const INSIDE_V4: i32 = 1 << 7;
const INSIDE_V6: i32 = 1 << 8;
