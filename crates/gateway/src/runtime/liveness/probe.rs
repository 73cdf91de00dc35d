//! Bytes of a keepalive, from the GRE or VXLAN header on.
//!
//! In a layer-3 tunnel, the inner packet is the answer itself (Cisco's format): an IP packet from the remote
//! to the local end, with a GRE header of protocol type 0 and the local MAC address as payload. The remote
//! end decapsulates it and forwards it back. In a layer-2 tunnel, the inner frame asks for an address, by ARP
//! (a probe, RFC 5227) or neighbour discovery (RFC 4861).

use crate::config::model::Tunnel;
use polder_datapath::wire::{
    Arp, ArpHeader, ArpOperation, Dscp, Ecn, EtherType, Ethernet, EthernetHeader, GreHeader, GreMut,
    IcmpHeader, Icmpv6, IpProtocol, Ipv4, Ipv4Header, Ipv6, Ipv6Header, MacAddress, Pseudo, TooShort,
    TrafficClass, Vxlan, VxlanHeader,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Protocol type of an answer, which has no inner packet.
const NOTHING: EtherType = EtherType(0);
/// TTL of an answer, which may cross routers.
const ANSWER_TTL: u8 = 255;
/// Hop limit of neighbour discovery (RFC 4861, 7.1.1).
const DISCOVERY_TTL: u8 = 255;
/// Length of a neighbour solicitation in bytes: header, target, source link-layer address option.
const SOLICITATION: usize = 32;
/// Offsets in a neighbour solicitation.
const TARGET: usize = 8;
const OPTION: usize = 24;
/// Type and length (8 bytes) of the source link-layer address option (RFC 4861, 4.6.1).
const SOURCE_ADDRESS: [u8; 2] = [1, 1];

/// Reason why a tunnel has no keepalive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoKeepalive {
    /// The addresses of the keepalive do not fit together.
    #[error("the addresses of the tunnel do not allow keepalives")]
    Impossible,
}

impl From<TooShort> for NoKeepalive {
    fn from(_: TooShort) -> Self {
        Self::Impossible
    }
}

/// Bytes of a keepalive from `station`, from the GRE or VXLAN header on.
///
/// # Errors
/// When the tunnel cannot have keepalives; the configuration's checks prevent that.
pub(super) fn keepalive(tunnel: &Tunnel, station: MacAddress) -> Result<Vec<u8>, NoKeepalive> {
    if !tunnel.kind.has_keepalives() {
        return Err(NoKeepalive::Impossible);
    }
    let (protocol, inside) = if tunnel.is_routed() {
        answer(tunnel, station)?
    } else {
        let asked = tunnel.keepalive.and_then(|keepalive| keepalive.address);
        (EtherType::TRANSPARENT_ETHERNET, question(station, asked.ok_or(NoKeepalive::Impossible)?)?)
    };
    match tunnel.vxlan {
        Some(vxlan) => {
            let mut bytes = vec![0; Vxlan::HEADER_BYTES];
            VxlanHeader { vni: vxlan.vni }.emit(&mut bytes)?;
            bytes.extend(inside);
            Ok(bytes)
        }
        None => gre(tunnel, protocol, &inside),
    }
}

/// A GRE packet of the tunnel.
fn gre(tunnel: &Tunnel, protocol: EtherType, inside: &[u8]) -> Result<Vec<u8>, NoKeepalive> {
    let header = GreHeader { protocol, checksum: tunnel.checksum, key: tunnel.key, sequence: None };
    let mut bytes = vec![0; header.header_bytes()];
    header.emit(&mut bytes)?;
    bytes.extend(inside);
    GreMut::parse(&mut bytes).map_err(|_| NoKeepalive::Impossible)?.set_checksum([]);
    Ok(bytes)
}

/// Inner packet that the remote end forwards back, and its protocol type.
fn answer(tunnel: &Tunnel, station: MacAddress) -> Result<(EtherType, Vec<u8>), NoKeepalive> {
    let payload = gre(tunnel, NOTHING, &station.0)?;
    let traffic_class = control_class();
    let (family, mut bytes) = match (tunnel.remote, tunnel.local) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut bytes = vec![0; Ipv4::HEADER_BYTES];
            Ipv4Header {
                traffic_class,
                total_length: length(Ipv4::HEADER_BYTES + payload.len())?,
                identification: 0,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                time_to_live: ANSWER_TTL,
                protocol: IpProtocol::GRE,
                source,
                destination,
            }
            .emit(&mut bytes)?;
            (EtherType::IPV4, bytes)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ends = (source, destination);
            (EtherType::IPV6, header_v6(ends, IpProtocol::GRE, ANSWER_TTL, payload.len())?)
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
            return Err(NoKeepalive::Impossible);
        }
    };
    bytes.extend(payload);
    Ok((family, bytes))
}

/// Inner frame that asks for an address.
fn question(station: MacAddress, asked: IpAddr) -> Result<Vec<u8>, NoKeepalive> {
    let (destination, ether_type, inside) = match asked {
        IpAddr::V4(asked) => (MacAddress::BROADCAST, EtherType::ARP, probe(station, asked)?),
        IpAddr::V6(asked) => {
            // Solicited-node multicast address (RFC 4291, 2.7.1) and its MAC address (RFC 2464, 7).
            let [.., a, b, c] = asked.octets();
            let group =
                Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
            (MacAddress([0x33, 0x33, 0xff, a, b, c]), EtherType::IPV6, solicitation(station, asked, group)?)
        }
    };
    let mut bytes = vec![0; Ethernet::HEADER_BYTES];
    EthernetHeader { destination, source: station, ether_type }.emit(&mut bytes)?;
    bytes.extend(inside);
    Ok(bytes)
}

/// An ARP probe: without a sender address, so that no table is changed.
fn probe(station: MacAddress, asked: Ipv4Addr) -> Result<Vec<u8>, NoKeepalive> {
    let mut bytes = vec![0; Arp::HEADER_BYTES];
    ArpHeader {
        operation: ArpOperation::REQUEST,
        sender_mac: station,
        sender_ip: Ipv4Addr::UNSPECIFIED,
        target_mac: MacAddress::ZERO,
        target_ip: asked,
    }
    .emit(&mut bytes)?;
    Ok(bytes)
}

/// A neighbour solicitation from the station's link-local address, so that the answer is unicast.
fn solicitation(station: MacAddress, asked: Ipv6Addr, group: Ipv6Addr) -> Result<Vec<u8>, NoKeepalive> {
    let source = link_local(station);
    let mut message = [0; SOLICITATION];
    let (_, body) = message.split_at_mut(TARGET);
    let fields = asked.octets().into_iter().chain(SOURCE_ADDRESS).chain(station.0);
    body.iter_mut().zip(fields).for_each(|(octet, field)| *octet = field);
    debug_assert_eq!(OPTION - TARGET, asked.octets().len(), "the option is behind the target");
    let header = IcmpHeader { kind: Icmpv6::NEIGHBOUR_SOLICITATION, code: 0, rest: 0 };
    header.emit_v6(&mut message, Pseudo::V6 { source, destination: group })?;
    let mut bytes = header_v6((source, group), IpProtocol::ICMPV6, DISCOVERY_TTL, message.len())?;
    bytes.extend(message);
    Ok(bytes)
}

fn header_v6(
    (source, destination): (Ipv6Addr, Ipv6Addr),
    next_header: IpProtocol,
    hop_limit: u8,
    payload_bytes: usize,
) -> Result<Vec<u8>, NoKeepalive> {
    let mut bytes = vec![0; Ipv6::HEADER_BYTES];
    let payload_length = length(payload_bytes)?;
    let traffic_class = control_class();
    Ipv6Header { traffic_class, flow_label: 0, payload_length, next_header, hop_limit, source, destination }
        .emit(&mut bytes)?;
    Ok(bytes)
}

/// Link-local address from a MAC address (RFC 4291, appendix A).
fn link_local(MacAddress([a, b, c, d, e, f]): MacAddress) -> Ipv6Addr {
    let groups = [[a ^ 2, b], [c, 0xff], [0xfe, d], [e, f]].map(u16::from_be_bytes);
    let [g, h, i, j] = groups;
    Ipv6Addr::new(0xfe80, 0, 0, 0, g, h, i, j)
}

fn control_class() -> TrafficClass {
    TrafficClass::new(Dscp::NETWORK_CONTROL, Ecn::NotCapable)
}

fn length(bytes: usize) -> Result<u16, NoKeepalive> {
    u16::try_from(bytes).map_err(|_| NoKeepalive::Impossible)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use crate::runtime::tunnels::keepalive_station;
    use polder_datapath::wire::Gre;
    use std::path::Path;

    /// The tunnel of a file.
    fn tunnel(keys: &str) -> Tunnel {
        let bridge = if keys.contains("addresses") { "" } else { "[bridge.b]\nmembers = [\"a\", \"t\"]\n" };
        let role = if bridge.is_empty() { "role = \"router\"" } else { "" };
        let text = format!(
            "version = 1\n[port.a]\ninterface = \"eth0\"\n{role}\n[port.u]\ninterface = \"eth1\"\nrole = \"underlay\"\n\
             [tunnel.t]\nport = \"u\"\n{keys}\n{bridge}"
        );
        let read = parse(&text, Path::new("a.toml")).unwrap_or_else(|report| panic!("{report}"));
        read.configuration.tunnels.first().cloned().expect("a tunnel")
    }

    fn station(tunnel: &Tunnel) -> MacAddress {
        keepalive_station(tunnel, 5)
    }

    const V4: &str = "local = \"192.0.2.1\"\nremote = \"192.0.2.2\"";
    const V6: &str = "local = \"2001:db8::1\"\nremote = \"2001:db8::2\"";

    /// The answer is from the other end to this one, with the tunnel's key and this end's station.
    #[test]
    fn a_keepalive_of_packets_has_its_answer_inside() {
        let addresses = "addresses = [\"10.0.0.1/31\"]\nkeepalive = {}";
        let four = tunnel(&format!("kind = \"gre\"\nkey = 7\nchecksum = true\n{V4}\n{addresses}"));
        let bytes = keepalive(&four, station(&four)).expect("a keepalive");
        let outer = Gre::parse(&bytes).expect("GRE");
        assert_eq!((outer.protocol(), outer.key(), outer.verify()), (EtherType::IPV4, Some(7), Ok(())));
        let ip = Ipv4::parse(outer.payload()).expect("IPv4");
        assert_eq!((ip.source().into(), ip.destination().into()), (four.remote, four.local));
        assert_eq!((ip.verify(), ip.protocol(), ip.time_to_live()), (Ok(()), IpProtocol::GRE, 255));
        let inner = Gre::parse(ip.payload()).expect("GRE");
        assert_eq!((inner.protocol(), inner.key(), inner.verify()), (NOTHING, Some(7), Ok(())));
        assert_eq!(inner.payload(), station(&four).0);

        let six = tunnel(&format!("kind = \"gre\"\n{V6}\n{addresses}"));
        let bytes = keepalive(&six, station(&six)).expect("a keepalive");
        let outer = Gre::parse(&bytes).expect("GRE");
        let ip = Ipv6::parse(outer.payload()).expect("IPv6");
        assert_eq!((ip.source().into(), ip.destination().into()), (six.remote, six.local));
        assert_eq!((outer.protocol(), ip.next_header()), (EtherType::IPV6, IpProtocol::GRE));
        assert_eq!(ip.payload(), [&[0; 4][..], &station(&six).0].concat());
    }

    #[test]
    fn a_keepalive_of_frames_asks_for_an_address() {
        let four = "keepalive = { address = \"10.1.0.9\" }";
        let gretap = tunnel(&format!("kind = \"gretap\"\nkey = 7\n{V4}\n{four}"));
        let bytes = keepalive(&gretap, station(&gretap)).expect("a keepalive");
        let outer = Gre::parse(&bytes).expect("GRE");
        assert_eq!((outer.protocol(), outer.key()), (EtherType::TRANSPARENT_ETHERNET, Some(7)));
        let frame = Ethernet::parse(outer.payload()).expect("Ethernet");
        assert_eq!((frame.destination(), frame.source()), (MacAddress::BROADCAST, station(&gretap)));
        let arp = Arp::parse(frame.payload()).expect("ARP");
        assert_eq!((arp.operation(), arp.sender_mac()), (ArpOperation::REQUEST, station(&gretap)));
        assert_eq!((arp.sender_ip(), arp.target_ip()), (Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(10, 1, 0, 9)));

        let six = "keepalive = { address = \"2001:db8:1::12:3456\" }";
        let vxlan = tunnel(&format!("kind = \"vxlan\"\nvni = 42\n{V4}\n{six}"));
        let bytes = keepalive(&vxlan, station(&vxlan)).expect("a keepalive");
        let outer = Vxlan::parse(&bytes).expect("VXLAN");
        assert_eq!(outer.vni(), 42);
        let frame = Ethernet::parse(outer.payload()).expect("Ethernet");
        assert_eq!(frame.destination(), MacAddress([0x33, 0x33, 0xff, 0x12, 0x34, 0x56]));
        let ip = Ipv6::parse(frame.payload()).expect("IPv6");
        assert_eq!(ip.destination(), "ff02::1:ff12:3456".parse::<Ipv6Addr>().expect("an address"));
        assert_eq!((ip.source().segments()[0], ip.hop_limit()), (0xfe80, 255));
        let message = Icmpv6::parse(ip.payload()).expect("ICMPv6");
        assert_eq!((message.kind(), message.verify(ip.pseudo())), (Icmpv6::NEIGHBOUR_SOLICITATION, Ok(())));
        assert_eq!(ip.payload()[OPTION..], [&SOURCE_ADDRESS[..], &station(&vxlan).0].concat());
    }

    /// Stations of two tunnels, of both ends of one, and of two secrets, differ.
    #[test]
    fn stations_differ() {
        let of = |keys: &str| station(&tunnel(&format!("kind = \"gretap\"\n{keys}")));
        let other_secret = keepalive_station(&tunnel(&format!("kind = \"gretap\"\n{V4}")), 6);
        let swapped = "local = \"192.0.2.2\"\nremote = \"192.0.2.1\"";
        let all = [of(V4), of(swapped), of(V6), of(&format!("{V4}\nkey = 1")), other_secret];
        assert!(all.iter().all(|station| station.is_local() && !station.is_multicast()));
        assert_eq!(all.into_iter().collect::<std::collections::HashSet<_>>().len(), all.len());
    }

    #[test]
    fn link_local_addresses() {
        let found = link_local(MacAddress([0x0e, 0, 0x5e, 0x10, 0, 1]));
        assert_eq!(found, "fe80::c00:5eff:fe10:1".parse::<Ipv6Addr>().expect("an address"));
    }
}
