//! Builds a template from a tunnel's options.

use super::{Inherited, LONGEST, ROOM, Template};
use crate::tunnel::options::{Ttl, TunnelDscp, TunnelOptions, Underlay};
use crate::tunnel::{Ends, OPTIONS_BYTES};
use crate::wire::{
    Ecn, EtherType, Ethernet, EthernetHeader, IpProtocol, Ipv4, Ipv4Header, Ipv6Header, Ipv6Options,
    MacAddress, TrafficClass, Vlan,
};
use std::net::{Ipv4Addr, Ipv6Addr};

impl Template {
    pub(in crate::tunnel) fn new(options: &TunnelOptions, underlay: &Underlay) -> Self {
        let mut bytes = [0; LONGEST];
        let link = link_header(&mut bytes, underlay, options.ends.is_v6());
        let rest = &mut bytes[link..];
        let (rest, sum) = match options.ends {
            Ends::V4 { local, remote } => header_v4(rest, options, (local, remote)),
            Ends::V6 { local, remote } => header_v6(rest, options, (local, remote)),
        };
        let before = rest.len();
        let rest = options.emit(rest).map(|rest| rest.len());
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
            is_udp: options.encapsulation.carrier().port().is_some(),
            inherited: Inherited::of(options),
            sum,
        }
    }

    /// The same template with a next hop as destination.
    pub(in crate::tunnel) fn addressed(mut self, next_hop: MacAddress) -> Self {
        let start = ROOM - usize::from(self.length);
        if let Some(destination) = self.bytes[start..].first_chunk_mut() {
            *destination = next_hop.0;
        }
        self
    }

    /// The headers without fields that vary per packet, the sum of their IPv4 header, and for traffic class
    /// and TTL the mask of inherited bits with the fixed value.
    pub(in crate::tunnel) fn parts(&self) -> (&[u8], u32, [(u8, u8); 2]) {
        let Inherited { class_bits, fixed_class, ttl_bits, fixed_ttl } = self.inherited;
        let headers = &self.bytes[ROOM - usize::from(self.length)..];
        (headers, self.sum, [(class_bits, fixed_class), (ttl_bits, fixed_ttl)])
    }
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
        // Encapsulating a field of ones leaves exactly the inherited bits.
        let ecn_bits = Ecn::encapsulate(Ecn::Congestion, options.ecn).bits();
        Self { class_bits: dscp_bits | ecn_bits, fixed_class, ttl_bits, fixed_ttl }
    }
}

/// Mask of the ECN field in a traffic class.
const ECN_BITS: u8 = 0b11;

/// Writes the IPv4 header without fields that vary per packet; returns the bytes after it and its sum.
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

/// Writes the IPv6 header, and the encapsulation limit if configured; returns the bytes after them and 0 as
/// sum.
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

/// Writes the Ethernet header and the underlay's tag, if any; returns their length in bytes.
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
