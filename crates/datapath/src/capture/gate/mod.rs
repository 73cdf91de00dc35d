//! Gate: a few tests of a packet's first bytes that are necessary for a program's match.
//!
//! Nearly every packet on a captured port matches nothing. A gate excludes most of them without running the
//! program: it compares some words of each packet, four in parallel. It never excludes a matching packet; the
//! program decides about packets that pass. [`derive`](derive()) computes the gate when the program is
//! loaded.

mod condition;
mod derive;
mod flow;
mod plan;

pub(super) use derive::derive;

use polder_buffers::BATCH;

/// Number of words that are compared in parallel.
const LANES: usize = 4;
/// Length of these words in bytes.
const WINDOW: u16 = 16;
const _: () = assert!(WINDOW as usize == 4 * LANES);

/// Gate of a program: a packet passes if it passes one test or exception.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gate {
    /// Number of bytes from the packet's start that are read.
    reach: u16,
    tests: Box<[Test]>,
    exceptions: Box<[Exception]>,
}

/// A packet passes if one of these words has its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Test {
    /// Offset of the first word in bytes.
    at: u16,
    lanes: Lanes,
}

/// A packet passes if a word has some bits, and differs in others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Exception {
    at: u16,
    equal: Bits,
    unequal: Bits,
}

/// Mask and value of a word, in the packet's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bits {
    mask: u32,
    value: u32,
}

/// Masks and values of several words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lanes {
    mask: [u32; LANES],
    value: [u32; LANES],
}

impl Bits {
    /// Bits that every word has.
    const ANY: Self = Self { mask: 0, value: 0 };
}

impl Lanes {
    /// Lanes that match no word.
    const NONE: Self = Self { mask: [0; LANES], value: [1; LANES] };
}

impl Gate {
    /// Gate of these tests and exceptions.
    fn new(tests: Box<[Test]>, exceptions: Box<[Exception]>) -> Self {
        let ends = tests.iter().map(|test| test.at + WINDOW);
        let ends = ends.chain(exceptions.iter().map(|exception| exception.at + 4));
        Self { reach: ends.max().unwrap_or(0), tests, exceptions }
    }

    /// Bit set of the packets that may match; `fronts` returns the requested number of first bytes of each
    /// packet, `None` for shorter packets, which may match.
    ///
    /// Cost: 1 to 2 ns per packet for two tests.
    #[inline]
    pub(super) fn pass<'a, I: Iterator<Item = Option<&'a [u8]>>>(&self, fronts: impl Fn(u16) -> I) -> u64 {
        let of_all = fronts(self.reach);
        let is_closed = match (&*self.tests, &*self.exceptions) {
            ([a], []) => is_closed([*a], [], of_all),
            ([a, b], []) => is_closed([*a, *b], [], of_all),
            ([a, b, c], []) => is_closed([*a, *b, *c], [], of_all),
            ([a], [other]) => is_closed([*a], [*other], of_all),
            ([a, b], [other]) => is_closed([*a, *b], [*other], of_all),
            _ => false,
        };
        if is_closed { 0 } else { self.find(fronts(self.reach)) }
    }

    fn find<'a>(&self, fronts: impl Iterator<Item = Option<&'a [u8]>>) -> u64 {
        let bit = |(number, front): (usize, Option<&[u8]>)| {
            u64::from(front.is_none_or(|bytes| self.lets_pass(bytes))) << number
        };
        fronts.take(BATCH).enumerate().map(bit).fold(0, |bits, bit| bits | bit)
    }

    #[inline]
    fn lets_pass(&self, bytes: &[u8]) -> bool {
        let mut found = [0; LANES];
        let has_all = self.tests.iter().all(|test| test.look(bytes, &mut found));
        !has_all || any(found) || self.exceptions.iter().any(|exception| exception.lets_pass(bytes))
    }
}

/// True if no packet passes.
#[inline]
fn is_closed<'a, const TESTS: usize, const EXCEPTIONS: usize>(
    tests: [Test; TESTS],
    exceptions: [Exception; EXCEPTIONS],
    fronts: impl Iterator<Item = Option<&'a [u8]>>,
) -> bool {
    let (mut found, mut excepted) = ([0; LANES], false);
    for front in fronts {
        let Some(bytes) = front else { return false };
        for test in &tests {
            if !test.look(bytes, &mut found) {
                return false;
            }
        }
        for exception in &exceptions {
            excepted |= exception.lets_pass(bytes);
        }
    }
    !any(found) & !excepted
}

#[inline(always)]
fn any(found: [u32; LANES]) -> bool {
    found.iter().fold(0, |any, found| any | found) != 0
}

impl Test {
    /// Sets the lanes of `found` whose word matches. False if the packet is too short.
    #[inline(always)]
    fn look(&self, bytes: &[u8], found: &mut [u32; LANES]) -> bool {
        let from = usize::from(self.at);
        let words = bytes.get(from..from + usize::from(WINDOW)).map(|bytes| bytes.as_chunks::<4>().0);
        let Some(&[a, b, c, d]) = words else { return false };
        let words = [a, b, c, d].map(u32::from_ne_bytes);
        let Lanes { mask, value } = &self.lanes;
        for lane in 0..LANES {
            found[lane] |= if words[lane] & mask[lane] == value[lane] { u32::MAX } else { 0 };
        }
        true
    }
}

impl Exception {
    /// True if the packet passes the exception or is too short for it.
    #[inline(always)]
    fn lets_pass(&self, bytes: &[u8]) -> bool {
        let from = usize::from(self.at);
        let Some(word) = bytes.get(from..from + 4).and_then(|bytes| bytes.first_chunk()) else { return true };
        let word = u32::from_ne_bytes(*word);
        let Self { equal, unequal, .. } = self;
        (word & equal.mask == equal.value) & (word & unequal.mask != unequal.value)
    }
}
