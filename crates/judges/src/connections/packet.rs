//! Packets of connections, as both ends send them.

use crate::differential::packet::{ICMP, ICMPV6, LINK, TCP, UDP, Upper, V4, V6, filler, low, short, sum};
use std::net::IpAddr;

/// Identification of all packets of the judge's: another one is of a router's own packet.
const IDENTIFICATION: u16 = 0x4b1d;
/// IPv6 flow label with the purpose of the IPv4 identification.
const LABEL: u32 = 0x4b1d;
/// Don't fragment.
const WHOLE: u16 = 0x4000;

/// Transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    /// Number of the protocol.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Tcp => TCP,
            Self::Udp => UDP,
        }
    }
}

/// Addresses and ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) ports: [u16; 2],
}

impl Ends {
    /// Ends of packets that come back.
    pub(super) fn reversed(self) -> Self {
        let [source, destination] = self.ports;
        Self { source: self.destination, destination: self.source, ports: [destination, source] }
    }
}

/// Flags of TCP.
pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;

/// Header of a TCP segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    pub(super) flags: u8,
    /// Window, before the shift.
    pub(super) window: u16,
    pub(super) options: Vec<u8>,
}

impl Default for Segment {
    fn default() -> Self {
        Self { sequence: 0, acknowledgement: 0, flags: 0, window: WINDOW, options: Vec::new() }
    }
}

/// Oddity of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Odd {
    /// None.
    Plain,
    /// Last hop.
    Hop,
    /// IPv4 options, or an extension header.
    Options,
    /// The first of two fragments.
    Fragment,
    /// May be fragmented, with another class.
    Class,
    /// UDP without a checksum, or TCP with a wrong checksum.
    Checksum,
    /// Frame addressed to another host's MAC address.
    Foreign,
}

/// An IP packet with such data.
pub(super) fn packet(ends: &Ends, segment: Option<&Segment>, bytes: usize, odd: Odd) -> Vec<u8> {
    let mut upper = ends.ports.map(u16::to_be_bytes).concat();
    let sum_at = if let Some(segment) = segment {
        let options = segment.options.len().next_multiple_of(4);
        upper.extend(segment.sequence.to_be_bytes());
        upper.extend(segment.acknowledgement.to_be_bytes());
        upper.extend([low((20 + options) * 4), segment.flags]);
        upper.extend(segment.window.to_be_bytes());
        upper.extend([0; 4]);
        upper.extend(&segment.options);
        upper.resize(20 + options, 0);
        16
    } else {
        upper.extend(short(8 + bytes).to_be_bytes());
        upper.extend([0; 2]);
        6
    };
    upper.extend(filler(bytes));
    let protocol = if segment.is_some() { TCP } else { UDP };
    let checksum = match (segment, odd) {
        (None, Odd::Checksum) if ends.source.is_ipv4() => 0,
        (_, Odd::Checksum) => transport_sum(ends, protocol, &upper) ^ 0x0101,
        _ => transport_sum(ends, protocol, &upper),
    };
    upper[sum_at..sum_at + 2].copy_from_slice(&checksum.to_be_bytes());
    in_ip(ends, Upper::Raw(protocol, upper), odd)
}

/// The ICMP error about a packet that its receiver sends: port unreachable.
pub(super) fn error(about: &[u8], ends: &Ends) -> Vec<u8> {
    let quote = about[..about.len().min(96)].to_vec();
    let upper = match ends.source {
        IpAddr::V4(_) => Upper::Icmp(3, 3, [0; 4], quote),
        IpAddr::V6(_) => Upper::Icmp(1, 4, [0; 4], quote),
    };
    in_ip(ends, upper, Odd::Plain)
}

fn in_ip(ends: &Ends, upper: Upper, odd: Odd) -> Vec<u8> {
    let hops = if odd == Odd::Hop { 1 } else { 64 };
    let class = if odd == Odd::Class { 0x2a } else { 0 };
    match (ends.source, ends.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let fragment = match odd {
                Odd::Fragment => 0x2000,
                Odd::Class => 0,
                Odd::Plain | Odd::Hop | Odd::Options | Odd::Checksum | Odd::Foreign => WHOLE,
            };
            // No operation, four times.
            let options = if odd == Odd::Options { vec![1; 4] } else { Vec::new() };
            let (source, id) = (source.octets(), IDENTIFICATION);
            V4 { source, id, fragment, hops, class, options, upper, ..V4::udp(destination.octets()) }.bytes()
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            // Destination options: padding.
            let headers =
                if odd == Odd::Options { vec![(60, vec![0, 0, 1, 4, 0, 0, 0, 0])] } else { Vec::new() };
            let (source, label) = (source.octets(), LABEL);
            V6 { source, label, hops, class, headers, upper, ..V6::udp(destination.octets()) }.bytes()
        }
        _ => Vec::new(),
    }
}

fn transport_sum(ends: &Ends, protocol: u8, upper: &[u8]) -> u16 {
    let mut covered = Vec::new();
    for address in [ends.source, ends.destination] {
        match address {
            IpAddr::V4(address) => covered.extend(address.octets()),
            IpAddr::V6(address) => covered.extend(address.octets()),
        }
    }
    covered.extend([0, protocol]);
    covered.extend(short(upper.len()).to_be_bytes());
    covered.extend(upper);
    let checksum = !sum(&covered);
    if checksum == 0 { 0xffff } else { checksum }
}

/// Place of the IP header's payload, and its protocol.
fn transport(frame: &[u8]) -> Option<(usize, u8)> {
    let packet = frame.get(LINK..)?;
    Some(match packet.first()? >> 4 {
        4 => (LINK + usize::from(packet[0] & 15) * 4, *packet.get(9)?),
        6 => (LINK + 40, *packet.get(6)?),
        _ => return None,
    })
}

/// Addresses and ports of a frame; `None` for another protocol than TCP or UDP, or a fragment that is not the first.
pub(super) fn ends_of(frame: &[u8]) -> Option<Ends> {
    let (at, protocol) = transport(frame)?;
    if protocol != TCP && protocol != UDP {
        return None;
    }
    let port = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let (source, destination): (IpAddr, IpAddr) = if frame[LINK] >> 4 == 4 {
        let address = |at: usize| Some(*frame.get(at..)?.first_chunk::<4>()?);
        (address(LINK + 12)?.into(), address(LINK + 16)?.into())
    } else {
        let address = |at: usize| Some(*frame.get(at..)?.first_chunk::<16>()?);
        (address(LINK + 8)?.into(), address(LINK + 24)?.into())
    };
    Some(Ends { source, destination, ports: [port(at)?, port(at + 2)?] })
}

/// True for a packet that an end has sent, and not a router.
pub(super) fn is_from_an_end(frame: &[u8]) -> bool {
    let Some(packet) = frame.get(LINK..LINK + 20) else { return false };
    match packet[0] >> 4 {
        4 => packet[4..6] == IDENTIFICATION.to_be_bytes(),
        _ => packet[2..4] == LABEL.to_be_bytes()[2..],
    }
}

/// Overwrites what a router chooses freely in its own packets: the identification.
pub(super) fn normalize(frame: &mut [u8]) {
    if frame.len() >= LINK + 20 && frame[LINK] >> 4 == 4 && !is_from_an_end(frame) {
        frame[LINK + 4..LINK + 6].fill(0);
        frame[LINK + 10..LINK + 12].fill(0);
    }
}

/// True for a router's error about a packet of IPv4 without a route, or with one that prohibits it. A kernel sends five of them to
/// a host at once, and then one a second.
pub(super) fn is_without_route(frame: &[u8]) -> bool {
    let Some((at, ICMP)) = transport(frame) else { return false };
    let is_such = matches!(frame.get(at..at + 2), Some([3, 0 | 13]));
    is_such && !is_from_an_end(frame)
}

/// Rewrites the port that one router has chosen to the one that the other has.
pub(super) fn exchange_port(frame: &mut [u8], which: usize, port: u16) {
    let Some((at, protocol)) = transport(frame) else { return };
    let place = at + 2 * which;
    let Some(old) = frame.get(place..).and_then(<[u8]>::first_chunk::<2>).copied() else { return };
    frame[place..place + 2].copy_from_slice(&port.to_be_bytes());
    let sum_at = at + if protocol == TCP { 16 } else { 6 };
    let Some(before) = frame.get(sum_at..).and_then(<[u8]>::first_chunk::<2>).copied() else { return };
    if before != [0; 2] {
        // RFC 1624.
        let words = [!u16::from_be_bytes(before), !u16::from_be_bytes(old), port];
        let after = !sum(words.map(u16::to_be_bytes).as_flattened());
        frame[sum_at..sum_at + 2].copy_from_slice(&after.to_be_bytes());
    }
}

/// Does the same in the packet that a router's ICMP error quotes. The sum of a port and a checksum stays, and with it the error's
/// own checksum.
pub(super) fn exchange_quoted_port(frame: &mut [u8], old: u16, new: u16) {
    let Some((at, ICMP | ICMPV6)) = transport(frame) else { return };
    // The quote stands where a frame has its packet.
    let Some(quote) = frame.get_mut(at + 8 - LINK..) else { return };
    let Some(ends) = ends_of(quote) else { return };
    for which in (0..2).filter(|&which| ends.ports[which] == old) {
        exchange_port(quote, which, new);
    }
}

/// True for frames of which kernels send some of their own accord: ARP, groups, neighbours.
pub(super) fn is_chatter(frame: &[u8]) -> bool {
    let kind = frame.get(12..14).unwrap_or_default();
    if kind != [0x08, 0] && kind != [0x86, 0xdd] {
        return true;
    }
    match transport(frame) {
        Some((at, ICMPV6)) => frame.get(at).is_some_and(|kind| (130..=143).contains(kind)),
        Some((at, 0)) => frame.get(at) == Some(&ICMPV6),
        Some((_, ICMP)) => false,
        Some((_, protocol)) => protocol == 2,
        None => true,
    }
}

/// Usual window, before the shift.
const WINDOW: u16 = 1;
/// Shift of the windows of both ends: the largest (RFC 7323, 2.3).
pub(super) const SHIFT: u8 = 14;
/// The usual window in bytes, as a SYN has it.
pub(super) const WINDOW_BYTES: u16 = WINDOW << SHIFT;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::packet::link;

    #[test]
    fn a_port_is_exchanged_with_its_checksum() {
        let ends = |port| Ends {
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            ports: [port, 443],
        };
        let segment = Segment { sequence: 7, flags: ACK, ..Segment::default() };
        for segment in [None, Some(&segment)] {
            let made = |port| link([0; 6], [1; 6], 0x0800, &packet(&ends(port), segment, 9, Odd::Plain));
            let mut frame = made(1000);
            assert_eq!(ends_of(&frame), Some(ends(1000)));
            assert!(is_from_an_end(&frame) && !is_chatter(&frame));
            exchange_port(&mut frame, 0, 61_007);
            assert_eq!(frame, made(61_007));
            // An error of the router about it.
            let quoting =
                |frame: &[u8]| link([1; 6], [0; 6], 0x0800, &error(&frame[LINK..], &ends(443).reversed()));
            let mut frame = quoting(&made(1000));
            exchange_quoted_port(&mut frame, 1000, 61_007);
            assert_eq!(frame, quoting(&made(61_007)));
            exchange_quoted_port(&mut frame, 1000, 5);
            assert_eq!(frame, quoting(&made(61_007)));
        }
    }
}
