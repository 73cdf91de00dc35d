//! Interfaces whose packets have no Ethernet header, such as WireGuard, TUN and PPP.
//!
//! The programs read such a packet as if it had a header: the register that points to the start of a frame points
//! [`ETHERNET`] bytes before the packet. The header's fields come from elsewhere: the EtherType from the kernel's
//! metadata, and the destination address is always [`NEAR_STATION`]. So a packet that is left to the kernel is not
//! changed. A packet that is taken or carried is given a header by [`add_ethernet`] first.
//!
//! In the other direction the programs do nothing: the kernel removes the link-layer header of a packet that is
//! redirected to an interface without one.
//!
//! Source: Linux, net/core/filter.c (`bpf_skb_change_head`, `__bpf_redirect_no_mac`).

use super::context::{DATA, DATA_END, LENGTH, PROTOCOL};
use crate::bpf::assembler::{Assembler, Condition, Helper, Label, Register, Width};
use crate::bpf::classify::{ETHERNET, need};
use crate::netlink::link::{FAR_STATION, LinkLayer, NEAR_STATION};
use Register::{R0, R1, R2, R3, R5, R6};

/// Moves R2 from the start of the packet's data to the start of its frame.
pub(super) fn to_frame(program: &mut Assembler, layer: LinkLayer) {
    if layer == LinkLayer::Packets {
        program.add(R2, -i32::from(ETHERNET));
    }
}

/// Puts the EtherType of the frame at register `frame` into `to`. The context is in R6.
pub(super) fn ether_type(program: &mut Assembler, layer: LinkLayer, (frame, to): (Register, Register)) {
    match layer {
        LinkLayer::Ethernet => program.load(Width::Half, to, frame, 12),
        LinkLayer::Packets => program.load(Width::Word, to, R6, PROTOCOL),
    }
}

/// Puts the length of the frame, before [`add_ethernet`], into `to`. The context is in R6.
pub(super) fn length(program: &mut Assembler, layer: LinkLayer, to: Register) {
    program.load(Width::Word, to, R6, LENGTH);
    if layer == LinkLayer::Packets {
        program.add(to, i32::from(ETHERNET));
    }
}

/// Puts the first four bytes of the destination address of the frame at register `frame` into `first`, and its last
/// two into `last`.
pub(super) fn destination(
    program: &mut Assembler,
    layer: LinkLayer,
    (frame, [first, last]): (Register, [Register; 2]),
) {
    match layer {
        LinkLayer::Ethernet => {
            program.load(Width::Word, first, frame, 0);
            program.load(Width::Half, last, frame, 4);
        }
        LinkLayer::Packets => {
            let [high, low] = parts(NEAR_STATION);
            program.set(first, high);
            program.set(last, low);
        }
    }
}

/// Puts an Ethernet header before a packet without one, as if the other end had sent it to this host; jumps to `lose`
/// if the kernel refuses. R0 to R5 change.
pub(super) fn add_ethernet(program: &mut Assembler, layer: LinkLayer, lose: Label) {
    if layer == LinkLayer::Ethernet {
        return;
    }
    program.copy(R1, R6);
    program.set(R2, i32::from(ETHERNET));
    program.set(R3, 0);
    program.call(Helper::ChangeHead);
    program.jump_value(Condition::NotEqual, R0, 0, lose);
    program.load(Width::Word, R2, R6, DATA);
    program.load(Width::Word, R3, R6, DATA_END);
    need(program, ETHERNET, lose);
    for (at, station) in [(0, NEAR_STATION), (6, FAR_STATION)] {
        let [high, low] = parts(station);
        program.set(R5, high);
        program.store(Width::Word, R2, at, R5);
        program.set(R5, low);
        program.store(Width::Half, R2, at + 4, R5);
    }
    program.load(Width::Word, R5, R6, PROTOCOL);
    program.store(Width::Half, R2, 12, R5);
}

/// Returns the first four and the last two bytes of an address, as loads from a packet read them.
fn parts([a, b, c, d, e, f]: [u8; 6]) -> [i32; 2] {
    [i32::from_ne_bytes([a, b, c, d]), u16::from_ne_bytes([e, f]).into()]
}
