//! Packets in pcap and pcapng files, as tcpdump, wireshark and `polder capture` write them.
//!
//! Files are untrusted: every length is checked against the file's bytes.

use super::spec::LONGEST;
use pcap_parser::{
    Block, EnhancedPacketBlock, LegacyPcapBlock, Linktype, PcapError, SimplePacketBlock, nom, parse_block_be,
    parse_block_le, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_header,
};
use std::fmt;

/// Maximum length of a file, in bytes.
pub const MOST_BYTES: usize = 64 << 20;

/// A frame in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// Captured bytes.
    pub bytes: &'a [u8],
    /// Length of the packet on the network, in bytes.
    pub whole: usize,
}

impl Captured<'_> {
    /// The frame, with zeros for bytes that were not captured.
    pub fn padded(&self) -> Vec<u8> {
        let mut frame = self.bytes.to_vec();
        frame.resize(self.whole, 0);
        frame
    }
}

/// An error in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFile {
    /// Offset of the error in bytes.
    pub at: usize,
    /// Description of the error.
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

/// Ethernet frames of a file, in order.
///
/// # Errors
/// When the file is no capture file, is truncated, or has another link layer.
pub fn frames(file: &[u8]) -> Result<Vec<Captured<'_>>, BadFile> {
    match file.first_chunk::<4>() {
        Some([0x0a, 0x0d, 0x0d, 0x0a]) => pcapng(file),
        Some(
            [0xd4, 0xc3, 0xb2, 0xa1]
            | [0x4d, 0x3c, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0xc3, 0xd4]
            | [0xa1, 0xb2, 0x3c, 0x4d],
        ) => pcap(file),
        Some(_) => {
            bad(0, "the file is neither pcap nor pcapng: create one with `tcpdump -w` or `polder capture -w`")
        }
        None => bad(0, "the file is empty"),
    }
}

fn pcap(file: &[u8]) -> Result<Vec<Captured<'_>>, BadFile> {
    let (mut rest, header) = parse_pcap_header(file).or_else(|error| broken(0, &error))?;
    // The upper half has flags about the frame check sequence.
    ethernet(20, Linktype(header.network.0 & 0xffff))?;
    let parse = if header.is_bigendian() { parse_pcap_frame_be } else { parse_pcap_frame };
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let at = file.len() - rest.len();
        let (after, LegacyPcapBlock { data, origlen, .. }) =
            parse(rest).or_else(|error| broken(at, &error))?;
        frames.push(frame(at, data, origlen)?);
        rest = after;
    }
    Ok(frames)
}

/// Parses pcapng (draft-ietf-opsawg-pcapng).
fn pcapng(file: &[u8]) -> Result<Vec<Captured<'_>>, BadFile> {
    let (mut frames, mut links, mut rest) = (Vec::new(), Vec::new(), file);
    let mut parse: fn(&[u8]) -> Parsed<'_> = parse_block_le;
    while !rest.is_empty() {
        let at = file.len() - rest.len();
        let (after, block) = parse(rest).or_else(|error| broken(at, &error))?;
        match block {
            Block::SectionHeader(section) => {
                parse = if section.big_endian() { parse_block_be } else { parse_block_le };
                links.clear();
            }
            Block::InterfaceDescription(interface) => links.push(interface.linktype),
            Block::EnhancedPacket(EnhancedPacketBlock { if_id, caplen, origlen, data, .. }) => {
                ethernet(at, link(at, &links, if_id)?)?;
                frames.push(frame(at, &data[..data.len().min(caplen as usize)], origlen)?);
            }
            // The block has no captured length: the interface's snap length limits it.
            Block::SimplePacket(SimplePacketBlock { origlen, data, .. }) => {
                ethernet(at, link(at, &links, 0)?)?;
                frames.push(frame(at, &data[..data.len().min(origlen as usize)], origlen)?);
            }
            Block::NameResolution(_)
            | Block::InterfaceStatistics(_)
            | Block::SystemdJournalExport(_)
            | Block::DecryptionSecrets(_)
            | Block::ProcessInformation(_)
            | Block::Custom(_)
            | Block::Unknown(_) => {}
        }
        rest = after;
    }
    Ok(frames)
}

fn link(at: usize, links: &[Linktype], interface: u32) -> Result<Linktype, BadFile> {
    match links.get(interface as usize) {
        Some(&link) => Ok(link),
        None => bad(at, format!("a packet refers to interface {interface}, which the file does not define")),
    }
}

fn ethernet(at: usize, link: Linktype) -> Result<(), BadFile> {
    if link == Linktype::ETHERNET {
        Ok(())
    } else {
        bad(at, format!("packets of link type {}, not of Ethernet", link.0))
    }
}

/// A captured frame whose length on the network was `whole`.
fn frame(at: usize, bytes: &[u8], whole: u32) -> Result<Captured<'_>, BadFile> {
    let whole = bytes.len().max(whole as usize);
    if whole > LONGEST {
        return bad(at, format!("a packet of {whole} bytes; at most {LONGEST} can be traced"));
    }
    Ok(Captured { bytes, whole })
}

type Error<'a> = nom::Err<PcapError<&'a [u8]>>;
type Parsed<'a> = Result<(&'a [u8], Block<'a>), Error<'a>>;

fn broken<T>(at: usize, error: &Error<'_>) -> Result<T, BadFile> {
    match error {
        nom::Err::Incomplete(_) => bad(at, "the file is truncated"),
        nom::Err::Error(_) | nom::Err::Failure(_) => bad(at, "a block with an impossible length"),
    }
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

    /// Files of a machine of the other byte order, and with nanoseconds.
    #[test]
    fn both_byte_orders_and_both_resolutions() {
        let little = pcap_of(&[&[1; 60], &[2; 61]]);
        let mut big = little.clone();
        let (head, packet) = ([0, 16, 20], [24, 28, 32, 36]);
        for at in head.into_iter().chain(packet).chain(packet.map(|at| at + 16 + 60)) {
            big[at..at + 4].reverse();
        }
        for mut file in [little, big] {
            let found = frames(&file).expect("microseconds").len();
            let nanoseconds =
                if file[0] == 0xa1 { [0xa1, 0xb2, 0x3c, 0x4d] } else { [0x4d, 0x3c, 0xb2, 0xa1] };
            file[..4].copy_from_slice(&nanoseconds);
            assert_eq!((found, frames(&file).expect("nanoseconds").len()), (2, 2));
        }
    }

    /// A section may follow another, of the other byte order, and has interfaces of its own.
    #[test]
    fn sections_have_byte_orders_and_interfaces_of_their_own() {
        let big = pcapng_of(&[&[1; 60]]);
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let section = words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
        let interface = words(&[1, 20, 1, 0, 20]);
        let packet = [words(&[6, 32 + 16, 0, 0, 0, 14, 14]), vec![7; 14], vec![0; 2], words(&[48])].concat();
        let both = [&big[..], &section, &interface, &packet].concat();
        assert_eq!(frames(&both).expect("two sections").len(), 2);
        let error = frames(&[&big[..], &section, &packet].concat()).expect_err("no interface");
        assert!(error.to_string().contains("interface 0"), "{error}");
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
        assert!(error(&file).contains("truncated"));
        let mut file = pcap_of(&[]);
        file[20] = 113;
        assert!(error(&file).contains("link type 113"));
        let mut file = pcapng_of(&[&[1; 60]]);
        let place = file.len() - 4 - 60 - 20;
        file[place + 3] = 9;
        assert!(error(&file).contains("interface 9"), "{}", error(&file));
    }

    proptest! {
        /// Bytes of a changed file are an error or frames, and nothing else.
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
