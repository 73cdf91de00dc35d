//! The heaviest flows, in bounded memory: Space-Saving (Metwally, Agrawal, El Abbadi, 2005).
//!
//! Whatever weighs more than the sum divided by the number of places is among them, and no flow's
//! weight is said to be less than it is.

/// Flows that are remembered.
const PLACES: usize = 16;

/// A flow and its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heavy {
    /// The flow's hash.
    pub hash: u32,
    /// Its weight: not less than it was, and more by at most `excess`.
    pub weight: u64,
    /// What it may have inherited from flows that it took the place of.
    pub excess: u64,
}

/// The sketch.
#[derive(Clone, Debug, Default)]
pub struct Heaviest {
    places: [Heavy; PLACES],
}

impl Heaviest {
    /// A flow weighs so much more.
    ///
    /// Cost: one look at sixteen places, in two cache lines of keys and weights.
    pub fn add(&mut self, hash: u32, weight: u64) {
        if let Some(place) = self.places.iter_mut().find(|place| place.hash == hash && place.weight > 0) {
            place.weight += weight;
            return;
        }
        if let Some(lightest) = self.places.iter_mut().min_by_key(|place| place.weight) {
            *lightest = Heavy { hash, weight: lightest.weight + weight, excess: lightest.weight };
        }
    }

    /// Halves all weights, so that what was heavy long ago is forgotten.
    pub fn fade(&mut self) {
        for place in &mut self.places {
            place.weight /= 2;
            place.excess /= 2;
        }
    }

    /// The flows that are remembered, the heaviest first.
    pub fn flows(&self) -> Vec<Heavy> {
        let mut flows = self.places.iter().copied().filter(|place| place.weight > 0).collect::<Vec<_>>();
        flows.sort_by_key(|place| core::cmp::Reverse(place.weight));
        flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn what_is_heavy_is_found(
            flows in proptest::collection::vec((0..60_u32, 1..50_u64), 1..600),
        ) {
            let mut sketch = Heaviest::default();
            let mut exact = HashMap::new();
            for &(hash, weight) in &flows {
                sketch.add(hash, weight);
                *exact.entry(hash).or_insert(0) += weight;
            }
            let sum = exact.values().sum::<u64>();
            let found = sketch.flows();
            for (hash, weight) in exact {
                let heavy = found.iter().find(|heavy| heavy.hash == hash);
                prop_assert!(heavy.is_some() || weight <= sum / PLACES as u64);
                if let Some(heavy) = heavy {
                    prop_assert!(heavy.weight >= weight && heavy.weight - heavy.excess <= weight);
                }
            }
            prop_assert!(found.is_sorted_by_key(|heavy| core::cmp::Reverse(heavy.weight)));
        }
    }
}
