//! Ring flush of an overloaded device: frequency, duration, and number of frames that stay posted.
//!
//! Packets in a device that a NAPI thread drains can be dropped only by that thread, while the worker naps
//! and posts no frames. The drop rate differs between cores, a drop costs half of a reception or more, and
//! the device may fill as fast as it is drained.

use crate::units::Nanos;

/// Maximum number of packets per poll of the kernel (`NAPI_POLL_WEIGHT` of linux/netdevice.h).
pub const POLL: u32 = 64;
/// Capacity of a veth's ring in packets (`VETH_RING_SIZE` of drivers/net/veth.c).
pub const WIRE: u32 = 256;

/// Duration of each nap after the first.
const NAP: Nanos = Nanos(20_000);
/// Maximum number of naps per flush.
const MAX_NAPS: u32 = 8;
/// Divisor of a nap: a thread that ran for less than half of the nap had no more work.
const BUSY: u64 = 2;
/// Maximum interval of flushes, in multiples of the flush interval.
const RAREST: u64 = 8;

/// Number of frames to keep posted under overload, if `worth` packets fit into the sojourn limit.
///
/// At least a poll's packets: packets beyond the posted frames are dropped at nearly the cost of a reception,
/// and are younger than the packets kept. At most a veth's ring.
pub fn frames(worth: u32) -> u32 {
    worth.clamp(POLL, WIRE)
}

/// Progress of one ring flush, a sequence of naps.
///
/// All packets that were in the device at the start must be dropped, however slow the core: they are the
/// oldest. Later packets are not chased.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingFlush {
    naps: u32,
    gone: u64,
    is_cut: bool,
}

impl RingFlush {
    /// Duration of the first nap, in which the NAPI thread starts.
    pub const FIRST: Nanos = Nanos(40_000);

    /// Records a nap of length `nap` in which `packets` packets were dropped and the NAPI thread ran for
    /// `busy`. Returns the length of the next nap; `None` if the flush is over.
    pub fn next(&mut self, packets: u64, busy: Nanos, nap: Nanos) -> Option<Nanos> {
        self.naps += 1;
        self.gone += packets;
        let is_over = self.gone >= u64::from(WIRE) || busy.0 < nap.0 / BUSY;
        self.is_cut = !is_over && self.naps == MAX_NAPS;
        (!is_over && !self.is_cut).then_some(NAP)
    }
}

/// Queueing age of packets in a device, from the share of arrivals that were in the device when it was
/// flushed.
///
/// In a partly filled ring, queueing age ≈ (queued ÷ arrivals since the last flush) × time since the flush:
/// with a tenth of 2 ms of arrivals queued, the oldest packet is 0.2 ms old, and would be 2 ms old after ten
/// times as long.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ageing {
    /// Packets that arrived since the last flush.
    came: u64,
    /// Number of due flushes still to be skipped.
    spared: u64,
    /// True after the first flush: arrivals before it are not usable.
    again: bool,
}

impl Ageing {
    /// Counts packets that left the device, processed or dropped.
    #[inline]
    pub fn came(&mut self, packets: u64) {
        self.came += packets;
    }

    /// Called when a flush is due: true if the device may have old packets; false if this flush is skipped.
    pub fn is_old(&mut self) -> bool {
        let is_old = self.spared == 0;
        self.spared = self.spared.saturating_sub(1);
        is_old
    }

    /// Records a flush; [`came`](Self::came) has already counted the flushed packets.
    pub fn emptied(&mut self, how: RingFlush) {
        let came = core::mem::take(&mut self.came);
        let again = core::mem::replace(&mut self.again, true);
        let is_full = !again || how.is_cut || how.gone >= u64::from(WIRE);
        let gone = how.gone.max(1);
        self.spared = if is_full { 0 } else { ((came + gone / 2) / gone).clamp(1, RAREST) - 1 };
    }
}
