//! Sojourn time of packets in a device under overload, and the times of ring flushes.
//!
//! A device's ring keeps old packets and drops new ones, so under overload every packet that is taken has
//! waited for a whole ring's time. Flushing the ring at intervals bounds that time. It is done only under
//! lasting overload: the packets of a short burst are processed.

use crate::units::Nanos;

/// Time for which a device must never be empty before its ring is flushed.
const PROOF: Nanos = Nanos::from_millis(20);
/// Sojourn limit: maximum time that packets wait in the device afterwards.
const DELAY: Nanos = Nanos::from_millis(2);
/// Time after a flush in which an empty device is not the end of the overload: the worker may have processed
/// only the packets since the flush.
const FRESH: Nanos = Nanos(DELAY.0 * 3 / 4);

/// Sojourn limit of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SojournLimit {
    /// Time since which the device was never empty; `None` if it was empty at the last turn.
    since: Option<Nanos>,
    /// Time of the last ring flush; `None` if the ring was not flushed since the device was empty.
    flushed: Option<Nanos>,
}

impl SojournLimit {
    /// Records a turn that ended at `now`; `drained`: it left no packet in the device.
    pub fn turn(&mut self, now: Nanos, drained: bool) {
        let fresh = self.flushed.is_some_and(|at| now.since(at) < FRESH);
        if drained && !fresh {
            *self = Self::default();
        } else if self.since.is_none() {
            self.since = Some(now);
        }
    }

    /// True if the device's ring must be flushed now; the caller does so.
    pub fn is_due(&mut self, now: Nanos) -> bool {
        let due = match (self.since, self.flushed) {
            (None, _) => false,
            (Some(since), None) => now.since(since) >= PROOF,
            (Some(_), Some(at)) => now.since(at) >= DELAY,
        };
        if due {
            self.flushed = Some(now);
        }
        due
    }

    /// True if the ring has been flushed since the device was last empty.
    pub fn flushes(&self) -> bool {
        self.flushed.is_some()
    }
}
