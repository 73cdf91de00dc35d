//! Eviction: chooses the entry that is replaced by a new one.

use super::value::{FdbTime, Value};
use super::{Fdb, PortLearning, Slot};
use crate::sync::Ordering;
use core::cmp::Reverse;
use polder_buffers::PortId;

impl Fdb {
    /// Counts of a port.
    pub fn port(&self, port: PortId) -> PortLearning {
        self.ports.get(port)
    }

    /// Chooses the entry of `slots` that is evicted for `wanted`: an expired one, or else the least recently
    /// seen of the port with most entries. Ports with fewer entries than that of `wanted` lose none.
    pub(super) fn victim<'a>(
        &self,
        slots: impl Iterator<Item = Slot<'a>>,
        wanted: Value,
        time: FdbTime,
    ) -> Option<(Slot<'a>, Value)> {
        let own = if wanted.is_static() { 0 } else { self.ports.learned(wanted) };
        let mut sampled = 0;
        let mut best: Option<((u32, Reverse<u32>), Slot<'a>, Value)> = None;
        for slot in slots {
            let value = slot.value();
            if !value.is_live() || value.is_static() {
                continue;
            }
            if value.is_expired(time) {
                return Some((slot, value));
            }
            let rank = (self.ports.learned(value), Reverse(value.seen()));
            if rank.0 >= own && best.as_ref().is_none_or(|(most, ..)| rank > *most) {
                best = Some((rank, slot, value));
            }
            sampled += 1;
            if sampled >= SAMPLE && best.is_some() {
                break;
            }
        }
        best.map(|(_, slot, value)| (slot, value))
    }

    /// Evicts an entry anywhere in the table; false if none may be evicted.
    ///
    /// Cost: about ten cache lines, at most [`LONGEST_WALK`], for each new address while the table is full.
    #[cold]
    pub(super) fn make_room(&self, wanted: Value, time: FdbTime) -> bool {
        let count = self.buckets.len();
        // Workers that start at the same bucket may choose the same victim; only one of them removes it.
        let start = self.hand.load(Ordering::Relaxed) as usize;
        let mut passed = 0_u32;
        let buckets = (start..start + count.min(LONGEST_WALK)).inspect(|_| passed += 1);
        let slots = buckets.flat_map(|at| self.buckets[at % count].slots());
        let victim = self.victim(slots, wanted, time);
        self.hand.fetch_add(passed, Ordering::Relaxed);
        let Some((slot, value)) = victim else { return false };
        let is_freed = self.free(slot, value);
        if is_freed && !value.is_expired(time) {
            self.ports.count_evicted(value);
        }
        is_freed
    }
}

/// Minimum number of entries from which the victim is chosen. A port that has half of the entries is missed
/// once in 65 000 samples.
const SAMPLE: u32 = 16;

/// Maximum number of buckets that are scanned for a sample.
const LONGEST_WALK: usize = 64;
