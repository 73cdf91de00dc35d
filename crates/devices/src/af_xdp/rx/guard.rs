//! Check for descriptors that a driver may have cut, and for the rest of such packets.
//!
//! A driver that receives into the region itself may use less than a slot, because its receive buffers have a
//! granularity of their own, and may deliver the rest of a longer packet as a packet of its own: payload
//! bytes would then be taken for an Ethernet frame. Without multi-buffer, a descriptor longer than the link's
//! packets is rejected, and so is the one after a descriptor that ends where such a buffer would.

/// Granularity of receive buffers in bytes, of the coarsest known driver (igb, SRRCTL.BSIZEPACKET).
pub(crate) const GRAIN: u32 = 1024;

/// Returns the longest packet that a driver with buffers of that granularity receives whole in a slot without
/// multi-buffer; the driver's headroom is excluded.
pub(crate) fn whole_at_most(single_frame: u32) -> u32 {
    // A packet that fills the buffer looks the same as one that was cut.
    (single_frame / GRAIN * GRAIN).saturating_sub(1)
}

/// Verdict on a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// The descriptor is valid.
    Right,
    /// First descriptor of a packet to drop: longer than the link's packets.
    TooLong,
    /// First descriptor of a packet to drop: it continues, though multi-buffer is off.
    Unasked,
    /// Further descriptor of a dropped packet.
    Rest,
}

/// The guard of one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    /// Length above which a descriptor is judged; a continued packet is judged in any case.
    above: u32,
    /// The link's longest packet in bytes; a longer one is suspicious. No bound in copy mode.
    longest: u32,
    /// Maximum length that is accepted in any case.
    most: u32,
    multi_buffer: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Until the last part of a dropped packet.
    Parts,
    /// The next descriptor may be the rest of a cut packet.
    Cut,
}

impl Guard {
    /// Creates a guard of a queue whose packets have one descriptor each, or several with `multi_buffer`.
    /// `longest` is the link's longest packet if the device writes into slots of `single_frame` bytes.
    pub(super) fn new(multi_buffer: bool, longest: Option<u32>, single_frame: u32) -> Self {
        let (longest, most) = match longest.filter(|_| !multi_buffer) {
            Some(longest) => (longest, whole_at_most(single_frame)),
            None => (u32::MAX, u32::MAX),
        };
        Self { above: longest, longest, most, multi_buffer, state: State::Open }
    }

    /// True for a descriptor of a whole packet that needs no judgement.
    #[inline(always)]
    pub(super) fn passes(&self, length: u32) -> bool {
        length <= self.above
    }

    /// Drops the rest of a packet of several parts.
    #[cold]
    pub(super) fn drop_rest(&mut self) {
        (self.state, self.above) = (State::Parts, 0);
    }

    /// Judges a descriptor that does not pass, or continues a packet.
    #[cold]
    pub(super) fn judge(&mut self, length: u32, continues: bool) -> Judged {
        let (judged, next) = match (self.state, continues) {
            (State::Parts, true) => (Judged::Rest, State::Parts),
            (State::Parts, false) => (Judged::Rest, State::Open),
            // A driver that cuts once may cut again.
            (State::Cut, false) if length >= GRAIN && length.is_multiple_of(GRAIN) => {
                (Judged::Rest, State::Cut)
            }
            (State::Cut, false) => (Judged::Rest, State::Open),
            (State::Open | State::Cut, true) if !self.multi_buffer => (Judged::Unasked, State::Parts),
            (State::Open | State::Cut, true) => (Judged::Right, State::Open),
            (State::Open, false) if length <= self.longest => (Judged::Right, State::Open),
            (State::Open, false) if length.is_multiple_of(GRAIN) => (Judged::TooLong, State::Cut),
            (State::Open, false) if length > self.most => (Judged::TooLong, State::Open),
            // The link's MTU was raised meanwhile.
            (State::Open, false) => (Judged::Right, State::Open),
        };
        self.state = next;
        self.above = if next == State::Open { self.longest } else { 0 };
        judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_cut_at_a_buffers_end_is_dropped_with_its_rest() {
        let mut guard = Guard::new(false, Some(1522), 3840);
        assert!(guard.passes(1522) && guard.passes(1024), "what the link carries");
        assert_eq!(guard.judge(3072, false), Judged::TooLong);
        assert!(!guard.passes(60));
        assert_eq!(guard.judge(60, false), Judged::Rest);
        assert!(guard.passes(60));
        assert_eq!(guard.judge(2048, false), Judged::TooLong);
        assert_eq!(guard.judge(2048, false), Judged::Rest, "cut twice");
        assert_eq!(guard.judge(1, false), Judged::Rest);
        assert_eq!(guard.judge(3100, false), Judged::TooLong, "longer than any buffer");
        assert!(guard.passes(60), "and whole");
        assert_eq!(guard.judge(1600, false), Judged::Right, "an MTU that was raised");
    }

    #[test]
    fn parts_that_nobody_asked_for_are_one_packet_less() {
        let mut guard = Guard::new(false, None, 1792);
        assert!(guard.passes(65_535));
        assert_eq!(guard.judge(500, true), Judged::Unasked);
        assert!(!guard.passes(60));
        assert_eq!((guard.judge(500, true), guard.judge(60, false)), (Judged::Rest, Judged::Rest));
        assert!(guard.passes(60));
        let mut guard = Guard::new(true, Some(1522), 1792);
        assert_eq!((guard.judge(1792, true), guard.judge(1792, true)), (Judged::Right, Judged::Right));
        assert!(guard.passes(1792));
    }

    #[test]
    fn a_slot_of_two_kilobytes_holds_no_packet_of_1500_for_certain() {
        assert_eq!((whole_at_most(1792), whole_at_most(3840), whole_at_most(900)), (1023, 3071, 0));
    }

    proptest! {
        /// With a driver that cuts at any granularity, no rest is believed, and packets that the
        /// link carries come through.
        #[test]
        fn no_rest_is_believed(
            packets in proptest::collection::vec(1..9000_u32, 1..60),
            buffer in (2..4_u32).prop_map(|grains| grains * GRAIN),
        ) {
            let mut guard = Guard::new(false, Some(1522), 3840);
            for packet in packets {
                let parts = packet.div_ceil(buffer);
                for part in 0..parts {
                    let length = if part + 1 < parts { buffer } else { packet - part * buffer };
                    let judged =
                        if guard.passes(length) { Judged::Right } else { guard.judge(length, false) };
                    prop_assert!(part == 0 || judged != Judged::Right, "{packet} in {buffer}: part {part}");
                    if parts > 1 {
                        prop_assert_ne!(judged, Judged::Right, "a first part");
                    }
                }
            }
        }
    }
}
