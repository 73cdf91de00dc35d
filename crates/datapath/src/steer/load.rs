//! Load of workers: each worker measures itself, any thread reads.

use crate::units::Nanos;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Published load of one worker, updated once per interval.
#[derive(Debug, Default)]
#[cfg_attr(target_arch = "aarch64", repr(align(128)))]
#[cfg_attr(not(target_arch = "aarch64"), repr(align(64)))]
pub struct WorkerLoad {
    busy: AtomicU32,
    pressed: AtomicU32,
    worked: AtomicU32,
    packet_nanos: AtomicU32,
    /// Time since which the worker sleeps, in nanoseconds; 0 while it is awake.
    asleep: AtomicU64,
}

/// Load of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Share of time with work, in thousandths.
    pub busy: u32,
    /// Share of batches that left packets in their queue, in thousandths. A polling worker is busy long
    /// before it is overloaded; only an overloaded worker never drains its queues.
    pub pressed: u32,
    /// Share of time spent in stages, in thousandths. A worker that only hands packets over is busy and
    /// pressed, but has time for others.
    pub worked: u32,
    /// Average CPU time per packet, in nanoseconds.
    pub packet_nanos: u32,
}

/// Time asleep after which a worker's load counts as zero.
const ASLEEP: Nanos = Nanos::from_millis(10);

impl WorkerLoad {
    /// Load as known at `now`.
    pub fn at(&self, now: Nanos) -> Load {
        // Relaxed, here and below: the numbers are independent.
        let number = |number: &AtomicU32| number.load(Ordering::Relaxed);
        let asleep = Nanos(self.asleep.load(Ordering::Relaxed));
        let packet_nanos = number(&self.packet_nanos);
        if asleep.0 > 0 && now.since(asleep) >= ASLEEP {
            return Load { packet_nanos, ..Load::default() };
        }
        let (busy, pressed, worked) = (number(&self.busy), number(&self.pressed), number(&self.worked));
        Load { busy, pressed, worked, packet_nanos }
    }

    /// Publishes `load`.
    pub fn publish(&self, load: Load) {
        self.busy.store(load.busy, Ordering::Relaxed);
        self.pressed.store(load.pressed, Ordering::Relaxed);
        self.worked.store(load.worked, Ordering::Relaxed);
        self.packet_nanos.store(load.packet_nanos, Ordering::Relaxed);
    }
}

/// Loads of all workers, by worker number.
pub type Loads = Arc<[WorkerLoad]>;

/// Load of a worker since its last publication.
#[derive(Debug, Default)]
pub struct LoadMeter {
    since: Nanos,
    /// Start of the last round; `None` before the first.
    last: Option<Nanos>,
    is_asleep: bool,
    busy: Nanos,
    turns: u32,
    full_turns: u32,
    packets: u64,
    timed_nanos: u64,
    timed_packets: u64,
    /// Moving average of the CPU time per packet, in sixteenths of a nanosecond.
    packet_nanos_16: u64,
}

impl LoadMeter {
    /// Records a round that begins at `now`; `was_busy` applies to the time since the previous round began,
    /// sleep included. Publishes the load once per `interval`, and returns true if it did.
    #[inline]
    pub fn round(&mut self, now: Nanos, was_busy: bool, interval: Nanos, load: &WorkerLoad) -> bool {
        if core::mem::take(&mut self.is_asleep) {
            load.asleep.store(0, Ordering::Relaxed);
        }
        let Some(last) = self.last.replace(now) else {
            self.since = now;
            return false;
        };
        if was_busy {
            self.busy = self.busy + now.since(last);
        }
        let passed = now.since(self.since);
        if passed < interval {
            return false;
        }
        self.publish(passed, load);
        self.since = now;
        true
    }

    /// Records that the worker sleeps until its next round.
    pub fn sleeps(&mut self, now: Nanos, load: &WorkerLoad) {
        self.is_asleep = true;
        load.asleep.store(now.0, Ordering::Relaxed);
    }

    /// Records a received batch; `has_more`: its queue has further packets.
    #[inline]
    pub fn turn(&mut self, has_more: bool) {
        self.turns += 1;
        self.full_turns += u32::from(has_more);
    }

    /// Counts packets that passed the stages.
    #[inline]
    pub fn worked(&mut self, packets: usize) {
        self.packets += packets as u64;
    }

    /// Records that `packets` packets took `time` in the stages.
    pub fn timed(&mut self, packets: usize, time: Nanos) {
        self.timed_packets += packets as u64;
        self.timed_nanos += time.0;
    }

    #[cold]
    fn publish(&mut self, passed: Nanos, load: &WorkerLoad) {
        let busy = thousandths(self.busy.0, passed.0);
        let pressed = thousandths(u64::from(self.full_turns), u64::from(self.turns));
        if let Some(mean) = (16 * self.timed_nanos).checked_div(self.timed_packets) {
            let before = if self.packet_nanos_16 == 0 { mean } else { self.packet_nanos_16 };
            self.packet_nanos_16 = (3 * before + mean) / 4;
        }
        let packet_nanos = u32::try_from(self.packet_nanos_16.div_ceil(16)).unwrap_or(u32::MAX);
        let worked = thousandths(self.packets * u64::from(packet_nanos), passed.0);
        load.publish(Load { busy, pressed, worked, packet_nanos });
        let (last, packet_nanos_16) = (self.last, self.packet_nanos_16);
        *self = Self { last, packet_nanos_16, ..Self::default() };
    }
}

/// `part` of `whole` in thousandths; 0 if `whole` is 0.
pub(super) fn thousandths(part: u64, whole: u64) -> u32 {
    let thousandths = (1000 * part).checked_div(whole).unwrap_or(0);
    u32::try_from(thousandths).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_is_busy_half_the_time_says_so() {
        let (mut meter, load) = (LoadMeter::default(), WorkerLoad::default());
        let interval = Nanos::from_millis(10);
        let mut published = 0;
        for round in 0..=2000_u64 {
            // Rounds of 10 µs, every other of them busy.
            let now = Nanos(Nanos::SECOND.0 + 10_000 * round);
            published += u32::from(meter.round(now, round % 2 == 0, interval, &load));
            meter.turn(round % 4 == 0);
            meter.timed(10, Nanos(1000));
            // 10 packets of 100 ns in each 10 µs.
            meter.worked(10);
        }
        assert_eq!(published, 2);
        let load = load.at(Nanos::SECOND);
        assert!((490..=510).contains(&load.busy), "{load:?}");
        assert_eq!((load.pressed, load.packet_nanos), (250, 100));
        assert!((99..=101).contains(&load.worked), "{load:?}");
    }

    /// A busy round of 20 µs, then one that finds nothing and sleeps for the rest of a millisecond.
    #[test]
    fn sleep_after_a_busy_round_is_not_busy() {
        let (mut meter, load) = (LoadMeter::default(), WorkerLoad::default());
        let mut now = Nanos::SECOND;
        for _ in 0..100 {
            meter.round(now, false, ASLEEP, &load);
            now = now + Nanos(20_000);
            meter.round(now, true, ASLEEP, &load);
            meter.sleeps(now, &load);
            now = now + Nanos(980_000);
        }
        assert_eq!(load.at(now).busy, 20);
    }

    #[test]
    fn who_sleeps_for_long_is_not_as_busy_as_it_was() {
        let (mut meter, load) = (LoadMeter::default(), WorkerLoad::default());
        let busy = |load: Load| (load.busy, load.packet_nanos);
        for round in 0..=20 {
            meter.round(Nanos(Nanos::SECOND.0 + 1_000_000 * round), true, ASLEEP, &load);
            meter.worked(64);
            meter.timed(64, Nanos(6400));
        }
        let now = Nanos(Nanos::SECOND.0 + 20_000_000);
        assert_eq!(busy(load.at(now)), (1000, 100));
        meter.sleeps(now, &load);
        assert_eq!(busy(load.at(now + Nanos::from_millis(9))), (1000, 100), "a moment ago it was");
        assert_eq!(busy(load.at(now + ASLEEP)), (0, 100));
        // The round that it wakes up for publishes what it has slept.
        assert!(meter.round(now + Nanos::SECOND, false, ASLEEP, &load));
        assert_eq!(load.at(now + Nanos::SECOND).busy, 0);
    }
}
