//! Frames to test a port: plain ones, and TCP and UDP packets.

use polder_buffers::{ChecksumState, Packet, Segmentation, SegmentationKind};
use polder_datapath::segment::Measure;
use polder_datapath::wire::{IpProtocol, Ipv4, Ipv4Header, Ipv6, Pseudo, Tcp, TrafficClass, Udp};
use std::net::{Ipv4Addr, Ipv6Addr};

const ETHERNET: usize = 14;
const SOURCE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const SOURCE_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const DESTINATION_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// Protocols of a frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameProtocols {
    /// TCP or UDP.
    pub protocol: IpProtocol,
    /// True for IPv6, false for IPv4.
    pub is_ipv6: bool,
}

/// UDP and TCP, each in IPv4 and IPv6.
pub const KINDS: [FrameProtocols; 4] = [
    FrameProtocols { protocol: IpProtocol::UDP, is_ipv6: false },
    FrameProtocols { protocol: IpProtocol::UDP, is_ipv6: true },
    FrameProtocols { protocol: IpProtocol::TCP, is_ipv6: false },
    FrameProtocols { protocol: IpProtocol::TCP, is_ipv6: true },
];

impl FrameProtocols {
    /// Returns the offset of the transport header.
    pub fn transport(self) -> usize {
        ETHERNET + if self.is_ipv6 { Ipv6::HEADER_BYTES } else { Ipv4::HEADER_BYTES }
    }

    fn header(self) -> usize {
        if self.protocol == IpProtocol::TCP { Tcp::HEADER_BYTES } else { Udp::HEADER_BYTES }
    }

    /// Returns the offset of the checksum in the transport header.
    pub fn field(self) -> u16 {
        if self.protocol == IpProtocol::TCP { Tcp::CHECKSUM_OFFSET } else { Udp::CHECKSUM_OFFSET }
    }

    fn pseudo(self) -> Pseudo {
        if self.is_ipv6 {
            Pseudo::V6 { source: SOURCE_6, destination: DESTINATION_6 }
        } else {
            Pseudo::V4 { source: SOURCE, destination: DESTINATION }
        }
    }
}

/// Returns a frame of `length` bytes, different for each length and number.
pub fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    let mut random = fastrand::Rng::with_seed(u64::from(number));
    frame.extend((frame.len()..length).map(|_| random.u8(..)));
    frame.truncate(length);
    frame
}

/// Returns a complete frame with `payload` bytes.
///
/// # Panics
/// If the packet would be longer than 65 535 bytes.
pub fn complete(kind: FrameProtocols, payload: usize) -> Vec<u8> {
    let transport = kind.transport();
    let mut frame = frame(7, transport + kind.header() + payload);
    let length = frame.len() - transport;
    if kind.is_ipv6 {
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[14..18].copy_from_slice(&[0x60, 0, 0, 0]);
        frame[18..20].copy_from_slice(&word(length).to_be_bytes());
        frame[20..22].copy_from_slice(&[kind.protocol.0, 64]);
        frame[22..38].copy_from_slice(&SOURCE_6.octets());
        frame[38..54].copy_from_slice(&DESTINATION_6.octets());
    } else {
        frame[12..14].copy_from_slice(&[8, 0]);
        let header = Ipv4Header {
            source: SOURCE,
            destination: DESTINATION,
            protocol: kind.protocol,
            traffic_class: TrafficClass(0),
            total_length: word(length + Ipv4::HEADER_BYTES),
            identification: 100,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            time_to_live: 64,
        };
        header.emit(&mut frame[ETHERNET..]).expect("there is room for a header");
    }
    let message = &mut frame[transport..];
    if kind.protocol == IpProtocol::TCP {
        message[4..8].copy_from_slice(&0xffff_f000_u32.to_be_bytes());
        message[12..14].copy_from_slice(&[0x50, 0x19]);
        message[18..20].fill(0);
    } else {
        message[4..6].copy_from_slice(&word(length).to_be_bytes());
    }
    let field = usize::from(kind.field());
    message[field..field + 2].fill(0);
    let sum = kind.pseudo().sum_over(kind.protocol, message).finish_nonzero();
    message[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Replaces the checksum of a packet made of [`complete`] by the pseudo-header's sum.
///
/// # Panics
/// If the packet is shorter than its headers.
pub fn make_partial(packet: &mut Packet, kind: FrameProtocols) {
    let start = kind.transport();
    let length = u32::from(word(packet.len() - start));
    let sum = kind.pseudo().sum(kind.protocol, length).partial();
    let field = start + usize::from(kind.field());
    packet.bytes_mut()[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    packet.checksum = ChecksumState::Partial;
    packet.checksum_start = word(start);
    packet.checksum_offset = kind.field();
}

/// Makes a TCP packet a super-packet.
///
/// # Panics
/// As [`make_partial`].
pub fn make_super(packet: &mut Packet, kind: FrameProtocols, size: u16) {
    make_partial(packet, kind);
    let segmentation = if kind.is_ipv6 { SegmentationKind::Tcp6 } else { SegmentationKind::Tcp4 };
    Measure::describe(packet, Segmentation { size, kind: segmentation, ..Segmentation::default() });
}

fn word(length: usize) -> u16 {
    u16::try_from(length).expect("a packet of up to 65 535 bytes")
}
