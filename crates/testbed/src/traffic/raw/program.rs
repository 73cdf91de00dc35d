//! The sink's XDP program: counts every packet, writes down every probe, drops both.
//!
//! The value that it shares with the sink:
//!
//! | bytes | what |
//! |---|---|
//! | 0–7 | packets |
//! | 8–15 | bytes |
//! | 16–23 | probes written down |
//! | 24–31 | packets without a probe |
//! | 64– | a ring of [`RECORDS`] records: stream and number (8), nanoseconds since due (8) |
//!
//! Replies of remote procedure calls have a number and no time: theirs is in the record as it comes.

use super::code::*;
use std::os::fd::BorrowedFd;

/// Places in the ring, a power of two.
pub(super) const RECORDS: usize = 1 << 18;
/// Bytes of a record.
pub(super) const RECORD: usize = 16;
/// Offsets of the counters.
pub(super) const PACKETS: usize = 0;
pub(super) const BYTES: usize = 8;
pub(super) const PROBES: usize = 16;
pub(super) const STRANGERS: usize = 24;
/// Offset of the ring.
pub(super) const RING: usize = 64;
/// Bytes of the shared value.
pub(super) const VALUE: usize = RING + RECORDS * RECORD;

/// Return values of XDP programs (`enum xdp_action`).
pub(super) const DROP: i32 = 1;

/// The context, kept across calls.
const CONTEXT: u8 = R6;
/// The shared value, kept across calls.
const SHARED: u8 = R7;
const NUMBER: u8 = R8;
const DUE: u8 = R9;

/// A program that only counts.
pub(super) fn counting(value: BorrowedFd<'_>) -> Vec<u64> {
    let mut code = count(value);
    code.extend([set(R0, DROP), EXIT]);
    code
}

/// A program that looks for a probe at `probe_at` and writes it down.
pub(super) fn recording(value: BorrowedFd<'_>, probe_at: i16) -> Vec<u64> {
    let record = record(probe_at);
    let mut code = count(value);
    // A packet too short for a probe, or without its mark, is a stranger: it skips the record.
    let mark =
        [load(HALF, R4, R2, probe_at), jump_unless_equal(R4, i32::from(MARK.to_be()), length(&record))];
    code.extend(within(i32::from(probe_at) + i32::from(PROBE_BYTES), length(&mark) + length(&record)));
    code.extend(mark);
    code.extend(record);
    code.extend(stranger());
    code
}

/// A program that looks for replies of remote procedure calls (RFC 5531) in UDP over IPv4, and writes down their
/// numbers and arrival times. Of one in fragments the first is the reply; the others are strangers.
pub(super) fn replies(value: BorrowedFd<'_>) -> Vec<u64> {
    let record = record_reply();
    let mut code = count(value);
    // A test that fails skips those behind it and the record.
    let tests = [
        load(HALF, R4, R2, ETHER_TYPE),
        jump_unless_equal(R4, i32::from(0x0800_u16.to_be()), 5 + length(&record)),
        load(HALF, R4, R2, FRAGMENT),
        and(R4, i32::from(0x1fff_u16.to_be())),
        jump_unless_equal(R4, 0, 2 + length(&record)),
        load(WORD, R4, R2, XID + 4),
        jump_unless_equal(R4, REPLY.to_be(), length(&record)),
    ];
    code.extend(within(i32::from(XID) + 8, length(&tests) + length(&record)));
    code.extend(tests);
    code.extend(record);
    code.extend(stranger());
    code
}

/// Skips `skip` instructions when the packet has fewer than `bytes` bytes.
fn within(bytes: i32, skip: i16) -> [u64; 3] {
    [copy(R4, R2), add(R4, bytes), jump_if_greater(R4, R3, skip)]
}

/// Counts a foreign packet, and ends.
fn stranger() -> [u64; 5] {
    [
        load(DOUBLE, R5, SHARED, at(STRANGERS)),
        add(R5, 1),
        store(SHARED, at(STRANGERS), R5),
        set(R0, DROP),
        EXIT,
    ]
}

/// `packets += 1; bytes += data_end - data`; leaves the packet in R2 and its end in R3.
fn count(value: BorrowedFd<'_>) -> Vec<u64> {
    let [low, high] = map_value(SHARED, value);
    vec![
        copy(CONTEXT, R1),
        low,
        high,
        load(WORD, R2, CONTEXT, 0),
        load(WORD, R3, CONTEXT, 4),
        load(DOUBLE, R5, SHARED, at(PACKETS)),
        add(R5, 1),
        store(SHARED, at(PACKETS), R5),
        copy(R4, R3),
        subtract(R4, R2),
        load(DOUBLE, R5, SHARED, at(BYTES)),
        add_register(R5, R4),
        store(SHARED, at(BYTES), R5),
    ]
}

/// Writes down a probe: its number, and by how much it is late.
fn record(probe_at: i16) -> Vec<u64> {
    let mut code = vec![
        load(DOUBLE, NUMBER, R2, probe_at + 2),
        load(DOUBLE, DUE, R2, probe_at + 10),
        network_order(NUMBER, 64),
        network_order(DUE, 64),
        call(KTIME_GET_NS),
        subtract(R0, DUE),
    ];
    code.extend(write_down());
    code
}

/// Records the number and arrival time of a reply.
fn record_reply() -> Vec<u64> {
    let mut code = vec![load(WORD, NUMBER, R2, XID), network_order(NUMBER, 32), call(KTIME_GET_NS)];
    code.extend(write_down());
    code
}

/// Puts the number and R0 in their place in the ring, then moves the counter on, and ends.
fn write_down() -> [u64; 10] {
    [
        load(DOUBLE, R1, SHARED, at(PROBES)),
        and(R1, MASK),
        shift_left(R1, RECORD.trailing_zeros().cast_signed()),
        add_register(R1, SHARED),
        store(R1, at(RING), NUMBER),
        store(R1, at(RING) + 8, R0),
        // Read, add and write in one, which orders what stands before it (Linux, "fetch" atomics are
        // fully ordered): pairs with the Acquire load in `Sink::drain`.
        set(R1, 1),
        fetch_add(SHARED, at(PROBES), R1),
        set(R0, DROP),
        EXIT,
    ]
}

const MARK: u16 = super::super::probe::MARK;
/// Offsets in a frame without tags: EtherType, IPv4 flags and fragment offset, and the number in
/// the UDP payload.
const ETHER_TYPE: i16 = 12;
const FRAGMENT: i16 = 20;
const XID: i16 = 42;
const _: () = assert!(XID as usize == super::super::packet::PROBE_AT);
/// The kind of message behind the number.
const REPLY: i32 = 1;
const PROBE_BYTES: u8 = 18;
const _: () = assert!(PROBE_BYTES as usize == super::super::probe::PROBE_BYTES);
const MASK: i32 = (1 << RECORDS.trailing_zeros()) - 1;
