//! A rate to measure at: about the highest at which no more than a stated part is lost in short trials.
//!
//! It is no throughput of RFC 2544, whose trials take a minute; [`mlrsearch`](super::mlrsearch) has one of RFC 9971.

/// A binary search over rates.
///
/// The search is told of each trial whether it was good. It trusts its bounds only as far as they
/// were tried: while no trial was good, the lower bound falls.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    low: f64,
    high: f64,
    seen_good: bool,
}

/// The search ends when the bounds are this close.
const NARROW: f64 = 0.02;

impl Search {
    /// A search between two rates.
    pub fn new(low: f64, high: f64) -> Self {
        Self { low, high, seen_good: false }
    }

    /// The rate to try next.
    pub fn next(&self) -> f64 {
        if self.seen_good { f64::midpoint(self.low, self.high) } else { (self.low * self.high).sqrt() }
    }

    /// Tells how the trial at [`Search::next`] went.
    pub fn tell(&mut self, good: bool) {
        let tried = self.next();
        if good {
            self.low = tried;
            self.seen_good = true;
            return;
        }
        self.high = tried;
        if !self.seen_good && self.high < self.low * 2.0 {
            self.low /= 4.0;
        }
    }

    /// The lowest rate that was good, or that would be tried.
    pub fn lowest(&self) -> f64 {
        self.low
    }

    /// True if the answer is known well enough.
    pub fn is_narrow(&self) -> bool {
        self.seen_good && self.high - self.low <= NARROW * self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(limit: f64, low: f64, high: f64) -> f64 {
        let mut search = Search::new(low, high);
        for _ in 0..40 {
            if search.is_narrow() {
                break;
            }
            search.tell(search.next() <= limit);
        }
        search.lowest()
    }

    #[test]
    fn the_limit_is_found() {
        for limit in [30_000.0, 250_000.0, 999_000.0] {
            let rate = found(limit, 25_000.0, 1_000_000.0);
            assert!(rate <= limit && rate >= 0.97 * limit, "{rate} for {limit}");
        }
    }

    #[test]
    fn a_limit_below_the_first_bound_is_found() {
        let rate = found(700.0, 25_000.0, 1_000_000.0);
        assert!((650.0..=700.0).contains(&rate), "{rate}");
    }
}
