//! `[[filter]]`: rules for packets.

use super::keys::Reload::Live;
use super::keys::written;
use super::model::Configuration;
use super::names::Whole;
use super::notation::{Choice, Given, Integer, Notation, Shape, Text, WordOr, list, text};
use super::section::{Refusal, Section, printable, wrong_type};
use super::values::{self, MAX_VLAN};
use polder_buffers::PortId;
use polder_datapath::filter::{self, FlagTest, Prefix, Rule};
use serde::{Serialize, Serializer};
use std::fmt::{self, Display};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use toml::de::DeValue;
use toml::{Spanned, Value};

/// The names of TCP flags, from the lowest bit on (RFC 9293, 3.1; RFC 3168).
const FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
const ETHER_TYPE: WordOr<u16, u16> = WordOr {
    words: &[("ipv4", 0x0800), ("ipv6", 0x86dd), ("arp", 0x0806)],
    number: Integer(1536..=u16::MAX, ""),
    from: |number| number,
    number_of: |number| Some(*number),
};
const PROTOCOL: WordOr<u8, u8> = WordOr {
    words: &[
        ("tcp", 6),
        ("udp", 17),
        ("icmp", 1),
        ("icmpv6", 58),
        ("sctp", 132),
        ("gre", 47),
        ("esp", 50),
        ("igmp", 2),
    ],
    number: Integer(0..=u8::MAX, ""),
    from: |number| number,
    number_of: |number| Some(*number),
};
/// An address, or one with the length of a prefix.
pub(super) const NETWORK: Text<Network> = text("network", "addresses and networks, IPv4 and IPv6", network);
const VLANS: Numbers = Numbers(0, MAX_VLAN);
const PORTS: Numbers = Numbers(0, u16::MAX);
const EMPTY: Option<&str> = Some("remove the key to match all");
const ALL: Option<&str> = Some("remove the key to filter packets of all ports");

section! {
    /// One rule. A list that is empty asks nothing.
    pub struct Filter("a filter", "[[filter]]") {
        keys:
        /// Name in `polder show filters`; its counters stay under that name when it changes.
        name: Option<String> = None, Given(text("", "a name, once", values::name)) => Live, usual("none");
        /// Ports and tunnels whose packets it looks at.
        ports = "port": @[serde(serialize_with = "numbers")] Vec<PortId> = Vec::new(), list(Whole("ports \
            and \
                tunnels, \
                    except \
                        underlay \
                            ports"), "names of ports and tunnels", ALL).or_one() => Live, usual("all");
        /// Direction of the packets: received by the port, before the bridge learns from them, or to be sent by it.
        direction: Direction = Direction::In, Choice(Direction::WORDS) => Live;
        /// VLAN of the tag, or of the port for a frame without one; 0 where there is none.
        vlans = "vlan": Vec<Span> = Vec::new(), list(VLANS, "VLANs", EMPTY).or_one() => Live, usual("all");
        /// EtherType, behind one tag.
        ether_types = "ether_type": Vec<u16> = Vec::new(), list(ETHER_TYPE, "EtherTypes", EMPTY).or_one() => Live, usual("all");
        /// Networks of the sender.
        sources = "source": Vec<Network> = Vec::new(), list(NETWORK, "networks", EMPTY).or_one() => Live, usual("all");
        /// Networks of the receiver.
        destinations = "destination": Vec<Network> = Vec::new(), list(NETWORK, "networks", EMPTY).or_one() => Live, usual("all");
        /// Protocol of the IP packet, behind the extension headers of IPv6.
        protocols = "protocol": Vec<u8> = Vec::new(), list(PROTOCOL, "protocols", EMPTY).or_one() => Live, usual("all");
        /// Port of the sender: TCP, UDP or SCTP.
        source_ports = "source_port": Vec<Span> = Vec::new(), list(PORTS, "ports", EMPTY).or_one() => Live, usual("all");
        /// Port of the receiver.
        destination_ports = "destination_port": Vec<Span> = Vec::new(), list(PORTS, "ports", EMPTY).or_one() => Live, usual("all");
        /// Flags that are set, and with `!` those that are not.
        tcp_flags: Option<TcpFlags> = None, Given(Flags) => Live, usual("all");
        /// Fate of the packet; `reject`, for `direction = "in"` alone, also tells the sender.
        action: Action = Action::Accept, Choice(Action::WORDS) => Live, required("add `action = \"accept\"`, \"drop\" or \"reject\"");
    }
}

choices! {
    /// Direction of the packets that a rule looks at.
    pub enum Direction {
        /// Packets received by the port.
        #[default]
        In = "in",
        /// Packets to be sent by the port.
        Out = "out",
    }
}

choices! {
    /// Fate of a packet that a rule matches.
    pub enum Action {
        /// It goes on.
        #[default]
        Accept = "accept",
        /// It is dropped.
        Drop = "drop",
        /// It is dropped, and its sender is told.
        Reject = "reject",
    }
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
    /// Flags that are looked at.
    pub mask: u8,
    /// Flags of those that are set.
    pub set: u8,
}

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

/// A number, or two with `-` between them, from a least to a largest.
struct Numbers(u16, u16);

impl Notation<Span> for Numbers {
    fn read<'d>(&self, value: &'d Spanned<DeValue<'d>>, _: &Section<'d>) -> Result<Span, Refusal> {
        values::range(value.get_ref(), self.0..=self.1).map(|range| Span(*range.start(), *range.end()))
    }

    fn write(&self, span: &Span, _: &Configuration) -> Option<Value> {
        Some(values::written_range(span.0..=span.1))
    }

    fn shape(&self) -> Shape {
        let numbers = Shape::Integer { low: self.0.into(), high: self.1.into(), unit: "" };
        Shape::Either(Box::new(numbers), Box::new(Shape::Text { what: "", range: "`\"10-19\"`" }))
    }
}

/// TCP flags by name, `!` in front of those that are not set.
struct Flags;

impl Notation<TcpFlags> for Flags {
    fn read<'d>(&self, value: &'d Spanned<DeValue<'d>>, section: &Section<'d>) -> Result<TcpFlags, Refusal> {
        let words = list(text("", "", values::text), "flags", EMPTY).or_one().read(value, section)?;
        let mut flags = TcpFlags { mask: 0, set: 0 };
        for word in &words {
            let (name, is_set) = word.strip_prefix('!').map_or((word.as_str(), true), |name| (name, false));
            let Some(bit) = FLAGS.iter().position(|flag| *flag == name) else {
                let known = FLAGS.map(|flag| format!("\"{flag}\"")).join(", ");
                let remedy = format!("the flags are {known}; \"!\" in front of a flag means not set");
                return Err(Refusal::new(format!("has no flag \"{}\"", printable(word))).remedy(remedy));
            };
            if flags.mask >> bit & 1 == 1 {
                return Err(Refusal::new(format!("names `{name}` twice")).remedy("name each flag once"));
            }
            flags.mask |= 1 << bit;
            flags.set |= u8::from(is_set) << bit;
        }
        Ok(flags)
    }

    fn write(&self, flags: &TcpFlags, all: &Configuration) -> Option<Value> {
        list(text("", "", values::text), "", EMPTY).or_one().write(&flags.words(), all)
    }

    fn shape(&self) -> Shape {
        Shape::Many(Box::new(Shape::Words(FLAGS.to_vec())))
    }
}

impl Filter {
    /// Conditions of the rule, as keys and values of the file.
    pub fn conditions(&self, configuration: &Configuration) -> Vec<(String, String)> {
        let keys = written(self, configuration).into_iter();
        let asked = keys.filter(|(key, _)| !["name", "action"].contains(&key.as_str()));
        asked.map(|(key, value)| (key, value.to_string())).collect()
    }

    /// True if it looks at packets of that port or tunnel.
    pub fn meets(&self, id: PortId) -> bool {
        self.ports.is_empty() || self.ports.contains(&id)
    }

    /// Reason why packets of a port where the kernel decides cannot pass it; `None` if they can.
    pub fn unfit(&self) -> Option<&'static str> {
        // A SYN is never carried. A FIN or RST that cannot end its connection is, and so may be a segment without either.
        let is_for_syn = |flags: TcpFlags| {
            FLAGS.iter().zip(0..).any(|(flag, bit)| *flag == "syn" && flags.set >> bit & 1 == 1)
        };
        if self.direction == Direction::Out {
            Some("packets that the kernel sends bypass filters with `direction = \"out\"`")
        } else if self.tcp_flags.is_some_and(|flags| !is_for_syn(flags)) {
            Some(
                "`tcp_flags` is a condition on each packet, but packets of a carried connection bypass \
                  filters",
            )
        } else {
            None
        }
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

/// An address, or one with the length of a prefix.
fn network(value: &DeValue<'_>) -> Result<Network, Refusal> {
    const EXAMPLE: &str = "write an address or a network, as in \"192.0.2.0/24\" or \"2001:db8::1\"";
    let text = value.as_str().ok_or_else(|| wrong_type("a network", value).remedy(EXAMPLE))?;
    let refuse = || Refusal::new(format!("cannot be \"{}\", which is not a network", printable(text)));
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address = address.parse::<IpAddr>().map_err(|_| refuse().remedy(EXAMPLE))?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => all,
        Some(bits) => bits.parse().ok().filter(|bits| *bits <= all).ok_or_else(|| {
            refuse().remedy(format!("the prefix length of the network is a number from 0 to {all}"))
        })?,
    };
    let network = clear(address, bits);
    if network != address {
        let remedy = format!("bits after the prefix are set: write \"{network}/{bits}\"");
        return Err(refuse().remedy(remedy));
    }
    Ok(Network(address, bits))
}

/// The address without the bits behind its prefix.
fn clear(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
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
