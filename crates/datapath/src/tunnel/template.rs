//! The outer headers of one tunnel, written once and copied in front of every packet.

use super::options::{Ttl, TunnelDscp, TunnelOptions, Underlay};
use super::{Encapsulation, Ends, IPV4_BYTES, OPTIONS_BYTES, encapsulation, vxlan};
use crate::wire::{
    Ecn, EtherType, Ethernet, EthernetHeader, Gre, IpProtocol, Ipv4, Ipv4Header, Ipv6, Ipv6Header,
    Ipv6Options, MacAddress, TrafficClass, Udp, Vlan,
};
use polder_buffers::{NoRoom, Packet, prefetch};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The longest outer headers: Ethernet, one tag, IPv6 with an encapsulation limit, GRE with all its fields.
const LONGEST: usize = Ethernet::HEADER_BYTES
    + Vlan::HEADER_BYTES
    + Ipv6::HEADER_BYTES
    + OPTIONS_BYTES as usize
    + Gre::MAX_HEADER_BYTES;

/// Number of bytes written in front of every IPv4 packet: a whole line, the last bytes of which are the
/// headers, so that it is a few moves of a length that the compiler knows, however long they are.
const LINE: usize = 64;
const LINE_U16: u16 = 64;
const _: () = assert!(LONGEST - OPTIONS_BYTES as usize - Ipv6::HEADER_BYTES + Ipv4::HEADER_BYTES <= LINE);

/// Number of bytes kept: headers of either family.
const ROOM: usize = 96;
const _: () = assert!(LONGEST <= ROOM);

/// Outer headers without the fields that differ from packet to packet: lengths, traffic class and
/// time to live where they are inherited, numbers and checksums.
#[derive(Clone, Copy, Debug)]
pub(super) struct Template {
    /// The headers, at the end.
    bytes: [u8; ROOM],
    length: u16,
    /// Bytes before the IP header.
    link: u16,
    /// Bytes before the header of the encapsulation.
    transport: u16,
    is_v6: bool,
    /// True if a UDP header follows the IP header.
    is_udp: bool,
    inherited: Inherited,
    /// Sum over the IPv4 header with zeros for total length, traffic class, time to live and
    /// identification.
    sum: u32,
}

/// Fields that differ from packet to packet.
///
/// One word for the same reason as [`Label`]: bits 0 to 7 traffic class, 8 to 15 time to live, 16 to 31 identification,
/// 32 to 47 UDP source port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    word: u64,
    pub(super) label: Label,
}

impl Fields {
    /// Fields without a label and a source port. The identification is 0 for packets that must not be fragmented, and for
    /// IPv6.
    #[inline(always)]
    fn new(traffic_class: TrafficClass, time_to_live: u8, identification: u16) -> Self {
        let word =
            u64::from(identification) << 16 | u64::from(time_to_live) << 8 | u64::from(traffic_class.0);
        Self { word, label: Label::default() }
    }

    /// Sets the UDP source port, which is not there yet.
    #[inline(always)]
    pub(super) fn set_source_port(&mut self, port: u16) {
        self.word |= u64::from(port) << 32;
    }

    #[inline(always)]
    const fn traffic_class(self) -> TrafficClass {
        TrafficClass(self.word.to_le_bytes()[0])
    }

    #[inline(always)]
    const fn time_to_live(self) -> u8 {
        self.word.to_le_bytes()[1]
    }

    #[inline(always)]
    const fn identification(self) -> u16 {
        (self.word >> 16 & 0xffff) as u16
    }

    #[inline(always)]
    const fn source_port(self) -> u16 {
        (self.word >> 32 & 0xffff) as u16
    }
}

/// Fields of IPv6 alone: the flow label, and the encapsulation limit, if it is not that of the tunnel.
///
/// One word, as the bytes beside it: what is put together from parts of several lengths in memory is not
/// ready for who reads it in one piece, and a packet over IPv4 waited for that, a third of its time here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Label(u32);

impl Label {
    const FLOW: u32 = 0x000f_ffff;
    const HAS_LIMIT: u32 = 1 << 20;

    #[inline(always)]
    pub(super) fn new(flow_label: u32, limit: Option<u8>) -> Self {
        Self(flow_label & Self::FLOW | limit.map_or(0, |limit| Self::HAS_LIMIT | u32::from(limit) << 24))
    }

    fn limit(self) -> Option<u8> {
        let [limit, ..] = self.0.to_be_bytes();
        (self.0 & Self::HAS_LIMIT != 0).then_some(limit)
    }
}

/// Fields of the outer header that are those of the packet inside (RFC 2983, RFC 6040).
#[derive(Clone, Copy, Debug)]
struct Inherited {
    /// Bits of the traffic class that are inherited.
    class_bits: u8,
    /// All other bits.
    fixed_class: u8,
    /// The same of the time to live.
    ttl_bits: u8,
    fixed_ttl: u8,
}

impl Inherited {
    fn of(options: &TunnelOptions) -> Self {
        let (dscp_bits, fixed_class) = match options.dscp {
            TunnelDscp::Fixed(dscp) => (0, TrafficClass::new(dscp, Ecn::NotCapable).0),
            TunnelDscp::Inherit => (!ECN_BITS, 0),
        };
        let (ttl_bits, fixed_ttl) = match options.ttl {
            Ttl::Fixed(ttl) => (0, ttl.get()),
            Ttl::Inherit => (u8::MAX, 0),
        };
        // A field of ones becomes what is inherited of any.
        let ecn_bits = Ecn::encapsulate(Ecn::Congestion, options.ecn).bits();
        Self { class_bits: dscp_bits | ecn_bits, fixed_class, ttl_bits, fixed_ttl }
    }
}

/// Bits of the ECN field in a traffic class.
const ECN_BITS: u8 = 0b11;

impl Template {
    pub(super) fn new(options: &TunnelOptions, underlay: &Underlay) -> Self {
        let mut bytes = [0; LONGEST];
        let link = link_header(&mut bytes, underlay, options.ends.is_v6());
        let rest = &mut bytes[link..];
        let (rest, sum) = match options.ends {
            Ends::V4 { local, remote } => header_v4(rest, options, (local, remote)),
            Ends::V6 { local, remote } => header_v6(rest, options, (local, remote)),
        };
        let before = rest.len();
        let rest = encapsulation::emit(options, rest).map(|rest| rest.len());
        let rest = rest.expect("the array has room for the longest headers");
        let count = |bytes: usize| u16::try_from(bytes).expect("headers of 82 bytes at most");
        let headers = &bytes[..LONGEST - rest];
        let mut bytes = [0; ROOM];
        bytes[ROOM - headers.len()..].copy_from_slice(headers);
        Self {
            bytes,
            length: count(headers.len()),
            link: count(link),
            transport: count(LONGEST - before),
            is_v6: options.ends.is_v6(),
            is_udp: options.encapsulation != Encapsulation::Gre,
            inherited: Inherited::of(options),
            sum,
        }
    }

    /// Hints that it is going to be read.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(&self.bytes);
        prefetch(&self.bytes[LINE..]);
        prefetch(&self.sum);
    }

    /// The same for a next hop.
    #[inline]
    pub(super) fn addressed(mut self, next_hop: MacAddress) -> Self {
        let start = ROOM - usize::from(self.length);
        if let Some(destination) = self.bytes[start..].first_chunk_mut() {
            *destination = next_hop.0;
        }
        self
    }

    /// Bytes of all outer headers.
    #[inline(always)]
    pub(super) fn len(&self) -> u16 {
        self.length
    }

    /// Bytes before the IP header.
    #[inline(always)]
    pub(super) fn link(&self) -> u16 {
        self.link
    }

    /// Bytes before the header of the encapsulation.
    #[inline(always)]
    pub(super) fn transport(&self) -> u16 {
        self.transport
    }

    /// The headers without fields that differ from packet to packet, the sum of the IPv4 header among them, and the bits
    /// of traffic class and time to live that are inherited, each with all others.
    pub(super) fn parts(&self) -> (&[u8], u32, [(u8, u8); 2]) {
        let Inherited { class_bits, fixed_class, ttl_bits, fixed_ttl } = self.inherited;
        let headers = &self.bytes[ROOM - usize::from(self.length)..];
        (headers, self.sum, [(class_bits, fixed_class), (ttl_bits, fixed_ttl)])
    }

    /// Fields of an outer header for a packet with this traffic class and time to live inside.
    #[inline(always)]
    pub(super) fn fields(&self, (class, ttl): (TrafficClass, u8), identification: u16) -> Fields {
        let Inherited { class_bits, fixed_class, ttl_bits, fixed_ttl } = self.inherited;
        let class = TrafficClass(class.0 & class_bits | fixed_class);
        // RFC 1122, 3.2.1.7: nothing is sent with a time to live of zero.
        Fields::new(class, (ttl & ttl_bits | fixed_ttl).max(1), identification)
    }

    /// Writes the headers in front of the packet. Sequence number and GRE checksum stay zero. What else
    /// is in the headroom may be overwritten.
    ///
    /// # Errors
    /// [`NoRoom::Front`]; nothing is written then.
    #[inline(always)]
    pub(super) fn write(&self, packet: &mut Packet, fields: Fields) -> Result<(), NoRoom> {
        if self.is_v6 {
            let TrafficClass(class) = fields.traffic_class();
            return self.write_v6(packet, class, fields);
        }
        let total_length = u16::try_from(packet.len() + usize::from(self.length - self.link));
        let total_length = total_length.map_err(|_| NoRoom::Back)?;
        let before = usize::from(self.length - self.link);
        if let Ok(room) = packet.prepend(LINE_U16) {
            let line: &mut [u8; LINE] = room.try_into().map_err(|_| NoRoom::Front)?;
            line.copy_from_slice(&self.bytes[ROOM - LINE..]);
            self.fill_in(&mut line[LINE - before..], total_length, fields);
            return packet.trim_front(LINE_U16 - self.length);
        }
        self.write_closely(packet, total_length, fields)
    }

    /// The same where a line has no room.
    #[cold]
    fn write_closely(&self, packet: &mut Packet, total_length: u16, fields: Fields) -> Result<(), NoRoom> {
        let room = packet.prepend(self.length)?;
        room.copy_from_slice(&self.bytes[ROOM - usize::from(self.length)..]);
        self.fill_in(&mut room[usize::from(self.link)..], total_length, fields);
        Ok(())
    }

    /// [`write`](Self::write) where an IPv6 header is outside.
    #[inline(never)]
    fn write_v6(&self, packet: &mut Packet, class: u8, fields: Fields) -> Result<(), NoRoom> {
        let (hop_limit, label, source_port) = (fields.time_to_live(), fields.label, fields.source_port());
        let headers = usize::from(self.length - self.link) - Ipv6::HEADER_BYTES;
        let payload_length = u16::try_from(packet.len() + headers).map_err(|_| NoRoom::Back)?;
        let room = packet.prepend(self.length)?;
        room.copy_from_slice(&self.bytes[ROOM - usize::from(self.length)..]);
        let header = &mut room[usize::from(self.link)..];
        let first = 6 << 28 | u32::from(class) << 20 | label.0 & Label::FLOW;
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&payload_length.to_be_bytes());
        header[7] = hop_limit;
        let has_limit = self.transport - self.link > super::IPV6_BYTES;
        if let Some(limit) = label.limit().filter(|_| has_limit) {
            header[Ipv6::HEADER_BYTES + Ipv6Options::LIMIT_AT] = limit;
        }
        if self.is_udp
            && let Some(udp) = header[Ipv6::HEADER_BYTES..].first_chunk_mut()
        {
            put_udp(udp, source_port, payload_length);
        }
        Ok(())
    }

    /// Fills in an IPv4 header, and a UDP header behind it.
    #[inline(always)]
    fn fill_in(&self, header: &mut [u8], total_length: u16, fields: Fields) {
        let Some((header, rest)) = header.split_first_chunk_mut::<{ Ipv4::HEADER_BYTES }>() else { return };
        let (TrafficClass(class), time_to_live) = (fields.traffic_class(), fields.time_to_live());
        let identification = fields.identification();
        let sum = self.sum + u32::from(total_length) + u32::from(identification);
        let sum = sum + u32::from(class) + (u32::from(time_to_live) << 8);
        header[1] = class;
        header[2..4].copy_from_slice(&total_length.to_be_bytes());
        header[4..6].copy_from_slice(&identification.to_be_bytes());
        header[8] = time_to_live;
        header[10..12].copy_from_slice(&(!fold(sum)).to_be_bytes());
        if self.is_udp
            && let Some(udp) = rest.first_chunk_mut()
        {
            put_udp(udp, fields.source_port(), total_length.wrapping_sub(IPV4_BYTES));
        }
    }
}

/// Writes the IPv4 header without the fields that differ, and returns the bytes behind it and its sum.
fn header_v4<'b>(
    bytes: &'b mut [u8],
    options: &TunnelOptions,
    (source, destination): (Ipv4Addr, Ipv4Addr),
) -> (&'b mut [u8], u32) {
    let ip = Ipv4Header {
        traffic_class: TrafficClass(0),
        total_length: 0,
        identification: 0,
        dont_fragment: options.dont_fragment,
        more_fragments: false,
        fragment_offset: 0,
        time_to_live: 0,
        protocol: options.encapsulation.carrier().protocol(),
        source,
        destination,
    };
    ip.emit(bytes).expect("the array has room for the longest headers");
    let sum = !u16::from_be_bytes([bytes[10], bytes[11]]);
    (&mut bytes[Ipv4::HEADER_BYTES..], u32::from(sum))
}

/// The same with IPv6, and the encapsulation limit behind it, where there is one.
fn header_v6<'b>(
    bytes: &'b mut [u8],
    options: &TunnelOptions,
    (source, destination): (Ipv6Addr, Ipv6Addr),
) -> (&'b mut [u8], u32) {
    let limit = options.encapsulation_limit;
    let protocol = options.encapsulation.carrier().protocol();
    let ip = Ipv6Header {
        traffic_class: TrafficClass(0),
        flow_label: 0,
        payload_length: 0,
        next_header: if limit.is_some() { IpProtocol::DESTINATION_OPTIONS } else { protocol },
        hop_limit: 0,
        source,
        destination,
    };
    let rest = ip.emit(bytes).expect("the array has room for the longest headers");
    let Some(limit) = limit else { return (rest, 0) };
    let (options, rest) = rest.split_at_mut(usize::from(OPTIONS_BYTES));
    options.copy_from_slice(&Ipv6Options::with_limit(protocol, limit));
    (rest, 0)
}

/// Writes the Ethernet header, and a tag, where the underlay has one; says how long they are.
fn link_header(bytes: &mut [u8; LONGEST], underlay: &Underlay, is_v6: bool) -> usize {
    let Underlay { mac, vlan, .. } = *underlay;
    let network = if is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
    let ether_type = if vlan.is_some() { EtherType::VLAN } else { network };
    let header = EthernetHeader { destination: MacAddress::ZERO, source: mac, ether_type };
    header.emit(bytes).expect("the array has room for the longest headers");
    let Some(vlan) = vlan else { return Ethernet::HEADER_BYTES };
    let tag = [vlan.get().to_be_bytes(), network.0.to_be_bytes()];
    bytes[Ethernet::HEADER_BYTES..][..Vlan::HEADER_BYTES].copy_from_slice(tag.as_flattened());
    Ethernet::HEADER_BYTES + Vlan::HEADER_BYTES
}

/// Fills in source port and length of a UDP header.
#[inline(always)]
fn put_udp(header: &mut [u8; Udp::HEADER_BYTES], source_port: u16, length: u16) {
    header[..2].copy_from_slice(&source_port.to_be_bytes());
    header[vxlan::LENGTH..vxlan::LENGTH + 2].copy_from_slice(&length.to_be_bytes());
}

#[inline(always)]
fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::TunnelState;
    use crate::wire::{Dscp, EcnMode, GreHeader, VlanId};
    use core::num::NonZeroU8;
    use polder_buffers::{PortId, Region, RegionOptions};
    use std::sync::Arc;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const NEXT_HOP: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

    const ENDS: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 1));

    fn fields_of(class: u8, time_to_live: u8, identification: u16) -> Fields {
        Fields::new(TrafficClass(class), time_to_live, identification)
    }

    fn options(choice: u8) -> (TunnelOptions, Underlay) {
        let mut options = TunnelOptions::new(PortId(5), ENDS, PortId(1), Arc::new(TunnelState::new(1)));
        let has = |bit: u8| choice >> bit & 1 != 0;
        options.checksum = has(0);
        options.key = has(1).then_some(0x0102_0304);
        options.sequence = has(2);
        options.dont_fragment = has(3);
        let vlan = has(4).then(|| VlanId::configured(7)).flatten();
        (options, Underlay { port: PortId(1), mac: MAC, mtu: 1500, vlan, is_shared: false })
    }

    /// Headers equal those of the general emitters, for every choice of options.
    #[test]
    fn headers_are_those_of_the_emitters() {
        let region = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 }).expect("memory for a test");
        let mut pool = region.pool();
        for choice in 0..32 {
            let (options, underlay) = options(choice);
            let template = Template::new(&options, &underlay).addressed(NEXT_HOP);
            let mut packet = Packet::copy_from(&[0x5a; 300], &mut pool).expect("a free slot");
            let fields = fields_of(0xb9, 0xfe, 0xfedc);
            template.write(&mut packet, fields).expect("room in front");
            let link = usize::from(template.link());
            let ip = Ipv4Header {
                traffic_class: TrafficClass(0xb9),
                total_length: u16::try_from(packet.len() - link).expect("short"),
                identification: 0xfedc,
                dont_fragment: options.dont_fragment,
                more_fragments: false,
                fragment_offset: 0,
                time_to_live: 0xfe,
                protocol: IpProtocol::GRE,
                source: ENDS.0,
                destination: ENDS.1,
            };
            let gre = GreHeader {
                protocol: EtherType::TRANSPARENT_ETHERNET,
                checksum: options.checksum,
                key: options.key,
                sequence: options.sequence.then_some(0),
            };
            let mut expected = vec![0; link + 20 + gre.header_bytes()];
            gre.emit(ip.emit(&mut expected[link..]).expect("room")).expect("room");
            assert_eq!(packet.bytes()[link..expected.len()], expected[link..], "{choice:05b}");
            assert_eq!(packet.bytes()[..12], [NEXT_HOP.0, MAC.0].concat());
            let rest: &[u8] = if underlay.vlan.is_some() { &[0x81, 0, 0, 7, 8, 0] } else { &[8, 0] };
            assert_eq!(packet.bytes()[12..link], *rest);
            assert_eq!((usize::from(template.len()), expected.len()), (expected.len(), packet.len() - 300));
            assert_eq!(usize::from(template.transport()), link + 20);
            pool.release_packet(packet);
        }
    }

    #[test]
    fn too_long_for_a_total_length() {
        let region = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 }).expect("memory for a test");
        let mut pool = region.pool();
        let (options, underlay) = options(0);
        let template = Template::new(&options, &underlay);
        let fields = fields_of(0, 64, 0);
        for (length, fits) in [(65_511, true), (65_512, false)] {
            let mut packet = Packet::copy_from(&vec![0; length], &mut pool).expect("free slots");
            assert_eq!(template.write(&mut packet, fields).is_ok(), fits);
            assert_eq!(packet.len(), if fits { length + 38 } else { length });
            pool.release_packet(packet);
        }
    }

    #[test]
    fn fields_are_fixed_or_inherited() {
        let (mut options, underlay) = options(0);
        let inner = TrafficClass::new(Dscp::EXPEDITED, Ecn::Capable0);
        let other = (TrafficClass(0), Ttl::DEFAULT.get());
        let set = |options: &TunnelOptions, inner| {
            let template = Template::new(options, &underlay);
            let fields = template.fields(inner, 0);
            let (traffic_class, time_to_live) = (fields.traffic_class(), fields.time_to_live());
            (traffic_class.dscp().get(), traffic_class.ecn(), time_to_live)
        };
        assert_eq!(set(&options, (inner, 9)), (46, Ecn::Capable0, 64));
        assert_eq!(set(&options, other), (0, Ecn::NotCapable, 64));
        options.ttl = Ttl::Inherit;
        assert_eq!(set(&options, (inner, 9)), (46, Ecn::Capable0, 9));
        assert_eq!(set(&options, (inner, 0)), (46, Ecn::Capable0, 1));
        assert_eq!(set(&options, other), (0, Ecn::NotCapable, 64));
        options.ttl = Ttl::Fixed(NonZeroU8::MAX);
        options.dscp = TunnelDscp::Fixed(Dscp::LOWER_EFFORT);
        options.ecn = EcnMode::Compatibility;
        assert_eq!(set(&options, (inner, 9)), (1, Ecn::NotCapable, 255));
        assert_eq!(set(&options, other), (1, Ecn::NotCapable, 255));
    }
}
