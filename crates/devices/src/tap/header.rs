//! Conversion between a virtio-net header and a packet's metadata.
//!
//! A header is written by the kernel, which takes some of its fields from the sender of the packet, so every field
//! is checked against the packet before use.
//!
//! | bytes | field | values |
//! |---|---|---|
//! | 0 | flags | [`NEEDS_CHECKSUM`], [`CHECKSUM_VERIFIED`], [`TUNNEL_CHECKSUM`] |
//! | 1 | kind of segmentation | [`TCP4`] …, with [`TUNNEL4`] or [`TUNNEL6`] |
//! | 2–3 | bytes of headers, a hint | |
//! | 4–5 | payload bytes per segment | |
//! | 6–7 | start of the checksummed bytes | |
//! | 8–9 | offset of the checksum field from that start | |
//! | 10–19 | number of buffers, hash | zero |
//! | 20–21 | start of the outer UDP header | |
//! | 22–23 | start of the inner IP header | |
//!
//! The last 14 bytes exist only if the kernel supports segments in tunnels ([`LONG`]), as Linux does from 6.17 on.
//!
//! Source: virtio 1.3, 5.1.6; include/uapi/linux/virtio_net.h (`virtio_net_hdr_v1_hash_tunnel`).

use polder_buffers::{ChecksumState, OuterHeaders, Packet, Segmentation, SegmentationKind};
use polder_datapath::parse::{HeaderSummary, Network};
use polder_datapath::segment::Measure;
use polder_datapath::wire::{IpProtocol, Udp};

/// Bytes of the header without tunnel fields.
pub(super) const SHORT: u16 = 10;
/// Bytes of the header with tunnel fields.
pub(super) const LONG: u16 = 24;
/// A header; a short header is padded with zeros.
pub(super) type Header = [u8; LONG as usize];

/// The checksum field contains the sum of the pseudo-header only.
const NEEDS_CHECKSUM: u8 = 1;
/// The checksum has been verified.
const CHECKSUM_VERIFIED: u8 = 2;
/// Segments have a checksum in their outer UDP header; the packet has the sum of its pseudo-header there.
const TUNNEL_CHECKSUM: u8 = 8;

const NOT_SEGMENTED: u8 = 0;
const TCP4: u8 = 1;
const TCP6: u8 = 4;
const UDP: u8 = 5;
/// In a tunnel over UDP over IPv4 or IPv6.
const TUNNEL4: u8 = 0x20;
const TUNNEL6: u8 = 0x40;

/// Bytes of an Ethernet header: no checksum starts before its end.
pub(super) const ETHERNET: u16 = 14;
/// Bytes of a tag that the kernel has inserted into the frame but not counted in the tunnel offsets.
const TAG: usize = 4;

/// Error: a header does not fit its packet, or has an offload that was not offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadHeader;

/// Sets the metadata of `packet` from `header`.
#[inline]
pub(super) fn apply(header: Header, packet: &mut Packet) -> Result<(), BadHeader> {
    // Nearly every packet without offloads takes this path.
    if header[..2] == [0, 0] {
        return Ok(());
    }
    apply_offloads(header, packet)
}

fn apply_offloads(header: Header, packet: &mut Packet) -> Result<(), BadHeader> {
    let [flags, kind, ..] = header;
    let [_, size, start, offset] = fields(&header, 2);
    let tunnel = kind & (TUNNEL4 | TUNNEL6);
    match flags & !if tunnel != 0 { TUNNEL_CHECKSUM } else { 0 } {
        0 => {}
        CHECKSUM_VERIFIED => packet.checksum = ChecksumState::Verified,
        NEEDS_CHECKSUM => {
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
    let kind = match kind & !tunnel {
        NOT_SEGMENTED if tunnel == 0 => return Ok(()),
        TCP4 => SegmentationKind::Tcp4,
        TCP6 => SegmentationKind::Tcp6,
        UDP => SegmentationKind::Udp,
        _ => return Err(BadHeader),
    };
    if size == 0 || packet.checksum != ChecksumState::Partial {
        return Err(BadHeader);
    }
    let outer = match tunnel {
        0 => OuterHeaders::NONE,
        _ => outer(&header, packet, start).ok_or(BadHeader)?,
    };
    Measure::describe(packet, Segmentation { size, kind, outer });
    Ok(())
}

/// Returns the outer headers of a tunnel packet, if they are at the header's offset.
#[cold]
fn outer(header: &Header, packet: &Packet, start: u16) -> Option<OuterHeaders> {
    let [outer_at, inner_at] = fields(header, 20).map(usize::from);
    let summary = HeaderSummary::read(packet);
    let family = match summary.network() {
        Network::Ipv4 => TUNNEL4,
        Network::Ipv6 => TUNNEL6,
        Network::Other => return None,
    };
    let transport = summary.transport_offset();
    let shift = transport.checked_sub(outer_at).filter(|shift| [0, TAG].contains(shift))?;
    let is_udp = summary.has_transport() && summary.protocol() == IpProtocol::UDP;
    let inner_at = inner_at + shift;
    if !is_udp || header[1] & (TUNNEL4 | TUNNEL6) != family || inner_at < transport + Udp::HEADER_BYTES {
        return None;
    }
    let inner_bytes = usize::from(start).checked_sub(inner_at)?;
    OuterHeaders::udp(inner_bytes, header[0] & TUNNEL_CHECKSUM != 0)
}

/// Returns the header for `packet`; an error if a header cannot describe its metadata.
#[inline]
pub(super) fn describe(packet: &Packet) -> Result<Header, BadHeader> {
    if packet.segmentation.kind != SegmentationKind::None {
        return describe_segments(packet);
    }
    Ok(match packet.checksum {
        ChecksumState::Unknown => [0; LONG as usize],
        ChecksumState::Verified => header(CHECKSUM_VERIFIED, NOT_SEGMENTED, [0; 4]),
        ChecksumState::Partial => {
            let place = [0, 0, packet.checksum_start, packet.checksum_offset];
            header(NEEDS_CHECKSUM, NOT_SEGMENTED, place)
        }
    })
}

fn describe_segments(packet: &Packet) -> Result<Header, BadHeader> {
    if packet.checksum != ChecksumState::Partial {
        return Err(BadHeader);
    }
    let kind = match packet.segmentation.kind {
        SegmentationKind::None => return Err(BadHeader),
        // A header cannot tell that identifications stay the same: the kernel increments them, which is
        // allowed (RFC 6864, 4.1).
        SegmentationKind::Tcp4 => TCP4,
        SegmentationKind::Tcp6 => TCP6,
        SegmentationKind::Udp => UDP,
    };
    // The kernel refuses a header longer than the packet, and copies that many bytes into its linear part.
    let headers = Measure::of(packet).ok_or(BadHeader)?.header_bytes;
    let headers = u16::try_from(headers).map_err(|_| BadHeader)?;
    let place = [headers, packet.segmentation.size, packet.checksum_start, packet.checksum_offset];
    let mut said = header(NEEDS_CHECKSUM, kind, place);
    if packet.segmentation.outer.is_some() {
        say_outer(&mut said, packet)?;
    }
    Ok(said)
}

/// Writes the offsets of a packet's outer headers into its header.
#[cold]
fn say_outer(header: &mut Header, packet: &Packet) -> Result<(), BadHeader> {
    let outer = packet.segmentation.outer;
    let summary = HeaderSummary::read(packet);
    let is_known = outer.is_udp() && summary.has_transport() && summary.protocol() == IpProtocol::UDP;
    header[1] |= match summary.network() {
        Network::Ipv4 if is_known => TUNNEL4,
        Network::Ipv6 if is_known => TUNNEL6,
        Network::Ipv4 | Network::Ipv6 | Network::Other => return Err(BadHeader),
    };
    if outer.has_udp_checksum() {
        header[0] |= TUNNEL_CHECKSUM;
    }
    let transport = u16::try_from(summary.transport_offset()).map_err(|_| BadHeader)?;
    let inner = packet.checksum_start.checked_sub(outer.inner_ip_bytes()).ok_or(BadHeader)?;
    put_fields(header, 20, [transport, inner]);
    Ok(())
}

/// Shifts a header's offsets by a tag that is inserted before the packet's EtherType.
pub(super) fn move_by_tag(header: &mut Header) {
    let tag = u16::try_from(TAG).unwrap_or_default();
    shift(header, |place| place.saturating_add(tag));
}

/// Shifts a header's offsets by an Ethernet header that is put before the packet.
pub(super) fn add_ethernet(header: &mut Header) {
    shift(header, |place| place.saturating_add(ETHERNET));
}

/// Shifts a header's offsets by an Ethernet header that is removed from the start of the packet.
pub(super) fn remove_ethernet(header: &mut Header) {
    shift(header, |place| place.saturating_sub(ETHERNET));
}

/// Changes the offsets of a header, where it has some.
fn shift(header: &mut Header, to: impl Fn(u16) -> u16) {
    let [headers, size, start, offset] = fields(header, 2);
    if header[0] & NEEDS_CHECKSUM != 0 {
        let headers = if headers == 0 { 0 } else { to(headers) };
        put_fields(header, 2, [headers, size, to(start), offset]);
    }
    if header[1] & (TUNNEL4 | TUNNEL6) != 0 {
        let places = fields::<2>(header, 20).map(to);
        put_fields(header, 20, places);
    }
}

/// True if a header uses fields that a short header lacks.
#[inline]
pub(super) fn is_long(header: &Header) -> bool {
    header[1] & (TUNNEL4 | TUNNEL6) != 0
}

/// Returns the bytes of headers that each segment repeats, from the header of a super-packet.
#[inline]
pub(super) fn header_bytes(header: &Header) -> u16 {
    u16::from_ne_bytes([header[2], header[3]])
}

fn header(flags: u8, kind: u8, place: [u16; 4]) -> Header {
    let mut header = [0; LONG as usize];
    header[..2].copy_from_slice(&[flags, kind]);
    put_fields(&mut header, 2, place);
    header
}

/// Returns the two-byte fields from offset `at` on.
fn fields<const N: usize>(header: &Header, at: usize) -> [u16; N] {
    core::array::from_fn(|number| u16::from_ne_bytes([header[at + 2 * number], header[at + 2 * number + 1]]))
}

fn put_fields<const N: usize>(header: &mut Header, at: usize, fields: [u16; N]) {
    for (field, room) in fields.into_iter().zip(header[at..].as_chunks_mut().0) {
        *room = field.to_ne_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_buffers::{Pool, Region, RegionOptions};
    use proptest::prelude::*;
    use std::sync::OnceLock;

    fn pool() -> Pool {
        static REGION: OnceLock<Region> = OnceLock::new();
        let options = RegionOptions { slots: 1024, slot_bytes: 512 };
        REGION.get_or_init(|| Region::new(options).expect("memory for a test")).pool()
    }

    fn packet(bytes: usize) -> Packet {
        Packet::copy_from(&vec![0x50; bytes], &mut pool()).expect("a test holds few slots")
    }

    #[test]
    fn a_plain_packet_has_a_header_of_zeros() {
        let mut packet = packet(60);
        assert_eq!(describe(&packet), Ok([0; 24]));
        assert_eq!(apply([0; 24], &mut packet), Ok(()));
        assert_eq!(packet.checksum, ChecksumState::Unknown);
    }

    #[test]
    fn a_checksum_must_lie_in_the_packet() {
        for (start, offset, good) in [(14, 0, true), (13, 0, false), (34, 16, true), (42, 16, true)]
            .into_iter()
            .chain([(43, 16, false), (u16::MAX, u16::MAX, false), (u16::MAX, 1, false)])
        {
            let mut packet = packet(60);
            let result = apply(header(NEEDS_CHECKSUM, 0, [0, 0, start, offset]), &mut packet);
            assert_eq!(result.is_ok(), good, "start {start} offset {offset}");
        }
    }

    #[test]
    fn segments_need_a_size_and_a_partial_checksum() {
        let no_size = header(NEEDS_CHECKSUM, TCP4, [54, 0, 34, 16]);
        assert_eq!(apply(no_size, &mut packet(2000)), Err(BadHeader));
        let no_checksum = header(0, TCP4, [54, 1448, 34, 16]);
        assert_eq!(apply(no_checksum, &mut packet(2000)), Err(BadHeader));
        let mut packet = packet(2000);
        assert_eq!(apply(header(NEEDS_CHECKSUM, TCP4, [54, 1448, 34, 16]), &mut packet), Ok(()));
        assert_eq!(describe(&packet), Ok(header(NEEDS_CHECKSUM, TCP4, [54, 1448, 34, 16])));
        packet.checksum = ChecksumState::Unknown;
        assert_eq!(describe(&packet), Err(BadHeader));
    }

    #[test]
    fn what_was_not_offered_is_refused() {
        for header in
            [[NEEDS_CHECKSUM, 3], [0, 0x81], [NEEDS_CHECKSUM | CHECKSUM_VERIFIED, 0], [4, 0], [8, 0]]
        {
            let mut bytes = self::header(header[0], header[1], [54, 1448, 34, 16]);
            bytes[0] = header[0];
            assert_eq!(apply(bytes, &mut packet(60)), Err(BadHeader), "{header:?}");
        }
    }

    /// TCP in VXLAN, with tags in front, `payload` bytes long.
    fn in_tunnel(is_v6: bool, tags: usize, payload: usize) -> Packet {
        let mut frame = vec![2; 12];
        frame.extend([0x81, 0, 0, 7].repeat(tags));
        let behind = 8 + 8 + 14 + 20 + 20 + payload;
        let length = |bytes: usize| u16::try_from(bytes).expect("short").to_be_bytes();
        if is_v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length(behind));
            frame.extend([17, 64]);
            frame.extend([0xfd; 32]);
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend(length(20 + behind));
            frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        frame.extend([0xc0, 0, 0x12, 0xb5]);
        frame.extend(length(behind));
        frame.extend([0, 0, 8, 0, 0, 0, 0, 0, 7, 0]);
        frame.extend([2; 12]);
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(length(40 + payload));
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 3, 10, 0, 0, 4]);
        frame.extend([0x12, 0x34, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
        frame.resize(frame.len() + payload, 0x5a);
        let mut packet = packet(1);
        packet.extend_from(&frame, &mut pool()).expect("a test holds few slots");
        packet.trim_front(1).expect("one byte");
        packet
    }

    #[test]
    fn segments_in_tunnels() {
        for (is_v6, tags, has_checksum) in
            [(false, 0, false), (true, 0, true), (false, 1, true), (true, 2, false)]
        {
            let outer_at = 14 + 4 * tags + if is_v6 { 40 } else { 20 };
            let (outer, inner, start) = (outer_at, outer_at + 30, outer_at + 50);
            let mut said = header(
                NEEDS_CHECKSUM | if has_checksum { TUNNEL_CHECKSUM } else { 0 },
                TCP4 | if is_v6 { TUNNEL6 } else { TUNNEL4 },
                [start + 20, 1000, start, 16],
            );
            put_fields(&mut said, 20, [outer, inner]);
            let mut packet = in_tunnel(is_v6, usize::from(tags), 2500);
            assert_eq!(apply(said, &mut packet), Ok(()));
            let outer = OuterHeaders::udp(20, has_checksum).expect("20 bytes");
            assert_eq!(packet.segmentation, Segmentation { size: 1000, kind: SegmentationKind::Tcp4, outer });
            assert_eq!(describe(&packet), Ok(said));
            assert!(is_long(&said));
            // A tag that the kernel has put in front since.
            let mut shifted = said;
            put_fields(&mut shifted, 20, [outer_at - 4, inner - 4]);
            let mut tagged = in_tunnel(is_v6, usize::from(tags), 2500);
            assert_eq!(apply(shifted, &mut tagged), Ok(()));
            assert_eq!(describe(&tagged), Ok(said));
            for (change, why) in [
                ((1, TCP4 | TUNNEL4 | TUNNEL6), "both families"),
                ((1, TCP4 | if is_v6 { TUNNEL4 } else { TUNNEL6 }), "the other family"),
                ((1, if is_v6 { TUNNEL6 } else { TUNNEL4 }), "no segments"),
                ((20, said[20] + 2), "another place"),
                ((22, said[22] + 2), "no whole words"),
                ((22, said[20] + 4), "inside the outer header"),
                ((0, said[0] & !NEEDS_CHECKSUM), "a checksum that is complete"),
            ] {
                let mut lie = said;
                lie[change.0] = change.1;
                assert_eq!(
                    apply(lie, &mut in_tunnel(is_v6, usize::from(tags), 2500)),
                    Err(BadHeader),
                    "{why}"
                );
            }
            packet.segmentation.outer = OuterHeaders::gre(20).expect("20 bytes");
            assert_eq!(describe(&packet), Err(BadHeader), "no header says GRE");
        }
    }

    proptest! {
        /// Metadata from an accepted header give an equal header again.
        #[test]
        fn believed_headers_survive_the_way_back(
            bytes in any::<Header>(), flags in 0_u8..4, kind in 0_u8..6, start in 0_u16..80
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
