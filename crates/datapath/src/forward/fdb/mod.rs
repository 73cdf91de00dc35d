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
//! The table is at most half full. Then nineteen lookups of twenty touch one line, and one address in
//! 250 has no place; at a quarter, none in ten thousand. A single bucket would turn one in 25 away.
//!
//! # Why no lock is needed
//! * **A slot has one owner while its key changes.** A slot is *free*, *live* or *claimed*. Who moves
//!   its value from free (or live) to claimed by compare-and-swap may write the key; everyone else
//!   treats the slot as empty until the owner stores a live or free value. The generation, one more
//!   with every claim, makes a compare-and-swap fail that was prepared for an earlier life of the slot.
//! * **A reader never takes the port of another address.** It reads key, value, key. Seeing a key
//!   (Acquire) implies seeing the claim before it; seeing a live value (Acquire) implies seeing the
//!   key stored before it. So the key read last is the key of the value or of a later life of the
//!   slot. That it is the wanted address again in a *later* life would take two reuses of the slot
//!   between two adjacent loads; the frame would then go to one wrong port of its own VLAN.
//! * **Two workers that learn one address at once leave one entry.** Each publishes, fences, and looks
//!   for the address in its other slots. With a sequentially consistent fence between store and look
//!   on both sides at least one sees the other's entry, and both choose the same loser: the dynamic
//!   entry against the static, else the later in the order of lookups, which nobody can see anyway.
//!   The loser's slot is claimed once and freed once, whoever does it.
//! * **Ageing cannot take a fresh entry.** Removal claims exactly the value that was judged, so an
//!   entry that is refreshed in between stays.
//! * **A move is one compare-and-swap of port and time together**; workers that see an address on two
//!   ports at once leave it on one of them, and the next frame corrects it.
//! * **A full table makes room.** A new address ends the entry that has waited longest of the port that has most,
//!   among a sample (`fair.rs`, ADR 0035): one port's flood costs that port its entries, and no other.

mod bucket;
mod copy;
mod fair;
mod key;
#[cfg(all(test, loom))]
mod loom_tests;
mod view;

pub use fair::PortLearning;
pub use key::FdbKey;
pub(super) use view::{BucketIndex, View};

use crate::sync::{AtomicU32, Ordering, fence};
use crate::units::Nanos;
use crate::wire::MacAddress;
use bucket::{Bucket, Slot, State, Value, WAYS};
use fair::Ports;
use polder_buffers::PortId;
use view::Hasher;

/// Options of a table.
#[derive(Clone, Copy, Debug)]
pub struct FdbOptions {
    /// Addresses that it learns at most; rounded up to 64 and cut at 2²⁰.
    pub capacity: u32,
    /// Secret of the hash, so that senders cannot choose addresses that share a bucket.
    pub seed: u64,
}

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

/// The time of a lookup, and after how many seconds an address is forgotten.
#[derive(Clone, Copy, Debug)]
pub struct FdbTime {
    /// Second of the gateway's clock.
    pub second: u32,
    /// Seconds that a learned address outlives its last frame.
    pub ageing: u32,
}

/// Result of learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// Nothing: the address is known there, and was seen in this second.
    Known,
    /// The address is known there; its age starts again.
    Refreshed,
    /// The address is new.
    Added,
    /// The address was on another port.
    Moved,
    /// Nothing: it is bound to another port by configuration.
    Pinned,
    /// Nothing: the port has as many addresses as it may.
    Limited,
    /// Nothing: the table or both buckets are full of static entries and those of ports with fewer addresses.
    Full,
}

/// One address of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FdbEntry {
    /// The address.
    pub address: MacAddress,
    /// Its VLAN; 0 on a bridge without VLANs.
    pub vlan: u16,
    /// Port for frames to the address.
    pub port: PortId,
    /// Second of the gateway's clock at which it was last seen.
    pub seen: u32,
    /// True if it comes from the configuration.
    pub is_static: bool,
}

/// The table has no place for a static entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no place for another address in the forwarding database; raise its capacity")]
pub struct FdbFull;

/// Position of a sweep in the table.
#[derive(Clone, Copy, Debug, Default)]
pub struct SweepCursor(usize);

/// Result of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Entries that were removed.
    pub removed: u32,
    /// True if the end of the table was reached; the next sweep starts at its beginning.
    pub wrapped: bool,
}

impl Fdb {
    /// An empty table, at most half full when it holds `options.capacity` addresses.
    pub fn new(options: FdbOptions) -> Self {
        let capacity = options.capacity.clamp(64, 1 << 20);
        let slots = 2 * capacity as usize;
        Self::with_buckets(slots.div_ceil(WAYS).next_power_of_two(), capacity, options.seed)
    }

    /// `count` is a power of two, and at least two.
    fn with_buckets(count: usize, capacity: u32, seed: u64) -> Self {
        Self {
            buckets: (0..count).map(|_| Bucket::default()).collect(),
            hasher: Hasher::new(seed),
            capacity,
            occupied: AtomicU32::new(0),
            ports: Ports::new(),
            hand: AtomicU32::new(0),
        }
    }

    /// Addresses that it learns at most.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Addresses in the table, those included that are too old and not yet swept.
    pub fn occupied(&self) -> u32 {
        self.occupied.load(Ordering::Relaxed)
    }

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

    /// Notes that a frame with source `key` came in by `port`.
    ///
    /// Writes only when something changed: at most once a second for an address that stays.
    pub fn learn(&self, key: FdbKey, port: PortId, time: FdbTime) -> Learned {
        self.learn_within(key, port, u32::MAX, time)
    }

    /// The same for a port that is to have at most `limit` addresses.
    ///
    /// An address that comes to a port at its limit is forgotten: frames to it are flooded, and reach it.
    pub fn learn_within(&self, key: FdbKey, port: PortId, limit: u32, time: FdbTime) -> Learned {
        // Who loses every time meets others that change this address or its buckets without pause;
        // the next frame tries again.
        (0..ATTEMPTS).find_map(|_| self.try_learn(key, port, limit, time)).unwrap_or(Learned::Known)
    }

    /// `None` when another thread came in between.
    fn try_learn(&self, key: FdbKey, port: PortId, limit: u32, time: FdbTime) -> Option<Learned> {
        let fresh = Value::live(port, time.second, State::Live);
        let Some((slot, value)) = self.find(key) else {
            return match self.insert(key, fresh, limit, time) {
                Insert::Done => Some(Learned::Added),
                Insert::Limited => Some(Learned::Limited),
                Insert::Full => Some(Learned::Full),
                Insert::Raced => None,
            };
        };
        if value.was_seen(port, time.second) && !value.is_expired(time) {
            return Some(Learned::Known);
        }
        if value.is_static() {
            return Some(Learned::Pinned);
        }
        // Workers read their clocks at different moments; time does not run backwards.
        let seen = value.seen().max(time.second);
        let fresh = Value::live(port, seen, State::Live).in_life_of(value);
        let stays = value.port() == port;
        let learned = match (value.is_expired(time), stays) {
            (true, _) => Learned::Added,
            (false, true) => Learned::Refreshed,
            (false, false) => Learned::Moved,
        };
        if stays {
            return slot.replace(value, fresh).then_some(learned);
        }
        if !self.ports.enter(fresh, limit) {
            return self.free(slot, value).then_some(Learned::Limited);
        }
        let is_moved = slot.replace(value, fresh);
        self.ports.leave(if is_moved { value } else { fresh });
        is_moved.then_some(learned)
    }

    /// Binds `key` to `port` until it is removed: it is neither aged nor moved.
    ///
    /// # Errors
    /// [`FdbFull`] when its two buckets, or the whole table, hold other static entries.
    pub fn set_static(&self, key: FdbKey, port: PortId, time: FdbTime) -> Result<(), FdbFull> {
        let wanted = Value::live(port, time.second, State::Static);
        loop {
            match self.find(key) {
                Some((slot, value)) if slot.replace(value, wanted.in_life_of(value)) => {
                    self.ports.leave(value);
                    return Ok(());
                }
                Some(_) => {}
                None => match self.insert(key, wanted, u32::MAX, time) {
                    Insert::Done => return Ok(()),
                    Insert::Limited | Insert::Full => return Err(FdbFull),
                    Insert::Raced => {}
                },
            }
        }
    }

    /// Removes `key`, static or not; says whether it was there.
    pub fn remove(&self, key: FdbKey) -> bool {
        let mut removed = false;
        while let Some((slot, value)) = self.find(key) {
            removed |= self.free(slot, value);
        }
        removed
    }

    /// Removes all entries for which `which` answers yes; returns how many.
    ///
    /// Cost: a walk over the whole table, for a control thread.
    pub fn remove_where(&self, mut which: impl FnMut(&FdbEntry) -> bool) -> u32 {
        let mut removed = 0;
        for slot in self.slots() {
            if let Some((entry, value)) = slot.entry()
                && which(&entry)
            {
                removed += u32::from(self.free(slot, value));
            }
        }
        removed
    }

    /// Removes the addresses learned on `port`, for a link that went down; static entries stay.
    pub fn flush_port(&self, port: PortId) -> u32 {
        self.remove_where(|entry| entry.port == port && !entry.is_static)
    }

    /// Removes aged entries from the next `buckets` buckets, for a control thread.
    ///
    /// Lookups do not depend on it: an aged entry is not found, swept or not. Sweeping makes room.
    pub fn sweep(&self, cursor: &mut SweepCursor, buckets: usize, time: FdbTime) -> Swept {
        let start = cursor.0.min(self.buckets.len());
        let end = self.buckets.len().min(start.saturating_add(buckets));
        let mut removed = 0;
        for slot in self.buckets[start..end].iter().flat_map(Bucket::slots) {
            let value = slot.value();
            if value.is_live() && value.is_expired(time) {
                removed += u32::from(self.free(slot, value));
            }
        }
        let wrapped = end == self.buckets.len();
        cursor.0 = if wrapped { 0 } else { end };
        Swept { removed, wrapped }
    }

    /// Number of buckets, for dividing a sweep.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// All entries, aged ones that are not swept included, in no order.
    ///
    /// Each is read whole; what changes during the walk may be seen before or after the change.
    pub fn entries(&self) -> impl Iterator<Item = FdbEntry> + '_ {
        self.slots().filter_map(|slot| slot.entry().map(|(entry, _)| entry))
    }

    fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        self.buckets.iter().flat_map(Bucket::slots)
    }

    /// The slots of a key, in the order of lookups.
    fn slots_of(&self, key: FdbKey) -> impl Iterator<Item = Slot<'_>> {
        self.view().buckets_of(key).into_iter().flat_map(Bucket::slots)
    }

    /// The live entry of `key`, and its value at that moment.
    fn find(&self, key: FdbKey) -> Option<(Slot<'_>, Value)> {
        let view = self.view();
        view.find(key, view.locate(key))
    }

    #[cold]
    fn find_second(&self, key: FdbKey) -> Option<(Slot<'_>, Value)> {
        let [_, second] = self.view().buckets_of(key);
        second.find(key)
    }

    #[cold]
    fn insert(&self, key: FdbKey, wanted: Value, limit: u32, time: FdbTime) -> Insert {
        if !self.ports.enter(wanted, limit) {
            return Insert::Limited;
        }
        let insert = self.place(key, wanted, time);
        if !matches!(insert, Insert::Done) {
            self.ports.leave(wanted);
        }
        insert
    }

    /// Puts an address that has been entered into one of its slots, which may cost another its own.
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

    /// Counts one more entry, unless the table holds as many as it may.
    fn occupy(&self) -> bool {
        let occupied = self.occupied.fetch_add(1, Ordering::Relaxed);
        if occupied >= self.capacity {
            self.occupied.fetch_sub(1, Ordering::Relaxed);
        }
        occupied < self.capacity
    }

    /// Leaves one entry of `key`: a static one, else the first in the order of lookups.
    fn remove_duplicates(&self, key: FdbKey) {
        // Pairs with itself on another worker: between the entry published before and the look
        // behind, so that of two workers at least one sees both entries.
        fence(Ordering::SeqCst);
        loop {
            let mut entries = self.slots_of(key).filter_map(|slot| Some((slot, slot.read(key)?)));
            let (Some(earlier), Some(later)) = (entries.next(), entries.next()) else { return };
            let keep_later = later.1.is_static() && !earlier.1.is_static();
            let (slot, value) = if keep_later { earlier } else { later };
            self.free(slot, value);
        }
    }

    /// Ends the entry if it is still as it was read; says whether it did.
    fn free(&self, slot: Slot<'_>, value: Value) -> bool {
        let claimed = value.claimed();
        if !slot.replace(value, claimed) {
            return false;
        }
        slot.publish(FdbKey::NONE, Value::FREE.in_life_of(claimed));
        self.ports.leave(value);
        self.occupied.fetch_sub(1, Ordering::Relaxed);
        true
    }
}

impl FdbTime {
    /// The second that `now` is in.
    pub fn new(now: Nanos, ageing: u32) -> Self {
        let second = u32::try_from(now.0 / Nanos::SECOND.0).unwrap_or(u32::MAX);
        Self { second, ageing }
    }
}

enum Insert {
    Done,
    Limited,
    Full,
    Raced,
}

/// Number of retries of learning when other workers change the same buckets at the same time.
const ATTEMPTS: u32 = 8;
