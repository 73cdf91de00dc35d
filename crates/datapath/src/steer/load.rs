//! How busy workers are: each measures itself, all can look.

use crate::units::Nanos;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What one worker says of itself, once an interval.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct WorkerLoad {
    busy: AtomicU32,
    pressed: AtomicU32,
    worked: AtomicU32,
    packet_nanos: AtomicU32,
}

impl WorkerLoad {
    /// Time in which it found something to do, in thousandths.
    pub fn busy(&self) -> u32 {
        // Relaxed, here and below: each number stands for itself.
        self.busy.load(Ordering::Relaxed)
    }

    /// Of the turns that brought packets, those that brought a full batch, in thousandths. A worker
    /// that polls is busy long before it is full; only one that is full finds full batches.
    pub fn pressed(&self) -> u32 {
        self.pressed.load(Ordering::Relaxed)
    }

    /// Time that its own packets took in the stages, in thousandths: what is left when whoever brings
    /// them waits. A worker that only hands over is busy and pressed, and has time all the same.
    pub fn worked(&self) -> u32 {
        self.worked.load(Ordering::Relaxed)
    }

    /// Nanoseconds that a packet takes it, on average.
    pub fn packet_nanos(&self) -> u32 {
        self.packet_nanos.load(Ordering::Relaxed)
    }

    /// Says all four.
    pub fn publish(&self, busy: u32, pressed: u32, worked: u32, packet_nanos: u32) {
        self.busy.store(busy, Ordering::Relaxed);
        self.pressed.store(pressed, Ordering::Relaxed);
        self.worked.store(worked, Ordering::Relaxed);
        self.packet_nanos.store(packet_nanos, Ordering::Relaxed);
    }
}

/// The loads of all workers, by number.
pub type Loads = Arc<[WorkerLoad]>;

/// What a worker takes note of between two publications.
#[derive(Debug, Default)]
pub struct LoadMeter {
    since: Nanos,
    last: Nanos,
    was_busy: bool,
    busy: Nanos,
    turns: u32,
    full_turns: u32,
    packets: u64,
    timed_nanos: u64,
    timed_packets: u64,
    /// The mean of a packet's time, of the last intervals, in sixteenths of a nanosecond.
    packet_nanos_16: u64,
}

impl LoadMeter {
    /// A round begins at `now`; the one before it was busy or not. Says whether `interval` has passed
    /// since the last publication; then this is one.
    #[inline]
    pub fn round(&mut self, now: Nanos, was_busy: bool, interval: Nanos, load: &WorkerLoad) -> bool {
        if self.was_busy {
            self.busy = self.busy + now.since(self.last);
        }
        self.was_busy = was_busy;
        self.last = now;
        let passed = now.since(self.since);
        if passed < interval {
            return false;
        }
        self.publish(passed, load);
        self.since = now;
        true
    }

    /// A turn brought packets: a full batch, or fewer.
    #[inline]
    pub fn turn(&mut self, full: bool) {
        self.turns += 1;
        self.full_turns += u32::from(full);
    }

    /// So many packets have been through the stages.
    #[inline]
    pub fn worked(&mut self, packets: usize) {
        self.packets += packets as u64;
    }

    /// So many packets took so long.
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
        load.publish(busy, pressed, worked, packet_nanos);
        let (last, was_busy, packet_nanos_16) = (self.last, self.was_busy, self.packet_nanos_16);
        *self = Self { last, was_busy, packet_nanos_16, ..Self::default() };
    }
}

/// A part of a whole, in thousandths; 0 of nothing.
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
        for round in 0..2001_u64 {
            // Rounds of 10 µs, every other of them busy.
            let now = Nanos(10_000 * round);
            published += u32::from(meter.round(now, round % 2 == 0, interval, &load));
            meter.turn(round % 4 == 0);
            meter.timed(10, Nanos(1000));
            // 10 packets of 100 ns in each 10 µs.
            meter.worked(10);
        }
        assert_eq!(published, 2);
        assert!((490..=510).contains(&load.busy()), "{}", load.busy());
        assert_eq!((load.pressed(), load.packet_nanos()), (250, 100));
        assert!((99..=101).contains(&load.worked()), "{}", load.worked());
    }
}
