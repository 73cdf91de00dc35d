//! Template of a tunnel's outer headers, copied before every packet.

mod build;
mod outer_v6;

use super::{IPV4_BYTES, OPTIONS_BYTES, vxlan};
use crate::wire::{Ethernet, Gre, Ipv4, Ipv6, MacAddress, TrafficClass, Udp, Vlan};
pub(super) use outer_v6::Label;
use polder_buffers::{NoRoom, Packet, prefetch};

/// Maximum length of outer headers in bytes: Ethernet, one tag, IPv6 with encapsulation limit, GRE with all
/// fields.
const LONGEST: usize = Ethernet::HEADER_BYTES
    + Vlan::HEADER_BYTES
    + Ipv6::HEADER_BYTES
    + OPTIONS_BYTES as usize
    + Gre::MAX_HEADER_BYTES;

/// Number of bytes written before an IPv4 packet: a whole cache line whose last bytes are the headers,
/// so that the copy is a few moves of constant length.
const LINE: usize = 64;
const LINE_U16: u16 = 64;
const _: () = assert!(LONGEST - OPTIONS_BYTES as usize - Ipv6::HEADER_BYTES + Ipv4::HEADER_BYTES <= LINE);

/// Number of bytes stored: headers of either family.
const ROOM: usize = 96;
const _: () = assert!(LONGEST <= ROOM);

/// Outer headers without the fields that vary per packet: lengths, inherited traffic class and TTL, numbers
/// and checksums.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Template {
    /// The headers, at the end of the array.
    bytes: [u8; ROOM],
    length: u16,
    /// Length of the link header in bytes.
    link: u16,
    /// Offset of the encapsulation's header in bytes.
    transport: u16,
    is_v6: bool,
    /// True if a UDP header follows the IP header.
    is_udp: bool,
    inherited: Inherited,
    /// Sum over the IPv4 header with zero for total length, traffic class, TTL and identification.
    sum: u32,
}

/// The first eight bytes of the outer headers: destination MAC address, and start of the source MAC address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start([u8; 8]);

/// Fields that vary per packet.
///
/// One word, like [`Label`]: bits 0 to 7 traffic class, 8 to 15 TTL, 16 to 31 identification, 32 to 47 UDP
/// source port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    word: u64,
    pub(super) label: Label,
}

impl Fields {
    /// Fields without label and source port. The identification is 0 for IPv6 and for packets with DF.
    #[inline(always)]
    fn new(traffic_class: TrafficClass, time_to_live: u8, identification: u16) -> Self {
        let word =
            u64::from(identification) << 16 | u64::from(time_to_live) << 8 | u64::from(traffic_class.0);
        Self { word, label: Label::default() }
    }

    /// Sets the UDP source port; it must not have been set before.
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

/// Outer fields that are copied from the inner packet (RFC 2983, RFC 6040).
#[derive(Clone, Copy, Debug)]
struct Inherited {
    /// Mask of the inherited bits of the traffic class.
    class_bits: u8,
    /// Value of the other bits of the traffic class.
    fixed_class: u8,
    /// Mask of the inherited bits of the TTL.
    ttl_bits: u8,
    fixed_ttl: u8,
}

impl Template {
    /// Prefetches the template.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(&self.bytes);
        prefetch(&self.bytes[LINE..]);
    }

    /// Length of all outer headers in bytes.
    #[inline(always)]
    pub(super) fn len(&self) -> u16 {
        self.length
    }

    /// Length of the link header in bytes.
    #[inline(always)]
    pub(super) fn link(&self) -> u16 {
        self.link
    }

    /// Offset of the encapsulation's header in bytes.
    #[inline(always)]
    pub(super) fn transport(&self) -> u16 {
        self.transport
    }

    /// Outer fields for an inner packet with this traffic class and TTL.
    #[inline(always)]
    pub(super) fn fields(&self, (class, ttl): (TrafficClass, u8), identification: u16) -> Fields {
        let Inherited { class_bits, fixed_class, ttl_bits, fixed_ttl } = self.inherited;
        let class = TrafficClass(class.0 & class_bits | fixed_class);
        // RFC 1122, 3.2.1.7: a packet must not be sent with a TTL of zero.
        Fields::new(class, (ttl & ttl_bits | fixed_ttl).max(1), identification)
    }

    /// First bytes of outer headers to a next hop.
    #[inline(always)]
    pub(super) fn start(&self, next_hop: MacAddress) -> Start {
        let MacAddress([a, b, c, d, e, f]) = next_hop;
        let place = ROOM - usize::from(self.length) + 6;
        let [g, h] =
            self.bytes.get(place..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default();
        Start([a, b, c, d, e, f, g, h])
    }

    /// Writes the headers before the packet; they begin with `start`. Sequence number and GRE checksum
    /// stay zero. The rest of the headroom may be overwritten.
    ///
    /// # Errors
    /// [`NoRoom::Front`]; nothing is written then.
    #[inline(always)]
    pub(super) fn write(&self, packet: &mut Packet, start: Start, fields: Fields) -> Result<(), NoRoom> {
        if self.is_v6 {
            let TrafficClass(class) = fields.traffic_class();
            self.write_v6(packet, class, fields)?;
        } else {
            self.write_v4(packet, fields)?;
        }
        if let Some(bytes) = packet.bytes_mut().first_chunk_mut() {
            *bytes = start.0;
        }
        Ok(())
    }

    #[inline(always)]
    fn write_v4(&self, packet: &mut Packet, fields: Fields) -> Result<(), NoRoom> {
        let total_length = u16::try_from(packet.len() + usize::from(self.length - self.link));
        let total_length = total_length.map_err(|_| NoRoom::Back)?;
        // Constant lengths compile to a few moves, and the packet's start is moved once.
        const GRE: u16 = 38;
        const WITH_KEY: u16 = 42;
        const VXLAN: u16 = 50;
        match self.length {
            GRE => self.write_exactly::<{ GRE as usize }>(packet, total_length, fields),
            WITH_KEY => self.write_exactly::<{ WITH_KEY as usize }>(packet, total_length, fields),
            VXLAN => self.write_exactly::<{ VXLAN as usize }>(packet, total_length, fields),
            _ => self.write_line(packet, total_length, fields),
        }
    }

    /// Writes IPv4 headers of `N` bytes.
    #[inline(always)]
    fn write_exactly<const N: usize>(
        &self,
        packet: &mut Packet,
        total_length: u16,
        fields: Fields,
    ) -> Result<(), NoRoom> {
        let room: &mut [u8; N] = packet.prepend(self.length)?.try_into().map_err(|_| NoRoom::Front)?;
        *room = *self.bytes.last_chunk().ok_or(NoRoom::Front)?;
        if let Some(header) = room.get_mut(usize::from(self.link)..) {
            self.fill_in(header, total_length, fields);
        }
        Ok(())
    }

    /// Writes IPv4 headers of any length as a whole cache line.
    #[inline(never)]
    fn write_line(&self, packet: &mut Packet, total_length: u16, fields: Fields) -> Result<(), NoRoom> {
        let before = usize::from(self.length - self.link);
        if let Ok(room) = packet.prepend(LINE_U16) {
            let line: &mut [u8; LINE] = room.try_into().map_err(|_| NoRoom::Front)?;
            line.copy_from_slice(&self.bytes[ROOM - LINE..]);
            self.fill_in(&mut line[LINE - before..], total_length, fields);
            return packet.trim_front(LINE_U16 - self.length);
        }
        self.write_closely(packet, total_length, fields)
    }

    /// Writes IPv4 headers into less headroom than a cache line.
    #[cold]
    fn write_closely(&self, packet: &mut Packet, total_length: u16, fields: Fields) -> Result<(), NoRoom> {
        let room = packet.prepend(self.length)?;
        room.copy_from_slice(&self.bytes[ROOM - usize::from(self.length)..]);
        self.fill_in(&mut room[usize::from(self.link)..], total_length, fields);
        Ok(())
    }

    /// Fills in an IPv4 header, and the UDP header after it.
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
    use crate::tunnel::options::{Ttl, TunnelDscp, TunnelOptions, Underlay};
    use crate::wire::{Dscp, EcnMode, GreHeader, VlanId};
    use crate::wire::{Ecn, EtherType, IpProtocol, Ipv4Header};
    use core::num::NonZeroU8;
    use polder_buffers::{PortId, Region, RegionOptions};
    use std::net::Ipv4Addr;
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
            let template = Template::new(&options, &underlay);
            let mut packet = Packet::copy_from(&[0x5a; 300], &mut pool).expect("a free slot");
            let fields = fields_of(0xb9, 0xfe, 0xfedc);
            template.write(&mut packet, template.start(NEXT_HOP), fields).expect("room in front");
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
            assert_eq!(template.write(&mut packet, template.start(NEXT_HOP), fields).is_ok(), fits);
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
