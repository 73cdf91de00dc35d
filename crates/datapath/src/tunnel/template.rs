//! The outer headers of one tunnel, written once and copied in front of every packet.

use super::IPV4_BYTES;
use super::options::{Ttl, TunnelDscp, TunnelOptions, Underlay};
use crate::wire::{
    Checksum, EtherType, Ethernet, EthernetHeader, Gre, GreHeader, IpProtocol, Ipv4, Ipv4Header, MacAddress,
    TrafficClass, Vlan,
};
use polder_buffers::{NoRoom, Packet};

/// The longest outer headers: Ethernet, one tag, IPv4, GRE with all its fields.
const LONGEST: usize =
    Ethernet::HEADER_BYTES + Vlan::HEADER_BYTES + Ipv4::HEADER_BYTES + Gre::MAX_HEADER_BYTES;

/// Outer headers without what differs from packet to packet: lengths, traffic class and time to live
/// where they are inherited, numbers and checksums.
#[derive(Clone, Copy, Debug)]
pub(super) struct Template {
    bytes: [u8; LONGEST],
    length: u16,
    /// Bytes before the IPv4 header.
    link: u16,
    /// Sum over the IPv4 header with zeros for total length, traffic class, time to live and
    /// identification.
    sum: u32,
}

/// What differs from packet to packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    pub(super) traffic_class: TrafficClass,
    pub(super) time_to_live: u8,
}

impl Template {
    pub(super) fn new(options: &TunnelOptions, underlay: &Underlay) -> Self {
        let mut bytes = [0; LONGEST];
        let link = link_header(&mut bytes, underlay);
        let ip = Ipv4Header {
            traffic_class: TrafficClass(0),
            total_length: 0,
            identification: 0,
            dont_fragment: options.dont_fragment,
            more_fragments: false,
            fragment_offset: 0,
            time_to_live: 0,
            protocol: IpProtocol::GRE,
            source: options.local,
            destination: options.remote,
        };
        let gre = GreHeader {
            protocol: EtherType::TRANSPARENT_ETHERNET,
            checksum: options.checksum,
            key: options.key,
            sequence: options.sequence.then_some(0),
        };
        let rest = ip.emit(&mut bytes[link..]).and_then(|rest| gre.emit(rest)).map(|rest| rest.len());
        let rest = rest.expect("the array has room for the longest headers");
        let [high, low] = [10, 11].map(|at| bytes[link + at]);
        let sum = !u16::from_be_bytes([high, low]);
        let count = |bytes: usize| u16::try_from(bytes).expect("headers of 54 bytes at most");
        Self { bytes, length: count(LONGEST - rest), link: count(link), sum: u32::from(sum) }
    }

    /// The same for a next hop.
    #[inline]
    pub(super) fn addressed(mut self, next_hop: MacAddress) -> Self {
        if let Some(destination) = self.bytes.first_chunk_mut() {
            *destination = next_hop.0;
        }
        self
    }

    /// Bytes of all outer headers.
    #[inline(always)]
    pub(super) fn len(&self) -> u16 {
        self.length
    }

    /// Bytes before the IPv4 header.
    #[inline(always)]
    pub(super) fn link(&self) -> u16 {
        self.link
    }

    /// Bytes before the GRE header.
    #[inline(always)]
    pub(super) fn gre(&self) -> u16 {
        self.link + IPV4_BYTES
    }

    /// Writes the headers in front of the packet. Sequence number, identification and GRE checksum
    /// stay zero.
    ///
    /// # Errors
    /// [`NoRoom::Front`]; nothing is written then.
    #[inline(always)]
    pub(super) fn write(&self, packet: &mut Packet, fields: Fields) -> Result<(), NoRoom> {
        // A copy of a length that the compiler knows is a few moves; of any other, a call.
        match self.length {
            38 => self.write_bytes::<38>(packet, fields),
            42 => self.write_bytes::<42>(packet, fields),
            46 => self.write_bytes::<46>(packet, fields),
            50 => self.write_bytes::<50>(packet, fields),
            _ => self.write_bytes::<54>(packet, fields),
        }
    }

    #[inline(always)]
    fn write_bytes<const N: usize>(&self, packet: &mut Packet, fields: Fields) -> Result<(), NoRoom> {
        let link = usize::from(self.link);
        let total_length = u16::try_from(packet.len() + N - link).map_err(|_| NoRoom::Back)?;
        let room = packet.prepend(self.length)?;
        let room: &mut [u8; N] = room.try_into().map_err(|_| NoRoom::Front)?;
        room.copy_from_slice(&self.bytes[..N]);
        let header = room.get_mut(link..).and_then(|bytes| bytes.first_chunk_mut());
        let header: &mut [u8; Ipv4::HEADER_BYTES] = header.ok_or(NoRoom::Front)?;
        let TrafficClass(class) = fields.traffic_class;
        let class_word = u32::from(class);
        let sum = self.sum + u32::from(total_length) + class_word + (u32::from(fields.time_to_live) << 8);
        header[1] = class;
        header[2..4].copy_from_slice(&total_length.to_be_bytes());
        header[8] = fields.time_to_live;
        header[10..12].copy_from_slice(&(!fold(sum)).to_be_bytes());
        Ok(())
    }
}

/// Traffic class and time to live of the outer header for a packet with these inside (RFC 2983,
/// RFC 6040); `inner` is `None` for what is not IP.
#[inline(always)]
pub(super) fn fields(options: &TunnelOptions, inner: Option<(TrafficClass, u8)>) -> Fields {
    let (class, ttl) = inner.unwrap_or((TrafficClass(0), Ttl::DEFAULT.get()));
    let dscp = match options.dscp {
        TunnelDscp::Fixed(dscp) => dscp,
        TunnelDscp::Inherit => class.dscp(),
    };
    let ecn = crate::wire::Ecn::encapsulate(class.ecn(), options.ecn);
    let time_to_live = match options.ttl {
        Ttl::Fixed(ttl) => ttl.get(),
        // RFC 1122, 3.2.1.7: nothing is sent with a time to live of zero.
        Ttl::Inherit => ttl.max(1),
    };
    Fields { traffic_class: TrafficClass::new(dscp, ecn), time_to_live }
}

/// The sum over `length` bytes of the packet from `offset` on, whatever frames they are in.
pub(super) fn sum(packet: &Packet, offset: usize, length: usize) -> Checksum {
    let (mut skip, mut left) = (offset, length);
    let mut sum = Checksum::new();
    for segment in packet.segments() {
        let from = skip.min(segment.len());
        let count = (segment.len() - from).min(left);
        sum.add(&segment[from..from + count]);
        skip -= from;
        left -= count;
    }
    sum
}

/// Writes what stands before the IPv4 header and returns its length.
fn link_header(bytes: &mut [u8; LONGEST], underlay: &Underlay) -> usize {
    let Underlay { mac, vlan, .. } = *underlay;
    let ether_type = if vlan.is_some() { EtherType::VLAN } else { EtherType::IPV4 };
    let header = EthernetHeader { destination: MacAddress::ZERO, source: mac, ether_type };
    header.emit(bytes).expect("the array has room for the longest headers");
    let Some(vlan) = vlan else { return Ethernet::HEADER_BYTES };
    let tag = [vlan.get().to_be_bytes(), EtherType::IPV4.0.to_be_bytes()];
    bytes[Ethernet::HEADER_BYTES..][..Vlan::HEADER_BYTES].copy_from_slice(tag.as_flattened());
    Ethernet::HEADER_BYTES + Vlan::HEADER_BYTES
}

#[inline(always)]
fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) as u16
}
