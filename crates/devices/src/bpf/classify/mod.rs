//! Classification of an interface's packets, the same at every hook.
//!
//! [`claim`] takes the packets of tunnels that are in a table, for a port that the kernel goes on using.
//! [`route`] takes these and what a router is to forward. How a packet is read, and what becomes of one that is taken
//! or left, is the [`Target`]'s. [`control`] tells packets of control protocols from others.

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

/// Hands the packets of claimed tunnels to user space, below at most one 802.1Q tag, and everything else to the kernel.
///
/// A tunnel is known by its two ends and by what tells it from others between them ([`TunnelFields`]): packets of other
/// tunnels between the same ends are the kernel's. In IPv4 packets of GRE are those of protocol 47. In IPv6 the next
/// header is 47, or it stands behind destination options of eight bytes (as Linux sends them), a fragment header, or one
/// behind the other in this order. Packets of GRE of another version or with routing are the kernel's.
///
/// Later fragments have no GRE header, so all fragments of GRE between two ends are taken when one tunnel is (RFC 791,
/// section 3.2). A packet of IPv4 or IPv6 in IPv4 is known by its protocol, which each fragment has. Packets over UDP are known by their destination port, which later fragments do not have: fragments of
/// UDP stay with the kernel, and so does UDP behind options of IPv4 or extension headers of IPv6. The
/// headers' lengths and checksums are the datapath's business.
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

/// Puts selector and number of the IPv4 packet at R2 behind the ends of the key at this place of the stack, and jumps to
/// `otherwise` when no tunnel can have such packets. R2 changes.
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
    // Verifiers take no offset that is not known to them without CAP_PERFMON.
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

/// Goes on when the IPv6 packet at R2 is claimed, and jumps to `otherwise` when it is not. The key is at this place of
/// the stack. R2 changes.
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
    // Every fragment says what the first one begins with.
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

/// Puts the selector of the packet with a GRE header at this offset from R2 into R0, and its key, or 0, into R5, and goes
/// on to `selected`. Jumps to `otherwise` for a header that no tunnel has.
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

/// The same of a packet with the protocol in R5, or a fragment of one, behind whose IPv4 header another IP packet follows.
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

/// The same of a fragment of GRE.
fn fragment_fields(program: &mut Assembler) {
    program.set(R0, SELECTOR_FRAGMENT);
    program.set(R5, 0);
}

/// The same of a UDP header with VXLAN behind it: its number is the VNI, as it stands in the packet. All flags but that of
/// the VNI are ignored, as in the datapath (RFC 7348, 5).
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
/// The upper half of a stack's eight bytes comes first here and elsewhere: verifiers before Linux 6.8 take a word in
/// the lower half for a register that was put aside, into which nothing may be written without CAP_PERFMON.
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
/// A GRE header without optional fields, and each of these.
const GRE: i16 = 4;
/// Flags of a GRE header: a checksum, a key.
const GRE_CHECKSUM: u16 = 0x8000;
const GRE_KEY: u16 = 0x2000;
/// Flags and version of headers that the datapath refuses (RFC 2784, 2.3 and 2.3.1).
const GRE_REFUSED: u16 = 0x4c07;
const VXLAN: i16 = 8;
/// Flag of a VXLAN header: there is a VNI.
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
