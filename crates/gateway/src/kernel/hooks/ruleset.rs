//! Chains and rules of all packet filters in one form, as far as they decide about a packet.

/// Family of a chain (`NFPROTO_*` of linux/netfilter.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet,
    /// IPv4.
    Ip,
    /// ARP.
    Arp,
    /// One interface.
    Netdev,
    /// Kernel bridges.
    Bridge,
    /// IPv6.
    Ip6,
}

impl Family {
    /// The family of that number.
    pub fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Inet,
            2 => Self::Ip,
            3 => Self::Arp,
            5 => Self::Netdev,
            7 => Self::Bridge,
            10 => Self::Ip6,
            _ => return None,
        })
    }

    /// The number of the family.
    pub fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Ip => 2,
            Self::Arp => 3,
            Self::Netdev => 5,
            Self::Bridge => 7,
            Self::Ip6 => 10,
        }
    }

    /// Its name in `nft`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Inet => "inet",
            Self::Ip => "ip",
            Self::Arp => "arp",
            Self::Netdev => "netdev",
            Self::Bridge => "bridge",
            Self::Ip6 => "ip6",
        }
    }
}

/// Place in the kernel's packet path at which chains are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hook {
    /// On receipt by an interface, before the network layer.
    Ingress,
    /// Before the routing or bridging decision.
    Prerouting,
    /// On the way to the machine itself.
    Input,
    /// On the way from one interface to another.
    Forward,
    /// From the machine itself.
    Output,
    /// After the routing or bridging decision.
    Postrouting,
    /// On transmission by an interface.
    Egress,
}

impl Hook {
    /// The hook of that number (linux/netfilter.h, linux/netfilter_arp.h).
    pub fn of(family: Family, number: u32) -> Option<Self> {
        Some(match (family, number) {
            (Family::Netdev, 0) | (Family::Inet, 5) => Self::Ingress,
            (Family::Netdev, 1) => Self::Egress,
            (Family::Netdev, _) => return None,
            (Family::Arp, 0) => Self::Input,
            (Family::Arp, 1) => Self::Output,
            (Family::Arp, 2) => Self::Forward,
            (Family::Arp, _) => return None,
            (_, 0) => Self::Prerouting,
            (_, 1) => Self::Input,
            (_, 2) => Self::Forward,
            (_, 3) => Self::Output,
            (_, 4) => Self::Postrouting,
            _ => return None,
        })
    }

    /// Its name in `nft`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
            Self::Egress => "egress",
        }
    }
}

/// Tables of one packet filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// All chains.
    pub chains: Vec<Chain>,
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The program that shows it.
    pub tool: Tool,
    /// The family of its table.
    pub family: Family,
    /// The name of its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// The hook that calls it; `None` for a chain that only rules call.
    pub base: Option<Base>,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
}

/// Program by which an administrator sees a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tool {
    /// `nft`.
    Nft,
    /// `iptables-legacy`.
    Iptables,
    /// `ip6tables-legacy`.
    Ip6tables,
}

impl Tool {
    /// Name of its interface in views.
    pub fn word(self) -> &'static str {
        match self {
            Self::Nft => "nftables",
            Self::Iptables => "iptables-legacy",
            Self::Ip6tables => "ip6tables-legacy",
        }
    }
}

/// The hook of a base chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The hook.
    pub hook: Hook,
    /// Its place among the chains of the hook: lower ones are called first.
    pub priority: i32,
    /// True if the policy of the chain is drop.
    pub drops: bool,
    /// The interfaces of a chain that is bound to some; a trailing `*` stands for any end.
    pub devices: Vec<String>,
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Its handle in nftables, its position in iptables.
    pub handle: u64,
    /// Its parts, in order.
    pub steps: Vec<Step>,
}

/// A part of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The rest of the rule is for packets that pass.
    Test(Test),
    /// The packet is changed, dropped or redirected.
    Do(Effect),
    /// A verdict by the value of a field.
    Choose(Value, Vec<(Vec<u8>, Effect)>),
    /// The rest of the rule may be for some packets of a connection alone, by this property.
    Each(String),
}

/// Condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The value begins with one of these bytes; `negated` turns it round.
    Is {
        /// The value.
        value: Value,
        /// Values that it is compared with.
        any: Vec<Vec<u8>>,
        /// True if the test passes when none is equal.
        negated: bool,
    },
    /// Anything else: it may pass or not.
    Other,
}

/// A field of a packet, as it is loaded for a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The field.
    pub field: Field,
    /// Bits that are compared, and bits that are turned round; all and none if empty.
    pub mask: Vec<(u8, u8)>,
}

/// Fields of packets that are known without a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The name of the interface that received the packet.
    InName,
    /// The name of the interface that will transmit it.
    OutName,
    /// The number of the interface that received it.
    InIndex,
    /// The number of the interface that will transmit it.
    OutIndex,
    /// The name of the bridge of the interface that received it.
    InBridge,
    /// The name of the bridge of the interface that will transmit it.
    OutBridge,
    /// Its family (`NFPROTO_*`).
    Version,
    /// The protocol of its payload.
    Protocol,
    /// Its source address.
    Source,
    /// Its destination address.
    Destination,
    /// State of its connection (`NF_CT_STATE_BIT`).
    State,
    /// Flags of TCP.
    TcpFlags,
    /// Any other.
    Other,
}

impl Field {
    /// Bytes of its value, for fields that sets are looked up by.
    pub fn bytes(self) -> Option<usize> {
        match self {
            Self::InName | Self::OutName | Self::InBridge | Self::OutBridge => Some(NAME_BYTES),
            Self::InIndex | Self::OutIndex | Self::State => Some(4),
            Self::Version | Self::Protocol | Self::TcpFlags => Some(1),
            Self::Source | Self::Destination | Self::Other => None,
        }
    }
}

/// Bytes of an interface's name, zeros at its end included (`IFNAMSIZ`).
pub const NAME_BYTES: usize = 16;

/// Effect of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ends the walk; the packet goes on.
    Accept,
    /// Ends the chain.
    Return,
    /// Calls a chain.
    Jump(String),
    /// Goes to a chain.
    Goto(String),
    /// Drops the packet.
    Drop,
    /// Changes it, or takes it elsewhere; in words that follow "would".
    Alter(String),
    /// Nothing that a packet would notice.
    Nothing,
}
