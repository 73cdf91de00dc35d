//! Histogram of the times that packets spend in a queue.

use crate::counters::{Counter, Totals};
use crate::units::Nanos;

/// Upper bounds of the classes; one more class counts longer times.
pub const BOUNDS: [Nanos; 13] = [
    Nanos(100_000),
    Nanos(200_000),
    Nanos(500_000),
    Nanos(1_000_000),
    Nanos(2_000_000),
    Nanos(5_000_000),
    Nanos(10_000_000),
    Nanos(20_000_000),
    Nanos(50_000_000),
    Nanos(100_000_000),
    Nanos(200_000_000),
    Nanos(500_000_000),
    Nanos(1_000_000_000),
];

/// Number of packets by their time in the queue.
#[derive(Debug, Default)]
pub struct Waits {
    classes: [Counter; BOUNDS.len() + 1],
    /// Sum of all times in nanoseconds.
    pub nanos: Counter,
}

impl Waits {
    /// Counts `packets` packets that each spent `wait` in the queue.
    #[inline]
    pub fn add(&self, packets: u64, wait: Nanos) {
        let class = BOUNDS.partition_point(|bound| *bound < wait);
        self.classes[class].add(packets);
        self.nanos.add(packets * wait.0);
    }

    /// Upper bound of each class (`None` for the last), and its number of packets.
    pub fn classes(&self) -> impl Iterator<Item = (Option<Nanos>, u64)> + '_ {
        let bounds = BOUNDS.iter().copied().map(Some).chain([None]);
        bounds.zip(self.classes.iter().map(Counter::get))
    }
}

impl Totals for Waits {
    fn totals(&self, prefix: &str, visit: &mut dyn FnMut(&str, &Counter)) {
        visit(&format!("{prefix}nanos"), &self.nanos);
        let names = BOUNDS.iter().map(|bound| bound.0.to_string()).chain(["longer".to_owned()]);
        names.zip(&self.classes).for_each(|(name, counter)| visit(&format!("{prefix}{name}"), counter));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_of_the_class_whose_longest_time_it_does_not_exceed() {
        let waits = Waits::default();
        for nanos in [0, 100_000, 100_001, 5_000_000, 1_000_000_000, 1_000_000_001, 60_000_000_000] {
            waits.add(1, Nanos(nanos));
        }
        let found = waits.classes().filter(|(_, packets)| *packets > 0).collect::<Vec<_>>();
        let class = |nanos, packets| (Some(Nanos(nanos)), packets);
        let expected =
            [class(100_000, 2), class(200_000, 1), class(5_000_000, 1), class(1_000_000_000, 1), (None, 2)];
        assert_eq!(found, expected);
        assert_eq!(waits.nanos.get(), 62_005_200_002);
        let mut names = Vec::new();
        waits.totals("waits.", &mut |name, _| names.push(name.to_owned()));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), BOUNDS.len() + 2);
    }
}
