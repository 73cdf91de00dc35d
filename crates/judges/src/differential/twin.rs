//! Two routers of the same network: the kernel's, and Polder's.
//!
//! ```text
//!                 north station (.2)
//!                       │ north 10.90.4.1, MTU 1500
//!  west station ── west ┼ east ── east stations (.2, .3)
//!   10.90.1.2  10.90.1.1│10.90.2.1, MTU 1500
//!                       │ south 10.90.3.1, MTU 1400
//!                 south station (.2)
//! ```
//!
//! Both have the same interfaces, link-layer addresses, addresses, routes and neighbours. Stations are packet sockets: they say
//! nothing by themselves.

use crate::router::{mac, prepare, readdress};
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;

/// A side of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    West,
    East,
    South,
    North,
}

impl Side {
    /// All four sides.
    pub(super) const ALL: [Self; 4] = [Self::West, Self::East, Self::South, Self::North];

    /// Its interface.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::West => "west",
            Self::East => "east",
            Self::South => "south",
            Self::North => "north",
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::West => 1,
            Self::East => 2,
            Self::South => 3,
            Self::North => 4,
        }
    }

    const fn mtu(self) -> u32 {
        match self {
            Self::South => 1400,
            Self::West | Self::East | Self::North => 1500,
        }
    }

    /// The router's link-layer address there.
    pub(super) const fn router_mac(self) -> [u8; 6] {
        [2, 0x90, 0, 0, self.number(), 1]
    }

    /// The first station's.
    pub(super) const fn station_mac(self) -> [u8; 6] {
        [2, 0x90, 0, 0, self.number(), 2]
    }

    /// The second station's.
    pub(super) const fn second_mac(self) -> [u8; 6] {
        [2, 0x90, 0, 0, self.number(), 3]
    }

    /// The router's address.
    pub(super) const fn router_v4(self) -> [u8; 4] {
        [10, 90, self.number(), 1]
    }

    /// The first station's.
    pub(super) const fn station_v4(self) -> [u8; 4] {
        [10, 90, self.number(), 2]
    }

    /// The router's address.
    pub(super) const fn router_v6(self) -> [u8; 16] {
        v6(0xfd90, self.number(), 1)
    }

    /// The first station's.
    pub(super) const fn station_v6(self) -> [u8; 16] {
        v6(0xfd90, self.number(), 2)
    }

    /// The router's link-local address, made of its link-layer address.
    pub(super) const fn router_link_local(self) -> [u8; 16] {
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x90, 0, 0xff, 0xfe, 0, self.number(), 1]
    }

    /// The first station's.
    pub(super) const fn station_link_local(self) -> [u8; 16] {
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x90, 0, 0xff, 0xfe, 0, self.number(), 2]
    }
}

const fn v6(prefix: u16, net: u8, host: u8) -> [u8; 16] {
    let [high, low] = prefix.to_be_bytes();
    [high, low, 0, 0, 0, 0, 0, net, 0, 0, 0, 0, 0, 0, 0, host]
}

/// Routes of both routers, of either family.
const ROUTES: &[&str] = &[
    "10.91.0.0/16 via 10.90.1.2",
    "198.18.0.0/16 via 10.90.2.2",
    "198.19.0.0/16 via 10.90.3.2",
    "198.20.0.0/16 via 10.90.1.3",
    "unreachable 203.0.113.0/24",
    "prohibit 198.51.100.0/25",
    "blackhole 198.51.100.128/25",
    "throw 192.0.2.0/24",
    "100.64.0.0/16 via 10.90.2.2 mtu 1280",
    "100.65.0.0/16 via 10.90.2.2 mtu lock 1280",
    "100.66.0.0/16 nexthop via 10.90.2.2 nexthop via 10.90.4.2",
    // Addresses that a router refuses have to be refused by themselves, not for want of a route.
    "0.0.0.0/1 via 10.90.2.2",
    "169.254.0.0/16 via 10.90.2.2",
    "224.0.0.0/3 via 10.90.2.2",
    "2001:db8:18::/48 via fd90::2:0:0:0:2",
    "2001:db8:19::/48 via fd90::3:0:0:0:2",
    "2001:db8:20::/48 via fd90::1:0:0:0:3",
    "unreachable 2001:db8:203::/48",
    "prohibit 2001:db8:198::/48",
    "blackhole 2001:db8:199::/48",
    "throw 2001:db8:192::/48",
    "2001:db8:64::/48 via fd90::2:0:0:0:2 mtu 1280",
    "2001:db8:65::/48 via fd90::2:0:0:0:2 mtu lock 1280",
    "2001:db8:66::/48 nexthop via fd90::2:0:0:0:2 nexthop via fd90::4:0:0:0:2",
    "::/16 via fd90::2:0:0:0:2",
    "fec0::/10 via fd90::2:0:0:0:2",
];

/// Settings of both routers besides those of all.
const SETTINGS: &[(&str, &str)] =
    &[("ipv4/fib_multipath_hash_policy", "1"), ("ipv6/fib_multipath_hash_policy", "1")];

/// A router with its stations.
#[derive(Debug)]
pub(super) struct Twin {
    /// The router.
    pub(super) router: Namespace,
    /// Packet sockets, by side.
    pub(super) sockets: Vec<PacketSocket>,
}

impl Twin {
    /// Lays the network around a router, whose kernel forwards.
    pub(super) fn lay(topology: &mut Topology, role: &str) -> anyhow::Result<Self> {
        let router = topology.namespace(role)?;
        let stations = topology.namespace(&format!("{role}s"))?;
        prepare(&router, SETTINGS)?;
        for side in Side::ALL {
            let ends = [&router, &stations].map(|namespace| End { namespace, interface: side.name() });
            topology.wire(ends[0], ends[1], side.mtu())?;
            dress(&router, side)?;
            stations.ip(&["link", "set", side.name(), "arp", "off"])?;
        }
        for route in ROUTES {
            let family = if route.contains(':') { "-6" } else { "-4" };
            let words = [family, "route", "add"].into_iter().chain(route.split_whitespace());
            router.ip(&words.collect::<Vec<_>>())?;
        }
        let open = |side: Side| PacketSocket::open(side.name());
        let sockets =
            stations.inside(|| Side::ALL.into_iter().map(open).collect::<Result<Vec<_>, _>>())??;
        Ok(Self { router, sockets })
    }

    /// Discards arrived packets.
    pub(super) fn discard(&self) {
        let mut room = vec![0; 1 << 16];
        for socket in &self.sockets {
            while socket.receive(&mut room).is_ok() {}
        }
    }
}

/// Configures addresses and neighbours of one interface of the router.
fn dress(router: &Namespace, side: Side) -> anyhow::Result<()> {
    let name = side.name();
    readdress(router, name, side.router_mac())?;
    let (four, six) = (dotted(side.router_v4()), colons(side.router_v6()));
    router.ip(&["address", "add", &format!("{four}/24"), "dev", name])?;
    router.ip(&["address", "add", &format!("{six}/64"), "dev", name, "nodad"])?;
    let neighbour = |address: &str, lladdr: [u8; 6]| {
        router.ip(&["neighbour", "replace", address, "lladdr", &mac(lladdr), "dev", name]).map(drop)
    };
    for (host, lladdr) in [(2, side.station_mac()), (3, side.second_mac()), (0, side.second_mac())] {
        let [a, b, c, _] = side.router_v4();
        neighbour(&dotted([a, b, c, host]), lladdr)?;
        if host != 0 {
            neighbour(&colons(v6(0xfd90, side.number(), host)), lladdr)?;
        }
    }
    // Whoever is asked for has to be known: a search for a neighbour ends during another case.
    for other in Side::ALL {
        neighbour(&colons(other.station_link_local()), side.station_mac())?;
        if other != side {
            neighbour(&colons(other.router_link_local()), side.station_mac())?;
        }
    }
    LINK_LOCAL.iter().try_for_each(|address| neighbour(address, side.station_mac()))
}

/// Link-local addresses that cases speak of.
const LINK_LOCAL: [&str; 2] = ["fe80::1", "fe80::7"];

/// Starts Polder with the defaults, and a router's port on each side.
pub(super) fn gateway(router: &Namespace, topology: &Topology) -> anyhow::Result<Gateway> {
    let port = |side: Side| format!("[port.{0}]\ninterface = \"{0}\"\nrole = \"router\"\n", side.name());
    Gateway::start(router, topology.directory(), &Side::ALL.map(port).concat())
}

/// An address for `ip`.
pub(super) fn dotted(address: [u8; 4]) -> String {
    std::net::Ipv4Addr::from(address).to_string()
}

fn colons(address: [u8; 16]) -> String {
    std::net::Ipv6Addr::from(address).to_string()
}
