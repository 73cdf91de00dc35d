//! The lines that nodes stand in: read by workers while one thread writes others.
//!
//! ```text
//! node: words 0 to 3    bit s is set where slot s has another entry than slot s − 1 (bit 0 always)
//!       word  4         byte q: set bits in the words before word q
//!       words 5 …       one entry of 32 bits for each set bit, two a word
//! entry: bit 31 clear: a way; set: the line of a node
//! ```
//!
//! Lines are 64 bytes and in chunks, each twice as large as the one before, so that a small table is small
//! and nothing that a reader may look at ever moves.

use crate::sync::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// In an entry: the other bits are the line of a node.
pub(super) const NODE: u32 = 1 << 31;
/// Slots of a node.
pub(super) const SLOTS: usize = 256;

/// Words of a line.
const LINE: usize = 8;
/// Words before the entries.
const HEAD: usize = 5;
/// Lines of the first chunk.
const FIRST: u32 = 64;
/// Chunks: together more lines than an entry can name.
const CHUNKS: usize = 25;
/// Lines of the longest node, and one more.
pub(super) const SIZES: usize = (HEAD + SLOTS / 2).div_ceil(LINE) + 1;

/// Where an entry is: half of a word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    word: Option<&'a AtomicU64>,
    shift: u32,
}

impl Place<'_> {
    /// No entry.
    pub(super) const NOWHERE: Self = Self { word: None, shift: 0 };

    /// Hints that the entry is going to be read.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        if let Some(word) = self.word {
            polder_buffers::prefetch(word);
        }
    }

    /// The entry.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "one half of a word")]
    pub(super) fn load(&self) -> u32 {
        // Acquire pairs with the Release in `set_entry`, and with that of the entry which led to this
        // node: who sees a node's line sees the node.
        self.word.map_or(0, |word| (word.load(Ordering::Acquire) >> self.shift) as u32)
    }
}

/// Memory for nodes.
#[derive(Debug)]
pub(super) struct Arena {
    chunks: [OnceLock<Box<[AtomicU64]>>; CHUNKS],
}

impl Arena {
    pub(super) fn new() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    /// The words of a node and what follows them; nothing for a line that was never provided.
    #[inline(always)]
    fn words(&self, line: u32) -> &[AtomicU64] {
        let (chunk, start) = place(line);
        let words = self.chunks.get(chunk).and_then(OnceLock::get);
        words.and_then(|words| words.get(start..)).unwrap_or_default()
    }

    /// Hints that a node is going to be read.
    #[inline(always)]
    pub(super) fn prefetch(&self, line: u32) {
        if let Some(words) = self.words(line).first_chunk::<LINE>() {
            polder_buffers::prefetch(words);
        }
    }

    /// Which word of the node holds the entry of a slot, and in which half it is.
    #[inline(always)]
    fn position(words: &[AtomicU64], slot: u8) -> Option<(usize, u32)> {
        let head = words.first_chunk::<HEAD>()?;
        let quarter = usize::from(slot >> 6);
        // Relaxed: nobody writes the head of a node that can be found, and who found it by an Acquire of
        // its entry sees what was written before the Release of that entry.
        let bits = head[quarter].load(Ordering::Relaxed) << (63 - (slot & 63));
        let before = head[4].load(Ordering::Relaxed).to_le_bytes()[quarter];
        // The first bit of all is set, so there is one at or before every slot.
        let index = (usize::from(before) + bits.count_ones() as usize).wrapping_sub(1);
        Some((HEAD + index / 2, if index.is_multiple_of(2) { 0 } else { 32 }))
    }

    /// Where the entry of a slot is.
    #[inline(always)]
    pub(super) fn place(&self, line: u32, slot: u8) -> Place<'_> {
        let words = self.words(line);
        let Some((word, shift)) = Self::position(words, slot) else { return Place::NOWHERE };
        Place { word: words.get(word), shift }
    }

    /// The entry of a slot.
    #[inline(always)]
    pub(super) fn entry(&self, line: u32, slot: u8) -> u32 {
        self.place(line, slot).load()
    }

    /// Exchanges the entry of a slot that has one of its own.
    pub(super) fn set_entry(&self, line: u32, slot: u8, entry: u32) {
        let words = self.words(line);
        let Some((word, shift)) = Self::position(words, slot) else { return };
        let Some(word) = words.get(word) else { return };
        // Relaxed: there is one writer.
        let others = word.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << shift);
        // Release pairs with the Acquire in `entry`.
        word.store(others | u64::from(entry) << shift, Ordering::Release);
    }

    /// Writes a node that nobody can find yet; `entries` are by slot.
    pub(super) fn write(&self, line: u32, entries: &[u32; SLOTS]) {
        let words = self.words(line);
        let (mut bits, mut packed, mut count) = ([0_u64; 4], [0_u64; SLOTS / 2], 0);
        let mut before = 0_u64;
        for (slot, &entry) in entries.iter().enumerate() {
            if slot % 64 == 0 {
                before |= (count as u64) << (slot / 64 * 8);
            }
            if slot == 0 || entries[slot - 1] != entry {
                bits[slot / 64] |= 1 << (slot % 64);
                packed[count / 2] |= u64::from(entry) << (32 * (count % 2));
                count += 1;
            }
        }
        let values = bits.into_iter().chain([before]).chain(packed);
        // Relaxed: the Release of the entry that leads here publishes them.
        words
            .iter()
            .zip(values)
            .take(HEAD + count.div_ceil(2))
            .for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    /// Makes sure that `lines` lines from `line` on exist in one chunk; the first line where they do.
    pub(super) fn provide(&self, line: u32, lines: u32) -> Option<u32> {
        let (chunk, start) = place(line);
        let end = chunk_lines(chunk) as usize * LINE;
        let fits = start + lines as usize * LINE <= end;
        // The next chunk begins where as many lines are as in all chunks up to this one.
        let line = if fits { line } else { (FIRST << (chunk + 1)) - FIRST };
        let (chunk, _) = place(line);
        let room = self.chunks.get(chunk)?;
        room.get_or_init(|| (0..chunk_lines(chunk) as usize * LINE).map(|_| AtomicU64::new(0)).collect());
        Some(line)
    }

    /// Bytes of all chunks.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.iter().filter_map(OnceLock::get).map(|words| words.len() * 8).sum()
    }
}

/// Lines that a node with these entries takes.
pub(super) fn lines_of(entries: &[u32; SLOTS]) -> usize {
    let changes = entries.windows(2).filter(|pair| pair[0] != pair[1]).count();
    (HEAD + (changes + 1).div_ceil(2)).div_ceil(LINE)
}

fn chunk_lines(chunk: usize) -> u32 {
    FIRST << chunk
}

/// The chunk of a line and the line's first word in it.
#[inline(always)]
fn place(line: u32) -> (usize, usize) {
    let number = line + FIRST;
    let chunk = number.ilog2() - FIRST.ilog2();
    (chunk as usize, (number - (FIRST << chunk)) as usize * LINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_each_other() {
        assert_eq!((place(0), place(63)), ((0, 0), (0, 63 * 8)));
        assert_eq!((place(64), place(191), place(192)), ((1, 0), (1, 127 * 8), (2, 0)));
    }

    #[test]
    fn a_node_is_read_as_it_was_written() {
        let arena = Arena::new();
        let patterns: [fn(u32) -> u32; 4] = [|_| 7, |slot| slot + 1, |slot| slot / 64, |slot| slot % 3];
        let mut next = 0;
        for pattern in patterns {
            let mut entries = [0; SLOTS];
            (0..).zip(&mut entries).for_each(|(slot, entry)| *entry = pattern(slot));
            let lines = u32::try_from(lines_of(&entries)).expect("few");
            assert!((lines as usize) < SIZES);
            let line = arena.provide(next, lines).expect("room");
            arena.write(line, &entries);
            next = line + lines;
            (0..=255).zip(entries).for_each(|(slot, entry)| assert_eq!(arena.entry(line, slot), entry));
        }
    }

    #[test]
    fn an_entry_changes_alone() {
        let arena = Arena::new();
        let mut entries = [5; SLOTS];
        (entries[100], entries[101], entries[255]) = (NODE | 9, NODE | 10, NODE | 11);
        let line = arena.provide(0, 2).expect("room");
        arena.write(line, &entries);
        for slot in [100, 101, 255_u8] {
            arena.set_entry(line, slot, NODE | 77);
            entries[usize::from(slot)] = NODE | 77;
            (0..=255).zip(entries).for_each(|(slot, entry)| assert_eq!(arena.entry(line, slot), entry));
        }
    }

    #[test]
    fn a_line_that_is_not_there_has_no_routes() {
        assert_eq!(Arena::new().entry(5000, 3), 0);
    }
}
