//! Datagrams for tests.

use polder_buffers::{ChecksumState, Packet};
use polder_datapath::wire::{IpProtocol, Ipv4, Ipv4Header, Pseudo, TrafficClass};
use std::net::Ipv4Addr;

const SOURCE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const NETWORK: usize = 14;
const TRANSPORT: usize = NETWORK + Ipv4::HEADER_BYTES;

/// A UDP datagram with `payload` bytes, in its frame.
pub(crate) fn udp(payload: usize) -> Vec<u8> {
    let mut frame = crate::hand::frame([2; 6], TRANSPORT + 8 + payload);
    frame[12..14].copy_from_slice(&[8, 0]);
    let header = Ipv4Header {
        source: SOURCE,
        destination: DESTINATION,
        protocol: IpProtocol::UDP,
        traffic_class: TrafficClass(0),
        total_length: u16::try_from(frame.len() - NETWORK).unwrap(),
        identification: 1,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        time_to_live: 64,
    };
    header.emit(&mut frame[NETWORK..]).unwrap();
    let length = u16::try_from(8 + payload).unwrap();
    let message = &mut frame[TRANSPORT..];
    message[..4].copy_from_slice(&[0x10, 0, 0x20, 0]);
    message[4..6].copy_from_slice(&length.to_be_bytes());
    message[6..8].fill(0);
    let pseudo = Pseudo::V4 { source: SOURCE, destination: DESTINATION };
    let sum = pseudo.sum_over(IpProtocol::UDP, message).finish_nonzero();
    message[6..8].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Leaves only the pseudo-header's sum in the checksum of a datagram made by [`udp`].
pub(crate) fn make_partial(packet: &mut Packet) {
    let length = u32::try_from(packet.len() - TRANSPORT).unwrap();
    let pseudo = Pseudo::V4 { source: SOURCE, destination: DESTINATION };
    let sum = pseudo.sum(IpProtocol::UDP, length).partial();
    packet.bytes_mut()[TRANSPORT + 6..TRANSPORT + 8].copy_from_slice(&sum.to_be_bytes());
    packet.checksum = ChecksumState::Partial;
    packet.checksum_start = u16::try_from(TRANSPORT).unwrap();
    packet.checksum_offset = 6;
}
