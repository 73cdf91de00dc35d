//! Frames to put into tunnels, written by hand.

use crate::oracle::{naive_pseudo_sum, naive_sum};

/// MAC addresses of the stations inside the tunnel.
pub(crate) const STATIONS: [[u8; 6]; 2] = [[2, 0, 0, 0, 7, 1], [2, 0, 0, 0, 7, 2]];
pub(crate) const V4: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];
pub(crate) const V6: [[u8; 16]; 2] = [
    [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
];

/// Bytes that differ from place to place.
pub(crate) fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(at % 251).expect("a byte")).collect()
}

/// An Ethernet header with tags.
pub(crate) fn link(tags: &[u16], ether_type: u16) -> Vec<u8> {
    let mut bytes = [STATIONS[1], STATIONS[0]].concat();
    for tag in tags {
        bytes.extend([0x81, 0x00]);
        bytes.extend(tag.to_be_bytes());
    }
    bytes.extend(ether_type.to_be_bytes());
    bytes
}

/// A frame that is not IP, this long as a whole.
pub(crate) fn other(tags: &[u16], length: usize) -> Vec<u8> {
    let mut bytes = link(tags, 0x88b5);
    bytes.extend(content(length.saturating_sub(bytes.len())));
    bytes
}

/// A frame with an IPv4 packet of protocol 253.
pub(crate) fn v4(tags: &[u16], class: u8, ttl: u8, dont_fragment: bool, length: usize) -> Vec<u8> {
    v4_of(tags, class, ttl, dont_fragment, 253, &content(length.saturating_sub(20)))
}

/// A frame with an IPv4 packet.
pub(crate) fn v4_of(
    tags: &[u16],
    class: u8,
    ttl: u8,
    dont_fragment: bool,
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    let total = u16::try_from(payload.len() + 20).expect("a packet").to_be_bytes();
    let fragment = if dont_fragment { 0x40 } else { 0 };
    let start = [0x45, class, total[0], total[1], 0x12, 0x34, fragment, 0, ttl, protocol, 0, 0];
    let mut header = [&start[..], &V4[0], &V4[1]].concat();
    let checksum = !naive_sum(&header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [link(tags, 0x0800), header, payload.to_vec()].concat()
}

/// A frame with an IPv6 packet of protocol 253.
pub(crate) fn v6(tags: &[u16], class: u8, hops: u8, length: usize) -> Vec<u8> {
    v6_of(tags, class, hops, 253, &content(length.saturating_sub(40)))
}

/// A frame with an IPv6 packet.
pub(crate) fn v6_of(tags: &[u16], class: u8, hops: u8, next: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("a packet").to_be_bytes();
    let header = [0x60 | class >> 4, class << 4, 0, 0, length[0], length[1], next, hops];
    [&link(tags, 0x86dd)[..], &header, &V6[0], &V6[1], payload].concat()
}

/// A TCP segment of an address family with options, its checksum right.
pub(crate) fn tcp(is_v6: bool, flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let offset = u8::try_from(5 + options.len() / 4).expect("at most 15") << 4;
    let ports = [0x12, 0x34, 0, 80];
    let numbers = [0, 0, 0, 1, 0, 0, 0, 0];
    let rest = [offset, flags, 0x20, 0, 0, 0, 0, 0];
    let mut segment = [&ports[..], &numbers, &rest, options, payload].concat();
    let checksum = !tcp_sum(is_v6, &segment);
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    segment
}

/// The sum over a TCP segment with its pseudo-header: all ones when it is intact.
pub(crate) fn tcp_sum(is_v6: bool, segment: &[u8]) -> u16 {
    if is_v6 {
        naive_pseudo_sum(&V6[0], &V6[1], 6, segment)
    } else {
        naive_pseudo_sum(&V4[0], &V4[1], 6, segment)
    }
}
