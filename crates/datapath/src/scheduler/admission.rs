//! Limit of the packets that may wait in a device, for devices that can drop excess packets cheaply.
//!
//! A device that is never empty receives more than its turns take, and its packets only wait longer. The
//! limit is the number of packets that turns take in 10 ms, measured at the queue's present weight, share of
//! the core and cost per packet.

use crate::units::Nanos;

/// Measuring interval; a device is limited after it was never empty for as long.
const PROOF: Nanos = Nanos::from_millis(20);
/// Maximum queueing time in the device.
const DELAY: Nanos = Nanos::from_millis(10);
/// Minimum limit in packets: one batch.
const FEWEST: u64 = 64;

/// Limit of the packets that may wait in one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionLimit {
    /// Start of the present measuring interval; `None` while the device is neither full nor limited.
    since: Option<Nanos>,
    /// Packets taken by turns in this interval.
    taken: u64,
    /// True if the device was found empty in this interval; `has_dropped` if it dropped packets.
    was_empty: bool,
    has_dropped: bool,
    limit: Option<u32>,
}

impl AdmissionLimit {
    /// Records a turn that ended at `now` and took `packets` packets. `is_empty`: the device was empty
    /// afterwards; `has_dropped`: the device has dropped packets since the previous turn.
    ///
    /// The limit of a device that was empty and dropped packets in the same interval is too small and is
    /// doubled. A device that was empty and dropped none loses its limit.
    pub fn turn(&mut self, now: Nanos, packets: u32, is_empty: bool, has_dropped: bool) {
        if is_empty && self.limit.is_none() {
            *self = Self::default();
            return;
        }
        let Some(since) = self.since else {
            self.since = Some(now);
            return;
        };
        self.taken += u64::from(packets);
        self.was_empty |= is_empty;
        self.has_dropped |= has_dropped;
        let passed = now.since(since);
        if passed >= PROOF {
            let worth = self.taken.saturating_mul(DELAY.0) / passed.0;
            let measured = u32::try_from(worth.max(FEWEST)).unwrap_or(u32::MAX);
            let limit = match (self.was_empty, self.has_dropped) {
                (false, _) => Some(measured),
                (true, true) => self.limit.map(|limit| limit.saturating_mul(2)),
                (true, false) => None,
            };
            *self = Self { since: limit.map(|_| now), limit, ..Self::default() };
        }
    }

    /// Maximum number of waiting packets; `None` for no limit.
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
            limit.turn(now, packets, false, true);
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
        limit.turn(now, 20, false, true);
        // 20 packets in 0.2 ms are 1000 in 10.
        assert_eq!(limit.packets(), Some(1000));
        // Packets became ten times as costly: the next measure says so.
        let now = overload(&mut limit, now, 2, cycle, PROOF);
        let packets = limit.packets().expect("it was never empty");
        assert!((100..=102).contains(&packets), "{packets}");
        overload(&mut limit, now, 1, Nanos(1_000_000), PROOF);
        assert_eq!(limit.packets(), Some(64), "a batch at least");
    }

    #[test]
    fn a_device_that_is_found_empty_has_no_limit() {
        let mut limit = AdmissionLimit::default();
        let now = overload(&mut limit, Nanos(0), 64, Nanos(100_000), PROOF);
        assert_eq!(limit.packets(), Some(6400));
        limit.turn(now + PROOF, 64, true, false);
        assert_eq!(limit, AdmissionLimit::default());
        // Empty once within each measure, and busy otherwise.
        let mut now = now;
        for _ in 0..100 {
            now = overload(&mut limit, now, 64, Nanos(100_000), Nanos(PROOF.0 - 1_000_000));
            assert_eq!(limit.packets(), None);
            limit.turn(now, 3, true, true);
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

    /// A sender of bursts is not kept at the limit of a moment in which it brought too much.
    #[test]
    fn a_limit_that_is_drained_and_still_drops_grows() {
        let mut limit = AdmissionLimit::default();
        let mut now = overload(&mut limit, Nanos(0), 20, Nanos(200_000), PROOF);
        assert_eq!(limit.packets(), Some(1000));
        for expected in [2000, 4000] {
            for _ in 0..4 {
                now = now + Nanos::from_millis(5);
                limit.turn(now, 900, true, true);
            }
            assert_eq!(limit.packets(), Some(expected));
        }
        limit.turn(now + PROOF, 900, true, false);
        assert_eq!(limit.packets(), None);
    }
}
