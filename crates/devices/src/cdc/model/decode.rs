//! Strict parser of blocks from the host: every deviation from the specification or from the device's
//! parameters is reported.

use super::super::request::NtbParameters;
use super::encode::crc;

/// Mistake of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Signature or length of the header.
    Header,
    /// The sequence number is not the next one.
    Sequence,
    /// The block is longer than the transfer, or than the device accepts.
    BlockLength,
    /// Offset, signature or length of a table.
    Table,
    /// Offset or length of a datagram.
    Datagram,
    /// The offset of a datagram is not aligned as the device requires.
    Alignment,
    /// More datagrams than the device accepts.
    TooMany,
    /// A wrong checksum.
    Crc,
    /// A table has no terminating entry.
    NoEnd,
    /// A frame longer than the device accepts.
    DatagramLong,
    /// A transfer that ends with a full packet and is not terminated.
    NoShortPacket,
    /// A packet of a session that is not active.
    Session(u8),
    /// A request at the wrong time or with a wrong value.
    Request(u8),
}

/// Expected form of blocks from the host.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Parameters of the device.
    pub parameters: &'a NtbParameters,
    /// True for fields of 32 bits.
    pub wide: bool,
    /// True if frames have checksums.
    pub has_crc: bool,
    /// True if datagrams are IP packets of a session.
    pub is_mbim: bool,
}

/// Returns the frames of a block, or its session and packets; `expected` is the expected sequence number.
///
/// # Errors
/// The first [`Violation`].
pub fn decode(
    block: &[u8],
    shape: &Expected<'_>,
    expected: &mut Option<u16>,
) -> Result<(u8, Vec<Vec<u8>>), Violation> {
    let &Expected { parameters, wide, has_crc, is_mbim } = shape;
    let word = |at: usize| {
        let bytes = block.get(at..at + if wide { 4 } else { 2 })?;
        Some(bytes.iter().rev().fold(0_usize, |value, &byte| value << 8 | usize::from(byte)))
    };
    let half = |at: usize| block.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    let (signature, head): (&[u8], u16) = if wide { (b"ncmh", 16) } else { (b"NCMH", 12) };
    if block.get(..4) != Some(signature) || half(4) != Some(head) {
        return Err(Violation::Header);
    }
    let number = half(6).ok_or(Violation::Header)?;
    if expected.replace(number.wrapping_add(1)).is_some_and(|expected| expected != number) {
        return Err(Violation::Sequence);
    }
    if word(8) != Some(block.len()) || block.len() > parameters.out_bytes as usize {
        return Err(Violation::BlockLength);
    }
    let table = word(if wide { 12 } else { 10 }).ok_or(Violation::Header)?;
    let (name, table_head, entry): (&[u8], usize, usize) = match (wide, has_crc) {
        (false, _) if is_mbim => (b"IPS", 8, 4),
        (true, _) if is_mbim => (b"ips", 16, 8),
        (false, false) => (b"NCM0", 8, 4),
        (false, true) => (b"NCM1", 8, 4),
        (true, false) => (b"ncm0", 16, 8),
        (true, true) => (b"ncm1", 16, 8),
    };
    let length = usize::from(half(table + 4).ok_or(Violation::Table)?);
    let session = if is_mbim { block.get(table + 3).copied().unwrap_or(0) } else { 0 };
    let is_good = block.get(table..table + name.len()) == Some(name)
        && table >= usize::from(head)
        && table.is_multiple_of(usize::from(parameters.out_alignment.max(4)))
        && length >= table_head + 2 * entry
        && length.is_multiple_of(entry)
        && table + length <= block.len();
    if !is_good {
        return Err(Violation::Table);
    }
    // The driver writes one table.
    if word(table + if wide { 8 } else { 6 }) != Some(0) {
        return Err(Violation::Table);
    }
    let mut frames = Vec::new();
    for at in (table + table_head..table + length).step_by(entry) {
        let (offset, bytes) = (word(at).unwrap_or(0), word(at + entry / 2).unwrap_or(0));
        if (offset, bytes) == (0, 0) {
            let most = usize::from(parameters.out_datagrams);
            return if most > 0 && frames.len() > most {
                Err(Violation::TooMany)
            } else {
                Ok((session, frames))
            };
        }
        frames.push(datagram(block, (offset, bytes), usize::from(head), shape)?);
    }
    Err(Violation::NoEnd)
}

fn datagram(
    block: &[u8],
    (offset, bytes): (usize, usize),
    head: usize,
    &Expected { parameters, has_crc, is_mbim, .. }: &Expected<'_>,
) -> Result<Vec<u8>, Violation> {
    let whole = block.get(offset..offset + bytes).ok_or(Violation::Datagram)?;
    // The remainder applies to the bytes after an Ethernet header.
    let header = if is_mbim { 0 } else { 14 };
    if offset < head || bytes < header.max(1) {
        return Err(Violation::Datagram);
    }
    let divisor = usize::from(parameters.out_divisor).max(1);
    if (offset + header) % divisor != usize::from(parameters.out_remainder) {
        return Err(Violation::Alignment);
    }
    if !has_crc {
        return Ok(whole.to_vec());
    }
    let (frame, check) = whole.split_at(bytes - 4);
    if check == crc(frame).to_le_bytes() { Ok(frame.to_vec()) } else { Err(Violation::Crc) }
}
