//! Recognition of control packets, by which networks check that a path works: they are dropped last.
//!
//! | packets | known by |
//! |---|---|
//! | LACP, STP, LLDP, 802.1X, IS-IS | destination 01:80:c2:00:00:xx (IEEE 802.1Q, 8.6.3; ISO 10589) |
//! | ARP | EtherType |
//! | neighbour and router discovery | ICMPv6 types 133 to 137 (RFC 4861, 4) |
//! | OSPF, VRRP | protocols 89 and 112 (RFC 2328; RFC 5340; RFC 9568) |
//! | BFD | UDP to port 3784, 3785 (RFC 5881), 4784 (RFC 5883) or 6784 (RFC 7130) |
//! | BGP | TCP from or to port 179 (RFC 4271) |
//!
//! The frame may have one tag. A UDP or TCP fragment is no control packet. After IPv4 options only the protocol
//! number counts; a packet with IPv6 extension headers is no control packet.

use super::{ETHERNET, IPV4, IPV6, PROTOCOL_UDP, TAG, UDP_DESTINATION, need, network_order};
use crate::bpf::assembler::{Assembler, Condition, Label, Register, Width};
use crate::bpf::flows::hook::Hook;
use Register::{R0, R2, R5};

/// Jumps to `control` for a packet of a control protocol, else to `bulk`. The frame starts at R2 and ends at
/// R3; R0, R2, R4 and R5 change.
pub(crate) fn control(program: &mut Assembler, hook: &impl Hook, (control, bulk): (Label, Label)) {
    let [ipv4, transport] = [(); 2].map(|()| program.label());
    if hook.has_ethernet() {
        link_layer(program, control, bulk);
    } else {
        hook.ether_type(program, R2, R5);
    }
    program.jump_value(Condition::Equal, R5, network_order(0x0800), ipv4);
    program.jump_value(Condition::NotEqual, R5, network_order(0x86dd), bulk);
    in_ipv6(program, (control, bulk), transport);

    program.place(ipv4);
    need(program, ETHERNET + IPV4, bulk);
    program.load(Width::Byte, R5, R2, ETHERNET + 9);
    by_protocol(program, control);
    program.load(Width::Half, R0, R2, ETHERNET + 6);
    program.and(R0, network_order(0x3fff));
    program.jump_value(Condition::NotEqual, R0, 0, bulk);
    program.load(Width::Byte, R0, R2, ETHERNET);
    program.jump_value(Condition::NotEqual, R0, 0x45, bulk);

    program.place(transport);
    by_port(program, control, bulk);
}

/// Puts the EtherType into R5 and moves R2 so that the network header is [`ETHERNET`] bytes after it, unless
/// it has jumped.
fn link_layer(program: &mut Assembler, control: Label, bulk: Label) {
    let [station, tagged, typed] = [(); 3].map(|()| program.label());
    need(program, ETHERNET, bulk);
    program.load(Width::Word, R5, R2, 0);
    program.jump_value(Condition::NotEqual, R5, RESERVED_GROUPS, station);
    program.load(Width::Byte, R5, R2, 4);
    program.jump_value(Condition::Equal, R5, 0, control);
    program.place(station);
    program.load(Width::Half, R5, R2, 12);
    program.jump_value(Condition::Equal, R5, network_order(0x8100), tagged);
    program.jump_value(Condition::Equal, R5, network_order(0x88a8), tagged);
    program.go(typed);
    program.place(tagged);
    need(program, ETHERNET + TAG, bulk);
    program.load(Width::Half, R5, R2, 16);
    program.add(R2, i32::from(TAG));
    program.place(typed);
    program.jump_value(Condition::Equal, R5, network_order(0x0806), control);
}

/// Jumps to `transport` with R2 as for an IPv4 packet and the protocol in R5, unless it has jumped.
fn in_ipv6(program: &mut Assembler, (control, bulk): (Label, Label), transport: Label) {
    need(program, ETHERNET + IPV6, bulk);
    program.load(Width::Byte, R5, R2, ETHERNET + 6);
    by_protocol(program, control);
    program.add(R2, i32::from(IPV6 - IPV4));
    program.jump_value(Condition::NotEqual, R5, PROTOCOL_ICMPV6, transport);
    need(program, ETHERNET + IPV4 + 1, bulk);
    program.load(Width::Byte, R5, R2, ETHERNET + IPV4);
    program.add(R5, -ROUTER_SOLICITATION);
    // Lower types have become very large numbers.
    program.jump_value(Condition::Greater, R5, REDIRECT - ROUTER_SOLICITATION, bulk);
    program.go(control);
}

/// Jumps to `control` if the protocol in R5 is a control protocol.
fn by_protocol(program: &mut Assembler, control: Label) {
    for protocol in [PROTOCOL_OSPF, PROTOCOL_VRRP] {
        program.jump_value(Condition::Equal, R5, protocol, control);
    }
}

/// Decides by the ports of the protocol in R5, whose header follows an IPv4 header at R2.
fn by_port(program: &mut Assembler, control: Label, bulk: Label) {
    let tcp = program.label();
    need(program, ETHERNET + IPV4 + PORTS, bulk);
    program.jump_value(Condition::Equal, R5, PROTOCOL_TCP, tcp);
    program.jump_value(Condition::NotEqual, R5, PROTOCOL_UDP, bulk);
    program.load(Width::Half, R5, R2, ETHERNET + IPV4 + UDP_DESTINATION);
    for port in BFD {
        program.jump_value(Condition::Equal, R5, network_order(port), control);
    }
    program.go(bulk);
    program.place(tcp);
    for at in [0, 2] {
        program.load(Width::Half, R5, R2, ETHERNET + IPV4 + at);
        program.jump_value(Condition::Equal, R5, network_order(BGP), control);
    }
    program.go(bulk);
}

/// The first four bytes of reserved group addresses, in load byte order.
pub(crate) const RESERVED_GROUPS: i32 = i32::from_ne_bytes([0x01, 0x80, 0xc2, 0x00]);
/// Bytes of source and destination port.
const PORTS: i16 = 4;
const BFD: [u16; 4] = [3784, 3785, 4784, 6784];
const BGP: u16 = 179;
const PROTOCOL_TCP: i32 = 6;
const PROTOCOL_ICMPV6: i32 = 58;
const PROTOCOL_OSPF: i32 = 89;
const PROTOCOL_VRRP: i32 = 112;
const ROUTER_SOLICITATION: i32 = 133;
const REDIRECT: i32 = 137;
