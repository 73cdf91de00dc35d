//! Links, addresses, next hops, rules, routes and neighbours, as the kernel has them.

use polder_datapath::route::Prefix;
use std::net::IpAddr;

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// True if it was switched on.
    pub up: bool,
    /// True if the link has a carrier.
    pub carrier: bool,
    /// Its Ethernet address; zeros if it has none.
    pub mac: [u8; 6],
    /// Its largest packet in bytes.
    pub mtu: u32,
    /// For a VLAN's interface: the interface below, and the VLAN (802.1Q alone).
    pub vlan: Option<(u32, u16)>,
    /// For a macvlan that has the frames for its own address: the interface below.
    pub macvlan: Option<u32>,
}

impl Link {
    /// True if packets can be sent there.
    pub fn carries(&self) -> bool {
        self.up && self.carrier
    }
}

/// An address of this machine; in order, those of an interface from which the kernel speaks come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The interface's number.
    pub index: u32,
    /// True if the kernel speaks from another address of the network: `IFA_F_SECONDARY`, which IPv6 calls temporary.
    pub secondary: bool,
    /// The address.
    pub address: IpAddr,
    /// Bits that it shares with the neighbours on the link.
    pub bits: u8,
}

/// Interface and gateway of one hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HopSpec {
    /// The interface's number.
    pub index: u32,
    /// The router there; the destination itself if none.
    pub gateway: Option<IpAddr>,
    /// Its part of the flows.
    pub weight: u16,
    /// The largest packet that the route lets pass there, in bytes; 0 if it says nothing.
    pub mtu: u16,
    /// True if packets are to be encapsulated, as by MPLS, which is not supported.
    pub wrapped: bool,
}

/// Content of a next hop object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// A hop.
    Hop(HopSpec),
    /// Several objects, with their parts of the flows.
    Group(Vec<(u32, u16)>),
    /// Nowhere.
    Blackhole,
}

/// Effect of a route on packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// To one of these hops.
    Hops(Vec<HopSpec>),
    /// To the next hop object of that number, with the route's MTU; 0 if the route has none.
    Object(u32, u16),
    /// To this machine, which has the address or network on the interface of that number.
    Local(u32),
    /// All stations of a link.
    Broadcast,
    /// Nowhere, silently.
    Blackhole,
    /// Nowhere; the sender is told.
    Unreachable,
    /// Administratively prohibited; the sender gets a message.
    Prohibit,
    /// To the result of the next table.
    Throw,
}

impl Target {
    /// True if packets go on to a next hop.
    pub fn has_next_hop(&self) -> bool {
        matches!(self, Self::Hops(_) | Self::Object(..))
    }

    /// True if packets go nowhere, or to all stations of a link.
    pub fn is_verdict(&self) -> bool {
        match self {
            Self::Hops(_) | Self::Object(..) | Self::Local(_) => false,
            Self::Broadcast | Self::Blackhole | Self::Unreachable | Self::Prohibit | Self::Throw => true,
        }
    }
}

/// Key of a route in a table. The kernel may have several routes with one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteKey {
    /// The number of its table.
    pub table: u32,
    /// Destinations that it covers.
    pub prefix: Prefix,
    /// Sources that it covers; `None` for all. Only IPv6 has routes by source.
    pub source: Option<Prefix>,
    /// Of several routes, that with the lowest is taken.
    pub metric: u32,
}

/// Preference of a route (RFC 4191): of routes with one key, that with the highest counts. Routes of IPv4 have
/// the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Preference {
    /// Taken last.
    Low,
    /// Default.
    #[default]
    Medium,
    /// Taken first.
    High,
}

/// A rule: which packets are looked up in which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rule {
    /// The one with the lowest comes first.
    pub priority: u32,
    /// True if it is one of IPv6.
    pub is_v6: bool,
    /// The table; `None` for a rule that does something else than look up.
    pub table: Option<u32>,
    /// True if it selects packets: by source, mark, interface or anything else.
    pub selects: bool,
}

/// A neighbour's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// `NUD_*` of linux/neighbour.h.
    pub state: u16,
    /// Its Ethernet address, if it is known.
    pub mac: Option<[u8; 6]>,
}

impl Neighbour {
    /// The address to send to, if the entry is good for sending.
    pub fn usable(&self) -> Option<[u8; 6]> {
        self.mac.filter(|_| self.state & NUD_VALID != 0)
    }

    /// True if it has not been heard of for long.
    pub fn is_stale(&self) -> bool {
        self.state & NUD_STALE != 0
    }

    /// True if the kernel has given up on it.
    pub fn failed(&self) -> bool {
        self.state & NUD_FAILED != 0
    }

    /// Name of its state in the kernel's tools.
    pub fn word(&self) -> &'static str {
        match self.state {
            0x01 => "incomplete",
            0x02 => "reachable",
            0x04 => "stale",
            0x08 => "delay",
            0x10 => "probe",
            NUD_FAILED => "failed",
            0x40 => "no-arp",
            0x80 => "permanent",
            _ => "none",
        }
    }
}

/// One thing that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// An interface.
    Link(Link),
    /// An address.
    Address(Address),
    /// A next hop object and its number.
    Object(u32, Object),
    /// A rule.
    Rule(Rule),
    /// A route, with its origin (`RTPROT_*` of linux/rtnetlink.h) and its preference.
    Route(RouteKey, u8, Preference, Target),
    /// A neighbour on the interface of that number.
    Neighbour(u32, IpAddr, Neighbour),
}

/// linux/neighbour.h.
const NUD_STALE: u16 = 0x04;
const NUD_FAILED: u16 = 0x20;
/// Good for sending: reachable, stale, delay, probe, no-ARP, permanent.
const NUD_VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
