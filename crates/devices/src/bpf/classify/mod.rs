//! Classification of an interface's packets, the same at every hook.
//!
//! [`claim`] takes the tunnel packets whose end points are in a table, for a port that the kernel goes on using.
//! [`route`] takes these and what a router is to forward. How a packet is read, and what becomes of one that is taken
//! or left, is the [`Target`]'s. [`control`] tells packets of control protocols from others.

mod control;
mod routed;

pub(crate) use control::{RESERVED_GROUPS, control};
pub(crate) use routed::{RouterMaps, route};

use super::assembler::{Assembler, Condition, Helper, Label, Register, Width};
use super::endpoints::{Tables, selector};
use Register::{R0, R1, R2, R3, R4, R5, R8, R9, R10};
use polder_datapath::tunnel::Carrier;
use std::os::fd::BorrowedFd;

/// The hook that a program is written for.
pub(crate) trait Target {
    /// Begins the program of a router's port, whose context is in R6: ends it for packets that were returned to the kernel.
    fn begin(&self, _: &mut Assembler) {}

    /// Keeps the context in R6, and puts the beginning of the frame into R2 and the end of what may be read into R3.
    /// Nothing is known of the frame's length yet.
    fn open(&self, program: &mut Assembler);

    /// Puts the beginning of the frame into R2 and the end of what may be read into R3, of which no more than the
    /// Ethernet header matters.
    fn peek(&self, program: &mut Assembler) {
        self.open(program);
    }

    /// Puts the VLAN of the frame's tag into R8, in network order and 0 for none, and what it carries into R9; R2 moves
    /// so that the network header is [`ETHERNET`] behind it; R0 stays. Jumps to `pass` for frames that are cut off or have a tag
    /// of a provider.
    fn untag(&self, program: &mut Assembler, pass: Label) {
        untag_bytes(program, pass);
    }

    /// Ends the program: user space has the packet.
    fn take(&self, program: &mut Assembler);

    /// Ends the program: the kernel has the packet.
    fn pass(&self, program: &mut Assembler);
}

/// Hands tunnel packets from a claimed remote to a claimed local address to user space, below at most
/// one 802.1Q tag, and everything else to the kernel.
///
/// In IPv4 packets of GRE are those of protocol 47, and the header alone decides, so that later fragments follow
/// the first (RFC 791, section 3.2). In IPv6 the next header is 47, or it stands behind destination options
/// of eight bytes (as Linux sends them), a fragment header, or one behind the other in this order.
/// Packets over UDP are known by their destination port, which later fragments do not have: fragments of UDP stay with
/// the kernel, and so does UDP behind options of IPv4 or extension headers of IPv6. The
/// headers' lengths and checksums are the datapath's business.
pub(crate) fn claim(program: &mut Assembler, target: &impl Target, endpoints: Tables<'_>) {
    let [ipv4, pass] = [(); 2].map(|()| program.label());
    target.open(program);
    need(program, ETHERNET + IPV4, pass);
    target.untag(program, pass);
    program.jump_value(Condition::Equal, R9, network_order(0x0800), ipv4);
    program.jump_value(Condition::NotEqual, R9, network_order(0x86dd), pass);
    is_claimed_v6(program, endpoints.v6, -32, pass);
    target.take(program);

    program.place(ipv4);
    select_v4(program, -8, pass);
    ends(program, R2, -8);
    look_up(program, endpoints.v4, -12, pass);
    target.take(program);

    program.place(pass);
    target.pass(program);
}

/// [`Target::untag`] for a tag that stands in the frame.
pub(crate) fn untag_bytes(program: &mut Assembler, pass: Label) {
    let untagged = program.label();
    program.set(R8, 0);
    program.load(Width::Half, R9, R2, 12);
    program.jump_value(Condition::NotEqual, R9, network_order(0x8100), untagged);
    need(program, ETHERNET + TAG + IPV4, pass);
    program.load(Width::Half, R8, R2, 14);
    program.and(R8, network_order(0x0fff));
    program.load(Width::Half, R9, R2, 16);
    program.add(R2, i32::from(TAG));
    program.place(untagged);
}

/// Puts the selector of the IPv4 packet at R2 in front of a place of the stack, and jumps to `otherwise` when no tunnel
/// can have such packets.
fn select_v4(program: &mut Assembler, key: i16, otherwise: Label) {
    let [gre, selected] = [(); 2].map(|()| program.label());
    program.load(Width::Byte, R5, R2, ETHERNET + 9);
    program.jump_value(Condition::Equal, R5, PROTOCOL_GRE, gre);
    program.jump_value(Condition::NotEqual, R5, PROTOCOL_UDP, otherwise);
    program.load(Width::Byte, R5, R2, ETHERNET);
    program.jump_value(Condition::NotEqual, R5, 0x45, otherwise);
    program.load(Width::Half, R5, R2, ETHERNET + 6);
    program.and(R5, network_order(0x3fff));
    program.jump_value(Condition::NotEqual, R5, 0, otherwise);
    need(program, ETHERNET + IPV4 + UDP, otherwise);
    program.load(Width::Half, R5, R2, ETHERNET + IPV4 + UDP_DESTINATION);
    program.go(selected);

    program.place(gre);
    program.load(Width::Byte, R5, R2, ETHERNET);
    program.and(R5, 0xf0);
    program.jump_value(Condition::NotEqual, R5, 0x40, otherwise);
    program.set(R5, SELECTOR_GRE);

    program.place(selected);
    program.store(Width::Word, R10, key - 4, R5);
}

/// Goes on when the IPv6 packet at R2 is claimed, and jumps to `otherwise` when it is not. The addresses of the key are
/// at this place of the stack, the selector in front of them.
fn is_claimed_v6(program: &mut Assembler, endpoints: BorrowedFd<'_>, key: i16, otherwise: Label) {
    let [fragment, gre, udp, selected] = [(); 4].map(|()| program.label());
    need(program, ETHERNET + IPV6, otherwise);
    program.load(Width::Byte, R5, R2, ETHERNET);
    program.and(R5, 0xf0);
    program.jump_value(Condition::NotEqual, R5, 0x60, otherwise);
    address(program, R2, (ETHERNET + 24, key));
    address(program, R2, (ETHERNET + 8, key + 16));
    program.load(Width::Byte, R5, R2, ETHERNET + 6);
    program.jump_value(Condition::Equal, R5, PROTOCOL_GRE, gre);
    program.jump_value(Condition::Equal, R5, PROTOCOL_UDP, udp);
    program.jump_value(Condition::Equal, R5, PROTOCOL_FRAGMENT, fragment);
    program.jump_value(Condition::NotEqual, R5, PROTOCOL_OPTIONS, otherwise);
    need(program, ETHERNET + IPV6 + EXTENSION, otherwise);
    program.load(Width::Byte, R5, R2, ETHERNET + IPV6 + 1);
    program.jump_value(Condition::NotEqual, R5, 0, otherwise);
    program.load(Width::Byte, R5, R2, ETHERNET + IPV6);
    program.jump_value(Condition::Equal, R5, PROTOCOL_GRE, gre);
    program.jump_value(Condition::NotEqual, R5, PROTOCOL_FRAGMENT, otherwise);
    program.add(R2, i32::from(EXTENSION));

    program.place(fragment);
    // Every fragment says what the first one begins with.
    need(program, ETHERNET + IPV6 + EXTENSION, otherwise);
    program.load(Width::Byte, R5, R2, ETHERNET + IPV6);
    program.jump_value(Condition::NotEqual, R5, PROTOCOL_GRE, otherwise);

    program.place(gre);
    program.set(R5, SELECTOR_GRE);
    program.go(selected);

    program.place(udp);
    need(program, ETHERNET + IPV6 + UDP, otherwise);
    program.load(Width::Half, R5, R2, ETHERNET + IPV6 + UDP_DESTINATION);

    program.place(selected);
    program.store(Width::Word, R10, key - 4, R5);
    look_up(program, endpoints, key - 4, otherwise);
}

/// Copies destination and source of an IPv4 packet to the stack.
///
/// The upper half of a stack's eight bytes comes first here and elsewhere: verifiers before Linux 6.8 take a word in
/// the lower half for a register that was put aside, into which nothing may be written without CAP_PERFMON.
fn ends(program: &mut Assembler, packet: Register, to: i16) {
    for (from, to) in [(ETHERNET + 12, to + 4), (ETHERNET + 16, to)] {
        program.load(Width::Word, R5, packet, from);
        program.store(Width::Word, R10, to, R5);
    }
}

/// Copies an IPv6 address from the packet to the stack.
fn address(program: &mut Assembler, packet: Register, (from, to): (i16, i16)) {
    for part in [0, 8] {
        program.load(Width::Double, R5, packet, from + part);
        program.store(Width::Double, R10, to + part, R5);
    }
}

/// Jumps to `otherwise` when the key that is at this place of the stack is not in the table.
fn look_up(program: &mut Assembler, endpoints: BorrowedFd<'_>, key: i16, otherwise: Label) {
    program.map(R1, endpoints);
    program.copy(R2, R10);
    program.add(R2, i32::from(key));
    program.call(Helper::MapLookup);
    program.jump_value(Condition::Equal, R0, 0, otherwise);
}

/// Jumps to `otherwise` when the packet has fewer than `bytes` bytes in its first buffer.
pub(crate) fn need(program: &mut Assembler, bytes: i16, otherwise: Label) {
    program.copy(R4, R2);
    program.add(R4, i32::from(bytes));
    program.jump(Condition::Greater, R4, R3, otherwise);
}

/// A 16-bit number as a load from a packet sees it.
pub(crate) fn network_order(value: u16) -> i32 {
    i32::from(value.to_be())
}

pub(crate) const ETHERNET: i16 = 14;
const TAG: i16 = 4;
pub(crate) const IPV4: i16 = 20;
const IPV6: i16 = 40;
/// The shortest extension header of IPv6, and every fragment header.
const EXTENSION: i16 = 8;
const UDP: i16 = 8;
/// Offset of the destination port in a UDP header.
const UDP_DESTINATION: i16 = 2;
const PROTOCOL_GRE: i32 = 47;
const PROTOCOL_UDP: i32 = 17;
const SELECTOR_GRE: i32 = selector(Carrier::Gre).cast_signed();
const PROTOCOL_FRAGMENT: i32 = 44;
const PROTOCOL_OPTIONS: i32 = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    struct Bytes;

    impl Target for Bytes {
        fn open(&self, program: &mut Assembler) {
            program.load(Width::Word, R2, Register::R6, 0);
            program.load(Width::Word, R3, Register::R6, 4);
        }

        fn take(&self, program: &mut Assembler) {
            self.pass(program);
        }

        fn pass(&self, program: &mut Assembler) {
            program.set(R0, 2);
            program.exit();
        }
    }

    /// `exit` (RFC 9669, section 4.3).
    const EXIT: u64 = 0x95;

    #[test]
    fn programs_assemble() {
        let stdin = std::io::stdin();
        let fd = stdin.as_fd();
        let tables = Tables { v4: fd, v6: fd };
        let maps =
            RouterMaps { endpoints: tables, ingresses: fd, local4: fd, local6: fd, land4: fd, land6: fd };
        let mut programs = [(); 2].map(|()| Assembler::new());
        claim(&mut programs[0], &Bytes, tables);
        route(&mut programs[1], &Bytes, maps);
        for program in programs.map(Assembler::finish) {
            assert!(program.len() < 208, "{} instructions", program.len());
            assert_eq!(program.last(), Some(&EXIT));
        }
    }
}
