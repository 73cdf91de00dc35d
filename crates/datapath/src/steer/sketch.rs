//! The heaviest flows in bounded memory: Space-Saving (Metwally, Agrawal, El Abbadi, 2005).
//!
//! Every flow whose weight exceeds the sum divided by the number of places is in the sketch, and no weight is
//! underestimated.

use super::flow_name::FlowName;

/// Maximum number of flows in the sketch.
const PLACES: usize = 16;

/// A flow and its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heavy {
    /// The flow's hash.
    pub hash: u32,
    /// Estimated weight: at least the true weight, and at most `excess` more.
    pub weight: u64,
    /// Weight inherited from the flow that this one replaced.
    pub excess: u64,
}

/// Space-Saving sketch of flows.
#[derive(Clone, Debug, Default)]
pub struct Heaviest {
    places: [Heavy; PLACES],
    names: [Option<FlowName>; PLACES],
}

impl Heaviest {
    /// True if the sketch contains the flow.
    pub fn knows(&self, hash: u32) -> bool {
        self.places.iter().any(|place| place.hash == hash && place.weight > 0)
    }

    /// Adds weight to a flow. `name` is the name of a flow that the sketch does not contain.
    ///
    /// Cost: one scan of sixteen places, in six cache lines.
    pub fn add(&mut self, hash: u32, weight: u64, name: Option<FlowName>) {
        let known = self.places.iter_mut().find(|place| place.hash == hash && place.weight > 0);
        if let Some(place) = known {
            place.weight += weight;
            return;
        }
        let lightest = self.places.iter_mut().zip(&mut self.names).min_by_key(|(place, _)| place.weight);
        if let Some((place, named)) = lightest {
            *place = Heavy { hash, weight: place.weight + weight, excess: place.weight };
            *named = name;
        }
    }

    /// Halves all weights, so that old weight fades.
    pub fn fade(&mut self) {
        for place in &mut self.places {
            place.weight /= 2;
            place.excess /= 2;
        }
    }

    /// Replaces the content of `flows` by the flows of the sketch, heaviest first.
    pub fn write(&self, flows: &mut Vec<(Heavy, Option<FlowName>)>) {
        flows.clear();
        let all = self.places.iter().copied().zip(self.names);
        flows.extend(all.filter(|(place, _)| place.weight > 0));
        flows.sort_unstable_by_key(|(place, _)| core::cmp::Reverse(place.weight));
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
                sketch.add(hash, weight, None);
                *exact.entry(hash).or_insert(0) += weight;
            }
            let sum = exact.values().sum::<u64>();
            let mut found = vec![(Heavy::default(), None)];
            sketch.write(&mut found);
            for (hash, weight) in exact {
                let heavy = found.iter().map(|(heavy, _)| heavy).find(|heavy| heavy.hash == hash);
                prop_assert!(heavy.is_some() || weight <= sum / PLACES as u64);
                if let Some(heavy) = heavy {
                    prop_assert!(heavy.weight >= weight && heavy.weight - heavy.excess <= weight);
                }
            }
            prop_assert!(found.is_sorted_by_key(|(heavy, _)| core::cmp::Reverse(heavy.weight)));
        }
    }
}
