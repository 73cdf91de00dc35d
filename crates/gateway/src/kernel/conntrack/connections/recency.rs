//! Lists connections by the time of their last packet, for the whole table and for each source address.
//!
//! A carried packet does not move its connection in the lists. When it comes first, it goes to the end if it has moved, so that
//! the first one has been idle for about the longest time.

use std::collections::HashMap;
use std::net::IpAddr;

/// The lists. Each connection has a slot.
#[derive(Debug, Default)]
pub(super) struct Recency {
    all: List,
    sources: HashMap<IpAddr, List>,
    /// Neighbours of each slot in both lists.
    links: Vec<[Link; 2]>,
}

/// Ends of a list, and its length.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
    length: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE, length: 0 }
    }
}

/// The slots before and behind one.
#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    behind: u32,
}

/// No slot.
const NONE: u32 = u32::MAX;
/// Places in `links`.
const ALL: usize = 0;
const SOURCE: usize = 1;

impl Recency {
    /// Appends a slot that is in no list.
    pub(super) fn insert(&mut self, source: IpAddr, slot: u32) {
        let length = slot as usize + 1;
        if self.links.len() < length {
            self.links.resize(length, [Link { before: NONE, behind: NONE }; 2]);
        }
        append(&mut self.links, ALL, &mut self.all, slot);
        append(&mut self.links, SOURCE, self.sources.entry(source).or_default(), slot);
    }

    /// Removes a slot that was inserted with that source address.
    pub(super) fn remove(&mut self, source: IpAddr, slot: u32) {
        take_out(&mut self.links, ALL, &mut self.all, slot);
        let Some(list) = self.sources.get_mut(&source) else { return };
        take_out(&mut self.links, SOURCE, list, slot);
        if list.length == 0 {
            self.sources.remove(&source);
        }
    }

    /// Number of connections of a source address.
    pub(super) fn count(&self, source: IpAddr) -> usize {
        self.sources.get(&source).map_or(0, |list| list.length as usize)
    }

    /// The first slot, of all or of a source address.
    pub(super) fn first(&self, source: Option<IpAddr>) -> Option<u32> {
        let list = source.map_or(Some(&self.all), |source| self.sources.get(&source));
        list.map(|list| list.first).filter(|&slot| slot != NONE)
    }
}

fn append(links: &mut [[Link; 2]], which: usize, list: &mut List, slot: u32) {
    links[slot as usize][which] = Link { before: list.last, behind: NONE };
    match list.last {
        NONE => list.first = slot,
        last => links[last as usize][which].behind = slot,
    }
    list.last = slot;
    list.length += 1;
}

fn take_out(links: &mut [[Link; 2]], which: usize, list: &mut List, slot: u32) {
    let Link { before, behind } = links[slot as usize][which];
    match before {
        NONE => list.first = behind,
        before => links[before as usize][which].behind = behind,
    }
    match behind {
        NONE => list.last = before,
        behind => links[behind as usize][which].before = before,
    }
    list.length -= 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Beside lists that are vectors.
        #[test]
        fn lists_are_in_the_order_of_insertion(steps in proptest::collection::vec((0_u32..8, 0_u8..3), 0..80)) {
            let mut recency = Recency::default();
            let mut model = Vec::<(u32, u8)>::new();
            for (slot, source) in steps {
                match model.iter().position(|(other, _)| *other == slot) {
                    Some(at) => recency.remove([10, 0, 0, model.remove(at).1].into(), slot),
                    None => {
                        recency.insert([10, 0, 0, source].into(), slot);
                        model.push((slot, source));
                    }
                }
                prop_assert_eq!(recency.first(None), model.first().map(|(slot, _)| *slot));
                for source in 0..3 {
                    let address = IpAddr::from([10, 0, 0, source]);
                    let of = model.iter().filter(|(_, of)| *of == source).collect::<Vec<_>>();
                    prop_assert_eq!(recency.count(address), of.len());
                    prop_assert_eq!(recency.first(Some(address)), of.first().map(|(slot, _)| *slot));
                }
            }
        }
    }
}
