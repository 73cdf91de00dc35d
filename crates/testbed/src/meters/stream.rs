//! Receiver of a stream: arrivals, their order and delay.

use super::sequence::{Arrivals, SequenceMeter};
use hdrhistogram::Histogram;

/// Meters of one stream.
#[derive(Clone, Debug)]
pub struct StreamMeter {
    order: SequenceMeter,
    latency: Histogram<u64>,
}

/// Result of a stream.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Loss, duplication, reordering.
    pub arrivals: Arrivals,
    /// Time from the scheduled sending of a packet to its arrival, in nanoseconds.
    pub latency: Histogram<u64>,
}

impl StreamMeter {
    /// A meter with room for `expected` packets; it grows when more come.
    pub fn new(expected: u64) -> Self {
        Self { order: SequenceMeter::new(expected), latency: histogram() }
    }

    /// Records the arrival of packet `number`, `latency` nanoseconds after it was due.
    #[inline]
    pub fn record(&mut self, number: u64, latency: u64) {
        self.order.record(number);
        self.latency.saturating_record(latency.max(1));
    }

    /// Packets that have arrived, each counted once.
    pub fn received(&self) -> u64 {
        self.order.received()
    }

    /// The verdict, when numbers 0 to `sent` − 1 were sent.
    pub fn finish(self, sent: u64) -> Outcome {
        Outcome { arrivals: self.order.finish(sent), latency: self.latency }
    }
}

/// A histogram of latencies in nanoseconds: up to a minute, two digits.
///
/// # Panics
/// Never: the bounds are constants that suit each other.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("the bounds are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seventeen_slow_packets_are_seventeen() {
        let mut meter = StreamMeter::new(10_000);
        (0..10_000).for_each(|number| meter.record(number, if number < 17 { 5_000_000 } else { 20_000 }));
        let outcome = meter.finish(10_000);
        assert_eq!(outcome.arrivals.lost, 0);
        let slow = outcome.latency.len() - outcome.latency.count_between(1, 1_000_000);
        assert_eq!(slow, 17);
        assert!((19_000..21_000).contains(&outcome.latency.value_at_quantile(0.5)));
    }
}
