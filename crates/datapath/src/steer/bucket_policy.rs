//! Selects buckets to be spread: buckets whose home is overloaded while other workers have time (E8).
//!
//! A bucket is spread if it takes a large part of its home's time, its home is over its threshold and another
//! worker is under its own, twice in a row. It is hashed again after it has been small for long and is
//! drained. Weight is measured: packets times CPU time per packet.

use super::load::{Load, WorkerLoad};
use super::{BUCKETS, buckets};
use crate::units::Nanos;

/// Thresholds of decisions.
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    /// Time between two evaluations.
    pub interval: Nanos,
    /// Busy time in thousandths from which a worker that is also pressed is overloaded.
    pub over: u32,
    /// Share of batches that left packets in their queue, in thousandths, from which a worker is pressed.
    pub pressed: u32,
    /// A worker has time for others if it is busy for less than this (in thousandths), rarely pressed, or
    /// processes few packets of its own beside receiving.
    pub under: u32,
    /// Share of a worker's time, in thousandths, that a bucket must take to be spread.
    pub big: u32,
    /// Share of a worker's time, in thousandths, below which a bucket is hashed again.
    pub small: u32,
    /// Number of consecutive evaluations that must agree before a bucket is spread.
    pub spread_after: u8,
    /// Number of consecutive evaluations that must agree before a bucket is hashed again.
    pub hash_after: u8,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            interval: Nanos::from_millis(10),
            over: 750,
            pressed: 300,
            under: 600,
            big: 250,
            small: 150,
            spread_after: 2,
            hash_after: 20,
        }
    }
}

/// State of one bucket.
#[derive(Clone, Copy, Debug, Default)]
struct BucketState {
    packets: u32,
    /// Packets in the last interval and in the interval before.
    came: [u32; 2],
    /// Share of a worker's time in the last interval, in thousandths.
    weight: u32,
    streak: u8,
}

/// Evaluates the buckets of one receiving worker.
#[derive(Debug)]
pub struct BucketPolicy {
    thresholds: Thresholds,
    states: Box<[BucketState; BUCKETS]>,
}

/// New mode of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BucketMode {
    Spread(usize),
    Hash(usize),
}

impl BucketPolicy {
    /// Creates a policy with these thresholds.
    pub fn new(thresholds: Thresholds) -> Self {
        Self { thresholds, states: Box::new([BucketState::default(); BUCKETS]) }
    }

    /// The thresholds.
    pub fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    /// Counts packets of a bucket.
    #[inline]
    pub(super) fn charge(&mut self, bucket: usize, packets: u32) {
        let states = &mut self.states[bucket];
        states.packets = states.packets.wrapping_add(packets);
    }

    /// Share of a worker's time that a bucket took in the last interval, in thousandths.
    pub fn weight(&self, bucket: usize) -> u32 {
        self.states[bucket].weight
    }

    /// Packets and weight of a bucket in the last interval; `None` if it had no packets in the last two
    /// intervals.
    #[inline]
    pub(super) fn news(&self, bucket: usize) -> Option<(u32, u32)> {
        let states = &self.states[bucket];
        (states.came != [0, 0]).then_some((states.came[0], states.weight))
    }

    /// Weighs all buckets over the time `passed` until `now` and reports the buckets to be changed: at most
    /// one to be spread, because that changes the loads, and all to be hashed.
    ///
    /// `home` returns a bucket's home, `is_spread` its mode.
    pub(super) fn evaluate(
        &mut self,
        (now, passed): (Nanos, Nanos),
        loads: &[WorkerLoad],
        home: impl Fn(usize) -> usize,
        is_spread: impl Fn(usize) -> bool,
        mut verdict: impl FnMut(BucketMode),
    ) {
        let thresholds = self.thresholds;
        let mut heaviest: Option<(usize, u32)> = None;
        for (bucket, states) in self.states.iter_mut().enumerate() {
            let load = loads[home(bucket)].at(now);
            let nanos = u64::from(states.packets) * u64::from(load.packet_nanos);
            states.weight = super::load::thousandths(nanos, passed.0);
            states.came = [states.packets, states.came[0]];
            states.packets = 0;
            if !buckets::AUTO.contains(&bucket) {
                continue;
            }
            if !states.agrees(&thresholds, &load, is_spread(bucket)) {
                continue;
            }
            if is_spread(bucket) {
                verdict(BucketMode::Hash(bucket));
            } else if heaviest.is_none_or(|(_, weight)| weight < states.weight) {
                heaviest = Some((bucket, states.weight));
            }
        }
        let somebody_has_time = loads.iter().any(|load| thresholds.is_under(&load.at(now)));
        if let Some((bucket, _)) = heaviest.filter(|_| somebody_has_time) {
            self.states[bucket].streak = 0;
            verdict(BucketMode::Spread(bucket));
        }
    }
}

impl BucketState {
    /// True if the bucket should change, and did so in enough consecutive evaluations.
    fn agrees(&mut self, thresholds: &Thresholds, load: &Load, is_spread: bool) -> bool {
        let (agrees, wanted) = match is_spread {
            true => (self.weight < thresholds.small, thresholds.hash_after),
            false => (self.weight >= thresholds.big && thresholds.is_over(load), thresholds.spread_after),
        };
        self.streak = if agrees { self.streak.saturating_add(1) } else { 0 };
        agrees && self.streak >= wanted
    }
}

impl Thresholds {
    fn is_over(&self, load: &Load) -> bool {
        load.busy >= self.over && load.pressed >= self.pressed
    }

    fn is_under(&self, load: &Load) -> bool {
        let idle = load.busy < self.under || load.worked < self.under / 2;
        idle || load.pressed < self.pressed / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIG: usize = buckets::AUTO.start + 6;
    const MILLIS_10: Nanos = Nanos::from_millis(10);

    struct Bench {
        policy: BucketPolicy,
        loads: [WorkerLoad; 2],
        spread: Vec<usize>,
    }

    impl Bench {
        fn new() -> Self {
            let loads = [WorkerLoad::default(), WorkerLoad::default()];
            Self { policy: BucketPolicy::new(Thresholds::default()), loads, spread: Vec::new() }
        }

        /// Simulates an interval in which the buckets had these numbers of packets of a microsecond each.
        fn interval(&mut self, packets: &[(usize, u32)]) {
            packets.iter().for_each(|&(bucket, packets)| self.policy.charge(bucket, packets));
            let before = self.spread.clone();
            let spread = &mut self.spread;
            let home = |bucket| bucket % 2;
            self.policy.evaluate(
                (MILLIS_10, MILLIS_10),
                &self.loads,
                home,
                |bucket| before.contains(&bucket),
                |verdict| match verdict {
                    BucketMode::Spread(bucket) => spread.push(bucket),
                    BucketMode::Hash(bucket) => spread.retain(|&other| other != bucket),
                },
            );
        }

        /// Publishes load and pressure of both workers.
        fn loads(&self, loads: [(u32, u32); 2]) {
            for (load, (busy, pressed)) in self.loads.iter().zip(loads) {
                load.publish(Load { busy, pressed, worked: busy, packet_nanos: 1000 });
            }
        }
    }

    #[test]
    fn a_big_flow_is_spread_while_others_have_time_and_small_ones_stay() {
        let mut bench = Bench::new();
        bench.loads([(990, 900), (300, 0)]);
        let traffic = [(BIG, 7000), (BIG + 2, 500), (BIG + 4, 300)];
        bench.interval(&traffic);
        assert_eq!(bench.spread, [], "once may be chance");
        bench.interval(&traffic);
        assert_eq!(bench.spread, [BIG]);
        assert_eq!((bench.policy.weight(BIG), bench.policy.weight(BIG + 2)), (700, 50));
        (0..9).for_each(|_| bench.interval(&traffic));
        assert_eq!(bench.spread, [BIG], "small ones stay small");
    }

    #[test]
    fn nothing_is_spread_while_there_is_no_need_or_no_use() {
        let mut bench = Bench::new();
        let traffic = [(BIG, 5000)];
        for loads in [[(740, 900), (100, 0)], [(1000, 100), (100, 0)], [(990, 900), (950, 900)]] {
            bench.loads(loads);
            (0..5).for_each(|_| bench.interval(&traffic));
            assert_eq!(bench.spread, [], "{loads:?}");
        }
    }

    #[test]
    fn a_worker_that_only_hands_over_has_time() {
        let mut bench = Bench::new();
        bench.loads[0].publish(Load { busy: 1000, pressed: 950, worked: 900, packet_nanos: 1000 });
        bench.loads[1].publish(Load { busy: 1000, pressed: 950, worked: 20, packet_nanos: 1000 });
        (0..2).for_each(|_| bench.interval(&[(BIG, 9000)]));
        assert_eq!(bench.spread, [BIG]);
    }

    #[test]
    fn it_is_hashed_again_when_it_has_been_small_for_long() {
        let mut bench = Bench::new();
        bench.loads([(990, 900), (300, 0)]);
        (0..2).for_each(|_| bench.interval(&[(BIG, 7000)]));
        bench.loads([(400, 0), (400, 0)]);
        (0..100).for_each(|_| bench.interval(&[(BIG, 2000)]));
        assert_eq!(bench.spread, [BIG], "between the marks nothing changes");
        (0..19).for_each(|_| bench.interval(&[(BIG, 1000)]));
        bench.interval(&[(BIG, 2000)]);
        (0..19).for_each(|_| bench.interval(&[(BIG, 1000)]));
        assert_eq!(bench.spread, [BIG], "a pause is not the end");
        bench.interval(&[(BIG, 1000)]);
        assert_eq!(bench.spread, []);
    }

    #[test]
    fn the_heaviest_goes_first() {
        let mut bench = Bench::new();
        bench.loads([(990, 900), (300, 0)]);
        let traffic = [(BIG, 3000), (BIG + 2, 4000)];
        (0..2).for_each(|_| bench.interval(&traffic));
        assert_eq!(bench.spread, [BIG + 2]);
        bench.interval(&traffic);
        assert_eq!(bench.spread, [BIG + 2, BIG]);
    }
}
