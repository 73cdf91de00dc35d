//! Instructions of eBPF programs, encoded as RFC 9669 says (sections 3 to 5).

use std::os::fd::{AsRawFd as _, BorrowedFd};

// Registers: result, arguments, kept across calls.
pub(super) const R0: u8 = 0;
pub(super) const R1: u8 = 1;
pub(super) const R2: u8 = 2;
pub(super) const R3: u8 = 3;
pub(super) const R4: u8 = 4;
pub(super) const R5: u8 = 5;
pub(super) const R6: u8 = 6;
pub(super) const R7: u8 = 7;
pub(super) const R8: u8 = 8;
pub(super) const R9: u8 = 9;

pub(super) const WORD: u8 = 0x00;
pub(super) const HALF: u8 = 0x08;
pub(super) const DOUBLE: u8 = 0x18;
/// `bpf_ktime_get_ns`: the monotonic clock.
pub(super) const KTIME_GET_NS: i32 = 5;
/// `bpf_redirect`: to an interface.
pub(super) const REDIRECT: i32 = 23;
pub(super) const EXIT: u64 = encode(0x95, 0, 0, 0, 0);

pub(super) fn load(width: u8, to: u8, base: u8, offset: i16) -> u64 {
    encode(0x61 | width, to, base, offset, 0)
}

pub(super) fn store(base: u8, offset: i16, from: u8) -> u64 {
    store_part(DOUBLE, base, offset, from)
}

pub(super) fn store_part(width: u8, base: u8, offset: i16, from: u8) -> u64 {
    encode(0x63 | width, base, from, offset, 0)
}

pub(super) fn fetch_add(base: u8, offset: i16, from: u8) -> u64 {
    encode(0xc3 | DOUBLE, base, from, offset, 0x01)
}

pub(super) fn copy(to: u8, from: u8) -> u64 {
    encode(0xbf, to, from, 0, 0)
}

pub(super) fn set(to: u8, value: i32) -> u64 {
    encode(0xb7, to, 0, 0, value)
}

pub(super) fn add(to: u8, value: i32) -> u64 {
    encode(0x07, to, 0, 0, value)
}

pub(super) fn add_register(to: u8, from: u8) -> u64 {
    encode(0x0f, to, from, 0, 0)
}

pub(super) fn subtract(to: u8, from: u8) -> u64 {
    encode(0x1f, to, from, 0, 0)
}

pub(super) fn and(to: u8, value: i32) -> u64 {
    encode(0x57, to, 0, 0, value)
}

pub(super) fn multiply(to: u8, from: u8) -> u64 {
    encode(0x2f, to, from, 0, 0)
}

/// Division without sign; by zero it gives zero.
pub(super) fn divide(to: u8, from: u8) -> u64 {
    encode(0x3f, to, from, 0, 0)
}

/// Remainder of a division without sign.
pub(super) fn remainder(to: u8, value: i32) -> u64 {
    encode(0x97, to, 0, 0, value)
}

pub(super) fn exclusive_or(to: u8, value: i32) -> u64 {
    encode(0xa7, to, 0, 0, value)
}

pub(super) fn shift_right(to: u8, bits: i32) -> u64 {
    encode(0x77, to, 0, 0, bits)
}

pub(super) fn shift_left(to: u8, bits: i32) -> u64 {
    encode(0x67, to, 0, 0, bits)
}

/// Converts `bits` bits between the machine's and the network's order.
pub(super) fn network_order(register: u8, bits: i32) -> u64 {
    encode(0xdc, register, 0, 0, bits)
}

pub(super) fn jump_if_greater(left: u8, right: u8, offset: i16) -> u64 {
    encode(0x2d, left, right, offset, 0)
}

pub(super) fn jump_if_less(left: u8, right: u8, offset: i16) -> u64 {
    encode(0xad, left, right, offset, 0)
}

pub(super) fn jump_if_at_least(left: u8, right: u8, offset: i16) -> u64 {
    encode(0x3d, left, right, offset, 0)
}

pub(super) fn jump_unless_equal(left: u8, value: i32, offset: i16) -> u64 {
    encode(0x55, left, 0, offset, value)
}

pub(super) fn call(helper: i32) -> u64 {
    encode(0x85, 0, 0, 0, helper)
}

/// The address of a map's value: one instruction in two words (`BPF_PSEUDO_MAP_VALUE`).
pub(super) fn map_value(to: u8, map: BorrowedFd<'_>) -> [u64; 2] {
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

pub(super) fn at(offset: usize) -> i16 {
    i16::try_from(offset).expect("fields stand at the front of the value")
}

pub(super) fn length(code: &[u64]) -> i16 {
    i16::try_from(code.len()).expect("programs are short")
}
