//! Published steering state of a worker: buckets and the heaviest flows.
//!
//! The worker publishes it once per interval; any thread reads it. Buckets are independent atomics; flows are
//! behind a lock that the worker only tries: while a reader holds it, the worker skips this interval.

use super::flow_name::FlowName;
use super::sketch::Heavy;
use super::{BUCKETS, Loads, Order, buckets};
use crate::counters::Counter;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Published steering state of one receiving worker.
#[derive(Debug)]
pub struct Board {
    /// Loads of all workers.
    pub loads: Loads,
    buckets: Box<[Posted]>,
    flows: Mutex<Flows>,
}

/// Published state of one bucket.
#[derive(Debug, Default)]
struct Posted {
    packets: Counter,
    /// Share of its home's time, in thousandths; the highest bit is set if the bucket is spread.
    weight: AtomicU32,
    home: AtomicU32,
}

const SPREAD: u32 = 1 << 31;

/// State of one bucket as read from the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketView {
    /// Number of the bucket.
    pub number: usize,
    /// Order of the ports whose packets the bucket holds; `None` for pinned packets of any port.
    pub order: Option<Order>,
    /// Worker that is the bucket's home.
    pub home: usize,
    /// True if the bucket is spread.
    pub spread: bool,
    /// Total number of packets.
    pub packets: u64,
    /// Share of its home's time in the last interval, in thousandths.
    pub weight: u32,
}

/// The heaviest flows of one worker, by CPU time in measured turns.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    /// The flows, heaviest first.
    pub heaviest: Vec<(Heavy, Option<FlowName>)>,
    /// CPU time of all flows in these turns, in nanoseconds.
    pub nanos: u64,
}

impl Board {
    /// An empty board with the shared `loads`.
    pub fn new(loads: Loads) -> Self {
        let buckets = (0..BUCKETS).map(|_| Posted::default()).collect();
        Self { loads, buckets, flows: Mutex::default() }
    }

    /// Publishes the state of a bucket; `packets` is the number since the last call.
    #[inline]
    pub(super) fn post(&self, bucket: usize, packets: u32, weight: u32, (home, spread): (u16, bool)) {
        let posted = &self.buckets[bucket];
        posted.packets.add(u64::from(packets));
        // Relaxed, here and below: the words are independent.
        posted.weight.store(weight | if spread { SPREAD } else { 0 }, Ordering::Relaxed);
        posted.home.store(u32::from(home), Ordering::Relaxed);
    }

    /// Publishes the flows. Returns false, and does nothing, if a reader holds the lock.
    pub(super) fn post_flows(&self, write: impl FnOnce(&mut Flows)) -> bool {
        let Ok(mut flows) = self.flows.try_lock() else { return false };
        write(&mut flows);
        true
    }

    /// Iterates over the buckets that have received packets.
    pub fn buckets(&self) -> impl Iterator<Item = BucketView> + '_ {
        let view = |(number, posted): (usize, &Posted)| {
            let weight = posted.weight.load(Ordering::Relaxed);
            BucketView {
                number,
                order: buckets::order(number),
                home: posted.home.load(Ordering::Relaxed) as usize,
                spread: weight & SPREAD != 0,
                packets: posted.packets.get(),
                weight: weight & !SPREAD,
            }
        };
        self.buckets.iter().enumerate().map(view).filter(|bucket| bucket.packets > 0)
    }

    /// Returns a copy of the heaviest flows.
    pub fn flows(&self) -> Flows {
        self.flows.lock().map(|flows| flows.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_posted_is_seen() {
        let board = Board::new(Loads::from([]));
        let auto = buckets::AUTO.start + 3;
        board.post(auto, 7, 250, (1, true));
        board.post(auto, 10, 251, (1, true));
        board.post(auto + 1, 0, 0, (0, false));
        let view = BucketView {
            number: auto,
            order: Some(Order::Auto),
            home: 1,
            spread: true,
            packets: 17,
            weight: 251,
        };
        assert_eq!(board.buckets().collect::<Vec<_>>(), [view]);
        assert!(board.post_flows(|flows| flows.nanos = 17));
        let reading = board.flows.lock();
        assert!(!board.post_flows(|_| unreachable!("somebody reads")));
        drop(reading);
        assert_eq!(board.flows().nanos, 17);
    }
}
