//! Copy of a database, for a trace.

use super::fair::Ports;
use super::{Bucket, Fdb, FdbEntry, FdbKey, Slot};
use crate::sync::AtomicU32;

impl Fdb {
    /// Copies the database: every address in its slot, each entry consistent in itself.
    ///
    /// Cost: reads the whole database; for a control thread.
    pub(crate) fn copy(&self) -> Self {
        let mut occupied = 0;
        let ports = Ports::new();
        let mut copy = |from: Slot<'_>, to: Slot<'_>| {
            if let Some((entry, value)) = from.entry() {
                to.publish(FdbKey::new(entry.address, entry.vlan), value);
                ports.enter(value, u32::MAX);
                occupied += 1;
            }
        };
        let bucket = |from: &Bucket| {
            let to = Bucket::default();
            from.slots().zip(to.slots()).for_each(|(from, to)| copy(from, to));
            to
        };
        let buckets = self.buckets.iter().map(bucket).collect();
        let (occupied, hand) = (AtomicU32::new(occupied), AtomicU32::new(0));
        Self { buckets, hasher: self.hasher, capacity: self.capacity, occupied, ports, hand }
    }

    /// Entry of an address, including an expired one; `None` if there is none.
    pub fn entry(&self, key: FdbKey) -> Option<FdbEntry> {
        self.slots_of(key).find_map(|slot| {
            slot.read(key)?;
            slot.entry().map(|(entry, _)| entry)
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{FdbOptions, FdbTime, Learned};
    use super::*;
    use crate::wire::MacAddress;
    use polder_buffers::PortId;
    use std::collections::HashSet;

    fn key(number: u64) -> FdbKey {
        FdbKey::new(MacAddress::from_u64(0x0200_0000_0000 + number), 7)
    }

    #[test]
    fn a_copy_knows_the_same_and_learns_for_itself() {
        let fdb = Fdb::new(FdbOptions { capacity: 256, seed: 3 });
        let time = FdbTime { second: 9, ageing: 300 };
        for number in 0..200 {
            fdb.learn(key(number), PortId(1), time);
        }
        fdb.set_static(key(1), PortId(4), time).expect("room");
        let copy = fdb.copy();
        assert_eq!(copy.occupied(), fdb.occupied());
        let all = |fdb: &Fdb| fdb.entries().collect::<HashSet<_>>();
        assert_eq!(all(&copy), all(&fdb));
        assert_eq!(copy.learn(key(2), PortId(3), time), Learned::Moved);
        assert_eq!(copy.learn(key(1), PortId(3), time), Learned::Pinned);
        assert_eq!(copy.learn(key(900), PortId(3), time), Learned::Added);
        assert_eq!(fdb.entry(key(2)).map(|entry| entry.port), Some(PortId(1)));
        assert_eq!((fdb.entry(key(900)), fdb.occupied()), (None, 200));
    }
}
