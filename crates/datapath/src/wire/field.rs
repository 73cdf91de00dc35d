//! Reads and writes big-endian fields of fixed headers; positions are checked at compile time.

/// Returns the byte at `AT`.
#[inline(always)]
pub(super) const fn u8_at<const AT: usize, const N: usize>(header: &[u8; N]) -> u8 {
    const { assert!(AT < N) };
    header[AT]
}

/// Returns the two bytes at `AT` as a number.
#[inline(always)]
pub(super) const fn u16_at<const AT: usize, const N: usize>(header: &[u8; N]) -> u16 {
    const { assert!(AT + 2 <= N) };
    u16::from_be_bytes([header[AT], header[AT + 1]])
}

/// Returns the four bytes at `AT` as a number.
#[inline(always)]
pub(super) const fn u32_at<const AT: usize, const N: usize>(header: &[u8; N]) -> u32 {
    const { assert!(AT + 4 <= N) };
    u32::from_be_bytes([header[AT], header[AT + 1], header[AT + 2], header[AT + 3]])
}

/// Returns the `L` bytes at `AT`.
#[inline(always)]
pub(super) fn bytes_at<const AT: usize, const L: usize, const N: usize>(header: &[u8; N]) -> [u8; L] {
    const { assert!(AT + L <= N) };
    core::array::from_fn(|position| header[AT + position])
}

/// Writes `L` bytes at `AT`.
#[inline(always)]
pub(super) fn put<const AT: usize, const L: usize, const N: usize>(header: &mut [u8; N], value: [u8; L]) {
    const { assert!(AT + L <= N) };
    header[AT..AT + L].copy_from_slice(&value);
}
