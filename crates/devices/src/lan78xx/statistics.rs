//! The adapter's own counters, read as one block of 47 words.
//!
//! They wrap: frame counters have 20 bits, counters of bytes and low-power idle have 32. [`Totals`] extends
//! them to 64 bits, if it reads them often enough: the shortest frames at 1 Gbit/s wrap 20 bits after 0.70 s,
//! bytes wrap 32 bits after half a minute.
//!
//! Source: the limits that the driver of Linux has for each counter.

use super::regs::STATISTICS_BYTES;

/// Number of counters.
pub const COUNTERS: usize = STATISTICS_BYTES / 4;

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)+) => {
        /// One counter, in the order of the block.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Statistic {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Statistic {
            /// All of them, in order.
            pub const ALL: [Self; COUNTERS] = [$(Self::$variant,)+];

            /// Returns the name for tables.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

impl Statistic {
    /// Returns the number of bits of the counter.
    pub const fn bits(self) -> u32 {
        let is_wide = matches!(
            self,
            Self::RxUnicastBytes
                | Self::RxBroadcastBytes
                | Self::RxMulticastBytes
                | Self::RxLpiTransitions
                | Self::RxLpiTime
                | Self::TxUnicastBytes
                | Self::TxBroadcastBytes
                | Self::TxMulticastBytes
                | Self::TxLpiTransitions
                | Self::TxLpiTime
        );
        if is_wide { 32 } else { 20 }
    }

    /// Returns the maximum of the counter.
    pub const fn largest(self) -> u32 {
        u32::MAX >> (32 - self.bits())
    }
}

counters! {
    /// Frames with a wrong FCS.
    RxFcsErrors = "rx-fcs-errors";
    /// Frames that end within a byte.
    RxAlignmentErrors = "rx-alignment-errors";
    /// Short frames with a wrong FCS.
    RxFragments = "rx-fragments";
    /// Long frames with a wrong FCS.
    RxJabbers = "rx-jabbers";
    /// Frames shorter than 64 bytes.
    RxUndersize = "rx-undersize";
    /// Frames longer than the MAC accepts.
    RxOversize = "rx-oversize";
    /// Frames without room in the FIFO.
    RxDropped = "rx-dropped";
    /// Bytes of unicast frames.
    RxUnicastBytes = "rx-unicast-bytes";
    /// Bytes of broadcast frames.
    RxBroadcastBytes = "rx-broadcast-bytes";
    /// Bytes of multicast frames.
    RxMulticastBytes = "rx-multicast-bytes";
    /// Unicast frames.
    RxUnicast = "rx-unicast";
    /// Broadcast frames.
    RxBroadcast = "rx-broadcast";
    /// Multicast frames.
    RxMulticast = "rx-multicast";
    /// Pause frames.
    RxPause = "rx-pause";
    /// Frames of 64 bytes.
    Rx64 = "rx-64";
    /// Frames of 65 to 127 bytes.
    Rx127 = "rx-65-127";
    /// Frames of 128 to 255 bytes.
    Rx255 = "rx-128-255";
    /// Frames of 256 to 511 bytes.
    Rx511 = "rx-256-511";
    /// Frames of 512 to 1023 bytes.
    Rx1023 = "rx-512-1023";
    /// Frames of 1024 to 1518 bytes.
    Rx1518 = "rx-1024-1518";
    /// Longer frames.
    RxLonger = "rx-above-1518";
    /// Number of low-power idle transitions.
    RxLpiTransitions = "rx-lpi-transitions";
    /// Time in low-power idle.
    RxLpiTime = "rx-lpi-time";
    /// Frames sent with a wrong FCS.
    TxFcsErrors = "tx-fcs-errors";
    /// Frames given up after waiting for the medium.
    TxExcessDeferral = "tx-excess-deferral";
    /// Frames sent without carrier.
    TxCarrierErrors = "tx-carrier-errors";
    /// Bytes of frames that were not sent whole.
    TxBadBytes = "tx-bad-bytes";
    /// Frames after one collision.
    TxSingleCollisions = "tx-single-collisions";
    /// Frames after several collisions.
    TxMultipleCollisions = "tx-multiple-collisions";
    /// Frames given up after collisions.
    TxExcessiveCollisions = "tx-excessive-collisions";
    /// Late collisions.
    TxLateCollisions = "tx-late-collisions";
    /// Bytes of unicast frames.
    TxUnicastBytes = "tx-unicast-bytes";
    /// Bytes of broadcast frames.
    TxBroadcastBytes = "tx-broadcast-bytes";
    /// Bytes of multicast frames.
    TxMulticastBytes = "tx-multicast-bytes";
    /// Unicast frames.
    TxUnicast = "tx-unicast";
    /// Broadcast frames.
    TxBroadcast = "tx-broadcast";
    /// Multicast frames.
    TxMulticast = "tx-multicast";
    /// Pause frames.
    TxPause = "tx-pause";
    /// Frames of 64 bytes.
    Tx64 = "tx-64";
    /// Frames of 65 to 127 bytes.
    Tx127 = "tx-65-127";
    /// Frames of 128 to 255 bytes.
    Tx255 = "tx-128-255";
    /// Frames of 256 to 511 bytes.
    Tx511 = "tx-256-511";
    /// Frames of 512 to 1023 bytes.
    Tx1023 = "tx-512-1023";
    /// Frames of 1024 to 1518 bytes.
    Tx1518 = "tx-1024-1518";
    /// Longer frames.
    TxLonger = "tx-above-1518";
    /// Number of low-power idle transitions.
    TxLpiTransitions = "tx-lpi-transitions";
    /// Time in low-power idle.
    TxLpiTime = "tx-lpi-time";
}

/// The block as read from the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block([u32; COUNTERS]);

impl Default for Block {
    fn default() -> Self {
        Self([0; COUNTERS])
    }
}

impl Block {
    /// Parses the block.
    pub fn read(bytes: &[u8; STATISTICS_BYTES]) -> Self {
        let mut words = [0; COUNTERS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Self(words)
    }

    /// Returns the bytes of the block.
    pub fn write(&self) -> [u8; STATISTICS_BYTES] {
        let mut bytes = [0; STATISTICS_BYTES];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(self.0) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    /// Returns one counter.
    pub fn get(&self, statistic: Statistic) -> u32 {
        self.0[statistic as usize]
    }

    /// Adds to a counter, which wraps.
    pub fn add(&mut self, statistic: Statistic, amount: u32) {
        let counter = &mut self.0[statistic as usize];
        *counter = counter.wrapping_add(amount) & statistic.largest();
    }
}

/// Counters since the driver started, 64 bits wide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    last: Block,
    sums: [u64; COUNTERS],
}

impl Totals {
    /// Starts from a first block; earlier counts are excluded.
    pub fn new(first: Block) -> Self {
        Self { last: first, sums: [0; COUNTERS] }
    }

    /// Adds the increase since the last block.
    pub fn update(&mut self, block: Block) {
        for (sum, statistic) in self.sums.iter_mut().zip(Statistic::ALL) {
            let came = block.get(statistic).wrapping_sub(self.last.get(statistic));
            *sum += u64::from(came & statistic.largest());
        }
        self.last = block;
    }

    /// Returns one counter.
    pub fn get(&self, statistic: Statistic) -> u64 {
        self.sums[statistic as usize]
    }

    /// Returns the counters other than zero.
    pub fn counted(&self) -> impl Iterator<Item = (Statistic, u64)> + '_ {
        Statistic::ALL.into_iter().map(|statistic| (statistic, self.get(statistic))).filter(|&(_, n)| n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_is_written_and_read_in_order() {
        let mut block = Block::default();
        for (index, statistic) in Statistic::ALL.into_iter().enumerate() {
            block.add(statistic, u32::try_from(index).unwrap() * 3 + 1);
        }
        let bytes = block.write();
        assert_eq!(bytes[4 * 46..], (46 * 3 + 1_u32).to_le_bytes());
        assert_eq!(Block::read(&bytes), block);
    }

    #[test]
    fn totals_survive_a_wrap() {
        let mut block = Block::default();
        block.add(Statistic::RxUnicastBytes, u32::MAX - 9);
        let mut totals = Totals::new(block);
        block.add(Statistic::RxUnicastBytes, 30);
        totals.update(block);
        block.add(Statistic::TxPause, 2);
        totals.update(block);
        // 20 bits, twice around.
        let mut frames = Totals::new(block);
        for _ in 0..4 {
            block.add(Statistic::Rx64, 600_000);
            frames.update(block);
        }
        assert_eq!(frames.get(Statistic::Rx64), 2_400_000);
        assert_eq!(totals.get(Statistic::RxUnicastBytes), 30);
        let counted: Vec<_> = totals.counted().collect();
        assert_eq!(counted, [(Statistic::RxUnicastBytes, 30), (Statistic::TxPause, 2)]);
    }
}
