//! Memory of the FIB's nodes: read by workers while one thread writes.
//!
//! ```text
//! node: words 0 to 15   two halves for eight slots each: 8 bits, set where a slot's entry differs from
//!                       the slot before (the first bit of all is set), and the number of bits set before
//!       words 16 …      one entry for each set bit
//! entry: bit 31 clear: a next hop; set: the line of a node
//! ```
//!
//! Set bits are counted by a table of bytes, without a population-count instruction.
//!
//! All lines, of 64 bytes, are one allocation, so that a line's address is one multiplication. When it is
//! full, it is copied to a larger one; readers of the old allocation see a table that is no longer changed.

use crate::sync::{AtomicU32, Ordering};

/// Bit of an entry: the other bits are the line of a node.
pub(super) const NODE: u32 = 1 << 31;
/// Number of slots of a node.
pub(super) const SLOTS: usize = 256;
/// Number of values of an address's first 16 bits.
const FIRSTS: usize = 1 << 16;

/// Number of words per line.
const LINE: usize = 16;
/// Number of words before the entries of a node.
const HEAD: usize = 16;
/// Number of size classes: a node takes 1 to `SIZES` - 1 lines.
pub(super) const SIZES: usize = (HEAD + SLOTS) / LINE + 1;
/// Minimum number of lines; small for the model checker, which creates each word.
const FEWEST: u32 = if cfg!(loom) { 16 } else { 64 };

/// Number of set bits of a byte.
const ONES: [u8; 256] = {
    let mut ones = [0; 256];
    let mut byte = 1;
    while byte < 256 {
        ones[byte] = ones[byte / 2] + if byte % 2 == 0 { 0 } else { 1 };
        byte += 1;
    }
    ones
};

/// Index of an entry's word.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EntryIndex(usize);

/// One allocation of the table, as readers see it.
#[derive(Debug)]
pub(super) struct Arena {
    /// Entry of all addresses.
    top: AtomicU32,
    /// Entries by the first 16 bits, in a large table only.
    direct: Option<Box<[AtomicU32; FIRSTS]>>,
    words: Box<[AtomicU32]>,
}

impl Arena {
    /// An arena without nodes, whose entry is "no route".
    pub(super) fn new() -> Self {
        Self { top: AtomicU32::new(0), direct: None, words: Box::default() }
    }

    /// Entry of all addresses.
    #[inline(always)]
    pub(super) fn top(&self) -> u32 {
        // Acquire pairs with the Release in `set_top`: a reader that sees an entry sees its node.
        self.top.load(Ordering::Acquire)
    }

    /// Replaces the entry of all addresses.
    pub(super) fn set_top(&self, entry: u32) {
        self.top.store(entry, Ordering::Release);
    }

    /// Entries by the first 16 bits; `None` in a small table.
    #[inline(always)]
    pub(super) fn direct(&self) -> Option<&[AtomicU32; FIRSTS]> {
        self.direct.as_deref()
    }

    /// Replaces the entry of the first 16 bits, in a large table.
    pub(super) fn set_direct(&self, [first, second]: [u8; 2], entry: u32) {
        let Some(direct) = &self.direct else { return };
        let place = &direct[usize::from(u16::from_be_bytes([first, second]))];
        // Relaxed: there is one writer.
        if place.load(Ordering::Relaxed) != entry {
            // Release pairs with the Acquire in `View`.
            place.store(entry, Ordering::Release);
        }
    }

    /// Words of all nodes.
    #[inline(always)]
    pub(super) fn words(&self) -> Words<'_> {
        Words(&self.words)
    }

    /// Entry of a slot in the node `entry`; `entry` itself if it is not a node.
    pub(super) fn entry(&self, entry: u32, slot: u8) -> u32 {
        if entry & NODE == 0 { entry } else { self.words().load(self.words().place(entry, slot)) }
    }

    /// Replaces the entry of a slot that has an entry word of its own.
    pub(super) fn set_entry(&self, line: u32, slot: u8, entry: u32) {
        if let Some(word) = self.words.get(self.words().place(line, slot).0) {
            // Release pairs with the Acquire in `Words`.
            word.store(entry, Ordering::Release);
        }
    }

    /// Writes a node that readers cannot reach yet; `entries` is indexed by slot.
    pub(super) fn write(&self, line: u32, entries: &[u32; SLOTS]) {
        let words = self.words.get(base(line)..).unwrap_or_default();
        let Some((head, places)) = words.split_at_checked(HEAD) else { return };
        let (mut count, mut last) = (0_usize, None);
        for (word, slots) in head.iter().zip(entries.as_chunks::<16>().0) {
            let mut halves = [0_u8; 4];
            for (half, slots) in halves.as_chunks_mut::<2>().0.iter_mut().zip(slots.as_chunks::<8>().0) {
                half[1] = u8::try_from(count).expect("248 slots are before the last eight");
                half[0] = changes(slots, last);
                last = Some(slots[7]);
                let changed = (0..8).filter(|bit| half[0] >> bit & 1 != 0).map(|bit| slots[bit]);
                // Relaxed: the Release of the entry that refers to the node publishes all words.
                changed
                    .zip(&places[count..])
                    .for_each(|(entry, place)| place.store(entry, Ordering::Relaxed));
                count += half[0].count_ones() as usize;
            }
            word.store(u32::from_le_bytes(halves), Ordering::Relaxed);
        }
    }

    /// Number of lines.
    pub(super) fn lines(&self) -> u32 {
        u32::try_from(self.words.len() / LINE).unwrap_or(NODE)
    }

    /// A larger copy with at least `lines` lines; lines below `used` are copied.
    pub(super) fn larger(&self, lines: u32, used: u32) -> Self {
        let lines = lines.max(self.lines() + self.lines() / 4).max(FEWEST) as usize;
        let mut words = polder_buffers::large_vec(lines * LINE);
        words.extend(self.words.iter().take(used as usize * LINE).map(copy));
        words.resize_with(lines * LINE, || AtomicU32::new(0));
        Self { top: copy(&self.top), direct: self.copied(), words: words.into() }
    }

    /// A copy with entries by the first 16 bits.
    pub(super) fn with_direct(&self) -> Self {
        let top = self.top();
        let entries = (0..=u16::MAX).map(|index| {
            let [first, second] = index.to_be_bytes();
            AtomicU32::new(self.entry(self.entry(top, first), second))
        });
        let direct = entries.collect::<Box<[_]>>().try_into().ok();
        let mut words = polder_buffers::large_vec(self.words.len());
        words.extend(self.words.iter().map(copy));
        Self { top: copy(&self.top), direct, words: words.into() }
    }

    fn copied(&self) -> Option<Box<[AtomicU32; FIRSTS]>> {
        self.direct.as_ref()?.iter().map(copy).collect::<Box<[_]>>().try_into().ok()
    }

    /// Memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.words) + self.direct.as_ref().map_or(0, |direct| size_of_val(&**direct))
    }
}

/// Words of all nodes, for look-ups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a>(&'a [AtomicU32]);

impl Words<'_> {
    #[inline(always)]
    fn word(self, index: usize) -> u32 {
        // Acquire pairs with the Release in `set_entry`, and with that of the entry that refers to this node:
        // a reader that sees a node's line sees the node. It is free on processors with ordered loads.
        self.0.get(index).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Index of a slot's entry in the node `entry`.
    #[inline(always)]
    pub(super) fn place(self, entry: u32, slot: u8) -> EntryIndex {
        let base = base(entry);
        let half = self.word(base + usize::from(slot >> 4)) >> (2 * (slot & 8));
        let bits = half & ((2 << (slot & 7)) - 1);
        let [_, before, ..] = half.to_le_bytes();
        // The first bit of all is set, so a bit is set at or before every slot.
        EntryIndex(base + HEAD - 1 + usize::from(before) + usize::from(ONES[(bits & 0xff) as usize]))
    }

    /// Loads an entry.
    #[inline(always)]
    pub(super) fn load(self, place: EntryIndex) -> u32 {
        self.word(place.0)
    }

    /// Prefetches an entry.
    #[inline(always)]
    pub(super) fn prefetch(self, place: EntryIndex) {
        if let Some(word) = self.0.get(place.0) {
            polder_buffers::prefetch(word);
        }
    }

    /// Prefetches the word of a node that covers a slot. `entry` may be any entry.
    #[inline(always)]
    pub(super) fn prefetch_head(self, entry: u32, slot: u8) {
        self.prefetch(EntryIndex(base(entry) + usize::from(slot >> 4)));
    }
}

/// Index of a node's first word.
#[inline(always)]
const fn base(entry: u32) -> usize {
    (entry & !NODE) as usize * LINE
}

/// Bit set of the slots whose entry differs from the slot before; `last` is before the first.
fn changes(slots: &[u32; 8], mut last: Option<u32>) -> u8 {
    let mut bits = 0;
    for (bit, &entry) in slots.iter().enumerate() {
        bits |= u8::from(last != Some(entry)) << bit;
        last = Some(entry);
    }
    bits
}

/// Copies a word by its writer.
fn copy(word: &AtomicU32) -> AtomicU32 {
    // Relaxed: the calling thread has written it.
    AtomicU32::new(word.load(Ordering::Relaxed))
}

/// Number of lines of a node with these entries.
pub(super) fn lines_of(entries: &[u32; SLOTS]) -> usize {
    let changes = entries.windows(2).filter(|pair| pair[0] != pair[1]).count();
    (HEAD + changes + 1).div_ceil(LINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_read_as_it_was_written() {
        let patterns: [fn(u32) -> u32; 5] =
            [|_| 7, |slot| slot + 1, |slot| slot / 64, |slot| slot % 3, |slot| slot / 8];
        let (mut arena, mut next) = (Arena::new(), 0);
        let mut written = Vec::new();
        for pattern in patterns {
            let mut entries = [0; SLOTS];
            (0..).zip(&mut entries).for_each(|(slot, entry)| *entry = pattern(slot));
            let lines = u32::try_from(lines_of(&entries)).expect("few");
            assert!((lines as usize) < SIZES);
            arena = arena.larger(next + lines, next);
            arena.write(next, &entries);
            written.push((next, entries));
            next += lines;
        }
        for (line, entries) in written {
            (0..=255)
                .zip(entries)
                .for_each(|(slot, entry)| assert_eq!(arena.entry(NODE | line, slot), entry));
        }
    }

    #[test]
    fn an_entry_changes_alone() {
        let arena = Arena::new().larger(2, 0);
        let mut entries = [5; SLOTS];
        (entries[100], entries[101], entries[255]) = (NODE | 9, NODE | 10, NODE | 11);
        arena.write(0, &entries);
        for slot in [100, 101, 255_u8] {
            arena.set_entry(0, slot, NODE | 77);
            entries[usize::from(slot)] = NODE | 77;
            (0..=255).zip(entries).for_each(|(slot, entry)| assert_eq!(arena.entry(NODE, slot), entry));
        }
    }

    #[test]
    fn a_line_that_is_not_there_has_no_routes() {
        assert_eq!(Arena::new().entry(NODE | 5000, 3), 0);
    }
}
