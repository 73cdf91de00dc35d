//! Fairness between ports: how many addresses each has in the table, and which of them make room.
//!
//! A thread that changes a value from one port to another, or ends it, moves the counts: one thread wins each
//! compare-and-swap, so each change is counted once. A count is raised before the change and lowered behind
//! it, so it is never less than the entries that it counts.

use super::{Fdb, FdbTime, Slot, Value};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use core::cmp::Reverse;
use polder_buffers::PortId;

/// Counts of one port, shared by all workers. Relaxed throughout: they order nothing.
#[derive(Debug, Default)]
struct Port {
    learned: AtomicU32,
    evicted: AtomicU64,
    limited: AtomicU64,
}

/// Counts by port, modulo their number.
#[derive(Debug)]
pub(super) struct Ports(Box<[Port]>);

/// Addresses that one port has in the table, and those that it lost or was not given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortLearning {
    /// Addresses in the table that were learned on the port, aged ones that are not swept included.
    pub learned: u32,
    /// Addresses of the port that made room for others.
    pub evicted: u64,
    /// Frames whose source was not learned because the port was at its limit.
    pub limited: u64,
}

impl Ports {
    pub(super) fn new() -> Self {
        Self((0..PORTS).map(|_| Port::default()).collect())
    }

    fn of(&self, port: PortId) -> &Port {
        &self.0[usize::from(port.0) % PORTS]
    }

    pub(super) fn get(&self, port: PortId) -> PortLearning {
        let Port { learned, evicted, limited } = self.of(port);
        PortLearning {
            learned: learned.load(Ordering::Relaxed),
            evicted: evicted.load(Ordering::Relaxed),
            limited: limited.load(Ordering::Relaxed),
        }
    }

    /// Counts one more address that `value` is for, unless its port has `limit` of them. Static ones are not
    /// counted.
    pub(super) fn enter(&self, value: Value, limit: u32) -> bool {
        if value.is_static() {
            return true;
        }
        let port = self.of(value.port());
        let has_room = port.learned.fetch_add(1, Ordering::Relaxed) < limit;
        if !has_room {
            port.learned.fetch_sub(1, Ordering::Relaxed);
            port.limited.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    /// The address of `value` is gone, or was not entered after all.
    pub(super) fn leave(&self, value: Value) {
        if !value.is_static() {
            self.of(value.port()).learned.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn count_evicted(&self, value: Value) {
        self.of(value.port()).evicted.fetch_add(1, Ordering::Relaxed);
    }

    fn learned(&self, value: Value) -> u32 {
        self.of(value.port()).learned.load(Ordering::Relaxed)
    }
}

impl Fdb {
    /// Learning state of a port: the number of its addresses here.
    pub fn port(&self, port: PortId) -> PortLearning {
        self.ports.get(port)
    }

    /// Of some slots, the one that makes room for `wanted`, which has been entered: an aged entry, or else the
    /// least recently seen of the port that has most. A port with fewer entries than that of `wanted` loses none.
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

    /// Frees a place anywhere in the table; says whether it did.
    ///
    /// Cost: some ten cache lines, [`LONGEST_WALK`] at most, while the table is full and a new address comes.
    #[cold]
    pub(super) fn make_room(&self, wanted: Value, time: FdbTime) -> bool {
        let count = self.buckets.len();
        // Workers that start at one bucket at once find one victim, and only one of them ends it.
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

/// Ports that are counted apart: as many as a gateway has.
#[cfg(not(loom))]
const PORTS: usize = 1 << 14;
#[cfg(loom)]
const PORTS: usize = 4;

/// Entries of which the victim is chosen, at least. A port with half of the table is missed once in 65 000 samples.
const SAMPLE: u32 = 16;

/// Buckets that are looked at for a sample.
const LONGEST_WALK: usize = 64;
