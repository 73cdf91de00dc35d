//! TCP and UDP packets in their frames.

use polder_buffers::{ChecksumState, OuterHeaders, Packet, Segmentation, SegmentationKind};
use polder_datapath::wire::{IpProtocol, Ipv4, Ipv4Header, Ipv6, Pseudo, Tcp, TrafficClass, Udp};
use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) const ETHERNET: usize = 14;
const SOURCE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const SOURCE_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const DESTINATION_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// Protocols of a frame.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) protocol: IpProtocol,
    pub(crate) is_ipv6: bool,
}

impl Kind {
    pub(crate) fn transport(self) -> usize {
        ETHERNET + if self.is_ipv6 { Ipv6::HEADER_BYTES } else { Ipv4::HEADER_BYTES }
    }

    fn header(self) -> usize {
        if self.protocol == IpProtocol::TCP { Tcp::HEADER_BYTES } else { Udp::HEADER_BYTES }
    }

    pub(crate) fn field(self) -> u16 {
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

/// A complete frame with `payload` bytes.
pub(crate) fn complete(kind: Kind, payload: usize) -> Vec<u8> {
    let transport = kind.transport();
    let mut frame = crate::stand::frame(7, transport + kind.header() + payload);
    let length = frame.len() - transport;
    if kind.is_ipv6 {
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[14..18].copy_from_slice(&[0x60, 0, 0, 0]);
        frame[18..20].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
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
            total_length: u16::try_from(length + Ipv4::HEADER_BYTES).unwrap(),
            identification: 100,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            time_to_live: 64,
        };
        header.emit(&mut frame[ETHERNET..]).unwrap();
    }
    let message = &mut frame[transport..];
    if kind.protocol == IpProtocol::TCP {
        message[4..8].copy_from_slice(&0xffff_f000_u32.to_be_bytes());
        message[12..14].copy_from_slice(&[0x50, 0x19]);
        message[18..20].fill(0);
    } else {
        message[4..6].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
    }
    let field = usize::from(kind.field());
    message[field..field + 2].fill(0);
    let sum = kind.pseudo().sum_over(kind.protocol, message).finish_nonzero();
    message[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Leaves only the pseudo-header's sum in the checksum of a packet made of [`complete`].
pub(crate) fn make_partial(packet: &mut Packet, kind: Kind) {
    let start = kind.transport();
    let length = u32::try_from(packet.len() - start).unwrap();
    let sum = kind.pseudo().sum(kind.protocol, length).partial();
    let field = start + usize::from(kind.field());
    packet.bytes_mut()[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    packet.checksum = ChecksumState::Partial;
    packet.checksum_start = u16::try_from(start).unwrap();
    packet.checksum_offset = kind.field();
}

/// Makes a TCP packet one that is to be cut.
pub(crate) fn make_super(packet: &mut Packet, kind: Kind, size: u16) {
    make_partial(packet, kind);
    let segmentation = if kind.is_ipv6 { SegmentationKind::Tcp6 } else { SegmentationKind::Tcp4 };
    packet.segmentation = Segmentation { size, kind: segmentation, outer: OuterHeaders::NONE };
}
