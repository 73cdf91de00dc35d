//! Trace of a connection's packet at a port where the kernel decides.

use super::writer::{TraceWriter, details};
use crate::config::model::Port;
use crate::device;
use polder_datapath::wire::{EtherType, Link};
use polder_devices::skb::connections::{Transport, Tuple};
use serde_json::json;
use std::net::{Ipv4Addr, Ipv6Addr};

impl TraceWriter<'_> {
    /// Describes how a port where the kernel decides handles a packet; returns its fate, or
    /// [`FILTERED`](super::FILTERED) if filters see it first.
    pub(super) fn asks_the_kernel(&mut self, port: &Port, frame: &[u8]) -> &'static str {
        let (kept, is_filtered) = (self.why_kernel(frame), self.gateway.configuration.is_filtered(port.id));
        let (fate, text) = match &kept {
            None => ("carried", "carries the packet, as the kernel has forwarded those before".to_owned()),
            Some(why) if is_filtered => {
                (super::FILTERED, format!("lets filters see the packet before the kernel: {why}"))
            }
            Some(why) => ("kernel", format!("leaves the packet to the kernel: {why}")),
        };
        let device = device::describe(&port.device);
        let text =
            format!("router port {}, {device}, where the kernel decides; its tc program {text}", port.name);
        let known = details([
            ("port", json!(port.name)),
            ("role", json!("router")),
            ("taken", json!(false)),
            ("carried", json!(kept.is_none())),
            ("why", json!(kept)),
        ]);
        self.step("enter", text, known);
        fate
    }

    /// Reason why the kernel gets a packet; `None` if the port carries it.
    fn why_kernel(&self, frame: &[u8]) -> Option<String> {
        let Some((tuple, ends)) = tuple(frame) else {
            return Some("it is not an unfragmented TCP or UDP packet without IP options".to_owned());
        };
        if let Some(obstacle) = self.gateway.connection_obstacle() {
            return Some(obstacle);
        }
        let (_, known) = self.gateway.connections()?;
        let known = known.lock();
        let mut connections = known.connections().filter(|entered| {
            let connection = entered.connection();
            connection.original == tuple || connection.reply == tuple
        });
        match connections.next() {
            None => Some(
                "conntrack has no connection with these addresses and ports that may be carried".to_owned(),
            ),
            Some(_) if ends => Some("a SYN, FIN or RST may begin or end the connection".to_owned()),
            Some(entered) => entered.seen.reason(&self.gateway.hooks.each_packet()),
        }
    }
}

/// Addresses and ports of a frame, and true for a TCP segment that opens or closes a connection.
fn tuple(frame: &[u8]) -> Option<(Tuple, bool)> {
    let link = Link::parse(frame).ok().filter(|link| link.tag.is_none())?;
    let packet = frame.get(link.header_bytes()..)?;
    let v6 = |at: usize| Some(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?).into());
    let v4 = |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?).into());
    let (source, destination, protocol, header) = match link.ether_type() {
        EtherType::IPV4 => {
            let is_whole =
                packet.first() == Some(&0x45) && packet.get(6)? & 0x3f == 0 && packet.get(7) == Some(&0);
            (v4(12)?, v4(16)?, *packet.get(9).filter(|_| is_whole)?, 20)
        }
        EtherType::IPV6 => (v6(8)?, v6(24)?, *packet.get(6)?, 40),
        EtherType(_) => return None,
    };
    let segment = packet.get(header..)?;
    let port = |at: usize| Some(u16::from_be_bytes(*segment.get(at..)?.first_chunk()?));
    let (transport, ends) = match protocol {
        6 => (Transport::Tcp, segment.get(13)? & 0x07 != 0),
        17 => (Transport::Udp, false),
        136 => (Transport::UdpLite, false),
        _ => return None,
    };
    Some((Tuple { source, destination, source_port: port(0)?, destination_port: port(2)?, transport }, ends))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::spec::{Defaults, Spec};
    use polder_datapath::wire::MacAddress;

    #[test]
    fn addresses_and_ports_of_a_packet_are_read() {
        let defaults =
            Defaults { src: MacAddress([2, 0, 0, 0, 0, 1]), dst: Some(MacAddress([2, 0, 0, 0, 0, 2])) };
        let frame = |spec: &str| Spec::parse(spec).expect(spec).build(defaults).expect(spec);
        let (tuple_of, ends) =
            tuple(&frame("ip src 192.0.2.1 dst 192.0.2.2 / udp sport 7 dport 9")).expect("a tuple");
        assert_eq!((tuple_of.source_port, tuple_of.destination_port, ends), (7, 9, false));
        assert_eq!(tuple_of.source, Ipv4Addr::new(192, 0, 2, 1));
        for (spec, is_end) in [("flags S", true), ("flags A", false)] {
            let frame = frame(&format!("ip6 dst 2001:db8::2 / tcp {spec}"));
            assert_eq!(tuple(&frame).map(|(_, ends)| ends), Some(is_end), "{spec}");
        }
        assert_eq!(tuple(&frame("ip dst 192.0.2.2 / icmp")), None);
    }
}
