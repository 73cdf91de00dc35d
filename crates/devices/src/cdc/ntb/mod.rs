//! NCM transfer blocks (NTB): many datagrams in one bulk transfer (NCM 1.0 errata 1, section 3).
//!
//! A header (NTH) points at a table (NDP) of offsets and lengths, and that one at the next table, if any.
//! There are two widths of the fields, 16 and 32 bits.
//! MBIM has the same blocks with other signatures in its tables, and IP packets in place of frames: nothing
//! here looks into a datagram.
//!
//! | field | NTB16 | NTB32 |
//! |---|---|---|
//! | signature of the header | `NCMH` | `ncmh` |
//! | bytes of the header | 12 | 16 |
//! | bytes of a table without entries | 8 | 16 |
//! | bytes of an entry | 4 | 8 |

mod read;
mod write;

pub use read::{Block, Cursor, Datagram, Fault};
pub(crate) use write::{Packer, Shape};

/// Bytes of a checksum behind a datagram.
pub const CRC_BYTES: usize = 4;
/// Smallest alignment and divisor (NCM 1.0, table 6-3).
pub const SMALLEST_ALIGNMENT: u16 = 4;

/// Width of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// 16 bits.
    #[default]
    Ntb16,
    /// 32 bits.
    Ntb32,
}

impl Format {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ntb16 => "NTB16",
            Self::Ntb32 => "NTB32",
        }
    }

    /// Signature of the header.
    pub const fn signature(self) -> [u8; 4] {
        match self {
            Self::Ntb16 => *b"NCMH",
            Self::Ntb32 => *b"ncmh",
        }
    }

    /// Bytes of the header.
    pub const fn header_bytes(self) -> usize {
        match self {
            Self::Ntb16 => 12,
            Self::Ntb32 => 16,
        }
    }

    /// Bytes of a table in front of its entries.
    pub const fn table_bytes(self) -> usize {
        match self {
            Self::Ntb16 => 8,
            Self::Ntb32 => 16,
        }
    }

    /// Bytes of an entry: offset and length.
    pub const fn entry_bytes(self) -> usize {
        match self {
            Self::Ntb16 => 4,
            Self::Ntb32 => 8,
        }
    }

    /// Largest block.
    pub const fn largest(self) -> usize {
        match self {
            Self::Ntb16 => u16::MAX as usize,
            Self::Ntb32 => u32::MAX as usize,
        }
    }

    /// The field at `at`, which must be within `bytes`.
    fn field(self, bytes: &[u8], at: usize) -> Option<usize> {
        match self {
            Self::Ntb16 => bytes.get(at..)?.first_chunk().map(|word| usize::from(u16::from_le_bytes(*word))),
            Self::Ntb32 => bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word) as usize),
        }
    }
}

/// Signatures of tables: of datagrams as they are, and of datagrams with a checksum behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signatures {
    /// Without checksums.
    pub plain: [u8; 4],
    /// With checksums, if the class has them.
    pub with_crc: Option<[u8; 4]>,
}

impl Signatures {
    /// Signatures of NCM, for Ethernet frames.
    pub const fn ncm(format: Format) -> Self {
        match format {
            Format::Ntb16 => Self { plain: *b"NCM0", with_crc: Some(*b"NCM1") },
            Format::Ntb32 => Self { plain: *b"ncm0", with_crc: Some(*b"ncm1") },
        }
    }
}

/// CRC-32 of IEEE 802.3 over the pieces of a datagram.
pub fn crc<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> u32 {
    let step = |crc: u32, byte: &u8| {
        let [low, ..] = (crc ^ u32::from(*byte)).to_le_bytes();
        crc >> 8 ^ CRC_TABLE[usize::from(low)]
    };
    !pieces.fold(u32::MAX, |crc, piece| piece.iter().fold(crc, step))
}

const CRC_TABLE: [u32; 256] = crc_table();

#[expect(clippy::cast_possible_truncation, reason = "the index of 256 entries")]
const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_ethernet() {
        assert_eq!(crc([&b"1234"[..], b"56789"].into_iter()), 0xcbf4_3926);
    }
}
