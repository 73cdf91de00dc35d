//! Frames in bulk transfers, with the command words before them.
//!
//! | direction | before each frame | the frame | start of the next frame |
//! |---|---|---|---|
//! | bulk in | A, B (32 bits each), C (16 bits), 10 bytes | with its FCS | at 10 + length, rounded up to 4 |
//! | bulk out | A, B, 8 bytes | without FCS | at 8 + length, rounded up to 4 |
//!
//! All words are little-endian. The last frame of a transfer is not padded. Both directions are written and parsed
//! here, once for the driver and once for the model; every value of a device is checked before use, and the first
//! invalid one ends a transfer.

use core::fmt;

/// Bytes of the command words before a received frame.
pub const RX_COMMAND_BYTES: usize = 10;
/// Bytes of the command words before a sent frame.
pub const TX_COMMAND_BYTES: usize = 8;
/// Bytes of a frame check sequence.
pub const FCS_BYTES: usize = 4;
/// Bytes of an Ethernet header.
const HEADER_BYTES: usize = 14;
/// Bytes of the shortest bulk-in transfer with a frame: command words and an Ethernet header.
pub const SHORTEST_TRANSFER: usize = RX_COMMAND_BYTES + HEADER_BYTES;

/// Bits of word A before a received frame.
pub mod rx_a {
    /// Bytes of the frame, FCS included.
    pub const LENGTH: u32 = 0x3fff;
    /// The checksum in word B is unusable.
    pub const IGNORE_CHECKSUM: u32 = 0x4000;
    /// The FCS is wrong.
    pub const FCS_ERROR: u32 = 0x1_0000;
    /// The frame ends within a byte.
    pub const ALIGNMENT: u32 = 0x2_0000;
    /// The PHY has detected an error.
    pub const PHY_ERROR: u32 = 0x4_0000;
    /// The frame is longer than the MAC accepts.
    pub const LONG: u32 = 0x8_0000;
    /// The frame is shorter than 64 bytes.
    pub const RUNT: u32 = 0x10_0000;
    /// The watchdog has cut the frame.
    pub const WATCHDOG: u32 = 0x20_0000;
    /// The MAC or a checksum had an error.
    pub const ERROR: u32 = 0x40_0000;
    /// The checksum of TCP or UDP is wrong.
    pub const TRANSPORT_CHECKSUM: u32 = 0x4000_0000;
    /// The checksum of the IP header is wrong.
    pub const IP_CHECKSUM: u32 = 0x8000_0000;
    /// Errors of the MAC: the frame was damaged on the way.
    pub const DEVICE_ERRORS: u32 = FCS_ERROR | ALIGNMENT | PHY_ERROR | LONG | RUNT | WATCHDOG;
    /// Errors in an undamaged frame.
    pub const CHECKSUM_ERRORS: u32 = IP_CHECKSUM | TRANSPORT_CHECKSUM;
    /// All kinds of errors.
    pub const ERRORS: u32 = DEVICE_ERRORS | CHECKSUM_ERRORS | ERROR;
    /// The frame had a VLAN tag, which is in word B.
    pub const VLAN: u32 = 0x80_0000;
    /// The destination is a multicast address.
    pub const MULTICAST: u32 = 0x100_0000;
    /// The destination is the broadcast address.
    pub const BROADCAST: u32 = 0x200_0000;
    /// The destination is in the perfect filter.
    pub const PERFECT: u32 = 0x400_0000;
}

/// Bits of word A before a sent frame.
pub mod tx_a {
    /// Bytes of the frame.
    pub const LENGTH: u32 = 0xf_ffff;
    /// Add the FCS.
    pub const FCS: u32 = 0x40_0000;
    /// Insert the VLAN tag of word B.
    pub const VLAN: u32 = 0x100_0000;
    /// Complete the TCP or UDP checksum.
    pub const TRANSPORT_CHECKSUM: u32 = 0x200_0000;
    /// Write the checksum of the IPv4 header.
    pub const IP_CHECKSUM: u32 = 0x400_0000;
    /// Segment, with the size in word B.
    pub const SEGMENT: u32 = 0x800_0000;
}

/// Status of a received frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxStatus {
    /// Word A.
    pub a: u32,
    /// Word B.
    pub b: u32,
    /// Word C.
    pub c: u16,
}

impl RxStatus {
    /// Parses the words.
    pub fn read(bytes: [u8; RX_COMMAND_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j] = bytes;
        Self {
            a: u32::from_le_bytes([a, b, c, d]),
            b: u32::from_le_bytes([e, f, g, h]),
            c: u16::from_le_bytes([i, j]),
        }
    }

    /// Returns the bytes of the words.
    pub fn write(self) -> [u8; RX_COMMAND_BYTES] {
        let ([a, b, c, d], [e, f, g, h]) = (self.a.to_le_bytes(), self.b.to_le_bytes());
        let [i, j] = self.c.to_le_bytes();
        [a, b, c, d, e, f, g, h, i, j]
    }

    /// Returns the bytes of the frame, FCS included.
    pub const fn length(self) -> usize {
        (self.a & rx_a::LENGTH) as usize
    }

    /// True if the frame was damaged on the way. [`rx_a::ERROR`] alone does not mean that: the adapter sets
    /// it for wrong checksums too.
    pub const fn is_damaged(self) -> bool {
        self.a & rx_a::DEVICE_ERRORS != 0
    }

    /// True if the adapter found a wrong checksum of IP, TCP or UDP.
    pub const fn has_wrong_checksum(self) -> bool {
        self.a & rx_a::CHECKSUM_ERRORS != 0
    }

    /// Returns the tag that the adapter removed from the frame, or saw in it.
    #[expect(clippy::cast_possible_truncation, reason = "the tag is the lower half of the word")]
    pub const fn vlan(self) -> Option<u16> {
        if self.a & rx_a::VLAN == 0 { None } else { Some(self.b as u16) }
    }

    /// Returns the one's complement sum of all bytes after the Ethernet header, FCS excluded.
    pub const fn checksum(self) -> Option<u16> {
        if self.a & rx_a::IGNORE_CHECKSUM == 0 { Some((self.b >> 16) as u16) } else { None }
    }
}

/// Returns the maximum number of frames in `bytes` of a bulk-in transfer, an incomplete one included. The
/// shortest has 60 bytes with its FCS, after removal of its tag.
pub const fn most_frames(bytes: usize) -> usize {
    const SHORTEST: usize = RX_COMMAND_BYTES + 60;
    let padded = SHORTEST.next_multiple_of(4);
    // The last frame is not padded.
    let whole = (bytes + padded - SHORTEST) / padded;
    if whole == 0 && bytes > 0 { 1 } else { whole }
}

/// A received frame in its transfer.
#[derive(Clone, Copy, Debug)]
pub struct RxFrame<'a> {
    /// Status that the adapter reports.
    pub status: RxStatus,
    /// The frame, FCS excluded; at least an Ethernet header.
    pub bytes: &'a [u8],
}

/// Reason why the rest of a transfer is not parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RxFault {
    /// Shorter than any transfer with a frame.
    #[error("a received USB transfer of {0} bytes is too short for a frame")]
    ShortTransfer(usize),
    /// The transfer ends within command words.
    #[error("a received USB transfer ends within the command words of a frame")]
    CommandCut,
    /// A frame shorter than an Ethernet header and its FCS.
    #[error("a received frame of {0} bytes is shorter than an Ethernet header with FCS")]
    FrameShort(usize),
    /// A frame that extends beyond the end of its transfer.
    #[error("a received frame has {length} bytes, but its USB transfer has only {left} left")]
    Beyond {
        /// Length that the adapter reports.
        length: usize,
        /// Number of bytes left in the transfer.
        left: usize,
    },
}

/// A position in a bulk-in transfer, at the start of a frame or at the end.
///
/// It holds no bytes, so parsing can pause within a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCursor {
    at: usize,
}

impl RxCursor {
    /// Returns the next frame of `transfer`; `None` at its end.
    ///
    /// # Errors
    /// [`RxFault`]: the rest of the transfer is invalid, and the cursor is at its end.
    #[inline]
    pub fn next<'a>(&mut self, transfer: &'a [u8]) -> Option<Result<RxFrame<'a>, RxFault>> {
        if self.at >= transfer.len() {
            return None;
        }
        let result = self.read(transfer);
        if result.is_err() {
            self.at = transfer.len();
        }
        Some(result)
    }

    /// Returns the number of unparsed bytes of `transfer`.
    pub const fn left(&self, transfer: &[u8]) -> usize {
        transfer.len().saturating_sub(self.at)
    }

    fn read<'a>(&mut self, transfer: &'a [u8]) -> Result<RxFrame<'a>, RxFault> {
        if transfer.len() < SHORTEST_TRANSFER {
            return Err(RxFault::ShortTransfer(transfer.len()));
        }
        let rest = &transfer[self.at..];
        let (words, rest) = rest.split_first_chunk().ok_or(RxFault::CommandCut)?;
        let status = RxStatus::read(*words);
        let length = status.length();
        if length < HEADER_BYTES + FCS_BYTES {
            return Err(RxFault::FrameShort(length));
        }
        let frame = rest.get(..length).ok_or(RxFault::Beyond { length, left: rest.len() })?;
        self.at = (self.at + RX_COMMAND_BYTES + length).next_multiple_of(4).min(transfer.len());
        Ok(RxFrame { status, bytes: &frame[..length - FCS_BYTES] })
    }
}

/// Command words of a frame to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCommand {
    /// Word A.
    pub a: u32,
    /// Word B.
    pub b: u32,
}

impl TxCommand {
    /// Returns the command to send a frame of `length` bytes and add its FCS; `None` if the length is too
    /// large.
    #[inline]
    pub fn plain(length: usize) -> Option<Self> {
        let length = u32::try_from(length).ok().filter(|&length| length <= tx_a::LENGTH)?;
        Some(Self { a: length | tx_a::FCS, b: 0 })
    }

    /// Returns the bytes of the words.
    #[inline]
    pub fn write(self) -> [u8; TX_COMMAND_BYTES] {
        let ([a, b, c, d], [e, f, g, h]) = (self.a.to_le_bytes(), self.b.to_le_bytes());
        [a, b, c, d, e, f, g, h]
    }

    /// Parses the words.
    pub fn read([a, b, c, d, e, f, g, h]: [u8; TX_COMMAND_BYTES]) -> Self {
        Self { a: u32::from_le_bytes([a, b, c, d]), b: u32::from_le_bytes([e, f, g, h]) }
    }

    /// Returns the bytes of the frame.
    pub const fn length(self) -> usize {
        (self.a & tx_a::LENGTH) as usize
    }

    /// Returns the tag to insert.
    #[expect(clippy::cast_possible_truncation, reason = "the tag is the lower half of the word")]
    pub const fn vlan(self) -> Option<u16> {
        if self.a & tx_a::VLAN == 0 { None } else { Some(self.b as u16) }
    }
}

/// Returns the bytes that a frame of `length` adds to a bulk-out transfer with `used` bytes: padding, command
/// words, and the frame.
#[inline]
pub const fn tx_room(used: usize, length: usize) -> usize {
    used.next_multiple_of(4) - used + TX_COMMAND_BYTES + length
}

/// A frame to be sent in its transfer.
#[derive(Clone, Copy, Debug)]
pub struct TxFrame<'a> {
    /// Command words for the adapter.
    pub command: TxCommand,
    /// The frame.
    pub bytes: &'a [u8],
}

/// A bulk-out transfer that is no sequence of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxFault;

impl fmt::Display for TxFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a bulk-out transfer is no sequence of frames")
    }
}

/// A position in a bulk-out transfer, at the start of a frame or at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCursor {
    at: usize,
}

impl TxCursor {
    /// Returns the number of parsed bytes of the transfer, padding included.
    pub const fn position(self) -> usize {
        self.at
    }

    /// Returns the next frame of `transfer`; the one after it starts at a multiple of `alignment` (4 on the
    /// device); `None` at the end.
    ///
    /// # Errors
    /// [`TxFault`]: the cursor is at the end.
    pub fn next<'a>(&mut self, transfer: &'a [u8], alignment: usize) -> Option<Result<TxFrame<'a>, TxFault>> {
        if self.at >= transfer.len() {
            return None;
        }
        let rest = &transfer[self.at..];
        let frame = rest.split_first_chunk().and_then(|(words, rest)| {
            let command = TxCommand::read(*words);
            rest.get(..command.length()).map(|bytes| TxFrame { command, bytes })
        });
        let Some(frame) = frame.filter(|frame| frame.bytes.len() >= HEADER_BYTES) else {
            self.at = transfer.len();
            return Some(Err(TxFault));
        };
        let end = self.at + TX_COMMAND_BYTES + frame.bytes.len();
        self.at = end.next_multiple_of(alignment).min(transfer.len());
        Some(Ok(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A transfer as the adapter writes it.
    fn transfer(frames: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for frame in frames {
            bytes.resize(bytes.len().next_multiple_of(4), 0xee);
            let length = u32::try_from(frame.len() + FCS_BYTES).unwrap();
            bytes.extend(RxStatus { a: length, b: 0x1234_0000, c: 0 }.write());
            bytes.extend_from_slice(frame);
            bytes.extend([1, 2, 3, 4]);
        }
        bytes
    }

    fn frames(bytes: &[u8]) -> Vec<Result<Vec<u8>, RxFault>> {
        let mut cursor = RxCursor::default();
        core::iter::from_fn(|| cursor.next(bytes)).map(|frame| frame.map(|f| f.bytes.to_vec())).collect()
    }

    #[test]
    fn every_alignment_of_two_frames() {
        for first in 14..40 {
            let (one, two) = (vec![1; first], vec![2; 60]);
            assert_eq!(frames(&transfer(&[&one, &two])), [Ok(one), Ok(two)]);
        }
    }

    #[test]
    fn a_fault_ends_the_transfer() {
        let good = transfer(&[&[1; 61], &[2; 60]]);
        let second = (RX_COMMAND_BYTES + 61 + FCS_BYTES).next_multiple_of(4);
        let cut = |length: usize| frames(&good[..length]).pop().unwrap().unwrap_err();
        assert_eq!(cut(23), RxFault::ShortTransfer(23));
        assert_eq!(cut(second + 9), RxFault::CommandCut);
        assert_eq!(cut(second + 10), RxFault::Beyond { length: 64, left: 0 });
        assert_eq!(cut(good.len() - 1), RxFault::Beyond { length: 64, left: 63 });
        assert_eq!(frames(&good[..good.len() - 1]).len(), 2);
        let mut short = good;
        short[second] = 17;
        assert_eq!(frames(&short).pop().unwrap(), Err(RxFault::FrameShort(17)));
        assert!(frames(&[]).is_empty());
    }

    #[test]
    fn a_transfer_holds_as_many_frames_as_fit() {
        let counts = [0, 1, 69, 70, 71, 72, 141, 142, 143, 32768].map(most_frames);
        assert_eq!(counts, [0, 1, 1, 1, 1, 1, 1, 2, 2, 455]);
    }

    #[test]
    fn words_are_little_endian() {
        let status = RxStatus { a: 0x0180_4040, b: 0xabcd_0123, c: 0x8001 };
        assert_eq!(status.write(), [0x40, 0x40, 0x80, 0x01, 0x23, 0x01, 0xcd, 0xab, 0x01, 0x80]);
        assert_eq!(RxStatus::read(status.write()), status);
        assert_eq!((status.length(), status.vlan(), status.checksum()), (64, Some(0x123), None));
        let command = TxCommand::plain(60).unwrap();
        assert_eq!(command.write(), [60, 0, 0x40, 0, 0, 0, 0, 0]);
        assert_eq!(TxCommand::read(command.write()), command);
        assert_eq!(TxCommand::plain(1 << 20), None);
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let sizes = [14, 60, 61, 62, 63, 1514, 15];
        let mut bytes = Vec::new();
        for (index, &size) in sizes.iter().enumerate() {
            let room = tx_room(bytes.len(), size);
            let before = bytes.len();
            bytes.resize(before.next_multiple_of(4), 0);
            bytes.extend(TxCommand::plain(size).unwrap().write());
            bytes.resize(bytes.len() + size, u8::try_from(index).unwrap());
            assert_eq!(bytes.len() - before, room);
        }
        let mut cursor = TxCursor::default();
        let found: Vec<_> =
            core::iter::from_fn(|| cursor.next(&bytes, 4)).map(|frame| frame.unwrap().bytes.len()).collect();
        assert_eq!(found, sizes);
        assert_eq!(TxCursor::default().next(&bytes[..9], 4).unwrap().unwrap_err(), TxFault);
    }
}
