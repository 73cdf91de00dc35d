//! The internet checksum (RFC 1071), pseudo-headers, and its incremental update (RFC 1624).

mod pseudo;

pub use pseudo::Pseudo;

/// Sum over consecutive byte slices, as in a chain of frames.
///
/// A slice may have any length: a byte at an odd position counts as the lower half of its word.
///
/// Cost: linear; 32 bytes a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum {
    /// The one's complement sum in this machine's byte order (RFC 1071, 2 (B)).
    sum: u64,
    /// True if an odd number of bytes has been added.
    odd: bool,
}

impl Checksum {
    /// Sum over no bytes.
    #[inline]
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// Checksum of `bytes`, whose checksum field must be zero.
    #[inline]
    pub fn of(bytes: &[u8]) -> u16 {
        Self::new().with(bytes).finish()
    }

    /// Adds the next bytes.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        let sum = fold(sum_of(bytes));
        // RFC 1071, 2 (B): after an odd position, the bytes of every word are swapped.
        let sum = if self.odd { sum.swap_bytes() } else { sum };
        self.sum += u64::from(sum);
        self.odd ^= bytes.len() % 2 == 1;
    }

    /// Sum over a header whose length is a compile-time constant and a multiple of four.
    ///
    /// Cost: one addition per four bytes.
    #[inline(always)]
    pub(crate) fn of_header<const N: usize>(bytes: &[u8; N]) -> Self {
        const { assert!(N.is_multiple_of(4)) };
        let words = bytes.as_chunks().0.iter().map(|word| u64::from(u32::from_ne_bytes(*word)));
        Self { sum: words.sum(), odd: false }
    }

    /// Returns the sum with the next bytes added.
    #[inline]
    #[must_use]
    pub fn with(mut self, bytes: &[u8]) -> Self {
        self.add(bytes);
        self
    }

    /// The checksum to be written.
    ///
    /// In UDP, where zero means "none", write [`Checksum::finish_nonzero`].
    #[inline]
    pub const fn finish(self) -> u16 {
        !u16::from_be(fold(self.sum))
    }

    /// Checksum to be written where zero means "none" (UDP, RFC 768): 0xffff replaces zero.
    #[inline]
    pub const fn finish_nonzero(self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// The sum without complement, as stored in the field of a partial checksum.
    #[inline]
    pub const fn partial(self) -> u16 {
        u16::from_be(fold(self.sum))
    }

    /// True if bytes that include their checksum are intact.
    ///
    /// A one's complement sum is zero if it is a multiple of 0xffff, except for the sum over zeros only.
    #[inline]
    pub const fn is_valid(self) -> bool {
        self.sum != 0 && self.is_multiple()
    }

    /// True if the sum is a multiple of 0xffff: [valid](Self::is_valid), unless all bytes are zero.
    ///
    /// The factor is the inverse of 0xffff modulo 2⁶⁴: only multiples of 0xffff give a small product.
    #[inline(always)]
    pub(crate) const fn is_multiple(self) -> bool {
        self.sum.wrapping_mul(0xfffe_fffe_fffe_ffff) <= u64::MAX / 0xffff
    }
}

/// The checksum after a field has changed from `old` to `new` (RFC 1624, equation 3).
///
/// A field at an odd position is passed with its bytes swapped. The caller handles UDP's zero, "none".
#[inline]
#[must_use]
pub const fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(!checksum as u64 + !old as u64 + new as u64)
}

/// The checksum after a field of four bytes has changed from `old` to `new`.
#[inline]
#[must_use]
pub const fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    !fold(!checksum as u64 + !old as u64 + new as u64)
}

/// Bytes that are summed in one step.
const BLOCK: usize = 32;

/// Sum of 16-bit words in native byte order, an odd last byte padded with zero.
///
/// The halves of 64-bit words are added separately, so that no carry is lost (RFC 1071, 2 (C)) and the
/// compiler can vectorise. Valid up to 64 GiB.
#[inline]
fn sum_of(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    let mut lanes = [0_u64; BLOCK / 8];
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks().0) {
            *lane = lane.wrapping_add(halves(u64::from_ne_bytes(*word)));
        }
    }
    let mut sum = lanes.into_iter().map(fold).map(u64::from).sum::<u64>();
    let (words, rest) = rest.as_chunks();
    for word in words {
        sum += halves(u64::from_ne_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    sum + halves(u64::from_ne_bytes(last))
}

/// Sum of both 32-bit halves of a word.
#[inline(always)]
const fn halves(word: u64) -> u64 {
    (word & 0xffff_ffff) + (word >> 32)
}

/// A sum reduced to 16 bits with end-around carry.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the last halving leaves 16 bits")]
const fn fold(sum: u64) -> u16 {
    let sum = halves(halves(sum));
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071, 3.
    const EXAMPLE: [u8; 8] = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];

    #[test]
    fn rfc_1071_example() {
        assert_eq!(Checksum::new().with(&EXAMPLE).partial(), 0xddf2);
        assert_eq!(Checksum::of(&EXAMPLE), !0xddf2);
    }

    #[test]
    fn rfc_1071_example_in_pieces() {
        for first in 0..=EXAMPLE.len() {
            for second in first..=EXAMPLE.len() {
                let (head, tail) = EXAMPLE.split_at(second);
                let (head, middle) = head.split_at(first);
                let sum = Checksum::new().with(head).with(middle).with(tail);
                assert_eq!(sum.partial(), 0xddf2, "split at {first} and {second}");
            }
        }
    }

    #[test]
    fn rfc_1624_example() {
        // RFC 1624, 4: a field goes from 0x5555 to 0x3285 in a header whose other words sum to 0xcd7a.
        assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn nothing_sums_to_zero() {
        assert_eq!(Checksum::new().finish(), 0xffff);
        assert_eq!(Checksum::new().with(&[0xff, 0xff]).finish(), 0);
        assert_eq!(Checksum::new().with(&[0xff, 0xff]).finish_nonzero(), 0xffff);
        assert!(!Checksum::new().with(&[0; 20]).is_valid());
    }

    #[test]
    fn valid_is_what_sums_to_ones() {
        let sums = (0..0x3_0000).chain([u64::MAX, u64::MAX - 1, 0xffff << 40, (0xffff << 40) + 1, 1 << 63]);
        for sum in sums {
            let checksum = Checksum { sum, odd: false };
            assert_eq!(checksum.is_valid(), checksum.finish() == 0, "{sum:#x}");
        }
    }

    #[test]
    fn no_carry_is_lost() {
        let ones = vec![0xff; 70_001];
        for length in [0, 2, 30, 32, 34, 62, 64, 66, 65_536, 70_000] {
            assert_eq!(Checksum::new().with(&ones[..length]).partial(), if length == 0 { 0 } else { 0xffff });
        }
        assert_eq!(Checksum::new().with(&ones).partial(), 0xff00);
    }
}
