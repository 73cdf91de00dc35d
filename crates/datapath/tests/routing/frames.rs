//! Frames, written with etherparse; and what has to become of them, worked out naively.

use crate::stand::ip;
use etherparse::{
    EtherType, Ethernet2Header, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder,
    SingleVlanHeader, UdpHeader, VlanId,
};
use polder_datapath::wire::MacAddress;
use std::net::IpAddr;

/// Fields of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) to: MacAddress,
    pub(crate) from: MacAddress,
    pub(crate) vlan: Option<u16>,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) hops: u8,
    pub(crate) payload: Vec<u8>,
    pub(crate) dont_fragment: bool,
    pub(crate) options: Vec<u8>,
    /// Bytes behind the IP packet.
    pub(crate) padding: usize,
}

impl Frame {
    pub(crate) fn new(to: MacAddress, from: MacAddress, source: &str, destination: &str) -> Self {
        Self {
            to,
            from,
            vlan: None,
            source: ip(source),
            destination: ip(destination),
            hops: 64,
            payload: (0..26).collect(),
            dont_fragment: false,
            options: Vec::new(),
            padding: 0,
        }
    }

    /// The frame: UDP from port 1000 to port 53.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let length = u16::try_from(UdpHeader::LEN + self.payload.len()).expect("short");
        let mut udp = Vec::new();
        let header = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => UdpHeader::with_ipv4_checksum(
                1000,
                53,
                &Ipv4Header::new(length, 1, IpNumber::UDP, source.octets(), destination.octets())
                    .expect("short"),
                &self.payload,
            ),
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                UdpHeader::with_ipv6_checksum(1000, 53, &v6(length, 1, source, destination), &self.payload)
            }
            _ => unreachable!("one family"),
        };
        udp.extend(header.expect("short").to_bytes());
        udp.extend(&self.payload);
        self.carrying(IpNumber::UDP, &udp)
    }

    /// The frame with another payload behind the IP header.
    pub(crate) fn carrying(&self, protocol: IpNumber, payload: &[u8]) -> Vec<u8> {
        let ether_type = if self.source.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let mut bytes = self.link(ether_type);
        let length = u16::try_from(payload.len()).expect("short");
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header =
                    Ipv4Header::new(length, self.hops, protocol, source.octets(), destination.octets())
                        .expect("short");
                header.dont_fragment = self.dont_fragment;
                header.identification = 0x1234;
                if !self.options.is_empty() {
                    header.options = self.options.as_slice().try_into().expect("whole words");
                    header.set_payload_len(payload.len()).expect("short");
                }
                header.header_checksum = header.calc_header_checksum();
                bytes.extend(header.to_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut header = v6(length, self.hops, source, destination);
                header.next_header = protocol;
                bytes.extend(header.to_bytes());
            }
            _ => unreachable!("one family"),
        }
        bytes.extend(payload);
        bytes.extend(vec![0xee; self.padding]);
        bytes
    }

    /// The link header.
    pub(crate) fn link(&self, ether_type: EtherType) -> Vec<u8> {
        let outer = if self.vlan.is_some() { EtherType::VLAN_TAGGED_FRAME } else { ether_type };
        let mut bytes = Ethernet2Header { source: self.from.0, destination: self.to.0, ether_type: outer }
            .to_bytes()
            .to_vec();
        if let Some(vlan) = self.vlan {
            let tag = SingleVlanHeader {
                vlan_id: VlanId::try_new(vlan).expect("a VLAN"),
                ether_type,
                ..SingleVlanHeader::default()
            };
            bytes.extend(tag.to_bytes());
        }
        bytes
    }

    /// Frame as a router sends it: one hop less, other addresses and tag, no padding.
    pub(crate) fn routed(&self, from: MacAddress, to: MacAddress, vlan: Option<u16>) -> Vec<u8> {
        Self { from, to, vlan, hops: self.hops - 1, padding: 0, ..self.clone() }.bytes()
    }
}

fn v6(length: u16, hops: u8, source: std::net::Ipv6Addr, destination: std::net::Ipv6Addr) -> Ipv6Header {
    Ipv6Header {
        traffic_class: 0xb8,
        flow_label: Ipv6FlowLabel::try_new(0x12345).expect("20 bits"),
        payload_length: length,
        next_header: IpNumber::UDP,
        hop_limit: hops,
        source: source.octets(),
        destination: destination.octets(),
    }
}

/// An echo request.
pub(crate) fn echo(frame: &Frame, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(frame.from.0, frame.to.0);
    let mut bytes = Vec::new();
    match (frame.source, frame.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => builder
            .ipv4(source.octets(), destination.octets(), frame.hops)
            .icmpv4_echo_request(7, 9)
            .write(&mut bytes, payload),
        (IpAddr::V6(source), IpAddr::V6(destination)) => builder
            .ipv6(source.octets(), destination.octets(), frame.hops)
            .icmpv6_echo_request(7, 9)
            .write(&mut bytes, payload),
        _ => unreachable!("one family"),
    }
    .expect("short");
    bytes
}

/// The one's complement sum over everything, written as the RFC says it.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}

/// Checks an ICMP or ICMPv6 message to the end; its kind, code, second half and what it quotes.
pub(crate) fn message(frame: &[u8]) -> (u8, u8, u32, Vec<u8>) {
    let ip = &frame[14..];
    let icmp = if ip[0] >> 4 == 4 {
        assert_eq!((sum(&ip[..20]), ip[9], ip[8]), (0xffff, 1, 64));
        assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
        assert_eq!(sum(&ip[20..]), 0xffff);
        &ip[20..]
    } else {
        assert_eq!(usize::from(u16::from_be_bytes([ip[4], ip[5]])), ip.len() - 40);
        let mut pseudo = ip[8..40].to_vec();
        pseudo.extend(u32::try_from(ip.len() - 40).expect("short").to_be_bytes());
        pseudo.extend([0, 0, 0, 58]);
        pseudo.extend(&ip[40..]);
        assert_eq!((ip[6], sum(&pseudo)), (58, 0xffff));
        &ip[40..]
    };
    let rest = u32::from_be_bytes([icmp[4], icmp[5], icmp[6], icmp[7]]);
    (icmp[0], icmp[1], rest, icmp[8..].to_vec())
}
