//! The XDP hook of programs that carry flows. VLAN tags are in the frame here, and no metadata tells which
//! checksums a local sender has left to the device.

use super::program::{Action, CONTEXT_QUEUE, Counting, Sockets};
use crate::bpf::admit::admit;
use crate::bpf::assembler::{Assembler, Condition, Helper, Label, Register, Width};
use crate::bpf::classify::{ETHERNET, Target as _, need, network_order};
use crate::bpf::flows::entry::{
    CHANGE, CHANGE_VLAN, CUSTOMER_TAG, KEEP, LONGEST, OUTER_BYTES, POP, PUSH, SERVICE_TAG, TAGGED,
};
use crate::bpf::flows::hook::Hook;
use crate::bpf::window::{CHARGE, QUEUE_SHIFT};
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// An XDP hook: the sockets, and their packet counts.
pub(super) type XdpHook<'a> = (Sockets<'a>, Counting<'a>);

impl Hook for XdpHook<'_> {
    const QUEUE_SHIFT: i32 = QUEUE_SHIFT;
    const STORE: Helper = Helper::StoreBytesXdp;
    const MOVES_ETHERNET: bool = false;

    fn if_examined(&self, program: &mut Assembler, examined: Label) {
        self.1.if_examined(program, examined);
    }

    /// Checks that the queue has a socket. From here on, the frame's length (all buffers together) is on the
    /// stack.
    fn begin(&self, program: &mut Assembler, rest: Label) {
        program.load(Width::Word, R5, R6, CONTEXT_QUEUE);
        program.jump_value(Condition::Greater, R5, self.1.queues.cast_signed() - 1, rest);
        program.copy(R1, R6);
        program.call(Helper::BufferLength);
        program.store(Width::Double, R10, STACK_LENGTH, R0);
        program.set(R5, 0);
        program.store(Width::Double, R10, STACK_TAG, R5);
    }

    fn frame(&self, program: &mut Assembler) {
        self.0.open(program);
    }

    fn headers(&self, program: &mut Assembler) {
        self.frame(program);
    }

    fn tag(&self, program: &mut Assembler, priority: Label, rest: Label) {
        let typed = program.label();
        program.copy(R7, R2);
        program.set(R8, 0);
        program.load(Width::Half, R5, R2, 12);
        program.jump_value(Condition::Equal, R5, network_order(SERVICE_TAG), rest);
        program.jump_value(Condition::NotEqual, R5, network_order(CUSTOMER_TAG), typed);
        need(program, ETHERNET + TAG, rest);
        program.load(Width::Double, R5, R10, STACK_LENGTH);
        program.add(R5, -i32::from(TAG));
        program.store(Width::Double, R10, STACK_LENGTH, R5);
        program.set(R5, i32::from(TAG));
        program.store(Width::Double, R10, STACK_TAG, R5);
        program.load(Width::Half, R8, R2, 14);
        program.network_order(R8);
        program.and(R8, 0x0fff);
        program.add(R2, i32::from(TAG));
        program.load(Width::Half, R5, R2, 12);
        for tag in [CUSTOMER_TAG, SERVICE_TAG] {
            program.jump_value(Condition::Equal, R5, network_order(tag), rest);
        }
        program.jump_value(Condition::Equal, R8, 0, priority);
        program.add(R8, i32::from(TAGGED));
        program.place(typed);
    }

    fn network(&self, program: &mut Assembler) {
        let untagged = program.label();
        self.frame(program);
        self.has_tag(program);
        program.jump_value(Condition::Equal, R5, 0, untagged);
        program.add(R2, i32::from(TAG));
        program.place(untagged);
    }

    fn has_tag(&self, program: &mut Assembler) {
        program.load(Width::Double, R5, R10, STACK_TAG);
    }

    fn behind_tag(&self, program: &mut Assembler, offset: Register) {
        self.has_tag(program);
        program.add_register(offset, R5);
    }

    /// The kernel has not classified the destination MAC address yet.
    fn is_for_host(&self, program: &mut Assembler, rest: Label) {
        let [a, b, c, d, e, f] = self.1.mac;
        program.load(Width::Word, R5, R2, 0);
        program.set_wide(R4, u32::from_ne_bytes([a, b, c, d]).into());
        program.jump(Condition::NotEqual, R5, R4, rest);
        program.load(Width::Half, R5, R2, 4);
        program.jump_value(Condition::NotEqual, R5, u16::from_ne_bytes([e, f]).into(), rest);
    }

    fn length(&self, program: &mut Assembler, to: Register) {
        program.load(Width::Double, to, R10, STACK_LENGTH);
    }

    /// No frame is segmented at this hook.
    fn segment(&self, program: &mut Assembler, to: Register) {
        program.set(to, 0);
    }

    fn has_checksum(&self, program: &mut Assembler, up: Label) {
        if self.1.local_senders {
            self.network(program);
            has_checksum(program, up);
        }
    }

    fn has_inner_checksum(&self, program: &mut Assembler, up: Label) {
        if self.1.local_senders {
            program.copy(R7, R2);
            has_checksum(program, up);
            program.copy(R2, R7);
        }
    }

    fn fits(&self, program: &mut Assembler, rest: Label) {
        program.load(Width::Word, R3, R9, LONGEST);
        program.jump(Condition::Greater, R8, R3, rest);
    }

    fn change_tag(&self, program: &mut Assembler, lose: Label) {
        let [pop, push, changed] = [(); 3].map(|()| program.label());
        program.load(Width::Word, R4, R9, CHANGE);
        program.jump_value(Condition::Equal, R4, KEEP, changed);
        program.jump_value(Condition::Equal, R4, POP, pop);
        program.jump_value(Condition::Equal, R4, PUSH, push);
        self.frame(program);
        write_vlan(program, lose);
        program.go(changed);

        program.place(pop);
        self.frame(program);
        move_addresses(program, (0, TAG), lose);
        move_beginning(program, TAG.into(), lose);
        program.go(changed);

        program.place(push);
        move_beginning(program, -i32::from(TAG), lose);
        self.frame(program);
        move_addresses(program, (TAG, 0), lose);
        program.set(R5, network_order(CUSTOMER_TAG));
        program.store(Width::Half, R2, 12, R5);
        write_vlan(program, lose);
        program.place(changed);
    }

    fn make_room(&self, program: &mut Assembler, lose: Label) {
        self.change_tag(program, lose);
        program.copy(R1, R6);
        program.set(R2, 0);
        program.load(Width::Word, R5, R9, OUTER_BYTES);
        program.subtract(R2, R5);
        adjust(program, lose);
    }

    fn take_off(&self, program: &mut Assembler, [bytes, _]: [i16; 2], lose: Label) {
        program.copy(R1, R6);
        program.load(Width::Double, R2, R10, bytes);
        adjust(program, lose);
    }

    fn queue(&self, program: &mut Assembler, drop: Label) {
        program.load(Width::Word, R0, R6, CONTEXT_QUEUE);
        program.jump_value(Condition::Greater, R0, self.1.queues.cast_signed() - 1, drop);
        program.shift_left(R0, QUEUE_SHIFT);
    }

    fn windows(&self, program: &mut Assembler) {
        program.map_value(R7, self.1.windows);
    }

    fn window_bytes(&self) -> u32 {
        self.1.window_bytes
    }

    /// A packet for a socket takes one frame, whatever its length.
    fn charge(&self, program: &mut Assembler, to: Register) {
        program.set(to, i32::from(CHARGE));
    }

    fn up(&self, program: &mut Assembler) {
        self.0.redirect(program);
    }

    fn discard(&self, program: &mut Assembler) {
        program.set(R0, Action::Drop as i32);
        program.exit();
    }
}

impl Counting<'_> {
    /// Jumps to `examined` for a frame of a test run, which no interface has received. R0 changes.
    fn if_examined(&self, program: &mut Assembler, examined: Label) {
        program.load(Width::Word, R0, R6, CONTEXT_INTERFACE);
        program.jump_value(Condition::NotEqual, R0, self.interface.cast_signed(), examined);
    }

    /// Redirects the packet to its queue's socket if the window has room, else drops it, and ends the
    /// program.
    pub(super) fn take(&self, program: &mut Assembler, sockets: &Sockets<'_>) {
        let [uncounted, drop] = [(); 2].map(|()| program.label());
        self.if_examined(program, uncounted);
        let hook = (*sockets, *self);
        hook.queue(program, uncounted);
        hook.windows(program);
        program.add_register(R7, R0);
        admit(program, &hook, None, drop);
        program.place(uncounted);
        sockets.redirect(program);
    }
}

/// Writes the entry's VLAN into the tag at R2, with priority 0.
fn write_vlan(program: &mut Assembler, lose: Label) {
    need(program, ETHERNET + TAG, lose);
    program.load(Width::Word, R5, R9, CHANGE_VLAN);
    program.network_order(R5);
    program.store(Width::Half, R2, 14, R5);
}

/// Moves the MAC addresses of the frame at R2 from one offset to another.
fn move_addresses(program: &mut Assembler, (from, to): (i16, i16), lose: Label) {
    need(program, ETHERNET + TAG, lose);
    program.load(Width::Double, R0, R2, from);
    program.load(Width::Word, R1, R2, from + 8);
    program.store(Width::Double, R2, to, R0);
    program.store(Width::Word, R2, to + 8, R1);
}

/// Moves the start of the frame `bytes` bytes towards its end.
fn move_beginning(program: &mut Assembler, bytes: i32, lose: Label) {
    program.copy(R1, R6);
    program.set(R2, bytes);
    adjust(program, lose);
}

fn adjust(program: &mut Assembler, lose: Label) {
    program.call(Helper::AdjustHead);
    program.jump_value(Condition::NotEqual, R0, 0, lose);
}

/// Jumps to `up` for TCP or UDP whose checksum covers the pseudo-header alone, and for packets that may have
/// such a checksum at another place: tunnels, SCTP, options and extension headers. The network header is
/// [`ETHERNET`] bytes after R2; R2, R3, R6, R7 and R9 are kept.
///
/// Source: the cases that [`recognise`](polder_datapath::offload::recognise) completes.
fn has_checksum(program: &mut Assembler, up: Label) {
    let [ipv6, transport, known] = [(); 3].map(|()| program.label());
    need(program, ETHERNET + IPV4, known);
    program.load(Width::Half, R5, R2, 12);
    program.jump_value(Condition::Equal, R5, network_order(0x86dd), ipv6);
    program.jump_value(Condition::NotEqual, R5, network_order(0x0800), known);
    pseudo_v4(program, known, up);
    program.go(transport);

    program.place(ipv6);
    need(program, ETHERNET + IPV6, known);
    program.load(Width::Half, R0, R2, ETHERNET + 4);
    for word in (8..IPV6).step_by(4) {
        program.load(Width::Word, R5, R2, ETHERNET + word);
        program.add_register(R0, R5);
    }
    program.load(Width::Byte, R8, R2, ETHERNET + 6);
    program.add(R2, i32::from(IPV6 - IPV4));
    for (header, label) in [(ICMPV6, known), (OSPF, known)] {
        program.jump_value(Condition::Equal, R8, header, label);
    }

    program.place(transport);
    is_partial(program, known, up);
    program.place(known);
}

/// Sums the addresses and the length of an IPv4 packet in R0, and puts its protocol into R8.
fn pseudo_v4(program: &mut Assembler, known: Label, up: Label) {
    program.load(Width::Byte, R5, R2, ETHERNET);
    program.jump_value(Condition::NotEqual, R5, 0x45, up);
    program.load(Width::Half, R5, R2, ETHERNET + 6);
    program.and(R5, network_order(0x3fff));
    program.jump_value(Condition::NotEqual, R5, 0, known);
    program.load(Width::Byte, R8, R2, ETHERNET + 9);
    for other in [ICMP, OSPF] {
        program.jump_value(Condition::Equal, R8, other, known);
    }
    program.load(Width::Half, R0, R2, ETHERNET + 2);
    program.network_order(R0);
    program.add(R0, -i32::from(IPV4));
    program.network_order(R0);
    for word in [12, 16] {
        program.load(Width::Word, R5, R2, ETHERNET + word);
        program.add_register(R0, R5);
    }
}

/// Jumps to `known` unless the checksum of the transport header covers the pseudo-header alone. The transport
/// header is [`IPV4`] bytes after a network header; R8 has the protocol, R0 the sum of the other
/// pseudo-header fields.
fn is_partial(program: &mut Assembler, known: Label, up: Label) {
    let [udp, summed] = [(); 2].map(|()| program.label());
    program.copy(R5, R8);
    program.network_order(R5);
    program.add_register(R0, R5);
    program.jump_value(Condition::Equal, R8, UDP, udp);
    program.jump_value(Condition::NotEqual, R8, TCP, up);
    need(program, ETHERNET + IPV4 + TCP_CHECKSUM + 2, known);
    program.load(Width::Half, R1, R2, ETHERNET + IPV4 + TCP_CHECKSUM);
    program.go(summed);
    program.place(udp);
    need(program, ETHERNET + IPV4 + UDP_CHECKSUM + 2, known);
    program.load(Width::Half, R1, R2, ETHERNET + IPV4 + 2);
    program.jump_value(Condition::Equal, R1, network_order(VXLAN_PORT), up);
    program.load(Width::Half, R1, R2, ETHERNET + IPV4 + UDP_CHECKSUM);
    program.place(summed);
    for bits in [32, 16, 16, 16] {
        program.copy(R5, R0);
        program.shift_right(R5, bits);
        program.shift_left(R0, 64 - bits);
        program.shift_right(R0, 64 - bits);
        program.add_register(R0, R5);
    }
    program.jump(Condition::Equal, R0, R1, up);
}

/// Stack slots below those of the other programs: the frame's length without its tag, and the tag's bytes.
const STACK_LENGTH: i16 = -144;
const STACK_TAG: i16 = -152;

const TAG: i16 = 4;
const IPV4: i16 = 20;
const IPV6: i16 = 40;
const ICMP: i32 = 1;
const TCP: i32 = 6;
const UDP: i32 = 17;
const ICMPV6: i32 = 58;
const OSPF: i32 = 89;
const VXLAN_PORT: u16 = 4789;
/// Offsets of checksums in transport headers.
const TCP_CHECKSUM: i16 = 16;
const UDP_CHECKSUM: i16 = 6;
/// Offset of the ingress interface in the program's context (`struct xdp_md`).
const CONTEXT_INTERFACE: i16 = 12;
