//! Conversion of a packet's bytes to a description.

use super::Spec;
use super::build::Defaults;
use super::layer::{Arp, Eth, Frag, Gre, Icmp, Ip, Layer, Tcp, Udp, Vlan, Vxlan};
use polder_datapath::wire::{self, EtherType, IpProtocol, Ipv4, Ipv6, MacAddress};

/// Description that builds the same bytes again. Parts that the words cannot express are given as hexadecimal
/// digits.
pub fn describe(frame: &[u8]) -> Spec {
    let mut layers = Vec::new();
    let link = Some(frame).filter(|frame| frame.len() >= 14).and_then(|frame| wire::Link::parse(frame).ok());
    let Some(link) = link else { return Spec(vec![Layer::Hex(frame.to_vec())]) };
    frame_of(frame, &link, &mut layers);
    let mut spec = Spec(layers);
    if built(&spec).as_deref() != Some(frame) {
        return Spec(vec![Layer::Hex(frame.to_vec())]);
    }
    leave_out(&mut spec, frame);
    spec
}

fn built(spec: &Spec) -> Option<Vec<u8>> {
    spec.build(Defaults { src: MacAddress::ZERO, dst: Some(MacAddress::ZERO) }).ok()
}

/// Removes fields that follow from the others.
fn leave_out(spec: &mut Spec, frame: &[u8]) {
    for place in 0..spec.0.len() {
        for field in 0..4 {
            let mut shorter = spec.clone();
            if shorter.0[place].forget(field) && built(&shorter).as_deref() == Some(frame) {
                *spec = shorter;
            }
        }
    }
}

impl Layer {
    /// Removes the field with a number, if it can follow from others; returns true if it was set.
    fn forget(&mut self, field: usize) -> bool {
        let taken = |field: &mut Option<u16>| field.take().is_some();
        match (self, field) {
            (Self::Eth(Eth { ether_type, .. }), 0)
            | (Self::Vlan(Vlan { ether_type, .. }), 0)
            | (Self::Gre(Gre { ether_type, .. }), 0) => taken(ether_type),
            (Self::Ip(ip), 0) => ip.protocol.take().is_some(),
            (Self::Ip(ip), 1) => taken(&mut ip.length),
            (Self::Ip(ip), 2) => taken(&mut ip.checksum),
            (Self::Frag(frag), 0) => frag.protocol.take().is_some(),
            (Self::Udp(udp), 0) => taken(&mut udp.length),
            (Self::Udp(udp), 1) => taken(&mut udp.checksum),
            (Self::Tcp(tcp), 0) => taken(&mut tcp.checksum),
            (Self::Icmp(icmp), 0) => taken(&mut icmp.checksum),
            _ => false,
        }
    }
}

/// The value, or `None` for the default.
fn some<T: Default + PartialEq>(value: T) -> Option<T> {
    Some(value).filter(|value| *value != T::default())
}

fn word(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |field| u16::from_be_bytes([field[0], field[1]]))
}

fn double(bytes: &[u8], at: usize) -> u32 {
    u32::from(word(bytes, at)) << 16 | u32::from(word(bytes, at + 2))
}

fn rest(bytes: &[u8], layers: &mut Vec<Layer>) {
    if bytes.is_empty() {
        return;
    }
    let is_blank = bytes.iter().all(|&byte| byte == 0);
    layers.push(if is_blank { Layer::Payload(bytes.len()) } else { Layer::Hex(bytes.to_vec()) });
}

fn frame_of(frame: &[u8], link: &wire::Link<'_>, layers: &mut Vec<Layer>) {
    let ether_type = Some(word(frame, 12));
    layers.push(Layer::Eth(Eth {
        src: Some(link.ethernet.source()),
        dst: Some(link.ethernet.destination()),
        ether_type,
    }));
    let end = link.header_bytes();
    for at in (14..end).step_by(4) {
        let control = word(frame, at);
        let priority = some(u8::try_from(control >> 13).unwrap_or_default());
        layers.push(Layer::Vlan(Vlan {
            id: control & 0x0fff,
            priority,
            ether_type: Some(word(frame, at + 2)),
        }));
    }
    of_type(link.ether_type(), frame.get(end..).unwrap_or_default(), layers);
}

fn of_type(ether_type: EtherType, bytes: &[u8], layers: &mut Vec<Layer>) {
    match ether_type {
        EtherType::IPV4 => of_v4(bytes, layers),
        EtherType::IPV6 => of_v6(bytes, layers),
        EtherType::ARP => of_arp(bytes, layers),
        EtherType::TRANSPARENT_ETHERNET if matches!(layers.last(), Some(Layer::Gre(_))) => {
            match wire::Link::parse(bytes) {
                Ok(link) => frame_of(bytes, &link, layers),
                Err(_) => rest(bytes, layers),
            }
        }
        _ => rest(bytes, layers),
    }
}

fn of_arp(bytes: &[u8], layers: &mut Vec<Layer>) {
    let Ok(arp) = wire::Arp::parse(bytes) else { return rest(bytes, layers) };
    layers.push(Layer::Arp(Arp {
        is_reply: arp.operation() == wire::ArpOperation::REPLY,
        sender_mac: Some(arp.sender_mac()),
        sender: Some(arp.sender_ip()),
        target_mac: some(arp.target_mac()),
        target: arp.target_ip(),
    }));
    rest(bytes.get(28..).unwrap_or_default(), layers);
}

fn of_v4(bytes: &[u8], layers: &mut Vec<Layer>) {
    let Ok(ip) = Ipv4::parse(bytes) else { return rest(bytes, layers) };
    if !ip.options().is_empty() {
        return rest(bytes, layers);
    }
    let end = usize::from(ip.total_length());
    let is_later = ip.fragment_offset() > 0;
    layers.push(Layer::Ip(Ip {
        is_v6: None,
        src: Some(ip.source().into()),
        dst: Some(ip.destination().into()),
        ttl: Some(ip.time_to_live()),
        dscp: some(bytes[1] >> 2),
        ecn: some(bytes[1] & 3),
        flow: None,
        id: some(ip.identification()),
        df: ip.dont_fragment(),
        mf: word(bytes, 6) & 0x2000 != 0,
        offset: some(ip.fragment_offset()),
        protocol: Some(ip.protocol().0),
        length: Some(ip.total_length()),
        checksum: Some(word(bytes, 10)),
    }));
    let inside = bytes.get(20..end).unwrap_or_default();
    if is_later {
        rest(inside, layers)
    } else {
        of_protocol(ip.protocol(), inside, layers)
    }
    rest(bytes.get(end..).unwrap_or_default(), layers);
}

fn of_v6(bytes: &[u8], layers: &mut Vec<Layer>) {
    let Ok(ip) = Ipv6::parse(bytes) else { return rest(bytes, layers) };
    let class = double(bytes, 0) >> 20 & 0xff;
    let class = u8::try_from(class).unwrap_or_default();
    let end = 40 + usize::from(ip.payload_length());
    let protocol = IpProtocol(bytes[6]);
    layers.push(Layer::Ip(Ip {
        is_v6: None,
        src: Some(ip.source().into()),
        dst: Some(ip.destination().into()),
        ttl: Some(ip.hop_limit()),
        dscp: some(class >> 2),
        ecn: some(class & 3),
        flow: some(ip.flow_label()),
        protocol: Some(protocol.0),
        length: Some(ip.payload_length()),
        ..Ip::default()
    }));
    let inside = bytes.get(40..end).unwrap_or_default();
    if protocol == IpProtocol::FRAGMENT && inside.len() >= 8 {
        let place = word(inside, 2);
        layers.push(Layer::Frag(Frag {
            offset: some(place & !7),
            mf: place & 1 == 1,
            id: some(double(inside, 4)),
            protocol: Some(inside[0]),
        }));
        let behind = &inside[8..];
        if place & !7 > 0 { rest(behind, layers) } else { of_protocol(IpProtocol(inside[0]), behind, layers) }
    } else {
        of_protocol(protocol, inside, layers);
    }
    rest(bytes.get(end..).unwrap_or_default(), layers);
}

fn of_protocol(protocol: IpProtocol, bytes: &[u8], layers: &mut Vec<Layer>) {
    match protocol {
        IpProtocol::UDP if bytes.len() >= 8 => {
            layers.push(Layer::Udp(Udp {
                sport: Some(word(bytes, 0)),
                dport: Some(word(bytes, 2)),
                length: Some(word(bytes, 4)),
                checksum: Some(word(bytes, 6)),
            }));
            of_udp(word(bytes, 2), &bytes[8..], layers);
        }
        IpProtocol::TCP if bytes.len() >= 20 => of_tcp(bytes, layers),
        IpProtocol::ICMP | IpProtocol::ICMPV6 if bytes.len() >= 8 => {
            layers.push(Layer::Icmp(Icmp {
                kind: Some(bytes[0]),
                code: some(bytes[1]),
                id: some(word(bytes, 4)),
                seq: some(word(bytes, 6)),
                checksum: Some(word(bytes, 2)),
            }));
            rest(&bytes[8..], layers);
        }
        IpProtocol::GRE => match wire::Gre::parse(bytes) {
            Ok(gre) => {
                let (key, seq, checksum) = (gre.key(), gre.sequence(), gre.checksum().is_some());
                layers.push(Layer::Gre(Gre { key, seq, checksum, ether_type: Some(gre.protocol().0) }));
                of_type(gre.protocol(), gre.payload(), layers);
            }
            Err(_) => rest(bytes, layers),
        },
        IpProtocol::IPV4 => of_v4(bytes, layers),
        IpProtocol::IPV6 => of_v6(bytes, layers),
        _ => rest(bytes, layers),
    }
}

/// Describes a UDP payload: VXLAN, by the port.
fn of_udp(port: u16, bytes: &[u8], layers: &mut Vec<Layer>) {
    let vxlan = wire::Vxlan::parse(bytes).ok().filter(|_| port == wire::Vxlan::PORT);
    let inside = vxlan.and_then(|vxlan| Some((vxlan, wire::Link::parse(vxlan.payload()).ok()?)));
    match inside {
        Some((vxlan, link)) => {
            layers.push(Layer::Vxlan(Vxlan { vni: Some(vxlan.vni()) }));
            frame_of(vxlan.payload(), &link, layers);
        }
        None => rest(bytes, layers),
    }
}

fn of_tcp(bytes: &[u8], layers: &mut Vec<Layer>) {
    let header = usize::from(bytes[12] >> 4) * 4;
    let Some(options) = bytes.get(20..header) else { return rest(bytes, layers) };
    let mss = options.starts_with(&[2, 4]).then(|| word(bytes, 22));
    let others = if mss.is_some() { &options[4..] } else { options };
    layers.push(Layer::Tcp(Tcp {
        sport: Some(word(bytes, 0)),
        dport: Some(word(bytes, 2)),
        seq: some(double(bytes, 4)),
        ack: some(double(bytes, 8)),
        flags: Some(bytes[13]),
        window: Some(word(bytes, 14)),
        mss,
        options: Some(others.to_vec()).filter(|others| !others.is_empty()),
        checksum: Some(word(bytes, 16)),
    }));
    rest(bytes.get(header..).unwrap_or_default(), layers);
}
