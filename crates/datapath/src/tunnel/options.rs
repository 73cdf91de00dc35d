//! Options of a tunnel and of underlay ports.

use super::{ETHERNET_BYTES, Encapsulation, Ends, OPTIONS_BYTES, TunnelState};
use crate::wire::{Dscp, EcnMode, MacAddress, VlanId};
use core::num::NonZeroU8;
use polder_buffers::PortId;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// A device port that carries outer packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Underlay {
    /// The port.
    pub port: PortId,
    /// MAC address of the port: source of sent packets, and the only accepted destination.
    pub mac: MacAddress,
    /// Maximum size of an IP packet on the port in bytes, Ethernet header excluded.
    pub mtu: u16,
    /// VLAN of outer packets; `None` for untagged (a priority tag counts as untagged).
    pub vlan: Option<VlanId>,
    /// True if the port also carries other packets, which are passed on: a router's port.
    pub is_shared: bool,
}

/// Options of a tunnel: Ethernet frames or IP packets in an [`Encapsulation`] in IPv4 or IPv6.
#[derive(Clone, Debug)]
pub struct TunnelOptions {
    /// Port of the tunnel at the bridge or router.
    pub port: PortId,
    /// Endpoints. The local address may belong to the loopback interface; the underlay need not have it.
    pub ends: Ends,
    /// Protocol between the outer IP header and the inner packet.
    pub encapsulation: Encapsulation,
    /// GRE key of every packet; `None` for no key.
    pub key: Option<u32>,
    /// True if packets are sent with a checksum; received GRE packets without checksum are then dropped.
    pub checksum: bool,
    /// True if packets have a sequence number; late packets are then dropped.
    pub sequence: bool,
    /// TTL or hop limit of outer packets.
    pub ttl: Ttl,
    /// DSCP of outer packets.
    pub dscp: TunnelDscp,
    /// ECN field of the outer packet (RFC 6040).
    pub ecn: EcnMode,
    /// Flow label of outer IPv6 packets.
    pub flow_label: FlowLabel,
    /// Encapsulation limit of outer IPv6 packets (RFC 2473, 4.1); `None` to send no limit. If the inner
    /// packet has a limit, the outer packet's is one less.
    pub encapsulation_limit: Option<u8>,
    /// True if outer packets must not be fragmented, here or on the path (RFC 4459, 3.2).
    ///
    /// If true, no packet is fragmented. If false, a packet is fragmented if the MTU allows it but the path
    /// does not, or if it exceeds the MTU and its sender cannot be told: IPv4 without DF, IPv6 up to 1280
    /// bytes, packets that are not IP.
    pub dont_fragment: bool,
    /// Tunnel MTU: maximum packet size in bytes, Ethernet header and VLAN tags excluded; senders of larger
    /// packets get an ICMP error. `None` for the size that the path carries in one piece.
    pub mtu: Option<u16>,
    /// MSS clamping of TCP connections.
    pub tcp_mss: TcpMss,
    /// Egress port of outer packets. They are accepted on every underlay port.
    pub underlay: PortId,
    /// State that survives a reload of the configuration.
    pub state: Arc<TunnelState>,
    /// Frames or packets.
    pub carries: Carries,
    /// Source MAC address of this gateway's keepalives; `None` without keepalives. Frames to it are answers
    /// and are not forwarded. In a tunnel of packets, a GRE packet of type 0 is an answer if its payload
    /// begins with the address.
    pub keepalive: Option<MacAddress>,
    /// This gateway's IPv4 addresses inside the tunnel. The answer in a received keepalive may have one of
    /// them as source.
    pub addresses: Box<[Ipv4Addr]>,
}

/// Payload of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carries {
    /// Ethernet frames: the tunnel is a bridge port (gretap).
    #[default]
    Frames,
    /// IPv4 and IPv6 packets: the tunnel is a router interface (gre).
    Packets(Stations),
}

/// MAC addresses that bare packets get inside the gateway; they never leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stations {
    /// MAC address of the local router interface.
    pub near: MacAddress,
    /// MAC address of the remote endpoint.
    pub far: MacAddress,
}

impl TunnelOptions {
    /// Encapsulation limit that RFC 2473, 6.6 recommends and Linux sends.
    pub const ENCAPSULATION_LIMIT: u8 = 4;

    /// Options without key, checksum or sequence number; TTL 64, inner DSCP, ECN by RFC 6040, flow label by
    /// flow, MTU and MSS by the path, larger packets fragmented.
    pub fn new(port: PortId, ends: impl Into<Ends>, underlay: PortId, state: Arc<TunnelState>) -> Self {
        Self {
            port,
            ends: ends.into(),
            encapsulation: Encapsulation::Gre,
            key: None,
            checksum: false,
            sequence: false,
            ttl: Ttl::default(),
            dscp: TunnelDscp::default(),
            ecn: EcnMode::Normal,
            flow_label: FlowLabel::default(),
            encapsulation_limit: Some(Self::ENCAPSULATION_LIMIT),
            dont_fragment: false,
            mtu: None,
            tcp_mss: TcpMss::Auto,
            underlay,
            state,
            carries: Carries::Frames,
            keepalive: None,
            addresses: Box::default(),
        }
    }

    /// True if inner packets have no Ethernet header.
    pub(super) const fn is_bare(&self) -> bool {
        matches!(self.carries, Carries::Packets(_))
    }

    /// Known path MTU in bytes, at most the underlay's MTU `underlay`.
    pub(super) fn path_mtu(&self, underlay: u16) -> u16 {
        let known = self.state.next_hop.path_mtu();
        known.map_or(underlay, |mtu| mtu.max(self.ends.least_path_mtu()).min(underlay))
    }

    /// MTU of the tunnel's router interface in bytes, Ethernet header and tags excluded, over an underlay
    /// with an MTU of `underlay` bytes: senders of larger packets get an ICMP error.
    pub fn packet_mtu(&self, underlay: u16) -> u16 {
        let carried = self.carried_frame(self.path_mtu(underlay));
        let carried = carried.saturating_sub(ETHERNET_BYTES);
        match self.mtu {
            Some(mtu) if self.dont_fragment => mtu.min(carried),
            Some(mtu) => mtu,
            None => carried,
        }
        .min(super::MOST_MTU)
    }

    /// Maximum frame length in bytes that fits into one outer packet at this path MTU, Ethernet header and
    /// tags included.
    pub(super) fn carried_frame(&self, path_mtu: u16) -> u16 {
        let carried = path_mtu.saturating_sub(self.network_bytes() + u16::from(self.header_bytes()));
        // Bare packets have an additional Ethernet header inside the gateway only.
        if self.is_bare() { carried.saturating_add(ETHERNET_BYTES) } else { carried }
    }

    /// Length of the outer IP header in bytes, encapsulation limit included.
    pub(super) const fn network_bytes(&self) -> u16 {
        let has_limit = self.ends.is_v6() && self.encapsulation_limit.is_some();
        self.ends.ip_bytes() + if has_limit { OPTIONS_BYTES } else { 0 }
    }
}

/// TTL of outer packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// A fixed value.
    Fixed(NonZeroU8),
    /// TTL of the inner IP packet, at least 1; 64 if the inner packet is not IP.
    Inherit,
}

impl Ttl {
    /// Default TTL of hosts (RFC 1700).
    pub const DEFAULT: NonZeroU8 = NonZeroU8::new(64).expect("64 is not zero");
}

impl Default for Ttl {
    fn default() -> Self {
        Self::Fixed(Self::DEFAULT)
    }
}

/// DSCP of outer packets (RFC 2983).
///
/// At decapsulation the outer DSCP is discarded in both cases: changes by the network do not reach the inner
/// packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TunnelDscp {
    /// A fixed value (the pipe model).
    Fixed(Dscp),
    /// DSCP of the inner IP packet (encapsulation of the uniform model); 0 if the inner packet is not IP.
    #[default]
    Inherit,
}

/// Flow label of outer IPv6 packets (RFC 6437).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowLabel {
    /// A hash of the inner flow, so that routers can balance flows (RFC 6438).
    #[default]
    Flow,
    /// Flow label of the inner IPv6 packet; 0 for other packets.
    Inherit,
    /// A fixed value; only the lower 20 bits are used.
    Fixed(u32),
}

/// Maximum MSS of TCP connections through the tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TcpMss {
    /// The MSS that the tunnel carries in one piece: its MTU without IP and TCP headers.
    #[default]
    Auto,
    /// No clamping.
    Off,
    /// Limit in bytes.
    AtMost(u16),
}
