//! Number of receive buffers that the device is given: all that the ring has room for, or as many as the worker can use
//! in time.
//!
//! Posted buffers are the queue in front of the worker, and a ring keeps what came first: under overload all that is
//! taken has waited for a whole ring's time. With few posted, the excess dies in the device (B3) and what is
//! taken is young.

use crate::Receiving;

/// The fewest buffers under a limit, beside those of the longest frame.
const FEWEST: u32 = 8;

/// Limit of the buffers that are posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posting {
    /// Buffers that the ring has room for, and those of the longest frame.
    room: u32,
    pieces: u32,
    /// Limits by the consumer's measure, and by the worker's own.
    limits: [Option<u32>; 2],
    /// True if the device had used all buffers when it was looked at, since that was asked last.
    has_run_out: bool,
}

impl Posting {
    /// Without a limit, in a ring of `descriptors`; the longest frame has `pieces` buffers.
    pub(super) fn new(descriptors: usize, pieces: usize) -> Self {
        let [room, pieces] =
            [descriptors - 1, pieces].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        Self { room, pieces, limits: [None; 2], has_run_out: false }
    }

    /// Number of buffers to post.
    #[inline]
    pub(super) fn target(&self) -> u32 {
        let Some(limit) = self.limits.into_iter().flatten().min() else { return self.room };
        // The device may be in the middle of a frame with what was posted for the last one.
        let fewest = FEWEST.max(self.pieces.saturating_mul(2));
        limit.max(fewest).min(self.room)
    }

    /// Number of posted buffers below which more are posted, by the share that was asked for: the device waits for all
    /// buffers of the longest frame, so that fewer would stay as they are.
    #[inline]
    pub(super) fn low_mark(&self, receiving: &Receiving) -> u32 {
        receiving.low_mark(self.target()).max(self.pieces.min(self.room))
    }

    /// Sets the limit by the measure of consumers; `u32::MAX` is none.
    pub(super) fn set_consumers(&mut self, frames: u32) {
        self.limits[0] = (frames != u32::MAX).then_some(frames);
    }

    /// Sets the limit by the worker's own measure.
    pub(super) fn set_workers(&mut self, packets: Option<u32>) {
        self.limits[1] = packets;
    }

    /// Notes that the device had no buffer left, if that is so.
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
