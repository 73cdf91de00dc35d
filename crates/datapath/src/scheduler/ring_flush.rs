//! Flushing a device whose packets have waited for too long: how often, for how long, and how few frames are posted
//! meanwhile.
//!
//! Packets in a device whose kernel thread receives can be dropped by that thread alone, while the worker naps
//! and no frame is posted. The speed of that differs from core to core, it costs half a packet's price and more,
//! and the device may be filled again as fast as it is emptied.

use crate::units::Nanos;

/// Packets that one poll of the kernel's takes out of a device at most (`NAPI_POLL_WEIGHT` of linux/netdevice.h).
pub const POLL: u32 = 64;
/// Packets that a wire holds (`VETH_RING_SIZE` of drivers/net/veth.c).
pub const WIRE: u32 = 256;

/// The naps after the first.
const NAP: Nanos = Nanos(20_000);
/// Naps after which it is enough.
const MOST_NAPS: u32 = 8;
/// Divisor of a nap: a thread that ran for a shorter part of it had no more work.
const BUSY: u64 = 2;
/// A device is emptied at least once when it was to be emptied so often.
const RAREST: u64 = 8;

/// Frames to keep posted under overload, when `worth` packets are worth the delay.
///
/// Not fewer than a poll takes: what it takes beyond the frames posted is thrown away, at nearly the price of what is
/// kept, and is younger than that. Not more than a wire holds.
pub fn frames(worth: u32) -> u32 {
    worth.clamp(POLL, WIRE)
}

/// The naps in which a device is emptied.
///
/// All that was in the device when it began is to go, however slow the core is: that is the oldest of all. What comes
/// meanwhile is not chased.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingFlush {
    naps: u32,
    gone: u64,
    is_cut: bool,
}

impl RingFlush {
    /// The first nap, in which the kernel's thread begins.
    pub const FIRST: Nanos = Nanos(40_000);

    /// Notes the end of a nap of length `nap` in which `packets` packets were dropped and the thread ran for
    /// `busy`. Returns the length of the next one, if there is one.
    pub fn next(&mut self, packets: u64, busy: Nanos, nap: Nanos) -> Option<Nanos> {
        self.naps += 1;
        self.gone += packets;
        let is_over = self.gone >= u64::from(WIRE) || busy.0 < nap.0 / BUSY;
        self.is_cut = !is_over && self.naps == MOST_NAPS;
        (!is_over && !self.is_cut).then_some(NAP)
    }
}

/// Age of the packets in a device, from the share of the arrivals that were in it when it was flushed.
///
/// A device that is never full loses nothing by itself. What is in it then is so much older than nothing as it is a
/// part of all that came since it was emptied: with a tenth left of what came in two milliseconds the oldest is 0.2 ms old,
/// and would be 2 ms old after ten times as long.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ageing {
    /// Packets since the device was emptied.
    came: u64,
    /// Number of times that it is still to be left as it is.
    spared: u64,
    /// True if it was emptied before: what came until then tells nothing.
    again: bool,
}

impl Ageing {
    /// Packets came out of the device, kept or not.
    #[inline]
    pub fn came(&mut self, packets: u64) {
        self.came += packets;
    }

    /// The device is to be emptied, since it may have old packets. Whether it can.
    pub fn is_old(&mut self) -> bool {
        let is_old = self.spared == 0;
        self.spared = self.spared.saturating_sub(1);
        is_old
    }

    /// Notes that the device was flushed; [`came`](Self::came) has been told of the flushed packets.
    pub fn emptied(&mut self, how: RingFlush) {
        let came = core::mem::take(&mut self.came);
        let again = core::mem::replace(&mut self.again, true);
        let is_full = !again || how.is_cut || how.gone >= u64::from(WIRE);
        let gone = how.gone.max(1);
        self.spared = if is_full { 0 } else { ((came + gone / 2) / gone).clamp(1, RAREST) - 1 };
    }
}
