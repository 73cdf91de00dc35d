//! Readers of single values: types, ranges, notations.

use super::model::Mac;
use super::notation::{self, Text};
use super::section::{Refusal, closest, printable, wrong_type};
use polder_devices::pci::Address;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use toml::Value;
use toml::de::DeValue;

/// A string.
pub(super) fn text(value: &DeValue<'_>) -> Result<String, Refusal> {
    let refusal = || wrong_type("a string", value).remedy("put the value in quotes");
    value.as_str().map(str::to_owned).ok_or_else(refusal)
}

/// `true` or `false`.
pub(super) fn boolean(value: &DeValue<'_>) -> Result<bool, Refusal> {
    let remedy = "write `true` or `false`, without quotes";
    value.as_bool().ok_or_else(|| wrong_type("true or false", value).remedy(remedy))
}

/// An integer in `range`; `unit` is what is counted.
pub(super) fn integer<T: TryFrom<i64> + Into<i64> + Copy>(
    range: RangeInclusive<T>,
    unit: &'static str,
) -> impl Fn(&DeValue<'_>) -> Result<T, Refusal> {
    move |value| {
        let (low, high) = ((*range.start()).into(), (*range.end()).into());
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        let remedy = format!("use a whole number from {low} to {high}{unit}, without quotes");
        let digits = value.as_integer().ok_or_else(|| wrong_type("an integer", value).remedy(&remedy))?;
        let number = i64::from_str_radix(digits.as_str(), digits.radix()).ok();
        let fits = number.filter(|number| (low..=high).contains(number));
        fits.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
            let remedy = format!("use a value from {low} to {high}{unit}");
            Refusal::new(format!("is {digits}, which is out of range")).remedy(remedy)
        })
    }
}

/// One of a few words.
pub(super) fn choice<T: Copy>(words: &[(&'static str, T)], value: &DeValue<'_>) -> Result<T, Refusal> {
    let remedy = match words {
        [(only, _)] => format!("write \"{only}\", the only choice"),
        all => format!("the choices are {}", quoted(all)),
    };
    word(words, value, "a string", remedy)
}

/// One of a few words, where a number could stand as well.
pub(super) fn word_or_number<T: Copy>(
    words: &[(&'static str, T)],
    value: &DeValue<'_>,
) -> Result<T, Refusal> {
    let all = quoted(words);
    word(words, value, &format!("{all} or an integer"), format!("write {all} or a number without quotes"))
}

fn word<T: Copy>(
    words: &[(&'static str, T)],
    value: &DeValue<'_>,
    expected: &str,
    remedy: String,
) -> Result<T, Refusal> {
    let Some(word) = value.as_str() else { return Err(wrong_type(expected, value).remedy(remedy)) };
    let found = words.iter().find(|&&(name, _)| name == word);
    found.map(|&(_, chosen)| chosen).ok_or_else(|| {
        let close = closest(word, words.iter().map(|&(name, _)| name));
        let remedy = close.map_or(remedy, |known| format!("did you mean \"{known}\"?"));
        Refusal::new(format!("cannot be \"{}\"", printable(word))).remedy(remedy)
    })
}

fn quoted<T>(words: &[(&'static str, T)]) -> String {
    words.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

/// The name of a gateway or a rule.
pub(super) fn name(value: &DeValue<'_>) -> Result<String, Refusal> {
    let name = text(value)?;
    if is_name(&name) {
        return Ok(name);
    }
    Err(Refusal::new(format!("cannot be \"{}\"", printable(&name))).remedy(NAME_RULE))
}

/// The address of a host that need not be on the link.
pub(super) fn host(value: &DeValue<'_>) -> Result<IpAddr, Refusal> {
    let address = neighbour(value)?;
    match address {
        IpAddr::V6(address) if address.is_unicast_link_local() => {
            let why = "is valid on its link only; use a global or unique local address";
            Err(Refusal::new(format!("cannot be {address}")).remedy(format!("{address} {why}")))
        }
        IpAddr::V4(_) | IpAddr::V6(_) => Ok(address),
    }
}

/// The address of a host, perhaps one that is known on its link alone.
pub(super) fn neighbour(value: &DeValue<'_>) -> Result<IpAddr, Refusal> {
    let text = value.as_str().ok_or_else(|| {
        wrong_type("an IP address", value)
            .remedy("write the address in quotes, as in \"192.0.2.1\" or \"2001:db8::1\"")
    })?;
    let Ok(address) = text.parse::<IpAddr>() else {
        let refusal = Refusal::new(format!("cannot be \"{}\", which is not an IP address", printable(text)));
        return Err(if text.contains('/') {
            refusal.remedy("remove the prefix length: this is one address, not a network")
        } else if text.contains('%') {
            refusal.remedy("remove `%` and the interface: the port has one")
        } else if text.contains(':') {
            refusal
                .remedy("write eight groups of hexadecimal digits, or fewer and `::`, as in \"2001:db8::1\"")
        } else {
            refusal.remedy("write four numbers from 0 to 255, as in \"192.0.2.1\"")
        });
    };
    let is_mapped = matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    let is_nobody = match address {
        IpAddr::V4(address) => address.octets()[0] == 0,
        IpAddr::V6(address) => address.is_unspecified(),
    };
    let is_reserved = matches!(address, IpAddr::V4(address) if address.octets()[0] >= 240);
    let wrong = if address.is_loopback() {
        Some("never leaves the host; use an address that the other end can reach")
    } else if address.is_multicast() || is_reserved {
        Some("is a multicast or reserved address; use the address of one host")
    } else if is_nobody {
        Some("is not a host's address; use the address of one host")
    } else if is_mapped {
        Some("is an IPv4-mapped address; write the IPv4 address, as in \"192.0.2.1\"")
    } else {
        None
    };
    match wrong {
        Some(why) => Err(Refusal::new(format!("cannot be {address}")).remedy(format!("{address} {why}"))),
        None => Ok(address),
    }
}

/// An absolute path, as a notation.
pub(super) const PATH: Text<String> = notation::text("", "an absolute path", path);

fn path(value: &DeValue<'_>) -> Result<String, Refusal> {
    let path = text(value)?;
    if !path.starts_with('/') || path.chars().any(char::is_control) {
        let refusal = Refusal::new("is not an absolute path");
        return Err(refusal.remedy("write a path from the root, as in \"/etc/polder/password\""));
    }
    Ok(path)
}

/// The Ethernet address of one station, as a notation.
pub(super) const STATION: Text<Mac> = notation::text("MAC address", "not a group's", station);

/// The Ethernet address of one station.
pub(super) fn station(value: &DeValue<'_>) -> Result<Mac, Refusal> {
    let example = "write six pairs of hexadecimal digits, as in \"02:00:00:00:00:01\"";
    let text = value.as_str().ok_or_else(|| wrong_type("an Ethernet address", value).remedy(example))?;
    let mac = parse_mac(text).ok_or_else(|| {
        Refusal::new(format!("cannot be \"{}\", which is not an Ethernet address", printable(text)))
            .remedy(example)
    })?;
    if mac.is_group() || mac == Mac([0; 6]) {
        let remedy = "use a unicast address: its first byte is even, and not all bytes are zero";
        return Err(Refusal::new(format!("cannot be {mac}")).remedy(remedy));
    }
    Ok(mac)
}

fn parse_mac(text: &str) -> Option<Mac> {
    let mut bytes = [0; 6];
    let separator = if text.contains('-') { '-' } else { ':' };
    let mut parts = text.split(separator);
    for byte in &mut bytes {
        let part = parts.next()?;
        let digits = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
        *byte = u8::from_str_radix(part, 16).ok().filter(|_| digits)?;
    }
    parts.next().is_none().then_some(Mac(bytes))
}

/// The name of a Linux interface.
pub(super) fn interface(value: &DeValue<'_>) -> Result<String, Refusal> {
    interface_name(value, "`ip link` lists the interfaces by name")
}

/// The name of an interface that does not exist yet.
pub(super) fn new_interface(value: &DeValue<'_>) -> Result<String, Refusal> {
    interface_name(value, "choose a name of 1 to 15 bytes without white space, `/`, `:` and `%`")
}

fn interface_name(value: &DeValue<'_>, remedy: &str) -> Result<String, Refusal> {
    let name = text(value)?;
    let wrong = if name.is_empty() {
        "is empty"
    } else if name.len() > 15 {
        "is longer than the 15 bytes that Linux allows"
    } else if name == "." || name == ".." || name.contains(['/', ':', '%']) {
        "is not a possible interface name"
    } else if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        "contains white space or control characters"
    } else {
        return Ok(name);
    };
    Err(Refusal::new(wrong).remedy(remedy))
}

/// The address of a PCI device.
pub(super) fn pci(value: &DeValue<'_>) -> Result<Address, Refusal> {
    let address = text(value)?.parse::<Address>();
    address.map_err(|error| Refusal::new("is not the address of a PCI device").remedy(error.to_string()))
}

/// True if `name` can name a gateway, port, tunnel or bridge.
pub(super) fn is_name(name: &str) -> bool {
    let first = name.bytes().next();
    first.is_some_and(|byte| byte.is_ascii_alphanumeric())
        && name.len() <= 31
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Remedy for a name that cannot be one.
pub(super) const NAME_RULE: &str =
    "a name has at most 31 letters, digits, `-`, `_` or `.`, and begins with a letter or digit";

/// Highest VLAN that can be used; 4095 is reserved (IEEE 802.1Q, 9.6).
pub(super) const MAX_VLAN: u16 = 4094;

/// A number, or two with `-` between them, in `bounds`.
pub(super) fn range(
    value: &DeValue<'_>,
    bounds: RangeInclusive<u16>,
) -> Result<RangeInclusive<u16>, Refusal> {
    let Some(text) = value.as_str() else {
        return integer(bounds, "")(value).map(|number| number..=number);
    };
    let number = |text: &str| text.trim().parse().ok().filter(|number| bounds.contains(number));
    let range = match text.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)),
        None => number(text).map(|number| (number, number)),
    };
    match range {
        Some((first, last)) if first <= last => Ok(first..=last),
        Some(_) | None => {
            let (low, high) = (bounds.start(), bounds.end());
            let remedy = format!(
                "write a number, or two from {low} to {high} with the lower one first, as in \"10-19\""
            );
            Err(Refusal::new(format!("cannot be \"{}\"", printable(text))).remedy(remedy))
        }
    }
}

/// A range as it is written: one number as that.
pub(super) fn written_range(range: RangeInclusive<u16>) -> Value {
    let (first, last) = range.into_inner();
    if first == last { Value::Integer(first.into()) } else { Value::String(format!("{first}-{last}")) }
}
