//! Chains of slices, and incremental updates.

use super::naive_sum;
use polder_datapath::wire::Checksum;
use polder_datapath::wire::checksum::{update_u16, update_u32};

/// The first byte says how many pieces there are, the bytes behind it how long each is; the rest is
/// the data.
pub(crate) fn checksum_chain(bytes: &[u8]) {
    let Some((&count, rest)) = bytes.split_first() else { return };
    let Some((lengths, data)) = rest.split_at_checked(usize::from(count % 8)) else { return };
    let mut chain = Checksum::new();
    let mut left = data;
    for &length in lengths {
        let (piece, behind) = left.split_at(usize::from(length).min(left.len()));
        chain.add(piece);
        left = behind;
    }
    chain.add(left);

    let reference = naive_sum(data);
    assert_eq!(chain.partial(), reference);
    assert_eq!(chain.finish(), !reference);
    assert_eq!(Checksum::of(data), !reference);
    assert_eq!(chain.is_valid(), reference == 0xffff);
    assert_ne!(chain.finish_nonzero(), 0);
    let etherparse = etherparse::checksum::Sum16BitWords::new().add_slice(data).ones_complement();
    // Differs: etherparse calculates in the machine's byte order and leaves turning it to the caller.
    assert_eq!(chain.finish(), u16::from_be(etherparse));

    updates(data, usize::from(count));
}

/// Replaces fields of two and four bytes, at even and at odd positions.
fn updates(data: &[u8], position: usize) {
    let before = Checksum::of(data);
    let mut changed = data.to_vec();
    if let Some(field) = changed.get_mut(position..).and_then(|bytes| bytes.first_chunk_mut::<2>()) {
        let (old, new) = (u16::from_be_bytes(*field), u16::from_be_bytes(*field).rotate_left(5) ^ 0x5aa5);
        *field = new.to_be_bytes();
        let swapped = position % 2 == 1;
        let (old, new) = if swapped { (old.swap_bytes(), new.swap_bytes()) } else { (old, new) };
        same_unless_all_zero(update_u16(before, old, new), &changed);
    }
    let mut changed = data.to_vec();
    let even = position & !1;
    if let Some(field) = changed.get_mut(even..).and_then(|bytes| bytes.first_chunk_mut::<4>()) {
        let (old, new) =
            (u32::from_be_bytes(*field), u32::from_be_bytes(*field).rotate_left(11) ^ 0xc33c_5aa5);
        *field = new.to_be_bytes();
        same_unless_all_zero(update_u32(before, old, new), &changed);
    }
}

/// RFC 1624, 3: the update is exact, except that it cannot tell that everything has become zero.
fn same_unless_all_zero(updated: u16, data: &[u8]) {
    if data.iter().any(|&byte| byte != 0) {
        assert_eq!(updated, !naive_sum(data));
    }
}
