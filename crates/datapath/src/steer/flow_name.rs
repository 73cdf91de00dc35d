//! Readable names of flows.

use crate::wire::{IpProtocol, MacAddress};
use core::fmt;
use polder_buffers::PortId;
use std::net::IpAddr;

/// Addresses and ports of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowName {
    /// Ingress port.
    pub ingress: PortId,
    /// True if these are addresses of the inner packet of a tunnel packet.
    pub inside: bool,
    /// Source and destination.
    pub ends: Ends,
}

/// Source and destination of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// IP flow.
    Ip {
        /// Source and destination address.
        addresses: [IpAddr; 2],
        /// The protocol.
        protocol: IpProtocol,
        /// Source and destination port; `None` for a protocol without ports.
        ports: Option<[u16; 2]>,
    },
    /// Source and destination MAC address of a flow that is not IP.
    Link([MacAddress; 2]),
}

impl fmt::Display for Ends {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link([from, to]) => write!(formatter, "{from} → {to}"),
            Self::Ip { addresses: [from, to], protocol, ports: None } => {
                write!(formatter, "{} {from} → {to}", protocol_name(*protocol))
            }
            Self::Ip { addresses: [from, to], protocol, ports: Some([from_port, to_port]) } => {
                let end = |address: &IpAddr, port| std::net::SocketAddr::new(*address, port);
                let name = protocol_name(*protocol);
                write!(formatter, "{name} {} → {}", end(from, *from_port), end(to, *to_port))
            }
        }
    }
}

fn protocol_name(protocol: IpProtocol) -> String {
    match protocol {
        IpProtocol::TCP => "TCP".to_owned(),
        IpProtocol::UDP => "UDP".to_owned(),
        IpProtocol::ICMP => "ICMP".to_owned(),
        IpProtocol::ICMPV6 => "ICMPv6".to_owned(),
        IpProtocol::GRE => "GRE".to_owned(),
        other => format!("protocol {}", other.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_read_as_people_write_them() {
        let v4 = [[10, 0, 0, 1], [10, 0, 0, 2]].map(|address: [u8; 4]| IpAddr::from(address));
        let tcp = Ends::Ip { addresses: v4, protocol: IpProtocol::TCP, ports: Some([40_000, 5201]) };
        assert_eq!(tcp.to_string(), "TCP 10.0.0.1:40000 → 10.0.0.2:5201");
        let other = Ends::Ip { addresses: v4, protocol: IpProtocol(89), ports: None };
        assert_eq!(other.to_string(), "protocol 89 10.0.0.1 → 10.0.0.2");
        let v6 = [IpAddr::from([0_u16, 0, 0, 0, 0, 0, 0, 1]); 2];
        let udp = Ends::Ip { addresses: v6, protocol: IpProtocol::UDP, ports: Some([53, 54]) };
        assert_eq!(udp.to_string(), "UDP [::1]:53 → [::1]:54");
    }
}
