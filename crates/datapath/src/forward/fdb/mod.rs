//! Forwarding database (FDB): the port on which each address was last seen, per VLAN.
//!
//! All workers and the control thread share one table without locks: an entry is two words, a key and a
//! value, and every change of an entry goes through its value.
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
//! An address has two buckets: it is stored in the first, or in the second if the first is full. The table is
//! at most half full, so nineteen of twenty look-ups read one cache line (ADR 0004).
//!
//! A reader never returns the port of another address. It reads key, value, key: seeing a key (Acquire)
//! implies seeing the claim before it, and seeing a live value (Acquire) implies seeing the key stored before
//! it. So the key read last is the key of the value or of a later use of the slot. Exclusion of writers is
//! described in `learn.rs`.

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

/// Forwarding database of one bridge.
#[derive(Debug)]
pub struct Fdb {
    buckets: Box<[Bucket]>,
    hasher: Hasher,
    capacity: u32,
    occupied: AtomicU32,
    ports: Ports,
    /// Bucket at which the next eviction starts its scan, modulo their number.
    hand: AtomicU32,
}

/// Key of the table: an address in a VLAN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FdbKey(pub(super) u64);

impl FdbKey {
    /// No address.
    pub(super) const NONE: Self = Self(0);

    /// Key of an address as in a frame, first byte lowest.
    #[inline(always)]
    pub(super) fn from_wire(address: u64, vlan: u16) -> Self {
        Self(1 << 63 | u64::from(vlan & 0xfff) << 48 | address)
    }

    /// True for multicast and broadcast addresses.
    #[inline(always)]
    pub(super) fn is_group(self) -> bool {
        self.0 & 1 != 0
    }

    /// The address, first byte lowest.
    pub(super) fn packed(self) -> u64 {
        self.0 & 0xffff_ffff_ffff
    }

    /// The same address without VLAN.
    pub(super) fn without_vlan(self) -> Self {
        self.in_vlan(0)
    }

    /// The same address in another VLAN.
    pub(super) fn in_vlan(self, vlan: u16) -> Self {
        Self::from_wire(self.packed(), vlan)
    }

    /// VLAN; 0 on a bridge without VLANs.
    #[inline(always)]
    pub(super) fn vlan(self) -> u16 {
        (self.0 >> 48) as u16 & 0xfff
    }
}

impl Fdb {
    /// Port on which `key` was last seen; `None` if it is unknown or expired.
    pub fn lookup(&self, key: FdbKey, time: FdbTime) -> Option<PortId> {
        let view = self.view();
        view.lookup(key, view.locate(key), time)
    }

    /// View of the table for one batch.
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

/// View of the table for look-ups, with its fields inline.
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

    /// Port on which `key` was last seen; `place` is the key's bucket. `None` if it is unknown or expired.
    ///
    /// Cost: one cache line; two if the address is unknown or its first bucket was full.
    #[inline(always)]
    pub(super) fn lookup(&self, key: FdbKey, place: BucketIndex, time: FdbTime) -> Option<PortId> {
        let (_, value) = self.find(key, place)?;
        (!value.is_expired(time)).then(|| value.port())
    }

    /// True if learning `key` on `port` would change nothing; `place` is the key's bucket.
    ///
    /// Cost: one cache line; two if the address is new or its first bucket was full.
    #[inline(always)]
    pub(super) fn knows(&self, key: FdbKey, place: BucketIndex, port: PortId, time: FdbTime) -> bool {
        self.find(key, place).is_some_and(|(_, value)| value.was_seen(port, time.second))
    }

    /// Returns the first bucket of `key` and prefetches it.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "there are less than 2³² buckets")]
    pub(super) fn locate(&self, key: FdbKey) -> BucketIndex {
        let index = self.hasher.hash(key).0 & self.mask;
        polder_buffers::prefetch(&self.buckets[index]);
        BucketIndex(index as u32)
    }

    /// The live entry of `key` and its value; `None` if there is none.
    #[inline(always)]
    fn find(&self, key: FdbKey, place: BucketIndex) -> Option<(Slot<'a>, Value)> {
        // The mask keeps the index in range for a bucket index of another table.
        let first = &self.buckets[place.0 as usize & self.mask];
        first.find(key).or_else(|| self.fdb.find_second(key))
    }

    /// Both buckets of a key in look-up order.
    #[inline(always)]
    fn buckets_of(&self, key: FdbKey) -> [&'a Bucket; 2] {
        let hash = self.hasher.hash(key);
        [self.first(hash), self.second(hash)]
    }

    #[inline(always)]
    fn first(&self, hash: Hash) -> &'a Bucket {
        &self.buckets[hash.0 & self.mask]
    }

    /// Second bucket of a hash; differs from the first even if both halves of the hash are equal.
    #[inline(always)]
    fn second(&self, hash: Hash) -> &'a Bucket {
        let (first, second) = (hash.0 & self.mask, (hash.0 >> 32) & self.mask);
        &self.buckets[if second == first { first ^ 1 } else { second }]
    }
}

/// Index of a key's first bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BucketIndex(u32);

/// Hash of a key; the lower half selects the first bucket, the upper half the second.
#[derive(Clone, Copy)]
struct Hash(usize);

const _: () = assert!(usize::BITS == 64, "the hash has two halves of 32 bits");

/// Hash function that is unpredictable without its seed.
#[derive(Clone, Copy, Debug)]
struct Hasher {
    add: u64,
    multiply: u64,
}

impl Hasher {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a word is 64 bits wide, as asserted above")]
    fn hash(self, key: FdbKey) -> Hash {
        // Hashed twice: after one multiplication, consecutive addresses have equal distances, and with an
        // unlucky seed fall into few buckets.
        let once = fold(key.0 ^ self.add, self.multiply);
        Hash(fold(once, GOLDEN) as usize)
    }
}

/// Upper and lower half of a 128-bit product, combined by XOR.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "both halves are wanted, by themselves")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// 2⁶⁴ divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Number of entries per bucket.
const WAYS: usize = 4;

/// A cache line of the table: four entries, each with key and value.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Bucket {
    keys: [AtomicU64; WAYS],
    values: [AtomicU64; WAYS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    /// The live entry of `key` in this bucket; `None` if there is none.
    #[inline(always)]
    fn find(&self, key: FdbKey) -> Option<(Slot<'_>, Value)> {
        // All four keys are compared before the first branch, since the matching one is unpredictable.
        let mut matches = 0_u32;
        for (way, stored) in self.keys.iter().enumerate() {
            // Acquire pairs with the Release stores of keys: a reader that sees a key sees the claim before
            // it.
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

/// Key and value of one entry.
#[derive(Clone, Copy)]
struct Slot<'a> {
    key: &'a AtomicU64,
    value: &'a AtomicU64,
}

impl Slot<'_> {
    /// Value of the slot if it is live and belongs to `key`, which was read from the slot before.
    #[inline(always)]
    fn live_with(&self, key: FdbKey) -> Option<Value> {
        let value = self.value();
        // Relaxed: the Acquire of the value orders this load after it.
        (value.is_live() && self.key.load(Ordering::Relaxed) == key.0).then_some(value)
    }

    #[inline(always)]
    fn value(&self) -> Value {
        // Acquire pairs with the Release of `publish`: a reader that sees a live value sees its key.
        Value(self.value.load(Ordering::Acquire))
    }
}
