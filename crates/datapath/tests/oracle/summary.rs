//! Kinds and lengths of headers, read at once: what etherparse and a walk by the RFCs make of the same bytes.

use etherparse::{Ethernet2Slice, Ipv4HeaderSlice, Ipv6HeaderSlice, SingleVlanSlice};
use polder_datapath::parse::{Addresses, Extent, HeaderSummary, Network, Part};

/// A summary, field by field.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    network: Network,
    offset: usize,
    transport: usize,
    protocol: u8,
    part: Part,
    extent: Extent,
    payload: Vec<u8>,
}

/// Any frame.
pub(crate) fn summary(frame: &[u8]) {
    let ours = HeaderSummary::parse(frame, frame.len());
    let expected = frame_facts(frame);
    let payload = if expected.payload.is_empty() { vec![] } else { ours.payload(frame).to_vec() };
    let facts = Facts {
        network: ours.network(),
        offset: ours.network_offset(),
        transport: ours.transport_offset(),
        protocol: ours.protocol().0,
        part: ours.part(),
        extent: ours.extent(),
        payload,
    };
    assert_eq!(facts, expected);
    assert_eq!(ours.is_fragment(), expected.part != Part::Whole);
    assert_eq!(ours.is_readable(), matches!(expected.extent, Extent::Exact | Extent::Padded));
    assert_eq!(ours.is_broken(), expected.extent == Extent::Broken);
    assert_eq!(
        ours.has_transport(),
        ours.is_readable() && matches!(expected.part, Part::Whole | Part::First)
    );
    let fields = (ours.network(), ours.network_offset(), ours.network_bytes(), ours.part());
    let is_plain = fields == (Network::Ipv4, 14, 20, Part::Whole) && ours.is_readable();
    assert_eq!(ours.is_plain_v4(), is_plain);
    let plain =
        ours.plain_v4(frame).map(|plain| (Addresses::V4(plain.addresses), plain.protocol, plain.payload));
    let fields = ours.addresses(frame).map(|addresses| (addresses, ours.protocol(), ours.payload(frame)));
    assert_eq!(plain, fields.filter(|_| is_plain));
    let is_extended = ours.network() == Network::Ipv6 && (ours.network_bytes() > 40 || !ours.is_readable());
    assert!(!ours.is_extended_v6() || is_extended);
    assert!(ours.is_extended_v6() || !is_extended);
    fields_of_ip(ours, frame);
}

/// Fields at the summary's offsets are those of etherparse.
fn fields_of_ip(ours: HeaderSummary, frame: &[u8]) {
    let header = ours.network_header(frame);
    match ours.network() {
        Network::Ipv4 => {
            let [source, destination] = [12, 16].map(|at| header[at..at + 4].try_into().expect("four"));
            let addresses = [source, destination].map(u32::from_be_bytes);
            assert_eq!(ours.addresses(frame), Some(Addresses::V4(addresses)));
        }
        Network::Ipv6 => {
            let slice = Ipv6HeaderSlice::from_slice(header).expect("a header");
            let addresses = [slice.source(), slice.destination()].map(u128::from_be_bytes);
            assert_eq!(ours.addresses(frame), Some(Addresses::V6(addresses)));
        }
        Network::Other => assert_eq!(ours.addresses(frame), None),
    }
}

fn other(offset: usize, extent: Extent) -> Facts {
    let (network, part) = (Network::Other, Part::Whole);
    Facts { network, offset, transport: offset, protocol: 0, part, extent, payload: vec![] }
}

fn frame_facts(frame: &[u8]) -> Facts {
    let Ok(ethernet) = Ethernet2Slice::from_slice_without_fcs(frame) else {
        return other(14, Extent::Unreadable);
    };
    let (mut ether_type, mut offset) = (ethernet.ether_type().0, 14);
    while matches!(ether_type, 0x8100 | 0x88a8) && offset < 22 {
        let Ok(tag) = SingleVlanSlice::from_slice(&frame[offset..]) else {
            return other(14, Extent::Unreadable);
        };
        (ether_type, offset) = (tag.ether_type().0, offset + 4);
    }
    match ether_type {
        0x0800 => ipv4_facts(&frame[offset..], offset),
        0x86dd => ipv6_facts(&frame[offset..], offset),
        _ => other(offset, Extent::Exact),
    }
}

fn ipv4_facts(bytes: &[u8], offset: usize) -> Facts {
    if bytes.len() < 20 || bytes[0] >> 4 != 4 {
        return other(offset, Extent::Broken);
    }
    let length = usize::from(bytes[0] & 15).max(5) * 4;
    let facts = Facts {
        network: Network::Ipv4,
        transport: offset + length,
        protocol: bytes[9],
        ..other(offset, Extent::Broken)
    };
    let Ok(header) = Ipv4HeaderSlice::from_slice(bytes) else { return facts };
    let total = usize::from(header.total_len());
    if total < length || total > bytes.len() {
        return facts;
    }
    let part = match (header.fragments_offset().value(), header.more_fragments()) {
        (0, false) => Part::Whole,
        (0, true) => Part::First,
        (1, _) => Part::Second,
        _ => Part::Later,
    };
    let extent = if total == bytes.len() { Extent::Exact } else { Extent::Padded };
    Facts { part, extent, payload: bytes[length..total].to_vec(), ..facts }
}

fn ipv6_facts(bytes: &[u8], offset: usize) -> Facts {
    let Ok(header) = Ipv6HeaderSlice::from_slice(bytes) else { return other(offset, Extent::Broken) };
    let facts = Facts {
        network: Network::Ipv6,
        transport: offset + 40,
        protocol: header.next_header().0,
        ..other(offset, Extent::Broken)
    };
    let end = 40 + usize::from(header.payload_length());
    let Some(packet) = bytes.get(..end) else { return facts };
    let Some((protocol, at, part)) = walk(packet, header.next_header().0) else {
        return Facts { extent: Extent::Unreadable, ..facts };
    };
    let extent = if end == bytes.len() { Extent::Exact } else { Extent::Padded };
    Facts { protocol, transport: offset + at, part, extent, payload: packet[at..].to_vec(), ..facts }
}

/// Protocol behind the extension headers, its place, and the part of the datagram; RFC 8200, 4, and RFC 4302, 2.2.
fn walk(packet: &[u8], mut next: u8) -> Option<(u8, usize, Part)> {
    let (mut at, mut part) = (40, Part::Whole);
    for count in 0.. {
        let is_extension = matches!(next, 0 | 43 | 44 | 51 | 60);
        if !is_extension || matches!(part, Part::Second | Part::Later) {
            break;
        }
        if count == 8 || next == 0 && count > 0 {
            return None;
        }
        let header = packet.get(at..at + 8)?;
        let length = match next {
            44 => 8,
            51 if header[1] == 0 => return None,
            51 => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        packet.get(at..at + length)?;
        if next == 44 {
            part = match u16::from_be_bytes([header[2], header[3]]) >> 3 {
                0 => Part::First,
                1 => Part::Second,
                _ => Part::Later,
            };
        }
        (next, at) = (header[0], at + length);
    }
    Some((next, at, part))
}
