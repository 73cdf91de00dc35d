//! pcapng blocks that captures use (draft-ietf-opsawg-pcapng): section, interface, packets with comments,
//! statistics.
//!
//! Every block is `type, length, body, length`, in host byte order, and a multiple of four bytes long.

use std::io::{self, Read, Write};

/// Block types.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// Byte-order magic of a section.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Link type: Ethernet.
const ETHERNET: u16 = 1;
/// Maximum length of a block that is read, in bytes.
const LONGEST: u32 = 1 << 20;

/// Option codes.
const END: u16 = 0;
const COMMENT: u16 = 1;
const APPLICATION: u16 = 4;
const NAME: u16 = 2;
const RESOLUTION: u16 = 9;
const FLAGS: u16 = 2;
const RECEIVED: u16 = 4;
const INTERFACE_DROPS: u16 = 5;
const ACCEPTED: u16 = 6;
const SYSTEM_DROPS: u16 = 7;

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    In,
    /// Sent, or about to be sent.
    Out,
}

/// A captured packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketBlock<'a> {
    /// Unix time in nanoseconds.
    pub at: u64,
    /// Length of the packet in bytes, which may be more than `bytes`.
    pub length: u32,
    /// Captured bytes, from the start of the packet.
    pub bytes: &'a [u8],
    /// Direction of the packet; `None` for a dropped packet.
    pub way: Option<Direction>,
    /// Comment on the packet.
    pub comment: &'a str,
}

/// Packet counts of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of packets that the filter was run on.
    pub asked: u64,
    /// Number of packets that matched.
    pub matched: u64,
    /// Number of matching packets that were lost because a buffer was full.
    pub lost: u64,
}

/// A block under construction.
struct Block(Vec<u8>);

impl Block {
    fn new(kind: u32) -> Self {
        // The length is filled in at the end.
        Self([kind.to_ne_bytes(), [0; 4]].concat())
    }

    fn words<const N: usize>(mut self, words: [u32; N]) -> Self {
        words.iter().for_each(|word| self.0.extend(word.to_ne_bytes()));
        self
    }

    fn halves<const N: usize>(mut self, halves: [u16; N]) -> Self {
        halves.iter().for_each(|half| self.0.extend(half.to_ne_bytes()));
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn option(self, code: u16, value: &[u8]) -> Self {
        let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.halves([code, length]).bytes(&value[..usize::from(length)])
    }

    fn finish(self, to: &mut impl Write) -> io::Result<()> {
        let Self(mut bytes) = self.halves([END, 0]);
        let length = u32::try_from(bytes.len() + 4).unwrap_or(u32::MAX).to_ne_bytes();
        bytes[4..8].copy_from_slice(&length);
        bytes.extend(length);
        to.write_all(&bytes)
    }
}

/// Writes the beginning of a file with one interface.
///
/// # Errors
/// Errors of `to`.
pub fn begin(to: &mut impl Write, interface: &str, longest: u32) -> io::Result<()> {
    let application = concat!("polder ", env!("CARGO_PKG_VERSION"));
    Block::new(SECTION)
        .words([BYTE_ORDER])
        .halves([1, 0])
        // The section's length is unknown.
        .words([u32::MAX, u32::MAX])
        .option(APPLICATION, application.as_bytes())
        .finish(to)?;
    let nanoseconds = [9];
    let block = Block::new(INTERFACE).halves([ETHERNET, 0]).words([longest]);
    block.option(NAME, interface.as_bytes()).option(RESOLUTION, &nanoseconds).finish(to)
}

/// Upper and lower half, in the order of timestamps.
fn time(nanoseconds: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = nanoseconds.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

/// Writes a packet.
///
/// # Errors
/// Errors of `to`.
pub fn packet(to: &mut impl Write, packet: &PacketBlock<'_>) -> io::Result<()> {
    let [high, low] = time(packet.at);
    let captured = u32::try_from(packet.bytes.len()).unwrap_or(u32::MAX);
    let block = Block::new(PACKET).words([0, high, low, captured, packet.length]).bytes(packet.bytes);
    let flags = match packet.way {
        Some(Direction::In) => 1_u32,
        Some(Direction::Out) => 2,
        None => 0,
    };
    block.option(FLAGS, &flags.to_ne_bytes()).option(COMMENT, packet.comment.as_bytes()).finish(to)
}

/// Writes the end of a file, with the capture's counts.
///
/// # Errors
/// Errors of `to`.
pub fn end(to: &mut impl Write, at: u64, totals: Totals) -> io::Result<()> {
    let [high, low] = time(at);
    Block::new(STATISTICS)
        .words([0, high, low])
        .option(RECEIVED, &totals.asked.to_ne_bytes())
        .option(INTERFACE_DROPS, &0_u64.to_ne_bytes())
        .option(ACCEPTED, &totals.matched.to_ne_bytes())
        .option(SYSTEM_DROPS, &totals.lost.to_ne_bytes())
        .finish(to)
}

/// A block as read, with its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole(pub Vec<u8>);

/// Reads the next block; `None` at the end of the stream, also within a block.
///
/// # Errors
/// Errors of `from`, and an invalid block.
pub fn next(from: &mut impl Read) -> io::Result<Option<Whole>> {
    let mut bytes = vec![0; 8];
    if let Err(error) = from.read_exact(&mut bytes) {
        return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) };
    }
    let length = u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    if !(12..=LONGEST).contains(&length) || !length.is_multiple_of(4) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the gateway's answer is not pcapng"));
    }
    bytes.resize(length as usize, 0);
    match from.read_exact(&mut bytes[8..]) {
        Ok(()) => Ok(Some(Whole(bytes))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

impl Whole {
    fn word(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    /// True for a packet block.
    pub fn is_packet(&self) -> bool {
        self.word(0) == PACKET
    }

    /// Packet counts of a statistics block; `None` for other blocks.
    pub fn totals(&self) -> Option<Totals> {
        if self.word(0) != STATISTICS {
            return None;
        }
        let (mut totals, mut at) = (Totals::default(), 20);
        while let Some(head) = self.0.get(at..).and_then(<[u8]>::first_chunk::<4>) {
            let (code, length) =
                (u16::from_ne_bytes([head[0], head[1]]), u16::from_ne_bytes([head[2], head[3]]));
            let value =
                self.0.get(at + 4..).and_then(<[u8]>::first_chunk).map(|bytes| u64::from_ne_bytes(*bytes));
            match (code, value) {
                (END, _) => break,
                (RECEIVED, Some(value)) => totals.asked = value,
                (ACCEPTED, Some(value)) => totals.matched = value,
                (SYSTEM_DROPS, Some(value)) => totals.lost = value,
                (_, _) => {}
            }
            at += 4 + usize::from(length).next_multiple_of(4);
        }
        Some(totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut file = Vec::new();
        begin(&mut file, "lan", 65_535).unwrap();
        let block = PacketBlock {
            at: 1,
            length: 64,
            bytes: &[1, 2, 3],
            way: Some(Direction::In),
            comment: "worker 0",
        };
        packet(&mut file, &block).unwrap();
        let totals = Totals { asked: 17, matched: 3, lost: 2 };
        end(&mut file, 2, totals).unwrap();
        let mut from = file.as_slice();
        let blocks = std::iter::from_fn(|| next(&mut from).unwrap()).collect::<Vec<_>>();
        assert_eq!(blocks.len(), 4);
        assert_eq!(blocks.iter().map(Whole::is_packet).collect::<Vec<_>>(), [false, false, true, false]);
        assert_eq!(blocks[3].totals(), Some(totals));
        assert!(
            blocks.iter().all(
                |block| block.0.len() % 4 == 0 && block.word(block.0.len() - 4) as usize == block.0.len()
            )
        );
        assert_eq!(next(&mut &file[..9]).unwrap(), None, "an end in the middle");
        next(&mut [0; 64].as_slice()).unwrap_err();
    }
}
