//! Writer of blocks to the host, by another method than the driver's: fields are patched once their values
//! are known.

/// Form of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// True for fields of 32 bits.
    pub wide: bool,
    /// True if datagrams have checksums.
    pub crc: bool,
    /// Sequence number.
    pub sequence: u16,
    /// Divisor of the offset of a datagram's payload.
    pub divisor: usize,
    /// Remainder of that offset.
    pub remainder: usize,
    /// Alignment of tables.
    pub alignment: usize,
    /// Maximum number of datagrams of a table; the rest goes to another table.
    pub per_table: usize,
    /// True if tables follow their datagrams.
    pub table_at_end: bool,
    /// True if the length in the header is 0.
    pub open_length: bool,
    /// Number of empty entries at the end of each table, at least one.
    pub empty_entries: usize,
    /// Session of MBIM; `None` for Ethernet frames.
    pub session: Option<u8>,
}

impl Default for Style {
    /// Returns the usual form of Linux's gadget: 16 bits, one table.
    fn default() -> Self {
        Self {
            wide: false,
            crc: false,
            sequence: 0,
            divisor: 4,
            remainder: 0,
            alignment: 4,
            per_table: usize::MAX,
            table_at_end: true,
            open_length: false,
            empty_entries: 1,
            session: None,
        }
    }
}

/// Returns a block with these frames.
pub fn encode(frames: &[Vec<u8>], style: &Style) -> Vec<u8> {
    let mut block = Vec::new();
    block.extend(if style.wide { *b"ncmh" } else { *b"NCMH" });
    block.extend(if style.wide { [16, 0] } else { [12, 0] });
    block.extend(style.sequence.to_le_bytes());
    let length_at = block.len();
    put(&mut block, style.wide, 0);
    let mut link_at = block.len();
    put(&mut block, style.wide, 0);
    for frames in frames.chunks(style.per_table.clamp(1, frames.len().max(1))) {
        link_at = add_table(&mut block, frames, style, link_at);
    }
    if frames.is_empty() {
        add_table(&mut block, &[], style, link_at);
    }
    let length = if style.open_length { 0 } else { block.len() };
    patch(&mut block, style.wide, length_at, length);
    block
}

/// Adds a table with its datagrams, and links it from the field at `link_at`; returns the offset of its own
/// link.
fn add_table(block: &mut Vec<u8>, frames: &[Vec<u8>], style: &Style, link_at: usize) -> usize {
    let mut places = Vec::new();
    if style.table_at_end {
        places = frames.iter().map(|frame| add_datagram(block, frame, style)).collect();
    }
    block.resize(block.len().next_multiple_of(style.alignment.max(4)), 0);
    let table = block.len();
    patch(block, style.wide, link_at, table);
    match (style.session, style.wide) {
        (None, wide) => block.extend(if wide { b"ncm0" } else { b"NCM0" }),
        (Some(session), true) => block.extend([b'i', b'p', b's', session]),
        (Some(session), false) => block.extend([b'I', b'P', b'S', session]),
    }
    if style.crc {
        block[table + 3] = b'1';
    }
    let (head, entry) = if style.wide { (16, 8) } else { (8, 4) };
    // A table has at least one entry and the terminating one.
    let entries = (frames.len() + style.empty_entries.max(1)).max(2);
    let bytes = head + entries * entry;
    block.extend(u16::try_from(bytes).unwrap_or(u16::MAX).to_le_bytes());
    block.resize(table + bytes, 0);
    if !style.table_at_end {
        places = frames.iter().map(|frame| add_datagram(block, frame, style)).collect();
    }
    for (index, (offset, length)) in places.into_iter().enumerate() {
        let at = table + head + index * entry;
        patch(block, style.wide, at, offset);
        patch(block, style.wide, at + entry / 2, length);
    }
    if style.wide { table + 8 } else { table + 6 }
}

/// Adds a datagram with aligned payload; returns its offset and length.
fn add_datagram(block: &mut Vec<u8>, frame: &[u8], style: &Style) -> (usize, usize) {
    let header = if style.session.is_some() { 0 } else { 14 };
    while (block.len() + header) % style.divisor.max(1) != style.remainder {
        block.push(0);
    }
    let offset = block.len();
    block.extend(frame);
    if style.crc {
        block.extend(crc(frame).to_le_bytes());
    }
    (offset, block.len() - offset)
}

/// Returns the CRC-32, computed bit by bit.
pub(super) fn crc(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

fn put(block: &mut Vec<u8>, wide: bool, value: usize) {
    let at = block.len();
    block.resize(at + if wide { 4 } else { 2 }, 0);
    patch(block, wide, at, value);
}

fn patch(block: &mut [u8], wide: bool, at: usize, value: usize) {
    if wide {
        block[at..at + 4].copy_from_slice(&u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes());
    } else {
        block[at..at + 2].copy_from_slice(&u16::try_from(value).unwrap_or(u16::MAX).to_le_bytes());
    }
}
