//! Hairpin: frames that leave by their ingress member (reflective relay, IEEE 802.1Q-2022, 5.4.6).
//!
//! Two hairpin members that face each other would send a frame back and forth for ever. So reflected floods
//! have a limit, and a frame from a station that was just seen on another member is dropped as a sign of a
//! loop. For ten seconds after either event, frames reflected to known stations are limited too.

use super::flood::FloodGate;
use crate::units::Nanos;

/// Limit of one worker's reflected frames on one member.
#[derive(Clone, Copy, Debug)]
pub(super) struct HairpinGate {
    gate: FloodGate,
    suspected_until: Nanos,
}

impl HairpinGate {
    /// A limiter with full credit.
    pub(super) const fn new() -> Self {
        Self { gate: FloodGate::new(), suspected_until: Nanos(0) }
    }

    /// Records a sign of a loop.
    pub(super) fn suspect(&mut self, now: Nanos) {
        self.suspected_until = now + SUSPICION;
    }

    /// True if one more flooded frame may be reflected, at `limit` per second.
    pub(super) fn admit_flood(&mut self, limit: u32, now: Nanos) -> bool {
        let admitted = self.gate.admit(limit, now);
        if !admitted {
            self.suspect(now);
        }
        admitted
    }

    /// True if one more frame to a known station may be reflected: always, unless a loop is suspected.
    pub(super) fn admit_known(&mut self, limit: u32, now: Nanos) -> bool {
        now >= self.suspected_until || self.gate.admit(limit, now)
    }
}

/// Seconds for which a station seen on another member counts as present there. Frames that the kernel carries
/// update the time once per second.
pub(super) const STILL_THERE: u32 = 3;
/// Time after a sign of a loop in which all reflected frames are limited.
const SUSPICION: Nanos = Nanos::from_seconds(10);
