//! Common representation of chains and rules of all packet filters.

/// Family of a chain (`NFPROTO_*` of linux/netfilter.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet,
    /// IPv4.
    Ip,
    /// ARP.
    Arp,
    /// One interface (ingress and egress).
    Netdev,
    /// Kernel bridges.
    Bridge,
    /// IPv6.
    Ip6,
}

impl Family {
    /// The family with a number.
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

    /// Number of the family.
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

    /// Name of the family in `nft`.
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
    /// On the way to this host.
    Input,
    /// On the way from one interface to another.
    Forward,
    /// From this host.
    Output,
    /// After the routing or bridging decision.
    Postrouting,
    /// On transmission by an interface.
    Egress,
}

impl Hook {
    /// The hook with a number (linux/netfilter.h, linux/netfilter_arp.h).
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

    /// Name of the hook in `nft`.
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
    /// The tool that shows it.
    pub tool: Tool,
    /// Family of its table.
    pub family: Family,
    /// Name of its table.
    pub table: String,
    /// Name of the chain.
    pub name: String,
    /// Hook that calls it; `None` for a chain that only rules call.
    pub base: Option<Base>,
    /// Rules, in order.
    pub rules: Vec<Rule>,
}

/// Tool that shows a chain.
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
    /// Name of the tool in views.
    pub fn word(self) -> &'static str {
        match self {
            Self::Nft => "nftables",
            Self::Iptables => "iptables-legacy",
            Self::Ip6tables => "ip6tables-legacy",
        }
    }
}

/// Hook of a base chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The hook.
    pub hook: Hook,
    /// Order among the chains of the hook: lower ones are called first.
    pub priority: i32,
    /// True if the chain's policy is drop.
    pub drops: bool,
    /// Interfaces of a chain that is bound to some; a trailing `*` matches any end.
    pub devices: Vec<String>,
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Handle in nftables, position in iptables.
    pub handle: u64,
    /// Parts of the rule, in order.
    pub steps: Vec<Step>,
}

/// A part of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A condition: the rest of the rule applies to packets that pass it.
    Test(Test),
    /// An effect on the packet.
    Do(Effect),
    /// A map from values of a field to effects.
    Choose(Value, Vec<(Vec<u8>, Effect)>),
    /// A test of each packet's property, described as text: the rest of the rule may apply to some packets of
    /// a connection only.
    Each(String),
}

/// Condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// True if the value begins with one of these byte strings.
    Is {
        /// The value.
        value: Value,
        /// Byte strings to compare with.
        any: Vec<Vec<u8>>,
        /// True if the test passes when none matches.
        negated: bool,
    },
    /// Any other test, whose result is unknown.
    Other,
}

/// A packet field, as it is loaded for a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The field.
    pub field: Field,
    /// Mask and XOR of each byte; empty for none.
    pub mask: Vec<(u8, u8)>,
}

/// Packet fields whose values may be known without a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Name of the ingress interface.
    InName,
    /// Name of the egress interface.
    OutName,
    /// Index of the ingress interface.
    InIndex,
    /// Index of the egress interface.
    OutIndex,
    /// Name of the ingress interface's bridge.
    InBridge,
    /// Name of the egress interface's bridge.
    OutBridge,
    /// Address family (`NFPROTO_*`).
    Version,
    /// Protocol of the payload.
    Protocol,
    /// Source address.
    Source,
    /// Destination address.
    Destination,
    /// State of the packet's connection (`NF_CT_STATE_BIT`).
    State,
    /// TCP flags.
    TcpFlags,
    /// Any other field.
    Other,
}

impl Field {
    /// Length of the value in bytes, for fields that are looked up in sets.
    pub fn bytes(self) -> Option<usize> {
        match self {
            Self::InName | Self::OutName | Self::InBridge | Self::OutBridge => Some(NAME_BYTES),
            Self::InIndex | Self::OutIndex | Self::State => Some(4),
            Self::Version | Self::Protocol | Self::TcpFlags => Some(1),
            Self::Source | Self::Destination | Self::Other => None,
        }
    }
}

/// Length of an interface name with trailing zeros, in bytes (`IFNAMSIZ`).
pub const NAME_BYTES: usize = 16;

/// Effect of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Accepts the packet and ends the walk.
    Accept,
    /// Ends the chain.
    Return,
    /// Calls a chain and continues after it.
    Jump(String),
    /// Continues in another chain.
    Goto(String),
    /// Drops the packet.
    Drop,
    /// Changes or redirects the packet; text that follows "would".
    Alter(String),
    /// No effect on the packet.
    Nothing,
}
