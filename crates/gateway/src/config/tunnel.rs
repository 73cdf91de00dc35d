//! `[tunnel.NAME]`: what it carries, between which ends, and how.

use super::model::{Mac, number};
use super::router::InterfaceAddress;
use super::vxlan::Vxlan;
use polder_buffers::PortId;
use polder_datapath::tunnel::{Carrier, Encapsulation};
use serde::Serialize;
use std::net::IpAddr;

/// What a tunnel carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TunnelKind {
    /// Ethernet frames: it is a port of a bridge.
    #[default]
    Gretap,
    /// IPv4 and IPv6 packets: it is an interface of the router.
    Gre,
    /// Ethernet frames in VXLAN: it is a port of a bridge.
    Vxlan,
}

impl TunnelKind {
    /// The word of the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Gretap => "gretap",
            Self::Gre => "gre",
            Self::Vxlan => "vxlan",
        }
    }

    /// True if Ethernet frames are inside, so that it is a port of a bridge.
    pub fn carries_frames(self) -> bool {
        match self {
            Self::Gretap | Self::Vxlan => true,
            Self::Gre => false,
        }
    }
}

/// A tunnel over IPv4 or IPv6 whose other end is another gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tunnel {
    /// Its number, unique among ports and tunnels.
    #[serde(serialize_with = "number")]
    pub id: PortId,
    /// Its name.
    pub name: String,
    /// What it carries.
    pub kind: TunnelKind,
    /// Its addresses, where it carries packets.
    pub addresses: Vec<InterfaceAddress>,
    /// Outer source address of what is sent.
    pub local: IpAddr,
    /// Outer destination address of what is sent, of the same family.
    pub remote: IpAddr,
    /// The underlay port that carries it.
    #[serde(serialize_with = "number")]
    pub port: PortId,
    /// Who the outer packets are handed to on that port; the remote end itself when it is on the link.
    pub next_hop: IpAddr,
    /// The link-layer address of the next hop, if it is not to be asked of the kernel.
    pub next_hop_mac: Option<Mac>,
    /// Network, port and checksums, if it is VXLAN.
    pub vxlan: Option<Vxlan>,
    /// GRE key (RFC 2890), in both directions.
    pub key: Option<u32>,
    /// GRE checksum, in both directions.
    pub checksum: bool,
    /// GRE sequence numbers (RFC 2890), in both directions.
    pub sequence: bool,
    /// TTL, or hop limit, of the outer packets.
    pub ttl: Ttl,
    /// DSCP of the outer packets.
    pub dscp: Dscp,
    /// How congestion marks cross the tunnel.
    pub ecn: Ecn,
    /// Flow label of outer IPv6 packets.
    pub flow_label: FlowLabel,
    /// Encapsulation limit of outer IPv6 packets (RFC 2473), if they carry one.
    pub encapsulation_limit: Option<u8>,
    /// True if outer packets carry DF (RFC 4459).
    pub dont_fragment: bool,
    /// Longest network packet that crosses the tunnel, in bytes, inner Ethernet header excluded; derived
    /// from the underlay's if none.
    pub mtu: Option<u16>,
    /// What happens to the MSS option of TCP connections through the tunnel.
    pub tcp_mss: TcpMss,
}

impl Tunnel {
    /// True if it is an interface of the router.
    pub fn is_routed(&self) -> bool {
        !self.kind.carries_frames()
    }

    /// True if outer packets are IPv6.
    pub fn is_v6(&self) -> bool {
        self.local.is_ipv6()
    }

    /// Protocol between the outer IP header and what is inside.
    pub fn encapsulation(&self) -> Encapsulation {
        self.vxlan.map_or(Encapsulation::Gre, |vxlan| Encapsulation::Vxlan(vxlan.options()))
    }

    /// Outer field by which its packets are known.
    pub fn carrier(&self) -> Carrier {
        self.encapsulation().carrier()
    }

    /// What encapsulation adds to a packet, in bytes, from the outer IP header to the inner Ethernet header, if
    /// there is one, included.
    pub fn overhead_bytes(&self) -> u16 {
        const IPV4: u16 = 20;
        const IPV6: u16 = 40;
        const LIMIT: u16 = 8;
        const GRE: u16 = 4;
        const VXLAN: u16 = 16;
        const ETHERNET: u16 = 14;
        let options = [self.key.is_some(), self.checksum, self.sequence];
        let limit = if self.encapsulation_limit.is_some() { LIMIT } else { 0 };
        let ip = if self.is_v6() { IPV6 + limit } else { IPV4 };
        let ethernet = if self.is_routed() { 0 } else { ETHERNET };
        let options = options.iter().map(|&present| 4 * u16::from(present)).sum::<u16>();
        ip + ethernet + if self.vxlan.is_some() { VXLAN } else { GRE + options }
    }
}

/// TTL of outer packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ttl {
    /// That of the inner packet; 64 if that has none.
    Inherit,
    /// This one.
    Fixed(u8),
}

/// Flow label of outer IPv6 packets (RFC 6437).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowLabel {
    /// One for each flow inside.
    #[default]
    Flow,
    /// That of the inner IPv6 packet; 0 if there is none.
    Inherit,
    /// This one.
    Fixed(u32),
}

/// DSCP of outer packets (RFC 2983).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dscp {
    /// That of the inner packet; 0 if that has none.
    Inherit,
    /// This one.
    Fixed(u8),
}

/// How congestion marks cross a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ecn {
    /// Inner marks are copied out, outer marks are brought in (RFC 6040).
    #[default]
    Rfc6040,
    /// Outer packets are not ECN-capable, and outer marks are ignored.
    None,
}

/// What happens to the MSS option of TCP connections through a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcpMss {
    /// Lowered to what the tunnel's MTU allows.
    #[default]
    Clamp,
    /// Left alone.
    Off,
    /// Lowered to this many bytes.
    Bytes(u16),
}
