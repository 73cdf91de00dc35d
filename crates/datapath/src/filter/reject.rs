//! Replies to rejected packets: a TCP reset (RFC 9293, 3.10.7.1) or an ICMP error (RFC 792, RFC 1812 5.2.7.1;
//! RFC 4443, 3.1).
//!
//! A bridge has no address of its own, so the reply's source is the packet's destination, in the IP header
//! and in the Ethernet header. The reply is sent by the packet's ingress, with its tag. No reply is sent to
//! ICMP errors, resets, later fragments, multicast, addresses that are not a station's (RFC 1122, 3.2.2; RFC
//! 4443, 2.4 (e)), and packets with wrong checksums.

use crate::parse::{HeaderSummary, Network};
use crate::reply::{IcmpError, are_stations, ip_bytes, is_error, write_ip, write_link};
use crate::wire::{
    Dscp, Ecn, Ethernet, Icmp, IcmpHeader, Icmpv6, IpProtocol, Ipv4, MacAddress, Pseudo, Tcp, TcpFlags,
    TrafficClass,
};
use polder_buffers::{ChecksumState, Packet, Pool};

/// ICMP codes of "destination unreachable" (RFC 792, RFC 1812).
const PORT_UNREACHABLE: u8 = 3;
const ADMINISTRATIVELY_PROHIBITED: u8 = 13;
/// ICMPv6 codes of "destination unreachable" (RFC 4443, 3.1).
const PORT_UNREACHABLE_V6: u8 = 4;
const ADMINISTRATIVELY_PROHIBITED_V6: u8 = 1;
/// DSCP and ECN of a reply.
const TRAFFIC_CLASS: TrafficClass = TrafficClass::new(Dscp::DEFAULT, Ecn::NotCapable);
/// Length of a TCP header without options, in bytes.
const TCP: usize = Tcp::HEADER_BYTES;

/// Fields of a rejected IP packet that a reply needs.
#[derive(Clone, Copy)]
struct Asked<'a> {
    /// Offset of its IP header in the frame.
    offset: usize,
    /// Destination MAC address of the packet.
    station: MacAddress,
    pseudo: Pseudo,
    protocol: IpProtocol,
    /// Length of the upper-layer message by the IP header.
    upper_length: usize,
    /// Bytes of the upper-layer message in the first frame.
    upper: &'a [u8],
}

/// Returns the reply to a packet; `None` if it must not be answered or the pool is empty.
#[cold]
pub(super) fn answer(packet: &Packet, pool: &mut Pool) -> Option<Packet> {
    let asked = Asked::read(packet)?;
    if !asked.has_right_checksum(packet) {
        return None;
    }
    let mut reply = Packet::new(pool.take()?);
    let written = match asked.protocol {
        IpProtocol::TCP => asked.write_reset(packet, &mut reply),
        _ => asked.write_error(packet, &mut reply),
    };
    if written.is_none() {
        pool.release_packet(reply);
        return None;
    }
    reply.network_offset = packet.network_offset;
    Some(reply)
}

impl<'a> Asked<'a> {
    fn read(packet: &'a Packet) -> Option<Self> {
        let (headers, bytes) = HeaderSummary::read_with_bytes(packet);
        let ethernet = Ethernet::parse(bytes).ok()?;
        let station = ethernet.destination();
        let pseudo = headers.addresses(bytes)?.pseudo();
        let (protocol, upper) = (headers.protocol(), headers.payload(bytes));
        let is_reset = || Tcp::parse(upper).map_or(true, |segment| segment.flags().contains(TcpFlags::RST));
        let is_told = headers.has_transport()
            && station.is_station()
            && ethernet.source().is_station()
            && are_stations(pseudo)
            && !is_error(headers, bytes)
            && !(protocol == IpProtocol::TCP && is_reset());
        if headers.network() == Network::Ipv4 {
            Ipv4::parse_head(headers.network_header(bytes), usize::MAX).and_then(|ip| ip.verify()).ok()?;
        }
        let upper_length = headers.end(bytes, packet.len()).checked_sub(headers.transport_offset())?;
        let offset = headers.network_offset();
        is_told.then_some(Self { offset, station, pseudo, protocol, upper_length, upper })
    }

    /// True if the packet's checksum is correct or cannot be verified here: a forged packet must not trigger
    /// replies to a third party.
    fn has_right_checksum(&self, packet: &Packet) -> bool {
        let is_known = packet.checksum != ChecksumState::Unknown || self.upper.len() != self.upper_length;
        let has_one = match self.protocol {
            IpProtocol::TCP => true,
            IpProtocol::UDP => self.upper.get(6..8) != Some(&[0, 0]),
            _ => false,
        };
        is_known || !has_one || self.pseudo.sum_over(self.protocol, self.upper).is_valid()
    }

    fn write_reset(&self, packet: &Packet, reply: &mut Packet) -> Option<()> {
        let tcp = Tcp::parse(self.upper).ok()?;
        let flags = tcp.flags();
        let pseudo = self.pseudo.reversed();
        let length = self.offset + ip_bytes(pseudo) + TCP;
        let (link, ip) = reply.append(u16::try_from(length).ok()?).ok()?.split_at_mut_checked(self.offset)?;
        write_link(packet, self.station, link)?;
        let segment = write_ip(ip, pseudo, TRAFFIC_CLASS, IpProtocol::TCP)?;
        let data = self.upper_length.checked_sub(tcp.header_bytes())?;
        let numbers = u32::from(flags.contains(TcpFlags::SYN)) + u32::from(flags.contains(TcpFlags::FIN));
        let length = u32::try_from(data).ok()?.wrapping_add(numbers);
        let (sequence, acknowledgement, said) = if flags.contains(TcpFlags::ACK) {
            (tcp.acknowledgement(), 0, TcpFlags::RST.0)
        } else {
            (0, tcp.sequence().wrapping_add(length), TcpFlags::RST.0 | TcpFlags::ACK.0)
        };
        let header: &mut [u8; TCP] = segment.first_chunk_mut()?;
        header.fill(0);
        header[0..2].copy_from_slice(&tcp.destination_port().to_be_bytes());
        header[2..4].copy_from_slice(&tcp.source_port().to_be_bytes());
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        header[8..12].copy_from_slice(&acknowledgement.to_be_bytes());
        // Data offset in words, then flags.
        header[12] = 5 << 4;
        header[13] = said;
        let checksum = pseudo.sum_over(IpProtocol::TCP, header).finish();
        header[16..18].copy_from_slice(&checksum.to_be_bytes());
        Some(())
    }

    fn write_error(&self, packet: &Packet, reply: &mut Packet) -> Option<()> {
        let is_udp = self.protocol == IpProtocol::UDP;
        let (kind, code) = match (self.pseudo, is_udp) {
            (Pseudo::V4 { .. }, true) => (Icmp::UNREACHABLE, PORT_UNREACHABLE),
            (Pseudo::V4 { .. }, false) => (Icmp::UNREACHABLE, ADMINISTRATIVELY_PROHIBITED),
            (Pseudo::V6 { .. }, true) => (Icmpv6::UNREACHABLE, PORT_UNREACHABLE_V6),
            (Pseudo::V6 { .. }, false) => (Icmpv6::UNREACHABLE, ADMINISTRATIVELY_PROHIBITED_V6),
        };
        let error = IcmpError {
            station: self.station,
            addresses: self.pseudo.reversed(),
            traffic_class: TRAFFIC_CLASS,
            header: IcmpHeader { kind, code, rest: 0 },
            most: usize::MAX,
        };
        error.write(reply, packet, self.offset)
    }
}
