//! Layout of the 64-bit words that the BPF programs and the gateway share, and the hash of addresses to slots.

use core::net::IpAddr;
use std::os::fd::BorrowedFd;

/// File descriptors of the connection table and its words, for assembling a program.
#[derive(Clone, Copy, Debug)]
pub(in crate::skb) struct ConnectionMaps<'a> {
    pub(super) entries: BorrowedFd<'a>,
    pub(super) words: BorrowedFd<'a>,
}

/// Indices of shared words, behind those of `generation`. Words that programs only read are in the first 64 bytes, a cache line.
pub(super) const BEAT: usize = 2;
pub(super) const NONCE: usize = 3;
pub(super) const SEEN: usize = 8;
pub(super) const CONTRADICTIONS: usize = 9;
pub(super) const ENDED_WORD: usize = 10;
pub(super) const CARRIED_ENDS: usize = 11;
pub(super) const LATE: usize = 12;
pub(super) const UP: usize = 13;
/// Word with the number of events (end of a connection, another 512 MiB), and first word of the ring with connection numbers.
pub(super) const TOLD: usize = 14;
pub(super) const RING: usize = 16;
/// Entries of the ring. The oldest unread events are overwritten when it is full.
pub(super) const RING_PLACES: u16 = 256;

/// Offset of a word in bytes.
pub(super) const fn at(word: usize) -> i16 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "some thousand words")]
    let word = word as i16;
    8 * word
}

/// Number of generation slots.
pub(super) const SLOTS: u16 = 4096;

/// Returns the slot of an endpoint's address.
pub(super) fn slot_of_end(end: IpAddr) -> u16 {
    let folded = match end {
        IpAddr::V4(address) => u64::from(u32::from(address)),
        IpAddr::V6(address) => {
            let [a, b, c, d, e, f, g, h, rest @ ..] = address.octets();
            u64::from_be_bytes([a, b, c, d, e, f, g, h]).rotate_left(32) ^ u64::from_be_bytes(rest)
        }
    };
    // The upper bits of the product depend on all bits of the address.
    let hash = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    u16::try_from(hash % u64::from(SLOTS)).unwrap_or_default()
}
