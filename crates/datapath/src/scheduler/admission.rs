//! Limit of the packets that may wait in a device, for devices that can drop what exceeds it before it costs anything.
//!
//! A device that is never empty has more than its turns take, and whatever it keeps waits. Its turns' own measure says
//! how much of that is of use: what they took in a time, with the weight, the share of the core and the cost of
//! packets that the queue had in that time.

use crate::units::Nanos;

/// Time in which a device is never found empty before its packets are limited, and for which its turns are measured.
const PROOF: Nanos = Nanos::from_millis(20);
/// Time in which what waits is taken.
const DELAY: Nanos = Nanos::from_millis(10);
/// Packets that may wait at least: one batch.
const FEWEST: u64 = 64;

/// Limit of what may wait in one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionLimit {
    /// Beginning of the present measure, since which the device was never found empty.
    since: Option<Nanos>,
    /// Packets that turns took since then.
    taken: u64,
    limit: Option<u32>,
}

impl AdmissionLimit {
    /// Notes a turn that ended at `now` and took `packets` packets; `is_empty` is true if it found nothing more.
    pub fn turn(&mut self, now: Nanos, packets: u32, is_empty: bool) {
        if is_empty {
            *self = Self::default();
            return;
        }
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.taken += u64::from(packets);
        let passed = now.since(since);
        if passed >= PROOF {
            let worth = self.taken.saturating_mul(DELAY.0) / passed.0;
            self.limit = Some(u32::try_from(worth.max(FEWEST)).unwrap_or(u32::MAX));
            (self.since, self.taken) = (Some(now), 0);
        }
    }

    /// Number of packets that may wait; `None` for as many as the device has room for.
    pub fn packets(&self) -> Option<u32> {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of `packets` packets, one each `cycle`, from `start` on for `time`; the time at the end.
    fn overload(limit: &mut AdmissionLimit, start: Nanos, packets: u32, cycle: Nanos, time: Nanos) -> Nanos {
        let mut now = start;
        while now.since(start) <= time {
            limit.turn(now, packets, false);
            now = now + cycle;
        }
        now
    }

    #[test]
    fn what_may_wait_is_what_turns_take_in_the_delay() {
        let mut limit = AdmissionLimit::default();
        let cycle = Nanos(200_000);
        let before = Nanos(PROOF.0 - cycle.0);
        let now = overload(&mut limit, Nanos::SECOND, 20, cycle, before);
        assert_eq!(limit.packets(), None, "a burst is served");
        limit.turn(now, 20, false);
        // 20 packets in 0.2 ms are 1000 in 10.
        assert_eq!(limit.packets(), Some(1000));
        // Packets became ten times as costly: the next measure says so.
        let now = overload(&mut limit, now, 2, cycle, PROOF);
        assert_eq!(limit.packets(), Some(100));
        overload(&mut limit, now, 1, Nanos(1_000_000), PROOF);
        assert_eq!(limit.packets(), Some(64), "a batch at least");
    }

    #[test]
    fn a_device_that_is_found_empty_has_no_limit() {
        let mut limit = AdmissionLimit::default();
        let now = overload(&mut limit, Nanos(0), 64, Nanos(100_000), PROOF);
        assert_eq!(limit.packets(), Some(6400));
        limit.turn(now, 64, true);
        assert_eq!(limit, AdmissionLimit::default());
        // Empty once within each measure, and busy otherwise.
        let mut now = now;
        for _ in 0..100 {
            now = overload(&mut limit, now, 64, Nanos(100_000), Nanos(PROOF.0 - 1_000_000));
            assert_eq!(limit.packets(), None);
            limit.turn(now, 3, true);
        }
    }

    #[test]
    fn a_worker_that_was_away_does_not_change_much() {
        let mut limit = AdmissionLimit::default();
        let now = overload(&mut limit, Nanos(0), 20, Nanos(200_000), PROOF);
        // Others had its core for 10 ms of the next 20.
        let later = Nanos(now.0 + 10_000_000);
        overload(&mut limit, later, 20, Nanos(200_000), Nanos(10_000_000));
        let packets = limit.packets().expect("it was never empty");
        assert!((450..=560).contains(&packets), "{packets}");
    }
}
