//! Packets field by field, right or wrong: a field that is not set is computed.

use super::twin::Side;

/// Types of Ethernet.
pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const ARP: u16 = 0x0806;
/// Upper protocols.
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
/// Bytes of an Ethernet header.
pub(crate) const LINK: usize = 14;

/// The checksum of an upper header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    Right,
    Zero,
    Wrong,
    /// The pseudo header's alone, as a stack leaves it to a device.
    Partial,
}

/// Contents after the IP header.
#[derive(Clone, Debug)]
pub(crate) enum Upper {
    /// UDP datagram with this number of bytes of data.
    Udp(Sum, usize),
    /// TCP segment with this number of bytes of data.
    Tcp(Sum, usize),
    /// An ICMP message: type, code, second word, data.
    Icmp(u8, u8, [u8; 4], Vec<u8>),
    /// Payload of another protocol.
    Raw(u8, Vec<u8>),
}

/// An IPv4 packet.
#[derive(Clone, Debug)]
pub(crate) struct V4 {
    pub(crate) version: u8,
    pub(crate) header_words: Option<u8>,
    pub(crate) class: u8,
    pub(crate) length: Option<u16>,
    pub(crate) id: u16,
    /// Flags and offset of a fragment.
    pub(crate) fragment: u16,
    pub(crate) hops: u8,
    pub(crate) protocol: Option<u8>,
    pub(crate) checksum: Option<u16>,
    pub(crate) source: [u8; 4],
    pub(crate) destination: [u8; 4],
    pub(crate) options: Vec<u8>,
    pub(crate) ports: [u16; 2],
    pub(crate) upper: Upper,
}

/// An IPv6 packet.
#[derive(Clone, Debug)]
pub(crate) struct V6 {
    pub(crate) version: u8,
    pub(crate) class: u8,
    pub(crate) label: u32,
    pub(crate) length: Option<u16>,
    pub(crate) hops: u8,
    /// The type in the last header, in place of the upper one's.
    pub(crate) protocol: Option<u8>,
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
    /// Extension headers: type, and bytes whose first is overwritten with the next one's type.
    pub(crate) headers: Vec<(u8, Vec<u8>)>,
    pub(crate) ports: [u16; 2],
    pub(crate) upper: Upper,
}

impl V4 {
    /// A UDP datagram from the western station.
    pub(crate) fn udp(destination: [u8; 4]) -> Self {
        Self {
            version: 4,
            header_words: None,
            class: 0,
            length: None,
            id: 0x4b1d,
            fragment: 0,
            hops: 64,
            protocol: None,
            checksum: None,
            source: Side::West.station_v4(),
            destination,
            options: Vec::new(),
            ports: [40_000, 9_000],
            upper: Upper::Udp(Sum::Right, 32),
        }
    }

    /// The packet's bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        let pseudo = [self.source.as_slice(), &self.destination].concat();
        let (protocol, upper) = self.upper.bytes(&pseudo, self.ports, false);
        let words = self.header_words.unwrap_or(low(5 + options.len() / 4));
        let length = self.length.unwrap_or(short(20 + options.len() + upper.len()));
        let mut bytes = vec![self.version << 4 | words, self.class];
        bytes.extend(length.to_be_bytes());
        bytes.extend(self.id.to_be_bytes());
        bytes.extend(self.fragment.to_be_bytes());
        bytes.extend([self.hops, self.protocol.unwrap_or(protocol), 0, 0]);
        bytes.extend(self.source);
        bytes.extend(self.destination);
        bytes.extend(options);
        let covered = (usize::from(words) * 4).clamp(20, bytes.len());
        let checksum = self.checksum.unwrap_or(!sum(&bytes[..covered]));
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes.extend(upper);
        bytes
    }
}

impl V6 {
    /// A UDP datagram from the western station.
    pub(crate) fn udp(destination: [u8; 16]) -> Self {
        Self {
            version: 6,
            class: 0,
            label: 0,
            length: None,
            hops: 64,
            protocol: None,
            source: Side::West.station_v6(),
            destination,
            headers: Vec::new(),
            ports: [40_000, 9_000],
            upper: Upper::Udp(Sum::Right, 32),
        }
    }

    /// The packet's bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let pseudo = [self.source.as_slice(), &self.destination].concat();
        let (protocol, upper) = self.upper.bytes(&pseudo, self.ports, true);
        let mut behind = Vec::new();
        let last = self.protocol.unwrap_or(protocol);
        let kinds = self.headers.iter().map(|(kind, _)| *kind).chain([last]).collect::<Vec<_>>();
        for ((_, header), next) in self.headers.iter().zip(&kinds[1..]) {
            behind.push(*next);
            behind.extend(header.iter().skip(1));
        }
        behind.extend(upper);
        let length = self.length.unwrap_or(short(behind.len()));
        let word = u32::from(self.version) << 28 | u32::from(self.class) << 20 | self.label;
        let mut bytes = word.to_be_bytes().to_vec();
        bytes.extend(length.to_be_bytes());
        bytes.extend([kinds[0], self.hops]);
        bytes.extend(self.source);
        bytes.extend(self.destination);
        bytes.extend(behind);
        bytes
    }
}

impl Upper {
    /// An echo request.
    pub(crate) fn echo(is_v6: bool) -> Self {
        Self::Icmp(if is_v6 { 128 } else { 8 }, 0, [0x12, 0x34, 0, 1], vec![0x5a; 32])
    }

    fn bytes(&self, pseudo: &[u8], ports: [u16; 2], is_v6: bool) -> (u8, Vec<u8>) {
        let ports = [ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat();
        match self {
            Self::Udp(sum, data) => {
                let mut bytes = ports;
                bytes.extend(short(8 + data).to_be_bytes());
                bytes.extend([0, 0]);
                bytes.extend(filler(*data));
                (UDP, seal(bytes, 6, *sum, Some((pseudo, UDP))))
            }
            Self::Tcp(sum, data) => {
                let mut bytes = ports;
                bytes.extend([0, 0, 1, 0, 0, 0, 0, 0, 0x50, 0x02, 0x40, 0, 0, 0, 0, 0]);
                bytes.extend(filler(*data));
                (TCP, seal(bytes, 16, *sum, Some((pseudo, TCP))))
            }
            Self::Icmp(kind, code, word, data) => {
                let mut bytes = vec![*kind, *code, 0, 0];
                bytes.extend(word);
                bytes.extend(data);
                let protocol = if is_v6 { ICMPV6 } else { ICMP };
                (protocol, seal(bytes, 2, Sum::Right, is_v6.then_some((pseudo, ICMPV6))))
            }
            Self::Raw(protocol, bytes) => (*protocol, bytes.clone()),
        }
    }
}

/// Writes a checksum at `at`.
fn seal(mut bytes: Vec<u8>, at: usize, how: Sum, pseudo: Option<(&[u8], u8)>) -> Vec<u8> {
    let mut front = Vec::new();
    if let Some((addresses, protocol)) = pseudo {
        front.extend_from_slice(addresses);
        front.extend([0, protocol]);
        front.extend(short(bytes.len()).to_be_bytes());
    }
    let value = match how {
        Sum::Zero => 0,
        Sum::Partial => sum(&front),
        Sum::Right | Sum::Wrong => {
            let whole = !sum(&[front, bytes.clone()].concat());
            let whole = if whole == 0 { 0xffff } else { whole };
            if how == Sum::Wrong { whole ^ 0x0101 } else { whole }
        }
    };
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    bytes
}

/// A frame from the station of that side to its router.
pub(super) fn frame(from: Side, kind: u16, packet: &[u8]) -> Vec<u8> {
    link(from.router_mac(), from.station_mac(), kind, packet)
}

/// A frame.
pub(crate) fn link(destination: [u8; 6], source: [u8; 6], kind: u16, packet: &[u8]) -> Vec<u8> {
    [destination.as_slice(), &source, &kind.to_be_bytes(), packet].concat()
}

/// The one's complement sum of RFC 1071.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let mut total = 0_u32;
    for pair in bytes.chunks(2) {
        total += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    short(total as usize)
}

/// Data in which every byte differs from its neighbour.
pub(crate) fn filler(count: usize) -> Vec<u8> {
    (0..count).map(|index| low(index % 251)).collect()
}

/// A number that is known to fit; one that does not is all ones, which is odd enough.
pub(crate) fn short(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

pub(crate) fn low(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071, 3: the example's sum.
    #[test]
    fn sums() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(sum(&[0x01]), 0x0100);
    }

    #[test]
    fn packets_that_nobody_has_spoilt_are_right() {
        let packet = V4::udp([198, 18, 7, 7]).bytes();
        assert_eq!((packet.len(), sum(&packet[..20])), (60, 0xffff));
        let pseudo = [&packet[12..20], &[0, UDP, 0, 40], &packet[20..]].concat();
        assert_eq!(sum(&pseudo), 0xffff);
        let ports = [40_000, 9_000];
        let six = V6 { headers: vec![(0, vec![0; 8]), (60, vec![0; 8])], ports, ..V6::udp([1; 16]) }.bytes();
        assert_eq!((six[6], six[40], six[48], six.len()), (0, 60, UDP, 96));
        let options = V4 { options: vec![7, 3, 4], ..V4::udp([1; 4]) }.bytes();
        assert_eq!((options[0], sum(&options[..24])), (0x46, 0xffff));
    }
}
