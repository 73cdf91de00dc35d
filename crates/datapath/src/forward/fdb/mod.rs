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
//! * **A slot has one owner while its key changes.** A slot is *free*, *live* or *claimed*. The thread that moves
//!   its value from free (or live) to claimed by compare-and-swap may write the key; all others
//!   treat the slot as empty until the owner stores a live or free value. The generation, one more
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
//!   The loser's slot is claimed once and freed once, by either thread.
//! * **Ageing cannot take a fresh entry.** Removal claims exactly the value that was judged, so an
//!   entry that is refreshed in between stays.
//! * **A move is one compare-and-swap of port and time together**; workers that see an address on two
//!   ports at once leave it on one of them, and the next frame corrects it.
//! * **A full table makes room.** A new address ends the entry that has waited longest of the port that has most,
//!   among a sample (`fair.rs`, ADR 0035): one port's flood costs that port its entries, and no other.

mod bucket;
mod copy;
mod fair;
mod insert;
mod key;
#[cfg(all(test, loom))]
mod loom_tests;
mod maintain;
mod view;

pub use fair::PortLearning;
pub use key::FdbKey;
pub use maintain::{FdbEntry, FdbFull, SweepCursor, Swept};
pub(super) use view::{BucketIndex, View};

use crate::sync::AtomicU32;
use crate::units::Nanos;
use bucket::{Bucket, Slot, State, Value, WAYS};
use fair::Ports;
use insert::Insert;
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
        // A thread that loses every time meets others that change this address or its buckets without pause;
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
}

impl FdbTime {
    /// The second that `now` is in.
    pub fn new(now: Nanos, ageing: u32) -> Self {
        let second = u32::try_from(now.0 / Nanos::SECOND.0).unwrap_or(u32::MAX);
        Self { second, ageing }
    }
}

/// Number of retries of learning when other workers change the same buckets at the same time.
const ATTEMPTS: u32 = 8;
