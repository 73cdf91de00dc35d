//! Parser of a received block.
//!
//! A block may contain any bytes, so every offset and length is checked before use, and parsing ends: the
//! tables are counted, and a block's datagrams have at most the bytes of the block, so neither a loop of
//! tables nor overlapping entries yield more than was received.

use super::{CRC_BYTES, Channel, Format, Signatures, crc};

/// Maximum number of tables of a block; more are taken for a loop.
const MOST_TABLES: u8 = 64;

/// Reason why the rest of a block is not parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// Shorter than its header, or with another signature or header length.
    #[error("the transfer block (NTB) has no valid header")]
    Header,
    /// A block longer than its transfer.
    #[error("the transfer block (NTB) is longer than its USB transfer")]
    BlockLength,
    /// A table outside of the block.
    #[error("a datagram table is outside of the transfer block (NTB)")]
    TablePlace,
    /// A table with another signature.
    #[error("a datagram table of the transfer block (NTB) has an unknown signature")]
    TableSignature,
    /// A table with an invalid length.
    #[error("a datagram table of the transfer block (NTB) has an impossible length")]
    TableLength,
    /// Tables in a loop.
    #[error("the datagram tables of the transfer block (NTB) form a loop")]
    TableLoop,
    /// A datagram outside of the block.
    #[error("a datagram is outside of the transfer block (NTB)")]
    DatagramPlace,
    /// A datagram shorter than its header, or than its checksum.
    #[error("a datagram of the transfer block (NTB) is shorter than its header")]
    DatagramShort,
    /// Datagrams with more bytes than the block has.
    #[error("datagrams of the transfer block (NTB) overlap")]
    Overlap,
}

impl Fault {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::Header,
        Self::BlockLength,
        Self::TablePlace,
        Self::TableSignature,
        Self::TableLength,
        Self::TableLoop,
        Self::DatagramPlace,
        Self::DatagramShort,
        Self::Overlap,
    ];

    /// Returns the name for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::BlockLength => "block-length",
            Self::TablePlace => "table-place",
            Self::TableSignature => "table-signature",
            Self::TableLength => "table-length",
            Self::TableLoop => "table-loop",
            Self::DatagramPlace => "datagram-place",
            Self::DatagramShort => "datagram-short",
            Self::Overlap => "overlap",
        }
    }
}

/// A datagram in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Its bytes, without the checksum.
    pub bytes: &'a [u8],
    /// True if its checksum is wrong.
    pub is_damaged: bool,
    /// Kind of its table.
    pub channel: Channel,
}

/// Parser of one device's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Width of the fields.
    pub format: Format,
    /// Signatures of tables.
    pub signatures: Signatures,
    /// Minimum length of a datagram, without checksum.
    pub shortest: usize,
}

/// A position in a block: at an entry of a table, or at the end.
///
/// It holds no bytes, so parsing can pause within a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    state: State,
    /// Bytes of the block.
    block: usize,
    /// Bytes of the datagrams so far.
    taken: usize,
    tables: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Start,
    /// In a table.
    Entry {
        at: usize,
        end: usize,
        next_table: usize,
        has_crc: bool,
        channel: Channel,
    },
    End,
}

impl Cursor {
    /// True at the end of a transfer.
    pub(crate) const fn is_at_end(&self) -> bool {
        matches!(self.state, State::End)
    }

    /// Moves to the end of a transfer.
    pub(crate) const fn finish(&mut self) {
        self.state = State::End;
    }

    /// Returns the number of bytes of `transfer` that belong to no datagram so far: those lost if parsing
    /// stops.
    pub const fn left(&self, transfer: &[u8]) -> usize {
        match self.state {
            State::Start => transfer.len(),
            State::Entry { .. } | State::End => self.block.saturating_sub(self.taken),
        }
    }
}

impl Block {
    /// Returns the next datagram of `transfer`; `None` at its end.
    ///
    /// # Errors
    /// [`Fault`]: the rest of the block is invalid, and the cursor is at its end.
    pub fn next<'a>(&self, cursor: &mut Cursor, transfer: &'a [u8]) -> Option<Result<Datagram<'a>, Fault>> {
        if transfer.is_empty() {
            return None;
        }
        let result = self.read(cursor, transfer);
        if result.is_err() {
            cursor.state = State::End;
        }
        result.transpose()
    }

    fn read<'a>(&self, cursor: &mut Cursor, transfer: &'a [u8]) -> Result<Option<Datagram<'a>>, Fault> {
        if cursor.state == State::Start {
            self.begin(cursor, transfer)?;
        }
        let block = &transfer[..cursor.block.min(transfer.len())];
        while let State::Entry { at, end, next_table, has_crc, channel } = cursor.state {
            if let Some(place) = self.entry(block, at, end) {
                let at = at + self.format.entry_bytes();
                cursor.state = State::Entry { at, end, next_table, has_crc, channel };
                return self.datagram(cursor, block, place, has_crc, channel).map(Some);
            }
            cursor.state = State::End;
            if next_table != 0 {
                self.table(cursor, block, next_table)?;
            }
        }
        Ok(None)
    }

    /// Parses the header.
    fn begin(&self, cursor: &mut Cursor, transfer: &[u8]) -> Result<(), Fault> {
        let format = self.format;
        let header = transfer.get(..format.header_bytes()).ok_or(Fault::Header)?;
        let is_ours = header[..4] == format.signature()
            && usize::from(u16::from_le_bytes([header[4], header[5]])) == format.header_bytes();
        if !is_ours {
            return Err(Fault::Header);
        }
        let (length_at, index_at) = match format {
            Format::Ntb16 => (8, 10),
            Format::Ntb32 => (8, 12),
        };
        let length = format.field(header, length_at).ok_or(Fault::Header)?;
        let index = format.field(header, index_at).ok_or(Fault::Header)?;
        if length > transfer.len() {
            return Err(Fault::BlockLength);
        }
        // 0: the block ends with its transfer.
        cursor.block = if length == 0 { transfer.len() } else { length };
        self.table(cursor, &transfer[..cursor.block], index)
    }

    /// Starts the table at `index`.
    fn table(&self, cursor: &mut Cursor, block: &[u8], index: usize) -> Result<(), Fault> {
        let format = self.format;
        cursor.tables += 1;
        if cursor.tables > MOST_TABLES {
            return Err(Fault::TableLoop);
        }
        if index < format.header_bytes() {
            return Err(Fault::TablePlace);
        }
        let rest = block.get(index..).ok_or(Fault::TablePlace)?;
        let head = rest.get(..format.table_bytes()).ok_or(Fault::TablePlace)?;
        let signature = [head[0], head[1], head[2], head[3]];
        let (channel, has_crc) = self.signatures.read(format, signature).ok_or(Fault::TableSignature)?;
        let length = usize::from(u16::from_le_bytes([head[4], head[5]]));
        // One entry and the terminating one.
        if length < format.table_bytes() + 2 * format.entry_bytes() || length > rest.len() {
            return Err(Fault::TableLength);
        }
        let next_at = match format {
            Format::Ntb16 => 6,
            Format::Ntb32 => 8,
        };
        let next_table = format.field(head, next_at).ok_or(Fault::TablePlace)?;
        let at = index + format.table_bytes();
        cursor.state = State::Entry { at, end: index + length, next_table, has_crc, channel };
        Ok(())
    }

    /// Returns offset and length of the entry at `at`; `None` at the end of its table.
    fn entry(&self, block: &[u8], at: usize, end: usize) -> Option<(usize, usize)> {
        let entry = block.get(at..end)?;
        let offset = self.format.field(entry, 0)?;
        let length = self.format.field(entry, self.format.entry_bytes() / 2)?;
        (offset != 0 && length != 0).then_some((offset, length))
    }

    fn datagram<'a>(
        &self,
        cursor: &mut Cursor,
        block: &'a [u8],
        (offset, length): (usize, usize),
        has_crc: bool,
        channel: Channel,
    ) -> Result<Datagram<'a>, Fault> {
        if offset < self.format.header_bytes() {
            return Err(Fault::DatagramPlace);
        }
        let whole = block.get(offset..).and_then(|rest| rest.get(..length)).ok_or(Fault::DatagramPlace)?;
        cursor.taken += length;
        if cursor.taken > block.len() {
            cursor.taken = block.len();
            return Err(Fault::Overlap);
        }
        let check = if has_crc { CRC_BYTES } else { 0 };
        if length < self.shortest + check {
            return Err(Fault::DatagramShort);
        }
        let (bytes, check) = whole.split_at(length - check);
        let is_damaged = has_crc && check != crc(core::iter::once(bytes)).to_le_bytes();
        Ok(Datagram { bytes, is_damaged, channel })
    }
}
