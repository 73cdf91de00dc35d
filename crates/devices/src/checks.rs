//! Checks of the ports' programs: their list, and whether a built program has a given check.
//!
//! All programs have all checks. A judge that finds no fault in them proves something only if it detects a
//! program that lacks a check; `mutants`, behind the feature `models`, has such programs built. A product is
//! built without that feature, and its code does not contain the test.

#[cfg(feature = "models")]
use core::sync::atomic::{AtomicU8, Ordering};

/// Check of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Check {
    /// A flow is carried only when user space holds none of its packets.
    Fence = 1,
    /// Into a tunnel: the inner packet has an IPv4 header without options.
    IntoHeader,
    /// Into a tunnel: the inner packet is no fragment.
    IntoFragment,
    /// Into a tunnel: the inner packet is not GRE or IP in IP.
    IntoGre,
    /// Into a tunnel: the inner packet is no datagram to the VXLAN port.
    IntoVxlan,
    /// Into a tunnel: the inner protocol is one for which VXLAN has a source port per flow.
    IntoOther,
    /// Into a tunnel: the inner packet is no SYN, whose segment size is clamped.
    IntoSyn,
    /// Into a tunnel: the packet fits the egress MTU.
    IntoMtu,
    /// Out of a tunnel: the outer destination is the port's own MAC address.
    OutStation,
    /// Out of a tunnel: the outer IPv4 header has no options.
    OutHeader,
    /// Out of a tunnel: the outer packet is no fragment.
    OutFragment,
    /// Out of a tunnel: the outer length is that of the packet.
    OutLength,
    /// Out of a tunnel: the outer IPv4 header checksum is right.
    OutChecksum,
    /// Out of a tunnel: GRE contains Ethernet.
    OutProtocol,
    /// Out of a tunnel: the key flag is the only GRE flag.
    OutFlags,
    /// Out of a tunnel: the UDP length is right.
    OutUdpLength,
    /// Out of a tunnel: there is no UDP checksum, which only the stage verifies.
    OutUdpChecksum,
    /// Out of a tunnel: the VNI flag is the only VXLAN flag.
    OutVxlanFlags,
    /// Out of a tunnel: the inner packet has an IPv4 header without options.
    OutInsideHeader,
    /// Out of a tunnel: the inner packet is no SYN.
    OutSyn,
    /// Out of a tunnel: the inner packet has the outer packet's congestion mark (ECN).
    OutCongestion,
    /// Routes: an IPv4 header has no options.
    RouteHeader,
    /// Routes: the IPv6 version is right.
    RouteVersion,
    /// Routes: the length is that of the packet.
    RouteLength,
    /// Routes: the IPv4 header checksum is right.
    RouteChecksum,
    /// Routes: the TTL or hop limit is above 1.
    RouteHops,
    /// Routes: there are no hop-by-hop options.
    RouteOptions,
    /// Routes: the packet fits the route's MTU.
    RouteMtu,
    /// Routes: there is no priority tag (VLAN 0).
    RoutePriority,
    /// Bridges: the frame fits the link.
    BridgeMtu,
    /// Bridges: the tag has the entry's VLAN.
    BridgeVlan,
    /// Bridges: the source MAC address is still at the ingress port.
    BridgeSource,
    /// Bridges: tables and learned addresses are those from which the entry was made.
    Validity,
    /// Packets to user space: control packets are admitted when bulk packets are not.
    Reserve,
    /// Connections: packets are carried only while the heartbeat is recent.
    ConnectionHeartbeat,
    /// Connections: packets are carried only in the generation of the connection's evidence.
    ConnectionGeneration,
    /// Connections: a direction is carried only while its next hop is unchanged.
    ConnectionHop,
    /// Connections: a packet that was queued during a change is no evidence.
    ConnectionStamp,
    /// Connections: both directions have evidence before either is carried.
    ConnectionWays,
    /// Connections: the destination is the port's own MAC address.
    ConnectionHost,
    /// Connections: the packet is no fragment.
    ConnectionFragment,
    /// Connections: the TTL or hop limit is above 1.
    ConnectionHops,
    /// Connections: no packet is longer than those that the kernel forwarded.
    ConnectionLength,
    /// Connections: a UDP checksum of zero stays zero.
    ConnectionNoSum,
    /// Connections: a RST ends a connection if its sequence number is exact.
    ConnectionReset,
    /// Connections: a FIN ends a connection if it is within the window.
    ConnectionFin,
    /// Connections: a change of rules, links or addresses closes connections.
    ConnectionNotice,
    /// Connections: a change of a neighbour entry closes the directions that use it.
    ConnectionNeighbour,
    /// Connections: a change of a route closes the connections with an end in its prefix.
    ConnectionRoute,
    /// Connections: no packet is carried before changed rules are read.
    ConnectionClear,
    /// Connections: no packet is carried while a rule limits packets.
    ConnectionRule,
    /// Connections: connections older than the event subscription stay with the kernel.
    ConnectionOlder,
    /// Connections: the kernel accepts any segment of a carried connection.
    ConnectionLiberal,
    /// Connections: the kernel's highest acknowledgement is cleared whenever a timer is set.
    ConnectionAcknowledged,
    /// Connections: a change of a connection's mark is read, and closes the connection.
    ConnectionMark,
    /// Connections: the kernel's timers are refreshed.
    ConnectionRefresh,
    /// Connections: timers that a segment may have shortened are set again.
    ConnectionShortened,
    /// Connections: the kernel keeps the timer of an ended connection.
    ConnectionEnded,
}

/// Group of programs that a check applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All programs that carry flows.
    All,
    /// Frames of a bridge.
    Bridge,
    /// Frames that enter a tunnel.
    IntoTunnels,
    /// Frames that leave a tunnel.
    OutOfTunnels,
    /// Packets of a router.
    Routes,
    /// Connections that the kernel has admitted.
    Connections,
}

impl Check {
    /// All checks of flows.
    pub const ALL: [Self; 33] = [
        Self::Fence,
        Self::IntoHeader,
        Self::IntoFragment,
        Self::IntoGre,
        Self::IntoVxlan,
        Self::IntoOther,
        Self::IntoSyn,
        Self::IntoMtu,
        Self::OutStation,
        Self::OutHeader,
        Self::OutFragment,
        Self::OutLength,
        Self::OutChecksum,
        Self::OutProtocol,
        Self::OutFlags,
        Self::OutUdpLength,
        Self::OutUdpChecksum,
        Self::OutVxlanFlags,
        Self::OutInsideHeader,
        Self::OutSyn,
        Self::OutCongestion,
        Self::RouteHeader,
        Self::RouteVersion,
        Self::RouteLength,
        Self::RouteChecksum,
        Self::RouteHops,
        Self::RouteOptions,
        Self::RouteMtu,
        Self::RoutePriority,
        Self::BridgeMtu,
        Self::BridgeVlan,
        Self::BridgeSource,
        Self::Validity,
    ];

    /// All checks of connections, in programs and in the threads that serve them.
    pub const CONNECTIONS: [Self; 24] = [
        Self::ConnectionHeartbeat,
        Self::ConnectionGeneration,
        Self::ConnectionHop,
        Self::ConnectionStamp,
        Self::ConnectionWays,
        Self::ConnectionHost,
        Self::ConnectionFragment,
        Self::ConnectionHops,
        Self::ConnectionLength,
        Self::ConnectionNoSum,
        Self::ConnectionReset,
        Self::ConnectionFin,
        Self::ConnectionNotice,
        Self::ConnectionNeighbour,
        Self::ConnectionRoute,
        Self::ConnectionClear,
        Self::ConnectionRule,
        Self::ConnectionOlder,
        Self::ConnectionLiberal,
        Self::ConnectionAcknowledged,
        Self::ConnectionMark,
        Self::ConnectionRefresh,
        Self::ConnectionShortened,
        Self::ConnectionEnded,
    ];

    /// Returns the name of the check.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fence => "fence",
            Self::IntoHeader => "into-header",
            Self::IntoFragment => "into-fragment",
            Self::IntoGre => "into-gre",
            Self::IntoVxlan => "into-vxlan",
            Self::IntoOther => "into-other",
            Self::IntoSyn => "into-syn",
            Self::IntoMtu => "into-mtu",
            Self::OutStation => "out-station",
            Self::OutHeader => "out-header",
            Self::OutFragment => "out-fragment",
            Self::OutLength => "out-length",
            Self::OutChecksum => "out-checksum",
            Self::OutProtocol => "out-protocol",
            Self::OutFlags => "out-flags",
            Self::OutUdpLength => "out-udp-length",
            Self::OutUdpChecksum => "out-udp-checksum",
            Self::OutVxlanFlags => "out-vxlan-flags",
            Self::OutInsideHeader => "out-inside-header",
            Self::OutSyn => "out-syn",
            Self::OutCongestion => "out-congestion",
            Self::RouteHeader => "route-header",
            Self::RouteVersion => "route-version",
            Self::RouteLength => "route-length",
            Self::RouteChecksum => "route-checksum",
            Self::RouteHops => "route-hops",
            Self::RouteOptions => "route-options",
            Self::RouteMtu => "route-mtu",
            Self::RoutePriority => "route-priority",
            Self::BridgeMtu => "bridge-mtu",
            Self::BridgeVlan => "bridge-vlan",
            Self::BridgeSource => "bridge-source",
            Self::Validity => "validity",
            Self::Reserve => "reserve",
            Self::ConnectionHeartbeat => "connection-heartbeat",
            Self::ConnectionGeneration => "connection-generation",
            Self::ConnectionHop => "connection-hop",
            Self::ConnectionStamp => "connection-stamp",
            Self::ConnectionWays => "connection-ways",
            Self::ConnectionHost => "connection-host",
            Self::ConnectionFragment => "connection-fragment",
            Self::ConnectionHops => "connection-hops",
            Self::ConnectionLength => "connection-length",
            Self::ConnectionNoSum => "connection-no-sum",
            Self::ConnectionReset => "connection-reset",
            Self::ConnectionFin => "connection-fin",
            Self::ConnectionNotice => "connection-notice",
            Self::ConnectionNeighbour => "connection-neighbour",
            Self::ConnectionRoute => "connection-route",
            Self::ConnectionClear => "connection-clear",
            Self::ConnectionRule => "connection-rule",
            Self::ConnectionOlder => "connection-older",
            Self::ConnectionLiberal => "connection-liberal",
            Self::ConnectionAcknowledged => "connection-acknowledged",
            Self::ConnectionMark => "connection-mark",
            Self::ConnectionRefresh => "connection-refresh",
            Self::ConnectionShortened => "connection-shortened",
            Self::ConnectionEnded => "connection-ended",
        }
    }

    /// Returns the check named `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .chain(Self::CONNECTIONS)
            .chain([Self::Reserve])
            .find(|check| check.name() == name)
    }

    /// Returns the programs that have the check.
    pub fn part(self) -> Part {
        match self {
            Self::Fence | Self::Reserve => Part::All,
            Self::IntoHeader
            | Self::IntoFragment
            | Self::IntoGre
            | Self::IntoVxlan
            | Self::IntoOther
            | Self::IntoSyn
            | Self::IntoMtu => Part::IntoTunnels,
            Self::OutStation
            | Self::OutHeader
            | Self::OutFragment
            | Self::OutLength
            | Self::OutChecksum
            | Self::OutProtocol
            | Self::OutFlags
            | Self::OutUdpLength
            | Self::OutUdpChecksum
            | Self::OutVxlanFlags
            | Self::OutInsideHeader
            | Self::OutSyn
            | Self::OutCongestion => Part::OutOfTunnels,
            Self::RouteHeader
            | Self::RouteVersion
            | Self::RouteLength
            | Self::RouteChecksum
            | Self::RouteHops
            | Self::RouteOptions
            | Self::RouteMtu
            | Self::RoutePriority => Part::Routes,
            Self::ConnectionHeartbeat
            | Self::ConnectionGeneration
            | Self::ConnectionHop
            | Self::ConnectionStamp
            | Self::ConnectionWays
            | Self::ConnectionHost
            | Self::ConnectionFragment
            | Self::ConnectionHops
            | Self::ConnectionLength
            | Self::ConnectionNoSum
            | Self::ConnectionReset
            | Self::ConnectionFin
            | Self::ConnectionNotice
            | Self::ConnectionNeighbour
            | Self::ConnectionRoute
            | Self::ConnectionClear
            | Self::ConnectionRule
            | Self::ConnectionOlder
            | Self::ConnectionLiberal
            | Self::ConnectionAcknowledged
            | Self::ConnectionMark
            | Self::ConnectionRefresh
            | Self::ConnectionShortened
            | Self::ConnectionEnded => Part::Connections,
            Self::BridgeMtu | Self::BridgeVlan | Self::BridgeSource | Self::Validity => Part::Bridge,
        }
    }

    /// True if built programs have this check: always, without the feature `models`.
    #[cfg(not(feature = "models"))]
    pub const fn is_made(self) -> bool {
        true
    }

    /// True if built programs have this check.
    #[cfg(feature = "models")]
    pub fn is_made(self) -> bool {
        // Relaxed: the number is stored before the first program is built, by the thread that starts all
        // others.
        OMITTED.load(Ordering::Relaxed) != self as u8
    }
}

/// Number of the check that programs lack; 0 for none.
#[cfg(feature = "models")]
pub(crate) static OMITTED: AtomicU8 = AtomicU8::new(0);
