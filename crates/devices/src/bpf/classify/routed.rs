//! The program of a router's port, which takes the packets that the kernel would forward.
//!
//! ```text
//! packets of a claimed tunnel, over IPv4 or IPv6 ────────────────────────▶ taken
//! to an ingress (the port's MAC address and VLAN), IPv4 or IPv6,
//! to a unicast address that is not local to this host ──────▶ taken
//!   unless it is in a local prefix, or for a DHCP client
//! all others: ARP, neighbour discovery, multicast, broadcasts,
//! IPv6 link-local addresses, local addresses, other VLANs, other MAC addresses ─▶ the kernel
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
    /// Ingresses: MAC address, and VLAN in network byte order (0 for none).
    pub(crate) ingresses: BorrowedFd<'a>,
    /// IPv4 addresses of this host.
    pub(crate) local4: BorrowedFd<'a>,
    /// IPv6 addresses of this host.
    pub(crate) local6: BorrowedFd<'a>,
    /// Local IPv4 prefixes, and parts of them that are not local; by length and address.
    pub(crate) land4: BorrowedFd<'a>,
    /// Local IPv6 prefixes, in the same form.
    pub(crate) land6: BorrowedFd<'a>,
}

/// Stack slots, from its end: the ingress's key; the key of a tunnel over IPv4, which starts with the
/// destination; the IPv6 destination; the key of a tunnel over IPv6, which ends where that destination is put
/// afterwards. Each destination is preceded by room for a prefix length.
const DOOR: i16 = -8;
const ENDS: i16 = -24;
const TARGET6: i16 = -32;
const ENDS6: i16 = -64;
/// Stack slot of a key for DHCP clients: 0.0.0.0, followed by 1 for a packet to a client. Shares the slot of
/// the IPv6 destination.
const CLIENT: i16 = TARGET6;
/// UDP port of DHCP clients.
const DHCP_CLIENT: u16 = 68;

/// Passes a router's packets to user space, and all others to the kernel.
///
/// The datapath checks the IP header's length and checksum, and handles packets with a used-up TTL and
/// packets without a route.
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

/// Sets R7 to the IP header minus [`ETHERNET`], and R9 to the EtherType; puts the ingress's key on the stack.
/// R2 equals R7, and the end of the packet stays in R3.
fn enter(program: &mut Assembler, target: &impl Target, pass: Label) {
    target.open(program);
    need(program, ETHERNET + IPV4, pass);
    target.destination(program, [R0, R5]);
    program.store(Width::Half, R10, DOOR + 4, R5);
    target.untag(program, pass);
    program.store(Width::Half, R10, DOOR + 6, R8);
    // Written last, since it starts an eight-byte slot of the stack: before Linux 6.2 the slot may not be
    // written in part once the verifier tracks its content.
    program.store(Width::Word, R10, DOOR, R0);
    program.copy(R7, R2);
}

/// Sets R0 to 0 if the packet is to be taken, unless it has jumped.
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
    // This host; loopback; multicast; the limited broadcast. The kernel forwards all others (RFC 6890).
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

/// Records on the stack if a packet goes to the port of DHCP clients. R2, R3 and R7 are kept.
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

/// Jumps to `pass` with a packet to the port of DHCP clients: its destination may be an address that is
/// offered to this host and not configured yet (RFC 2131, section 4.1). The address 0.0.0.0 among the local
/// addresses marks that there may be a client.
fn for_dhcp_client(program: &mut Assembler, local4: BorrowedFd<'_>, pass: Label) {
    let other = program.label();
    program.load(Width::Word, R5, R10, CLIENT + 4);
    program.jump_value(Condition::Equal, R5, 0, other);
    lookup(program, local4, CLIENT);
    program.jump_value(Condition::NotEqual, R0, 0, pass);
    program.place(other);
}

/// Sets R0 to 0 if the packet is to be taken, unless it has jumped.
fn in_ipv6(program: &mut Assembler, maps: RouterMaps<'_>, take: Label, pass: Label) {
    let unclaimed = program.label();
    need(program, ETHERNET + IPV6, pass);
    is_claimed_v6(program, maps.endpoints.v6, ENDS6, unclaimed);
    program.go(take);
    program.place(unclaimed);
    address(program, R7, (ETHERNET + 24, TARGET6));
    program.load(Width::Byte, R8, R7, ETHERNET + 24);
    program.load(Width::Half, R9, R7, ETHERNET + 24);
    // Multicast; link-local (RFC 4291, section 2.4).
    program.jump_value(Condition::Equal, R8, 0xff, pass);
    program.and(R9, network_order(0xffc0));
    program.jump_value(Condition::Equal, R9, network_order(0xfe80), pass);
    unless_in_land(program, maps.land6, (TARGET6, 128), pass);
    lookup(program, maps.ingresses, DOOR);
    program.jump_value(Condition::Equal, R0, 0, pass);
    lookup(program, maps.local6, TARGET6);
}

/// Jumps to `pass` if the address of `bits` bits on the stack is in a prefix that stays with the kernel. This
/// comes first, since such a packet needs no other look-up.
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

/// Sets R0 to the address of the value for the key on the stack, or to 0.
fn lookup(program: &mut Assembler, map: BorrowedFd<'_>, key: i16) {
    program.map(R1, map);
    program.copy(R2, R10);
    program.add(R2, i32::from(key));
    program.call(Helper::MapLookup);
}
