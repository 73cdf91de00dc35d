//! Classification of an interface's packets, the same at every hook.
//!
//! [`claim`] takes the packets of the tunnels in a table, for a port that the kernel goes on using. [`route`]
//! takes these and the packets that a router is to forward. The [`Target`] defines how a packet is read, and
//! what happens to taken and passed packets. [`control`] tells control packets from others.

#[cfg(test)]
pub(crate) mod cases;
mod control;
mod routed;

pub(crate) use control::{RESERVED_GROUPS, control};
pub(crate) use routed::{RouterMaps, route};

use super::assembler::{Assembler, Condition, Helper, Label, Register, Width};
use super::endpoints::{
    KEYED, SELECTOR_FRAGMENT, SELECTOR_FRAMES, SELECTOR_PACKETS, SELECTOR_PROTOCOL, Tables,
};
use Register::{R0, R1, R2, R3, R4, R5, R7, R8, R9, R10};
use polder_datapath::tunnel::{IP_IN_IP_PROTOCOLS, PACKET_PROTOCOLS};
use polder_datapath::wire::EtherType;
use std::os::fd::BorrowedFd;

/// The hook that a program is assembled for.
pub(crate) trait Target {
    /// Starts the program of a router's port, whose context is in R6, and ends it for punted packets.
    fn begin(&self, _: &mut Assembler) {}

    /// Keeps the context in R6, and puts the start of the frame into R2 and the end of its readable bytes
    /// into R3. The frame's length is not checked yet.
    fn open(&self, program: &mut Assembler);

    /// Puts the start of the frame into R2 and the end of its readable bytes into R3; only the Ethernet
    /// header has to be readable.
    fn peek(&self, program: &mut Assembler) {
        self.open(program);
    }

    /// Puts the first four bytes of the destination address of the frame at R2 into `first`, and its last two
    /// bytes into `last`.
    fn destination(&self, program: &mut Assembler, [first, last]: [Register; 2]) {
        program.load(Width::Word, first, R2, 0);
        program.load(Width::Half, last, R2, 4);
    }

    /// Puts the VLAN of the frame's tag into R8 (network byte order, 0 for none) and the EtherType behind it
    /// into R9; moves R2 so that the network header is [`ETHERNET`] bytes after it; R0 is kept. Jumps to
    /// `pass` for truncated frames and for frames with a service tag.
    fn untag(&self, program: &mut Assembler, pass: Label) {
        untag_bytes(program, pass);
    }

    /// Ends the program: the packet goes to user space.
    fn take(&self, program: &mut Assembler);

    /// Ends the program: the packet goes to the kernel.
    fn pass(&self, program: &mut Assembler);
}

/// Passes the packets of claimed tunnels to user space, with at most one 802.1Q tag, and all others to the
/// kernel.
///
/// A tunnel is identified by its two endpoints and the fields that distinguish it from others between them
/// ([`TunnelFields`]): packets of other tunnels between the same endpoints stay with the kernel. GRE over
/// IPv4 is protocol 47. In IPv6 the next header is 47, directly or after destination options of eight bytes
/// (as Linux sends them), a fragment header, or both in this order. GRE packets of another version or with
/// routing stay with the kernel.
///
/// Later fragments have no GRE header, so all GRE fragments between two endpoints are taken if one tunnel is
/// (RFC 791, section 3.2). IPv4 or IPv6 in IPv4 is recognised by its protocol, which each fragment has.
/// Packets over UDP are recognised by their destination port, which later fragments lack: UDP fragments stay
/// with the kernel, and so does UDP after IPv4 options or IPv6 extension headers. The datapath checks lengths
/// and checksums of the headers.
///
/// [`TunnelFields`]: crate::bpf::TunnelFields
pub(crate) fn claim(program: &mut Assembler, target: &impl Target, endpoints: Tables<'_>) {
    let [ipv4, pass] = [(); 2].map(|()| program.label());
    target.open(program);
    need(program, ETHERNET + IPV4, pass);
    target.untag(program, pass);
    program.jump_value(Condition::Equal, R9, network_order(0x0800), ipv4);
    program.jump_value(Condition::NotEqual, R9, network_order(0x86dd), pass);
    is_claimed_v6(program, endpoints.v6, -40, pass);
    target.take(program);

    program.place(ipv4);
    program.copy(R7, R2);
    select_v4(program, -16, pass);
    ends(program, R7, -16);
    look_up(program, endpoints.v4, -16, pass);
    target.take(program);

    program.place(pass);
    target.pass(program);
}

/// [`Target::untag`] for a tag that is in the frame.
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

/// Puts selector and number of the IPv4 packet at R2 after the endpoints of the key at offset `key` of the
/// stack; jumps to `otherwise` if no tunnel has such packets. R2 changes.
fn select_v4(program: &mut Assembler, key: i16, otherwise: Label) {
    let [gre, other, whole, fragment, selected] = [(); 5].map(|()| program.label());
    program.load(Width::Byte, R5, R2, ETHERNET + 9);
    program.jump_value(Condition::Equal, R5, PROTOCOL_GRE, gre);
    program.jump_value(Condition::NotEqual, R5, PROTOCOL_UDP, other);
    program.load(Width::Byte, R5, R2, ETHERNET);
    program.jump_value(Condition::NotEqual, R5, 0x45, otherwise);
    program.load(Width::Half, R5, R2, ETHERNET + 6);
    program.jump_value(Condition::AnyBit, R5, network_order(0x3fff), otherwise);
    vxlan_fields(program, ETHERNET + IPV4, otherwise);
    program.go(selected);

    program.place(other);
    protocol_fields(program, otherwise);
    program.go(selected);

    program.place(gre);
    program.load(Width::Byte, R5, R2, ETHERNET);
    program.copy(R1, R5);
    program.and(R1, 0xf0);
    program.jump_value(Condition::NotEqual, R1, 0x40, otherwise);
    program.load(Width::Half, R1, R2, ETHERNET + 6);
    program.jump_value(Condition::AnyBit, R1, network_order(0x3fff), fragment);
    program.and(R5, 0x0f);
    // Without CAP_PERFMON, verifiers accept only offsets that they know.
    for words in 5..=15 {
        program.jump_value(Condition::Equal, R5, words, whole);
        program.add(R2, 4);
    }
    program.go(otherwise);
    program.place(whole);
    gre_fields(program, ETHERNET + IPV4, otherwise, selected);

    program.place(fragment);
    fragment_fields(program);

    program.place(selected);
    enter(program, key + 8);
}

/// Falls through if the IPv6 packet at R2 is claimed, else jumps to `otherwise`. The key is at offset `key`
/// of the stack. R2 changes.
fn is_claimed_v6(program: &mut Assembler, endpoints: BorrowedFd<'_>, key: i16, otherwise: Label) {
    let [fragment, whole, gre, udp, selected] = [(); 5].map(|()| program.label());
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
    program.add(R2, i32::from(EXTENSION));
    program.jump_value(Condition::Equal, R5, PROTOCOL_GRE, gre);
    program.jump_value(Condition::NotEqual, R5, PROTOCOL_FRAGMENT, otherwise);

    program.place(fragment);
    // Every fragment names the protocol of the first.
    need(program, ETHERNET + IPV6 + EXTENSION, otherwise);
    program.load(Width::Byte, R5, R2, ETHERNET + IPV6);
    program.jump_value(Condition::NotEqual, R5, PROTOCOL_GRE, otherwise);
    program.load(Width::Half, R5, R2, ETHERNET + IPV6 + 2);
    program.and(R5, network_order(0xfff9));
    // An atomic fragment is a whole packet (RFC 6946).
    program.jump_value(Condition::Equal, R5, 0, whole);
    fragment_fields(program);
    program.go(selected);

    program.place(udp);
    vxlan_fields(program, ETHERNET + IPV6, otherwise);
    program.go(selected);

    program.place(whole);
    program.add(R2, i32::from(EXTENSION));
    program.place(gre);
    gre_fields(program, ETHERNET + IPV6, otherwise, selected);

    program.place(selected);
    enter(program, key + 32);
    look_up(program, endpoints, key, otherwise);
}

/// For the packet whose GRE header is at offset `at` from R2, puts the selector into R0 and the key, or 0,
/// into R5, and jumps to `selected`. Jumps to `otherwise` for a header that no tunnel has.
fn gre_fields(program: &mut Assembler, at: i16, otherwise: Label, selected: Label) {
    let [packets, typed, keyed, summed] = [(); 4].map(|()| program.label());
    need(program, at + GRE, otherwise);
    program.load(Width::Half, R1, R2, at);
    program.jump_value(Condition::AnyBit, R1, network_order(GRE_REFUSED), otherwise);
    program.load(Width::Half, R5, R2, at + 2);
    program.set(R0, SELECTOR_FRAMES);
    program.jump_value(Condition::Equal, R5, network_order(EtherType::TRANSPARENT_ETHERNET.0), typed);
    for protocol in PACKET_PROTOCOLS {
        program.jump_value(Condition::Equal, R5, network_order(protocol.0), packets);
    }
    program.go(otherwise);
    program.place(packets);
    program.set(R0, SELECTOR_PACKETS);
    program.place(typed);
    program.set(R5, 0);
    program.jump_value(Condition::AnyBit, R1, network_order(GRE_KEY), keyed);
    program.go(selected);

    program.place(keyed);
    program.or(R0, KEYED);
    program.jump_value(Condition::AnyBit, R1, network_order(GRE_CHECKSUM), summed);
    need(program, at + 2 * GRE, otherwise);
    program.load(Width::Word, R5, R2, at + GRE);
    program.go(selected);
    program.place(summed);
    need(program, at + 3 * GRE, otherwise);
    program.load(Width::Word, R5, R2, at + 2 * GRE);
    program.go(selected);
}

/// Like `gre_fields` for a packet with the protocol in R5 (or its fragment), in which an IP packet follows
/// the IPv4 header.
fn protocol_fields(program: &mut Assembler, otherwise: Label) {
    let known = program.label();
    for protocol in IP_IN_IP_PROTOCOLS {
        program.jump_value(Condition::Equal, R5, protocol.0.into(), known);
    }
    program.go(otherwise);
    program.place(known);
    program.load(Width::Byte, R1, R2, ETHERNET);
    program.and(R1, 0xf0);
    program.jump_value(Condition::NotEqual, R1, 0x40, otherwise);
    program.copy(R0, R5);
    program.or(R0, SELECTOR_PROTOCOL);
    program.set(R5, 0);
}

/// Like `gre_fields` for a GRE fragment.
fn fragment_fields(program: &mut Assembler) {
    program.set(R0, SELECTOR_FRAGMENT);
    program.set(R5, 0);
}

/// Like `gre_fields` for a UDP header followed by VXLAN: the number is the VNI in packet byte order. All
/// flags except that of the VNI are ignored, as in the datapath (RFC 7348, 5).
fn vxlan_fields(program: &mut Assembler, at: i16, otherwise: Label) {
    let is_vxlan = program.label();
    need(program, at + UDP + VXLAN, otherwise);
    program.load(Width::Byte, R5, R2, at + UDP);
    program.jump_value(Condition::AnyBit, R5, VXLAN_VALID, is_vxlan);
    program.go(otherwise);
    program.place(is_vxlan);
    program.load(Width::Half, R0, R2, at + UDP_DESTINATION);
    program.load(Width::Word, R5, R2, at + UDP + 4);
    program.and(R5, 0xffff_ff00_u32.to_be().cast_signed());
}

/// Puts R0 and R5 on the stack.
///
/// The upper half of eight bytes of the stack is written first here and elsewhere: verifiers before Linux 6.8
/// take a word in the lower half for a spilled register, which may not be overwritten in part without
/// CAP_PERFMON.
fn enter(program: &mut Assembler, to: i16) {
    program.store(Width::Word, R10, to + 4, R5);
    program.store(Width::Word, R10, to, R0);
}

/// Copies destination and source of an IPv4 packet to the stack, the upper half first as in [`enter`].
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

/// Jumps to `otherwise` if the key at offset `key` of the stack is not in the table.
fn look_up(program: &mut Assembler, endpoints: BorrowedFd<'_>, key: i16, otherwise: Label) {
    program.map(R1, endpoints);
    program.copy(R2, R10);
    program.add(R2, i32::from(key));
    program.call(Helper::MapLookup);
    program.jump_value(Condition::Equal, R0, 0, otherwise);
}

/// Jumps to `otherwise` if the packet has fewer than `bytes` bytes in its first buffer.
pub(crate) fn need(program: &mut Assembler, bytes: i16, otherwise: Label) {
    program.copy(R4, R2);
    program.add(R4, i32::from(bytes));
    program.jump(Condition::Greater, R4, R3, otherwise);
}

/// Returns a 16-bit number as a load from a packet reads it.
pub(crate) fn network_order(value: u16) -> i32 {
    i32::from(value.to_be())
}

pub(crate) const ETHERNET: i16 = 14;
const TAG: i16 = 4;
pub(crate) const IPV4: i16 = 20;
const IPV6: i16 = 40;
/// Bytes of the shortest IPv6 extension header, and of every fragment header.
const EXTENSION: i16 = 8;
const UDP: i16 = 8;
/// Offset of the destination port in a UDP header.
const UDP_DESTINATION: i16 = 2;
/// Bytes of a GRE header without optional fields, and of each optional field.
const GRE: i16 = 4;
/// Flags of a GRE header: checksum present, key present.
const GRE_CHECKSUM: u16 = 0x8000;
const GRE_KEY: u16 = 0x2000;
/// Flags and version of headers that the datapath refuses (RFC 2784, 2.3 and 2.3.1).
const GRE_REFUSED: u16 = 0x4c07;
const VXLAN: i16 = 8;
/// Flag of a VXLAN header: the VNI is valid.
const VXLAN_VALID: i32 = 0x08;
const PROTOCOL_GRE: i32 = 47;
const PROTOCOL_UDP: i32 = 17;
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
            assert!(program.len() < 320, "{} instructions", program.len());
            assert_eq!(program.last(), Some(&EXIT));
        }
    }
}
