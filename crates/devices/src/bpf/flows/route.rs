//! Routing: forwards IP packets of an address pair that is in the table, as the routing stage does.
//!
//! Some of these packets go to user space, because the stage treats them differently: a used-up TTL, options,
//! a wrong checksum, a wrong length, a priority tag, packets that do not fit the egress interface. Packets
//! that leave by a tunnel, or are for this host, have no entry.
//!
//! Source: RFC 1812, 5.3.1; RFC 1624, 3; RFC 8200, 3.

use super::FlowMaps;
use super::entry::{LINK, OF_IPV6, TAGGED};
use super::hook::Hook;
use super::program::{add_tag, count, find, go_up, in_order, send, verify_v4};
use crate::bpf::assembler::{Assembler, Condition, Label, Register, Width};
use crate::bpf::classify::{ETHERNET, need, network_order};
use crate::checks::Check;
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// Carries the packet and ends the program, or jumps to `rest`. The context is in R6.
pub(crate) fn carry<H: Hook>(program: &mut Assembler, maps: FlowMaps<'_>, hook: &H, rest: Label) {
    let [typed, ipv6, checked, open, close, lose, drop] = [(); 7].map(|()| program.label());
    hook.begin(program, rest);
    hook.headers(program);
    need(program, ETHERNET + IPV4, rest);
    // A frame with a priority tag belongs to the untagged interface.
    hook.tag(program, typed, rest);
    program.place(typed);
    need(program, ETHERNET + IPV4, rest);
    hook.ether_type(program, R2, R5);
    program.jump_value(Condition::Equal, R5, network_order(0x86dd), ipv6);
    program.jump_value(Condition::NotEqual, R5, network_order(0x0800), rest);
    key_v4(program, hook);
    find(program, maps, STACK_KEY, rest);
    check_v4(program, hook, close);
    program.go(checked);

    program.place(ipv6);
    need(program, ETHERNET + IPV6, rest);
    key_v6(program, hook);
    find(program, maps, STACK_KEY, rest);
    check_v6(program, hook, close);

    program.place(checked);
    if Check::RoutePriority.is_made() {
        has_no_priority(program, hook, close);
    }
    hook.has_checksum(program, close);
    hook.length(program, R8);
    if Check::RouteMtu.is_made() {
        hook.fits(program, close);
    }
    in_order(program, hook, open, drop);

    program.place(open);
    hook.length(program, R8);
    hook.add_ethernet(program, lose);
    write(program, hook, lose);
    hook.change_tag(program, lose);
    add_tag(program, STACK_KEY + 6);
    count(program, hook, maps, drop);
    send(program);

    program.place(close);
    go_up(program, hook, drop);
    program.place(lose);
    hook.lose(program);
    program.place(drop);
    hook.discard(program);
}

/// Puts the key of an IPv4 packet on the stack. R7 takes R2 as [`Hook::tag`] left it.
///
/// Upper halves of eight bytes of the stack come first here and elsewhere; see
/// [`classify`](crate::bpf::classify).
fn key_v4(program: &mut Assembler, hook: &impl Hook) {
    station(program, hook);
    program.set(R5, 0);
    for at in [8, 24] {
        program.store(Width::Double, R10, STACK_KEY + at + 8, R5);
        program.store(Width::Word, R10, STACK_KEY + at + 4, R5);
    }
    for (from, to) in [(16, 8), (12, 24)] {
        program.load(Width::Word, R5, R7, ETHERNET + from);
        program.store(Width::Word, R10, STACK_KEY + to, R5);
    }
}

/// Like `key_v4`, for an IPv6 packet.
fn key_v6(program: &mut Assembler, hook: &impl Hook) {
    program.or(R8, OF_IPV6.into());
    station(program, hook);
    for (from, to) in [(24, 8), (32, 16), (8, 24), (16, 32)] {
        program.load(Width::Double, R5, R7, ETHERNET + from);
        program.store(Width::Double, R10, STACK_KEY + to, R5);
    }
}

/// Puts the part of the key on the stack that both families have.
fn station(program: &mut Assembler, hook: &impl Hook) {
    program.store(Width::Half, R10, STACK_KEY + 6, R8);
    hook.station(program, [R0, R5]);
    program.store(Width::Half, R10, STACK_KEY + 4, R5);
    program.store(Width::Word, R10, STACK_KEY, R0);
    program.copy(R7, R2);
}

/// Jumps to `close` for an IPv4 packet that the stage has to examine. Leaves TTL, protocol and checksum, as
/// sent, on the stack. The frame is at R7.
fn check_v4(program: &mut Assembler, hook: &impl Hook, close: Label) {
    let [carried, summed] = [(); 2].map(|()| program.label());
    program.load(Width::Byte, R5, R7, ETHERNET);
    program.check_value(Check::RouteHeader, Condition::NotEqual, R5, 0x45, close);
    has_length(program, hook, (2, 0), close);
    if Check::RouteChecksum.is_made() {
        verify_v4(program, R7, close);
    }
    // A decrement of an upper byte is an increment of the checksum's upper byte, with the carry added at the
    // low end.
    program.load(Width::Half, R4, R7, ETHERNET + 10);
    program.add(R4, network_order(0x0100));
    program.jump_value(Condition::Greater, R4, 0xfffe, carried);
    program.go(summed);
    program.place(carried);
    program.add(R4, 1);
    program.place(summed);
    program.store(Width::Half, R10, STACK_WORD + 2, R4);
    program.load(Width::Byte, R5, R7, ETHERNET + 9);
    program.store(Width::Byte, R10, STACK_WORD + 1, R5);
    count_down(program, (8, STACK_WORD), close);
    program.set(R5, i32::from(ETHERNET + 8));
    program.store(Width::Double, R10, STACK_OFFSET, R5);
}

/// Like `check_v4`, for an IPv6 packet; leaves the word whose last byte is the hop limit.
fn check_v6(program: &mut Assembler, hook: &impl Hook, close: Label) {
    program.load(Width::Byte, R5, R7, ETHERNET);
    program.and(R5, 0xf0);
    program.check_value(Check::RouteVersion, Condition::NotEqual, R5, 0x60, close);
    has_length(program, hook, (4, IPV6), close);
    count_down(program, (7, STACK_WORD + 3), close);
    program.load(Width::Byte, R5, R7, ETHERNET + 6);
    program.check_value(Check::RouteOptions, Condition::Equal, R5, HOP_BY_HOP, close);
    program.store(Width::Byte, R10, STACK_WORD + 2, R5);
    program.load(Width::Half, R5, R7, ETHERNET + 4);
    program.store(Width::Half, R10, STACK_WORD, R5);
    program.set(R5, i32::from(ETHERNET + 4));
    program.store(Width::Double, R10, STACK_OFFSET, R5);
}

/// Jumps to `close` for a frame with a priority tag, which the stage removes.
fn has_no_priority(program: &mut Assembler, hook: &impl Hook, close: Label) {
    let tagged = program.label();
    program.load(Width::Half, R5, R10, STACK_KEY + 6);
    program.and(R5, TAGGED.into());
    program.jump_value(Condition::NotEqual, R5, 0, tagged);
    hook.has_tag(program);
    program.jump_value(Condition::NotEqual, R5, 0, close);
    program.place(tagged);
}

/// Jumps to `close` unless the frame is as long as its IP header states; the field counts the bytes after
/// `header` bytes.
fn has_length(program: &mut Assembler, hook: &impl Hook, (field, header): (i16, i16), close: Label) {
    program.load(Width::Half, R5, R7, ETHERNET + field);
    program.network_order(R5);
    program.add(R5, i32::from(ETHERNET + header));
    hook.length(program, R4);
    program.check(Check::RouteLength, Condition::NotEqual, R4, R5, close);
}

/// Puts the decremented TTL or hop limit onto the stack, and jumps to `close` if it was the last hop.
fn count_down(program: &mut Assembler, (field, to): (i16, i16), close: Label) {
    let left = program.label();
    program.load(Width::Byte, R5, R7, ETHERNET + field);
    program.jump_value(Condition::Greater, R5, 1, left);
    if Check::RouteHops.is_made() {
        program.go(close);
    }
    program.place(left);
    program.add(R5, -1);
    program.store(Width::Byte, R10, to, R5);
}

/// Writes the changed fields: the word of the IP header, and the MAC addresses.
fn write<H: Hook>(program: &mut Assembler, hook: &H, lose: Label) {
    program.copy(R1, R6);
    program.load(Width::Double, R2, R10, STACK_OFFSET);
    hook.behind_tag(program, R2);
    program.copy(R3, R10);
    program.add(R3, i32::from(STACK_WORD));
    program.set(R4, 4);
    program.set(R5, RECOMPUTE);
    program.call(H::STORE);
    program.jump_value(Condition::NotEqual, R0, 0, lose);
    program.copy(R1, R6);
    program.set(R2, 0);
    program.copy(R3, R9);
    program.add(R3, i32::from(LINK));
    program.set(R4, 12);
    program.set(R5, 0);
    program.call(H::STORE);
    program.jump_value(Condition::NotEqual, R0, 0, lose);
}

/// Stack slots, below a helper's length: a key; the word of the IP header and its offset in the frame.
const STACK_KEY: i16 = -72;
const STACK_WORD: i16 = -80;
const STACK_OFFSET: i16 = -88;

const IPV4: i16 = 20;
const IPV6: i16 = 40;
/// Next header: hop-by-hop options.
const HOP_BY_HOP: i32 = 0;
/// `BPF_F_RECOMPUTE_CSUM`: keeps the checksum valid that a device has computed of the packet.
const RECOMPUTE: i32 = 1;
