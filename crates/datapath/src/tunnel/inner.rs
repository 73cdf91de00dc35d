//! Fields of the inner packet that are copied to outer headers.

use super::mss::clamp_syn;
use super::options::Ttl;
use super::{TcpMss, Tunnel, TunnelCounters};
use crate::parse::{HeaderSummary, Network};
use crate::wire::{Ethernet, IpProtocol, Ipv4, Ipv6, TcpFlags, TrafficClass};
use polder_buffers::Packet;

/// Header fields of a packet that enters a tunnel; it need not be IP.
#[derive(Clone, Copy)]
pub(super) struct Inner {
    pub(super) headers: HeaderSummary,
    /// Traffic class; 0 if the packet is not IP.
    pub(super) class: TrafficClass,
    /// TTL or hop limit; the default if the packet is not IP.
    pub(super) ttl: u8,
    pub(super) flow: Flow,
}

/// Flow of TCP or UDP in an unfragmented IP packet without options, extension headers or tags; unknown for
/// other packets.
///
/// One word, so that it stays in a register: hash in bits 0 to 31, destination port from bit 32 on, bit 63
/// set if known.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Flow(u64);

/// Length in bytes of plain IPv4 headers with the ports after them.
const PLAIN: usize = Ethernet::HEADER_BYTES + Ipv4::HEADER_BYTES + 4;
/// Length in bytes of plain IPv6 headers with the ports after them.
const PLAIN_V6: usize = Ethernet::HEADER_BYTES + Ipv6::HEADER_BYTES + 4;
/// Odd multiplier with well-mixed bits: 2⁶⁴ divided by the golden ratio. BPF programs compute the same
/// hashes.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Offset of the flags in a TCP header.
const FLAGS: usize = 13;

impl Inner {
    /// Reads the header fields of a packet and stores its summary; the flow only if `wants_flow`.
    #[inline(always)]
    pub(super) fn of(packet: &mut Packet, wants_flow: bool) -> Self {
        let (headers, bytes) = HeaderSummary::with_bytes(packet);
        if headers.is_plain_v4()
            && let Some(head) = bytes.first_chunk()
        {
            let flow = if wants_flow { Flow::read(headers.protocol(), head) } else { Flow::default() };
            return Self { headers, class: TrafficClass(head[15]), ttl: head[22], flow };
        }
        let (class, ttl) = class_and_ttl(headers, bytes);
        let is_known = wants_flow && headers.is_plain_v6();
        let flow = if is_known { Flow::read_v6(headers.protocol(), bytes) } else { Flow::default() };
        Self { headers, class, ttl, flow }
    }
}

/// Traffic class and TTL of any packet.
#[inline(never)]
pub(super) fn class_and_ttl(headers: HeaderSummary, bytes: &[u8]) -> (TrafficClass, u8) {
    match (headers.network(), headers.network_header(bytes)) {
        (Network::Ipv4, &[_, class, _, _, _, _, _, _, ttl, ..]) => (TrafficClass(class), ttl),
        (Network::Ipv6, &[first, second, _, _, _, _, _, ttl, ..]) => {
            (TrafficClass(first << 4 | second >> 4), ttl)
        }
        (Network::Ipv4 | Network::Ipv6 | Network::Other, _) => (TrafficClass(0), Ttl::DEFAULT.get()),
    }
}

impl Flow {
    const KNOWN: u64 = 1 << 63;

    /// Flow of a plain IPv4 packet of this protocol.
    #[inline(always)]
    fn read(protocol: IpProtocol, headers: &[u8; PLAIN]) -> Self {
        if !matches!(protocol, IpProtocol::TCP | IpProtocol::UDP) {
            return Self::default();
        }
        let &[.., a, b, c, d, e, f, g, h, i, j, k, l] = headers;
        let addresses = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let ports = u64::from_le_bytes([0, 0, 0, 0, i, j, k, l]);
        Self::new(addresses ^ ports, u16::from_be_bytes([k, l]))
    }

    /// Flow of a plain IPv6 packet of this protocol.
    fn read_v6(protocol: IpProtocol, headers: &[u8]) -> Self {
        let Some(headers) = headers.first_chunk::<PLAIN_V6>() else { return Self::default() };
        if !matches!(protocol, IpProtocol::TCP | IpProtocol::UDP) {
            return Self::default();
        }
        let (_, addresses) = headers.split_at(Ethernet::HEADER_BYTES + 8);
        let (words, ports) = addresses.as_chunks::<8>();
        let mixed =
            words.iter().fold(0_u64, |mixed, word| mixed.wrapping_mul(FACTOR) ^ u64::from_le_bytes(*word));
        let &[i, j, k, l] = ports else { return Self::default() };
        Self::new(mixed ^ u64::from_le_bytes([0, 0, 0, 0, i, j, k, l]), u16::from_be_bytes([k, l]))
    }

    #[inline(always)]
    const fn new(mixed: u64, destination_port: u16) -> Self {
        let hash = mixed.wrapping_mul(FACTOR) >> 32;
        Self(Self::KNOWN | (destination_port as u64) << 32 | hash)
    }

    /// True if the flow is known.
    #[inline(always)]
    pub(super) fn is_known(self) -> bool {
        self.0 & Self::KNOWN != 0
    }

    /// Hash of addresses and ports of a known flow.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the field is 32 bits wide")]
    pub(super) fn hash(self) -> u32 {
        self.0 as u32
    }

    /// Destination port of a known flow.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the field is 16 bits wide")]
    pub(super) fn destination_port(self) -> u16 {
        (self.0 >> 32) as u16
    }
}

/// Lowers the MSS option of a SYN to the tunnel's limit.
///
/// Cost: one comparison for other protocols, one load and test for TCP segments without SYN.
#[inline(always)]
pub(super) fn clamp_mss(
    packet: &mut Packet,
    headers: HeaderSummary,
    tunnel: &Tunnel,
    counters: &TunnelCounters,
) {
    if headers.protocol() != IpProtocol::TCP
        || !headers.has_transport()
        || tunnel.options.tcp_mss == TcpMss::Off
    {
        return;
    }
    let flags = packet.bytes().get(headers.transport_offset() + FLAGS);
    if flags.is_some_and(|&flags| TcpFlags(flags).contains(TcpFlags::SYN)) {
        clamp_syn(packet, headers, tunnel, counters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_buffers::{Region, RegionOptions};

    fn frame(tags: usize, ether_type: u16, packet: &[u8]) -> Vec<u8> {
        let tags = [0x81, 0, 0, 7].repeat(tags);
        [&[2; 12][..], &tags, &ether_type.to_be_bytes(), packet].concat()
    }

    /// Traffic class and time to live; the short way and the long way agree.
    fn fields(frame: &[u8]) -> (TrafficClass, u8) {
        let region = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 }).expect("memory for a test");
        let mut packet = Packet::copy_from(frame, &mut region.pool()).expect("a free slot");
        let headers = HeaderSummary::parse(frame, frame.len());
        let Inner { class, ttl, .. } = Inner::of(&mut packet, false);
        assert_eq!(class_and_ttl(headers, frame), (class, ttl));
        (class, ttl)
    }

    #[test]
    fn flows_are_of_ports() {
        let flow = |change: usize, protocol| {
            let mut headers = [7; PLAIN];
            headers[change] ^= 1;
            Flow::read(protocol, &headers)
        };
        let hash = |change, protocol| flow(change, protocol).hash();
        assert_eq!(hash(0, IpProtocol::UDP), hash(25, IpProtocol::TCP), "what is no address");
        for change in 26..38 {
            assert_ne!(hash(change, IpProtocol::UDP), hash(0, IpProtocol::UDP), "{change}");
        }
        assert_eq!(flow(37, IpProtocol::UDP).destination_port(), 0x0706);
        assert!(flow(37, IpProtocol::UDP).is_known() && !flow(37, IpProtocol::ICMP).is_known());
    }

    #[test]
    fn flows_of_ipv6_are_of_addresses_and_ports() {
        let flow = |change: usize, protocol| {
            let mut headers = [7; PLAIN_V6];
            headers[change] ^= 1;
            Flow::read_v6(protocol, &headers)
        };
        let hash = |change| flow(change, IpProtocol::UDP).hash();
        let other = flow(21, IpProtocol::TCP);
        assert_eq!((hash(0), other.is_known()), (other.hash(), true), "what is no address");
        for change in 22..PLAIN_V6 {
            assert_ne!(hash(change), hash(0), "{change}");
        }
        assert_eq!(flow(57, IpProtocol::UDP).destination_port(), 0x0706);
        assert!(!flow(57, IpProtocol::ICMPV6).is_known());
        assert!(!Flow::read_v6(IpProtocol::UDP, &[7; PLAIN_V6 - 1]).is_known());
    }

    #[test]
    fn what_is_inside() {
        let mut four = [0; 24];
        four[..4].copy_from_slice(&[0x45, 0xb9, 0, 24]);
        (four[8], four[9]) = (33, 17);
        let mut six = [0; 40];
        six[..8].copy_from_slice(&[0x6b, 0x90, 0, 0, 0, 0, 6, 44]);
        for tags in 0..3 {
            assert_eq!(fields(&frame(tags, 0x0800, &four)), (TrafficClass(0xb9), 33));
            assert_eq!(fields(&frame(tags, 0x86dd, &six)), (TrafficClass(0xb9), 44));
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
            assert_eq!(fields(&bytes), (TrafficClass(0), Ttl::DEFAULT.get()));
        }
    }
}
