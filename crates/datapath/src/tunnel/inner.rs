//! What the tunnel stages ask of the frame inside.

use crate::drops::DropReason;
use crate::wire::{Ecn, EtherType, Ethernet, IpProtocol, Ipv4, Ipv4Mut, Ipv6, Ipv6Mut, Link, TrafficClass};
use polder_buffers::Packet;

/// The network protocol of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    Ipv4,
    Ipv6,
    Other,
}

/// What the tunnel stages ask of the frame inside. Not checked any further than is said here: a
/// bridge carries what it does not understand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inner {
    /// Bytes before the network header: Ethernet header and tags.
    pub(super) network_offset: usize,
    /// `Ipv4` and `Ipv6` have their fixed header in the bytes and the right version.
    pub(super) network: Network,
    /// Of an IP packet.
    pub(super) traffic_class: TrafficClass,
    /// Time to live or hop limit of an IP packet.
    pub(super) time_to_live: u8,
    /// What follows the IPv4 header, or the fixed IPv6 header.
    pub(super) protocol: IpProtocol,
}

impl Inner {
    /// Looks at the first bytes of a frame.
    #[inline(always)]
    pub(super) fn look(bytes: &[u8]) -> Self {
        const LENGTH: usize = Ethernet::HEADER_BYTES + Ipv4::HEADER_BYTES;
        if let Some(bytes) = bytes.first_chunk::<LENGTH>()
            && u16::from_be_bytes([bytes[12], bytes[13]]) == EtherType::IPV4.0
            && bytes[14] >> 4 == 4
        {
            return Self {
                network_offset: Ethernet::HEADER_BYTES,
                network: Network::Ipv4,
                traffic_class: TrafficClass(bytes[15]),
                time_to_live: bytes[22],
                protocol: IpProtocol(bytes[23]),
            };
        }
        Self::look_further(bytes)
    }

    #[inline(never)]
    fn look_further(bytes: &[u8]) -> Self {
        let mut inner = Self {
            network_offset: Ethernet::HEADER_BYTES,
            network: Network::Other,
            traffic_class: TrafficClass(0),
            time_to_live: 0,
            protocol: IpProtocol::NO_NEXT_HEADER,
        };
        let Ok(link) = Link::parse(bytes) else { return inner };
        inner.network_offset = link.header_bytes();
        let packet = link.payload();
        match link.ether_type() {
            EtherType::IPV4 => {
                if let Ok(ip) = Ipv4::parse_head(packet, usize::MAX) {
                    inner.network = Network::Ipv4;
                    inner.traffic_class = ip.traffic_class();
                    inner.time_to_live = ip.time_to_live();
                    inner.protocol = ip.protocol();
                }
            }
            EtherType::IPV6 => {
                if let Ok(ip) = Ipv6::parse_head(packet, usize::MAX) {
                    inner.network = Network::Ipv6;
                    inner.traffic_class = ip.traffic_class();
                    inner.time_to_live = ip.hop_limit();
                    inner.protocol = ip.next_header();
                }
            }
            _ => {}
        }
        inner
    }

    /// Traffic class and time to live of an IP packet; `None` for anything else.
    #[inline(always)]
    pub(super) fn ip(&self) -> Option<(TrafficClass, u8)> {
        (self.network != Network::Other).then_some((self.traffic_class, self.time_to_live))
    }
}

/// Carries what the network said of congestion into the IP packet inside (RFC 6040, 4.2). What is
/// not IP has no place for it.
#[cold]
pub(super) fn merge_ecn(packet: &mut Packet, strip: u16, outer: Ecn) -> Result<(), DropReason> {
    let Some(frame) = packet.bytes_mut().get_mut(usize::from(strip)..) else { return Ok(()) };
    let inner = Inner::look(frame);
    let Some((class, _)) = inner.ip() else { return Ok(()) };
    let ecn = Ecn::decapsulate(outer, class.ecn()).map_err(|_| DropReason::EcnNotCapable)?;
    let class = class.with_ecn(ecn);
    let header = frame.get_mut(inner.network_offset..).unwrap_or_default();
    match inner.network {
        Network::Ipv4 => {
            if let Ok(mut ip) = Ipv4Mut::parse_head(header, usize::MAX) {
                ip.set_traffic_class(class);
            }
        }
        Network::Ipv6 => {
            if let Ok(mut ip) = Ipv6Mut::parse_head(header, usize::MAX) {
                ip.set_traffic_class(class);
            }
        }
        Network::Other => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tags: usize, ether_type: u16, packet: &[u8]) -> Vec<u8> {
        let tags = [0x81, 0, 0, 7].repeat(tags);
        [&[2; 12][..], &tags, &ether_type.to_be_bytes(), packet].concat()
    }

    /// The short way and the long way agree.
    #[test]
    fn what_is_inside() {
        let mut four = [0; 24];
        four[..4].copy_from_slice(&[0x45, 0xb9, 0, 24]);
        (four[8], four[9]) = (33, 17);
        let mut six = [0; 40];
        six[..8].copy_from_slice(&[0x6b, 0x90, 0, 0, 0, 0, 6, 44]);
        for tags in 0..3 {
            let look = Inner::look(&frame(tags, 0x0800, &four));
            assert_eq!((look.network, look.network_offset), (Network::Ipv4, 14 + tags * 4));
            assert_eq!((look.ip(), look.protocol), (Some((TrafficClass(0xb9), 33)), IpProtocol::UDP));
            let look = Inner::look(&frame(tags, 0x86dd, &six));
            assert_eq!((look.network, look.network_offset), (Network::Ipv6, 14 + tags * 4));
            assert_eq!((look.ip(), look.protocol), (Some((TrafficClass(0xb9), 44)), IpProtocol::TCP));
        }
    }

    #[test]
    fn what_is_none_of_it() {
        let short = [0x45; 19];
        let frames = [
            Vec::new(),
            vec![0; 13],
            frame(0, 0x0806, &[0; 28]),
            frame(0, 0x0800, &short),
            frame(1, 0x0800, &short),
            frame(0, 0x0800, &[0x65; 40]),
            frame(0, 0x86dd, &[0x45; 40]),
            frame(0, 0x86dd, &[0x60; 39]),
        ];
        for bytes in frames {
            let look = Inner::look(&bytes);
            assert_eq!((look.network, look.ip()), (Network::Other, None));
        }
    }
}
