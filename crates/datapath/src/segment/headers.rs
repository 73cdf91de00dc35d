//! Headers of a super-packet, from which the headers of its segments are made.

use crate::parse::{Extent, HeaderSummary, Network};
use crate::wire::{
    Checksum, EtherType, Gre, IpProtocol, Ipv4, Ipv4Mut, Ipv6, Ipv6Mut, Pseudo, Tcp, TcpFlags, TcpMut, Udp,
    UdpMut,
};
use polder_buffers::{Packet, SegmentationKind};

/// Maximum length of a segment's IP packet in bytes.
pub(super) const LONGEST_PACKET: usize = 65_535;

/// Maximum length of all headers in bytes: two tags, IPv6 with some extension headers, TCP with options, and
/// outer headers.
const LONGEST_HEADERS: usize = 256;

/// Headers of the super-packet.
#[derive(Debug)]
pub(super) struct Headers {
    bytes: [u8; LONGEST_HEADERS],
    length: usize,
    /// IP header of the packet that is segmented; the inner one in a tunnel.
    network: Ip,
    transport: usize,
    pseudo: Pseudo,
    protocol: IpProtocol,
    sequence: u32,
    flags: TcpFlags,
    outer: Option<Outer>,
}

/// An IP header of the super-packet.
#[derive(Clone, Copy, Debug)]
struct Ip {
    offset: usize,
    is_v4: bool,
    /// IPv4 identification of the first segment, and its increment per segment.
    identification: u16,
    step: u16,
}

/// Outer headers of a tunnel.
#[derive(Debug)]
struct Outer {
    network: Ip,
    /// Offset of the UDP or GRE header in bytes.
    transport: usize,
    is_udp: bool,
    checksum: OuterChecksum,
}

/// Checksum after the outer IP header.
#[derive(Clone, Copy, Debug)]
enum OuterChecksum {
    None,
    /// UDP checksum between these addresses.
    Udp(Pseudo),
    Gre,
}

impl Headers {
    /// Parses the headers of `packet`; `None` if they contradict its metadata.
    pub(super) fn of(packet: &Packet) -> Option<Self> {
        let mut bytes = [0; LONGEST_HEADERS];
        let there = packet.copy_out(0, &mut bytes);
        let head = bytes.get(..there)?;
        let summary = whole(HeaderSummary::parse(head, packet.len()))?;
        let outer = packet.segmentation.outer;
        let (outer, summary, origin) = if outer.is_some() {
            let origin = packet.checksum_start.checked_sub(outer.inner_ip_bytes())?.into();
            let outer = Outer::of(head, summary, origin, outer.is_udp(), outer.has_udp_checksum())?;
            (Some(outer), inner(head.get(origin..)?, packet.len() - origin)?, origin)
        } else {
            (None, summary, 0)
        };
        let kind = packet.segmentation.kind;
        let protocol = protocol_of(kind, summary)?;
        let step = match kind {
            SegmentationKind::Tcp4 | SegmentationKind::Udp => 1,
            SegmentationKind::None | SegmentationKind::Tcp6 => 0,
        };
        let pseudo = summary.addresses(head.get(origin..)?)?.pseudo();
        let network = Ip::of(head, origin + summary.network_offset(), summary.network(), step);
        let transport = origin + summary.transport_offset();
        let mut headers = Self {
            bytes: [0; LONGEST_HEADERS],
            length: transport,
            network,
            transport,
            pseudo,
            protocol,
            sequence: 0,
            flags: TcpFlags::default(),
            outer,
        };
        if headers.checksum_field() != (packet.checksum_start, packet.checksum_offset) {
            return None;
        }
        headers.read_transport(head.get(transport..)?)?;
        let source = head.get(..headers.length)?;
        headers.bytes.get_mut(..headers.length)?.copy_from_slice(source);
        Some(headers)
    }

    fn read_transport(&mut self, bytes: &[u8]) -> Option<()> {
        if self.protocol == IpProtocol::TCP {
            let tcp = Tcp::parse(bytes).ok()?;
            self.length += tcp.header_bytes();
            (self.sequence, self.flags) = (tcp.sequence(), tcp.flags());
        } else {
            self.length += Udp::HEADER_BYTES;
            bytes.get(..Udp::HEADER_BYTES)?;
        }
        Some(())
    }

    /// Length of all headers in bytes.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Length of the headers from the first IP header on, in bytes.
    pub(super) fn network_bytes(&self) -> usize {
        self.length - self.outer.as_ref().map_or(self.network, |outer| outer.network).offset
    }

    /// Start of the checksum's range, and offset of the checksum field from that start.
    pub(super) fn checksum_field(&self) -> (u16, u16) {
        // At most `LONGEST_HEADERS`.
        (u16::try_from(self.transport).unwrap_or(u16::MAX), checksum_offset(self.protocol))
    }

    /// Writes the headers of segment `number` before its payload.
    pub(super) fn write(&self, packet: &mut Packet, number: u32, size: usize, is_last: bool) {
        let whole = packet.len();
        let Some(bytes) = packet.bytes_mut().get_mut(..self.length) else { return };
        bytes.copy_from_slice(&self.bytes[..self.length]);
        self.network.write(bytes, number, whole);
        let transport_bytes = whole - self.transport;
        let sum =
            self.pseudo.sum(self.protocol, u32::try_from(transport_bytes).unwrap_or(u32::MAX)).partial();
        let transport = &mut bytes[self.transport..];
        if self.protocol == IpProtocol::TCP {
            // Sequence numbers wrap.
            let ahead = number.wrapping_mul(u32::try_from(size).unwrap_or(u32::MAX));
            let flags = self.flags_of(number == 0, is_last);
            if let Ok(mut tcp) = TcpMut::parse(transport) {
                tcp.set_sequence_and_flags(self.sequence.wrapping_add(ahead), flags);
                tcp.set_checksum(sum);
            }
        } else if let Ok(mut udp) = UdpMut::parse_head(transport) {
            udp.set_length(u16::try_from(transport_bytes).unwrap_or(u16::MAX));
            udp.set_checksum(sum);
        }
        if let Some(outer) = &self.outer {
            outer.write(bytes, number, whole, (self.transport, sum));
        }
    }

    /// Flags of a segment: PSH and FIN only in the last, CWR only in the first.
    fn flags_of(&self, is_first: bool, is_last: bool) -> TcpFlags {
        let mut flags = self.flags;
        if !is_last {
            flags = flags.without(TcpFlags::FIN.with(TcpFlags::PSH));
        }
        if !is_first {
            flags = flags.without(TcpFlags::CWR);
        }
        flags
    }
}

impl Ip {
    fn of(bytes: &[u8], offset: usize, network: Network, step: u16) -> Self {
        let is_v4 = network == Network::Ipv4;
        let identification = bytes.get(offset + 4..).and_then(<[u8]>::first_chunk).filter(|_| is_v4);
        let identification = identification.map_or(0, |&field| u16::from_be_bytes(field));
        Self { offset, is_v4, identification, step }
    }

    /// Writes length and identification of segment `number`, whose frame has `whole` bytes.
    fn write(&self, bytes: &mut [u8], number: u32, whole: usize) {
        let header = &mut bytes[self.offset..];
        let length = u16::try_from(whole - self.offset).unwrap_or(u16::MAX);
        if self.is_v4 {
            if let Ok(mut ip) = Ipv4Mut::parse_head(header, LONGEST_PACKET) {
                let [_, _, high, low] = number.to_be_bytes();
                let ahead = u16::from_be_bytes([high, low]).wrapping_mul(self.step);
                ip.set_total_length(length);
                ip.set_identification(self.identification.wrapping_add(ahead));
            }
        } else if let Ok(mut ip) = Ipv6Mut::parse_head(header, LONGEST_PACKET + Ipv6::HEADER_BYTES) {
            let behind = length.saturating_sub(40);
            ip.set_payload_length(behind);
        }
    }
}

impl Outer {
    /// Outer headers described by `summary`, before an IP packet at offset `inner`.
    fn of(
        bytes: &[u8],
        summary: HeaderSummary,
        inner: usize,
        is_udp: bool,
        has_udp_checksum: bool,
    ) -> Option<Self> {
        let transport = summary.transport_offset();
        let header = bytes.get(transport..inner)?;
        let (protocol, checksum) = if !is_udp {
            let has_checksum = Gre::parse(header).ok()?.checksum().is_some();
            (IpProtocol::GRE, if has_checksum { OuterChecksum::Gre } else { OuterChecksum::None })
        } else if has_udp_checksum {
            (IpProtocol::UDP, OuterChecksum::Udp(summary.addresses(bytes)?.pseudo()))
        } else {
            (IpProtocol::UDP, OuterChecksum::None)
        };
        if is_udp && header.len() < Udp::HEADER_BYTES {
            return None;
        }
        // At an odd offset, the bytes of checksum words would be swapped.
        if summary.protocol() != protocol || !(inner - transport).is_multiple_of(2) {
            return None;
        }
        let ip = bytes.get(summary.network_offset()..)?;
        // RFC 6864, 4: with DF the identification has no meaning.
        let is_bound = Ipv4::parse_head(ip, usize::MAX).is_ok_and(|ip| ip.dont_fragment());
        let network = Ip::of(bytes, summary.network_offset(), summary.network(), u16::from(!is_bound));
        Some(Self { network, transport, is_udp, checksum })
    }

    /// Writes the outer headers of segment `number`, whose frame has `whole` bytes. The inner checksum covers
    /// the bytes from `inner` on, and its field contains `partial`.
    fn write(&self, bytes: &mut [u8], number: u32, whole: usize, (inner, partial): (usize, u16)) {
        self.network.write(bytes, number, whole);
        let length = u16::try_from(whole - self.transport).unwrap_or(u16::MAX);
        let header = &mut bytes[self.transport..inner];
        if self.is_udp
            && let Ok(mut udp) = UdpMut::parse_head(header)
        {
            udp.set_length(length);
            udp.set_checksum(0);
        }
        // A message with complete checksum sums up to the complement of the pseudo-header sum.
        let covered = (!partial).to_be_bytes();
        let (field, checksum) = match self.checksum {
            OuterChecksum::None => return,
            OuterChecksum::Udp(pseudo) => {
                let sum = pseudo.sum(IpProtocol::UDP, length.into()).with(header).with(&covered);
                (usize::from(Udp::CHECKSUM_OFFSET), sum.finish_nonzero())
            }
            OuterChecksum::Gre => {
                header[Gre::HEADER_BYTES..Gre::HEADER_BYTES + 2].fill(0);
                (Gre::HEADER_BYTES, Checksum::new().with(header).with(&covered).finish())
            }
        };
        header[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// True if the headers of a packet outside of tunnels agree with its segmentation.
pub(super) fn are_described(packet: &mut Packet) -> bool {
    let summary = HeaderSummary::of(packet);
    let protocol = whole(summary).and_then(|summary| protocol_of(packet.segmentation.kind, summary));
    protocol.is_some_and(|protocol| packet.checksum_offset == checksum_offset(protocol))
        && usize::from(packet.checksum_start) == summary.transport_offset()
}

/// Offset of the checksum in a TCP or UDP header, in bytes.
fn checksum_offset(protocol: IpProtocol) -> u16 {
    if protocol == IpProtocol::TCP { Tcp::CHECKSUM_OFFSET } else { Udp::CHECKSUM_OFFSET }
}

/// Transport protocol of a segmentation; `None` if the packet contradicts it.
fn protocol_of(kind: SegmentationKind, summary: HeaderSummary) -> Option<IpProtocol> {
    let (protocol, wanted) = match kind {
        SegmentationKind::None => return None,
        SegmentationKind::Tcp4 => (IpProtocol::TCP, Network::Ipv4),
        SegmentationKind::Tcp6 => (IpProtocol::TCP, Network::Ipv6),
        SegmentationKind::Udp => (IpProtocol::UDP, summary.network()),
    };
    (summary.network() == wanted && summary.protocol() == protocol).then_some(protocol)
}

/// The summary of an unfragmented packet without padding; `None` for another packet.
fn whole(summary: HeaderSummary) -> Option<HeaderSummary> {
    (!summary.is_fragment() && summary.extent() == Extent::Exact).then_some(summary)
}

/// Summary of the inner IP packet.
fn inner(bytes: &[u8], length: usize) -> Option<HeaderSummary> {
    let ether_type = if bytes.first()? >> 4 == 6 { EtherType::IPV6 } else { EtherType::IPV4 };
    whole(HeaderSummary::without_link(ether_type, bytes, length))
}
