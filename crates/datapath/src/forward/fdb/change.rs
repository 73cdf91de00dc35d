//! Changes of an entry, and reads of whole entries.

use super::value::{State, Value};
use super::{Bucket, FdbEntry, FdbKey, Slot, WAYS};
use crate::sync::Ordering;
use polder_buffers::PortId;

impl Bucket {
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        (0..WAYS).map(|way| self.slot(way))
    }
}

impl Slot<'_> {
    /// Value of the slot if it is live and belongs to `key`; `None` otherwise.
    pub(super) fn read(&self, key: FdbKey) -> Option<Value> {
        // Acquire as in `Bucket::find`.
        (self.key.load(Ordering::Acquire) == key.0).then(|| self.live_with(key))?
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

    /// Replaces the value if it still is `old`; false if it has changed.
    pub(super) fn replace(&self, old: Value, new: Value) -> bool {
        // Acquire pairs with the Release of `publish`: a new owner's stores come after the last owner's.
        // Release, for a changed live value, as in `publish`.
        self.value.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends a claim: stores key and value.
    pub(super) fn publish(&self, key: FdbKey, value: Value) {
        // Release pairs with the Acquire of `Bucket::find`: a reader that sees the key sees the claim.
        self.key.store(key.0, Ordering::Release);
        // Release pairs with the Acquire of `value`.
        self.value.store(value.0, Ordering::Release);
    }
}

impl Value {
    pub(super) const FREE: Self = Self(0);
    const GENERATION: u64 = 0xfff0;

    pub(super) fn live(port: PortId, seen: u32, state: State) -> Self {
        Self(u64::from(port.0) << 48 | u64::from(seen) << 16 | state as u64)
    }

    /// Value that claims the slot of this value: next generation, state "claimed".
    pub(super) fn claimed(self) -> Self {
        Self(self.0.wrapping_add(0x10) & Self::GENERATION | State::Claimed as u64)
    }

    /// The same value with the generation of `other`.
    pub(super) fn in_life_of(self, other: Self) -> Self {
        Self(self.0 & !Self::GENERATION | other.0 & Self::GENERATION)
    }

    pub(super) fn is_free(self) -> bool {
        self.0 & 0xf == 0
    }
}
