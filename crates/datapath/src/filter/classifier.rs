//! Classifier: finds the first matching rule by tuple-space search.
//!
//! Rules are split into boxes; boxes with similar masks share a hash table, which is probed with one hash of
//! the packet's masked key. Three measures limit the cost (`docs/adr/0010-filter.md`):
//!
//! * A table's mask is *coarser* than the masks of its boxes (TupleMerge, Daly and others, 2019): prefix
//!   lengths are rounded, ports are omitted if addresses are selective enough. If a bucket would hold more
//!   than [`CROWD`] boxes, further boxes go to a table with a finer mask.
//! * Four bitmaps, by the first 16 bits of each address, protocol and port, are intersected to select the
//!   tables that may match.
//! * Tables are ordered by their first rule; the search stops at a table whose first rule is later than the
//!   match.

use super::key::{
    DESTINATION_PORT_AT, ETHER_TYPE_AT, HAS_FLAGS, HAS_PORTS, IS_IP, Key, PORT_AT, PROTOCOL_AT,
    SOURCE_PORT_AT, VLAN_AT, WORDS,
};
use super::rule::{Entry, Rule};
use std::collections::HashMap;

/// Maximum number of boxes in a bucket of a coarse table.
const CROWD: u32 = 4;
/// Number of tables covered by the bitmaps; every packet probes the tables after these.
const MAPPED: usize = 64;
/// Number of slots in an address bitmap.
const ADDRESS_SLOTS: usize = 1024;
/// Maximum number of boxes: 16 MiB of entries, and a quarter of that for buckets.
pub const MOST_BOXES: usize = 1 << 17;

/// Compiled rules of one direction.
#[derive(Debug, Default)]
pub(super) struct Classifier {
    /// In the order of their first rules.
    tables: Vec<Table>,
    maps: Maps,
}

/// Hash table of boxes whose masks include the table's mask.
#[derive(Debug)]
struct Table {
    mask: [u64; WORDS],
    /// Lowest rule number in the table.
    first: u32,
    shift: u32,
    buckets: Box<[Bucket]>,
    /// Sorted by bucket, then by rule.
    entries: Box<[Entry]>,
}

/// A range of entries, which ends where the next bucket's begins.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    start: u32,
    /// Bit set of five-bit tags of the entries' hashes.
    tags: u32,
}

/// Bitmaps of the tables that may match, by value.
#[derive(Debug)]
struct Maps {
    sources: Box<[u64; ADDRESS_SLOTS]>,
    destinations: Box<[u64; ADDRESS_SLOTS]>,
    /// Indexed by family and protocol.
    protocols: Box<[u64; 1024]>,
    /// Indexed by the lower byte of the port number.
    ports: Box<[u64; 256]>,
}

impl Default for Maps {
    fn default() -> Self {
        Self {
            sources: Box::new([0; ADDRESS_SLOTS]),
            destinations: Box::new([0; ADDRESS_SLOTS]),
            protocols: Box::new([0; 1024]),
            ports: Box::new([0; 256]),
        }
    }
}

/// Size of compiled rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Number of rules.
    pub rules: usize,
    /// Number of boxes.
    pub boxes: usize,
    /// Number of tables that a packet may probe.
    pub tables: usize,
    /// Maximum number of boxes that a packet is compared with.
    pub most_compared: usize,
    /// Memory in bytes.
    pub bytes: usize,
}

impl Classifier {
    /// Compiles numbered rules.
    pub(super) fn new(rules: &[(u32, &Rule)]) -> Self {
        let mut entries = Vec::new();
        rules.iter().for_each(|(number, rule)| rule.cut(*number, &mut entries));
        let mut drafts = Drafts::default();
        entries.iter().for_each(|entry| drafts.place(entry));
        let mut tables = drafts.list.into_iter().map(Draft::finish).collect::<Vec<_>>();
        tables.sort_by_key(|table| table.first);
        let mut maps = Maps::default();
        tables.iter().take(MAPPED).enumerate().for_each(|(number, table)| maps.add(number, table));
        Self { tables, maps }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Returns the number of the first matching rule; `None` if no rule matches.
    #[inline]
    pub(super) fn find(&self, key: &Key) -> Option<u32> {
        let mut best = u32::MAX;
        let mut candidates = self.maps.candidates(key);
        while candidates != 0 {
            let number = candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            let Some(table) = self.tables.get(number) else { break };
            if table.first >= best {
                return Some(best);
            }
            table.find(key, &mut best);
        }
        for table in self.tables.get(MAPPED..).unwrap_or_default() {
            if table.first >= best {
                break;
            }
            table.find(key, &mut best);
        }
        (best != u32::MAX).then_some(best)
    }

    /// Adds the classifier's boxes and memory to `size`.
    pub(super) fn measure(&self, size: &mut Size) {
        for table in &self.tables {
            size.boxes += table.entries.len();
            let lengths = table.buckets.windows(2).map(|pair| (pair[1].start - pair[0].start) as usize);
            size.most_compared += lengths.max().unwrap_or(0);
            size.bytes += size_of_val(&*table.buckets) + size_of_val(&*table.entries);
        }
        size.tables += self.tables.len();
        size.bytes +=
            size_of::<[u64; ADDRESS_SLOTS]>() * 2 + size_of::<[u64; 1024]>() + size_of::<[u64; 256]>();
    }
}

impl Table {
    #[inline]
    fn find(&self, key: &Key, best: &mut u32) {
        let hash = hash(&key.0, &self.mask);
        let place = usize::try_from(hash >> self.shift).unwrap_or(usize::MAX);
        let Some(&[Bucket { start, tags }, Bucket { start: end, .. }]) =
            self.buckets.get(place..).and_then(<[Bucket]>::first_chunk)
        else {
            return;
        };
        if tags & tag(hash) == 0 {
            return;
        }
        for entry in self.entries.get(start as usize..end as usize).unwrap_or_default() {
            if entry.rule >= *best {
                break;
            }
            if entry.fits(key) {
                *best = entry.rule;
                break;
            }
        }
    }
}

/// Hash of a masked key; its upper bits select the bucket.
///
/// Senders gain nothing by choosing collisions: a packet is compared with the rules of one bucket only, and
/// their number depends only on the rules.
#[inline]
fn hash(words: &[u64; WORDS], mask: &[u64; WORDS]) -> u64 {
    // Odd numbers without pattern: the first digits of the square roots of 2, 3, 5, 7, 11 and 13.
    const FACTORS: [u64; WORDS] = [
        0x6a09_e667_f3bc_c909,
        0xbb67_ae85_84ca_a73b,
        0x3c6e_f372_fe94_f82b,
        0xa54f_f53a_5f1d_36f1,
        0x510e_527f_ade6_82d1,
        0x9b05_688c_2b3e_6c1f,
    ];
    let mut sum = 0_u64;
    for word in 0..WORDS {
        let masked = words[word] & mask[word];
        sum = sum.wrapping_add((masked ^ masked >> 32).wrapping_mul(FACTORS[word]));
    }
    (sum ^ sum >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline]
fn tag(hash: u64) -> u32 {
    1 << (hash >> 8 & 31)
}

impl Maps {
    #[inline]
    fn candidates(&self, key: &Key) -> u64 {
        self.sources[address_slot(key.0[0] >> 48)]
            & self.destinations[address_slot(key.0[2] >> 48)]
            & self.protocols[key.family() << 8 | usize::from(key.protocol())]
            & self.ports[usize::from(key.port() & 0xff)]
    }

    fn add(&mut self, number: usize, table: &Table) {
        let bit = 1_u64 << number;
        for entry in &table.entries {
            for (map, word) in [(&mut self.sources, 0), (&mut self.destinations, 2)] {
                add_address(map, entry.value[word] >> 48, entry.mask[word] >> 48, bit);
            }
            let any_protocol = entry.mask[4] >> PROTOCOL_AT & 0xff == 0;
            let any_family = entry.mask[4] >> ETHER_TYPE_AT & 0xffff == 0;
            let asked = Key(entry.value);
            mark(&mut *self.protocols, bit, |index| {
                (any_protocol || index & 0xff == usize::from(asked.protocol()))
                    && (any_family || index >> 8 == asked.family())
            });
            let any_port = entry.mask[4] >> PORT_AT == 0;
            mark(&mut *self.ports, bit, |index| any_port || index == usize::from(asked.port() & 0xff));
        }
    }
}

/// Sets `bit` in all slots whose index satisfies `fits`.
fn mark(slots: &mut [u64], bit: u64, fits: impl Fn(usize) -> bool) {
    for (index, slot) in slots.iter_mut().enumerate() {
        *slot |= u64::from(fits(index)) * bit;
    }
}

/// Sets `bit` for all first 16 bits of addresses in a prefix.
fn add_address(map: &mut [u64; ADDRESS_SLOTS], value: u64, mask: u64, bit: u64) {
    let free = !mask & 0xffff;
    if free.count_ones() >= 12 {
        map.iter_mut().for_each(|slot| *slot |= bit);
        return;
    }
    // The mask of a prefix is ones from the top, so the free bits are enumerated by counting.
    for low in 0..=free {
        map[address_slot(value & mask & 0xffff | low)] |= bit;
    }
}

#[inline]
fn address_slot(beginning: u64) -> usize {
    usize::from((beginning.wrapping_mul(0x9e37_79b9) >> 22 & 0xffff) as u16) % ADDRESS_SLOTS
}

/// Tables under construction.
#[derive(Default)]
struct Drafts {
    list: Vec<Draft>,
    by_mask: HashMap<[u64; WORDS], usize>,
}

struct Draft {
    mask: [u64; WORDS],
    entries: Vec<Entry>,
    /// Number of boxes per masked key.
    crowds: HashMap<[u64; WORDS], u32>,
}

impl Drafts {
    /// Puts a box into the first table with room, from the coarsest mask to the finest.
    fn place(&mut self, entry: &Entry) {
        let masks = [coarse(&entry.mask, true), coarse(&entry.mask, false), hashed(&entry.mask)];
        let last = masks.len() - 1;
        for (level, mask) in masks.into_iter().enumerate() {
            let index = *self.by_mask.entry(mask).or_insert_with(|| {
                self.list.push(Draft { mask, entries: Vec::new(), crowds: HashMap::new() });
                self.list.len() - 1
            });
            let draft = &mut self.list[index];
            let crowd = draft.crowds.entry(masked(&entry.value, &mask)).or_default();
            if *crowd < CROWD || level == last {
                *crowd += 1;
                draft.entries.push(*entry);
                return;
            }
        }
    }
}

fn masked(value: &[u64; WORDS], mask: &[u64; WORDS]) -> [u64; WORDS] {
    core::array::from_fn(|word| value[word] & mask[word])
}

/// Mask bits that are hashed: all but TCP flags and the "known" bits.
fn hashed(mask: &[u64; WORDS]) -> [u64; WORDS] {
    let mut mask = *mask;
    mask[4] &= !0xff;
    mask[5] &= !(IS_IP | HAS_PORTS | HAS_FLAGS);
    mask
}

/// Coarser mask: prefix lengths rounded down; if `addresses_suffice` and the addresses are selective, without
/// other fields.
fn coarse(mask: &[u64; WORDS], addresses_suffice: bool) -> [u64; WORDS] {
    /// Total prefix length from which addresses are selective enough.
    const ENOUGH: u32 = 24;
    let mut mask = hashed(mask);
    let mut bits = 0;
    for word in [0, 2] {
        let length = mask[word].count_ones() + mask[word + 1].count_ones();
        // IPv4 prefixes have at most 32 bits; IPv6 prefixes are rarely that short.
        let rounded = if length <= 32 { (length & !7).min(24) } else { (length & !15).min(64) };
        mask[word] = u64::MAX.checked_shl(64 - rounded).unwrap_or(0);
        mask[word + 1] = 0;
        bits += rounded;
    }
    // A port range is hashed only if it fixes many leading bits.
    for (at, of) in [(SOURCE_PORT_AT, 5), (DESTINATION_PORT_AT, 5), (VLAN_AT, 4)] {
        let field = mask[of] >> at & 0xffff;
        if field != 0xffff && (addresses_suffice || field.count_ones() < 8) {
            mask[of] &= !(0xffff << at);
        }
    }
    if addresses_suffice && bits >= ENOUGH {
        mask[4] &= 0xffff << ETHER_TYPE_AT;
        mask[5] = 0;
    }
    mask
}

impl Draft {
    fn finish(mut self) -> Table {
        let count = (self.entries.len() * 2).next_power_of_two().max(2);
        let shift = 64 - count.trailing_zeros();
        let mask = self.mask;
        let place = |entry: &Entry| usize::try_from(hash(&entry.value, &mask) >> shift).unwrap_or(usize::MAX);
        self.entries.sort_by_key(|entry| (place(entry), entry.rule));
        // One more bucket marks the end of the last.
        let mut buckets = vec![Bucket::default(); count + 1];
        for entry in &self.entries {
            buckets[place(entry) + 1].start += 1;
            buckets[place(entry)].tags |= tag(hash(&entry.value, &mask));
        }
        for place in 1..buckets.len() {
            buckets[place].start += buckets[place - 1].start;
        }
        let first = self.entries.iter().map(|entry| entry.rule).min().unwrap_or(u32::MAX);
        Table { mask, first, shift, buckets: buckets.into(), entries: self.entries.into() }
    }
}
