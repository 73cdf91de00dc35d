//! Loss, duplication and reordering from sequence numbers, exactly.
//!
//! Reordering is counted as RFC 4737 (3.3) defines it: a packet is reordered when its number is
//! smaller than the one expected next. Its extent (4.2.1) is its distance, in arrivals, from the
//! first packet that arrived with a larger number. It is n-reordered (5.3) when the n packets that
//! arrived directly before it have larger numbers; three matter, because TCP takes three duplicate
//! acknowledgements for a loss. Duplicates are neither lost nor reordered.

use std::collections::VecDeque;

/// Arrivals whose order is remembered for extents; larger extents are reported as this.
const HISTORY: usize = 1 << 16;

/// Arrivals whose numbers are remembered for the degree of n-reordering; larger ones are reported as this.
const RECENT: usize = 256;
/// The degree at which TCP retransmits for nothing (RFC 5681, section 3.2).
const TCP_CARES: u64 = 3;

/// One stream's meter: a bit for each number, so that nothing is estimated.
#[derive(Clone, Debug)]
pub struct SequenceMeter {
    seen: Vec<u64>,
    arrivals: u64,
    distinct: u64,
    duplicated: u64,
    reordered: u64,
    largest_extent: u64,
    three_reordered: u64,
    largest_degree: u64,
    next_expected: u64,
    /// Numbers of the last first arrivals, by their count.
    recent: Box<[u64; RECENT]>,
    /// Running maxima: (number, arrival), both rising.
    maxima: VecDeque<(u64, u64)>,
}

/// Result of a stream: packets received, lost, duplicated and reordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Packets sent.
    pub sent: u64,
    /// Of those, packets that arrived at least once.
    pub received: u64,
    /// Packets that never arrived.
    pub lost: u64,
    /// Arrivals beyond the first of the same packet.
    pub duplicated: u64,
    /// Packets that arrived after one that was sent later.
    pub reordered: u64,
    /// The largest distance by which one was late, in arrivals.
    pub largest_extent: u64,
    /// Of the reordered packets, those behind at least three later ones without a gap.
    pub three_reordered: u64,
    /// The largest n for which a packet was n-reordered.
    pub largest_degree: u64,
    /// Arrivals with a number that was never sent.
    pub alien: u64,
}

impl SequenceMeter {
    /// A meter with room for `expected` numbers; it grows when more come.
    pub fn new(expected: u64) -> Self {
        let words = usize::try_from(expected / 64 + 1).unwrap_or(0);
        Self {
            seen: vec![0; words],
            arrivals: 0,
            distinct: 0,
            duplicated: 0,
            reordered: 0,
            largest_extent: 0,
            three_reordered: 0,
            largest_degree: 0,
            next_expected: 0,
            recent: Box::new([0; RECENT]),
            maxima: VecDeque::with_capacity(HISTORY),
        }
    }

    /// A packet arrived.
    #[inline]
    pub fn record(&mut self, number: u64) {
        let arrival = self.arrivals;
        self.arrivals += 1;
        if !self.mark(number) {
            self.duplicated += 1;
            return;
        }
        if number < self.next_expected {
            self.record_late(number, arrival);
        } else {
            self.next_expected = number + 1;
            if self.maxima.len() == HISTORY {
                self.maxima.pop_front();
            }
            self.maxima.push_back((number, arrival));
        }
        self.recent[place(self.distinct)] = number;
        self.distinct += 1;
    }

    #[cold]
    fn record_late(&mut self, number: u64, arrival: u64) {
        self.reordered += 1;
        let first_larger = self.maxima.partition_point(|&(maximum, _)| maximum < number);
        let since = self.maxima.get(first_larger).map_or(arrival, |&(_, at)| at);
        self.largest_extent = self.largest_extent.max(arrival - since);
        let known = self.distinct.min(RECENT as u64);
        let larger = |&back: &u64| self.recent[place(self.distinct - back)] > number;
        let degree = (1..=known).take_while(larger).count() as u64;
        self.three_reordered += u64::from(degree >= TCP_CARES);
        self.largest_degree = self.largest_degree.max(degree);
    }

    /// Sets the number's bit; false when it was set.
    fn mark(&mut self, number: u64) -> bool {
        let Ok(word) = usize::try_from(number / 64) else { return true };
        if word >= self.seen.len() {
            self.seen.resize((word + 1).next_power_of_two(), 0);
        }
        let bit = 1 << (number % 64);
        let new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        new
    }

    /// Distinct packets so far.
    pub fn received(&self) -> u64 {
        self.distinct
    }

    /// The verdict, when numbers 0 to `sent` − 1 were sent.
    pub fn finish(&self, sent: u64) -> Arrivals {
        let ours = self.marked_below(sent);
        Arrivals {
            sent,
            received: ours,
            lost: sent - ours,
            duplicated: self.duplicated,
            reordered: self.reordered,
            largest_extent: self.largest_extent,
            three_reordered: self.three_reordered,
            largest_degree: self.largest_degree,
            alien: self.distinct - ours,
        }
    }

    fn marked_below(&self, limit: u64) -> u64 {
        let whole = usize::try_from(limit / 64).unwrap_or(usize::MAX).min(self.seen.len());
        let full = self.seen[..whole].iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        let last = self.seen.get(whole).map_or(0, |word| (word & ((1 << (limit % 64)) - 1)).count_ones());
        full + u64::from(last)
    }
}

impl Arrivals {
    /// Lost packets as a part of those sent.
    pub fn loss_ratio(&self) -> f64 {
        ratio(self.lost, self.sent)
    }

    /// Share of reordered packets among arrived packets (RFC 4737, 4.1).
    pub fn reordered_ratio(&self) -> f64 {
        ratio(self.reordered, self.received)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "reduced below the array's length")]
fn place(count: u64) -> usize {
    (count % RECENT as u64) as usize
}

/// A part of a whole; 0 of nothing.
#[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 52 bits")]
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(order: impl IntoIterator<Item = u64>, sent: u64) -> Arrivals {
        let mut meter = SequenceMeter::new(sent);
        order.into_iter().for_each(|number| meter.record(number));
        meter.finish(sent)
    }

    #[test]
    fn nothing_wrong_is_reported_as_nothing() {
        let arrivals = meter(0..10_000, 10_000);
        assert_eq!(arrivals, Arrivals { sent: 10_000, received: 10_000, ..Arrivals::default() });
    }

    #[test]
    fn seventeen_drops_are_seventeen() {
        let arrivals = meter((0..10_000).filter(|number| number % 577 != 5 || *number > 577 * 17), 10_000);
        assert_eq!((arrivals.lost, arrivals.duplicated, arrivals.reordered), (17, 0, 0));
    }

    #[test]
    fn drops_at_the_end_count() {
        assert_eq!(meter(0..9_983, 10_000).lost, 17);
    }

    #[test]
    fn seventeen_duplicates_are_seventeen() {
        let order = (0..10_000).flat_map(|number| {
            let copies = if number % 577 == 5 && number < 577 * 17 { 2 } else { 1 };
            std::iter::repeat_n(number, copies)
        });
        let arrivals = meter(order, 10_000);
        assert_eq!((arrivals.lost, arrivals.duplicated, arrivals.reordered), (0, 17, 0));
    }

    #[test]
    fn seventeen_swaps_are_seventeen() {
        let mut order = (0..10_000).collect::<Vec<_>>();
        (0..17).for_each(|swap| order.swap(swap * 577, swap * 577 + 1));
        let arrivals = meter(order, 10_000);
        assert_eq!((arrivals.lost, arrivals.duplicated, arrivals.reordered), (0, 0, 17));
        assert_eq!(arrivals.largest_extent, 1);
    }

    #[test]
    fn the_extent_is_the_distance_to_the_first_that_overtook() {
        // RFC 4737, 4.2.3, table 1: 4 is overtaken by 5 to 8 and arrives four places late.
        let arrivals = meter([1, 2, 3, 5, 6, 7, 8, 4, 9, 10].map(|number| number - 1), 10);
        assert_eq!((arrivals.reordered, arrivals.largest_extent), (1, 4));
        assert_eq!((arrivals.three_reordered, arrivals.largest_degree), (1, 4));
        assert!((arrivals.reordered_ratio() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_late_packet_behind_two_later_ones_does_not_trouble_tcp() {
        // 2 arrives behind 4 and 3, of which only 4 was in time.
        let arrivals = meter([0, 1, 4, 3, 2, 5], 6);
        assert_eq!((arrivals.reordered, arrivals.three_reordered, arrivals.largest_degree), (2, 0, 2));
        // 1 is behind 3, which is behind the late 0: the run ends at 0.
        let arrivals = meter([2, 0, 3, 1], 4);
        assert_eq!((arrivals.reordered, arrivals.largest_extent, arrivals.largest_degree), (2, 3, 1));
    }

    #[test]
    fn a_number_never_sent_is_alien_and_hides_no_loss() {
        let arrivals = meter((0..99).chain([5_000_000]), 100);
        assert_eq!((arrivals.received, arrivals.lost, arrivals.alien), (99, 1, 1));
    }
}
