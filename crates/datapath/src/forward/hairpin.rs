//! Frames that leave by the member that they came in by (reflective relay, IEEE 802.1Q-2022, 5.4.6).
//!
//! Two hairpin members that face each other send a frame to and fro for ever. So reflected floods have a limit, and a
//! frame of a station that was just seen at another member is one that came back: it is dropped, and says that there
//! is a loop. For some seconds after either, known stations' reflected frames go by the limit too.

use super::flood::FloodGate;
use crate::units::Nanos;

/// Limit of what one worker reflects by one member.
#[derive(Clone, Copy, Debug)]
pub(super) struct HairpinGate {
    gate: FloodGate,
    suspected_until: Nanos,
}

impl HairpinGate {
    /// A gate with its full credit.
    pub(super) const fn new() -> Self {
        Self { gate: FloodGate::new(), suspected_until: Nanos(0) }
    }

    /// Notes a sign of a loop.
    pub(super) fn suspect(&mut self, now: Nanos) {
        self.suspected_until = now + SUSPICION;
    }

    /// True if one more flooded frame may be reflected, at `limit` a second.
    pub(super) fn admit_flood(&mut self, limit: u32, now: Nanos) -> bool {
        let admitted = self.gate.admit(limit, now);
        if !admitted {
            self.suspect(now);
        }
        admitted
    }

    /// True if one more frame for a known station may be reflected: any number unless a loop is suspected.
    pub(super) fn admit_known(&mut self, limit: u32, now: Nanos) -> bool {
        now >= self.suspected_until || self.gate.admit(limit, now)
    }
}

/// Seconds for which a station that was seen at another member is still there. The time of a frame that the kernel
/// carries is noted once a second.
pub(super) const STILL_THERE: u32 = 3;
/// Time after a sign of a loop in which all that is reflected goes by the limit.
const SUSPICION: Nanos = Nanos::from_seconds(10);
