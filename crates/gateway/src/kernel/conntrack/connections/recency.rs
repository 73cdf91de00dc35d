//! Lists connections by the time of their last packet, for the whole table and for each source address.
//!
//! A carried packet does not move its connection in the lists: the time there may be too early, and is corrected when
//! the connection comes first.

use polder_datapath::units::Nanos;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// A connection in the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) source: IpAddr,
    /// The time that it is listed by.
    pub(super) at: Nanos,
    pub(super) slot: u32,
}

/// The lists.
#[derive(Debug, Default)]
pub(super) struct Recency {
    by_age: BTreeSet<(Nanos, u32)>,
    by_source: BTreeSet<(IpAddr, Nanos, u32)>,
    counts: HashMap<IpAddr, usize>,
}

impl Recency {
    pub(super) fn insert(&mut self, Place { source, at, slot }: Place) {
        self.by_age.insert((at, slot));
        self.by_source.insert((source, at, slot));
        *self.counts.entry(source).or_default() += 1;
    }

    pub(super) fn remove(&mut self, Place { source, at, slot }: Place) {
        self.by_age.remove(&(at, slot));
        self.by_source.remove(&(source, at, slot));
        let count = self.counts.entry(source).or_default();
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.counts.remove(&source);
        }
    }

    /// Number of connections of a source address.
    pub(super) fn count(&self, source: IpAddr) -> usize {
        self.counts.get(&source).copied().unwrap_or_default()
    }

    /// Slot of the connection with the earliest time, of all or of a source address.
    pub(super) fn first(&self, source: Option<IpAddr>) -> Option<u32> {
        match source {
            None => self.by_age.first().map(|(_, slot)| *slot),
            Some(source) => {
                let all = (source, Nanos(0), 0)..=(source, Nanos(u64::MAX), u32::MAX);
                self.by_source.range(all).next().map(|(_, _, slot)| *slot)
            }
        }
    }
}
