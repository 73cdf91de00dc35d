//! Set-associative table: the entry of a flow or a host by its hash.
//!
//! Cost: one cache line of tags, and one byte each for busy and shared entries of the set. Memory: 4.25 bytes
//! per entry.

/// Entries of a set.
const WAYS: usize = 8;

/// Tags of entries; what the entries hold stands elsewhere, by the same index.
///
/// A tag has an entry of its own while one of its set is idle. If all are busy, the tag shares the entry that
/// its lowest bits name, until this entry is released. Until then it does not take another entry, so the
/// packets of a flow are never in two entries.
#[derive(Debug)]
pub(super) struct Table {
    tags: Box<[[u32; WAYS]]>,
    /// Bit sets of entries that are in use.
    busy: Box<[u8]>,
    /// Bit sets of entries that other tags share with their owner.
    shared: Box<[u8]>,
}

impl Table {
    /// A table of at least `entries` entries.
    pub(super) fn new(entries: u32) -> Self {
        let sets = (entries as usize).div_ceil(WAYS).max(1);
        Self {
            tags: (0..sets).map(|_| [0; WAYS]).collect(),
            busy: (0..sets).map(|_| 0).collect(),
            shared: (0..sets).map(|_| 0).collect(),
        }
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.tags.len() * WAYS
    }

    /// Entry of a tag, which is in use until it is [released](Self::release).
    #[inline]
    pub(super) fn find(&mut self, tag: u32) -> u32 {
        let set = usize::try_from((u64::from(tag) * self.tags.len() as u64) >> 32).unwrap_or(0);
        let (tags, busy, shared) = (&mut self.tags[set], &mut self.busy[set], &mut self.shared[set]);
        let mut equal = 0_u8;
        for (way, other) in tags.iter().enumerate() {
            equal |= u8::from(*other == tag) << way;
        }
        let fixed = tag & 7;
        let way = if equal & *busy != 0 {
            (equal & *busy).trailing_zeros()
        } else if *shared >> fixed & 1 != 0 {
            fixed
        } else if *busy == u8::MAX {
            *shared |= 1 << fixed;
            fixed
        } else {
            let way = busy.trailing_ones();
            *busy |= 1 << way;
            tags[way as usize] = tag;
            way
        };
        u32::try_from(set * WAYS).unwrap_or(0) + way
    }

    /// Makes an entry idle.
    #[inline]
    pub(super) fn release(&mut self, entry: u32) {
        let (set, way) = (entry as usize / WAYS, entry as usize % WAYS);
        self.busy[set] &= !(1 << way);
        self.shared[set] &= !(1 << way);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_tags_of_a_set_have_entries_of_their_own_and_the_ninth_shares_one() {
        let mut table = Table::new(8);
        let entries = (0..8).map(|tag| table.find(tag << 8)).collect::<Vec<_>>();
        assert_eq!(entries, (0..8).collect::<Vec<_>>());
        assert_eq!(table.find(3 << 8), 3);
        assert_eq!(table.find(0x0100_0005), 5, "by its lowest bits");
        // An entry becomes idle, but the ninth has packets in the shared one.
        table.release(2);
        assert_eq!(table.find(0x0100_0005), 5);
        assert_eq!(table.find(0x0200_0004), 2, "another one takes the idle entry");
        table.release(5);
        assert_eq!(table.find(0x0100_0005), 5, "the same place, and its own now");
        assert_eq!(table.len(), 8);
    }
}
