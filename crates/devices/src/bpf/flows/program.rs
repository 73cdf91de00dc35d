//! The part of a port's program that carries flows; it runs before the part that sends packets to user space.
//!
//! ```text
//! pair of addresses in the table? ─ no ────────────────────────────────────────────────▶ the rest of the program
//!   valid? ─ no ───────────────────────────────────────────────────────────────────────▶ the rest
//!     for a tunnel, and the program cannot encapsulate it? ─ yes ──────────────────────▶ user space, with a new mark
//!     open for the packet's queue? ─ no ─▶ is the queue completed up to the mark? ─ no ─▶ user space, with a new mark; or fence
//!       fits the link? ─ no ─▶ the rest            │ yes: open
//!         count, change the tag, add outer headers, redirect ◀─┘
//! ```

use super::encapsulate;
use super::entry::{
    BYTES, EGRESS, INTERFACE, MARKS, MOVES, NO_FENCE, OPENED, OUTER_BYTES, PACKETS, SINCE, TAGGED, VERSION,
};
use super::hook::Hook;
use super::{EGRESS_BYTES, FENCE, FlowMaps, MOST_EGRESSES, PATIENCE, PROCESSOR_SHIFT, WAYS};
use crate::bpf::admit::send_up;
use crate::bpf::assembler::{Assembler, Condition, Helper, Label, Register, Width};
use crate::bpf::classify::{ETHERNET, need};
use crate::checks::Check;
use Register::{R0, R1, R2, R3, R4, R5, R7, R8, R9, R10};

/// Carries the packet and ends the program, or jumps to `rest`. The context is in R6.
pub(crate) fn carry(program: &mut Assembler, maps: FlowMaps<'_>, hook: &impl Hook, rest: Label) {
    let [plain, open, close, outside, ready, lose, drop] = [(); 7].map(|()| program.label());
    key(program, hook, rest);
    find(program, maps, STACK_KEY, rest);
    encapsulate::clear(program);
    program.load(Width::Word, R5, R9, OUTER_BYTES);
    program.jump_value(Condition::Equal, R5, 0, plain);
    encapsulate::look(program, hook, close);
    program.place(plain);
    hook.has_checksum(program, close);
    in_order(program, hook, open, drop);

    program.place(open);
    hook.length(program, R8);
    program.load(Width::Word, R5, R9, OUTER_BYTES);
    program.jump_value(Condition::NotEqual, R5, 0, outside);
    if Check::BridgeMtu.is_made() {
        hook.fits(program, rest);
    }
    hook.change_tag(program, lose);
    program.go(ready);

    program.place(outside);
    encapsulate::write(program, hook, lose);
    program.place(ready);
    add_tag(program, STACK_KEY + 12);
    count(program, hook, maps, drop);
    send(program);

    program.place(close);
    go_up(program, hook, drop);
    program.place(lose);
    hook.lose(program);
    program.place(drop);
    hook.discard(program);
}

/// Redirects the packet to the entry's interface.
pub(super) fn send(program: &mut Assembler) {
    program.load(Width::Word, R1, R9, INTERFACE);
    program.set(R2, 0);
    program.call(Helper::Redirect);
    program.exit();
}

/// Sends the packet to user space, and closes the entry for its queue until the worker has completed the
/// packet; the entry is not fenced from then on, because such packets may recur. Ends the program.
pub(super) fn go_up<H: Hook>(program: &mut Assembler, hook: &H, drop: Label) {
    find_queue(program, hook, drop);
    program.set(R5, 1);
    program.store(Width::Word, R9, NO_FENCE, R5);
    send_up(program, hook, MARKS);
}

/// Puts the window of the packet's queue into R7, and the offset of its mark into R8.
fn find_queue<H: Hook>(program: &mut Assembler, hook: &H, drop: Label) {
    hook.queue(program, drop);
    program.copy(R8, R0);
    hook.windows(program);
    program.add_register(R7, R8);
    program.shift_right(R8, H::QUEUE_SHIFT - 3);
}

/// Puts the key on the stack.
fn key(program: &mut Assembler, hook: &impl Hook, rest: Label) {
    hook.begin(program, rest);
    hook.frame(program);
    need(program, ETHERNET, rest);
    hook.tag(program, rest, rest);
    program.set(R5, 0);
    // Upper halves first: see `classify`.
    program.store(Width::Half, R10, STACK_KEY + 14, R5);
    if !Check::BridgeVlan.is_made() {
        program.set(R8, 0);
    }
    program.store(Width::Half, R10, STACK_KEY + 12, R8);
    program.load(Width::Word, R5, R7, 8);
    if !Check::BridgeSource.is_made() {
        program.set(R5, 0);
    }
    program.store(Width::Word, R10, STACK_KEY + 8, R5);
    program.load(Width::Double, R5, R7, 0);
    program.store(Width::Double, R10, STACK_KEY, R5);
    if !Check::BridgeSource.is_made() {
        program.set(R5, 0);
        program.store(Width::Half, R10, STACK_KEY + 6, R5);
    }
}

/// Jumps to `otherwise` unless the checksum of the IPv4 header after the Ethernet header at `frame` is right.
/// R4 and R5 change.
pub(crate) fn verify_v4(program: &mut Assembler, frame: Register, otherwise: Label) {
    program.set(R4, 0);
    for at in (0..IPV4).step_by(2) {
        program.load(Width::Half, R5, frame, ETHERNET + at);
        program.add_register(R4, R5);
    }
    for _ in 0..2 {
        program.copy(R5, R4);
        program.shift_right(R5, 16);
        program.and(R4, 0xffff);
        program.add_register(R4, R5);
    }
    program.jump_value(Condition::NotEqual, R4, 0xffff, otherwise);
}

/// Puts the entry for the key at offset `key` of the stack into R9; jumps to `rest` if there is none or it is
/// invalid.
pub(super) fn find(program: &mut Assembler, maps: FlowMaps<'_>, key: i16, rest: Label) {
    program.map(R1, maps.entries);
    program.copy(R2, R10);
    program.add(R2, i32::from(key));
    program.call(Helper::MapLookup);
    program.jump_value(Condition::Equal, R0, 0, rest);
    program.copy(R9, R0);
    program.map_value(R1, maps.validity);
    program.load(Width::Double, R2, R1, 8);
    program.load(Width::Double, R3, R9, MOVES);
    program.check(Check::Validity, Condition::NotEqual, R2, R3, rest);
    // The version at the last change of the entry's port pair.
    program.load(Width::Word, R5, R9, EGRESS);
    program.and(R5, LAST_EGRESS);
    program.shift_right(R5, 1);
    program.add_register(R1, R5);
    program.load(Width::Double, R2, R1, WAYS_AT);
    program.load(Width::Double, R3, R9, VERSION);
    program.check(Check::Validity, Condition::Greater, R2, R3, rest);
}

/// Jumps to `open` if user space holds no packet of the flow, else ends the program.
pub(super) fn in_order(program: &mut Assembler, hook: &impl Hook, open: Label, drop: Label) {
    let [waiting, begin, spent, fenced, up] = [(); 5].map(|()| program.label());
    find_queue(program, hook, drop);
    program.copy(R3, R9);
    program.add_register(R3, R8);
    program.load(Width::Double, R4, R3, MARKS);
    program.jump_value(Condition::Equal, R4, OPENED, open);
    program.jump_value(Condition::Equal, R4, 0, begin);
    if Check::Fence.is_made() {
        hook.completed(program, R5);
    } else {
        program.set_wide(R5, ALL_NUMBERS);
    }
    program.subtract(R5, R4);
    // Has the worker completed the packet of the mark?
    let drained = program.label();
    program.jump_value(Condition::SignedGreater, R5, -1, drained);
    program.go(waiting);
    program.place(drained);
    program.set(R5, OPENED);
    program.store(Width::Double, R3, MARKS, R5);
    program.go(open);

    program.place(waiting);
    program.load(Width::Word, R5, R9, NO_FENCE);
    program.jump_value(Condition::NotEqual, R5, 0, up);
    program.call(Helper::Now);
    program.load(Width::Double, R4, R9, SINCE);
    program.copy(R5, R0);
    program.subtract(R5, R4);
    program.jump_value(Condition::Greater, R5, nanos(PATIENCE + FENCE), spent);
    program.jump_value(Condition::Greater, R5, nanos(PATIENCE), fenced);
    program.go(up);

    program.place(begin);
    program.call(Helper::Now);
    program.store(Width::Double, R9, SINCE, R0);
    program.go(up);
    // The worker stalls or is overloaded: there is no further fence until it publishes the entry anew.
    program.place(spent);
    program.set(R5, 1);
    program.store(Width::Word, R9, NO_FENCE, R5);
    program.place(up);
    send_up(program, hook, MARKS);

    program.place(fenced);
    hook.fence(program);
}

/// Adds the bytes of the frame's tag to its length in R8; the VLAN of its key is at offset `vlan` of the
/// stack.
pub(super) fn add_tag(program: &mut Assembler, vlan: i16) {
    let untagged = program.label();
    program.load(Width::Half, R5, R10, vlan);
    program.and(R5, TAGGED.into());
    program.jump_value(Condition::Equal, R5, 0, untagged);
    program.add(R8, 4);
    program.place(untagged);
}

/// Counts the packet, as the number of packets on the link, in the entry and for its port pair. Its length is
/// in R8.
pub(super) fn count(program: &mut Assembler, hook: &impl Hook, maps: FlowMaps<'_>, drop: Label) {
    program.call(Helper::Processor);
    program.jump_value(Condition::Greater, R0, i32::from(maps.processors) - 1, drop);
    program.shift_left(R0, PROCESSOR_SHIFT);
    program.map_value(R7, maps.carried);
    program.add_register(R7, R0);
    program.load(Width::Word, R5, R9, EGRESS);
    // For the verifier: inside, and aligned.
    program.and(R5, LAST_EGRESS);
    program.add_register(R7, R5);
    hook.wire_packets(program);
    program.count(R9, PACKETS, R1);
    program.count(R7, 0, R1);
    program.count(R9, BYTES, R8);
    program.count(R7, 8, R8);
}

fn nanos(time: core::time::Duration) -> i32 {
    i32::try_from(time.as_nanos()).expect("less than two seconds")
}

const IPV4: i16 = 20;
/// Number above all packet numbers.
const ALL_NUMBERS: u64 = u64::MAX / 2;
/// Stack slot of the key.
const STACK_KEY: i16 = -16;
/// Offset of the last port pair's counters, which has all bits of offsets set.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "some hundred bytes")]
const LAST_EGRESS: i32 = ((MOST_EGRESSES - 1) * EGRESS_BYTES) as i32;
/// Offset of the first port pair's version in the validity words; a version has half the size of a pair's
/// counters.
const WAYS_AT: i16 = 16;
const _: () = assert!(WAYS_AT as usize == WAYS * 8 && EGRESS_BYTES == 16);
