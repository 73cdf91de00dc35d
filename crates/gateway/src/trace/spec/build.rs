//! Building of a packet's bytes from layers, innermost first.

use super::layer::{Arp, Eth, Frag, Gre, Icmp, Ip, Layer, Tcp, Udp, Vlan, Vxlan};
use super::{LONGEST, Spec};
use polder_datapath::wire::{
    self, ArpHeader, ArpOperation, Dscp, Ecn, EtherType, EthernetHeader, GreHeader, GreMut, IcmpHeader,
    IpProtocol, Ipv4Header, Ipv6Header, MacAddress, Pseudo, TooShort, TrafficClass, UdpHeader, VxlanHeader,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Default values for addresses of the outermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Source MAC address.
    pub src: MacAddress,
    /// Destination MAC address: the port's own, unless it is a bridge port.
    pub dst: Option<MacAddress>,
}

/// Reason why no packet can be built from a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A bridge port needs a destination MAC address.
    #[error("packets of this port need a destination MAC address: begin with `eth dst MAC /`")]
    NoStation,
    /// An IP header without addresses.
    #[error("`ip` has no destination: add `dst ADDRESS`")]
    NoDestination,
    /// A layer that needs an IP header before it.
    #[error("`{0}` needs IP: put `ip dst ADDRESS /` in front of it")]
    NotInIp(&'static str),
    /// VXLAN without UDP before it.
    #[error("`vxlan` needs UDP: put `udp /` in front of it")]
    NotInUdp,
    /// A layer inside another that cannot contain it.
    #[error("layer `{0}` cannot follow layer `{1}` in a packet")]
    Misplaced(&'static str, &'static str),
    /// The packet is too long.
    #[error("the packet has {0} bytes; at most {LONGEST} can be traced")]
    TooLong(usize),
}

/// Documentation addresses (RFC 5737, RFC 3849).
const NOBODY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const NOBODY_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// Values for experiments (RFC 3692; IEEE 802, 9.2.3).
const EXPERIMENT: IpProtocol = IpProtocol(253);
const EXPERIMENT_TYPE: EtherType = EtherType(0x88b5);

impl Spec {
    /// Builds the packet.
    ///
    /// # Errors
    /// The missing or invalid field.
    pub fn build(&self, defaults: Defaults) -> Result<Vec<u8>, BuildError> {
        let implied = [Layer::Eth(Eth::default())];
        let begins = matches!(self.0.first(), Some(Layer::Eth(_) | Layer::Hex(_)));
        let layers = implied[usize::from(begins)..].iter().chain(&self.0).collect::<Vec<_>>();
        let mut bytes = Vec::new();
        for (place, layer) in layers.iter().enumerate().rev() {
            let site = Site { inside: layers.get(place + 1).copied(), outside: &layers[..place], defaults };
            bytes = site.wrap(layer, bytes)?;
            if bytes.len() > LONGEST {
                return Err(BuildError::TooLong(bytes.len()));
            }
        }
        Ok(bytes)
    }
}

/// A layer's neighbours, inside and outside.
struct Site<'a> {
    inside: Option<&'a Layer>,
    outside: &'a [&'a Layer],
    defaults: Defaults,
}

impl Site<'_> {
    fn wrap(&self, layer: &Layer, inner: Vec<u8>) -> Result<Vec<u8>, BuildError> {
        match layer {
            Layer::Eth(eth) => self.eth(eth, &inner),
            Layer::Vlan(vlan) => self.vlan(vlan, &inner),
            Layer::Arp(arp) => Ok(self.arp(arp, &inner)),
            Layer::Ip(ip) => self.ip(ip, &inner),
            Layer::Frag(frag) => self.frag(frag, &inner),
            Layer::Udp(udp) => self.udp(udp, &inner),
            Layer::Tcp(tcp) => self.tcp(tcp, &inner),
            Layer::Icmp(icmp) => self.icmp(icmp, &inner),
            Layer::Gre(gre) => self.gre(gre, &inner),
            Layer::Vxlan(vxlan) => self.vxlan(vxlan, &inner),
            Layer::Payload(bytes) => Ok([vec![0; *bytes], inner].concat()),
            Layer::Hex(bytes) => Ok([bytes.clone(), inner].concat()),
        }
    }

    /// EtherType for the inner layer, unless `said` gives it.
    fn ether_type(&self, said: Option<u16>, layer: &'static str) -> Result<EtherType, BuildError> {
        if let Some(said) = said {
            return Ok(EtherType(said));
        }
        match self.inside {
            Some(Layer::Ip(ip)) => Ok(if is_v6(ip).ok_or(BuildError::NoDestination)? {
                EtherType::IPV6
            } else {
                EtherType::IPV4
            }),
            Some(Layer::Arp(_)) => Ok(EtherType::ARP),
            Some(Layer::Vlan(_)) => Ok(EtherType::VLAN),
            Some(Layer::Eth(_)) if layer == "gre" => Ok(EtherType::TRANSPARENT_ETHERNET),
            Some(Layer::Payload(_) | Layer::Hex(_)) | None => Ok(EXPERIMENT_TYPE),
            Some(other) => Err(BuildError::NotInIp(other.name())),
        }
    }

    /// IP protocol for the inner layer, unless `said` gives it.
    fn protocol(&self, said: Option<u8>, is_v6: bool) -> Result<IpProtocol, BuildError> {
        if let Some(said) = said {
            return Ok(IpProtocol(said));
        }
        Ok(match self.inside {
            Some(Layer::Udp(_)) => IpProtocol::UDP,
            Some(Layer::Tcp(_)) => IpProtocol::TCP,
            Some(Layer::Icmp(_)) => {
                if is_v6 {
                    IpProtocol::ICMPV6
                } else {
                    IpProtocol::ICMP
                }
            }
            Some(Layer::Gre(_)) => IpProtocol::GRE,
            Some(Layer::Frag(_)) => IpProtocol::FRAGMENT,
            Some(Layer::Ip(ip)) => {
                let inner_v6 = self::is_v6(ip).ok_or(BuildError::NoDestination)?;
                if inner_v6 { IpProtocol::IPV6 } else { IpProtocol::IPV4 }
            }
            None if is_v6 => IpProtocol::NO_NEXT_HEADER,
            Some(Layer::Payload(_) | Layer::Hex(_)) | None => EXPERIMENT,
            Some(other @ (Layer::Eth(_) | Layer::Vlan(_) | Layer::Arp(_) | Layer::Vxlan(_))) => {
                return Err(BuildError::Misplaced(other.name(), "ip"));
            }
        })
    }

    fn eth(&self, eth: &Eth, inner: &[u8]) -> Result<Vec<u8>, BuildError> {
        let is_outermost = self.outside.is_empty();
        // A frame in a tunnel has no default destination.
        let dst = eth.dst.or(self.defaults.dst.filter(|_| is_outermost)).ok_or(BuildError::NoStation)?;
        let header = EthernetHeader {
            destination: dst,
            source: eth.src.unwrap_or(self.defaults.src),
            ether_type: self.ether_type(eth.ether_type, "eth")?,
        };
        Ok(with(14, inner, |bytes| header.emit(bytes).map(drop)))
    }

    fn vlan(&self, vlan: &Vlan, inner: &[u8]) -> Result<Vec<u8>, BuildError> {
        let control = u16::from(vlan.priority.unwrap_or(0)) << 13 | vlan.id & 0x0fff;
        let ether_type = self.ether_type(vlan.ether_type, "vlan")?;
        Ok([&control.to_be_bytes(), &ether_type.0.to_be_bytes(), inner].concat())
    }

    fn arp(&self, arp: &Arp, inner: &[u8]) -> Vec<u8> {
        let header = ArpHeader {
            operation: if arp.is_reply { ArpOperation::REPLY } else { ArpOperation::REQUEST },
            sender_mac: arp.sender_mac.unwrap_or(self.defaults.src),
            sender_ip: arp.sender.unwrap_or(NOBODY),
            target_mac: arp.target_mac.unwrap_or(MacAddress::ZERO),
            target_ip: arp.target,
        };
        with(28, inner, |bytes| header.emit(bytes).map(drop))
    }

    fn ip(&self, ip: &Ip, inner: &[u8]) -> Result<Vec<u8>, BuildError> {
        let is_v6 = is_v6(ip).ok_or(BuildError::NoDestination)?;
        let protocol = self.protocol(ip.protocol, is_v6)?;
        let dscp = Dscp::new(ip.dscp.unwrap_or(0)).unwrap_or_default();
        let traffic_class = TrafficClass::new(dscp, Ecn::from_bits(ip.ecn.unwrap_or(0)));
        let length = |bytes: usize| ip.length.unwrap_or(u16::try_from(bytes).unwrap_or(u16::MAX));
        Ok(match ends(ip)? {
            Ends::V4(source, destination) => {
                let header = Ipv4Header {
                    traffic_class,
                    total_length: length(20 + inner.len()),
                    identification: ip.id.unwrap_or(0),
                    dont_fragment: ip.df,
                    more_fragments: ip.mf,
                    fragment_offset: ip.offset.unwrap_or(0),
                    time_to_live: ip.ttl.unwrap_or(64),
                    protocol,
                    source,
                    destination,
                };
                let mut bytes = with(20, inner, |bytes| header.emit(bytes).map(drop));
                put(&mut bytes, 10, ip.checksum);
                bytes
            }
            Ends::V6(source, destination) => {
                let header = Ipv6Header {
                    traffic_class,
                    flow_label: ip.flow.unwrap_or(0),
                    payload_length: length(inner.len()),
                    next_header: protocol,
                    hop_limit: ip.ttl.unwrap_or(64),
                    source,
                    destination,
                };
                with(40, inner, |bytes| header.emit(bytes).map(drop))
            }
        })
    }

    fn frag(&self, frag: &Frag, inner: &[u8]) -> Result<Vec<u8>, BuildError> {
        let protocol = self.protocol(frag.protocol, true)?;
        let place = frag.offset.unwrap_or(0) & !7 | u16::from(frag.mf);
        let id = frag.id.unwrap_or(0);
        Ok([&[protocol.0, 0][..], &place.to_be_bytes(), &id.to_be_bytes(), inner].concat())
    }

    /// Pseudo-header of the IP header around a layer.
    fn pseudo(&self, layer: &'static str) -> Result<Pseudo, BuildError> {
        let around = self.outside.iter().rev().find(|layer| !matches!(layer, Layer::Frag(_)));
        let Some(Layer::Ip(ip)) = around else { return Err(BuildError::NotInIp(layer)) };
        Ok(match ends(ip)? {
            Ends::V4(source, destination) => Pseudo::V4 { source, destination },
            Ends::V6(source, destination) => Pseudo::V6 { source, destination },
        })
    }

    fn udp(&self, udp: &Udp, inner: &[u8]) -> Result<Vec<u8>, BuildError> {
        let pseudo = self.pseudo("udp")?;
        let (usual, checksum) = match (self.inside, pseudo) {
            // RFC 7348, 5: no UDP checksum over IPv4.
            (Some(Layer::Vxlan(_)), Pseudo::V4 { .. }) => (wire::Vxlan::PORT, None),
            (Some(Layer::Vxlan(_)), Pseudo::V6 { .. }) => (wire::Vxlan::PORT, Some(pseudo)),
            (_, Pseudo::V4 { .. } | Pseudo::V6 { .. }) => (9, Some(pseudo)),
        };
        let header = UdpHeader {
            source_port: udp.sport.unwrap_or(40_000),
            destination_port: udp.dport.unwrap_or(usual),
        };
        let mut bytes = with(8, inner, |bytes| header.emit(bytes, checksum).map(drop));
        put(&mut bytes, 4, udp.length);
        put(&mut bytes, 6, udp.checksum);
        Ok(bytes)
    }

    fn tcp(&self, tcp: &Tcp, inner: &[u8]) -> Result<Vec<u8>, BuildError> {
        const SYN: u8 = 2;
        let pseudo = self.pseudo("tcp")?;
        let options = tcp.options.as_deref().unwrap_or_default();
        let words = usize::from(5 + u8::from(tcp.mss.is_some())) + options.len() / 4;
        // The length field allows at most 15 words.
        let words = u8::try_from(words.min(15)).unwrap_or(15);
        let mut bytes = Vec::with_capacity(usize::from(words) * 4 + inner.len());
        bytes.extend(tcp.sport.unwrap_or(40_000).to_be_bytes());
        bytes.extend(tcp.dport.unwrap_or(80).to_be_bytes());
        bytes.extend(tcp.seq.unwrap_or(0).to_be_bytes());
        bytes.extend(tcp.ack.unwrap_or(0).to_be_bytes());
        bytes.extend([words << 4, tcp.flags.unwrap_or(SYN)]);
        bytes.extend(tcp.window.unwrap_or(65_535).to_be_bytes());
        bytes.extend([0; 4]);
        if let Some(mss) = tcp.mss {
            bytes.extend([2, 4]);
            bytes.extend(mss.to_be_bytes());
        }
        bytes.extend(options);
        bytes.extend(inner);
        let sum = pseudo.sum_over(IpProtocol::TCP, &bytes).finish();
        put(&mut bytes, 16, Some(tcp.checksum.unwrap_or(sum)));
        Ok(bytes)
    }

    fn icmp(&self, icmp: &Icmp, inner: &[u8]) -> Result<Vec<u8>, BuildError> {
        let pseudo = self.pseudo("icmp")?;
        let rest = u32::from(icmp.id.unwrap_or(0)) << 16 | u32::from(icmp.seq.unwrap_or(0));
        let code = icmp.code.unwrap_or(0);
        let mut bytes = match pseudo {
            Pseudo::V4 { .. } => {
                let header = IcmpHeader { kind: icmp.kind.unwrap_or(8), code, rest };
                with(8, inner, |bytes| header.emit(bytes).map(drop))
            }
            Pseudo::V6 { .. } => {
                let header = IcmpHeader { kind: icmp.kind.unwrap_or(128), code, rest };
                with(8, inner, |bytes| header.emit_v6(bytes, pseudo).map(drop))
            }
        };
        put(&mut bytes, 2, icmp.checksum);
        Ok(bytes)
    }

    fn gre(&self, gre: &Gre, inner: &[u8]) -> Result<Vec<u8>, BuildError> {
        let header = GreHeader {
            protocol: self.ether_type(gre.ether_type, "gre")?,
            checksum: gre.checksum,
            key: gre.key,
            sequence: gre.seq,
        };
        let mut bytes = with(header.header_bytes(), inner, |bytes| header.emit(bytes).map(drop));
        if let Ok(mut gre) = GreMut::parse(&mut bytes) {
            gre.set_checksum([]);
        }
        Ok(bytes)
    }
}

impl Site<'_> {
    fn vxlan(&self, vxlan: &Vxlan, inner: &[u8]) -> Result<Vec<u8>, BuildError> {
        if !matches!(self.outside.last(), Some(Layer::Udp(_))) {
            return Err(BuildError::NotInUdp);
        }
        let header = VxlanHeader { vni: vxlan.vni.unwrap_or(0) };
        Ok(with(wire::Vxlan::HEADER_BYTES, inner, |bytes| header.emit(bytes).map(drop)))
    }
}

impl Layer {
    fn name(&self) -> &'static str {
        match self {
            Self::Eth(_) => "eth",
            Self::Vlan(_) => "vlan",
            Self::Arp(_) => "arp",
            Self::Ip(_) => "ip",
            Self::Frag(_) => "frag",
            Self::Udp(_) => "udp",
            Self::Tcp(_) => "tcp",
            Self::Icmp(_) => "icmp",
            Self::Gre(_) => "gre",
            Self::Vxlan(_) => "vxlan",
            Self::Payload(_) => "payload",
            Self::Hex(_) => "hex",
        }
    }
}

enum Ends {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

fn is_v6(ip: &Ip) -> Option<bool> {
    ip.is_v6.or(ip.dst.or(ip.src).map(|address| address.is_ipv6()))
}

/// Both addresses; a missing source becomes a documentation address.
fn ends(ip: &Ip) -> Result<Ends, BuildError> {
    match (ip.src, ip.dst) {
        (Some(IpAddr::V4(src)), Some(IpAddr::V4(dst))) => Ok(Ends::V4(src, dst)),
        (Some(IpAddr::V6(src)), Some(IpAddr::V6(dst))) => Ok(Ends::V6(src, dst)),
        (None, Some(IpAddr::V4(dst))) => Ok(Ends::V4(NOBODY, dst)),
        (None, Some(IpAddr::V6(dst))) => Ok(Ends::V6(NOBODY_V6, dst)),
        _ => Err(BuildError::NoDestination),
    }
}

/// Puts `header` bytes before `inner` and fills them.
fn with(header: usize, inner: &[u8], emit: impl FnOnce(&mut [u8]) -> Result<(), TooShort>) -> Vec<u8> {
    let mut bytes = vec![0; header];
    bytes.extend_from_slice(inner);
    emit(&mut bytes).expect("there is room for the header, and a packet is shorter than 64 KiB");
    bytes
}

/// Writes a field if it has a value.
fn put(bytes: &mut [u8], at: usize, value: Option<u16>) {
    if let Some(value) = value
        && let Some(field) = bytes.get_mut(at..at + 2)
    {
        field.copy_from_slice(&value.to_be_bytes());
    }
}
