//! The device's own counters, which reading clears (8254x SDM, 13.7).
//!
//! They stop at their maximum, so [`Totals`] must read them regularly: frame counters reach it after an hour
//! of the shortest frames at 1 Gbit/s; byte counters have 64 bits. An emulated device may keep a counter when
//! it is read. Three readings in a row then do not fall; those of a cleared counter do.

use super::access::Access;
use super::regs::{ReadClears, Register, statistic};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $offset:literal, $wide:literal;)+) => {
        /// One counter, in the order of the registers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Statistic {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Statistic {
            /// All of them, in order.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Returns the name for tables.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Returns its register; the lower of two, if it has 64 bits.
            pub const fn register(self) -> Register<ReadClears> {
                match self { $(Self::$variant => statistic($offset, $name),)+ }
            }

            /// True if it has 64 bits, in two registers; reading the upper one clears both.
            pub const fn is_wide(self) -> bool {
                match self { $(Self::$variant => $wide,)+ }
            }
        }
    };
}

counters! {
    /// Frames with a wrong FCS.
    FcsErrors = "rx-fcs-errors", 0x4000, false;
    /// Frames with a symbol error.
    SymbolErrors = "rx-symbol-errors", 0x4008, false;
    /// Frames with an error of the receiver.
    RxErrors = "rx-errors", 0x400c, false;
    /// Frames that found the packet buffer full.
    Missed = "rx-missed", 0x4010, false;
    /// Frames given up after collisions.
    ExcessiveCollisions = "tx-excessive-collisions", 0x4018, false;
    /// Late collisions.
    LateCollisions = "tx-late-collisions", 0x4020, false;
    /// Frames whose length field is wrong.
    LengthErrors = "rx-length-errors", 0x4040, false;
    /// Frames that ended a pause, received.
    XonReceived = "rx-xon", 0x4048, false;
    /// Frames that ended a pause, sent.
    XonSent = "tx-xon", 0x404c, false;
    /// Pause frames received.
    XoffReceived = "rx-xoff", 0x4050, false;
    /// Pause frames sent.
    XoffSent = "tx-xoff", 0x4054, false;
    /// Received frames of 64 bytes.
    Rx64 = "rx-64", 0x405c, false;
    /// Received frames of 65 to 127 bytes.
    Rx127 = "rx-65-127", 0x4060, false;
    /// Received frames of 128 to 255 bytes.
    Rx255 = "rx-128-255", 0x4064, false;
    /// Received frames of 256 to 511 bytes.
    Rx511 = "rx-256-511", 0x4068, false;
    /// Received frames of 512 to 1023 bytes.
    Rx1023 = "rx-512-1023", 0x406c, false;
    /// Longer received frames.
    RxLonger = "rx-above-1023", 0x4070, false;
    /// Good frames received.
    RxGood = "rx-good", 0x4074, false;
    /// Broadcast frames received.
    RxBroadcast = "rx-broadcast", 0x4078, false;
    /// Multicast frames received.
    RxMulticast = "rx-multicast", 0x407c, false;
    /// Good frames sent.
    TxGood = "tx-good", 0x4080, false;
    /// Bytes of good frames received, FCS included.
    RxGoodBytes = "rx-good-bytes", 0x4088, true;
    /// Bytes of good frames sent, FCS included.
    TxGoodBytes = "tx-good-bytes", 0x4090, true;
    /// Frames for which no descriptor was free when they came.
    NoDescriptor = "rx-no-descriptor", 0x40a0, false;
    /// Frames shorter than 64 bytes.
    Undersize = "rx-undersize", 0x40a4, false;
    /// Frames longer than the device accepts.
    Oversize = "rx-oversize", 0x40ac, false;
    /// All bytes received, FCS included.
    RxBytes = "rx-bytes", 0x40c0, true;
    /// All bytes sent, FCS included.
    TxBytes = "tx-bytes", 0x40c8, true;
    /// All frames received.
    RxFrames = "rx-frames", 0x40d0, false;
    /// All frames sent.
    TxFrames = "tx-frames", 0x40d4, false;
    /// Sent frames of 64 bytes.
    Tx64 = "tx-64", 0x40d8, false;
    /// Sent frames of 65 to 127 bytes.
    Tx127 = "tx-65-127", 0x40dc, false;
    /// Sent frames of 128 to 255 bytes.
    Tx255 = "tx-128-255", 0x40e0, false;
    /// Sent frames of 256 to 511 bytes.
    Tx511 = "tx-256-511", 0x40e4, false;
    /// Sent frames of 512 to 1023 bytes.
    Tx1023 = "tx-512-1023", 0x40e8, false;
    /// Longer sent frames.
    TxLonger = "tx-above-1023", 0x40ec, false;
    /// Multicast frames sent.
    TxMulticast = "tx-multicast", 0x40f0, false;
    /// Broadcast frames sent.
    TxBroadcast = "tx-broadcast", 0x40f4, false;
    /// Packets that were cut into segments.
    Segmented = "tx-segmented", 0x40f8, false;
}

impl Statistic {
    /// Counters of frames that the port counts as received and dropped.
    pub(super) const LOSSES: [Self; 2] = [Self::Missed, Self::Oversize];
}

/// Number of counters.
pub const COUNTERS: usize = Statistic::ALL.len();

/// Counters since the port was opened, 64 bits wide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    sums: [u64; COUNTERS],
    /// Last readings of counters that are not cleared by reading.
    kept: [u64; COUNTERS],
}

impl Default for Totals {
    fn default() -> Self {
        Self { sums: [0; COUNTERS], kept: [0; COUNTERS] }
    }
}

impl Totals {
    /// Clears the device's counters, or records their values.
    pub(super) fn begin(access: &Access) -> Self {
        let mut totals = Self::default();
        for &statistic in Statistic::ALL {
            totals.update_one(access, statistic);
        }
        totals.sums = [0; COUNTERS];
        totals
    }

    /// Reads all counters except those of lost frames, which [`Self::update_one`] reads.
    pub(super) fn update(&mut self, access: &Access) {
        for &statistic in Statistic::ALL {
            if !Statistic::LOSSES.contains(&statistic) {
                self.update_one(access, statistic);
            }
        }
    }

    /// Reads one counter; returns its increase.
    ///
    /// Cost: one access to the device for a counter at zero, three for others.
    pub(super) fn update_one(&mut self, access: &Access, statistic: Statistic) -> u64 {
        let first = read(access, statistic);
        if first == 0 {
            self.kept[statistic as usize] = 0;
            return 0;
        }
        let readings = [first, read(access, statistic), read(access, statistic)];
        let added = added(readings, &mut self.kept[statistic as usize]);
        self.sums[statistic as usize] += added;
        added
    }

    /// Returns one counter.
    pub fn get(&self, statistic: Statistic) -> u64 {
        self.sums[statistic as usize]
    }

    /// Returns the counters other than zero.
    pub fn counted(&self) -> impl Iterator<Item = (Statistic, u64)> + '_ {
        Statistic::ALL.iter().map(|&statistic| (statistic, self.get(statistic))).filter(|&(_, sum)| sum > 0)
    }
}

/// Returns the increase of a counter, from three readings in a row, and from its last value if it is not
/// cleared.
fn added(readings: [u64; 3], kept: &mut u64) -> u64 {
    if readings.is_sorted() {
        let before = core::mem::replace(kept, readings[2]);
        return readings[2].saturating_sub(before);
    }
    *kept = 0;
    readings.iter().sum()
}

fn read(access: &Access, counter: Statistic) -> u64 {
    let low = counter.register();
    let value = u64::from(access.read(low));
    if !counter.is_wide() {
        return value;
    }
    let high = statistic(low.offset + 4, low.name);
    value | u64::from(access.read(high)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_are_cleared_add_up_and_those_that_are_kept_count_once() {
        let mut kept = 0;
        assert_eq!(added([7, 0, 0], &mut kept), 7);
        assert_eq!(added([100, 2, 0], &mut kept), 102, "some came between two readings");
        assert_eq!((added([7, 7, 7], &mut kept), kept), (7, 7));
        assert_eq!((added([9, 9, 10], &mut kept), kept), (3, 10));
        assert_eq!(added([10, 10, 10], &mut kept), 0);
    }

    #[test]
    fn registers_are_in_order_and_wide_ones_have_two() {
        for pair in Statistic::ALL.windows(2) {
            let width = if pair[0].is_wide() { 8 } else { 4 };
            let (first, second) = (pair[0].register().offset, pair[1].register().offset);
            assert!(first + width <= second, "{} {}", pair[0].name(), pair[1].name());
        }
    }
}
