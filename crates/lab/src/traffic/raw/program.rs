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

use super::code::*;
use std::os::fd::BorrowedFd;

/// Places in the ring, a power of two.
pub(super) const RECORDS: usize = 1 << 18;
/// Bytes of a record.
pub(super) const RECORD: usize = 16;
/// Where the counters stand.
pub(super) const PACKETS: usize = 0;
pub(super) const BYTES: usize = 8;
pub(super) const PROBES: usize = 16;
pub(super) const STRANGERS: usize = 24;
/// Where the ring begins.
pub(super) const RING: usize = 64;
/// Bytes of the shared value.
pub(super) const VALUE: usize = RING + RECORDS * RECORD;

/// What becomes of packets (`enum xdp_action`).
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
    let bounds = [copy(R4, R2), add(R4, i32::from(probe_at) + i32::from(PROBE_BYTES))];
    let mark =
        [load(HALF, R4, R2, probe_at), jump_unless_equal(R4, i32::from(MARK.to_be()), length(&record))];
    code.extend(bounds);
    code.push(jump_if_greater(R4, R3, length(&mark) + length(&record)));
    code.extend(mark);
    code.extend(record);
    code.extend([load(DOUBLE, R5, SHARED, at(STRANGERS)), add(R5, 1), store(SHARED, at(STRANGERS), R5)]);
    code.extend([set(R0, DROP), EXIT]);
    code
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

/// Writes the probe to its place in the ring, then moves the counter on, and ends.
fn record(probe_at: i16) -> Vec<u64> {
    vec![
        load(DOUBLE, NUMBER, R2, probe_at + 2),
        load(DOUBLE, DUE, R2, probe_at + 10),
        network_order(NUMBER, 64),
        network_order(DUE, 64),
        call(KTIME_GET_NS),
        subtract(R0, DUE),
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
const PROBE_BYTES: u8 = 18;
const _: () = assert!(PROBE_BYTES as usize == super::super::probe::PROBE_BYTES);
const MASK: i32 = (1 << RECORDS.trailing_zeros()) - 1;
