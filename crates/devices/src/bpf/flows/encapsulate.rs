//! Encapsulation: puts outer headers before a frame, as the tunnel stage does.
//!
//! Frames of which the stage reads more than these headers go to user space: protocols other than IP,
//! fragments, options and extension headers, the first packets of TCP connections, tunnel packets, and frames
//! that do not fit.

use super::entry::{
    CLASS, HEADERS, HEADERS_BYTES, IS_NUMBERED, IS_UDP, LONGEST, OUTER_BYTES, SUM, TTL, TUNNEL_PORT,
};
use super::hook::Hook;
use crate::bpf::assembler::{Assembler, Condition, Helper, Label, Register, Width};
use crate::bpf::classify::{ETHERNET, need, network_order};
use crate::checks::Check;
use Register::{R0, R1, R2, R3, R4, R5, R6, R8, R9, R10};
use polder_datapath::tunnel::IP_IN_IP_PROTOCOLS;

/// Clears the stack slots that [`look`] writes: verifiers do not know that [`write`] runs only after it.
pub(super) fn clear(program: &mut Assembler) {
    program.set(R5, 0);
    for at in [STACK_CLASS, STACK_TTL, STACK_SOURCE_PORT, STACK_ETHERNET, STACK_ETHERNET + 8] {
        program.store(Width::Double, R10, at, R5);
    }
}

/// Jumps to `up` for a frame that [`write`] cannot encapsulate. The entry is in R9. Leaves the values on the
/// stack that the outer headers copy from the frame.
pub(super) fn look(program: &mut Assembler, hook: &impl Hook, up: Label) {
    let [ipv6, transport] = [(); 2].map(|()| program.label());
    hook.network(program);
    need(program, ETHERNET + IPV4 + PORTS, up);
    for part in [0, 8] {
        // The header's 14 bytes, and two more.
        program.load(Width::Double, R5, R2, part);
        program.store(Width::Double, R10, STACK_ETHERNET + part, R5);
    }
    program.load(Width::Half, R5, R2, 12);
    program.jump_value(Condition::Equal, R5, network_order(0x86dd), ipv6);
    program.jump_value(Condition::NotEqual, R5, network_order(0x0800), up);
    look_v4(program, up);
    program.go(transport);
    program.place(ipv6);
    look_v6(program, up);
    program.place(transport);
    measure(program, hook, up);
}

/// Leaves traffic class, TTL and the UDP source port of an IPv4 packet on the stack. Puts its protocol into
/// R5, the transport header into R2, and its offset into R1.
fn look_v4(program: &mut Assembler, up: Label) {
    program.load(Width::Byte, R5, R2, ETHERNET);
    program.check_value(Check::IntoHeader, Condition::NotEqual, R5, 0x45, up);
    program.load(Width::Half, R5, R2, ETHERNET + 6);
    program.and(R5, network_order(0x3fff));
    program.check_value(Check::IntoFragment, Condition::NotEqual, R5, 0, up);
    keep(program, (R2, ETHERNET + 1), STACK_CLASS);
    keep(program, (R2, ETHERNET + 8), STACK_TTL);
    // The tunnel stage's hash of addresses and ports.
    program.load(Width::Double, R0, R2, ETHERNET + 12);
    program.load(Width::Word, R1, R2, ETHERNET + IPV4);
    program.shift_left(R1, 32);
    program.exclusive_or_register(R0, R1);
    program.set_wide(R1, FACTOR);
    keep_source_port(program);
    program.load(Width::Byte, R5, R2, ETHERNET + 9);
    program.add(R2, i32::from(ETHERNET + IPV4));
    program.set(R1, i32::from(ETHERNET + IPV4));
}

/// Like `look_v4`, for an IPv6 packet.
fn look_v6(program: &mut Assembler, up: Label) {
    need(program, ETHERNET + IPV6 + PORTS, up);
    program.load(Width::Byte, R5, R2, ETHERNET);
    program.copy(R1, R5);
    program.and(R1, 0xf0);
    program.jump_value(Condition::NotEqual, R1, 0x60, up);
    program.shift_left(R5, 4);
    program.load(Width::Byte, R1, R2, ETHERNET + 1);
    program.shift_right(R1, 4);
    program.or_register(R5, R1);
    program.and(R5, 0xff);
    program.store(Width::Double, R10, STACK_CLASS, R5);
    keep(program, (R2, ETHERNET + 7), STACK_TTL);
    program.set(R0, 0);
    program.set_wide(R1, FACTOR);
    for word in [8, 16, 24, 32] {
        program.multiply(R0, R1);
        program.load(Width::Double, R5, R2, ETHERNET + word);
        program.exclusive_or_register(R0, R5);
    }
    program.load(Width::Word, R5, R2, ETHERNET + IPV6);
    program.shift_left(R5, 32);
    program.exclusive_or_register(R0, R5);
    keep_source_port(program);
    program.load(Width::Byte, R5, R2, ETHERNET + 6);
    let known = program.label();
    for protocol in [TCP, UDP, ICMPV6] {
        program.jump_value(Condition::Equal, R5, protocol, known);
    }
    program.go(up);
    program.place(known);
    program.add(R2, i32::from(ETHERNET + IPV6));
    program.set(R1, i32::from(ETHERNET + IPV6));
}

/// Computes a flow's UDP source port from its addresses and ports, mixed in R0, and the factor in R1; keeps
/// it on the stack.
fn keep_source_port(program: &mut Assembler) {
    program.multiply(R0, R1);
    program.shift_right(R0, 48);
    program.or(R0, network_order(FIRST_PORT));
    program.store(Width::Double, R10, STACK_SOURCE_PORT, R0);
}

/// Jumps to `up` for a packet that does not fit, and for one whose transport header the stage has to see.
/// Registers are as [`look_v4`] leaves them.
fn measure(program: &mut Assembler, hook: &impl Hook, up: Label) {
    let [tcp, udp, sized, whole] = [(); 4].map(|()| program.label());
    program.jump_value(Condition::Equal, R5, TCP, tcp);
    program.jump_value(Condition::Equal, R5, UDP, udp);
    if Check::IntoGre.is_made() {
        program.jump_value(Condition::Equal, R5, GRE, up);
        for protocol in IP_IN_IP_PROTOCOLS {
            program.jump_value(Condition::Equal, R5, protocol.0.into(), up);
        }
    }
    program.load(Width::Byte, R4, R9, IS_UDP);
    program.check_value(Check::IntoOther, Condition::NotEqual, R4, 0, up);
    program.set(R0, 0);
    program.go(sized);

    program.place(udp);
    need(program, UDP_BYTES, up);
    program.load(Width::Half, R4, R2, 2);
    program.load(Width::Half, R0, R9, TUNNEL_PORT);
    program.check(Check::IntoVxlan, Condition::Equal, R4, R0, up);
    program.copy(R0, R1);
    program.add(R0, i32::from(UDP_BYTES));
    program.go(sized);

    program.place(tcp);
    need(program, TCP_BYTES, up);
    program.load(Width::Byte, R4, R2, 13);
    if Check::IntoSyn.is_made() {
        program.and(R4, SYN);
        program.jump_value(Condition::NotEqual, R4, 0, up);
    }
    program.load(Width::Byte, R0, R2, 12);
    program.shift_right(R0, 4);
    program.shift_left(R0, 2);
    program.add_register(R0, R1);

    // R0: bytes of headers, which each segment repeats.
    program.place(sized);
    hook.length(program, R1);
    program.jump_value(Condition::Greater, R1, LONGEST_INSIDE, up);
    hook.segment(program, R4);
    program.jump_value(Condition::Equal, R4, 0, whole);
    program.copy(R1, R0);
    program.add_register(R1, R4);
    program.place(whole);
    program.load(Width::Word, R4, R9, LONGEST);
    program.check(Check::IntoMtu, Condition::Greater, R1, R4, up);
}

/// Puts the outer headers before the frame, and removes the frame's own tag. The entry is in R9, and the
/// frame's length in R8 is kept. Jumps to `lose` if the kernel refuses.
pub(super) fn write<H: Hook>(program: &mut Assembler, hook: &H, lose: Label) {
    let numbered = program.label();
    hook.make_room(program, lose);
    for at in (0..HEADERS_BYTES).step_by(8) {
        program.load(Width::Double, R1, R9, HEADERS + at);
        program.store(Width::Double, R10, STACK_HEADERS + at, R1);
    }
    // R0: identification; R1: total length; R4: sum of the header.
    program.call(Helper::Random);
    program.and(R0, 0xffff);
    program.load(Width::Byte, R1, R9, IS_NUMBERED);
    program.jump_value(Condition::NotEqual, R1, 0, numbered);
    program.set(R0, 0);
    program.place(numbered);
    program.load(Width::Word, R1, R9, OUTER_BYTES);
    program.add_register(R1, R8);
    program.add(R1, -i32::from(ETHERNET));
    program.load(Width::Word, R4, R9, SUM);
    program.add_register(R4, R0);
    program.add_register(R4, R1);
    put(program, R0, IP + 4);
    program.copy(R5, R1);
    put(program, R5, IP + 2);
    write_udp(program);
    inherit(program, (STACK_CLASS, CLASS), IP + 1);
    program.add_register(R4, R2);
    inherit(program, (STACK_TTL, TTL), IP + 8);
    program.shift_left(R2, 8);
    program.add_register(R4, R2);
    for _ in 0..2 {
        program.copy(R2, R4);
        program.shift_right(R2, 16);
        program.and(R4, 0xffff);
        program.add_register(R4, R2);
    }
    program.exclusive_or(R4, 0xffff);
    put(program, R4, IP + 10);
    store::<H>(program, lose);
}

/// Fills in the UDP header, if there is one. The total length is in R1.
fn write_udp(program: &mut Assembler) {
    let other = program.label();
    program.load(Width::Byte, R5, R9, IS_UDP);
    program.jump_value(Condition::Equal, R5, 0, other);
    program.copy(R5, R1);
    program.add(R5, -i32::from(IPV4));
    put(program, R5, IP + IPV4 + 4);
    program.load(Width::Double, R5, R10, STACK_SOURCE_PORT);
    program.store(Width::Half, R10, IP + IPV4, R5);
    program.place(other);
}

/// Writes a byte of which some bits are copied from the inner packet; a TTL is never zero. Leaves the byte in
/// R2.
fn inherit(program: &mut Assembler, (inner, bits): (i16, i16), to: i16) {
    let positive = program.label();
    program.load(Width::Double, R2, R10, inner);
    program.load(Width::Byte, R3, R9, bits);
    program.and_register(R2, R3);
    program.load(Width::Byte, R3, R9, bits + 1);
    program.or_register(R2, R3);
    if bits == TTL {
        program.jump_value(Condition::NotEqual, R2, 0, positive);
        program.set(R2, 1);
    }
    program.place(positive);
    program.store(Width::Byte, R10, to, R2);
}

/// Writes the headers from the stack to the packet: the outer headers, and the frame's own Ethernet header
/// after them.
fn store<H: Hook>(program: &mut Assembler, lose: Label) {
    let sized = program.label();
    program.copy(R1, R6);
    program.set(R2, 0);
    program.copy(R3, R10);
    program.add(R3, i32::from(STACK_HEADERS));
    program.load(Width::Word, R4, R9, OUTER_BYTES);
    // For the verifier; before Linux 6.8 a comparison with zero alone tells it nothing.
    program.jump_value(Condition::Greater, R4, 0, sized);
    program.go(lose);
    program.place(sized);
    program.jump_value(Condition::Greater, R4, i32::from(HEADERS_BYTES), lose);
    program.set(R5, 0);
    program.call(H::STORE);
    program.jump_value(Condition::NotEqual, R0, 0, lose);
    if H::MOVES_ETHERNET {
        program.copy(R1, R6);
        program.load(Width::Word, R2, R9, OUTER_BYTES);
        program.copy(R3, R10);
        program.add(R3, i32::from(STACK_ETHERNET));
        program.set(R4, i32::from(ETHERNET));
        program.set(R5, 0);
        program.call(H::STORE);
        program.jump_value(Condition::NotEqual, R0, 0, lose);
    }
}

/// Keeps a byte of the packet on the stack.
fn keep(program: &mut Assembler, (packet, at): (Register, i16), to: i16) {
    program.load(Width::Byte, R5, packet, at);
    program.store(Width::Double, R10, to, R5);
}

/// Stores a 16-bit number in network byte order; the register changes.
fn put(program: &mut Assembler, from: Register, to: i16) {
    program.network_order(from);
    program.store(Width::Half, R10, to, from);
}

/// Stack slots, below the key and a helper's length.
const STACK_CLASS: i16 = -48;
const STACK_TTL: i16 = -56;
const STACK_SOURCE_PORT: i16 = -64;
const STACK_ETHERNET: i16 = -80;
const STACK_HEADERS: i16 = STACK_ETHERNET - HEADERS_BYTES;
/// Offset of the outer IPv4 header.
const IP: i16 = STACK_HEADERS + ETHERNET;

const IPV4: i16 = 20;
const IPV6: i16 = 40;
const PORTS: i16 = 4;
const UDP_BYTES: i16 = 8;
const TCP_BYTES: i16 = 20;
const TCP: i32 = 6;
const UDP: i32 = 17;
const GRE: i32 = 47;
const ICMPV6: i32 = 58;
/// Flag of a TCP header.
const SYN: i32 = 0x02;
/// Factor of source ports, as in the tunnel stage (`vxlan::source_port`, `inner::Flow`).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const FIRST_PORT: u16 = 0xc000;
/// Maximum length of an inner frame whose outer length fits its field.
const LONGEST_INSIDE: i32 = 65_535 - 64;
