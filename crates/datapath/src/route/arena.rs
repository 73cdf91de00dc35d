//! The lines that nodes stand in: read by workers while one thread writes others.
//!
//! ```text
//! node: words 0 to 15   each twice: 8 bits, set where a slot has another entry than the slot before
//!                       (the first bit of all is set), and 8 bits: how many are set before those
//!       words 16 …      one entry for each set bit
//! entry: bit 31 clear: a way; set: the line of a node
//! ```
//!
//! Set bits are counted eight at a time, so that no instruction is wanted that not every processor has.
//!
//! All lines, of 64 bytes, are one piece of memory, so that a line is found by a multiplication. When it is
//! full, a larger one takes its place, with everything copied; whoever reads the old one reads a table that
//! nobody changes any more.

use crate::sync::{AtomicU32, Ordering};

/// In an entry: the other bits are the line of a node.
pub(super) const NODE: u32 = 1 << 31;
/// Slots of a node.
pub(super) const SLOTS: usize = 256;
/// Values of the first 16 bits of an address.
const FIRSTS: usize = 1 << 16;

/// Words of a line.
const LINE: usize = 16;
/// Words before the entries.
const HEAD: usize = 16;
/// Lines of the longest node, and one more.
pub(super) const SIZES: usize = (HEAD + SLOTS) / LINE + 1;
/// Lines of the smallest piece; few for the model checker, which has to make each word.
const FEWEST: u32 = if cfg!(loom) { 16 } else { 64 };

/// Number of bits of a byte that are set.
const ONES: [u8; 256] = {
    let mut ones = [0; 256];
    let mut byte = 1;
    while byte < 256 {
        ones[byte] = ones[byte / 2] + if byte % 2 == 0 { 0 } else { 1 };
        byte += 1;
    }
    ones
};

/// Index of an entry: a word.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EntryIndex(usize);

/// A table as readers have it.
#[derive(Debug)]
pub(super) struct Arena {
    /// The entry of all addresses.
    top: AtomicU32,
    /// The entries of all first 16 bits, in a large table.
    direct: Option<Box<[AtomicU32; FIRSTS]>>,
    words: Box<[AtomicU32]>,
}

impl Arena {
    /// With no node, and an entry that is no way.
    pub(super) fn new() -> Self {
        Self { top: AtomicU32::new(0), direct: None, words: Box::default() }
    }

    /// The entry of all addresses.
    #[inline(always)]
    pub(super) fn top(&self) -> u32 {
        // Acquire pairs with the Release in `set_top`: who sees an entry sees its node.
        self.top.load(Ordering::Acquire)
    }

    /// Exchanges the entry of all addresses.
    pub(super) fn set_top(&self, entry: u32) {
        self.top.store(entry, Ordering::Release);
    }

    /// The entries of all first 16 bits, if they are kept.
    #[inline(always)]
    pub(super) fn direct(&self) -> Option<&[AtomicU32; FIRSTS]> {
        self.direct.as_deref()
    }

    /// Exchanges the entry of the first 16 bits, if those are kept.
    pub(super) fn set_direct(&self, [first, second]: [u8; 2], entry: u32) {
        let Some(direct) = &self.direct else { return };
        let place = &direct[usize::from(u16::from_be_bytes([first, second]))];
        // Relaxed: there is one writer.
        if place.load(Ordering::Relaxed) != entry {
            // Release pairs with the Acquire in `View`.
            place.store(entry, Ordering::Release);
        }
    }

    /// The words of all nodes.
    #[inline(always)]
    pub(super) fn words(&self) -> Words<'_> {
        Words(&self.words)
    }

    /// The entry of a slot in the node that `entry` names; an entry that names none is that of all slots.
    pub(super) fn entry(&self, entry: u32, slot: u8) -> u32 {
        if entry & NODE == 0 { entry } else { self.words().load(self.words().place(entry, slot)) }
    }

    /// Exchanges the entry of a slot that has one of its own.
    pub(super) fn set_entry(&self, line: u32, slot: u8, entry: u32) {
        if let Some(word) = self.words.get(self.words().place(line, slot).0) {
            // Release pairs with the Acquire in `Words`.
            word.store(entry, Ordering::Release);
        }
    }

    /// Writes a node that readers cannot find yet; `entries` are by slot.
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
                // Relaxed: the Release of the entry that leads here publishes all words.
                changed
                    .zip(&places[count..])
                    .for_each(|(entry, place)| place.store(entry, Ordering::Relaxed));
                count += half[0].count_ones() as usize;
            }
            word.store(u32::from_le_bytes(halves), Ordering::Relaxed);
        }
    }

    /// Lines that there are.
    pub(super) fn lines(&self) -> u32 {
        u32::try_from(self.words.len() / LINE).unwrap_or(NODE)
    }

    /// The same with room for `lines` lines and more, in use below `used`.
    pub(super) fn larger(&self, lines: u32, used: u32) -> Self {
        let lines = lines.max(self.lines() + self.lines() / 4).max(FEWEST) as usize;
        let mut words = polder_buffers::large_vec(lines * LINE);
        words.extend(self.words.iter().take(used as usize * LINE).map(copy));
        words.resize_with(lines * LINE, || AtomicU32::new(0));
        Self { top: copy(&self.top), direct: self.copied(), words: words.into() }
    }

    /// The same with the entries of all first 16 bits.
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

    /// Bytes of all.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.words) + self.direct.as_ref().map_or(0, |direct| size_of_val(&**direct))
    }
}

/// All nodes, as a look-up has them at hand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a>(&'a [AtomicU32]);

impl Words<'_> {
    #[inline(always)]
    fn word(self, index: usize) -> u32 {
        // Acquire pairs with the Release in `set_entry`, and with that of the entry which led to this
        // node: who sees a node's line sees the node. It costs nothing more where loads are in order.
        self.0.get(index).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Index of the entry of a slot, in the node that `entry` names.
    #[inline(always)]
    pub(super) fn place(self, entry: u32, slot: u8) -> EntryIndex {
        let base = base(entry);
        let half = self.word(base + usize::from(slot >> 4)) >> (2 * (slot & 8));
        let bits = half & ((2 << (slot & 7)) - 1);
        let [_, before, ..] = half.to_le_bytes();
        // The first bit of all is set, so there is one at or before every slot.
        EntryIndex(base + HEAD - 1 + usize::from(before) + usize::from(ONES[(bits & 0xff) as usize]))
    }

    /// The entry at a place.
    #[inline(always)]
    pub(super) fn load(self, place: EntryIndex) -> u32 {
        self.word(place.0)
    }

    /// Hints that an entry is going to be read.
    #[inline(always)]
    pub(super) fn prefetch(self, place: EntryIndex) {
        if let Some(word) = self.0.get(place.0) {
            polder_buffers::prefetch(word);
        }
    }

    /// Hints that a node is going to be asked for a slot. To be called with any entry.
    #[inline(always)]
    pub(super) fn prefetch_head(self, entry: u32, slot: u8) {
        self.prefetch(EntryIndex(base(entry) + usize::from(slot >> 4)));
    }
}

/// The first word of a node.
#[inline(always)]
const fn base(entry: u32) -> usize {
    (entry & !NODE) as usize * LINE
}

/// Bit set of the eight slots that have another entry than the one before; `last` is before the first.
fn changes(slots: &[u32; 8], mut last: Option<u32>) -> u8 {
    let mut bits = 0;
    for (bit, &entry) in slots.iter().enumerate() {
        bits |= u8::from(last != Some(entry)) << bit;
        last = Some(entry);
    }
    bits
}

/// One writer's copy.
fn copy(word: &AtomicU32) -> AtomicU32 {
    // Relaxed: who copies has written it.
    AtomicU32::new(word.load(Ordering::Relaxed))
}

/// Lines that a node with these entries takes.
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
