//! The program of a router's port: what the kernel would forward is taken from it.
//!
//! ```text
//! packets of a claimed tunnel, over IPv4 or IPv6 ────────────────────────▶ taken
//! to an ingress (our address on the link, and the VLAN), IPv4 or IPv6,
//! to a host's address, and none of this machine ──────▶ taken
//!   unless it lies in a network that is this machine's as a whole, or is for a client of DHCP
//! everything else: ARP, neighbour discovery, groups, broadcasts,
//! IPv6 link-local addresses, this machine's own, other VLANs, other stations ─▶ the kernel
//! ```

use super::{ETHERNET, IPV4, IPV6, Target, address, ends, is_claimed_v6, need, network_order, select_v4};
use crate::bpf::assembler::{Assembler, Condition, Helper, Label, Register, Width};
use crate::bpf::endpoints::Tables;
use Register::{R0, R1, R2, R5, R7, R8, R9, R10};
use std::os::fd::BorrowedFd;

/// The tables that the program reads for each packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouterMaps<'a> {
    /// Tunnels: local address, remote address, selector, number.
    pub(crate) endpoints: Tables<'a>,
    /// Doors: link-layer address, VLAN in network order, 0 for none.
    pub(crate) ingresses: BorrowedFd<'a>,
    /// IPv4 addresses of this machine.
    pub(crate) local4: BorrowedFd<'a>,
    /// IPv6 addresses of this machine.
    pub(crate) local6: BorrowedFd<'a>,
    /// IPv4 networks of this machine, and parts of them that are not; by length and address.
    pub(crate) land4: BorrowedFd<'a>,
    /// The same of IPv6.
    pub(crate) land6: BorrowedFd<'a>,
}

/// The stack, from its end: the ingress's key, the key of a tunnel over IPv4, which begins with the destination, IPv6
/// destination, and the key of a tunnel over IPv6, which ends where that destination is put afterwards. In front of a
/// destination there is room for its length as a network's.
const DOOR: i16 = -8;
const ENDS: i16 = -24;
const TARGET6: i16 = -32;
const ENDS6: i16 = -64;
/// The key of clients of DHCP, which is 0.0.0.0, and behind it 1 for a packet to one; where an IPv6 destination is otherwise.
const CLIENT: i16 = TARGET6;
/// UDP port of clients of DHCP.
const DHCP_CLIENT: u16 = 68;

/// Hands a router's packets to user space, and everything else to the kernel.
///
/// The IP header's length and checksum are the datapath's business; so are packets with a hop limit that is
/// used up, and those for which there is no route.
pub(crate) fn route(program: &mut Assembler, target: &impl Target, maps: RouterMaps<'_>) {
    let [ipv4, known, take, pass] = [(); 4].map(|()| program.label());
    enter(program, target, pass);
    program.jump_value(Condition::Equal, R9, network_order(0x0800), ipv4);
    program.jump_value(Condition::NotEqual, R9, network_order(0x86dd), pass);
    in_ipv6(program, maps, take, pass);
    program.go(known);

    program.place(ipv4);
    in_ipv4(program, maps, take, pass);

    program.place(known);
    program.jump_value(Condition::NotEqual, R0, 0, pass);

    program.place(take);
    target.take(program);

    program.place(pass);
    target.pass(program);
}

/// R7 is where the IP header is, less [`ETHERNET`]; R9 what it is of; the ingress's key stands on the stack.
/// R2 and the end of the packet in R3 are R7 and as before.
fn enter(program: &mut Assembler, target: &impl Target, pass: Label) {
    target.open(program);
    need(program, ETHERNET + IPV4, pass);
    program.load(Width::Word, R0, R2, 0);
    program.load(Width::Half, R5, R2, 4);
    program.store(Width::Half, R10, DOOR + 4, R5);
    target.untag(program, pass);
    program.store(Width::Half, R10, DOOR + 6, R8);
    // Last, since it begins eight bytes of the stack: before Linux 6.2 nothing may be written to them in part once the
    // verifier follows what is there.
    program.store(Width::Word, R10, DOOR, R0);
    program.copy(R7, R2);
}

/// R0 is 0 when the packet is to be taken, unless it has jumped.
fn in_ipv4(program: &mut Assembler, maps: RouterMaps<'_>, take: Label, pass: Label) {
    let [unclaimed, usual] = [(); 2].map(|()| program.label());
    program.load(Width::Byte, R5, R7, ETHERNET);
    program.and(R5, 0xf0);
    program.jump_value(Condition::NotEqual, R5, 0x40, pass);
    ends(program, R7, ENDS);
    note_dhcp(program);
    program.load(Width::Byte, R8, R7, ETHERNET + 16);
    program.load(Width::Word, R9, R7, ETHERNET + 16);
    select_v4(program, ENDS, unclaimed);
    lookup(program, maps.endpoints.v4, ENDS);
    program.jump_value(Condition::NotEqual, R0, 0, take);
    program.place(unclaimed);
    for_dhcp_client(program, maps.local4, pass);
    // This host; loops; groups; the broadcast of every link. The kernel forwards all others (RFC 6890).
    program.jump_value(Condition::Equal, R9, 0, pass);
    program.jump_value(Condition::Equal, R8, 127, pass);
    program.and(R8, 0xf0);
    program.jump_value(Condition::Equal, R8, 0xe0, pass);
    program.load(Width::Half, R5, R10, ENDS);
    program.jump_value(Condition::NotEqual, R5, 0xffff, usual);
    program.load(Width::Half, R5, R10, ENDS + 2);
    program.jump_value(Condition::Equal, R5, 0xffff, pass);
    program.place(usual);
    unless_in_land(program, maps.land4, (ENDS, 32), pass);
    lookup(program, maps.ingresses, DOOR);
    program.jump_value(Condition::Equal, R0, 0, pass);
    lookup(program, maps.local4, ENDS);
}

/// Notes on the stack whether a packet goes to the port of clients of DHCP. R2, R3 and R7 stay alone.
fn note_dhcp(program: &mut Assembler) {
    let other = program.label();
    program.set(R5, 0);
    program.store(Width::Word, R10, CLIENT, R5);
    program.store(Width::Word, R10, CLIENT + 4, R5);
    program.load(Width::Byte, R5, R7, ETHERNET + 9);
    program.jump_value(Condition::NotEqual, R5, libc::IPPROTO_UDP, other);
    program.load(Width::Byte, R5, R7, ETHERNET);
    program.jump_value(Condition::NotEqual, R5, 0x45, other);
    program.load(Width::Half, R5, R7, ETHERNET + 6);
    program.and(R5, network_order(0x1fff));
    program.jump_value(Condition::NotEqual, R5, 0, other);
    need(program, ETHERNET + IPV4 + 4, other);
    program.load(Width::Half, R5, R7, ETHERNET + IPV4 + 2);
    program.jump_value(Condition::NotEqual, R5, network_order(DHCP_CLIENT), other);
    program.set(R5, 1);
    program.store(Width::Word, R10, CLIENT + 4, R5);
    program.place(other);
}

/// Jumps to `pass` with a packet to the port of clients of DHCP: it may be for an address that the machine is offered and does
/// not have yet (RFC 2131, section 4.1). The address 0.0.0.0 among those of the machine says that there may be a client.
fn for_dhcp_client(program: &mut Assembler, local4: BorrowedFd<'_>, pass: Label) {
    let other = program.label();
    program.load(Width::Word, R5, R10, CLIENT + 4);
    program.jump_value(Condition::Equal, R5, 0, other);
    lookup(program, local4, CLIENT);
    program.jump_value(Condition::NotEqual, R0, 0, pass);
    program.place(other);
}

/// R0 is 0 when the packet is to be taken, unless it has jumped.
fn in_ipv6(program: &mut Assembler, maps: RouterMaps<'_>, take: Label, pass: Label) {
    let unclaimed = program.label();
    need(program, ETHERNET + IPV6, pass);
    is_claimed_v6(program, maps.endpoints.v6, ENDS6, unclaimed);
    program.go(take);
    program.place(unclaimed);
    address(program, R7, (ETHERNET + 24, TARGET6));
    program.load(Width::Byte, R8, R7, ETHERNET + 24);
    program.load(Width::Half, R9, R7, ETHERNET + 24);
    // Groups; link-local (RFC 4291, section 2.4).
    program.jump_value(Condition::Equal, R8, 0xff, pass);
    program.and(R9, network_order(0xffc0));
    program.jump_value(Condition::Equal, R9, network_order(0xfe80), pass);
    unless_in_land(program, maps.land6, (TARGET6, 128), pass);
    lookup(program, maps.ingresses, DOOR);
    program.jump_value(Condition::Equal, R0, 0, pass);
    lookup(program, maps.local6, TARGET6);
}

/// Jumps to `pass` when the address of `bits` bits on the stack lies in a network of this machine, or one that is left to
/// the kernel: before the other look-ups, which such a packet needs not.
fn unless_in_land(program: &mut Assembler, map: BorrowedFd<'_>, (address, bits): (i16, i32), pass: Label) {
    let elsewhere = program.label();
    program.set(R5, bits);
    program.store(Width::Word, R10, address - 4, R5);
    lookup(program, map, address - 4);
    program.jump_value(Condition::Equal, R0, 0, elsewhere);
    program.load(Width::Word, R0, R0, 0);
    program.jump_value(Condition::NotEqual, R0, 0, pass);
    program.place(elsewhere);
}

/// R0 is where the value of the key on the stack is, or 0.
fn lookup(program: &mut Assembler, map: BorrowedFd<'_>, key: i16) {
    program.map(R1, map);
    program.copy(R2, R10);
    program.add(R2, i32::from(key));
    program.call(Helper::MapLookup);
}
