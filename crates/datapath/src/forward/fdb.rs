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
//! With the table three quarters full that leaves one address in some thousands without a place,
//! and nine lookups of ten touch one line; a single bucket of four would leave one in twelve.
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

use crate::units::Nanos;
use crate::wire::MacAddress;
use polder_buffers::PortId;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// How a table is made.
#[derive(Clone, Copy, Debug)]
pub struct FdbOptions {
    /// Addresses that it learns at most; rounded up to 64 and cut at 2²⁰.
    pub capacity: u32,
    /// Secret of the hash, so that nobody outside can choose addresses that share a bucket.
    pub seed: u64,
}

/// The forwarding database of one bridge.
#[derive(Debug)]
pub struct Fdb {
    buckets: Box<[Bucket]>,
    mask: usize,
    hash_add: u64,
    hash_multiply: u64,
    capacity: u32,
    occupied: AtomicU32,
}

/// An address in a VLAN, as the table stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FdbKey(u64);

/// The time of a lookup, and after how many seconds an address is forgotten.
#[derive(Clone, Copy, Debug)]
pub struct FdbTime {
    /// Second of the gateway's clock.
    pub second: u32,
    /// Seconds that a learned address outlives its last frame.
    pub ageing: u32,
}

/// What learning did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// Nothing: the address is known there, and was seen in this second.
    Known,
    /// It is known there; its age starts again.
    Refreshed,
    /// It is new.
    Added,
    /// It was on another port.
    Moved,
    /// Nothing: it is bound to another port by configuration.
    Pinned,
    /// Nothing: the table or both buckets are full.
    Full,
}

/// One address of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FdbEntry {
    /// The address.
    pub address: MacAddress,
    /// Its VLAN; 0 on a bridge without VLANs.
    pub vlan: u16,
    /// Where frames to it go.
    pub port: PortId,
    /// Second of the gateway's clock at which it was last seen.
    pub seen: u32,
    /// Whether it comes from the configuration.
    pub is_static: bool,
}

/// The table has no place for a static entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no place for another address in the forwarding database; raise its capacity")]
pub struct FdbFull;

/// How far a sweep has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct SweepCursor(usize);

/// What a sweep did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Entries that were removed.
    pub removed: u32,
    /// Whether the end of the table was reached; the next sweep starts at its beginning.
    pub wrapped: bool,
}

impl Fdb {
    /// An empty table, at most three quarters full when it holds `options.capacity` addresses.
    pub fn new(options: FdbOptions) -> Self {
        let capacity = options.capacity.clamp(64, 1 << 20);
        let slots = capacity as usize + capacity as usize / 3;
        let count = slots.div_ceil(WAYS).next_power_of_two();
        Self {
            buckets: (0..count).map(|_| Bucket::default()).collect(),
            mask: count - 1,
            hash_add: scramble(options.seed),
            hash_multiply: scramble(options.seed.wrapping_add(1)) | 1,
            capacity,
            occupied: AtomicU32::new(0),
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
        self.view().lookup(key, time)
    }

    /// The table as one batch uses it.
    #[inline(always)]
    pub(super) fn view(&self) -> View<'_> {
        let Self { buckets, mask, hash_add, hash_multiply, .. } = self;
        View { fdb: self, buckets, mask: *mask, hash_add: *hash_add, hash_multiply: *hash_multiply }
    }

    /// Notes that a frame with source `key` came in by `port`.
    ///
    /// Writes only when something changed: at most once a second for an address that stays.
    pub fn learn(&self, key: FdbKey, port: PortId, time: FdbTime) -> Learned {
        // Who loses every time meets others that change this address or its buckets without pause;
        // the next frame tries again.
        (0..ATTEMPTS).find_map(|_| self.try_learn(key, port, time)).unwrap_or(Learned::Known)
    }

    /// `None` when another thread came in between.
    fn try_learn(&self, key: FdbKey, port: PortId, time: FdbTime) -> Option<Learned> {
        let fresh = Value::live(port, time.second, State::Live);
        let Some((slot, value)) = self.find(key) else {
            return match self.insert(key, fresh, time) {
                Insert::Done => Some(Learned::Added),
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
        let learned = match (value.is_expired(time), value.port() == port) {
            (true, _) => Learned::Added,
            (false, true) => Learned::Refreshed,
            (false, false) => Learned::Moved,
        };
        slot.replace(value, fresh).then_some(learned)
    }

    /// Binds `key` to `port` until it is removed: it is neither aged nor moved.
    ///
    /// # Errors
    /// [`FdbFull`] when its two buckets hold other static or fresh entries.
    pub fn set_static(&self, key: FdbKey, port: PortId, time: FdbTime) -> Result<(), FdbFull> {
        let wanted = Value::live(port, time.second, State::Static);
        loop {
            match self.find(key) {
                Some((slot, value)) if slot.replace(value, wanted.in_life_of(value)) => return Ok(()),
                Some(_) => {}
                None => match self.insert(key, wanted, time) {
                    Insert::Done => return Ok(()),
                    Insert::Full => return Err(FdbFull),
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

    /// Removes what was learned on `port`, for a link that went down; static entries stay.
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
        let view = self.view();
        let hash = view.hash(key);
        view.first(hash).slots().chain(view.second(hash).slots())
    }

    /// The live entry of `key`, and its value at that moment.
    fn find(&self, key: FdbKey) -> Option<(Slot<'_>, Value)> {
        self.view().find(key)
    }

    #[cold]
    fn find_second(&self, key: FdbKey) -> Option<(Slot<'_>, Value)> {
        let view = self.view();
        view.second(view.hash(key)).find(key)
    }

    #[cold]
    fn insert(&self, key: FdbKey, wanted: Value, time: FdbTime) -> Insert {
        let has_room = self.occupied() < self.capacity;
        let usable = self.slots_of(key).find_map(|slot| {
            let value = slot.value();
            let usable = value.is_free() && has_room || value.is_live() && value.is_expired(time);
            usable.then_some((slot, value))
        });
        let Some((slot, value)) = usable else { return Insert::Full };
        if value.is_free() && !self.occupy() {
            return Insert::Full;
        }
        let claimed = value.claimed();
        if !slot.replace(value, claimed) {
            if value.is_free() {
                self.occupied.fetch_sub(1, Ordering::Relaxed);
            }
            return Insert::Raced;
        }
        // Release pairs with the Acquire of `Bucket::find`: who sees the key sees the claim.
        slot.key.store(key.0, Ordering::Release);
        let live = wanted.in_life_of(claimed);
        slot.publish(live);
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
        // Release as in `insert`.
        slot.key.store(0, Ordering::Release);
        slot.publish(Value::FREE.in_life_of(claimed));
        self.occupied.fetch_sub(1, Ordering::Relaxed);
        true
    }
}

/// What lookups read of the table, close at hand.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    fdb: &'a Fdb,
    buckets: &'a [Bucket],
    mask: usize,
    hash_add: u64,
    hash_multiply: u64,
}

impl<'a> View<'a> {
    /// The port that `key` was last seen on.
    ///
    /// Cost: one cache line, two when the address is unknown or its first bucket was full.
    #[inline(always)]
    pub(super) fn lookup(&self, key: FdbKey, time: FdbTime) -> Option<PortId> {
        let (_, value) = self.find(key)?;
        (!value.is_expired(time)).then(|| value.port())
    }

    /// Whether learning `key` on `port` would change nothing.
    ///
    /// Cost: one cache line; two when the address is new or its first bucket was full.
    #[inline(always)]
    pub(super) fn knows(&self, key: FdbKey, port: PortId, time: FdbTime) -> bool {
        self.find(key).is_some_and(|(_, value)| value.was_seen(port, time.second))
    }

    #[inline(always)]
    fn hash(&self, key: FdbKey) -> Hash {
        let product = u128::from(key.0 ^ self.hash_add) * u128::from(self.hash_multiply);
        #[expect(clippy::cast_possible_truncation, reason = "both halves are wanted, by themselves")]
        Hash((product as u64 ^ (product >> 64) as u64) as usize)
    }

    #[inline(always)]
    fn first(&self, hash: Hash) -> &'a Bucket {
        &self.buckets[hash.0 & self.mask]
    }

    /// Another one than the first, also when both halves of the hash agree; there are at least 32.
    #[inline(always)]
    fn second(&self, hash: Hash) -> &'a Bucket {
        let (first, second) = (hash.0 & self.mask, (hash.0 >> 32) & self.mask);
        &self.buckets[if second == first { first ^ 1 } else { second }]
    }

    /// The live entry of `key`, and its value at that moment.
    #[inline(always)]
    fn find(&self, key: FdbKey) -> Option<(Slot<'a>, Value)> {
        let hash = self.hash(key);
        self.first(hash).find(key).or_else(|| self.fdb.find_second(key))
    }
}

impl FdbKey {
    /// No address, in no VLAN.
    pub(super) const NONE: Self = Self(0);

    /// An address in a VLAN; 0 on a bridge without VLANs.
    pub fn new(address: MacAddress, vlan: u16) -> Self {
        let [a, b, c, d, e, f] = address.0;
        Self::from_wire(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), vlan)
    }

    /// The six bytes of an address as they stand in a frame, the first of them lowest.
    #[inline(always)]
    pub(super) fn from_wire(address: u64, vlan: u16) -> Self {
        Self(1 << 63 | u64::from(vlan & 0xfff) << 48 | address)
    }

    /// Whether it is the address of a group; broadcast is one.
    #[inline(always)]
    pub(super) fn is_group(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether it is the address of all stations.
    pub(super) fn is_broadcast(self) -> bool {
        self.0 & 0xffff_ffff_ffff == 0xffff_ffff_ffff
    }

    /// Whether it is in 01:80:c2:00:00:00 to :0f, which bridges never forward (IEEE 802.1Q-2022,
    /// table 8-1).
    #[inline(always)]
    pub(super) fn is_reserved(self) -> bool {
        self.0 & 0xf0ff_ffff_ffff == 0x0000_00c2_8001
    }

    fn address(self) -> MacAddress {
        let [a, b, c, d, e, f, ..] = self.0.to_le_bytes();
        MacAddress([a, b, c, d, e, f])
    }

    /// Its VLAN; 0 for none.
    #[inline(always)]
    pub(super) fn vlan(self) -> u16 {
        (self.0 >> 48) as u16 & 0xfff
    }
}

impl FdbTime {
    /// The second that `now` is in.
    pub fn new(now: Nanos, ageing: u32) -> Self {
        let second = u32::try_from(now.0 / Nanos::SECOND.0).unwrap_or(u32::MAX);
        Self { second, ageing }
    }
}

/// Both halves are used: for the first bucket and for the second.
#[derive(Clone, Copy)]
struct Hash(usize);

const _: () = assert!(usize::BITS == 64, "the hash has two halves of 32 bits");

enum Insert {
    Done,
    Full,
    Raced,
}

/// Entries of a bucket.
const WAYS: usize = 4;
/// How often learning tries again when others change the same buckets at the same time.
const ATTEMPTS: u32 = 8;

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Bucket {
    keys: [AtomicU64; WAYS],
    values: [AtomicU64; WAYS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    /// The live entry of `key` in this bucket.
    #[inline(always)]
    fn find(&self, key: FdbKey) -> Option<(Slot<'_>, Value)> {
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

    fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        (0..WAYS).map(|way| self.slot(way))
    }
}

/// A key and its value.
#[derive(Clone, Copy)]
struct Slot<'a> {
    key: &'a AtomicU64,
    value: &'a AtomicU64,
}

impl Slot<'_> {
    /// The value, if it is live and belongs to `key`.
    fn read(&self, key: FdbKey) -> Option<Value> {
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

    fn entry(&self) -> Option<(FdbEntry, Value)> {
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
    fn value(&self) -> Value {
        // Acquire pairs with the Release of `publish`: who sees a live value sees its key.
        Value(self.value.load(Ordering::Acquire))
    }

    /// Exchanges the value if it still is `old`.
    fn replace(&self, old: Value, new: Value) -> bool {
        // Acquire pairs with the Release of `publish`: a new owner's stores come after the last
        // owner's. Release, for a changed live value, as in `publish`.
        self.value.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends a claim.
    fn publish(&self, value: Value) {
        // Release pairs with the Acquire of `value`.
        self.value.store(value.0, Ordering::Release);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Value(u64);

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum State {
    Claimed = 1,
    Live = 2,
    Static = 6,
}

impl Value {
    const FREE: Self = Self(0);
    const GENERATION: u64 = 0xfff0;

    fn live(port: PortId, seen: u32, state: State) -> Self {
        Self(u64::from(port.0) << 48 | u64::from(seen) << 16 | state as u64)
    }

    /// The value that claims the slot of this one.
    fn claimed(self) -> Self {
        Self(self.0.wrapping_add(0x10) & Self::GENERATION | State::Claimed as u64)
    }

    /// The same with the generation of `other`.
    fn in_life_of(self, other: Self) -> Self {
        Self(self.0 & !Self::GENERATION | other.0 & Self::GENERATION)
    }

    #[inline(always)]
    fn is_live(self) -> bool {
        self.0 & State::Live as u64 != 0
    }

    #[inline(always)]
    fn is_static(self) -> bool {
        self.0 & State::Static as u64 == State::Static as u64
    }

    /// Whether there is nothing to note of a frame that came in by `port` in `second`.
    #[inline(always)]
    fn was_seen(self, port: PortId, second: u32) -> bool {
        self.0 >> 16 == u64::from(port.0) << 32 | u64::from(second)
            || self.port() == port && (self.is_static() || self.seen() > second)
    }

    fn is_free(self) -> bool {
        self.0 & 0xf == 0
    }

    #[inline(always)]
    fn is_expired(self, time: FdbTime) -> bool {
        time.second.saturating_sub(self.seen()) > time.ageing && !self.is_static()
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the field is 32 bits wide")]
    fn seen(self) -> u32 {
        (self.0 >> 16) as u32
    }

    #[inline(always)]
    fn port(self) -> PortId {
        PortId((self.0 >> 48) as u16)
    }
}

/// The finaliser of splitmix64: every bit of the seed reaches every bit of the result.
fn scramble(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
