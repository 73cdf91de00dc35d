//! Packer of datagrams into a block.
//!
//! The lengths of a block's datagrams are known before the first byte is written, so the table directly
//! follows the header, with the exact number of entries, and all bytes are written from front to back.

use super::{CRC_BYTES, Channel, Format, crc};
use crate::usb::UrbBuffer;
use crate::usb::function::Plan;
use core::ops::Range;
use polder_buffers::Packet;

/// Padding bytes, written up to 64 at a time.
const ZEROS: [u8; 64] = [0; 64];

/// Block parameters of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) format: Format,
    pub(crate) has_crc: bool,
    /// Offsets of datagrams are `remainder` modulo `divisor`.
    pub(crate) divisor: usize,
    pub(crate) remainder: usize,
    /// The offset of the table is a multiple of this.
    pub(crate) alignment: usize,
    /// Maximum number of datagrams of a block.
    pub(crate) most_datagrams: usize,
    /// Maximum bytes of a block; a block of that size ends its transfer without a short packet.
    pub(crate) largest: usize,
    /// Packet size of the endpoint.
    pub(crate) packet: usize,
    /// True if a transfer that ends with a full packet is terminated by a zero-length packet instead of a
    /// byte of padding.
    pub(crate) zero_packet: bool,
    /// True if the table follows the datagrams.
    pub(crate) table_at_end: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            format: Format::Ntb16,
            has_crc: false,
            divisor: 4,
            remainder: 0,
            alignment: 4,
            most_datagrams: 1,
            largest: 2048,
            packet: 512,
            zero_packet: false,
            table_at_end: false,
        }
    }
}

/// Packer of one device's blocks.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    shape: Shape,
    channel: Channel,
    sequence: u16,
    /// Lengths of the planned datagrams, checksums included.
    lengths: Vec<usize>,
    /// Bytes of the planned block.
    bytes: usize,
}

impl Packer {
    pub(crate) fn new(shape: Shape) -> Self {
        Self {
            shape,
            channel: Channel::Frames,
            sequence: 0,
            lengths: Vec::with_capacity(shape.most_datagrams),
            bytes: 0,
        }
    }

    pub(crate) const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the maximum number of datagrams in a block of `bytes`.
    pub(crate) fn most_datagrams(&self, bytes: usize, shortest: usize) -> usize {
        let Shape { format, most_datagrams, .. } = self.shape;
        most_datagrams.min(bytes / (shortest + format.entry_bytes())).max(1)
    }

    /// Sets the kind of the next block's datagrams.
    pub(crate) const fn set_channel(&mut self, channel: Channel) {
        self.channel = channel;
    }

    /// Plans a block of at most `limit` bytes with as many datagrams as fit.
    pub(crate) fn plan(&mut self, lengths: impl Iterator<Item = usize>, limit: usize) -> Plan {
        let Shape { has_crc, largest, packet, zero_packet, .. } = self.shape;
        let check = if has_crc { CRC_BYTES } else { 0 };
        // A block below the maximum needs room for the byte that makes its last packet short.
        let is_short = limit < largest;
        let limit = if is_short && limit.is_multiple_of(packet) { limit - 1 } else { limit.min(largest) };
        self.lengths.clear();
        self.bytes = 0;
        let mut in_front = 0;
        for length in lengths.take(self.shape.most_datagrams) {
            let length = length + check;
            let bytes = self.block_bytes(self.lengths.len() + 1, in_front, length);
            if bytes > limit {
                break;
            }
            self.bytes = bytes;
            self.lengths.push(length);
            in_front += length.next_multiple_of(self.shape.divisor);
        }
        if !zero_packet && self.bytes < largest && self.bytes.is_multiple_of(packet) {
            self.bytes += 1;
        }
        Plan { packets: self.lengths.len(), bytes: self.bytes }
    }

    /// Returns the bytes of a block of `count` datagrams; the last has `last` bytes, the others `in_front` in
    /// total.
    fn block_bytes(&self, count: usize, in_front: usize, last: usize) -> usize {
        let end = self.first(count) + in_front + last;
        if self.shape.table_at_end { self.table_behind(end) + self.table_bytes(count) } else { end }
    }

    /// Returns the bytes of a table with `count` datagrams and the terminating entry.
    const fn table_bytes(&self, count: usize) -> usize {
        self.shape.format.table_bytes() + (count + 1) * self.shape.format.entry_bytes()
    }

    const fn table_behind(&self, end: usize) -> usize {
        end.next_multiple_of(self.shape.alignment)
    }

    /// Returns the offset of the first of `count` datagrams.
    fn first(&self, count: usize) -> usize {
        let Shape { format, divisor, remainder, .. } = self.shape;
        let from = if self.shape.table_at_end {
            format.header_bytes()
        } else {
            self.table_behind(format.header_bytes()) + self.table_bytes(count)
        };
        let over = (from + divisor - remainder) % divisor;
        if over == 0 { from } else { from + divisor - over }
    }

    /// Writes the header of the planned block, and its table if that comes first.
    pub(crate) fn begin(&mut self, buffer: &mut UrbBuffer) -> usize {
        let Shape { format, table_at_end, .. } = self.shape;
        let end = self.datagrams_end();
        let table = if table_at_end { end } else { format.header_bytes() };
        let table = self.table_behind(table);
        let mut used = buffer.write(0, &format.signature());
        used = buffer.write(used, &narrow(format.header_bytes()));
        used = buffer.write(used, &self.sequence.to_le_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        used = self.field(buffer, used, self.bytes);
        used = self.field(buffer, used, table);
        if !table_at_end {
            used = self.table(buffer, used, table);
        }
        used
    }

    /// Returns the offset of the end of the last datagram.
    fn datagrams_end(&self) -> usize {
        let divisor = self.shape.divisor;
        let count = self.lengths.len();
        let Some((last, others)) = self.lengths.split_last() else { return self.first(0) };
        let in_front: usize = others.iter().map(|length| length.next_multiple_of(divisor)).sum();
        self.first(count) + in_front + last
    }

    /// Appends a part of a packet as a datagram to the `used` bytes of the block.
    pub(crate) fn push(
        &self,
        packet: &Packet,
        part: Range<usize>,
        buffer: &mut UrbBuffer,
        used: usize,
    ) -> usize {
        let Shape { divisor, remainder, has_crc, .. } = self.shape;
        let over = (used + divisor - remainder) % divisor;
        let start = if over == 0 { used } else { used + divisor - over };
        let used = pad(buffer, used, start);
        let used = pieces(packet, part.clone()).fold(used, |used, piece| buffer.write(used, piece));
        if has_crc { buffer.write(used, &crc(pieces(packet, part)).to_le_bytes()) } else { used }
    }

    /// Writes the table if it follows the datagrams, and the padding.
    pub(crate) fn end(&self, buffer: &mut UrbBuffer, mut used: usize) -> usize {
        if self.shape.table_at_end {
            let table = self.table_behind(used);
            used = self.table(buffer, used, table);
        }
        pad(buffer, used, self.bytes)
    }

    /// Writes the table at offset `table`, after the `used` bytes of the block.
    fn table(&self, buffer: &mut UrbBuffer, used: usize, table: usize) -> usize {
        let Shape { format, has_crc, divisor, .. } = self.shape;
        let count = self.lengths.len();
        let signature = self.channel.signature(format, has_crc);
        let mut used = pad(buffer, used, table);
        used = buffer.write(used, &signature);
        used = buffer.write(used, &narrow(self.table_bytes(count)));
        // No next table; reserved fields.
        used = pad(buffer, used, table + format.table_bytes());
        let mut offset = self.first(count);
        for &length in &self.lengths {
            used = self.field(buffer, used, offset);
            used = self.field(buffer, used, length);
            offset += length.next_multiple_of(divisor);
        }
        pad(buffer, used, used + format.entry_bytes())
    }

    fn field(&self, buffer: &mut UrbBuffer, used: usize, value: usize) -> usize {
        match self.shape.format {
            Format::Ntb16 => buffer.write(used, &narrow(value)),
            Format::Ntb32 => buffer.write(used, &u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes()),
        }
    }
}

/// Returns the bytes of a part of a packet, piece by piece.
fn pieces(packet: &Packet, part: Range<usize>) -> impl Iterator<Item = &[u8]> {
    let (mut skipped, mut left) = (part.start, part.len());
    packet.segments().map(move |segment| {
        let start = skipped.min(segment.len());
        let count = left.min(segment.len() - start);
        (skipped, left) = (skipped - start, left - count);
        &segment[start..start + count]
    })
}

fn narrow(value: usize) -> [u8; 2] {
    u16::try_from(value).unwrap_or(u16::MAX).to_le_bytes()
}

fn pad(buffer: &mut UrbBuffer, mut used: usize, end: usize) -> usize {
    while used < end {
        used = buffer.write(used, &ZEROS[..ZEROS.len().min(end - used)]);
    }
    used
}
