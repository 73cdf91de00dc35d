//! `[[filter]]` rules: what they say, and how they are written.

use super::model::Configuration;
use super::write::quoted;
use polder_buffers::PortId;
use polder_datapath::filter::{self, FlagTest, Prefix, Rule};
use serde::{Serialize, Serializer};
use std::fmt::{self, Display, Write as _};
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// One rule. A list that is empty asks nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Filter {
    /// Its name in tables, if it has one; it is counted under it over reloads.
    pub name: Option<String>,
    /// Ports and tunnels that it looks at; all if none.
    #[serde(serialize_with = "numbers")]
    pub ports: Vec<PortId>,
    /// Whether it looks at what those receive or at what they are to send.
    pub direction: Direction,
    /// VLANs.
    pub vlans: Vec<Span>,
    /// What the frame carries.
    pub ether_types: Vec<u16>,
    /// From where.
    pub sources: Vec<Network>,
    /// To where.
    pub destinations: Vec<Network>,
    /// IP protocols.
    pub protocols: Vec<u8>,
    /// Ports of the sender.
    pub source_ports: Vec<Span>,
    /// Ports of the receiver.
    pub destination_ports: Vec<Span>,
    /// TCP flags.
    pub tcp_flags: Option<TcpFlags>,
    /// What becomes of what it matches.
    pub action: Action,
}

/// Which packets of a port a rule looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Those that it receives.
    #[default]
    In,
    /// Those that it is to send.
    Out,
}

/// What becomes of a packet that a rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// It goes on.
    #[default]
    Accept,
    /// It is dropped.
    Drop,
    /// It is dropped, and its sender is told.
    Reject,
}

/// Numbers from a first to a last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub u16, pub u16);

/// Addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(pub IpAddr, pub u8);

/// Flags that are looked at, and those of them that are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFlags {
    /// Which are looked at.
    pub mask: u8,
    /// Which of those are set.
    pub set: u8,
}

/// The names of TCP flags, from the lowest bit on (RFC 9293, 3.1; RFC 3168).
pub(super) const FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
/// Names of EtherTypes.
pub(super) const ETHER_TYPES: [(&str, u16); 3] = [("ipv4", 0x0800), ("arp", 0x0806), ("ipv6", 0x86dd)];
/// Names of IP protocols.
pub(super) const PROTOCOLS: [(&str, u8); 8] = [
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("icmpv6", 58),
    ("sctp", 132),
];

impl Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(first, last) = self;
        if first == last { write!(formatter, "{first}") } else { write!(formatter, "{first}-{last}") }
    }
}

impl Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(address, bits) = self;
        let all = if address.is_ipv4() { 32 } else { 128 };
        if *bits == all { write!(formatter, "{address}") } else { write!(formatter, "{address}/{bits}") }
    }
}

impl TcpFlags {
    /// Each flag that is looked at, with `!` when it is not set.
    fn words(self) -> Vec<String> {
        let of = |(bit, name): (usize, &&str)| {
            let sign = if self.set >> bit & 1 == 1 { "" } else { "!" };
            (self.mask >> bit & 1 == 1).then(|| format!("{sign}{name}"))
        };
        FLAGS.iter().enumerate().filter_map(of).collect()
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for TcpFlags {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.words())
    }
}

fn numbers<S: Serializer>(ids: &[PortId], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(ids.iter().map(|id| id.0))
}

/// The name of a number, or the number.
fn named<T: Copy + Eq + Display>(names: &[(&str, T)], number: T) -> String {
    let found = names.iter().find(|(_, known)| *known == number);
    found.map_or_else(|| number.to_string(), |(name, _)| quoted(name))
}

impl Action {
    /// In the words of the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Drop => "drop",
            Self::Reject => "reject",
        }
    }
}

impl Direction {
    /// In the words of the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

impl Filter {
    /// What it asks, as keys and values of the file, but for name and action.
    pub fn conditions(&self, configuration: &Configuration) -> Vec<(&'static str, String)> {
        let list = |words: Vec<String>| match words.as_slice() {
            [only] => only.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        let span = |span: &Span| if span.0 == span.1 { span.to_string() } else { quoted(&span.to_string()) };
        let spans = |spans: &[Span]| spans.iter().map(span).collect::<Vec<_>>();
        let networks = |list: &[Network]| list.iter().map(|it| quoted(&it.to_string())).collect::<Vec<_>>();
        let port = |id: &PortId| quoted(configuration.name_of(*id).unwrap_or_default());
        let flags = self.tcp_flags.map(TcpFlags::words).unwrap_or_default();
        let keys = [
            ("port", self.ports.iter().map(port).collect()),
            ("direction", vec![quoted(self.direction.word())]),
            ("vlan", spans(&self.vlans)),
            ("ether_type", self.ether_types.iter().map(|&it| named(&ETHER_TYPES, it)).collect()),
            ("source", networks(&self.sources)),
            ("destination", networks(&self.destinations)),
            ("protocol", self.protocols.iter().map(|&it| named(&PROTOCOLS, it)).collect()),
            ("source_port", spans(&self.source_ports)),
            ("destination_port", spans(&self.destination_ports)),
            ("tcp_flags", flags.iter().map(|flag| quoted(flag)).collect()),
        ];
        let given = keys.into_iter().filter(|(_, words)| !words.is_empty());
        given.map(|(key, words)| (key, list(words))).collect()
    }

    /// The rule as it stands in a file.
    pub(super) fn to_toml(&self, configuration: &Configuration) -> String {
        let mut text = "\n[[filter]]\n".to_owned();
        if let Some(name) = &self.name {
            writeln!(text, "name = {}", quoted(name)).expect("a string takes everything");
        }
        for (key, value) in self.conditions(configuration) {
            writeln!(text, "{key} = {value}").expect("a string takes everything");
        }
        writeln!(text, "action = {}", quoted(self.action.word())).expect("a string takes everything");
        text
    }

    /// True if it asks nothing: every packet in its direction fits.
    pub(super) fn fits_all(&self) -> bool {
        let everything = Self {
            name: self.name.clone(),
            action: self.action,
            direction: self.direction,
            ..Self::default()
        };
        *self == everything
    }

    /// The rule in the datapath's words.
    pub fn rule(&self) -> Rule {
        let ranges = |spans: &[Span]| -> Vec<RangeInclusive<u16>> {
            spans.iter().map(|&Span(first, last)| first..=last).collect()
        };
        let prefixes = |networks: &[Network]| -> Vec<Prefix> {
            networks.iter().map(|&Network(address, bits)| Prefix { address, bits }).collect()
        };
        Rule {
            direction: match self.direction {
                Direction::In => filter::Direction::In,
                Direction::Out => filter::Direction::Out,
            },
            ports: self.ports.clone(),
            vlans: ranges(&self.vlans),
            ether_types: self.ether_types.clone(),
            sources: prefixes(&self.sources),
            destinations: prefixes(&self.destinations),
            protocols: self.protocols.clone(),
            source_ports: ranges(&self.source_ports),
            destination_ports: ranges(&self.destination_ports),
            flags: self.tcp_flags.map(|TcpFlags { mask, set }| FlagTest { mask, set }),
            action: match self.action {
                Action::Accept => filter::Action::Accept,
                Action::Drop => filter::Action::Drop,
                Action::Reject => filter::Action::Reject,
            },
        }
    }
}

/// Counts the rules of two configurations, if they are not the same.
pub(super) fn changed(old: &Configuration, new: &Configuration) -> Option<(usize, usize)> {
    (old.filters != new.filters).then_some((old.filters.len(), new.filters.len()))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use std::path::Path;

    const BASE: &str = "version = 1\n[port.lan]\ninterface = \"eth0\"\n[port.dmz]\ninterface = \"eth1\"\n\
                        [bridge.br0]\nmembers = [\"lan\", \"dmz\"]\n";

    #[test]
    fn a_rule_with_every_key_is_read_as_it_is_written() {
        let text = format!(
            "{BASE}[[filter]]\nname = \"all\"\nport = [\"lan\", \"dmz\"]\ndirection = \"out\"\nvlan = [7, \"10-19\"]\n\
             ether_type = [\"ipv4\", \"ipv6\", 0x88cc]\nsource = [\"10.0.0.0/8\", \"2001:db8::/32\", \"192.0.2.1\"]\n\
             destination = \"10.1.0.0/16\"\nprotocol = [\"tcp\", 17]\nsource_port = \"1024-65535\"\n\
             destination_port = [80, 443]\naction = \"drop\"\n\
             [[filter]]\nprotocol = \"tcp\"\ntcp_flags = [\"syn\", \"!ack\"]\naction = \"reject\"\n"
        );
        let read = |text: &str| parse(text, Path::new("a.toml")).unwrap_or_else(|report| panic!("{report}"));
        let original = read(&text).configuration;
        assert_eq!(original.filters.len(), 2);
        let written = original.to_toml();
        assert_eq!(read(&written).configuration, original, "{written}");
        let flags = original.filters[1].tcp_flags.expect("flags");
        assert_eq!((flags.mask, flags.set), (0x12, 0x02));
        assert_eq!(original.filters[0].rule().boxes(), 2 * 2 * 3 * 2 * 2 * 2);
    }

    #[test]
    fn a_gateway_with_filters_stays_closed_when_it_ends_unless_told_otherwise() {
        use super::super::model::OnExit;
        let on_exit = |text: &str| {
            let read = parse(text, Path::new("a.toml")).unwrap_or_else(|report| panic!("{report}"));
            read.configuration.ports[0].on_exit
        };
        assert_eq!(on_exit(BASE), OnExit::Kernel);
        let filtered = format!("{BASE}[[filter]]\nprotocol = \"udp\"\naction = \"drop\"\n");
        assert_eq!(on_exit(&filtered), OnExit::Drop);
        let told = filtered.replace("[port.lan]", "[gateway]\non_exit = \"kernel\"\n[port.lan]");
        assert_eq!(on_exit(&told), OnExit::Kernel);
    }
}
