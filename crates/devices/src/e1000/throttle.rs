//! Interrupt throttle: the minimum time between two interrupts, tuned when a budget was not used (B2, B3).
//!
//! A queue that is armed after a few packets each time gets interrupts at once, for low latency; a queue
//! whose interrupts bring whole budgets gets fewer. The worker's scheduler sets a minimum.

use polder_datapath::units::Nanos;

/// Throttle times, shortest first.
const STEPS: [Nanos; 4] = [Nanos(0), Nanos(20_000), Nanos(80_000), Nanos(250_000)];
/// Number of packets between two interrupts from which the time is lengthened: a budget of source B.
const MANY: u64 = 32;
/// Number of packets between two interrupts up to which the time is shortened.
const FEW: u64 = 4;
/// Unit of the device's register in nanoseconds (13.4.18).
const UNIT: u64 = 256;

/// Throttle of one queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Throttle {
    step: usize,
    floor: Nanos,
    /// Value last set in the device.
    set: Option<u32>,
}

impl Throttle {
    /// Sets the minimum time.
    pub(super) fn set_floor(&mut self, floor: Nanos) {
        self.floor = floor;
    }

    /// Tunes the time by the number of packets since the queue was last armed.
    pub(super) fn tune(&mut self, packets: u64) {
        if packets >= MANY {
            self.step = (self.step + 1).min(STEPS.len() - 1);
        } else if packets <= FEW {
            self.step = self.step.saturating_sub(1);
        }
    }

    /// Returns the current time.
    pub(super) fn time(&self) -> Nanos {
        STEPS[self.step].max(self.floor)
    }

    /// Returns the value for the device's register, if it differs from the last one.
    pub(super) fn change(&mut self) -> Option<u32> {
        let value = u32::try_from(self.time().0.div_ceil(UNIT)).unwrap_or(u32::MAX).min(LONGEST);
        (self.set.replace(value) != Some(value)).then_some(value)
    }
}

/// Maximum of the register, which has 16 bits.
const LONGEST: u32 = 0xffff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_budgets_lengthen_the_time_and_few_packets_shorten_it() {
        let mut throttle = Throttle::default();
        assert_eq!((throttle.change(), throttle.change()), (Some(0), None), "written once");
        let mut times = Vec::new();
        for packets in [32, 64, 64, 64, 10, 4, 0, 1, 0] {
            throttle.tune(packets);
            times.push(throttle.time().0 / 1000);
        }
        assert_eq!(times, [20, 80, 250, 250, 250, 80, 20, 0, 0]);
        throttle.set_floor(Nanos(50_000));
        assert_eq!(throttle.change(), Some(196), "50 µs, rounded up to units of 256 ns");
        throttle.set_floor(Nanos::SECOND);
        assert_eq!(throttle.change(), Some(0xffff));
    }
}
