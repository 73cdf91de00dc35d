//! Set of small numbers.

/// Set of numbers below a limit, one bit each.
#[derive(Debug)]
pub(crate) struct Bits {
    words: Box<[u64]>,
    count: u32,
    /// All words before this index are 0.
    from: usize,
}

impl Bits {
    /// An empty set of numbers below `limit`.
    pub(crate) fn new(limit: u32) -> Self {
        Self { words: vec![0; limit.div_ceil(64) as usize].into_boxed_slice(), count: 0, from: 0 }
    }

    /// Number of elements.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.words[(number / 64) as usize] >> (number % 64) & 1 == 1
    }

    pub(crate) fn insert(&mut self, number: u32) {
        self.count += u32::from(!self.contains(number));
        self.words[(number / 64) as usize] |= 1 << (number % 64);
        self.from = self.from.min((number / 64) as usize);
    }

    pub(crate) fn remove(&mut self, number: u32) {
        self.count -= u32::from(self.contains(number));
        self.words[(number / 64) as usize] &= !(1 << (number % 64));
    }

    /// Smallest element; `None` if the set is empty.
    pub(crate) fn first(&mut self) -> Option<u32> {
        let skipped = self.words[self.from..].iter().take_while(|&&word| word == 0).count();
        self.from += skipped;
        let word = self.words.get(self.from)?;
        Some(u32::try_from(self.from).ok()? * 64 + word.trailing_zeros())
    }

    /// Removes the smallest element.
    pub(crate) fn take_first(&mut self) -> Option<u32> {
        let first = self.first()?;
        self.remove(first);
        Some(first)
    }

    /// Smallest element and the length of the run of consecutive elements from there, at most `most`.
    pub(crate) fn first_run(&mut self, most: u32) -> Option<(u32, u32)> {
        let first = self.first()?;
        let limit = u32::try_from(self.words.len()).unwrap_or(u32::MAX).saturating_mul(64);
        let end = (first..limit).take(most as usize).take_while(|&number| self.contains(number)).count();
        Some((first, u32::try_from(end).unwrap_or(u32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn bits_are_a_set(steps in proptest::collection::vec((any::<bool>(), 0_u32..200), 0..300)) {
            let (mut bits, mut model) = (Bits::new(200), BTreeSet::new());
            for (put, number) in steps {
                if put {
                    bits.insert(number);
                    model.insert(number);
                } else {
                    bits.remove(number);
                    model.remove(&number);
                }
                prop_assert_eq!(bits.count() as usize, model.len());
                prop_assert_eq!(bits.contains(number), model.contains(&number));
                prop_assert_eq!(bits.first(), model.first().copied());
                if number % 7 == 0 {
                    prop_assert_eq!(bits.take_first(), model.pop_first());
                }
                if let Some((first, run)) = bits.first_run(5) {
                    prop_assert!((1..=5).contains(&run));
                    prop_assert!((first..first + run).all(|number| model.contains(&number)));
                    prop_assert!(run == 5 || !model.contains(&(first + run)));
                }
            }
        }
    }
}
