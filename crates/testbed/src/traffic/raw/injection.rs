//! The injector's XDP program: keeps the timetable, writes each packet's head, and redirects it.

use super::code::{
    DOUBLE, EXIT, HALF, KTIME_GET_NS, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, REDIRECT, WORD, add,
    add_register, and, at, call, copy, divide, exclusive_or, jump_if_at_least, jump_if_greater, jump_if_less,
    jump_unless_equal, length, load, map_value, multiply, network_order, remainder, set, shift_left,
    shift_right, store, store_part, subtract,
};
use super::program::DROP;
use crate::traffic::packet::Template;
use crate::traffic::probe::MARK;
use crate::traffic::vary::{Draw, Vary};
use std::os::fd::BorrowedFd;

// The value that is shared with the program.
pub(super) const NEXT: usize = 0;
pub(super) const START: usize = 8;
pub(super) const INTERVAL: usize = 16;
pub(super) const BURST: usize = 24;
pub(super) const END: usize = 32;
pub(super) const BEHIND: usize = 40;
pub(super) const GATE: usize = 48;
pub(super) const GAP: usize = 56;
pub(super) const SLACK: usize = 64;
/// The front of the template, in words.
pub(super) const HEAD: usize = 72;
pub(super) const VALUE: usize = HEAD + 192;
/// Behind it, where a field of the packets was drawn, the draws.
pub(super) const DRAWS: usize = VALUE;

/// Bits behind the point of an interval in nanoseconds: a rate is kept to one part in a million.
pub(super) const FRACTION: i32 = 16;

/// Field that was drawn, and the number of its draws, a power of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    pub(super) vary: Vary,
    pub(super) count: usize,
}

/// Registers: R6 the context, R7 the shared value, R8 the packet's number, R9 when it is due.
pub(super) fn program(
    map: BorrowedFd<'_>,
    template: &Template,
    drawn: Option<Drawn>,
    interface: u32,
) -> Vec<u64> {
    let [low, high] = map_value(R7, map);
    let mut code = vec![copy(R6, R1), low, high, call(KTIME_GET_NS)];
    code.extend(due());
    let mut write = write_head(template);
    write.extend(write_flow(template));
    write.extend(drawn.map(write_draw).unwrap_or_default());
    write.extend(write_probe(template));
    write.extend(send(interface));
    let bounds = [
        load(WORD, R2, R6, 0),
        load(WORD, R3, R6, 4),
        copy(R4, R2),
        add(R4, immediate(template.head())),
        jump_if_greater(R4, R3, length(&write)),
    ];
    // Nothing is due yet, or any more: jump behind the rest, to the drop.
    let (pass, late) = (pass_gate(), note_lateness());
    let rest = length(&late) + length(&bounds) + length(&write);
    let gate = 2 + length(&pass);
    code.extend([
        jump_if_less(R0, R9, 2 + gate + rest),
        load(DOUBLE, R1, R7, at(END)),
        jump_if_at_least(R9, R1, gate + rest),
        load(DOUBLE, R1, R7, at(GATE)),
        jump_if_less(R0, R1, length(&pass) + rest),
    ]);
    code.extend(pass);
    code.extend(late);
    code.extend(bounds);
    code.extend(write);
    code.extend([set(R0, DROP), EXIT]);
    code
}

/// R8: the next number. R9: when it is due, which is now (R0) when the interval is 0, but not before
/// the start.
fn due() -> [u64; 14] {
    [
        load(DOUBLE, R8, R7, at(NEXT)),
        load(DOUBLE, R1, R7, at(INTERVAL)),
        load(DOUBLE, R2, R7, at(BURST)),
        copy(R9, R8),
        divide(R9, R2),
        multiply(R9, R2),
        multiply(R9, R1),
        shift_right(R9, FRACTION),
        load(DOUBLE, R2, R7, at(START)),
        add_register(R9, R2),
        jump_unless_equal(R1, 0, 3),
        copy(R9, R0),
        jump_if_at_least(R0, R2, 1),
        copy(R9, R2),
    ]
}

/// Opens the gate (R1) again a gap later, but not earlier than the slack before now (R0): what was late
/// comes in a few packets at once, and then at a rate that wires and rings bear.
fn pass_gate() -> [u64; 8] {
    [
        load(DOUBLE, R2, R7, at(GAP)),
        add_register(R1, R2),
        load(DOUBLE, R3, R7, at(SLACK)),
        copy(R2, R0),
        subtract(R2, R3),
        jump_if_at_least(R1, R2, 1),
        copy(R1, R2),
        store(R7, at(GATE), R1),
    ]
}

/// The largest difference between now (R0) and when a packet was due.
fn note_lateness() -> [u64; 4] {
    [
        subtract(R0, R9),
        load(DOUBLE, R1, R7, at(BEHIND)),
        jump_if_at_least(R1, R0, 1),
        store(R7, at(BEHIND), R0),
    ]
}

/// Copies the template's head: receivers have written to the page.
fn write_head(template: &Template) -> Vec<u64> {
    let mut code = Vec::new();
    for offset in (0..template.head()).step_by(8) {
        code.push(load(DOUBLE, R4, R7, at(HEAD + offset)));
        match template.head() - offset {
            8.. => code.push(store(R2, at(offset), R4)),
            rest => code.extend(store_few(offset, rest)),
        }
    }
    code
}

/// Stores the first `count` bytes of R4, less than eight and even, as memory has them.
fn store_few(offset: usize, count: usize) -> Vec<u64> {
    debug_assert!(count.is_multiple_of(2), "headers have even lengths");
    let (mut code, mut done) = (Vec::new(), 0);
    for (width, bytes) in [(WORD, 4), (HALF, 2)] {
        if count & bytes != 0 {
            code.push(store_part(width, R2, at(offset + done), R4));
            code.push(shift_right(R4, immediate(8 * bytes)));
            done += bytes;
        }
    }
    code
}

/// Source address, header checksum and stations of flow R8 modulo the number of flows.
fn write_flow(template: &Template) -> Vec<u64> {
    let talk = template.talk();
    let mut code = Vec::new();
    if talk.flows < 2 {
        return code;
    }
    let ip = template.source_at() - 12;
    let first = u32::from(talk.source.1);
    code.extend([
        copy(R1, R8),
        remainder(R1, talk.flows.cast_signed()),
        // The address, its two halves added to the sum of the other words, folded twice.
        set(R4, first.cast_signed()),
        add_register(R4, R1),
        shift_left(R4, 32),
        shift_right(R4, 32),
        copy(R5, R4),
        shift_right(R5, 16),
        copy(R3, R4),
        and(R3, 0xffff),
        add_register(R5, R3),
        add(R5, template.sum_without_source().cast_signed()),
    ]);
    for _ in 0..2 {
        code.extend([copy(R3, R5), shift_right(R3, 16), and(R5, 0xffff), add_register(R5, R3)]);
    }
    code.extend([
        exclusive_or(R5, 0xffff),
        network_order(R5, 16),
        store_part(HALF, R2, at(ip + 10), R5),
        network_order(R4, 32),
        store_part(WORD, R2, at(ip + 12), R4),
    ]);
    if talk.macs > 1 {
        code.push(remainder(R1, talk.macs.cast_signed()));
        for (mac, place) in [(talk.destination.0, ip - 14), (talk.source.0, ip - 8)] {
            let low = u16::from_be_bytes([mac[4], mac[5]]);
            code.extend([
                copy(R4, R1),
                add(R4, i32::from(low)),
                network_order(R4, 16),
                store_part(HALF, R2, at(place + 4), R4),
            ]);
        }
    }
    code
}

/// Copies draw R8 modulo the number of draws.
fn write_draw(drawn: Drawn) -> Vec<u64> {
    let mut code = vec![
        copy(R1, R8),
        and(R1, immediate(drawn.count - 1)),
        shift_left(R1, size_of::<Draw>().trailing_zeros().cast_signed()),
        add_register(R1, R7),
    ];
    for &(from, to, bytes) in drawn.vary.places() {
        let width = [(8, DOUBLE), (4, WORD)].into_iter().find(|&(width, _)| width == bytes);
        let width = width.map_or(HALF, |(_, width)| width);
        code.extend([load(width, R4, R1, at(DRAWS + from)), store_part(width, R2, at(to), R4)]);
    }
    code
}

/// Mark, number and time; the upper half-word of the number is the stream, 0. Of a request its number.
fn write_probe(template: &Template) -> Vec<u64> {
    let probe = template.probe_at();
    if template.is_request() {
        return vec![copy(R4, R8), network_order(R4, 32), store_part(WORD, R2, at(probe), R4)];
    }
    vec![
        set(R4, i32::from(MARK.to_be())),
        store_part(HALF, R2, at(probe), R4),
        copy(R4, R8),
        network_order(R4, 64),
        store(R2, at(probe + 2), R4),
        network_order(R9, 64),
        store(R2, at(probe + 10), R9),
    ]
}

fn send(interface: u32) -> [u64; 6] {
    [add(R8, 1), store(R7, at(NEXT), R8), set(R1, interface.cast_signed()), set(R2, 0), call(REDIRECT), EXIT]
}

fn immediate(value: usize) -> i32 {
    i32::try_from(value).expect("heads are short")
}
