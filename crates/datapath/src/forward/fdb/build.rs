//! Construction of an empty database.

use super::fair::Ports;
use super::{Bucket, Fdb, GOLDEN, Hasher, WAYS};
use crate::sync::AtomicU32;

/// Options of a database.
#[derive(Clone, Copy, Debug)]
pub struct FdbOptions {
    /// Maximum number of learned addresses; raised to 64 and limited to 2²⁰.
    pub capacity: u32,
    /// Secret seed of the hash, so that senders cannot choose addresses that share a bucket.
    pub seed: u64,
}

impl Fdb {
    /// An empty database, at most half full with `options.capacity` addresses.
    pub fn new(options: FdbOptions) -> Self {
        let capacity = options.capacity.clamp(64, 1 << 20);
        let slots = 2 * capacity as usize;
        Self::with_buckets(slots.div_ceil(WAYS).next_power_of_two(), capacity, options.seed)
    }

    /// An empty database of `count` buckets: a power of two, at least two.
    pub(super) fn with_buckets(count: usize, capacity: u32, seed: u64) -> Self {
        Self {
            buckets: (0..count).map(|_| Bucket::default()).collect(),
            hasher: Hasher::new(seed),
            capacity,
            occupied: AtomicU32::new(0),
            ports: Ports::new(),
            hand: AtomicU32::new(0),
        }
    }
}

impl Hasher {
    fn new(seed: u64) -> Self {
        Self { add: scramble(seed), multiply: scramble(seed.wrapping_add(1)) | 1 }
    }
}

/// Finaliser of splitmix64: each bit of the seed affects each bit of the result.
fn scramble(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(GOLDEN);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
