//! Ingress program: carries packets of open connections, and stamps all other packets.

use super::HEARTBEAT;
use super::entry::{
    ADDRESS_DIFFERENCE, BYTES, DESTINATION, ENDED, EVIDENCE, FLAGS, HIGHEST_END, INPUT, LAST_ACK, LEAVES,
    LINK, LONGEST, OPEN, OUTPUT, PACKETS, PORT_DIFFERENCE, PORTS, PROTOCOL, TCP, TRANSLATED, VERSION, WINDOW,
};
use super::generation::{CHANGES, STAMP, consents, of_entry, same_hop, stamp, tell};
use super::packet::{
    ACK, BELOW, Ends, FIN, IPV6, KEY, LINK_PARTS, OFFSET, RST, SYN, Version, count, end, found, is_of_key,
    is_tcp, longest, look_up, look_up_peer, read, sequence, track,
};
use super::words::{BEAT, CARRIED_ENDS, ConnectionMaps, ENDED_WORD, LATE, NONCE, UP, at};
use crate::bpf::assembler::{Arithmetic, Assembler, Condition, Helper, Label, Operand, Register, Width};
use crate::bpf::classify::{ETHERNET, IPV4, need, network_order};
use crate::bpf::flows::hook::Hook as _;
use crate::bpf::flows::program::verify_v4;
use crate::checks::Check;
use crate::netlink::link::LinkLayer;
use crate::skb::context::{DATA, DATA_END, LENGTH};
use crate::skb::program::{CONTROL_BLOCK, INTERFACE, ToTap};
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// Carries the packet and exits, or stamps it and continues. Expects the context in R6; all other registers change.
pub(in crate::skb) fn carry(program: &mut Assembler, maps: ConnectionMaps<'_>, port: &ToTap<'_>) {
    let [late, odd, rest, fits, close, lose, examined] = [(); 7].map(|()| program.label());
    port.if_examined(program, examined);
    program.map_value(R7, maps.words);
    // Read first: any later change is newer than the stamp.
    program.load(Width::Double, R8, R7, at(CHANGES));
    program.load(Width::Double, R9, R7, at(BEAT));
    // The clock has a sequence counter, whose barrier has all later loads be newer (`read_seqcount_retry`).
    program.call(Helper::NowCoarse);
    program.subtract(R0, R9);
    program.store(Width::Double, R10, AGE, R0);
    short_headers(program, port);
    if Check::ConnectionHost.is_made() {
        port.is_for_host(program, rest);
    }
    read(program, (port.layer, Ends::AsSent), (odd, rest), |program, version| {
        check(program, port, version, odd);
    });
    look_up(program, maps.entries, KEY);
    found(program, rest);
    program.copy(R9, R0);
    note(program, maps, port.layer);
    program.load(Width::Double, R0, R10, AGE);
    let is_made = Check::ConnectionHeartbeat.is_made();
    let most = if is_made { i32::try_from(HEARTBEAT.as_nanos()).unwrap_or(0) } else { i32::MAX };
    // The coarse clock may be behind the heartbeat.
    program.jump_value(Condition::SignedGreater, R0, most, late);
    is_open(program, maps, odd);
    judge_tcp(program, maps, (odd, fits, close));
    program.place(fits);
    longest(program, port.layer);
    program.load(Width::Word, R4, R9, LONGEST);
    if Check::ConnectionLength.is_made() {
        program.jump(Condition::Greater, R5, R4, odd);
    }
    port.add_ethernet(program, lose);
    rewrite(program, lose);
    // The loads of the translation are complete.
    program.order_loads(ORDER);
    is_of_key(program, lose);
    send(program, maps, port);

    program.place(close);
    close_both(program, maps, odd);
    program.place(lose);
    port.windows(program);
    port.lose(program);
    program.place(late);
    count(program, maps.words, at(LATE));
    // The kernel may receive a packet of a carried connection.
    program.place(odd);
    count(program, maps.words, at(UP));
    program.place(rest);
    stamp(program, R8);
    program.store(Width::Word, R6, STAMP, R5);
    program.place(examined);
}

/// Stamps a packet that the gateway returned by the punt path. Expects the context in R6; R5, R7 and R8 change.
pub(in crate::skb) fn stamp_returned(program: &mut Assembler, maps: ConnectionMaps<'_>) {
    program.map_value(R7, maps.words);
    program.load(Width::Double, R8, R7, at(CHANGES));
    stamp(program, R8);
    program.store(Width::Word, R6, STAMP, R5);
}

/// Makes headers readable as `headers` does, without the call for IPv4 packets whose first 60 bytes are linear.
fn short_headers(program: &mut Assembler, port: &ToTap<'_>) {
    let [more, ready] = [(); 2].map(|()| program.label());
    port.frame(program);
    need(program, SHORT, more);
    port.ether_type(program, R2, R5);
    program.jump_value(Condition::Equal, R5, network_order(0x0800), ready);
    program.place(more);
    port.headers(program);
    program.place(ready);
}

/// Linear bytes that hold all headers read here, if there are no IP options.
const SHORT: i16 = 60;

/// Jumps to `rest` unless the entry at R9 is open for packets of this interface.
fn is_open(program: &mut Assembler, maps: ConnectionMaps<'_>, rest: Label) {
    of_entry(program, maps, R9, R4);
    program.load(Width::Double, R5, R9, OPEN);
    if Check::ConnectionGeneration.is_made() {
        program.jump(Condition::NotEqual, R5, R4, rest);
    } else {
        program.jump_value(Condition::Equal, R5, 0, rest);
    }
    if Check::ConnectionHop.is_made() {
        same_hop(program, maps, R9, rest);
    }
    // Pairs with the order of stores in `evidence`: all other fields were stored before the entry opened.
    program.order_loads(ORDER);
    program.load(Width::Word, R4, R6, INTERFACE);
    program.load(Width::Word, R5, R9, INPUT);
    program.jump(Condition::NotEqual, R4, R5, rest);
    program.load(Width::Word, R5, R9, FLAGS);
    program.jump_value(Condition::AnyBit, R5, ENDED, rest);
    consents(program, maps, R9, rest);
}

/// Jumps to `rest` for a packet with an invalid IP header or an expiring TTL. Stores the decremented TTL on the stack.
fn check(program: &mut Assembler, port: &ToTap<'_>, version: Version, rest: Label) {
    let (hops, length, others) = match version {
        Version::V4 => (8, 2, ETHERNET),
        Version::V6 => (7, 4, ETHERNET + IPV6),
    };
    program.load(Width::Byte, R5, R2, ETHERNET + hops);
    if Check::ConnectionHops.is_made() {
        program.jump_value(Condition::NotGreater, R5, 1, rest);
    }
    program.add(R5, -1);
    program.store(Width::Byte, R10, HOPS, R5);
    program.load(Width::Half, R5, R2, ETHERNET + length);
    program.network_order(R5);
    program.add(R5, i32::from(others));
    port.length(program, R4);
    program.jump(Condition::NotEqual, R5, R4, rest);
    if version == Version::V4 {
        verify_v4(program, R2, rest);
    }
}

/// Updates the TCP state of the entry at R9, also for segments that the kernel gets: RST and FIN are checked against it. Ignores
/// segments that arrive on another interface than the connection's.
fn note(program: &mut Assembler, maps: ConnectionMaps<'_>, link: LinkLayer) {
    let noted = program.label();
    program.load(Width::Word, R4, R6, INTERFACE);
    program.load(Width::Word, R5, R9, INPUT);
    program.jump(Condition::NotEqual, R4, R5, noted);
    is_tcp(program, noted);
    program.load(Width::Byte, R5, R7, ETHERNET + 13);
    program.jump_value(Condition::AnyBit, R5, SYN | FIN | RST, noted);
    track(program, maps, link);
    program.place(noted);
}

/// Checks a TCP segment: jumps to `close` for a SYN, to `rest` for an exact RST or a FIN in the window, to `fits` otherwise.
fn judge_tcp(program: &mut Assembler, maps: ConnectionMaps<'_>, (rest, fits, close): (Label, Label, Label)) {
    let [ends, fin, ended, carried] = [(); 4].map(|()| program.label());
    is_tcp(program, fits);
    program.load(Width::Byte, R5, R7, ETHERNET + 12);
    program.jump_value(Condition::NotGreater, R5, 0x4f, rest);
    program.load(Width::Byte, R5, R7, ETHERNET + 13);
    program.jump_value(Condition::AnyBit, R5, SYN, close);
    program.copy(R4, R5);
    // Conntrack calls a segment without ACK and RST invalid.
    program.and(R4, RST | ACK);
    program.jump_value(Condition::Equal, R4, 0, rest);
    program.jump_value(Condition::AnyBit, R5, RST | FIN, ends);
    program.go(fits);

    program.place(ends);
    look_up_peer(program, maps.entries, R9);
    found(program, rest);
    sequence(program, R1);
    program.load(Width::Word, R2, R9, HIGHEST_END);
    program.load(Width::Byte, R5, R7, ETHERNET + 13);
    program.and(R5, RST);
    program.jump_value(Condition::Equal, R5, 0, fin);
    program.jump_word(Condition::Equal, R1, Operand::Register(R2), ended);
    program.load(Width::Word, R2, R0, LAST_ACK);
    program.jump_word(Condition::Equal, R1, Operand::Register(R2), ended);
    program.go(if Check::ConnectionReset.is_made() { carried } else { ended });

    program.place(fin);
    program.load(Width::Word, R3, R0, WINDOW);
    program.compute_word(Arithmetic::Subtract, R1, Operand::Register(R2));
    program.compute_word(Arithmetic::Add, R1, Operand::Register(R3));
    program.compute_word(Arithmetic::ShiftLeft, R3, Operand::Value(1));
    if Check::ConnectionFin.is_made() {
        program.jump_word(Condition::NotGreater, R1, Operand::Register(R3), ended);
    } else {
        program.go(ended);
    }
    program.place(carried);
    count(program, maps.words, at(CARRIED_ENDS));
    program.go(fits);

    program.place(ended);
    end(program, R9);
    end(program, R0);
    count(program, maps.words, at(ENDED_WORD));
    tell(program, maps, R9);
    program.go(rest);
}

/// Closes both directions until the kernel forwards packets of both again.
fn close_both(program: &mut Assembler, maps: ConnectionMaps<'_>, rest: Label) {
    program.set(R5, 0);
    for field in [OPEN, EVIDENCE] {
        program.store(Width::Double, R9, field, R5);
    }
    look_up_peer(program, maps.entries, R9);
    found(program, rest);
    program.set(R5, 0);
    for field in [OPEN, EVIDENCE] {
        program.store(Width::Double, R0, field, R5);
    }
    program.go(rest);
}

/// Rewrites MAC addresses, TTL, addresses and ports as the kernel does. Jumps to `lose` if a helper fails.
///
/// `CHECKSUM_COMPLETE` stays valid: in an IPv4 packet the header checksum compensates for the other changes. IPv6 has no header
/// checksum, so addresses and hop limit are stored with `BPF_F_RECOMPUTE_CSUM`.
fn rewrite(program: &mut Assembler, lose: Label) {
    let [ipv6, plain, same_ports, written] = [(); 4].map(|()| program.label());
    program.load(Width::Word, R7, R9, FLAGS);
    program.and(R7, TRANSLATED);
    program.jump_value(Condition::Equal, R7, 0, plain);
    transport_checksum(program, (ADDRESS_DIFFERENCE, PSEUDO_HEADER), lose);
    program.load(Width::Word, R5, R9, PORT_DIFFERENCE);
    program.jump_value(Condition::Equal, R5, 0, same_ports);
    transport_checksum(program, (PORT_DIFFERENCE, 0), lose);
    program.place(same_ports);
    program.place(plain);
    program.load(Width::Byte, R5, R10, KEY + VERSION);
    program.jump_value(Condition::Equal, R5, 6, ipv6);
    rewrite_v4(program, lose);
    program.go(written);
    program.place(ipv6);
    rewrite_v6(program, lose);
    program.place(written);
}

/// Rewrites the linear headers of an IPv4 packet in place. R1 to R5 change.
fn rewrite_v4(program: &mut Assembler, lose: Label) {
    let plain = program.label();
    program.load(Width::Word, R2, R6, DATA);
    program.load(Width::Word, R3, R6, DATA_END);
    need(program, ETHERNET + IPV4 + PORTS_BYTES, lose);
    for (at, width) in LINK_PARTS {
        program.load(width, R5, R9, LINK + at);
        program.store(width, R2, at, R5);
    }
    program.load(Width::Byte, R5, R10, HOPS);
    program.store(Width::Byte, R2, ETHERNET + 8, R5);
    // RFC 1624. A TTL decrement changes the sum by a constant.
    program.load(Width::Half, R4, R2, ETHERNET + 10);
    program.exclusive_or(R4, 0xffff);
    program.load(Width::Word, R5, R9, ADDRESS_DIFFERENCE);
    program.add_register(R4, R5);
    program.add(R4, network_order(0xfeff));
    for _ in 0..2 {
        program.copy(R5, R4);
        program.shift_right(R5, 16);
        program.and(R4, 0xffff);
        program.add_register(R4, R5);
    }
    program.exclusive_or(R4, 0xffff);
    program.store(Width::Half, R2, ETHERNET + 10, R4);
    program.jump_value(Condition::Equal, R7, 0, plain);
    for (field, to) in [(0, 12), (DESTINATION, 16), (PORTS, IPV4)] {
        program.load(Width::Word, R5, R9, LEAVES + field);
        program.store(Width::Word, R2, ETHERNET + to, R5);
    }
    program.place(plain);
}

/// Rewrites an IPv6 packet by helpers, which keep `CHECKSUM_COMPLETE` valid.
fn rewrite_v6(program: &mut Assembler, lose: Label) {
    let plain = program.label();
    program.jump_value(Condition::Equal, R7, 0, plain);
    for (field, to) in [(0, 8), (DESTINATION, 24)] {
        store(program, (ETHERNET + to, R9, LEAVES + field), (16, RECOMPUTE), lose);
    }
    store(program, (ETHERNET + IPV6, R9, LEAVES + PORTS), (4, 0), lose);
    program.place(plain);
    store(program, (ETHERNET + 7, R10, HOPS), (1, RECOMPUTE), lose);
    store(program, (0, R9, LINK), (12, 0), lose);
}

/// Updates the transport checksum by a difference that the entry has.
fn transport_checksum(program: &mut Assembler, (difference, flags): (i16, i32), lose: Label) {
    let [udp, known] = [(); 2].map(|()| program.label());
    program.copy(R1, R6);
    program.load(Width::Double, R2, R10, OFFSET);
    program.load(Width::Byte, R5, R10, KEY + PROTOCOL);
    program.jump_value(Condition::NotEqual, R5, TCP, udp);
    program.add(R2, 16);
    program.set(R5, flags);
    program.go(known);
    program.place(udp);
    program.add(R2, 6);
    program.set(R5, if Check::ConnectionNoSum.is_made() { flags | NONE_IF_ZERO } else { flags });
    program.place(known);
    program.set(R3, 0);
    program.load(Width::Word, R4, R9, difference);
    program.call(Helper::ReplaceTransportChecksum);
    program.jump_value(Condition::NotEqual, R0, 0, lose);
}

/// Calls `bpf_skb_store_bytes`; jumps to `lose` if it fails.
fn store(
    program: &mut Assembler,
    (to, from, offset): (i16, Register, i16),
    (bytes, flags): (i32, i32),
    lose: Label,
) {
    program.copy(R1, R6);
    program.set(R2, i32::from(to));
    program.copy(R3, from);
    program.add(R3, i32::from(offset));
    program.set(R4, bytes);
    program.set(R5, flags);
    program.call(Helper::StoreBytes);
    program.jump_value(Condition::NotEqual, R0, 0, lose);
}

/// Counts the packet, stores the nonce for the egress program in its control block, and redirects it.
fn send(program: &mut Assembler, maps: ConnectionMaps<'_>, port: &ToTap<'_>) {
    port.wire_packets(program);
    program.count(R9, PACKETS, R1);
    program.load(Width::Word, R5, R6, LENGTH);
    lots(program, maps);
    program.map_value(R1, maps.words);
    program.load(Width::Double, R5, R1, at(NONCE));
    program.store(Width::Word, R6, CONTROL_BLOCK, R5);
    program.shift_right(R5, 32);
    program.store(Width::Word, R6, CONTROL_BLOCK + 4, R5);
    program.load(Width::Word, R1, R9, OUTPUT);
    program.set(R2, 0);
    program.call(Helper::Redirect);
    program.exit();
}

/// Adds R5 to the byte counter of the entry, and posts an event at each multiple of 512 MiB. R1 to R5 change.
fn lots(program: &mut Assembler, maps: ConnectionMaps<'_>) {
    let same = program.label();
    program.copy(R2, R5);
    program.count_fetching(R9, BYTES, R5);
    program.add_register(R2, R5);
    program.exclusive_or_register(R2, R5);
    program.shift_right(R2, LOT_BITS);
    program.jump_value(Condition::Equal, R2, 0, same);
    tell(program, maps, R9);
    program.place(same);
}

/// Bytes between two events, as a power of two: 512 MiB.
const LOT_BITS: i32 = 29;
/// Stack offsets of the decremented TTL, and of the operand of load barriers.
const HOPS: i16 = BELOW;
const ORDER: i16 = BELOW - 8;
/// Stack offset of the age of the heartbeat in nanoseconds.
const AGE: i16 = BELOW - 16;
/// Bytes of source and destination port.
const PORTS_BYTES: i16 = 4;
/// `BPF_F_RECOMPUTE_CSUM`, `BPF_F_PSEUDO_HDR`, `BPF_F_MARK_MANGLED_0`.
const RECOMPUTE: i32 = 1;
const PSEUDO_HEADER: i32 = 0x10;
const NONE_IF_ZERO: i32 = 0x20;
