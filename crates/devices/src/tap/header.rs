//! The virtio-net header and the metadata of a packet, one from the other.
//!
//! A header comes from the kernel, which takes some of its fields from whoever sent the packet, so
//! every field is checked against the packet before it is believed.
//!
//! | bytes | field | of |
//! |---|---|---|
//! | 0 | flags | [`NEEDS_CHECKSUM`], [`CHECKSUM_VERIFIED`] |
//! | 1 | kind of segmentation | [`Kind`] |
//! | 2–3 | bytes of headers, a hint | |
//! | 4–5 | payload bytes a segment | |
//! | 6–7 | where the checksum begins | |
//! | 8–9 | checksum field, from there | |
//!
//! Source: virtio 1.2, 5.1.6; include/uapi/linux/virtio_net.h.

use polder_buffers::{ChecksumState, Packet, Segmentation, SegmentationKind};

/// Bytes of the header.
pub(super) const BYTES: usize = 10;
/// The same, as a length within a frame.
pub(super) const LENGTH: u16 = 10;

/// The checksum field holds the sum of the pseudo-header alone.
const NEEDS_CHECKSUM: u8 = 1;
/// The checksum has been verified.
const CHECKSUM_VERIFIED: u8 = 2;

const NOT_SEGMENTED: u8 = 0;
const TCP4: u8 = 1;
const TCP6: u8 = 4;
const UDP: u8 = 5;

/// Bytes of an Ethernet header: no checksum begins before its end.
const ETHERNET: u16 = 14;
/// Offset of the data offset in a TCP header.
const TCP_DATA_OFFSET: usize = 12;
/// Bytes of a UDP header.
const UDP_HEADER: u16 = 8;

/// A header that does not fit its packet, or has an offload that was not offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadHeader;

/// Sets the metadata of `packet` from `header`.
#[inline]
pub(super) fn apply(header: [u8; BYTES], packet: &mut Packet) -> Result<(), BadHeader> {
    // Nearly every packet without offloads.
    if header[..2] == [0, 0] {
        return Ok(());
    }
    apply_offloads(header, packet)
}

fn apply_offloads(header: [u8; BYTES], packet: &mut Packet) -> Result<(), BadHeader> {
    let [flags, kind, _, _, size_0, size_1, start_0, start_1, offset_0, offset_1] = header;
    match flags {
        0 => {}
        CHECKSUM_VERIFIED => packet.checksum = ChecksumState::Verified,
        NEEDS_CHECKSUM => {
            let start = u16::from_ne_bytes([start_0, start_1]);
            let offset = u16::from_ne_bytes([offset_0, offset_1]);
            let end = usize::from(start) + usize::from(offset) + 2;
            if start < ETHERNET || end > packet.bytes().len() {
                return Err(BadHeader);
            }
            packet.checksum = ChecksumState::Partial;
            packet.checksum_start = start;
            packet.checksum_offset = offset;
        }
        _ => return Err(BadHeader),
    }
    let kind = match kind {
        NOT_SEGMENTED => return Ok(()),
        TCP4 => SegmentationKind::Tcp4,
        TCP6 => SegmentationKind::Tcp6,
        UDP => SegmentationKind::Udp,
        _ => return Err(BadHeader),
    };
    let size = u16::from_ne_bytes([size_0, size_1]);
    if size == 0 || packet.checksum != ChecksumState::Partial {
        return Err(BadHeader);
    }
    packet.segmentation = Segmentation { size, kind };
    Ok(())
}

/// The header for `packet`, or a refusal when its metadata cannot be said in one.
#[inline]
pub(super) fn describe(packet: &Packet) -> Result<[u8; BYTES], BadHeader> {
    if packet.segmentation.kind != SegmentationKind::None {
        return describe_segments(packet);
    }
    Ok(match packet.checksum {
        ChecksumState::Unknown => [0; BYTES],
        ChecksumState::Verified => header(CHECKSUM_VERIFIED, NOT_SEGMENTED, 0, 0, 0, 0),
        ChecksumState::Partial => {
            header(NEEDS_CHECKSUM, NOT_SEGMENTED, 0, 0, packet.checksum_start, packet.checksum_offset)
        }
    })
}

fn describe_segments(packet: &Packet) -> Result<[u8; BYTES], BadHeader> {
    if packet.checksum != ChecksumState::Partial {
        return Err(BadHeader);
    }
    let start = packet.checksum_start;
    let (kind, transport_bytes) = match packet.segmentation.kind {
        SegmentationKind::None => return Err(BadHeader),
        // The header cannot say that identifications stay the same: the kernel counts them up, which
        // changes nothing that anybody may rely on (RFC 6864, 4.1).
        SegmentationKind::Tcp4 | SegmentationKind::Tcp4OneId => (TCP4, tcp_header_bytes(packet)?),
        SegmentationKind::Tcp6 => (TCP6, tcp_header_bytes(packet)?),
        SegmentationKind::Udp | SegmentationKind::UdpOneId => (UDP, UDP_HEADER),
    };
    let headers = start.checked_add(transport_bytes).ok_or(BadHeader)?;
    // The kernel refuses a header longer than the packet, and copies as much into its linear part.
    if usize::from(headers) > packet.len() {
        return Err(BadHeader);
    }
    Ok(header(NEEDS_CHECKSUM, kind, headers, packet.segmentation.size, start, packet.checksum_offset))
}

/// Bytes of headers in front of each segment, of the header of a packet that has segments.
#[inline]
pub(super) fn header_bytes(header: [u8; BYTES]) -> u16 {
    u16::from_ne_bytes([header[2], header[3]])
}

fn tcp_header_bytes(packet: &Packet) -> Result<u16, BadHeader> {
    let position = usize::from(packet.checksum_start) + TCP_DATA_OFFSET;
    let mut byte = [0];
    if packet.copy_out(position, &mut byte) == 0 {
        return Err(BadHeader);
    }
    Ok(u16::from(byte[0] >> 4) * 4)
}

fn header(flags: u8, kind: u8, headers: u16, size: u16, start: u16, offset: u16) -> [u8; BYTES] {
    let [h0, h1] = headers.to_ne_bytes();
    let [z0, z1] = size.to_ne_bytes();
    let [s0, s1] = start.to_ne_bytes();
    let [o0, o1] = offset.to_ne_bytes();
    [flags, kind, h0, h1, z0, z1, s0, s1, o0, o1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_buffers::{Region, RegionOptions};
    use proptest::prelude::*;
    use std::sync::OnceLock;

    fn packet(bytes: usize) -> Packet {
        static REGION: OnceLock<Region> = OnceLock::new();
        let options = RegionOptions { slots: 1024, slot_bytes: 512 };
        let region = REGION.get_or_init(|| Region::new(options).expect("memory for a test"));
        Packet::copy_from(&vec![0x50; bytes], &mut region.pool()).expect("a test holds few slots")
    }

    #[test]
    fn a_plain_packet_has_a_header_of_zeros() {
        let mut packet = packet(60);
        assert_eq!(describe(&packet), Ok([0; BYTES]));
        assert_eq!(apply([0; BYTES], &mut packet), Ok(()));
        assert_eq!(packet.checksum, ChecksumState::Unknown);
    }

    #[test]
    fn a_checksum_must_lie_in_the_packet() {
        for (start, offset, good) in [(14, 0, true), (13, 0, false), (34, 16, true), (42, 16, true)]
            .into_iter()
            .chain([(43, 16, false), (u16::MAX, u16::MAX, false), (u16::MAX, 1, false)])
        {
            let mut packet = packet(60);
            let result = apply(header(NEEDS_CHECKSUM, 0, 0, 0, start, offset), &mut packet);
            assert_eq!(result.is_ok(), good, "start {start} offset {offset}");
        }
    }

    #[test]
    fn segments_need_a_size_and_a_partial_checksum() {
        let no_size = header(NEEDS_CHECKSUM, TCP4, 54, 0, 34, 16);
        assert_eq!(apply(no_size, &mut packet(2000)), Err(BadHeader));
        let no_checksum = header(0, TCP4, 54, 1448, 34, 16);
        assert_eq!(apply(no_checksum, &mut packet(2000)), Err(BadHeader));
        let mut packet = packet(2000);
        assert_eq!(apply(header(NEEDS_CHECKSUM, TCP4, 54, 1448, 34, 16), &mut packet), Ok(()));
        assert_eq!(describe(&packet), Ok(header(NEEDS_CHECKSUM, TCP4, 54, 1448, 34, 16)));
        packet.checksum = ChecksumState::Unknown;
        assert_eq!(describe(&packet), Err(BadHeader));
    }

    #[test]
    fn what_was_not_offered_is_refused() {
        for header in
            [[NEEDS_CHECKSUM, 3], [0, 0x81], [NEEDS_CHECKSUM | CHECKSUM_VERIFIED, 0], [4, 0], [8, 0]]
        {
            let mut bytes = self::header(header[0], header[1], 54, 1448, 34, 16);
            bytes[0] = header[0];
            assert_eq!(apply(bytes, &mut packet(60)), Err(BadHeader), "{header:?}");
        }
    }

    proptest! {
        /// Metadata from an accepted header give an equal header again.
        #[test]
        fn believed_headers_survive_the_way_back(
            bytes in any::<[u8; BYTES]>(), flags in 0_u8..4, kind in 0_u8..6, start in 0_u16..80
        ) {
            let mut bytes = bytes;
            bytes[0] = flags;
            bytes[1] = kind;
            bytes[6..8].copy_from_slice(&start.to_ne_bytes());
            bytes[9] = 0;
            let mut packet = packet(300);
            if apply(bytes, &mut packet).is_ok()
                && let Ok(again) = describe(&packet)
            {
                prop_assert_eq!(again[0], bytes[0]);
                prop_assert_eq!(again[1], bytes[1]);
                if bytes[1] != 0 {
                    prop_assert_eq!(&again[4..6], &bytes[4..6]);
                }
                if bytes[0] == NEEDS_CHECKSUM {
                    prop_assert_eq!(&again[6..10], &bytes[6..10]);
                }
            }
        }
    }
}
