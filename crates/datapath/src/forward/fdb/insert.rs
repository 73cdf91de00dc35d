//! Insertion and removal of entries.

use super::value::Value;
use super::{Bucket, Fdb, FdbKey, FdbTime, Slot};
use crate::sync::{Ordering, fence};

/// Result of an attempt to insert an address.
pub(super) enum Insert {
    Done,
    Limited,
    Full,
    Raced,
}

impl Fdb {
    #[cold]
    pub(super) fn insert(&self, key: FdbKey, wanted: Value, limit: u32, time: FdbTime) -> Insert {
        if !self.ports.enter(wanted, limit) {
            return Insert::Limited;
        }
        let insert = self.place(key, wanted, time);
        if !matches!(insert, Insert::Done) {
            self.ports.leave(wanted);
        }
        insert
    }

    /// Stores a counted address in one of its slots, perhaps evicting another address.
    fn place(&self, key: FdbKey, wanted: Value, time: FdbTime) -> Insert {
        let usable = self.slots_of(key).find_map(|slot| {
            let value = slot.value();
            let usable = value.is_free() || value.is_live() && value.is_expired(time);
            usable.then_some((slot, value))
        });
        let place = usable.or_else(|| self.victim(self.slots_of(key), wanted, time));
        let Some((slot, value)) = place else { return Insert::Full };
        if value.is_free() && !self.occupy() && !(self.make_room(wanted, time) && self.occupy()) {
            return Insert::Full;
        }
        let claimed = value.claimed();
        if !slot.replace(value, claimed) {
            if value.is_free() {
                self.occupied.fetch_sub(1, Ordering::Relaxed);
            }
            return Insert::Raced;
        }
        if value.is_live() {
            self.ports.leave(value);
            if !value.is_expired(time) {
                self.ports.count_evicted(value);
            }
        }
        slot.publish(key, wanted.in_life_of(claimed));
        self.remove_duplicates(key);
        Insert::Done
    }

    /// Counts one more entry; false if the database is full.
    fn occupy(&self) -> bool {
        let occupied = self.occupied.fetch_add(1, Ordering::Relaxed);
        if occupied >= self.capacity {
            self.occupied.fetch_sub(1, Ordering::Relaxed);
        }
        occupied < self.capacity
    }

    /// Leaves one entry of `key`: a static one, otherwise the first in look-up order.
    fn remove_duplicates(&self, key: FdbKey) {
        // Pairs with itself on another worker: between the entry published before and the scan after it, so
        // that at least one of two workers sees both entries.
        fence(Ordering::SeqCst);
        loop {
            let mut entries = self.slots_of(key).filter_map(|slot| Some((slot, slot.read(key)?)));
            let (Some(earlier), Some(later)) = (entries.next(), entries.next()) else { return };
            let keep_later = later.1.is_static() && !earlier.1.is_static();
            let (slot, value) = if keep_later { earlier } else { later };
            self.free(slot, value);
        }
    }

    /// Removes the entry if it is unchanged since it was read; false otherwise.
    pub(super) fn free(&self, slot: Slot<'_>, value: Value) -> bool {
        let claimed = value.claimed();
        if !slot.replace(value, claimed) {
            return false;
        }
        slot.publish(FdbKey::NONE, Value::FREE.in_life_of(claimed));
        self.ports.leave(value);
        self.occupied.fetch_sub(1, Ordering::Relaxed);
        true
    }

    /// Slots of a key in look-up order.
    pub(super) fn slots_of(&self, key: FdbKey) -> impl Iterator<Item = Slot<'_>> {
        self.view().buckets_of(key).into_iter().flat_map(Bucket::slots)
    }
}
