//! Options of a tunnel and of the ports that carry it.

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
    /// Its own address: source of what is sent, and the only destination that is taken.
    pub mac: MacAddress,
    /// The largest IP packet that it carries, in bytes, Ethernet header excluded.
    pub mtu: u16,
    /// The VLAN that outer packets are in; `None` for no tag (a priority tag is taken as none).
    pub vlan: Option<VlanId>,
    /// True if others than tunnels use the port, so that packets for no tunnel go on: a router's port.
    pub is_shared: bool,
}

/// A tunnel: Ethernet frames or IP packets in an [`Encapsulation`] in IPv4 or IPv6.
#[derive(Clone, Debug)]
pub struct TunnelOptions {
    /// The tunnel as a port, for the bridge or the router.
    pub port: PortId,
    /// Both ends. Ours may be an address of the loopback interface; the underlay need not have it.
    pub ends: Ends,
    /// Protocol between the outer IP header and the packet inside.
    pub encapsulation: Encapsulation,
    /// The GRE key that every packet carries, if any does.
    pub key: Option<u32>,
    /// True if packets are sent with a checksum. Packets of GRE that come without one are dropped then.
    pub checksum: bool,
    /// True if packets carry a sequence number; if so, those that come late are dropped.
    pub sequence: bool,
    /// Time to live, or hop limit, of the outer packet.
    pub ttl: Ttl,
    /// Differentiated services code point of the outer packet.
    pub dscp: TunnelDscp,
    /// ECN field of the outer packet (RFC 6040).
    pub ecn: EcnMode,
    /// The flow label of outer IPv6 packets.
    pub flow_label: FlowLabel,
    /// Maximum number of further encapsulations of an outer IPv6 packet (RFC 2473, 4.1); `None` to send no
    /// limit. A packet that comes with a limit of its own is sent with one less.
    pub encapsulation_limit: Option<u8>,
    /// True if outer packets must not be fragmented, neither here nor on the way (RFC 4459, 3.2).
    ///
    /// If so, nothing is cut, whatever it is. If not, a packet is cut that the MTU allows and the path
    /// does not carry, and one that exceeds the MTU when nobody can be told: IPv4 that may be
    /// fragmented, IPv6 up to 1280 bytes, what is not IP.
    pub dont_fragment: bool,
    /// The largest packet whose sender is not told that it is too big, in bytes, Ethernet header and
    /// VLAN tags excluded; `None` for what the path carries in one piece.
    pub mtu: Option<u16>,
    /// Clamping of the MSS of TCP connections.
    pub tcp_mss: TcpMss,
    /// The port by which outer packets leave. They are taken from every underlay port.
    pub underlay: PortId,
    /// State that outlives the configuration; the same for the same tunnel after a reload.
    pub state: Arc<TunnelState>,
    /// Payload.
    pub carries: Carries,
    /// Station that sends this end's keepalives; none for a tunnel that has none. Frames for it are answers and go no
    /// further. In a tunnel of packets, GRE with protocol type 0 is an answer if its payload begins with the station.
    pub keepalive: Option<MacAddress>,
    /// This end's IPv4 addresses inside. A keepalive of the other end may have one of them as the source of its answer.
    pub addresses: Box<[Ipv4Addr]>,
}

/// Payload of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carries {
    /// Ethernet frames: it is a port of a bridge (gretap).
    #[default]
    Frames,
    /// IPv4 and IPv6 packets: it is an interface of a router (gre).
    Packets(Stations),
}

/// The two stations of a link that has no Ethernet: what its packets are given as addresses inside the
/// gateway, and nobody outside ever sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stations {
    /// Ours, which the router's interface has.
    pub near: MacAddress,
    /// Link-layer address of the other end.
    pub far: MacAddress,
}

impl TunnelOptions {
    /// The encapsulation limit that RFC 2473, 6.6 recommends, and Linux sends.
    pub const ENCAPSULATION_LIMIT: u8 = 4;

    /// A tunnel with no key, checksum or sequence number, TTL 64, DSCP of the inner packet, ECN by RFC 6040,
    /// a flow label for each flow, its MTU and MSS what the path carries in one piece, the rest in
    /// fragments.
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

    /// True if packets inside have no Ethernet header.
    pub(super) const fn is_bare(&self) -> bool {
        matches!(self.carries, Carries::Packets(_))
    }

    /// Largest IP packet that the path carries, as far as it is known, over an underlay with an MTU
    /// of `underlay` bytes.
    pub(super) fn path_mtu(&self, underlay: u16) -> u16 {
        let known = self.state.next_hop.path_mtu();
        known.map_or(underlay, |mtu| mtu.max(self.ends.least_path_mtu()).min(underlay))
    }

    /// The largest packet whose sender is not told that it is too big, in bytes, Ethernet header and tags
    /// excluded, as far as the path is known, over an underlay with an MTU of `underlay` bytes: the MTU
    /// of the router's interface.
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

    /// The largest frame that fits into one outer packet on a path with that MTU, Ethernet header and VLAN tags included.
    pub(super) fn carried_frame(&self, path_mtu: u16) -> u16 {
        let carried = path_mtu.saturating_sub(self.network_bytes() + u16::from(self.header_bytes()));
        // What has an Ethernet header inside the gateway alone is so much longer here.
        if self.is_bare() { carried.saturating_add(ETHERNET_BYTES) } else { carried }
    }

    /// Bytes of the outer IP header, the encapsulation limit behind it included.
    pub(super) const fn network_bytes(&self) -> u16 {
        let has_limit = self.ends.is_v6() && self.encapsulation_limit.is_some();
        self.ends.ip_bytes() + if has_limit { OPTIONS_BYTES } else { 0 }
    }
}

/// Time to live of outer packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// Always this.
    Fixed(NonZeroU8),
    /// Value of the inner IP packet, at least 1; 64 for other payloads.
    Inherit,
}

impl Ttl {
    /// Default of hosts (RFC 1700).
    pub const DEFAULT: NonZeroU8 = NonZeroU8::new(64).expect("64 is not zero");
}

impl Default for Ttl {
    fn default() -> Self {
        Self::Fixed(Self::DEFAULT)
    }
}

/// Differentiated services code point of outer packets (RFC 2983).
///
/// On the way out nothing is copied inwards, whichever it is: what the network does to the outer code
/// point stays outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TunnelDscp {
    /// Always this (the pipe model).
    Fixed(Dscp),
    /// Code point of the inner IP packet (the uniform model's way in); 0 for other payloads.
    #[default]
    Inherit,
}

/// The flow label of outer IPv6 packets (RFC 6437).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowLabel {
    /// One for each flow inside, so that routers on the way may spread them (RFC 6438).
    #[default]
    Flow,
    /// Flow label of the inner IPv6 packet; 0 for other payloads.
    Inherit,
    /// Always this; the lower 20 bits count.
    Fixed(u32),
}

/// The largest TCP segment that connections through the tunnel agree on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TcpMss {
    /// Maximum that the tunnel carries in one piece: its MTU without IP and TCP headers.
    #[default]
    Auto,
    /// No clamping.
    Off,
    /// Limit in bytes.
    AtMost(u16),
}
