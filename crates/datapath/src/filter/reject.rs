//! Tells the sender of a packet that it was refused: a TCP reset (RFC 9293, 3.10.7.1), or an ICMP error
//! (RFC 792, RFC 1812 5.2.7.1; RFC 4443, 3.1).
//!
//! A bridge has no address of its own to speak with, so the answer comes from the address that the packet
//! was for, in the IP header as in the Ethernet header. It leaves by the port by which the packet came,
//! with the packet's tag. Not answered: ICMP errors, resets, later fragments, groups, addresses that are
//! no station's (RFC 1122, 3.2.2; RFC 4443, 2.4 (e)), and what arrived with wrong checksums.

use crate::tunnel::reply::{LONGEST_V4, LONGEST_V6, TIME_TO_LIVE, is_station_v4, is_station_v6};
use crate::wire::{
    Dscp, Ecn, Ethernet, EthernetHeader, Icmp, IcmpHeader, Icmpv6, Icmpv6Header, IpProtocol, Ipv4,
    Ipv4Header, Ipv6, Ipv6Header, Link, Pseudo, Tcp, TcpFlags, TrafficClass,
};
use polder_buffers::{ChecksumState, Packet, Pool};

/// ICMP codes of "destination unreachable" (RFC 792, RFC 1812).
const PORT_UNREACHABLE: u8 = 3;
const ADMINISTRATIVELY_PROHIBITED: u8 = 13;
/// The same of ICMPv6 (RFC 4443, 3.1).
const PORT_UNREACHABLE_V6: u8 = 4;
const ADMINISTRATIVELY_PROHIBITED_V6: u8 = 1;
/// Bytes of a TCP header without options.
const TCP: usize = Tcp::HEADER_BYTES;

/// An IP packet of either version, as far as an answer needs it.
#[derive(Clone, Copy)]
struct Asked<'a> {
    /// Offset of its IP header in the frame.
    offset: usize,
    pseudo: Pseudo,
    protocol: IpProtocol,
    /// Length of the upper-layer message by the IP header.
    upper_length: usize,
    /// Bytes of the upper-layer message in the first frame.
    upper: &'a [u8],
}

/// The answer to a packet, if there is to be one.
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
        let link = Link::parse(packet.bytes()).ok()?;
        if !link.ethernet.destination().is_station() || !link.ethernet.source().is_station() {
            return None;
        }
        let (offset, length) = (link.header_bytes(), packet.len() - link.header_bytes());
        let asked = match link.ether_type().0 {
            0x0800 => Self::read_v4(offset, Ipv4::parse_head(link.payload(), length).ok()?),
            0x86dd => Self::read_v6(offset, Ipv6::parse_head(link.payload(), length).ok()?),
            _ => None,
        };
        asked.filter(|asked| !asked.is_error())
    }

    fn read_v4(offset: usize, ip: Ipv4<'a>) -> Option<Self> {
        let is_told = ip.fragment_offset() == 0
            && ip.verify().is_ok()
            && is_station_v4(ip.source())
            && is_station_v4(ip.destination());
        let upper_length = usize::from(ip.total_length()).checked_sub(ip.header_bytes())?;
        let (pseudo, protocol, upper) = (ip.pseudo(), ip.protocol(), ip.payload());
        is_told.then_some(Self { offset, pseudo, protocol, upper_length, upper })
    }

    fn read_v6(offset: usize, ip: Ipv6<'a>) -> Option<Self> {
        let next = ip.upper().ok()?;
        let is_told = next.has_header() && is_station_v6(ip.source()) && is_station_v6(ip.destination());
        let whole = Ipv6::HEADER_BYTES + usize::from(ip.payload_length());
        let upper_length = whole.checked_sub(next.offset)?;
        let (pseudo, protocol, upper) = (ip.pseudo(), next.protocol, next.payload);
        is_told.then_some(Self { offset, pseudo, protocol, upper_length, upper })
    }

    /// True if it is itself an error that must not cause another.
    fn is_error(&self) -> bool {
        match self.protocol {
            IpProtocol::ICMP => Icmp::parse(self.upper).map_or(true, |message| message.is_error()),
            IpProtocol::ICMPV6 => Icmpv6::parse(self.upper).map_or(true, |message| message.is_error()),
            IpProtocol::TCP => Tcp::parse(self.upper).map_or(true, |tcp| tcp.flags().contains(TcpFlags::RST)),
            _ => false,
        }
    }

    /// True if its checksum is right, as far as that can be told here: a sender that is not who it says
    /// shall not have others answered.
    fn has_right_checksum(&self, packet: &Packet) -> bool {
        let is_known = packet.checksum != ChecksumState::Unknown || self.upper.len() != self.upper_length;
        let has_one = match self.protocol {
            IpProtocol::TCP => true,
            IpProtocol::UDP => self.upper.get(6..8) != Some(&[0, 0]),
            _ => false,
        };
        is_known || !has_one || self.pseudo.sum_over(self.protocol, self.upper).is_valid()
    }

    /// The Ethernet header with its tags, the other way round.
    fn write_link(&self, packet: &Packet, link: &mut [u8]) -> Option<()> {
        let frame = packet.bytes();
        link.copy_from_slice(frame.get(..self.offset)?);
        let ethernet = Ethernet::parse(frame).ok()?;
        let (source, destination) = (ethernet.destination(), ethernet.source());
        EthernetHeader { destination, source, ether_type: ethernet.ether_type() }.emit(link).ok()?;
        Some(())
    }

    /// Writes the IP header of an answer of `bytes.len()` bytes, and returns the bytes behind it.
    fn write_ip<'b>(
        &self,
        bytes: &'b mut [u8],
        v4: IpProtocol,
        v6: IpProtocol,
    ) -> Option<(&'b mut [u8], Pseudo)> {
        let traffic_class = TrafficClass::new(Dscp::DEFAULT, Ecn::NotCapable);
        match self.pseudo {
            Pseudo::V4 { source: destination, destination: source } => {
                let header = Ipv4Header {
                    traffic_class,
                    total_length: u16::try_from(bytes.len()).ok()?,
                    identification: 0,
                    dont_fragment: true,
                    more_fragments: false,
                    fragment_offset: 0,
                    time_to_live: TIME_TO_LIVE,
                    protocol: v4,
                    source,
                    destination,
                };
                Some((header.emit(bytes).ok()?, Pseudo::V4 { source, destination }))
            }
            Pseudo::V6 { source: destination, destination: source } => {
                let header = Ipv6Header {
                    traffic_class,
                    flow_label: 0,
                    payload_length: u16::try_from(bytes.len().checked_sub(Ipv6::HEADER_BYTES)?).ok()?,
                    next_header: v6,
                    hop_limit: TIME_TO_LIVE,
                    source,
                    destination,
                };
                Some((header.emit(bytes).ok()?, Pseudo::V6 { source, destination }))
            }
        }
    }

    fn ip_bytes(&self) -> usize {
        match self.pseudo {
            Pseudo::V4 { .. } => Ipv4::HEADER_BYTES,
            Pseudo::V6 { .. } => Ipv6::HEADER_BYTES,
        }
    }

    fn write_reset(&self, packet: &Packet, reply: &mut Packet) -> Option<()> {
        let tcp = Tcp::parse(self.upper).ok()?;
        let flags = tcp.flags();
        let length = self.offset + self.ip_bytes() + TCP;
        let (link, ip) = reply.append(u16::try_from(length).ok()?).ok()?.split_at_mut_checked(self.offset)?;
        self.write_link(packet, link)?;
        let (segment, pseudo) = self.write_ip(ip, IpProtocol::TCP, IpProtocol::TCP)?;
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
        // Data offset in words, then the flags.
        header[12] = 5 << 4;
        header[13] = said;
        let checksum = pseudo.sum_over(IpProtocol::TCP, header).finish();
        header[16..18].copy_from_slice(&checksum.to_be_bytes());
        Some(())
    }

    fn write_error(&self, packet: &Packet, reply: &mut Packet) -> Option<()> {
        let ip_bytes = self.ip_bytes();
        let longest = if ip_bytes == Ipv4::HEADER_BYTES { LONGEST_V4 } else { LONGEST_V6 };
        let before = self.offset + ip_bytes + Icmp::HEADER_BYTES;
        let quote = (longest - ip_bytes - Icmp::HEADER_BYTES)
            .min(packet.len().checked_sub(self.offset)?)
            .min(reply.tailroom().checked_sub(before)?);
        let bytes = reply.append(u16::try_from(before + quote).ok()?).ok()?;
        let (link, ip) = bytes.split_at_mut_checked(self.offset)?;
        self.write_link(packet, link)?;
        packet.copy_out(self.offset, ip.get_mut(ip_bytes + Icmp::HEADER_BYTES..)?);
        let (message, pseudo) = self.write_ip(ip, IpProtocol::ICMP, IpProtocol::ICMPV6)?;
        let is_udp = self.protocol == IpProtocol::UDP;
        match pseudo {
            Pseudo::V4 { .. } => {
                let code = if is_udp { PORT_UNREACHABLE } else { ADMINISTRATIVELY_PROHIBITED };
                IcmpHeader { kind: Icmp::UNREACHABLE, code, rest: 0 }.emit(message).ok()?;
            }
            Pseudo::V6 { .. } => {
                let code = if is_udp { PORT_UNREACHABLE_V6 } else { ADMINISTRATIVELY_PROHIBITED_V6 };
                Icmpv6Header { kind: Icmpv6::UNREACHABLE, code, rest: 0 }.emit(message, pseudo).ok()?;
            }
        }
        Some(())
    }
}
