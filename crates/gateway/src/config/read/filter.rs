//! `[[filter]]`: rules.

use super::super::filters::{Action, Direction, ETHER_TYPES, FLAGS, Network, PROTOCOLS, Span, TcpFlags};
use super::super::section::{At, Kind, Refusal, Section, Span as AdapterLocation, printable, wrong_type};
use super::super::values::{MAX_VLAN, NAME_RULE, choice, elements, integer, is_name, text};
use std::net::IpAddr;
use toml::de::DeValue;

/// The keys of a rule.
pub(super) const KIND: Kind = Kind {
    noun: "a filter",
    keys: &[
        "name",
        "port",
        "direction",
        "vlan",
        "ether_type",
        "source",
        "destination",
        "protocol",
        "source_port",
        "destination_port",
        "tcp_flags",
        "action",
    ],
};

const DIRECTIONS: &[(&str, Direction)] = &[("in", Direction::In), ("out", Direction::Out)];
const ACTIONS: &[(&str, Action)] =
    &[("accept", Action::Accept), ("drop", Action::Drop), ("reject", Action::Reject)];

/// `[[filter]]` as it stands in the file.
#[derive(Debug)]
pub(in super::super) struct FilterDraft {
    pub(in super::super) span: AdapterLocation,
    pub(in super::super) name: Option<At<String>>,
    pub(in super::super) ports: Option<At<Vec<At<String>>>>,
    pub(in super::super) direction: Option<At<Direction>>,
    pub(in super::super) vlans: Vec<Span>,
    pub(in super::super) ether_types: Option<At<Vec<u16>>>,
    pub(in super::super) sources: Option<At<Vec<Network>>>,
    pub(in super::super) destinations: Option<At<Vec<Network>>>,
    pub(in super::super) protocols: Option<At<Vec<u8>>>,
    pub(in super::super) source_ports: Option<At<Vec<Span>>>,
    pub(in super::super) destination_ports: Option<At<Vec<Span>>>,
    pub(in super::super) tcp_flags: Option<At<TcpFlags>>,
    pub(in super::super) action: Option<At<Action>>,
}

/// Reads all rules.
pub(super) fn read(root: &Section<'_>) -> Vec<FilterDraft> {
    let Some(value) = root.value("filter") else { return Vec::new() };
    let Some(array) = value.get_ref().as_array() else {
        let Refusal { message, .. } = wrong_type("a list of tables", value.get_ref());
        root.error(value.span(), format!("`filter` {message}"), "write each rule as `[[filter]]`");
        return Vec::new();
    };
    let rule = |value| Some(draft(&root.open_value(value, "[[filter]]".to_owned(), KIND)?));
    array.iter().filter_map(rule).collect()
}

fn draft(section: &Section<'_>) -> FilterDraft {
    let spans = |key: &str, what, range| section.read(key, many(what, span(range)));
    FilterDraft {
        span: section.span.clone(),
        name: section.read("name", name),
        ports: section.read("port", ports),
        direction: section.read("direction", choice(DIRECTIONS)),
        vlans: spans("vlan", "VLANs", (0, MAX_VLAN)).map(|at| at.value).unwrap_or_default(),
        ether_types: section.read("ether_type", many("EtherTypes", word_or_number(&ETHER_TYPES, 1536))),
        sources: section.read("source", many("networks", network)),
        destinations: section.read("destination", many("networks", network)),
        protocols: section.read("protocol", many("protocols", word_or_number(&PROTOCOLS, 0))),
        source_ports: spans("source_port", "ports", (0, u16::MAX)),
        destination_ports: spans("destination_port", "ports", (0, u16::MAX)),
        tcp_flags: section.read("tcp_flags", tcp_flags),
        action: section.require(
            "action",
            "add `action = \"accept\"`, \"drop\" or \"reject\"",
            choice(ACTIONS),
        ),
    }
}

fn name(value: &DeValue<'_>) -> Result<String, Refusal> {
    let name = text(value)?;
    if is_name(&name) {
        return Ok(name);
    }
    Err(Refusal::new(format!("cannot be \"{}\"", printable(&name))).remedy(NAME_RULE))
}

/// One value, or a list of them.
fn many<T>(
    what: &'static str,
    one: impl Fn(&DeValue<'_>) -> Result<T, Refusal>,
) -> impl FnOnce(&DeValue<'_>) -> Result<Vec<T>, Refusal> {
    move |value| {
        if value.as_array().is_none() {
            return Ok(vec![one(value)?]);
        }
        let list = elements(value, what, one)?;
        if list.is_empty() {
            return Err(Refusal::new("is empty").remedy("leave the key out to ask nothing"));
        }
        Ok(list.into_iter().map(|(value, _)| value).collect())
    }
}

fn ports(value: &DeValue<'_>) -> Result<Vec<At<String>>, Refusal> {
    if value.as_array().is_none() {
        // A place of its own is that of the value, which the caller knows.
        return Ok(vec![At { value: text(value)?, span: 0..0 }]);
    }
    let list = elements(value, "names of ports and tunnels", text)?;
    if list.is_empty() {
        return Err(Refusal::new("is empty").remedy("leave the key out to look at all ports"));
    }
    Ok(list.into_iter().map(|(value, span)| At { value, span }).collect())
}

/// A number, or two with `-` between them.
fn span((low, high): (u16, u16)) -> impl Fn(&DeValue<'_>) -> Result<Span, Refusal> {
    move |value| {
        let Some(text) = value.as_str() else {
            return integer(low..=high, "")(value).map(|number| Span(number, number));
        };
        let number = |text: &str| text.trim().parse().ok().filter(|number| (low..=high).contains(number));
        let bounds = match text.split_once('-') {
            Some((first, last)) => number(first).zip(number(last)),
            None => number(text).map(|number| (number, number)),
        };
        match bounds {
            Some((first, last)) if first <= last => Ok(Span(first, last)),
            Some(_) | None => {
                let remedy = format!(
                    "write a number, or two from {low} to {high} with the lower one first, as in \"10-19\""
                );
                Err(Refusal::new(format!("cannot be \"{}\"", printable(text))).remedy(remedy))
            }
        }
    }
}

/// One of a few words, or a number from `least` on.
fn word_or_number<T: Copy + TryFrom<i64> + Into<i64> + Bounded>(
    words: &'static [(&'static str, T)],
    least: i64,
) -> impl Fn(&DeValue<'_>) -> Result<T, Refusal> {
    move |value| {
        if value.as_str().is_some() {
            return choice(words)(value).map_err(|refusal| match refusal.remedy.as_deref() {
                Some(remedy) if remedy.starts_with("did you mean") => refusal,
                Some(_) | None => {
                    let known = words.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>();
                    refusal.remedy(format!("write a number, or one of {}", known.join(", ")))
                }
            });
        }
        let least = T::try_from(least).unwrap_or(T::MOST);
        integer(least..=T::MOST, "")(value)
    }
}

/// The largest number of a type.
trait Bounded {
    const MOST: Self;
}

impl Bounded for u8 {
    const MOST: Self = Self::MAX;
}

impl Bounded for u16 {
    const MOST: Self = Self::MAX;
}

/// An address, or one with the length of a prefix.
pub(super) fn network(value: &DeValue<'_>) -> Result<Network, Refusal> {
    const EXAMPLE: &str = "write an address or a network, as in \"192.0.2.0/24\" or \"2001:db8::1\"";
    let text = value.as_str().ok_or_else(|| wrong_type("a network", value).remedy(EXAMPLE))?;
    let refuse = || Refusal::new(format!("cannot be \"{}\", which is no network", printable(text)));
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address = address.parse::<IpAddr>().map_err(|_| refuse().remedy(EXAMPLE))?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => all,
        Some(bits) => bits.parse().ok().filter(|bits| *bits <= all).ok_or_else(|| {
            refuse().remedy(format!("the length of its prefix is a number from 0 to {all}"))
        })?,
    };
    let network = clear(address, bits);
    if network != address {
        let remedy = format!("bits behind the prefix are set: write \"{network}/{bits}\"");
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

fn tcp_flags(value: &DeValue<'_>) -> Result<TcpFlags, Refusal> {
    let words = many("flags", text)(value)?;
    let mut flags = TcpFlags { mask: 0, set: 0 };
    for word in &words {
        let (name, is_set) = word.strip_prefix('!').map_or((word.as_str(), true), |name| (name, false));
        let Some(bit) = FLAGS.iter().position(|flag| *flag == name) else {
            let known = FLAGS.map(|flag| format!("\"{flag}\"")).join(", ");
            let remedy = format!("the flags are {known}; \"!\" in front of one asks that it is not set");
            return Err(Refusal::new(format!("has no flag \"{}\"", printable(word))).remedy(remedy));
        };
        if flags.mask >> bit & 1 == 1 {
            return Err(Refusal::new(format!("names `{name}` twice")).remedy("name it once"));
        }
        flags.mask |= 1 << bit;
        flags.set |= u8::from(is_set) << bit;
    }
    Ok(flags)
}
