//! `[router]`: where routes come from, and those that stand in the file.

use super::filters::{NETWORK, Network};
use super::keys::Access;
use super::keys::Reload::{Live, Restart};
use super::names::Reference;
use super::notation::{Choice, Given, Integer, Shape, Text, WordOr, list, number_or, tables, text};
use super::section::{Refusal, printable, wrong_type};
use polder_buffers::PortId;
use serde::{Serialize, Serializer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use toml::de::DeValue;

/// The kernel's tables, by the names that every machine has for two of them.
const TABLE: WordOr<u32, u32> = WordOr {
    words: &[("main", 254), ("default", 253)],
    number: Integer(1..=u32::MAX, ""),
    from: |table| table,
    number_of: |table| Some(*table),
};
const CONNECTIONS: &str = "the table of connections is allocated once";
const NO_TABLE: &str = "name a table, or remove `tables`";
const ROUTER: Text<IpAddr> = text("IPv4 or IPv6 address", "with the network's address family", router);
const MARK: Text<Mark> = text("a value and a mask, in hexadecimal or decimal", "", mark);
/// An address with the length of its network's prefix.
pub(super) const ADDRESS: Text<InterfaceAddress> =
    text("addresses with the length of a prefix", "", interface_address);

section! {
    /// Routes of a router, and their sources.
    pub struct Router("the router", "[router]") {
        /// Routes of the file. They come before others to the same network.
        route: Vec<StaticRoute> = Vec::new();
        keys:
        /// Source of routes: the kernel's tables, followed as they change, or only the ports' networks and `[[router.route]]`.
        routes: RoutesFrom = RoutesFrom::Kernel, Choice(RoutesFrom::WORDS) => Live;
        /// The kernel's tables that are followed, in order of look-up.
        tables: Vec<u32> = Vec::new(), list(TABLE, "tables", Some(NO_TABLE)) => Live, usual("tables that \
            the kernel's \
                rules use for \
                    all packets");
        /// Time for which the routes of a routing daemon that has ended are kept; withdrawals take effect 0.2 s later. `"never"` is off.
        hold_seconds: Option<u16> = None, number_or(&[("never", None)], 1..=3600, "seconds") => Live;
        /// Maximum number of carried connections, where the kernel decides; see [the kernel decides](ports.md#the-kernel-decides).
        connections: u32 = 65_536, Integer(16..=1 << 20, "") => Restart(CONNECTIONS);
        /// Connections whose conntrack mark has this value under this mask stay with the kernel, as `"0x1/0xff"`.
        kernel_mark: Option<Mark> = None, Given(MARK) => Restart(CONNECTIONS), usual("none");
        /// Connections whose conntrack mark has this value under this mask are carried even if kernel rules examine each of their packets.
        carried_mark: Option<Mark> = None, Given(MARK) => Restart(CONNECTIONS), usual("none");
        /// Routes of the file.
        route @ Access::elsewhere(|router: &Self, all| tables(&router.route, all), || Shape::Table("list of tables")) => Live, usual("none");
    }
}

choices! {
    /// Source of routes.
    pub enum RoutesFrom {
        /// The kernel's tables, followed as they change.
        #[default]
        Kernel = "kernel",
        /// The networks of the ports and `[[router.route]]` alone.
        Static = "static",
    }
}

section! {
    /// A route of the file.
    pub struct StaticRoute("a route", "[[router.route]]") {
        keys:
        /// Destination, as `"10.0.0.0/8"` or `"::/0"`. It comes before a route of the kernel to the same network.
        to: Network = Network(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), NETWORK => Live, required("add `to = \"…\"`, the network that it leads to"), range("IPv4 or IPv6, once");
        /// The router, or several that share the flows.
        via: Vec<IpAddr> = Vec::new(), list(ROUTER, "addresses", None).or_one() => Live, usual("the destinations themselves, on the link of `port`");
        /// Port by which packets leave.
        port: @[serde(serialize_with = "number")] Option<PortId> = None, Given(Reference("a router port or a tunnel of packets")) => Live, usual("the \
            port \
                in \
                    whose \
                        network \
                            `via` \
                                is");
        /// Forward, or drop: silently (`blackhole`), with ICMP host unreachable (`unreachable`) or with ICMP administratively prohibited (`prohibit`).
        kind: RouteKind = RouteKind::Unicast, Choice(RouteKind::WORDS) => Live;
    }
}

choices! {
    /// Fate of a route's packets.
    pub enum RouteKind {
        /// They are forwarded.
        #[default]
        Unicast = "unicast",
        /// They are dropped, silently.
        Blackhole = "blackhole",
        /// They are dropped, and the sender is told that nobody is there.
        Unreachable = "unreachable",
        /// They are dropped, and the sender is told that somebody does not want them.
        Prohibit = "prohibit",
    }
}

/// Value of a connection mark under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The value.
    pub value: u32,
    /// Bits that are compared.
    pub mask: u32,
}

impl Mark {
    /// True for a mark that has the value.
    pub fn fits(self, mark: u32) -> bool {
        mark & self.mask == self.value
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#x}/{:#x}", self.value, self.mask)
    }
}

impl Serialize for Mark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An address of a port that only Polder has, with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits that it shares with the neighbours on the link.
    pub bits: u8,
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.bits)
    }
}

impl Serialize for InterfaceAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[expect(clippy::ref_option, reason = "the signature that serde asks for")]
fn number<S: Serializer>(id: &Option<PortId>, serializer: S) -> Result<S::Ok, S::Error> {
    match id {
        Some(id) => serializer.serialize_some(&id.0),
        None => serializer.serialize_none(),
    }
}

impl Router {
    /// True if it says something that is not said by leaving it out.
    pub fn is_said(&self) -> bool {
        *self != Self::default()
    }
}

const EXAMPLE: &str = "write an address in quotes, as in \"192.0.2.1\" or \"2001:db8::1\"";

fn router(value: &DeValue<'_>) -> Result<IpAddr, Refusal> {
    let text = value.as_str().ok_or_else(|| wrong_type("an address", value).remedy(EXAMPLE))?;
    let refuse = || Refusal::new(format!("cannot be \"{}\"", printable(text)));
    let address = text.parse::<IpAddr>().map_err(|_| refuse().remedy(EXAMPLE))?;
    match nobodys(address) {
        Some(why) => Err(refuse().remedy(why)),
        None => Ok(address),
    }
}

fn mark(value: &DeValue<'_>) -> Result<Mark, Refusal> {
    const EXAMPLE: &str = "write a value and a mask that has all of its bits, as in \"0x1/0xff\"";
    let text = value.as_str().ok_or_else(|| wrong_type("a mark", value).remedy(EXAMPLE))?;
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let (value, mask) = text.split_once('/').unwrap_or((text, "0xffffffff"));
    let mark = number(value).zip(number(mask)).map(|(value, mask)| Mark { value, mask });
    let fits = |mark: &Mark| mark.mask != 0 && mark.value & !mark.mask == 0;
    mark.filter(fits)
        .ok_or_else(|| Refusal::new(format!("cannot be \"{}\"", printable(text))).remedy(EXAMPLE))
}

fn interface_address(value: &DeValue<'_>) -> Result<InterfaceAddress, Refusal> {
    const EXAMPLE: &str = "write an address with the length of its network's prefix, as in \"192.0.2.1/24\" or \"2001:db8::1/64\"";
    let text = value.as_str().ok_or_else(|| wrong_type("an address", value).remedy(EXAMPLE))?;
    let refuse = || Refusal::new(format!("cannot be \"{}\"", printable(text))).remedy(EXAMPLE);
    let (address, bits) = text.split_once('/').ok_or_else(refuse)?;
    let address = address.parse::<IpAddr>().map_err(|_| refuse())?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.parse::<u8>().ok().filter(|bits| (1..=all).contains(bits)).ok_or_else(refuse)?;
    if let Some(why) = nobodys(address) {
        return Err(refuse().remedy(why));
    }
    if let IpAddr::V4(address) = address
        && bits < 31
        && is_edge(address, bits)
    {
        return Err(refuse()
            .remedy("this is the network's own or its broadcast address; use an address between them"));
    }
    Ok(InterfaceAddress { address, bits })
}

/// True if an address is the first or the last of its network.
fn is_edge(address: Ipv4Addr, bits: u8) -> bool {
    let hosts = u32::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
    let host = address.to_bits() & hosts;
    host == 0 || host == hosts
}

/// Reason why no station can have an address.
fn nobodys(address: IpAddr) -> Option<&'static str> {
    if address.is_loopback() {
        Some("a loopback address never leaves the host; use an address that others can reach")
    } else if address.is_multicast() || address.is_unspecified() {
        Some("it is not the address of a single host; use a unicast address")
    } else {
        match address {
            IpAddr::V4(address) if address.octets()[0] >= 240 || address.octets()[0] == 0 => {
                Some("it is reserved; use a unicast address")
            }
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        }
    }
}
