//! The table for configuration and control thread: static entries, ageing, removal, lists.

use super::insert::Insert;
use super::value::{State, Value};
use super::{Bucket, Fdb, FdbKey, FdbTime, Slot};
use crate::sync::Ordering;
use crate::wire::MacAddress;
use polder_buffers::PortId;

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

impl FdbKey {
    /// An address in a VLAN; 0 on a bridge without VLANs.
    pub fn new(address: MacAddress, vlan: u16) -> Self {
        let [a, b, c, d, e, f] = address.0;
        Self::from_wire(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), vlan)
    }

    /// The address.
    pub(in crate::forward) fn address(self) -> MacAddress {
        let [a, b, c, d, e, f, ..] = self.0.to_le_bytes();
        MacAddress([a, b, c, d, e, f])
    }

    /// True if it is the address of all stations.
    pub(in crate::forward) fn is_broadcast(self) -> bool {
        self.0 & 0xffff_ffff_ffff == 0xffff_ffff_ffff
    }
}

impl Fdb {
    /// Addresses that it learns at most.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Addresses in the table, those included that are too old and not yet swept.
    pub fn occupied(&self) -> u32 {
        self.occupied.load(Ordering::Relaxed)
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
}
