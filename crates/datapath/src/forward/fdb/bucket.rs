//! A cache line of the table: four entries, each a key and a value.

use super::{FdbEntry, FdbKey, FdbTime};
use crate::sync::{AtomicU64, Ordering};
use polder_buffers::PortId;

/// Entries of a bucket.
pub(super) const WAYS: usize = 4;
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    keys: [AtomicU64; WAYS],
    values: [AtomicU64; WAYS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    /// The live entry of `key` in this bucket.
    #[inline(always)]
    pub(super) fn find(&self, key: FdbKey) -> Option<(Slot<'_>, Value)> {
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
            matches &= matches - 1;
        }
        None
    }

    #[inline(always)]
    fn slot(&self, way: usize) -> Slot<'_> {
        // The mask keeps the index inside the bucket without a branch.
        Slot { key: &self.keys[way & (WAYS - 1)], value: &self.values[way & (WAYS - 1)] }
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        (0..WAYS).map(|way| self.slot(way))
    }
}

/// A key and its value.
#[derive(Clone, Copy)]
pub(super) struct Slot<'a> {
    key: &'a AtomicU64,
    value: &'a AtomicU64,
}

impl Slot<'_> {
    /// The value, if it is live and belongs to `key`.
    pub(super) fn read(&self, key: FdbKey) -> Option<Value> {
        // Acquire as in `Bucket::find`.
        (self.key.load(Ordering::Acquire) == key.0).then(|| self.live_with(key))?
    }

    /// The value, if it is live and belongs to `key`, which has been seen in the slot just before.
    #[inline(always)]
    fn live_with(&self, key: FdbKey) -> Option<Value> {
        let value = self.value();
        // Relaxed: the Acquire of the value orders this load behind it.
        (value.is_live() && self.key.load(Ordering::Relaxed) == key.0).then_some(value)
    }

    pub(super) fn entry(&self) -> Option<(FdbEntry, Value)> {
        // Acquire as in `Bucket::find`.
        let key = FdbKey(self.key.load(Ordering::Acquire));
        let value = self.live_with(key)?;
        let entry = FdbEntry {
            address: key.address(),
            vlan: key.vlan(),
            port: value.port(),
            seen: value.seen(),
            is_static: value.is_static(),
        };
        Some((entry, value))
    }

    #[inline(always)]
    pub(super) fn value(&self) -> Value {
        // Acquire pairs with the Release of `publish`: who sees a live value sees its key.
        Value(self.value.load(Ordering::Acquire))
    }

    /// Exchanges the value if it still is `old`.
    pub(super) fn replace(&self, old: Value, new: Value) -> bool {
        // Acquire pairs with the Release of `publish`: a new owner's stores come after the last
        // owner's. Release, for a changed live value, as in `publish`.
        self.value.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends a claim.
    pub(super) fn publish(&self, key: FdbKey, value: Value) {
        // Release pairs with the Acquire of `Bucket::find`: who sees the key sees the claim.
        self.key.store(key.0, Ordering::Release);
        // Release pairs with the Acquire of `value`.
        self.value.store(value.0, Ordering::Release);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Value(u64);

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum State {
    Claimed = 1,
    Live = 2,
    Static = 6,
}

impl Value {
    pub(super) const FREE: Self = Self(0);
    const GENERATION: u64 = 0xfff0;

    pub(super) fn live(port: PortId, seen: u32, state: State) -> Self {
        Self(u64::from(port.0) << 48 | u64::from(seen) << 16 | state as u64)
    }

    /// The value that claims the slot of this one.
    pub(super) fn claimed(self) -> Self {
        Self(self.0.wrapping_add(0x10) & Self::GENERATION | State::Claimed as u64)
    }

    /// The same with the generation of `other`.
    pub(super) fn in_life_of(self, other: Self) -> Self {
        Self(self.0 & !Self::GENERATION | other.0 & Self::GENERATION)
    }

    #[inline(always)]
    pub(super) fn is_live(self) -> bool {
        self.0 & State::Live as u64 != 0
    }

    #[inline(always)]
    pub(super) fn is_static(self) -> bool {
        self.0 & State::Static as u64 == State::Static as u64
    }

    /// True if there is nothing to note of a frame that came in by `port` in `second`.
    #[inline(always)]
    pub(super) fn was_seen(self, port: PortId, second: u32) -> bool {
        self.0 >> 16 == u64::from(port.0) << 32 | u64::from(second)
            || self.port() == port && (self.is_static() || self.seen() > second)
    }

    pub(super) fn is_free(self) -> bool {
        self.0 & 0xf == 0
    }

    #[inline(always)]
    pub(super) fn is_expired(self, time: FdbTime) -> bool {
        time.second.saturating_sub(self.seen()) > time.ageing && !self.is_static()
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the field is 32 bits wide")]
    pub(super) fn seen(self) -> u32 {
        (self.0 >> 16) as u32
    }

    #[inline(always)]
    pub(super) fn port(self) -> PortId {
        PortId((self.0 >> 48) as u16)
    }
}
