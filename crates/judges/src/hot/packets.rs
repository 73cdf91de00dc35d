//! Parts of packets that all benches send.

use polder_datapath::wire::Checksum;
use std::net::Ipv4Addr;

/// An Ethernet header.
pub(super) fn ethernet(destination: [u8; 6], source: [u8; 6], kind: u16) -> Vec<u8> {
    [&destination[..], &source, &kind.to_be_bytes()].concat()
}

/// An IPv4 packet without options.
pub(super) fn v4(
    class: u8,
    ttl: u8,
    fragment: u16,
    protocol: u8,
    ends: [Ipv4Addr; 2],
    rest: &[u8],
) -> Vec<u8> {
    let [high, low] = length(20 + rest.len());
    let fragment = fragment.to_be_bytes();
    let mut header = [0x45, class, high, low, 0, 7, fragment[0], fragment[1], ttl, protocol, 0, 0]
        .into_iter()
        .chain(ends[0].octets())
        .chain(ends[1].octets())
        .collect::<Vec<_>>();
    mend(&mut header);
    header.extend(rest);
    header
}

/// Computes the checksum of an IPv4 header.
pub(super) fn mend(header: &mut [u8]) {
    header[10..12].fill(0);
    let mut sum = Checksum::new();
    sum.add(header);
    header[10..12].copy_from_slice(&sum.finish().to_be_bytes());
}

/// A UDP datagram to a port, without a checksum.
pub fn udp(port: u16, bytes: usize) -> Vec<u8> {
    let ports = [9000_u16.to_be_bytes(), port.to_be_bytes()].concat();
    [&ports[..], &length(8 + bytes), &[0, 0], &vec![0x5a; bytes]].concat()
}

/// A length as headers have it.
pub(super) fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).expect("packets of the bench are short").to_be_bytes()
}
