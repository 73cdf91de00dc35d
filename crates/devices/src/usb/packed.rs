//! Frames of bulk-out transfers, so that each is counted when its transfer ends.

/// Places of transfers in flight, each with its frames.
#[derive(Debug)]
pub(super) struct PackedFrames {
    transfers: Vec<Vec<PackedFrame>>,
    free: Vec<usize>,
    frames: usize,
}

/// A frame in a transfer.
#[derive(Clone, Copy, Debug)]
struct PackedFrame {
    /// Offset of the frame's end in the transfer.
    end: usize,
    /// Bytes of the packet, its tag included.
    bytes: usize,
}

/// Frames of a completed transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Frames that the device took whole.
    pub(super) frames: u64,
    /// Bytes of those frames.
    pub(super) bytes: u64,
    /// Frames that the device did not take, or not whole.
    pub(super) lost: u64,
}

impl PackedFrames {
    /// Creates places for `transfers` transfers of at most `frames` frames.
    pub(super) fn new(transfers: usize, frames: usize) -> Self {
        Self {
            transfers: (0..transfers).map(|_| Vec::with_capacity(frames)).collect(),
            free: (0..transfers).rev().collect(),
            frames: 0,
        }
    }

    /// Returns a place for a transfer without frames; `None` if all are in use.
    pub(super) fn begin(&mut self) -> Option<usize> {
        self.free.pop()
    }

    /// Adds a frame of `bytes` that ends at `end` of the transfer in `place`.
    pub(super) fn push(&mut self, place: usize, end: usize, bytes: usize) {
        self.transfers[place].push(PackedFrame { end, bytes });
        self.frames += 1;
    }

    /// Marks the transfer in `place` of `used` bytes as one that the device takes as a whole or not at all.
    pub(super) fn join(&mut self, place: usize, used: usize) {
        for frame in &mut self.transfers[place] {
            frame.end = used;
        }
    }

    /// Ends the transfer in `place`, of which the device has taken `actual` bytes.
    pub(super) fn end(&mut self, place: usize, actual: usize) -> Taken {
        let Some(transfer) = self.transfers.get_mut(place) else { return Taken::default() };
        let mut taken = Taken::default();
        self.frames -= transfer.len();
        for frame in transfer.drain(..) {
            if frame.end <= actual {
                taken.frames += 1;
                taken.bytes += frame.bytes as u64;
            } else {
                taken.lost += 1;
            }
        }
        self.free.push(place);
        taken
    }

    /// Returns the number of frames of all transfers in flight.
    pub(super) fn frames(&self) -> usize {
        self.frames
    }

    /// Clears transfers that did not come back; returns the number of their frames.
    pub(super) fn clear(&mut self) -> usize {
        self.transfers.iter_mut().for_each(Vec::clear);
        core::mem::take(&mut self.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_as_far_as_the_transfer_went() {
        let mut packed = PackedFrames::new(2, 8);
        let ends = [100, 208, 300];
        for (actual, frames, bytes) in
            [(0, 0, 0), (99, 0, 0), (100, 1, 90), (299, 2, 180), (300, 3, 270), (9999, 3, 270)]
        {
            let place = packed.begin().unwrap();
            ends.iter().for_each(|&end| packed.push(place, end, 90));
            assert_eq!(packed.frames(), 3);
            assert_eq!(packed.end(place, actual), Taken { frames, bytes, lost: 3 - frames }, "{actual}");
            assert_eq!(packed.frames(), 0);
        }
        let (first, second) = (packed.begin().unwrap(), packed.begin().unwrap());
        assert_eq!(packed.begin(), None);
        packed.push(first, 100, 92);
        packed.push(second, 100, 92);
        assert_eq!((packed.clear(), packed.frames()), (2, 0));
    }
}
