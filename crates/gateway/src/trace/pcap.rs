//! Packets of files: pcap and pcapng, as tcpdump, wireshark and `polder capture` write them.
//!
//! A file is read as hostile: nothing is believed that has not been compared with what is there.

use super::spec::LONGEST;
use std::fmt;

/// Ethernet, in both formats.
const ETHERNET: u16 = 1;
/// The largest file that is read.
pub const MOST_BYTES: usize = 64 << 20;

/// A frame of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// Its bytes, as far as they were captured.
    pub bytes: &'a [u8],
    /// How many the network had.
    pub whole: usize,
}

impl Captured<'_> {
    /// The frame, with zeros for what was not captured.
    pub fn padded(&self) -> Vec<u8> {
        let mut frame = self.bytes.to_vec();
        frame.resize(self.whole, 0);
        frame
    }
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFile {
    /// Where, in bytes.
    pub at: usize,
    /// What.
    pub message: String,
}

impl fmt::Display for BadFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (at byte {})", self.message, self.at)
    }
}

impl std::error::Error for BadFile {}

fn bad<T>(at: usize, message: impl Into<String>) -> Result<T, BadFile> {
    Err(BadFile { at, message: message.into() })
}

/// The Ethernet frames of a file, in order; those of other link layers are an error.
///
/// # Errors
/// Where the file is none, or is cut off.
pub fn frames(file: &[u8]) -> Result<Vec<Captured<'_>>, BadFile> {
    match file.first_chunk::<4>() {
        Some([0x0a, 0x0d, 0x0d, 0x0a]) => pcapng(file),
        Some([0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1]) => pcap(&Reader { file, is_little: true }),
        Some([0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d]) => pcap(&Reader { file, is_little: false }),
        Some(_) => {
            bad(0, "this is neither pcap nor pcapng: write one with `tcpdump -w` or `polder capture -w`")
        }
        None => bad(0, "the file is empty"),
    }
}

struct Reader<'a> {
    file: &'a [u8],
    is_little: bool,
}

impl<'a> Reader<'a> {
    fn u16(&self, at: usize) -> Result<u16, BadFile> {
        let Some(bytes) = self.file.get(at..).and_then(|bytes| bytes.first_chunk()) else {
            return bad(at, "the file is cut off");
        };
        Ok(if self.is_little { u16::from_le_bytes(*bytes) } else { u16::from_be_bytes(*bytes) })
    }

    fn u32(&self, at: usize) -> Result<u32, BadFile> {
        let Some(bytes) = self.file.get(at..).and_then(|bytes| bytes.first_chunk()) else {
            return bad(at, "the file is cut off");
        };
        Ok(if self.is_little { u32::from_le_bytes(*bytes) } else { u32::from_be_bytes(*bytes) })
    }

    /// The frame of so many bytes, of which the network had `whole`.
    fn frame(&self, at: usize, length: u32, whole: u32) -> Result<Captured<'a>, BadFile> {
        let (length, whole) = (length as usize, whole.max(length) as usize);
        if whole > LONGEST {
            return bad(at, format!("a packet of {whole} bytes; at most {LONGEST} can be traced"));
        }
        match self.file.get(at..).and_then(|bytes| bytes.get(..length)) {
            Some(bytes) => Ok(Captured { bytes, whole }),
            None => bad(at, "the file is cut off in a packet"),
        }
    }
}

fn ethernet(at: usize, link: u16) -> Result<(), BadFile> {
    if link == ETHERNET { Ok(()) } else { bad(at, format!("packets of link type {link}, not of Ethernet")) }
}

fn pcap<'a>(reader: &Reader<'a>) -> Result<Vec<Captured<'a>>, BadFile> {
    const HEADER: usize = 24;
    const RECORD: usize = 16;
    ethernet(20, u16::try_from(reader.u32(20)? & 0xffff).unwrap_or_default())?;
    let (mut frames, mut at) = (Vec::new(), HEADER);
    while at < reader.file.len() {
        let (length, whole) = (reader.u32(at + 8)?, reader.u32(at + 12)?);
        let frame = reader.frame(at + RECORD, length, whole)?;
        at += RECORD + frame.bytes.len();
        frames.push(frame);
    }
    Ok(frames)
}

/// Blocks of pcapng, as far as packets need them (draft-ietf-opsawg-pcapng).
fn pcapng(file: &[u8]) -> Result<Vec<Captured<'_>>, BadFile> {
    const SECTION: u32 = 0x0a0d_0d0a;
    const INTERFACE: u32 = 1;
    const SIMPLE: u32 = 3;
    const ENHANCED: u32 = 6;
    let (mut frames, mut at) = (Vec::new(), 0);
    let mut reader = Reader { file, is_little: true };
    let mut links = Vec::<u16>::new();
    while at < file.len() {
        if reader.u32(at)? == SECTION {
            // The same four bytes in both orders, and then which order it is.
            reader.is_little = match file.get(at + 8..).and_then(|bytes| bytes.first_chunk::<4>()) {
                Some([0x4d, 0x3c, 0x2b, 0x1a]) => true,
                Some([0x1a, 0x2b, 0x3c, 0x4d]) => false,
                Some(_) | None => return bad(at + 8, "a section that does not say its byte order"),
            };
            links.clear();
        }
        let (kind, length) = (reader.u32(at)?, reader.u32(at + 4)? as usize);
        if length < 12 || length % 4 != 0 || file.len() - at < length {
            return bad(at + 4, format!("a block of {length} bytes, which cannot be or is cut off"));
        }
        match kind {
            INTERFACE => links.push(reader.u16(at + 8)?),
            ENHANCED => {
                let interface = reader.u32(at + 8)? as usize;
                let Some(&link) = links.get(interface) else {
                    return bad(at + 8, format!("a packet of interface {interface}, which there is not"));
                };
                ethernet(at + 8, link)?;
                let frame = reader.frame(at + 28, reader.u32(at + 20)?, reader.u32(at + 24)?)?;
                if 32 + frame.bytes.len() > length {
                    return bad(at + 20, "a packet that is longer than its block");
                }
                frames.push(frame);
            }
            SIMPLE => {
                let Some(&link) = links.first() else {
                    return bad(at, "a packet of no interface");
                };
                ethernet(at, link)?;
                // What was captured is said by the interface's snap length alone; the block is as long as that.
                let whole = reader.u32(at + 8)?;
                let room = u32::try_from(length - 12).unwrap_or(u32::MAX).saturating_sub(4);
                frames.push(reader.frame(at + 12, whole.min(room), whole)?);
            }
            _ => {}
        }
        at += length;
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pcap_of(frames: &[&[u8]]) -> Vec<u8> {
        let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        file.extend([0; 8]);
        file.extend([65_535_u32, 1].map(u32::to_le_bytes).as_flattened());
        for frame in frames {
            let length = u32::try_from(frame.len()).expect("short");
            file.extend([0, 0, length, length].map(u32::to_le_bytes).as_flattened());
            file.extend_from_slice(frame);
        }
        file
    }

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let padded = body.len().next_multiple_of(4);
        let length = u32::try_from(12 + padded).expect("short").to_be_bytes();
        let mut block = [&kind.to_be_bytes()[..], &length, body].concat();
        block.resize(8 + padded, 0);
        block.extend(length);
        block
    }

    fn pcapng_of(frames: &[&[u8]]) -> Vec<u8> {
        let mut file = block(0x0a0d_0d0a, &[&[0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0][..], &[0xff; 8]].concat());
        file.extend(block(1, &[0, 1, 0, 0, 0, 0, 0, 0]));
        for frame in frames {
            let length = u32::try_from(frame.len()).expect("short");
            let head = [0, 0, 0, length, length].map(u32::to_be_bytes);
            file.extend(block(6, &[head.as_flattened(), frame].concat()));
        }
        file
    }

    #[test]
    fn both_formats_are_read() {
        let wanted: [&[u8]; 3] = [&[1; 60], &[2; 61], &[3; 14]];
        let all = wanted.map(|bytes| Captured { bytes, whole: bytes.len() });
        assert_eq!(frames(&pcap_of(&wanted)).expect("pcap"), all);
        assert_eq!(frames(&pcapng_of(&wanted)).expect("pcapng"), all);
    }

    /// A snap length leaves the headers, which decide; the rest is taken to be zeros.
    #[test]
    fn frames_of_a_capture_with_a_snap_length() {
        let mut file = pcap_of(&[&[1; 60]]);
        file[36] = 200;
        let found = frames(&file).expect("a part of a packet");
        assert_eq!(found, [Captured { bytes: &[1; 60], whole: 200 }]);
        assert_eq!(found[0].padded(), [&[1; 60][..], &[0; 140]].concat());
        let simple = [
            block(0x0a0d_0d0a, &[&[0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0][..], &[0xff; 8]].concat()),
            block(1, &[0, 1, 0, 0, 0, 0, 0, 64]),
            block(3, &[&[0, 0, 0, 200][..], &[1; 64]].concat()),
        ]
        .concat();
        assert_eq!(frames(&simple).expect("a simple block"), [Captured { bytes: &[1; 64], whole: 200 }]);
        file[38] = 9;
        assert!(frames(&file).expect_err("too long").to_string().contains("at most"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |file: &[u8]| frames(file).expect_err("broken").to_string();
        assert!(error(b"").contains("empty") && error(b"hello").contains("neither"));
        let mut file = pcap_of(&[&[1; 60]]);
        file.truncate(90);
        assert!(error(&file).contains("cut off"));
        let mut file = pcap_of(&[]);
        file[20] = 113;
        assert!(error(&file).contains("link type 113"));
        let mut file = pcapng_of(&[&[1; 60]]);
        let place = file.len() - 4 - 60 - 20;
        file[place + 3] = 9;
        assert!(error(&file).contains("interface 9"), "{}", error(&file));
    }

    proptest! {
        /// Bytes of a file that somebody has changed are an error or frames, and nothing else.
        #[test]
        fn hostile_files(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12), ng: bool, cut: prop::sample::Index) {
            let wanted: [&[u8]; 3] = [&[1; 60], &[2; 61], &[3; 14]];
            let mut file = if ng { pcapng_of(&wanted) } else { pcap_of(&wanted) };
            for (place, byte) in changes {
                let place = place.index(file.len());
                file[place] = byte;
            }
            file.truncate(cut.index(file.len()) + 1);
            if let Ok(found) = frames(&file) {
                prop_assert!(found.iter().map(|frame| frame.bytes.len()).sum::<usize>() <= file.len());
            }
        }
    }
}
