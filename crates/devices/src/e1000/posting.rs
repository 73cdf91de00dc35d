//! Number of receive buffers that the device gets: as many as the ring holds, or as many as the worker can
//! use in time.
//!
//! Posted buffers are the queue before the worker, and a full ring keeps the oldest packets: under overload
//! every received packet has waited for a whole ring. With few buffers, the device drops the excess (B3), and
//! received packets are recent.

use crate::Receiving;

/// Minimum number of buffers under a limit, besides those of the longest frame.
const FEWEST: u32 = 8;

/// Limit of the posted buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posting {
    /// Number of buffers that the ring holds, and number of buffers of the longest frame.
    room: u32,
    pieces: u32,
    /// Limits set by the consumer, and by the worker.
    limits: [Option<u32>; 2],
    /// True if the device had used all buffers at a check since the last query.
    has_run_out: bool,
}

impl Posting {
    /// Creates a posting without a limit, for a ring of `descriptors`; the longest frame has `pieces`
    /// buffers.
    pub(super) fn new(descriptors: usize, pieces: usize) -> Self {
        let [room, pieces] =
            [descriptors - 1, pieces].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        Self { room, pieces, limits: [None; 2], has_run_out: false }
    }

    /// Returns the number of buffers to post.
    #[inline]
    pub(super) fn target(&self) -> u32 {
        let Some(limit) = self.limits.into_iter().flatten().min() else { return self.room };
        // The device may have used a part of the buffers for an unfinished frame.
        let fewest = FEWEST.max(self.pieces.saturating_mul(2));
        limit.max(fewest).min(self.room)
    }

    /// Returns the number of posted buffers below which more are posted; at least the buffers of the longest
    /// frame, since the device waits for all of these.
    #[inline]
    pub(super) fn low_mark(&self, receiving: &Receiving) -> u32 {
        receiving.low_mark(self.target()).max(self.pieces.min(self.room))
    }

    /// Sets the limit by consumers; `u32::MAX` is none.
    pub(super) fn set_consumers(&mut self, frames: u32) {
        self.limits[0] = (frames != u32::MAX).then_some(frames);
    }

    /// Sets the limit by the worker.
    pub(super) fn set_workers(&mut self, packets: Option<u32>) {
        self.limits[1] = packets;
    }

    /// Records if the device had no buffer left.
    #[inline]
    pub(super) fn note(&mut self, has_run_out: bool) {
        self.has_run_out |= has_run_out;
    }

    /// True if the device had no buffer left since the last call.
    pub(super) fn take_run_out(&mut self) -> bool {
        core::mem::take(&mut self.has_run_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_applies_and_leaves_room_for_the_longest_frames() {
        let mut posting = Posting::new(256, 1);
        assert_eq!(posting.target(), 255);
        posting.set_workers(Some(64));
        posting.set_consumers(20);
        assert_eq!(posting.target(), 20);
        posting.set_consumers(0);
        assert_eq!(posting.target(), 8);
        posting.set_consumers(1000);
        assert_eq!(posting.target(), 64);
        posting.set_workers(None);
        assert_eq!(posting.target(), 255, "a ring has no more");
        posting.set_consumers(u32::MAX);
        assert_eq!(posting.target(), 255);
        let mut long = Posting::new(256, 16);
        long.set_consumers(3);
        assert_eq!(long.target(), 32, "two frames of 16 buffers");
        let mut small = Posting::new(16, 16);
        small.set_consumers(3);
        assert_eq!(small.target(), 15, "what the ring has room for");
    }

    #[test]
    fn buffers_are_posted_before_the_longest_frame_has_too_few() {
        let receiving = Receiving { refill_below_percent: 4, ..Receiving::default() };
        let mut posting = Posting::new(128, 4);
        assert_eq!(posting.low_mark(&receiving), 6, "4 % of 127");
        posting.set_consumers(19);
        assert_eq!(posting.low_mark(&receiving), 4);
        assert_eq!(posting.low_mark(&Receiving { refill_below_percent: 100, ..receiving }), 19);
        assert_eq!(Posting::new(4, 16).low_mark(&receiving), 3);
    }

    #[test]
    fn running_out_is_told_once() {
        let mut posting = Posting::new(8, 1);
        posting.note(false);
        assert!(!posting.take_run_out());
        posting.note(true);
        posting.note(false);
        assert!(posting.take_run_out() && !posting.take_run_out());
    }
}
