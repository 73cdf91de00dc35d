//! Reorder density (RFC 5236, section 4): how far packets are from where they ought to be.
//!
//! Each arrival has a place; so has each packet among the packets that arrived: a lost packet leaves no gap (4.2.1).
//! The density is the share of packets for each displacement, late ones positive. With all arrivals at hand nothing
//! is guessed, so the RFC's threshold for losses is not needed.

use std::collections::BTreeMap;

/// Packets by displacement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Density {
    packets: BTreeMap<i64, u64>,
}

impl Density {
    /// The density of these numbers in the order of their arrival; a number that comes again does not
    /// count (4.2.2).
    pub fn of(arrivals: &[u64]) -> Self {
        let mut seen = std::collections::HashSet::with_capacity(arrivals.len());
        let first = arrivals.iter().copied().filter(|&number| seen.insert(number)).collect::<Vec<_>>();
        let mut places = (0..first.len()).collect::<Vec<_>>();
        places.sort_unstable_by_key(|&place| first[place]);
        let mut packets = BTreeMap::new();
        for (rank, &place) in places.iter().enumerate() {
            *packets.entry(place.cast_signed() as i64 - rank.cast_signed() as i64).or_default() += 1;
        }
        Self { packets }
    }

    /// The share of packets in their place.
    pub fn in_place(&self) -> f64 {
        let all = self.packets.values().sum();
        super::sequence::ratio(self.packets.get(&0).copied().unwrap_or(0), all)
    }

    /// The displacements of the earliest and of the latest packet.
    pub fn range(&self) -> (i64, i64) {
        let displacements = self.packets.keys().copied();
        (displacements.clone().min().unwrap_or(0), displacements.max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 5236, table 2: arrivals 1, 4, 2, 5, 3, 6, 7, 8.
        let density = Density::of(&[1, 4, 2, 5, 3, 6, 7, 8]);
        assert_eq!(density.packets, BTreeMap::from([(-2, 1), (-1, 1), (0, 4), (1, 1), (2, 1)]));
        assert!((density.in_place() - 0.5).abs() < 1e-9);
        assert_eq!(density.range(), (-2, 2));
    }

    #[test]
    fn what_is_lost_or_doubled_displaces_nobody() {
        let density = Density::of(&[0, 1, 1, 5, 6, 6, 9]);
        assert_eq!(density.packets, BTreeMap::from([(0, 5)]));
        assert_eq!(Density::of(&[]).range(), (0, 0));
    }

    #[test]
    fn seventeen_swaps_are_thirty_four_displacements() {
        let mut order = (0..10_000).collect::<Vec<_>>();
        (0..17).for_each(|swap| order.swap(swap * 577, swap * 577 + 1));
        assert_eq!(Density::of(&order).packets, BTreeMap::from([(-1, 17), (0, 9966), (1, 17)]));
    }
}
