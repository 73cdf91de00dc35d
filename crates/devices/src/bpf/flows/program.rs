//! The part of a port's program that carries flows: in front of all that brings packets to user space.
//!
//! ```text
//! pair of stations in the table? ─ no ─────────────────────────────────────────────────▶ the rest of the program
//!   valid? ─ no ───────────────────────────────────────────────────────────────────────▶ the rest
//!     for a tunnel, and not as the program can put it there? ─ yes ────────────────────▶ up, with a new mark
//!     open for the packet's queue? ─ no ─▶ is the queue sent up to the mark? ─ no ─▶ up, with a new mark; or fence
//!       fits the link? ─ no ─▶ the rest            │ yes: open
//!         count, change the tag, put outer headers in front, redirect ◀────────┘
//! ```

use super::encapsulate;
use super::entry::{
    BYTES, CHANGE, CHANGE_VLAN, CUSTOMER_TAG, EGRESS, INTERFACE, KEEP, LONGEST, MARKS, MOVES, NO_FENCE,
    OPENED, OUTER_BYTES, PACKETS, POP, PUSH, SERVICE_TAG, SINCE, TAGGED, VERSION,
};
use super::{EGRESS_BYTES, FENCE, FlowMaps, MOST_EGRESSES, PATIENCE, PROCESSOR_SHIFT};
use crate::bpf::assembler::{Assembler, Condition, Helper, Label, Register, Width};
use crate::bpf::classify::{ETHERNET, need, network_order};
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// Queues of the port whose packets the program carries, as the rest of the program knows them.
pub(crate) trait Queues {
    /// Puts the queue that the packet's flow keeps into R0, as the offset of its window; jumps to `drop` for no queue.
    /// R6 is the context; R7 to R9 stay.
    fn queue(&self, program: &mut Assembler, drop: Label);

    /// The logarithm of a window's bytes.
    const QUEUE_SHIFT: i32;

    /// Puts the windows of all queues into R7.
    fn windows(&self, program: &mut Assembler);

    /// Puts the number of packets that the worker is through with, of the window at R7, into `to`.
    fn completed(&self, program: &mut Assembler, to: Register);

    /// Sends the packet up by the queue whose window is at R7, and ends the program. The number of packets that were sent
    /// up with it is left at offset `mark` from the sum of R9 and R8.
    fn send_up(&self, program: &mut Assembler, mark: i16);

    /// Drops the packet, counted as `fence` in the window at R7, and ends the program.
    fn fence(&self, program: &mut Assembler);

    /// Puts the beginning of the frame into R2 and the end of what may be read into R3; headers are there, if the frame
    /// has them. R0, R1, R4 and R5 change.
    fn headers(&self, program: &mut Assembler);

    /// Drops the packet, counted as overrun in the window at R7, and ends the program.
    fn lose(&self, program: &mut Assembler);

    /// Drops the packet, and ends the program.
    fn discard(&self, program: &mut Assembler);
}

/// Carries the packet and ends the program, or jumps to `rest`. The context is in R6.
pub(crate) fn carry(program: &mut Assembler, maps: FlowMaps<'_>, queues: &impl Queues, rest: Label) {
    let [plain, open, close, outside, ready, lose, drop] = [(); 7].map(|()| program.label());
    key(program, rest);
    find(program, maps, STACK_KEY, rest);
    encapsulate::clear(program);
    program.load(Width::Word, R5, R9, OUTER_BYTES);
    program.jump_value(Condition::Equal, R5, 0, plain);
    encapsulate::look(program, queues, close);
    program.place(plain);
    in_order(program, queues, open, drop);

    program.place(open);
    program.load(Width::Word, R8, R6, LENGTH);
    program.load(Width::Word, R5, R9, OUTER_BYTES);
    program.jump_value(Condition::NotEqual, R5, 0, outside);
    fits(program, rest);
    change_tag(program);
    program.go(ready);

    program.place(outside);
    encapsulate::write(program, lose);
    program.place(ready);
    add_tag(program, STACK_KEY + 12);
    count(program, maps, drop);
    send(program);

    program.place(close);
    go_up(program, queues, drop);
    program.place(lose);
    queues.lose(program);
    program.place(drop);
    queues.discard(program);
}

/// Redirects the packet to the entry's interface.
pub(super) fn send(program: &mut Assembler) {
    program.load(Width::Word, R1, R9, INTERFACE);
    program.set(R2, 0);
    program.call(Helper::Redirect);
    program.exit();
}

/// Sends the packet up, and closes the entry for its queue until the worker is through with it; from then on nothing is
/// fenced, because such packets may come again. Ends the program.
pub(super) fn go_up<Q: Queues>(program: &mut Assembler, queues: &Q, drop: Label) {
    find_queue(program, queues, drop);
    program.set(R5, 1);
    program.store(Width::Word, R9, NO_FENCE, R5);
    queues.send_up(program, MARKS);
}

/// Puts the window of the packet's queue into R7, and the offset of its mark into R8.
fn find_queue<Q: Queues>(program: &mut Assembler, queues: &Q, drop: Label) {
    queues.queue(program, drop);
    program.copy(R8, R0);
    queues.windows(program);
    program.add_register(R7, R8);
    program.shift_right(R8, Q::QUEUE_SHIFT - 3);
}

/// Puts the key on the stack.
fn key(program: &mut Assembler, rest: Label) {
    program.load(Width::Word, R2, R6, DATA);
    program.load(Width::Word, R3, R6, DATA_END);
    need(program, ETHERNET, rest);
    tag(program, rest, rest);
    program.load(Width::Double, R5, R2, 0);
    program.store(Width::Double, R10, STACK_KEY, R5);
    program.load(Width::Word, R5, R2, 8);
    program.store(Width::Word, R10, STACK_KEY + 8, R5);
    program.set(R5, 0);
    program.store(Width::Half, R10, STACK_KEY + 14, R5);
    program.store(Width::Half, R10, STACK_KEY + 12, R8);
}

/// Puts the VLAN of the tag into R8 as a key has it. Jumps to `priority` for frames with a priority alone, and to `rest` for
/// those with a tag of another kind or a second one. The frame is at R2; R5 changes.
pub(super) fn tag(program: &mut Assembler, priority: Label, rest: Label) {
    let [tagged, typed] = [(); 2].map(|()| program.label());
    program.load(Width::Word, R5, R6, VLAN_PRESENT);
    program.jump_value(Condition::NotEqual, R5, 0, tagged);
    program.set(R8, 0);
    program.go(typed);
    program.place(tagged);
    program.load(Width::Word, R5, R6, VLAN_PROTOCOL);
    program.jump_value(Condition::NotEqual, R5, network_order(CUSTOMER_TAG), rest);
    program.load(Width::Word, R8, R6, VLAN_TAG);
    program.and(R8, 0x0fff);
    program.jump_value(Condition::Equal, R8, 0, priority);
    program.add(R8, i32::from(TAGGED));
    program.place(typed);
    // A tag in the frame is a second one, or of a kind that the kernel does not take off.
    program.load(Width::Half, R5, R2, 12);
    for tag in [CUSTOMER_TAG, SERVICE_TAG] {
        program.jump_value(Condition::Equal, R5, network_order(tag), rest);
    }
}

/// Jumps to `otherwise` unless the checksum of the IPv4 header behind the Ethernet header at `frame` is right. R4 and R5
/// change.
pub(super) fn verify_v4(program: &mut Assembler, frame: Register, otherwise: Label) {
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

/// Puts the entry of the key at that place of the stack into R9, if there is one and it is valid.
pub(super) fn find(program: &mut Assembler, maps: FlowMaps<'_>, key: i16, rest: Label) {
    program.map(R1, maps.entries);
    program.copy(R2, R10);
    program.add(R2, i32::from(key));
    program.call(Helper::MapLookup);
    program.jump_value(Condition::Equal, R0, 0, rest);
    program.copy(R9, R0);
    program.map_value(R1, maps.validity);
    for (at, present) in [(VERSION, 0), (MOVES, 8)] {
        program.load(Width::Double, R2, R1, present);
        program.load(Width::Double, R3, R9, at);
        program.jump(Condition::NotEqual, R2, R3, rest);
    }
}

/// Jumps to `open` when nothing of the packet's flow is above, and ends the program otherwise.
pub(super) fn in_order(program: &mut Assembler, queues: &impl Queues, open: Label, drop: Label) {
    let [waiting, begin, spent, fenced, up] = [(); 5].map(|()| program.label());
    find_queue(program, queues, drop);
    program.copy(R3, R9);
    program.add_register(R3, R8);
    program.load(Width::Double, R4, R3, MARKS);
    program.jump_value(Condition::Equal, R4, OPENED, open);
    program.jump_value(Condition::Equal, R4, 0, begin);
    queues.completed(program, R5);
    program.subtract(R5, R4);
    // Behind the mark?
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
    // The worker stands still, or has much to do: there is no other gap until it publishes the entry anew.
    program.place(spent);
    program.set(R5, 1);
    program.store(Width::Word, R9, NO_FENCE, R5);
    program.place(up);
    queues.send_up(program, MARKS);

    program.place(fenced);
    queues.fence(program);
}

/// Jumps to `rest` for a packet that the link does not carry. Its length is in R8.
pub(super) fn fits(program: &mut Assembler, rest: Label) {
    let [fitting, long] = [(); 2].map(|()| program.label());
    program.load(Width::Word, R3, R9, LONGEST);
    program.jump(Condition::Greater, R8, R3, long);
    program.go(fitting);
    program.place(long);
    program.load(Width::Word, R5, R6, GSO_SIZE);
    program.jump_value(Condition::Equal, R5, 0, rest);
    program.set(R5, 0);
    program.store(Width::Word, R10, STACK_LENGTH, R5);
    program.copy(R1, R6);
    program.load(Width::Word, R2, R9, INTERFACE);
    program.copy(R3, R10);
    program.add(R3, i32::from(STACK_LENGTH));
    program.set(R4, 0);
    program.set(R5, CHECK_SEGMENTS);
    program.call(Helper::CheckMtu);
    program.jump_value(Condition::NotEqual, R0, 0, rest);
    // That was the interface's MTU, which is said here; that of a route may be less.
    program.load(Width::Word, R5, R10, STACK_LENGTH);
    program.add(R5, i32::from(ETHERNET));
    program.load(Width::Word, R3, R9, LONGEST);
    program.jump(Condition::Greater, R5, R3, rest);
    program.place(fitting);
}

/// Adds the tag that the frame came with, by the VLAN of its key at that place of the stack, to its length in R8.
pub(super) fn add_tag(program: &mut Assembler, vlan: i16) {
    let untagged = program.label();
    program.load(Width::Half, R5, R10, vlan);
    program.and(R5, TAGGED.into());
    program.jump_value(Condition::Equal, R5, 0, untagged);
    program.add(R8, 4);
    program.place(untagged);
}

/// Counts the packet in the entry, and with its way. Its length is in R8.
pub(super) fn count(program: &mut Assembler, maps: FlowMaps<'_>, drop: Label) {
    program.call(Helper::Processor);
    program.jump_value(Condition::Greater, R0, i32::from(maps.processors) - 1, drop);
    program.shift_left(R0, PROCESSOR_SHIFT);
    program.map_value(R7, maps.carried);
    program.add_register(R7, R0);
    program.load(Width::Word, R5, R9, EGRESS);
    // For the verifier: inside, and aligned.
    program.and(R5, LAST_EGRESS);
    program.add_register(R7, R5);
    program.set(R1, 1);
    program.count(R9, PACKETS, R1);
    program.count(R7, 0, R1);
    program.count(R9, BYTES, R8);
    program.count(R7, 8, R8);
}

/// Gives the packet the tag with which it leaves.
pub(super) fn change_tag(program: &mut Assembler) {
    let [push, changed] = [(); 2].map(|()| program.label());
    program.load(Width::Word, R3, R9, CHANGE);
    program.jump_value(Condition::Equal, R3, KEEP, changed);
    program.jump_value(Condition::Equal, R3, PUSH, push);
    program.copy(R1, R6);
    program.call(Helper::VlanPop);
    program.load(Width::Word, R3, R9, CHANGE);
    program.jump_value(Condition::Equal, R3, POP, changed);
    program.place(push);
    program.copy(R1, R6);
    program.set(R2, network_order(CUSTOMER_TAG));
    program.load(Width::Word, R3, R9, CHANGE_VLAN);
    program.call(Helper::VlanPush);
    program.place(changed);
}

fn nanos(time: core::time::Duration) -> i32 {
    i32::try_from(time.as_nanos()).expect("less than two seconds")
}

const IPV4: i16 = 20;
/// Stack: a key; the length that a helper reads.
const STACK_KEY: i16 = -16;
const STACK_LENGTH: i16 = -24;
/// Offset of the last egress' counters: all bits that offsets have.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "some hundred bytes")]
const LAST_EGRESS: i32 = ((MOST_EGRESSES - 1) * EGRESS_BYTES) as i32;
/// `BPF_MTU_CHK_SEGS`.
const CHECK_SEGMENTS: i32 = 1;
/// Offsets in the context of a program (`struct __sk_buff`).
pub(super) const LENGTH: i16 = 0;
pub(super) const PACKET_TYPE: i16 = 4;
pub(super) const VLAN_PRESENT: i16 = 20;
const VLAN_TAG: i16 = 24;
const VLAN_PROTOCOL: i16 = 28;
const DATA: i16 = 76;
const DATA_END: i16 = 80;
pub(super) const GSO_SIZE: i16 = 176;
