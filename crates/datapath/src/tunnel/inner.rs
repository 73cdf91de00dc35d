//! Fields of the inner frame that the tunnel stages need.

use super::ETHERNET_BYTES;
use crate::drops::DropReason;
use crate::wire::{Ecn, EtherType, Ethernet, IpProtocol, Ipv4, Ipv4Mut, Ipv6, Ipv6Mut, Link, TrafficClass};
use polder_buffers::Packet;

/// The network protocol of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Network {
    Ipv4,
    Ipv6,
    Other,
}

/// Fields of the inner frame that the tunnel stages need. Nothing else is checked: a bridge carries
/// frames that it does not understand.
///
/// One word, so that it stays in a register: from the lowest bits on 16 for the bytes before the network
/// header, 8 each for network, traffic class, time to live and protocol.
#[derive(Clone, Copy)]
pub(super) struct Inner(u64);

impl Inner {
    #[inline(always)]
    fn new(network_offset: u16, network: Network, class: TrafficClass, ttl: u8, next: IpProtocol) -> Self {
        let [low, high] = network_offset.to_le_bytes();
        Self(u64::from_le_bytes([low, high, network as u8, class.0, ttl, next.0, 0, 0]))
    }

    /// Looks at the first bytes of a frame.
    #[inline(always)]
    pub(super) fn look(bytes: &[u8]) -> Self {
        const LENGTH: usize = Ethernet::HEADER_BYTES + Ipv4::HEADER_BYTES;
        if let Some(bytes) = bytes.first_chunk::<LENGTH>()
            && u16::from_be_bytes([bytes[12], bytes[13]]) == EtherType::IPV4.0
            && bytes[14] >> 4 == 4
        {
            let (class, protocol) = (TrafficClass(bytes[15]), IpProtocol(bytes[23]));
            return Self::new(ETHERNET_BYTES, Network::Ipv4, class, bytes[22], protocol);
        }
        Self::look_further(bytes)
    }

    #[inline(never)]
    fn look_further(bytes: &[u8]) -> Self {
        let other =
            |offset| Self::new(offset, Network::Other, TrafficClass(0), 0, IpProtocol::NO_NEXT_HEADER);
        let Ok(link) = Link::parse(bytes) else { return other(ETHERNET_BYTES) };
        let offset = u16::try_from(link.header_bytes()).unwrap_or(ETHERNET_BYTES);
        let packet = link.payload();
        match link.ether_type() {
            EtherType::IPV4 => Ipv4::parse_head(packet, usize::MAX).map_or(other(offset), |ip| {
                Self::new(offset, Network::Ipv4, ip.traffic_class(), ip.time_to_live(), ip.protocol())
            }),
            EtherType::IPV6 => Ipv6::parse_head(packet, usize::MAX).map_or(other(offset), |ip| {
                Self::new(offset, Network::Ipv6, ip.traffic_class(), ip.hop_limit(), ip.next_header())
            }),
            _ => other(offset),
        }
    }

    #[inline(always)]
    fn byte(self, index: usize) -> u8 {
        self.0.to_le_bytes()[index]
    }

    /// Bytes before the network header: Ethernet header and tags.
    #[inline(always)]
    pub(super) fn network_offset(self) -> usize {
        usize::from(u16::from_le_bytes([self.byte(0), self.byte(1)]))
    }

    /// `Ipv4` and `Ipv6` have their fixed header in the bytes and the right version.
    #[inline(always)]
    pub(super) fn network(self) -> Network {
        match self.byte(2) {
            IPV4 => Network::Ipv4,
            IPV6 => Network::Ipv6,
            _ => Network::Other,
        }
    }

    /// Protocol behind the IPv4 header, or the fixed IPv6 header.
    #[inline(always)]
    pub(super) fn protocol(self) -> IpProtocol {
        IpProtocol(self.byte(5))
    }

    /// Flow inside, where its headers usually stand.
    #[inline(always)]
    pub(super) fn flow(self, frame: &[u8]) -> Flow {
        const PORTS: usize = Ethernet::HEADER_BYTES + Ipv4::HEADER_BYTES;
        const PLACE: u64 = 0xff_ffff;
        const AT: u64 = (IPV4 as u64) << 16 | ETHERNET_BYTES as u64;
        const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
        const SECOND: u64 = 0xc2b2_ae3d_27d4_eb4f;
        let Some(frame) = frame.first_chunk::<{ PORTS + 4 }>() else { return Flow::default() };
        let is_usual = self.0 & PLACE == AT
            && matches!(self.protocol(), IpProtocol::TCP | IpProtocol::UDP)
            && frame[14] == 0x45
            && u16::from_be_bytes([frame[20], frame[21]]) & 0x3fff == 0;
        if !is_usual {
            return Flow::default();
        }
        let [.., a, b, c, d, e, f, g, h, i, j, k, l] = *frame;
        let addresses = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let ports = u64::from(u32::from_be_bytes([i, j, k, l]));
        let mixed = (addresses ^ FIRST).wrapping_mul(SECOND);
        let hash = (mixed ^ mixed >> 32 ^ ports << 8).wrapping_mul(FIRST) >> 32;
        Flow(Flow::KNOWN | (ports & 0xffff) << 32 | hash)
    }

    /// Traffic class and time to live of an IP packet; `None` for anything else.
    #[inline(always)]
    pub(super) fn ip(self) -> Option<(TrafficClass, u8)> {
        (self.network() != Network::Other).then_some((TrafficClass(self.byte(3)), self.byte(4)))
    }
}

/// Flow of TCP or UDP in a whole IPv4 packet without options or tags; unknown of everything else.
///
/// One word, so that it stays in a register: the hash lowest, the destination port from bit 32 on, bit 63 if known.
#[derive(Clone, Copy, Default)]
pub(super) struct Flow(u64);

impl Flow {
    const KNOWN: u64 = 1 << 63;

    /// Hash of addresses and ports.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the field is 32 bits wide")]
    pub(super) fn hash(self) -> Option<u32> {
        (self.0 & Self::KNOWN != 0).then_some(self.0 as u32)
    }

    /// Destination port.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the field is 16 bits wide")]
    pub(super) fn destination_port(self) -> Option<u16> {
        (self.0 & Self::KNOWN != 0).then_some((self.0 >> 32) as u16)
    }
}

const IPV4: u8 = Network::Ipv4 as u8;
const IPV6: u8 = Network::Ipv6 as u8;

/// Carries the outer congestion mark into the inner IP packet (RFC 6040, 4.2). Other payloads have
/// no place for it.
#[cold]
pub(super) fn merge_ecn(packet: &mut Packet, strip: u16, outer: Ecn) -> Result<(), DropReason> {
    let Some(frame) = packet.bytes_mut().get_mut(usize::from(strip)..) else { return Ok(()) };
    let inner = Inner::look(frame);
    let Some((class, _)) = inner.ip() else { return Ok(()) };
    let ecn = Ecn::decapsulate(outer, class.ecn()).map_err(|_| DropReason::EcnNotCapable)?;
    let class = class.with_ecn(ecn);
    let header = frame.get_mut(inner.network_offset()..).unwrap_or_default();
    match inner.network() {
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
            assert_eq!((look.network(), look.network_offset()), (Network::Ipv4, 14 + tags * 4));
            assert_eq!((look.ip(), look.protocol()), (Some((TrafficClass(0xb9), 33)), IpProtocol::UDP));
            let look = Inner::look(&frame(tags, 0x86dd, &six));
            assert_eq!((look.network(), look.network_offset()), (Network::Ipv6, 14 + tags * 4));
            assert_eq!((look.ip(), look.protocol()), (Some((TrafficClass(0xb9), 44)), IpProtocol::TCP));
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
            assert_eq!((look.network(), look.ip()), (Network::Other, None));
        }
    }
}
