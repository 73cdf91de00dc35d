//! The TCX hook of programs that carry flows.

use super::context::{DATA, DATA_END};
use super::layer;
use super::program::{
    DROP, GSO_SEGMENTS, HEADERS, ToTap, VLAN_PRESENT, VLAN_PROTOCOL, VLAN_TAG, headers, redirect,
};
use crate::bpf::assembler::{Assembler, Condition, Helper, Label, Register, Width};
use crate::bpf::classify::{ETHERNET, network_order};
use crate::bpf::flows::entry::{
    CHANGE, CHANGE_VLAN, CUSTOMER_TAG, INTERFACE, KEEP, LONGEST, OUTER_BYTES, POP, PUSH, ROOM, SERVICE_TAG,
    TAGGED,
};
use crate::bpf::flows::hook::Hook;
use crate::bpf::window::{CHARGE, QUEUE_SHIFT};
use crate::netlink::link::LinkLayer;
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

impl Hook for ToTap<'_> {
    const QUEUE_SHIFT: i32 = QUEUE_SHIFT;
    const STORE: Helper = Helper::StoreBytes;
    const MOVES_ETHERNET: bool = true;

    fn if_examined(&self, program: &mut Assembler, examined: Label) {
        program.load(Width::Word, R0, R6, super::program::INTERFACE);
        program.jump_value(Condition::NotEqual, R0, self.interface.cast_signed(), examined);
    }

    fn begin(&self, _: &mut Assembler, _: Label) {}

    fn frame(&self, program: &mut Assembler) {
        program.load(Width::Word, R2, R6, DATA);
        program.load(Width::Word, R3, R6, DATA_END);
        layer::to_frame(program, self.layer);
    }

    fn headers(&self, program: &mut Assembler) {
        headers(program, HEADERS);
        layer::to_frame(program, self.layer);
    }

    fn has_ethernet(&self) -> bool {
        self.layer == LinkLayer::Ethernet
    }

    fn ether_type(&self, program: &mut Assembler, frame: Register, to: Register) {
        layer::ether_type(program, self.layer, (frame, to));
    }

    fn station(&self, program: &mut Assembler, [first, last]: [Register; 2]) {
        layer::destination(program, self.layer, (R7, [first, last]));
    }

    fn add_ethernet(&self, program: &mut Assembler, lose: Label) {
        layer::add_ethernet(program, self.layer, lose);
    }

    /// The kernel has moved the frame's first tag into metadata.
    fn tag(&self, program: &mut Assembler, priority: Label, rest: Label) {
        let [tagged, typed] = [(); 2].map(|()| program.label());
        program.copy(R7, R2);
        if !self.has_ethernet() {
            return program.set(R8, 0);
        }
        self.has_tag(program);
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
        // A tag still in the frame is a second one, or of a kind that the kernel leaves.
        program.load(Width::Half, R5, R2, 12);
        for tag in [CUSTOMER_TAG, SERVICE_TAG] {
            program.jump_value(Condition::Equal, R5, network_order(tag), rest);
        }
    }

    fn network(&self, program: &mut Assembler) {
        self.headers(program);
    }

    fn has_tag(&self, program: &mut Assembler) {
        program.load(Width::Word, R5, R6, VLAN_PRESENT);
    }

    fn behind_tag(&self, _: &mut Assembler, _: Register) {}

    fn is_for_host(&self, program: &mut Assembler, rest: Label) {
        self.has_tag(program);
        program.jump_value(Condition::NotEqual, R5, 0, rest);
        program.load(Width::Word, R5, R6, PACKET_TYPE);
        program.jump_value(Condition::NotEqual, R5, TO_THIS_HOST, rest);
    }

    fn length(&self, program: &mut Assembler, to: Register) {
        layer::length(program, self.layer, to);
    }

    fn segment(&self, program: &mut Assembler, to: Register) {
        program.load(Width::Word, to, R6, GSO_SIZE);
    }

    /// The kernel knows which checksums are still to be computed.
    fn has_checksum(&self, _: &mut Assembler, _: Label) {}

    fn has_inner_checksum(&self, _: &mut Assembler, _: Label) {}

    fn fits(&self, program: &mut Assembler, rest: Label) {
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
        // That was the interface's MTU, which is given here; a route's MTU may be lower.
        program.load(Width::Word, R5, R10, STACK_LENGTH);
        program.add(R5, i32::from(ETHERNET));
        program.load(Width::Word, R3, R9, LONGEST);
        program.jump(Condition::Greater, R5, R3, rest);
        program.place(fitting);
    }

    fn change_tag(&self, program: &mut Assembler, _: Label) {
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

    fn make_room(&self, program: &mut Assembler, lose: Label) {
        let kept = program.label();
        program.copy(R1, R6);
        program.load(Width::Word, R2, R9, OUTER_BYTES);
        program.set(R3, BEHIND_ETHERNET);
        program.load(Width::Double, R4, R9, ROOM);
        program.call(Helper::AdjustRoom);
        program.jump_value(Condition::NotEqual, R0, 0, lose);
        program.load(Width::Word, R5, R9, CHANGE);
        program.jump_value(Condition::NotEqual, R5, POP, kept);
        program.copy(R1, R6);
        program.call(Helper::VlanPop);
        program.place(kept);
    }

    fn take_off(&self, program: &mut Assembler, [bytes, room]: [i16; 2], lose: Label) {
        program.copy(R1, R6);
        program.set(R2, 0);
        program.load(Width::Double, R5, R10, bytes);
        program.subtract(R2, R5);
        program.set(R3, BEHIND_ETHERNET);
        program.load(Width::Double, R4, R10, room);
        program.call(Helper::AdjustRoom);
        program.jump_value(Condition::NotEqual, R0, 0, lose);
    }

    fn queue(&self, program: &mut Assembler, drop: Label) {
        if self.queues == 1 {
            return program.set(R0, 0);
        }
        // A driver's hash may be the same for all flows though marked as covering their ports. The kernel
        // computes here the hash by which the TAP chooses a queue.
        program.copy(R1, R6);
        program.call(Helper::HashInvalid);
        program.copy(R1, R6);
        program.call(Helper::HashRecalculate);
        program.modulo(R0, i32::from(self.queues));
        // Verifiers do not track the range of a remainder.
        program.jump_value(Condition::Greater, R0, i32::from(self.queues) - 1, drop);
        program.shift_left(R0, QUEUE_SHIFT);
    }

    fn windows(&self, program: &mut Assembler) {
        program.map_value(R7, self.windows);
    }

    fn window_bytes(&self) -> u32 {
        self.window_bytes
    }

    fn charge(&self, program: &mut Assembler, to: Register) {
        layer::length(program, self.layer, to);
        program.add(to, i32::from(CHARGE));
    }

    /// A super-packet that the TAP's header cannot describe arrives segmented.
    fn pieces(&self, program: &mut Assembler) {
        self.count_pieces(program);
    }

    /// The kernel counts the packets that it has merged, or will segment.
    fn wire_packets(&self, program: &mut Assembler) {
        let counted = program.label();
        program.load(Width::Word, R1, R6, GSO_SEGMENTS);
        program.jump_value(Condition::NotEqual, R1, 0, counted);
        program.set(R1, 1);
        program.place(counted);
    }

    /// A packet without a header that cannot be given one is lost as an overrun.
    fn up(&self, program: &mut Assembler) {
        let lose = program.label();
        self.add_ethernet(program, lose);
        redirect(program, self.tap);
        program.place(lose);
        if !self.has_ethernet() {
            self.lose(program);
        }
    }

    fn discard(&self, program: &mut Assembler) {
        program.set(R0, DROP);
        program.exit();
    }
}

/// Stack slot for the length that a kernel function reads, below the frame's key and above the other keys.
const STACK_LENGTH: i16 = -24;
/// Offsets in the context of a program (`struct __sk_buff`).
const PACKET_TYPE: i16 = 4;
const GSO_SIZE: i16 = 176;
/// `PACKET_HOST`.
const TO_THIS_HOST: i32 = 0;
/// `BPF_MTU_CHK_SEGS`.
const CHECK_SEGMENTS: i32 = 1;
/// `BPF_ADJ_ROOM_MAC`.
const BEHIND_ETHERNET: i32 = 1;
