//! Links, addresses, next hops, rules, routes and neighbours of the kernel.

use polder_datapath::route::Prefix;
use std::net::IpAddr;

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// True if the interface is up.
    pub up: bool,
    /// True if the link has a carrier.
    pub carrier: bool,
    /// MAC address; zeros without one.
    pub mac: [u8; 6],
    /// MTU in bytes.
    pub mtu: u32,
    /// For a VLAN interface: index of the lower interface, and the VLAN (802.1Q only).
    pub vlan: Option<(u32, u16)>,
    /// For a macvlan with its own address: index of the lower interface.
    pub macvlan: Option<u32>,
}

impl Link {
    /// True if packets can be sent by the interface.
    pub fn carries(&self) -> bool {
        self.up && self.carrier
    }
}

/// An address of this host. In sort order, an interface's preferred source addresses come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// Interface index.
    pub index: u32,
    /// True if the kernel prefers another source address of the network: `IFA_F_SECONDARY`, for IPv6
    /// "temporary".
    pub secondary: bool,
    /// The address.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub bits: u8,
}

/// A hop of a route: interface and gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HopSpec {
    /// Interface index.
    pub index: u32,
    /// Gateway; `None` for on-link destinations.
    pub gateway: Option<IpAddr>,
    /// Weight among the hops of a group.
    pub weight: u16,
    /// MTU of the route in bytes; 0 without one.
    pub mtu: u16,
    /// True if packets must be encapsulated (such as MPLS), which Polder does not support.
    pub wrapped: bool,
}

/// Content of a nexthop object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// A hop.
    Hop(HopSpec),
    /// A group of objects, with their weights.
    Group(Vec<(u32, u16)>),
    /// Drops packets.
    Blackhole,
}

/// Target of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// One of these hops.
    Hops(Vec<HopSpec>),
    /// Nexthop object with this id, with the route's MTU; 0 without one.
    Object(u32, u16),
    /// This host; the index of the interface that has the address or network.
    Local(u32),
    /// Broadcast on a link.
    Broadcast,
    /// Drops packets silently.
    Blackhole,
    /// Drops packets with an ICMP unreachable message.
    Unreachable,
    /// Drops packets with an ICMP "administratively prohibited" message.
    Prohibit,
    /// Continues with the next table.
    Throw,
}

impl Target {
    /// True if packets go on to a next hop.
    pub fn has_next_hop(&self) -> bool {
        matches!(self, Self::Hops(_) | Self::Object(..))
    }

    /// True for targets without a unicast destination.
    pub fn is_verdict(&self) -> bool {
        match self {
            Self::Hops(_) | Self::Object(..) | Self::Local(_) => false,
            Self::Broadcast | Self::Blackhole | Self::Unreachable | Self::Prohibit | Self::Throw => true,
        }
    }
}

/// Key of a route. The kernel may have several routes with the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteKey {
    /// Number of its table.
    pub table: u32,
    /// Destination prefix.
    pub prefix: Prefix,
    /// Source prefix; `None` for all sources. Only IPv6 has source-specific routes.
    pub source: Option<Prefix>,
    /// Metric: the route with the lowest is used.
    pub metric: u32,
}

/// Preference of an IPv6 route (RFC 4191): of routes with the same key, the one with the highest is used.
/// IPv4 routes have the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Preference {
    /// Used last.
    Low,
    /// Default.
    #[default]
    Medium,
    /// Used first.
    High,
}

/// A routing rule, which selects a table for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rule {
    /// Priority: the rule with the lowest is checked first.
    pub priority: u32,
    /// True for IPv6.
    pub is_v6: bool,
    /// Table to look up; `None` for other actions.
    pub table: Option<u32>,
    /// True if it only applies to some packets: by source, mark, interface or another selector.
    pub selects: bool,
}

/// A neighbour entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// State: `NUD_*` of linux/neighbour.h.
    pub state: u16,
    /// MAC address, if known.
    pub mac: Option<[u8; 6]>,
}

impl Neighbour {
    /// MAC address, if the state permits sending to it.
    pub fn usable(&self) -> Option<[u8; 6]> {
        self.mac.filter(|_| self.state & NUD_VALID != 0)
    }

    /// True if the neighbour's reachability must be confirmed (stale).
    pub fn is_stale(&self) -> bool {
        self.state & NUD_STALE != 0
    }

    /// True if an administrator or a daemon has made the entry permanent.
    pub fn is_permanent(&self) -> bool {
        self.state & NUD_PERMANENT != 0
    }

    /// True if resolution has failed.
    pub fn failed(&self) -> bool {
        self.state & NUD_FAILED != 0
    }

    /// Name of the state in the kernel's tools.
    pub fn word(&self) -> &'static str {
        match self.state {
            0x01 => "incomplete",
            0x02 => "reachable",
            0x04 => "stale",
            0x08 => "delay",
            0x10 => "probe",
            NUD_FAILED => "failed",
            0x40 => "no-arp",
            NUD_PERMANENT => "permanent",
            _ => "none",
        }
    }
}

/// An item of the kernel's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// An interface.
    Link(Link),
    /// An address.
    Address(Address),
    /// Id and content of a nexthop object.
    Object(u32, Object),
    /// A rule.
    Rule(Rule),
    /// A route, with its origin (`RTPROT_*` of linux/rtnetlink.h) and its preference.
    Route(RouteKey, u8, Preference, Target),
    /// A neighbour, with its interface index and address.
    Neighbour(u32, IpAddr, Neighbour),
}

/// linux/neighbour.h.
const NUD_STALE: u16 = 0x04;
const NUD_FAILED: u16 = 0x20;
const NUD_PERMANENT: u16 = 0x80;
/// States that permit sending: reachable, stale, delay, probe, no-ARP, permanent.
const NUD_VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
