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
//! Instructions are encoded as RFC 9669 says.

use std::os::fd::{AsRawFd as _, BorrowedFd};

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
const DROP: i32 = 1;

// Registers.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const R5: u8 = 5;
/// The context, kept across calls.
const CONTEXT: u8 = 6;
/// The shared value, kept across calls.
const SHARED: u8 = 7;
const NUMBER: u8 = 8;
const DUE: u8 = 9;

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
        from_network_order(NUMBER),
        from_network_order(DUE),
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

fn at(offset: usize) -> i16 {
    i16::try_from(offset).expect("fields stand at the front of the value")
}

fn length(code: &[u64]) -> i16 {
    i16::try_from(code.len()).expect("programs are short")
}

const WORD: u8 = 0x00;
const HALF: u8 = 0x08;
const DOUBLE: u8 = 0x18;
/// `bpf_ktime_get_ns`: the monotonic clock.
const KTIME_GET_NS: i32 = 5;
const EXIT: u64 = encode(0x95, 0, 0, 0, 0);

fn load(width: u8, to: u8, base: u8, offset: i16) -> u64 {
    encode(0x61 | width, to, base, offset, 0)
}

fn store(base: u8, offset: i16, from: u8) -> u64 {
    encode(0x63 | DOUBLE, base, from, offset, 0)
}

fn fetch_add(base: u8, offset: i16, from: u8) -> u64 {
    encode(0xc3 | DOUBLE, base, from, offset, 0x01)
}

fn copy(to: u8, from: u8) -> u64 {
    encode(0xbf, to, from, 0, 0)
}

fn set(to: u8, value: i32) -> u64 {
    encode(0xb7, to, 0, 0, value)
}

fn add(to: u8, value: i32) -> u64 {
    encode(0x07, to, 0, 0, value)
}

fn add_register(to: u8, from: u8) -> u64 {
    encode(0x0f, to, from, 0, 0)
}

fn subtract(to: u8, from: u8) -> u64 {
    encode(0x1f, to, from, 0, 0)
}

fn and(to: u8, value: i32) -> u64 {
    encode(0x57, to, 0, 0, value)
}

fn shift_left(to: u8, bits: i32) -> u64 {
    encode(0x67, to, 0, 0, bits)
}

fn from_network_order(register: u8) -> u64 {
    encode(0xdc, register, 0, 0, 64)
}

fn jump_if_greater(left: u8, right: u8, offset: i16) -> u64 {
    encode(0x2d, left, right, offset, 0)
}

fn jump_unless_equal(left: u8, value: i32, offset: i16) -> u64 {
    encode(0x55, left, 0, offset, value)
}

fn call(helper: i32) -> u64 {
    encode(0x85, 0, 0, 0, helper)
}

/// The address of a map's value: one instruction in two words (`BPF_PSEUDO_MAP_VALUE`).
fn map_value(to: u8, map: BorrowedFd<'_>) -> [u64; 2] {
    [encode(0x18, to, 2, 0, map.as_raw_fd()), 0]
}

/// Operation (8 bits), registers (4 + 4), offset (16), value (32), in the byte order of the machine
/// (RFC 9669, section 3).
const fn encode(operation: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    let [o0, o1] = offset.to_ne_bytes();
    let [v0, v1, v2, v3] = value.to_ne_bytes();
    u64::from_ne_bytes([operation, registers, o0, o1, v0, v1, v2, v3])
}
