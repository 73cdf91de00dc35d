//! Lookups: from a key to its two buckets.

use super::bucket::{Bucket, Slot, Value};
use super::{Fdb, FdbKey, FdbTime};
use polder_buffers::PortId;

/// View of the table for look-ups, which holds its fields close at hand.
#[derive(Clone, Copy)]
pub(in crate::forward) struct View<'a> {
    fdb: &'a Fdb,
    buckets: &'a [Bucket],
    mask: usize,
    hasher: Hasher,
}

impl<'a> View<'a> {
    #[inline(always)]
    pub(super) fn new(fdb: &'a Fdb, buckets: &'a [Bucket], hasher: Hasher) -> Self {
        Self { fdb, buckets, mask: buckets.len() - 1, hasher }
    }

    /// The port that `key`, whose place is `place`, was last seen on.
    ///
    /// Cost: one cache line, two when the address is unknown or its first bucket was full.
    #[inline(always)]
    pub(in crate::forward) fn lookup(
        &self,
        key: FdbKey,
        place: BucketIndex,
        time: FdbTime,
    ) -> Option<PortId> {
        let (_, value) = self.find(key, place)?;
        (!value.is_expired(time)).then(|| value.port())
    }

    /// True if learning `key`, whose place is `place`, on `port` would change nothing.
    ///
    /// Cost: one cache line; two when the address is new or its first bucket was full.
    #[inline(always)]
    pub(in crate::forward) fn knows(
        &self,
        key: FdbKey,
        place: BucketIndex,
        port: PortId,
        time: FdbTime,
    ) -> bool {
        self.find(key, place).is_some_and(|(_, value)| value.was_seen(port, time.second))
    }

    /// First bucket of `key`, which is prefetched for the look-up.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "there are less than 2³² buckets")]
    pub(in crate::forward) fn locate(&self, key: FdbKey) -> BucketIndex {
        let index = self.hasher.hash(key).0 & self.mask;
        polder_buffers::prefetch(&self.buckets[index]);
        BucketIndex(index as u32)
    }

    /// The live entry of `key`, and its value at that moment.
    #[inline(always)]
    pub(super) fn find(&self, key: FdbKey, place: BucketIndex) -> Option<(Slot<'a>, Value)> {
        // The mask keeps the index inside the table, whatever table the place is of.
        let first = &self.buckets[place.0 as usize & self.mask];
        first.find(key).or_else(|| self.fdb.find_second(key))
    }

    /// The buckets of a key, in the order of lookups.
    #[inline(always)]
    pub(super) fn buckets_of(&self, key: FdbKey) -> [&'a Bucket; 2] {
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
pub(in crate::forward) struct BucketIndex(u32);

/// Both halves are used: for the first bucket and for the second.
#[derive(Clone, Copy)]
struct Hash(usize);

const _: () = assert!(usize::BITS == 64, "the hash has two halves of 32 bits");

/// Hash that cannot be predicted without the seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher {
    add: u64,
    multiply: u64,
}

impl Hasher {
    pub(super) fn new(seed: u64) -> Self {
        Self { add: scramble(seed), multiply: scramble(seed.wrapping_add(1)) | 1 }
    }

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

/// The finaliser of splitmix64: every bit of the seed reaches every bit of the result.
fn scramble(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(GOLDEN);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
