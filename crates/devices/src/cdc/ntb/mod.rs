//! NCM transfer blocks (NTB): many datagrams in one bulk transfer (NCM 1.0 errata 1, section 3).
//!
//! A header (NTH) points to a table (NDP) of offsets and lengths, which points to the next table, if any. The
//! fields have a width of 16 or 32 bits. MBIM has the same blocks with other signatures in its tables, and IP
//! packets instead of frames: the code here never reads the content of a datagram.
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

/// Bytes of a checksum after a datagram.
pub const CRC_BYTES: usize = 4;
/// Smallest valid alignment and divisor (NCM 1.0, table 6-3).
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
    /// Returns the name for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ntb16 => "NTB16",
            Self::Ntb32 => "NTB32",
        }
    }

    /// Returns the signature of the header.
    pub const fn signature(self) -> [u8; 4] {
        match self {
            Self::Ntb16 => *b"NCMH",
            Self::Ntb32 => *b"ncmh",
        }
    }

    /// Returns the bytes of the header.
    pub const fn header_bytes(self) -> usize {
        match self {
            Self::Ntb16 => 12,
            Self::Ntb32 => 16,
        }
    }

    /// Returns the bytes of a table before its entries.
    pub const fn table_bytes(self) -> usize {
        match self {
            Self::Ntb16 => 8,
            Self::Ntb32 => 16,
        }
    }

    /// Returns the bytes of an entry: offset and length.
    pub const fn entry_bytes(self) -> usize {
        match self {
            Self::Ntb16 => 4,
            Self::Ntb32 => 8,
        }
    }

    /// Returns the maximum block size in bytes.
    pub const fn largest(self) -> usize {
        match self {
            Self::Ntb16 => u16::MAX as usize,
            Self::Ntb32 => u32::MAX as usize,
        }
    }

    /// Returns the field at `at`; `None` if it is outside `bytes`.
    fn field(self, bytes: &[u8], at: usize) -> Option<usize> {
        match self {
            Self::Ntb16 => bytes.get(at..)?.first_chunk().map(|word| usize::from(u16::from_le_bytes(*word))),
            Self::Ntb32 => bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word) as usize),
        }
    }
}

/// Signatures of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signatures {
    /// Ethernet frames, without or with a checksum (NCM 1.0, table 3-3).
    Ncm,
    /// IP packets of a session, or data of a device service (MBIM 1.0, 7).
    Mbim,
}

/// Kind of a table's datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channel {
    /// Ethernet frames.
    #[default]
    Frames,
    /// IP packets of the session with that number.
    Session(u8),
    /// Data of the device service stream with that number.
    Stream(u8),
}

impl Signatures {
    /// Returns the kind of a table's datagrams by its signature, and true if they have checksums; `None` for
    /// an unknown signature.
    pub fn read(self, format: Format, signature: [u8; 4]) -> Option<(Channel, bool)> {
        let known = |name: &[u8; 3]| {
            let name = match format {
                Format::Ntb16 => *name,
                Format::Ntb32 => name.map(|letter| letter.to_ascii_lowercase()),
            };
            signature[..3] == name
        };
        match (self, signature[3]) {
            (Self::Ncm, b'0') if known(b"NCM") => Some((Channel::Frames, false)),
            (Self::Ncm, b'1') if known(b"NCM") => Some((Channel::Frames, true)),
            (Self::Mbim, number) if known(b"IPS") => Some((Channel::Session(number), false)),
            (Self::Mbim, number) if known(b"DSS") => Some((Channel::Stream(number), false)),
            (Self::Ncm | Self::Mbim, _) => None,
        }
    }
}

impl Channel {
    /// Returns the signature of a table with such datagrams.
    pub fn signature(self, format: Format, has_crc: bool) -> [u8; 4] {
        let [a, b, c, last] = match self {
            Self::Frames => [b'N', b'C', b'M', if has_crc { b'1' } else { b'0' }],
            Self::Session(number) => [b'I', b'P', b'S', number],
            Self::Stream(number) => [b'D', b'S', b'S', number],
        };
        let name = match format {
            Format::Ntb16 => [a, b, c],
            Format::Ntb32 => [a, b, c].map(|letter| letter.to_ascii_lowercase()),
        };
        [name[0], name[1], name[2], last]
    }
}

/// Returns the CRC-32 of IEEE 802.3 over the pieces of a datagram.
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
    fn signatures_are_read_as_they_are_written() {
        for format in [Format::Ntb16, Format::Ntb32] {
            for channel in [Channel::Session(0), Channel::Session(255), Channel::Stream(7)] {
                let signature = channel.signature(format, false);
                assert_eq!(Signatures::Mbim.read(format, signature), Some((channel, false)));
                assert_eq!(Signatures::Ncm.read(format, signature), None);
            }
            for has_crc in [false, true] {
                let signature = Channel::Frames.signature(format, has_crc);
                assert_eq!(Signatures::Ncm.read(format, signature), Some((Channel::Frames, has_crc)));
                assert_eq!(Signatures::Mbim.read(format, signature), None);
            }
        }
        assert_eq!(Channel::Session(3).signature(Format::Ntb32, false), *b"ips\x03");
    }

    #[test]
    fn the_checksum_is_that_of_ethernet() {
        assert_eq!(crc([&b"1234"[..], b"56789"].into_iter()), 0xcbf4_3926);
    }
}
