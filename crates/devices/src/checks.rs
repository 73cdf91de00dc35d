//! Checks of the programs of ports: which exist, and whether a program that is built has one.
//!
//! All programs have all checks. A judge that finds nothing wrong with them has shown something only if it finds a program that
//! lacks one; `mutants`, which is behind the feature `models`, has such programs built. A product is built without that feature,
//! and so is its code without the question.

#[cfg(feature = "models")]
use core::sync::atomic::{AtomicU8, Ordering};

/// Check of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Check {
    /// A flow is carried when none of its packets is in user space any more.
    Fence = 1,
    /// Into a tunnel: inside, an IPv4 header without options.
    IntoHeader,
    /// Into a tunnel: inside, no fragment.
    IntoFragment,
    /// Into a tunnel: inside, no GRE and no IP in IP.
    IntoGre,
    /// Into a tunnel: inside, no datagram to the port of VXLAN.
    IntoVxlan,
    /// Into a tunnel: inside, a protocol whose flows VXLAN has a source port for.
    IntoOther,
    /// Into a tunnel: inside, no SYN, whose segment size is clamped.
    IntoSyn,
    /// Into a tunnel: the length that fits the way out.
    IntoMtu,
    /// Out of a tunnel: outside, the port's own link-layer address.
    OutStation,
    /// Out of a tunnel: outside, an IPv4 header without options.
    OutHeader,
    /// Out of a tunnel: outside, no fragment.
    OutFragment,
    /// Out of a tunnel: outside, the length of the packet.
    OutLength,
    /// Out of a tunnel: outside, the checksum of the IPv4 header.
    OutChecksum,
    /// Out of a tunnel: Ethernet in GRE.
    OutProtocol,
    /// Out of a tunnel: no flag of GRE but that of the key.
    OutFlags,
    /// Out of a tunnel: the length of the UDP datagram.
    OutUdpLength,
    /// Out of a tunnel: no UDP checksum, which the stage verifies.
    OutUdpChecksum,
    /// Out of a tunnel: no flag of VXLAN but that of the number.
    OutVxlanFlags,
    /// Out of a tunnel: inside, an IPv4 header without options.
    OutInsideHeader,
    /// Out of a tunnel: inside, no SYN.
    OutSyn,
    /// Out of a tunnel: a congestion mark that the packet inside has, too.
    OutCongestion,
    /// Routes: IPv4, without options.
    RouteHeader,
    /// Routes: IPv6.
    RouteVersion,
    /// Routes: the length of the packet.
    RouteLength,
    /// Routes: the checksum of the IPv4 header.
    RouteChecksum,
    /// Routes: hops left.
    RouteHops,
    /// Routes: no options for each router.
    RouteOptions,
    /// Routes: the MTU of the way.
    RouteMtu,
    /// Routes: no tag with a priority alone.
    RoutePriority,
    /// Bridges: the length that the link carries.
    BridgeMtu,
    /// Bridges: the VLAN of the tag.
    BridgeVlan,
    /// Bridges: the station that sends.
    BridgeSource,
    /// Bridges: tables and stations as they were when the entry was made.
    Validity,
    /// Packets that go up: control packets are admitted where bulk is not.
    Reserve,
    /// Connections: connections are carried while the heartbeat is young.
    ConnectionHeartbeat,
    /// Connections: connections are carried in the generation of their evidence.
    ConnectionGeneration,
    /// Connections: a direction is carried as long as its next hop has not changed.
    ConnectionHop,
    /// Connections: a packet that waited during a change is no evidence.
    ConnectionStamp,
    /// Connections: both directions have evidence before one is carried.
    ConnectionWays,
    /// Connections: packets for the port's own link-layer address.
    ConnectionHost,
    /// Connections: no fragment.
    ConnectionFragment,
    /// Connections: hops left.
    ConnectionHops,
    /// Connections: no packet longer than those that the kernel forwarded.
    ConnectionLength,
    /// Connections: a UDP checksum of zero stays zero.
    ConnectionNoSum,
    /// Connections: a RST ends a connection if it is exact.
    ConnectionReset,
    /// Connections: a FIN ends a connection if it is within the window.
    ConnectionFin,
    /// Connections: a change of rules, links or addresses closes connections.
    ConnectionNotice,
    /// Connections: a change of a neighbour closes directions that leave to it.
    ConnectionNeighbour,
    /// Connections: a change of a route closes connections with an end in its network.
    ConnectionRoute,
    /// Connections: no connection is carried before changed rules are read.
    ConnectionClear,
    /// Connections: no connection is carried beside a rule that limits packets.
    ConnectionRule,
    /// Connections: connections that are older than the events are the kernel's.
    ConnectionOlder,
    /// Connections: the kernel accepts any segment of a carried connection.
    ConnectionLiberal,
    /// Connections: the kernel forgets the highest acknowledgement again whenever a timer is set.
    ConnectionAcknowledged,
    /// Connections: a change of a connection's mark is read, and closes it.
    ConnectionMark,
    /// Connections: the kernel's timers are set again.
    ConnectionRefresh,
    /// Connections: timers are set again that a segment may have shortened.
    ConnectionShortened,
    /// Connections: the timer of a connection that has ended is the kernel's.
    ConnectionEnded,
}

/// Part of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All programs that carry flows.
    All,
    /// Frames of a bridge.
    Bridge,
    /// Frames that go into a tunnel.
    IntoTunnels,
    /// Frames that come out of one.
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

    /// All checks of connections, of programs and of the threads beside them.
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

    /// Name of the check.
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

    /// The check of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .chain(Self::CONNECTIONS)
            .chain([Self::Reserve])
            .find(|check| check.name() == name)
    }

    /// Programs that have the check.
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

    /// True if programs that are built have this check: always, without the feature `models`.
    #[cfg(not(feature = "models"))]
    pub const fn is_made(self) -> bool {
        true
    }

    /// True if programs that are built have this check.
    #[cfg(feature = "models")]
    pub fn is_made(self) -> bool {
        // Relaxed: the word is written before the first program is built, by the thread that starts all others.
        OMITTED.load(Ordering::Relaxed) != self as u8
    }
}

/// The check that programs lack; 0 for none.
#[cfg(feature = "models")]
pub(crate) static OMITTED: AtomicU8 = AtomicU8::new(0);
