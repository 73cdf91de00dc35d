//! Database functions for the control thread: static entries, ageing, removal, lists.

use super::insert::Insert;
use super::value::{State, Value};
use super::{Bucket, Fdb, FdbKey, FdbTime, Slot};
use crate::sync::Ordering;
use crate::wire::MacAddress;
use polder_buffers::PortId;

/// An entry of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FdbEntry {
    /// The address.
    pub address: MacAddress,
    /// Its VLAN; 0 on a bridge without VLANs.
    pub vlan: u16,
    /// Port for frames to the address.
    pub port: PortId,
    /// Time at which the address was last seen, in seconds of the gateway's clock.
    pub seen: u32,
    /// True if the entry is configured.
    pub is_static: bool,
}

/// The database has no room for a static entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the forwarding database of the bridge is full; raise the capacity of the bridge")]
pub struct FdbFull;

/// Position of a sweep in the database.
#[derive(Clone, Copy, Debug, Default)]
pub struct SweepCursor(usize);

/// Result of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Number of entries removed.
    pub removed: u32,
    /// True if the sweep reached the end of the table; the next one starts at the beginning.
    pub wrapped: bool,
}

impl FdbKey {
    /// Key of an address in a VLAN; 0 on a bridge without VLANs.
    pub fn new(address: MacAddress, vlan: u16) -> Self {
        let [a, b, c, d, e, f] = address.0;
        Self::from_wire(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), vlan)
    }

    /// The address.
    pub(in crate::forward) fn address(self) -> MacAddress {
        let [a, b, c, d, e, f, ..] = self.0.to_le_bytes();
        MacAddress([a, b, c, d, e, f])
    }

    /// True for the broadcast address.
    pub(in crate::forward) fn is_broadcast(self) -> bool {
        self.0 & 0xffff_ffff_ffff == 0xffff_ffff_ffff
    }
}

impl Fdb {
    /// Maximum number of learned addresses.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Number of addresses in the database, including expired ones that are not swept yet.
    pub fn occupied(&self) -> u32 {
        self.occupied.load(Ordering::Relaxed)
    }

    /// Binds `key` to `port` until it is removed: the entry neither ages nor moves.
    ///
    /// # Errors
    /// [`FdbFull`] if its two buckets, or the whole table, are full of other static entries.
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

    /// Removes `key`, static or not; false if the database lacks it.
    pub fn remove(&self, key: FdbKey) -> bool {
        let mut removed = false;
        while let Some((slot, value)) = self.find(key) {
            removed |= self.free(slot, value);
        }
        removed
    }

    /// Removes all entries for which `which` returns true; returns their number.
    ///
    /// Cost: reads the whole table; for a control thread.
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

    /// Removes the addresses learned on `port`, whose link went down; static entries stay.
    pub fn flush_port(&self, port: PortId) -> u32 {
        self.remove_where(|entry| entry.port == port && !entry.is_static)
    }

    /// Removes expired entries from the next `buckets` buckets; for a control thread.
    ///
    /// Look-ups ignore expired entries, swept or not. Sweeping makes room.
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

    /// Number of buckets.
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Iterates over all entries in no particular order, including expired ones that are not swept.
    ///
    /// Each entry is consistent in itself; changes during the iteration may or may not be seen.
    pub fn entries(&self) -> impl Iterator<Item = FdbEntry> + '_ {
        self.slots().filter_map(|slot| slot.entry().map(|(entry, _)| entry))
    }

    fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        self.buckets.iter().flat_map(Bucket::slots)
    }
}
