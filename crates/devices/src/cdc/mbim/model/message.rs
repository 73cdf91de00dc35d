//! Words of messages.

/// Types of messages.
pub(super) const OPEN: u32 = 1;
pub(super) const CLOSE: u32 = 2;
pub(super) const COMMAND: u32 = 3;
pub(super) const HOST_ERROR: u32 = 4;
/// Difference between the types of a request and of its answer.
pub(super) const DONE: u32 = 0x8000_0000;
pub(super) const FUNCTION_ERROR: u32 = 0x8000_0004;
pub(super) const INDICATE_STATUS: u32 = 0x8000_0007;
/// Errors that the function reports.
pub(super) const NOT_OPENED: u32 = 5;
pub(super) const OUT_OF_SEQUENCE: u32 = 2;
pub(super) const LENGTH_MISMATCH: u32 = 3;
/// Bytes of the headers of a message and of a fragment.
pub(super) const HEADER: usize = 12;
pub(super) const FRAGMENT: usize = 20;
/// The service Basic Connect.
pub(super) const BASIC_CONNECT: [u8; 16] =
    *b"\xa2\x89\xcc\x33\xbc\xbb\x8b\x4f\xb6\xb0\x13\x3e\xc2\xaa\xe6\xdf";
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
}

pub(super) fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub(super) fn narrow(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
