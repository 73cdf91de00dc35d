//! Sojourn time of packets in a device whose receiver wants fewer, and the times of ring flushes.
//!
//! A device's ring keeps what came first and loses what comes later, so under overload everything that is
//! taken has waited for a whole ring's time. Throwing the ring away now and then bounds that wait. It is
//! done only where the wait lasts: a burst that ends is served.

use crate::units::Nanos;

/// Time for which a device is never empty before anything is thrown away.
const PROOF: Nanos = Nanos::from_millis(20);
/// The longest that packets wait in the device from then on.
const DELAY: Nanos = Nanos::from_millis(2);
/// Within this part of it after that was asked for, an empty device proves nothing: it is done when what was received has
/// been worked off.
const FRESH: Nanos = Nanos(DELAY.0 * 3 / 4);

/// The wait in one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SojournLimit {
    /// Since when the device was never found empty.
    since: Option<Nanos>,
    /// Time at which it was last emptied by throwing away.
    discarded: Option<Nanos>,
}

impl SojournLimit {
    /// Takes note of a turn that ended at `now`, and whether it left nothing behind.
    pub fn turn(&mut self, now: Nanos, drained: bool) {
        let fresh = self.discarded.is_some_and(|at| now.since(at) < FRESH);
        if drained && !fresh {
            *self = Self::default();
        } else if self.since.is_none() {
            self.since = Some(now);
        }
    }

    /// True if the device's ring is to be flushed now; the caller then flushes it.
    pub fn is_due(&mut self, now: Nanos) -> bool {
        let due = match (self.since, self.discarded) {
            (None, _) => false,
            (Some(since), None) => now.since(since) >= PROOF,
            (Some(_), Some(at)) => now.since(at) >= DELAY,
        };
        if due {
            self.discarded = Some(now);
        }
        due
    }

    /// True if anything has been thrown away since the device was last found empty.
    pub fn discards(&self) -> bool {
        self.discarded.is_some()
    }
}
