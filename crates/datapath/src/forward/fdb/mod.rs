//! The forwarding database: which address of which VLAN was last seen on which port.
//!
//! One table is shared by all workers and the control thread. Nobody locks: an entry is two words,
//! a key and a value, and every change of an entry goes through its value.
//!
//! ```text
//!  bucket = 64 bytes = one cache line          value
//!  ┌──────┬──────┬──────┬──────┐   keys        63    48 47           16 15       4 3     0
//!  │ key0 │ key1 │ key2 │ key3 │               ┌───────┬───────────────┬──────────┬───────┐
//!  ├──────┼──────┼──────┼──────┤   values      │ port  │ seen (second) │generation│ state │
//!  │ val0 │ val1 │ val2 │ val3 │               └───────┴───────────────┴──────────┴───────┘
//!  └──────┴──────┴──────┴──────┘   key: 63 = 1, 59..48 VLAN, 47..0 address; 0 = none
//! ```
//!
//! An address has two buckets: it goes into the first, and into the second when the first is full.
//! The table is at most half full, so nineteen lookups of twenty touch one line (ADR 0004).
//!
//! A reader never takes the port of another address. It reads key, value, key: seeing a key (Acquire) implies seeing
//! the claim before it, and seeing a live value (Acquire) implies seeing the key stored before it. So the key read
//! last is the key of the value or of a later life of the slot. How writers keep each other apart is in `learn.rs`.

mod build;
mod change;
mod copy;
mod fair;
mod insert;
mod learn;
#[cfg(all(test, loom))]
mod loom_tests;
mod maintain;
mod value;
mod victim;

pub use build::FdbOptions;
pub use fair::PortLearning;
pub use learn::Learned;
pub use maintain::{FdbEntry, FdbFull, SweepCursor, Swept};
pub use value::FdbTime;

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use fair::Ports;
use polder_buffers::PortId;
use value::Value;

/// The forwarding database of one bridge.
#[derive(Debug)]
pub struct Fdb {
    buckets: Box<[Bucket]>,
    hasher: Hasher,
    capacity: u32,
    occupied: AtomicU32,
    ports: Ports,
    /// The bucket at which the next search for a victim begins, modulo their number.
    hand: AtomicU32,
}

/// An address in a VLAN, as the table stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FdbKey(pub(super) u64);

impl FdbKey {
    /// No address, in no VLAN.
    pub(super) const NONE: Self = Self(0);

    /// The six bytes of an address as they stand in a frame, the first of them lowest.
    #[inline(always)]
    pub(super) fn from_wire(address: u64, vlan: u16) -> Self {
        Self(1 << 63 | u64::from(vlan & 0xfff) << 48 | address)
    }

    /// True if it is the address of a group; broadcast is one.
    #[inline(always)]
    pub(super) fn is_group(self) -> bool {
        self.0 & 1 != 0
    }

    /// The six bytes of the address, the first of them lowest.
    pub(super) fn packed(self) -> u64 {
        self.0 & 0xffff_ffff_ffff
    }

    /// The address alone, as of a bridge without VLANs.
    pub(super) fn without_vlan(self) -> Self {
        self.in_vlan(0)
    }

    /// The same address in another VLAN.
    pub(super) fn in_vlan(self, vlan: u16) -> Self {
        Self::from_wire(self.packed(), vlan)
    }

    /// Its VLAN; 0 for none.
    #[inline(always)]
    pub(super) fn vlan(self) -> u16 {
        (self.0 >> 48) as u16 & 0xfff
    }
}

impl Fdb {
    /// The port that `key` was last seen on.
    pub fn lookup(&self, key: FdbKey, time: FdbTime) -> Option<PortId> {
        let view = self.view();
        view.lookup(key, view.locate(key), time)
    }

    /// The table as one batch uses it.
    #[inline(always)]
    pub(super) fn view(&self) -> View<'_> {
        View::new(self, &self.buckets, self.hasher)
    }

    #[cold]
    fn find_second(&self, key: FdbKey) -> Option<(Slot<'_>, Value)> {
        let [_, second] = self.view().buckets_of(key);
        second.find(key)
    }
}

/// View of the table for look-ups, which holds its fields close at hand.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    fdb: &'a Fdb,
    buckets: &'a [Bucket],
    mask: usize,
    hasher: Hasher,
}

impl<'a> View<'a> {
    #[inline(always)]
    fn new(fdb: &'a Fdb, buckets: &'a [Bucket], hasher: Hasher) -> Self {
        Self { fdb, buckets, mask: buckets.len() - 1, hasher }
    }

    /// The port that `key`, whose place is `place`, was last seen on.
    ///
    /// Cost: one cache line, two when the address is unknown or its first bucket was full.
    #[inline(always)]
    pub(super) fn lookup(&self, key: FdbKey, place: BucketIndex, time: FdbTime) -> Option<PortId> {
        let (_, value) = self.find(key, place)?;
        (!value.is_expired(time)).then(|| value.port())
    }

    /// True if learning `key`, whose place is `place`, on `port` would change nothing.
    ///
    /// Cost: one cache line; two when the address is new or its first bucket was full.
    #[inline(always)]
    pub(super) fn knows(&self, key: FdbKey, place: BucketIndex, port: PortId, time: FdbTime) -> bool {
        self.find(key, place).is_some_and(|(_, value)| value.was_seen(port, time.second))
    }

    /// First bucket of `key`, which is prefetched for the look-up.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "there are less than 2³² buckets")]
    pub(super) fn locate(&self, key: FdbKey) -> BucketIndex {
        let index = self.hasher.hash(key).0 & self.mask;
        polder_buffers::prefetch(&self.buckets[index]);
        BucketIndex(index as u32)
    }

    /// The live entry of `key`, and its value at that moment.
    #[inline(always)]
    fn find(&self, key: FdbKey, place: BucketIndex) -> Option<(Slot<'a>, Value)> {
        // The mask keeps the index inside the table, whatever table the place is of.
        let first = &self.buckets[place.0 as usize & self.mask];
        first.find(key).or_else(|| self.fdb.find_second(key))
    }

    /// The buckets of a key, in the order of lookups.
    #[inline(always)]
    fn buckets_of(&self, key: FdbKey) -> [&'a Bucket; 2] {
        let hash = self.hasher.hash(key);
        [self.first(hash), self.second(hash)]
    }

    #[inline(always)]
    fn first(&self, hash: Hash) -> &'a Bucket {
        &self.buckets[hash.0 & self.mask]
    }

    /// Another one than the first, also when both halves of the hash agree.
    #[inline(always)]
    fn second(&self, hash: Hash) -> &'a Bucket {
        let (first, second) = (hash.0 & self.mask, (hash.0 >> 32) & self.mask);
        &self.buckets[if second == first { first ^ 1 } else { second }]
    }
}

/// The first bucket of a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BucketIndex(u32);

/// Both halves are used: for the first bucket and for the second.
#[derive(Clone, Copy)]
struct Hash(usize);

const _: () = assert!(usize::BITS == 64, "the hash has two halves of 32 bits");

/// Hash that cannot be predicted without the seed.
#[derive(Clone, Copy, Debug)]
struct Hasher {
    add: u64,
    multiply: u64,
}

impl Hasher {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a word is 64 bits wide, as asserted above")]
    fn hash(self, key: FdbKey) -> Hash {
        // Twice: after one multiplication, addresses that follow each other stand at equal distances,
        // and with an unlucky seed in a few buckets.
        let once = fold(key.0 ^ self.add, self.multiply);
        Hash(fold(once, GOLDEN) as usize)
    }
}

/// The two halves of a product, one upon the other.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "both halves are wanted, by themselves")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// 2⁶⁴ divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Entries of a bucket.
const WAYS: usize = 4;

/// A cache line of the table: four entries, each a key and a value.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Bucket {
    keys: [AtomicU64; WAYS],
    values: [AtomicU64; WAYS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    /// The live entry of `key` in this bucket.
    #[inline(always)]
    fn find(&self, key: FdbKey) -> Option<(Slot<'_>, Value)> {
        // All four are compared before the first branch: which one it is cannot be predicted.
        let mut matches = 0_u32;
        for (way, stored) in self.keys.iter().enumerate() {
            // Acquire pairs with the Release stores of keys: who sees a key sees the claim before it.
            matches |= u32::from(stored.load(Ordering::Acquire) == key.0) << way;
        }
        while matches != 0 {
            let slot = self.slot(matches.trailing_zeros() as usize);
            if let Some(value) = slot.live_with(key) {
                return Some((slot, value));
            }
            matches &= matches.wrapping_sub(1);
        }
        None
    }

    #[inline(always)]
    fn slot(&self, way: usize) -> Slot<'_> {
        // The mask keeps the index inside the bucket without a branch.
        Slot { key: &self.keys[way & (WAYS - 1)], value: &self.values[way & (WAYS - 1)] }
    }
}

/// A key and its value.
#[derive(Clone, Copy)]
struct Slot<'a> {
    key: &'a AtomicU64,
    value: &'a AtomicU64,
}

impl Slot<'_> {
    /// The value, if it is live and belongs to `key`, which has been seen in the slot just before.
    #[inline(always)]
    fn live_with(&self, key: FdbKey) -> Option<Value> {
        let value = self.value();
        // Relaxed: the Acquire of the value orders this load behind it.
        (value.is_live() && self.key.load(Ordering::Relaxed) == key.0).then_some(value)
    }

    #[inline(always)]
    fn value(&self) -> Value {
        // Acquire pairs with the Release of `publish`: who sees a live value sees its key.
        Value(self.value.load(Ordering::Acquire))
    }
}
